from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from app.text.chat_template import ChatTemplate
from app.text.detokenizer import Detokenizer
from app.text.generator import OutputPlanner, PlanRequest
from app.text.plan_reader import read_plan
from app.text.real_tokenizers import FileTokenizer, TiktokenTokenizer, TokenizerError, load_tokenizer
from app.text.tokenizer import BuiltinTokenizer, Tokenizer

CORPUS = [
    "The small harbour carried the letters.",
    "She walked to the river, and the river was calm.",
    "naïve 日本 \U0001f600",
]


def make_tiktoken() -> Tokenizer:
    tiktoken = pytest.importorskip("tiktoken")
    ranks = {bytes((byte,)): byte for byte in range(256)}
    for pair in (b"th", b"the", b" the", b"er", b"ing"):
        ranks[pair] = len(ranks)
    encoding = tiktoken.Encoding(
        "tiny",
        pat_str=r" ?\w+|\s|[^\w\s]+",
        mergeable_ranks=ranks,
        special_tokens={"<|im_start|>": len(ranks)},
    )
    return TiktokenTokenizer(encoding)


def train(kind: str) -> Any:
    hf = pytest.importorskip("tokenizers")
    if kind == "byte_level":
        tokenizer = hf.Tokenizer(hf.models.BPE())
        tokenizer.pre_tokenizer = hf.pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = hf.decoders.ByteLevel()
        alphabet = hf.pre_tokenizers.ByteLevel.alphabet()
        trainer = hf.trainers.BpeTrainer(
            vocab_size=400, initial_alphabet=alphabet, special_tokens=["<|im_start|>"]
        )
    else:
        tokenizer = hf.Tokenizer(hf.models.BPE(byte_fallback=True, unk_token="<unk>"))
        tokenizer.pre_tokenizer = hf.pre_tokenizers.Metaspace(prepend_scheme="never")
        tokenizer.decoder = hf.decoders.Sequence([hf.decoders.Replace("▁", " "), hf.decoders.ByteFallback()])
        bytes_ = [f"<0x{byte:02X}>" for byte in range(256)]
        trainer = hf.trainers.BpeTrainer(vocab_size=500, special_tokens=["<unk>", "<|im_start|>", *bytes_])
    tokenizer.train_from_iterator(CORPUS[:2], trainer)
    # The byte entries are ordinary vocabulary in real files; the trainer can only add them as special ones.
    document = json.loads(tokenizer.to_str())
    document["added_tokens"] = [token for token in document["added_tokens"] if "<0x" not in token["content"]]
    return hf.Tokenizer.from_str(json.dumps(document))


@pytest.fixture(params=["tiktoken", "byte_level", "metaspace"])
def real(request: pytest.FixtureRequest, tmp_path: Path) -> Tokenizer:
    if request.param == "tiktoken":
        return make_tiktoken()
    train(request.param).save(str(tmp_path / "tokenizer.json"))
    return load_tokenizer(str(tmp_path))


def test_text_comes_back_whole_and_in_pieces(real: Tokenizer) -> None:
    for text in CORPUS:
        ids = real.encode(text)
        detokenizer = Detokenizer(real)
        assert real.decode(ids) == detokenizer.push_many(ids) + detokenizer.finish() == text
        assert len(ids) >= len(text) / real.max_token_chars


def test_unknown_id_has_a_stand_in(real: Tokenizer) -> None:
    assert real.token_text(4_000_000_000) == "⟨4000000000⟩"
    assert real.decode([4_000_000_000]) == "⟨4000000000⟩"


def test_lone_surrogate_counts_as_replacement_character(real: Tokenizer) -> None:
    assert real.decode(real.encode("a\ud800b")).count("\ufffd") == 1


def test_known_marker_is_one_token_and_an_unknown_one_is_text(real: Tokenizer) -> None:
    assert len(real.marker("<|im_start|>")) == 1
    assert real.decode(real.marker("<|nope|>")) == "<|nope|>"


def test_plans_and_templates_work_with_it(real: Tokenizer) -> None:
    prompt = ChatTemplate(real).encode([{"role": "user", "content": "Hi there"}])
    for mode in ("lorem", "random"):
        plan = OutputPlanner(real, mode=mode).plan(PlanRequest("r", prompt, 100, ignore_eos=True))
        assert len(plan.to_list()) == 100
        assert read_plan(real, plan).content == real.decode(plan)


def test_natural_end_has_the_planned_length_with_it(real: Tokenizer) -> None:
    planner = OutputPlanner(real)
    for n in range(20):
        plan = planner.plan(PlanRequest(f"r{n}", [1], 10_000))
        assert len(plan) == len(plan.to_list())


def test_default_is_the_builtin_one() -> None:
    assert isinstance(load_tokenizer(), BuiltinTokenizer)


def test_tiktoken_without_local_data_is_refused_and_nothing_is_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loader = pytest.importorskip("tiktoken.load")
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(loader, "read_file", lambda path: pytest.fail(f"wanted to fetch {path}"))
    with pytest.raises(TokenizerError, match="TIKTOKEN_CACHE_DIR"):
        load_tokenizer("tiktoken:o200k_base")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("tiktoken:nope", "no encoding 'nope'"),
        ("/does/not/exist", "no tokenizer at"),
        ("meta-llama/Llama-3", "nothing is downloaded"),
    ],
)
def test_wrong_spec_says_what_to_pass(spec: str, says: str) -> None:
    with pytest.raises(TokenizerError, match=says):
        load_tokenizer(spec)


def test_file_that_is_no_tokenizer_is_refused_by_name(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    for content in ("{", "[]", json.dumps({"model": {"type": "Nope"}})):
        (tmp_path / "tokenizer.json").write_text(content)
        with pytest.raises(TokenizerError, match=r"tokenizer\.json is not a usable"):
            load_tokenizer(str(tmp_path / "tokenizer.json"))


def test_word_piece_entries_read_as_words_and_continuations() -> None:
    hf = pytest.importorskip("tokenizers")
    tokenizer = hf.Tokenizer(hf.models.WordPiece({"[UNK]": 0, "play": 1, "##ing": 2}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = hf.pre_tokenizers.Whitespace()
    wrapped = FileTokenizer(tokenizer, {"type": "WordPiece", "prefix": "##"}, "wp")
    assert wrapped.decode(wrapped.encode("playing play")) == " playing play"
