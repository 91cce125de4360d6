"""What /v1/responses answers: streamed and whole alike, in the documented order, with state between turns."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.openai.bounded_store import BoundedStore
from app.openai.responses.job import ResponseJob
from app.openai.responses.store import ResponseStore, response_store
from app.state import AppState
from tests.harness.asgi_stream import AsgiClient
from tests.unit.app.event_records import kinds, read_events
from tests.unit.app.serving_fixtures import served

PATH = "/v1/responses"
PARAMETERS = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "array", "items": {"type": "integer"}}},
    "required": ["city"],
}
TOOLS = [{"type": "function", "name": name, "parameters": PARAMETERS} for name in ("one", "two")]
MESSAGE_EVENTS = [
    "response.output_item.added",
    "response.content_part.added",
    "response.output_text.delta",
    "response.output_text.done",
    "response.content_part.done",
    "response.output_item.done",
]
REASONING_EVENTS = [event.replace("output_text", "reasoning_text") for event in MESSAGE_EVENTS]
SUMMARY_EVENTS = [
    "response.reasoning_summary_part.added",
    "response.reasoning_summary_text.delta",
    "response.reasoning_summary_text.done",
    "response.reasoning_summary_part.done",
]
START = ["response.created", "response.in_progress"]


def ask(**more: Any) -> dict[str, Any]:
    return {"input": "Hello there", "seed": 7, **more}


def comparable(body: dict[str, Any]) -> dict[str, Any]:
    """Without what differs between two equal requests: ids, times, cached tokens."""
    output = [{**item, "id": "", "call_id": ""} for item in body["output"]]
    usage = {**body["usage"], "input_tokens_details": None}
    return {
        **body,
        "id": "",
        "created_at": 0,
        "completed_at": bool(body["completed_at"]),
        "output": output,
        "usage": usage,
    }


async def both(client: AsgiClient, body: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A whole answer and the same one's events."""
    whole = await client.post(PATH, body)
    assert whole.status == 200, whole.body
    streamed = await client.post(PATH, {**body, "stream": True})
    events = read_events(streamed.body)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    return whole.json(), events


def check_deltas(events: list[dict[str, Any]]) -> None:
    """The pieces of each item make its done events, and the items make the last body's output."""
    output = events[-1]["response"]["output"]
    for number, item in enumerate(output):
        mine = [event for event in events if event.get("output_index") == number]
        pieces = "".join(
            e["delta"]
            for e in mine
            if e["type"].endswith(("text.delta", "arguments.delta")) and "summary" not in e["type"]
        )
        if item["type"] == "function_call":
            said = item["arguments"]
        else:
            said = item["content"][0]["text"]
        assert pieces == said
        assert mine[-1]["item"] == item


@given(
    seed=st.integers(0, 2**32),
    limit=st.integers(1, 60),
    shape=st.sampled_from(["text", "tools", "schema", "reasoning", "logprobs", "stop"]),
    interval=st.sampled_from([1, 3]),
)
@settings(max_examples=25)
def test_streamed_and_whole_answers_are_the_same(seed: int, limit: int, shape: str, interval: int) -> None:
    body = ask(seed=seed, max_output_tokens=limit)
    shapes: dict[str, dict[str, Any]] = {
        "text": {},
        "tools": {"tools": TOOLS, "tool_choice": "required"},
        "schema": {"text": {"format": {"type": "json_schema", "name": "x", "schema": PARAMETERS}}},
        "reasoning": {"reasoning": {"effort": "high", "summary": "auto"}},
        "logprobs": {"include": ["message.output_text.logprobs"], "top_logprobs": 1},
        "stop": {"stop": ["the", "a "]},
    }
    body |= shapes[shape]
    reasons = {"thinking_ratio": 0.5} if shape == "reasoning" else None

    async def test(client: AsgiClient, state: AppState) -> None:
        whole, events = await both(client, body)
        assert comparable(events[-1]["response"]) == comparable(whole)
        check_deltas(events)

    served(test, stream_interval=interval, reasoning=reasons)


