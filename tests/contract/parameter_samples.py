"""A working value of every request parameter of the four OpenAI routes, and docs/parameters.md's remarks.

`test_parameters` sends each with and without its value and sees what changed; it also writes the document.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
RESPONSES, EMBEDDINGS = "/v1/responses", "/v1/embeddings"

STRICT = {"type": "object", "properties": {"a": {"const": 1}}, "required": ["a"]}
FUNCTIONS = [{"name": name, "parameters": STRICT} for name in ("f", "g")]
TOOLS = [{"type": "function", "function": function} for function in FUNCTIONS]
FLAT_TOOLS = [{"type": "function", **function} for function in FUNCTIONS]
THINKING = {"chat_template_kwargs": {"enable_thinking": True}, "max_tokens": 60}
LONG = {"max_tokens": 400}
GUIDED = "vLLM since 0.12 ignores it; use structured_outputs"
NOTHING_TO_SAMPLE = "answers are made up, so there is nothing to sample"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """`beside`: fields that both requests have. `wrong`: a value that must be 400.

    `instead_of`: the field that goes when this one comes. `proof`: the test that shows an effect which
    one answer cannot show.
    """

    value: Any
    beside: dict[str, Any] = field(default_factory=dict)
    wrong: Any = None
    instead_of: str = ""
    proof: str = ""
    remark: str = ""


def _plain(value: Any, remark: str = "", **more: Any) -> Sample:
    return Sample(value=value, remark=remark, **more)


def _sampled(value: Any, wrong: Any) -> Sample:
    return Sample(value=value, wrong=wrong, remark=NOTHING_TO_SAMPLE)


_MODEL = {
    "model": _plain("second", wrong="none", remark="404 if the server has another name; may be missing")
}

# What chat, completions and responses have in common.
GENERATION: dict[str, Sample] = _MODEL | {
    "frequency_penalty": _sampled(0.5, 3),
    "presence_penalty": _sampled(0.5, -3),
    "repetition_penalty": _sampled(1.1, 0),
    "temperature": _sampled(0.5, 3),
    "top_p": _sampled(0.5, 0),
    "top_k": _sampled(5, -2),
    "min_p": _sampled(0.1, 2),
    "logit_bias": _sampled({"5": 10}, {"word": 1}),
    "max_tokens": _plain(3, wrong=0),
    "n": _plain(2, wrong=0, remark="1 to 16384, 1 when greedy (openai profile: 1 to 128)"),
    "seed": _plain(8, wrong=2**70, remark="the same seed and prompt give the same answer"),
    "stop": _plain(["e"], wrong=[""], remark="held back, never sent (openai profile: at most 4)"),
    "stream": _plain(True),
    "stream_options": _plain(
        {"include_usage": True}, beside={"stream": True}, remark="include_usage, continuous_usage_stats"
    ),
    "user": _plain("me"),
    "length_penalty": _plain(1.5),
    "use_beam_search": _plain(True),
    "stop_token_ids": _plain(
        [32], wrong=[-1], proof="tests/unit/app/test_chat.py::test_a_stop_token_ends_the_answer"
    ),
    "include_stop_str_in_output": _plain(True, beside={"stop": ["e"]}),
    "ignore_eos": _plain(True, beside=LONG),
    "min_tokens": _plain(390, beside=LONG, wrong=401, remark="no stop string or token counts before it"),
    "skip_special_tokens": _plain(False, "answers have no special tokens"),
    "spaces_between_special_tokens": _plain(False),
    "truncate_prompt_tokens": _plain(1, wrong=-2, remark="the last so many tokens of the prompt"),
    "allowed_token_ids": _plain([5], NOTHING_TO_SAMPLE),
    "bad_words": _plain(["x"], NOTHING_TO_SAMPLE),
    "prompt_logprobs": _plain(1, wrong=21, remark="0 to --max-logprobs; 400 with stream"),
    "add_special_tokens": _plain(True),
    "response_format": _plain(
        {"type": "json_object"}, wrong={"type": "yaml"}, remark="text, json_object, json_schema"
    ),
    "structured_outputs": _plain(
        {"choice": ["yes"]}, wrong={}, remark="json, json_object, regex, choice; no grammar"
    ),
    "guided_json": _plain(STRICT, wrong="{", remark=GUIDED),
    "guided_regex": _plain("a{3}", wrong="(", remark=GUIDED),
    "guided_choice": _plain(["yes"], wrong=[], remark=GUIDED),
    "guided_grammar": _plain("root ::= x", "grammars are not simulated"),
    "guided_decoding_backend": _plain("xgrammar"),
    "guided_whitespace_pattern": _plain(" "),
    "logits_processors": _plain(["x"]),
    "priority": _plain(
        3,
        "the lowest number first",
        proof="tests/unit/app/test_serving.py::test_priority_reaches_the_engine_lowest_number_first",
    ),
    "request_id": _plain("mine", "the answer's id has it"),
    "cache_salt": _plain(
        "salt",
        "prefixes are found among requests of the same salt only",
        wrong="",
        proof="tests/unit/app/test_prefix_salt.py::test_another_salt_or_adapter_finds_no_prefix",
    ),
    "kv_transfer_params": _plain(
        {"do_remote_decode": True},
        "docs/handoff.md; 400 on an aggregated server",
        proof="tests/e2e/test_pd_contract.py::test_prefill_answers_one_token_and_the_parameters_of_the_contract",
    ),
    "vllm_xargs": _plain({"a": 1}),
    "return_token_ids": _plain(True),
    "return_tokens_as_token_ids": _plain(True, beside={"logprobs": 1}),
    "nvext": _plain({"a": 1}),
}

CHAT_SAMPLES: dict[str, Sample] = GENERATION | {
    "messages": _plain([{"role": "user", "content": "Something else"}], wrong=[]),
    "audio": _plain({"voice": "x", "format": "mp3"}, "answers have no sound"),
    "function_call": _plain("none", beside={"functions": FUNCTIONS}, wrong={"name": "x"}),
    "functions": _plain(FUNCTIONS, wrong=[]),
    "logprobs": _plain(True),
    "max_completion_tokens": _plain(3, wrong=0, remark="goes before max_tokens"),
    "metadata": _plain(
        {"a": "b"},
        "kept with store: true",
        proof="tests/contract/test_stored_sdk.py::test_the_list_has_pages_an_order_and_filters",
    ),
    "modalities": _plain(["text", "audio"], "answers are text"),
    "moderation": _plain({"model": "omni-moderation-latest"}),
    "parallel_tool_calls": _plain(False, beside={"tools": TOOLS, "seed": 1, "max_tokens": 200}),
    "prediction": _plain({"type": "content", "content": "x"}),
    "prompt_cache_key": _plain("k", "the prefix cache goes by tokens alone"),
    "prompt_cache_options": _plain({}),
    "prompt_cache_retention": _plain("24h"),
    "reasoning_effort": _plain(
        "none", beside=THINKING, wrong="huge", remark="changes the share of reasoning"
    ),
    "safety_identifier": _plain("s"),
    "service_tier": _plain("flex", "use priority"),
    "store": _plain(
        True,
        "GET /v1/chat/completions has it",
        proof="tests/contract/test_stored_sdk.py::test_a_stored_completion_is_retrieved_changed_and_deleted",
    ),
    "tool_choice": _plain("none", beside={"tools": TOOLS}, wrong="maybe"),
    "tools": _plain(TOOLS, wrong=[], remark="auto always calls, unless the last message is a tool's result"),
    "top_logprobs": _plain(
        2, beside={"logprobs": True}, wrong=21, remark="0 to --max-logprobs; needs logprobs"
    ),
    "verbosity": _plain("low", "use max_tokens"),
    "web_search_options": _plain({}),
    "echo": _plain(True),
    "add_generation_prompt": _plain(False),
    "continue_final_message": _plain(
        True, beside={"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}
    ),
    "documents": _plain([{"text": "x"}]),
    "chat_template": _plain("{{ messages }}", "the server's holds"),
    "chat_template_kwargs": _plain({"enable_thinking": True}, beside={"max_tokens": 60}),
    "include_reasoning": _plain(False, beside=THINKING, remark="generated and counted, but not sent"),
    "mm_processor_kwargs": _plain({}),
    "return_tokens_as_token_ids": _plain(True, beside={"logprobs": True}),
}

TEXT_SAMPLES: dict[str, Sample] = GENERATION | {
    "prompt": _plain("Something else", wrong=[], remark="text, texts, token ids, or lists of token ids"),
    "best_of": _plain(2, wrong=0, remark="usage counts all that were generated"),
    "echo": _plain(True),
    "logprobs": _plain(1, wrong=21, remark="0 to --max-logprobs"),
    "suffix": _plain("the end", "counts as prompt"),
}

RESPONSES_SAMPLES: dict[str, Sample] = GENERATION | {
    "input": _plain("Something else", wrong=[]),
    "instructions": _plain("Be kind."),
    "previous_response_id": _plain(
        "resp_none",
        "404 if it is not kept",
        proof="tests/unit/app/test_responses.py::test_the_next_turn_finds_the_turn_before_it",
    ),
    "conversation": _plain("conv_1", "use previous_response_id"),
    "parallel_tool_calls": _plain(False, beside={"tools": FLAT_TOOLS, "seed": 3, "max_output_tokens": 200}),
    "reasoning": _plain(
        {"effort": "high"},
        "effort and summary; a server reasons with --reasoning or --reasoning-parser",
        wrong={"effort": "huge"},
        proof="tests/contract/test_responses_sdk.py::test_reasoning_comes_as_an_item_of_its_own",
    ),
    "ignore_eos": _plain(True, beside={"max_output_tokens": 400}),
    "min_tokens": _plain(390, beside={"max_output_tokens": 400}, wrong=401),
    "truncate_prompt_tokens": _plain(1, wrong=-2, remark="use truncation"),
    "text": _plain({"format": {"type": "json_object"}}, wrong={"format": {"type": "yaml"}}),
    "tool_choice": _plain("none", beside={"tools": FLAT_TOOLS}, wrong="maybe"),
    "tools": _plain(
        FLAT_TOOLS, wrong=[{"type": "strange"}], remark="functions are called; hosted tools only shown"
    ),
    "truncation": _plain(
        "auto",
        "the oldest tokens are cut",
        wrong="never",
        proof="tests/unit/app/test_responses.py::test_truncation_auto_cuts_the_oldest_tokens",
    ),
    "background": _plain(True, beside={"store": True}),
    "include": _plain(["message.output_text.logprobs"], "logprobs and reasoning.encrypted_content"),
    "max_output_tokens": _plain(3, wrong=0),
    "max_tool_calls": _plain(2, wrong=0),
    "metadata": _plain({"a": "b"}, wrong={"a": 1}),
    "prompt": _plain({"id": "pmpt_1"}, "this server keeps no prompts"),
    "prompt_cache_key": _plain("k", "the prefix cache goes by tokens alone"),
    "prompt_cache_options": _plain({}),
    "prompt_cache_retention": _plain("24h"),
    "safety_identifier": _plain("s"),
    "service_tier": _plain("flex", "use priority"),
    "store": _plain(True, proof="tests/unit/app/test_responses.py::test_what_is_kept_is_what_was_answered"),
    "top_logprobs": _plain(2, beside={"include": ["message.output_text.logprobs"]}, wrong=21),
    "prompt_logprobs": _plain(1),
    "access_programs": _plain(["x"]),
    "background_options": _plain({}),
    "context_management": _plain([{"type": "compaction"}]),
    "image": _plain({}),
    "moderation": _plain({}),
    "n": _plain(1, wrong=2, remark="a response has one answer"),
    "max_tokens": _plain(3, "use max_output_tokens"),
    "response_format": _plain({"type": "json_object"}, "as text.format"),
    "return_token_ids": _plain(True),
    "return_tokens_as_token_ids": _plain(True),
    "stream_options": _plain({"include_usage": True}, "usage is in the last event", beside={"stream": True}),
}

EMBEDDINGS_SAMPLES: dict[str, Sample] = _MODEL | {
    "input": _plain("Something else", wrong=[], remark="text, texts, token ids, or lists of token ids"),
    "messages": _plain([{"role": "user", "content": "hi"}], "instead of input", instead_of="input"),
    "encoding_format": _plain("base64", wrong="hex"),
    "dimensions": _plain(8, wrong=0, remark="1 to 1536"),
    "user": _plain("me"),
    "truncate_prompt_tokens": _plain(1),
    "add_special_tokens": _plain(True),
    "priority": _plain(
        3, proof="tests/unit/app/test_serving.py::test_priority_reaches_the_engine_lowest_number_first"
    ),
    "request_id": _plain("mine"),
}

ROUTES: dict[str, dict[str, Sample]] = {
    CHAT: CHAT_SAMPLES,
    TEXT: TEXT_SAMPLES,
    RESPONSES: RESPONSES_SAMPLES,
    EMBEDDINGS: EMBEDDINGS_SAMPLES,
}

BASELINES: dict[str, dict[str, Any]] = {
    CHAT: {"messages": [{"role": "user", "content": "Hello there"}], "max_tokens": 12, "seed": 7},
    TEXT: {"prompt": "Hello there", "max_tokens": 12, "seed": 7},
    RESPONSES: {"input": "Hello there", "max_output_tokens": 12, "seed": 7, "store": False},
    EMBEDDINGS: {"input": "Hello there"},
}