def test_events_of_a_text_are_in_the_documented_order() -> None:
    async def test(client: AsgiClient, state: AppState) -> None:
        _, events = await both(client, ask())
        assert kinds(events) == [*START, *MESSAGE_EVENTS, "response.completed"]

    served(test)


def test_reasoning_comes_before_the_message_with_a_summary_if_asked() -> None:
    async def test(client: AsgiClient, state: AppState) -> None:
        _, events = await both(client, ask(reasoning={"summary": "auto"}))
        reasoning = [*REASONING_EVENTS[:-1], *SUMMARY_EVENTS, REASONING_EVENTS[-1]]
        assert kinds(events) == [*START, *reasoning, *MESSAGE_EVENTS, "response.completed"]

    served(test, reasoning={"thinking_ratio": 0.5})


def test_a_call_cut_by_the_limit_is_incomplete() -> None:
    async def test(client: AsgiClient, state: AppState) -> None:
        whole, events = await both(client, ask(tools=TOOLS, tool_choice="required", max_output_tokens=8))
        assert whole["status"] == "incomplete"
        assert whole["incomplete_details"] == {"reason": "max_output_tokens"}
        assert whole["output"][-1]["status"] == "incomplete"
        assert events[-1]["type"] == "response.incomplete"
        assert whole["usage"]["output_tokens"] == 8

    served(test)


def test_an_answer_without_text_is_an_empty_message() -> None:
    async def test(client: AsgiClient, state: AppState) -> None:
        whole, events = await both(client, ask(input="stop it", stop=["stop"]))
        assert whole["output"][0]["content"][0]["text"] == ""
        without = [kind for kind in MESSAGE_EVENTS if not kind.endswith("delta")]
        assert kinds(events) == [*START, *without, "response.completed"]

    served(test, content="echo")


def test_usage_counts_cached_and_reasoning_tokens() -> None:
    async def test(client: AsgiClient, state: AppState) -> None:
        body = ask(input="word " * 100)
        first = (await client.post(PATH, body)).json()["usage"]
        second = (await client.post(PATH, body)).json()["usage"]
        assert first["input_tokens_details"]["cached_tokens"] == 0
        assert second["input_tokens_details"]["cached_tokens"] >= 64
        assert second["input_tokens"] == first["input_tokens"]
        assert 0 < second["output_tokens_details"]["reasoning_tokens"] < second["output_tokens"]

    served(test, reasoning={"thinking_ratio": 0.5})


def test_the_next_turn_finds_the_turn_before_it() -> None:
    async def test(client: AsgiClient, state: AppState) -> None:
        first = (await client.post(PATH, ask(instructions="Be kind."))).json()
        second = (await client.post(PATH, ask(input="More", previous_response_id=first["id"]))).json()
        assert second["instructions"] is None
        listed = (await client.get(f"{PATH}/{second['id']}/input_items?order=asc")).json()
        assert [item["role"] for item in listed["data"]] == ["user", "assistant", "user"]
        assert listed["data"][1] == first["output"][0]
        alone = (await client.post(f"{PATH}/input_tokens", {"input": "More"})).json()
        assert second["usage"]["input_tokens"] > alone["input_tokens"] + first["usage"]["output_tokens"]
        counted = await client.post(
            f"{PATH}/input_tokens", {"input": "More", "previous_response_id": first["id"]}
        )
        assert counted.json()["input_tokens"] == second["usage"]["input_tokens"]

    served(test)


def test_an_item_can_be_referred_to_by_its_id() -> None:
    async def test(client: AsgiClient, state: AppState) -> None:
        first = (await client.post(PATH, ask())).json()
        items = [{"type": "item_reference", "id": first["output"][0]["id"]}, {"role": "user", "content": "?"}]
        second = (await client.post(PATH, ask(input=items))).json()
        listed = (await client.get(f"{PATH}/{second['id']}/input_items?order=asc")).json()["data"]
        assert listed[0] == first["output"][0]
        lost = await client.post(PATH, ask(input=[{"type": "item_reference", "id": "msg_none"}]))
        assert lost.status == 404

    served(test)


def test_input_items_come_in_pages_the_last_first() -> None:
    async def test(client: AsgiClient, state: AppState) -> None:
        items = [{"role": "user", "content": str(number)} for number in range(5)]
        made = (await client.post(PATH, ask(input=items))).json()
        path = f"{PATH}/{made['id']}/input_items"
        page = (await client.get(f"{path}?limit=2")).json()
        assert [item["content"][0]["text"] for item in page["data"]] == ["4", "3"]
        assert page["has_more"] is True
        rest = (await client.get(f"{path}?limit=10&after={page['last_id']}")).json()
        assert [item["content"][0]["text"] for item in rest["data"]] == ["2", "1", "0"]
        assert rest["has_more"] is False
        assert (await client.get(f"{path}?after=none")).status == 400
        assert (await client.get(f"{path}?limit=0")).status == 400

    served(test)


def test_what_is_kept_is_what_was_answered() -> None:
    async def test(client: AsgiClient, state: AppState) -> None:
        made = (await client.post(PATH, ask())).json()
        assert (await client.get(f"{PATH}/{made['id']}")).json() == made
        streamed = read_events((await client.post(PATH, ask(stream=True))).body)[-1]["response"]
        assert (await client.get(f"{PATH}/{streamed['id']}")).json() == streamed
        unkept = (await client.post(PATH, ask(store=False))).json()
        assert (await client.get(f"{PATH}/{unkept['id']}")).status == 404
        gone = await client.request("DELETE", f"{PATH}/{made['id']}")
        assert gone.json() == {"id": made["id"], "object": "response", "deleted": True}
        assert (await client.get(f"{PATH}/{made['id']}")).status == 404
        assert len(response_store(state)) == 1

    served(test)


def test_a_chain_goes_on_when_its_first_turns_are_dropped() -> None:
    async def test(client: AsgiClient, state: AppState) -> None:
        jobs: BoundedStore[ResponseJob] = BoundedStore(
            weigh=lambda job: job.facts.weight_bytes, is_pinned=lambda job: not job.ended, max_items=2
        )
        state.extras["responses"] = ResponseStore(jobs)
        made: list[str] = []
        for turn in range(4):
            previous = made[-1] if made else None
            body = ask(input=f"Turn {turn}", previous_response_id=previous, max_output_tokens=3)
            made.append((await client.post(PATH, body)).json()["id"])
        listed = (await client.get(f"{PATH}/{made[-1]}/input_items?order=asc")).json()["data"]
        assert [item["content"][0]["text"] for item in listed][::2] == [f"Turn {turn}" for turn in range(4)]
        assert (await client.get(f"{PATH}/{made[0]}")).status == 404
        assert (await client.post(PATH, ask(previous_response_id=made[0]))).status == 404
        weights = [job.facts.weight_bytes for job in jobs]
        assert weights[1] > weights[0] > 3 * len("Turn 0"), "a turn weighs what it keeps alive"

    served(test)


def test_one_request_id_for_ever_gives_responses_of_their_own() -> None:
    async def test(client: AsgiClient, state: AppState) -> None:
        made = [(await client.post(PATH, ask(), {"X-Request-Id": "a/b c"})).json()["id"] for _ in range(3)]
        assert len(set(made)) == 3
        for ident in made:
            assert (await client.get(f"{PATH}/{ident}")).status == 200

    served(test)


@pytest.mark.parametrize(
    ("body", "param", "status"),
    [
        ({"input": None}, "input", 400),
        ({"input": []}, "input", 400),
        ({"input": [{"content": "x"}]}, "input.0.type", 400),
        ({"input": [{"role": "robot", "content": "x"}]}, "input.0.role", 400),
        ({"input": [{"role": "user"}]}, "input.0.content", 400),
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input.0.content.0", 400),
        ({"input": [{"type": "function_call", "name": "f", "arguments": "{}"}]}, "input.0.call_id", 400),
        ({"input": [{"type": "function_call_output", "call_id": "c"}]}, "input.0.output", 400),
        ({"max_output_tokens": 0}, "max_output_tokens", 400),
        ({"max_output_tokens": 10**9}, "input", 400),
        ({"temperature": 3}, "temperature", 400),
        ({"metadata": {"a": 1}}, "metadata.a", 400),
        ({"metadata": {str(n): "x" for n in range(17)}}, "metadata", 400),
        ({"background": True, "store": False}, "background", 400),
        ({"previous_response_id": "resp_x"}, "previous_response_id", 404),
        ({"previous_response_id": "resp_x", "conversation": "conv_x"}, "conversation", 400),
        ({"tool_choice": "required"}, "tool_choice", 400),
        ({"tools": [{"type": "function"}]}, "tools.0.name", 400),
        ({"tools": [{"type": "strange"}]}, "tools.0.type", 400),
        ({"text": {"format": {"type": "json_schema", "schema": {}}}}, "text.format.name", 400),
        ({"text": {"format": {"type": "yaml"}}}, "text.format.type", 400),
        ({"reasoning": {"effort": "huge"}}, "reasoning.effort", 400),
        ({"top_logprobs": 99}, "top_logprobs", 400),
        ({"model": "none"}, "model", 404),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_a_wrong_request_is_refused_with_its_place(
    body: dict[str, Any], param: str, status: int, stream: bool
) -> None:
    async def test(client: AsgiClient, state: AppState) -> None:
        got = await client.post(
            PATH, ask(stream=stream, **body) if "input" not in body else {**ask(), **body}
        )
        assert got.status == status, got.body
        error = got.json()["error"]
        assert error["param"] == param
        assert error["message"].endswith(".")

    served(test, wire_profile="openai")


@pytest.mark.parametrize(
    "tools",
    [
        [{"type": "web_search"}],
        [{"type": "file_search", "vector_store_ids": ["vs_1"]}, TOOLS[0]],
        [{"type": "mcp", "server_label": "x"}],
        [],
    ],
)
def test_hosted_tools_are_taken_and_shown(tools: list[dict[str, Any]]) -> None:
    async def test(client: AsgiClient, state: AppState) -> None:
        got = await client.post(PATH, ask(tools=tools, tool_choice="auto"))
        assert got.status == 200, got.body
        assert [tool["type"] for tool in got.json()["tools"]] == [tool["type"] for tool in tools]

    served(test)


def test_a_big_image_is_counted_and_never_shown_in_an_error() -> None:
    image = {"type": "input_image", "image_url": "data:image/png;base64," + "A" * 5000}

    async def test(client: AsgiClient, state: AppState) -> None:
        message = {"role": "user", "content": [{"type": "input_text", "text": "What?"}, image]}
        got = await client.post(PATH, ask(input=[message]))
        assert got.status == 200
        assert got.json()["usage"]["input_tokens"] > 256
        wrong = {"role": "user", "content": [{**image, "type": "strange"}]}
        refused = await client.post(PATH, ask(input=[wrong]))
        assert refused.status == 400
        assert b"AAAA" not in refused.body

    served(test)


def test_truncation_auto_cuts_the_oldest_tokens() -> None:
    async def test(client: AsgiClient, state: AppState) -> None:
        body = ask(input="word " * 500, max_output_tokens=10)
        assert (await client.post(PATH, body)).status == 400
        cut = (await client.post(PATH, {**body, "truncation": "auto"})).json()
        assert cut["usage"]["input_tokens"] == 256 - 10

    served(test, max_model_len=256)
