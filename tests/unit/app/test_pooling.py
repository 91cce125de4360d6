"""Embeddings, rerank, score, moderations, tokenize and LoRA routes."""

from __future__ import annotations

import base64
import math
import struct
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from app.factory import create_app
from app.openai.pooling import serving
from app.openai.pooling.vectors import DIMENSIONS, similarity, unit_vector
from app.settings import ServeSettings
from app.state import AppState
from mocker_core.errors import ArgumentError
from tests.harness.asgi_stream import AsgiClient, Exchange
from tests.unit.app.serving_fixtures import chat, served


def post(path: str, body: dict[str, Any], **settings: Any) -> Exchange:
    async def test(client: AsgiClient, state: AppState) -> Exchange:
        return await client.post(path, body)

    return served(test, **settings)


def test_embeddings_are_unit_vectors_in_both_encodings() -> None:
    texts = ["red apples", "the sea"]
    plain = post("/v1/embeddings", {"input": texts}).json()
    packed = post("/v1/embeddings", {"input": texts, "encoding_format": "base64"}).json()
    for one, other in zip(plain["data"], packed["data"], strict=True):
        raw = base64.b64decode(other["embedding"])
        assert len(raw) == 4 * 1536
        assert struct.unpack("<1536f", raw) == pytest.approx(one["embedding"], rel=1e-6)
        assert math.fsum(value * value for value in one["embedding"]) == pytest.approx(1)
    assert [item["index"] for item in plain["data"]] == [0, 1]
    assert plain["usage"] == packed["usage"]
    assert plain["usage"]["prompt_tokens"] == plain["usage"]["total_tokens"] > 0


def test_ids_and_their_text_have_the_same_embedding_and_fewer_dimensions_are_its_start() -> None:
    async def test(client: AsgiClient, state: AppState) -> None:
        ids = state.tokenizer.encode("red apples")
        asks: list[Any] = ["red apples", ids, [ids], ["red apples"]]
        found = [(await client.post("/v1/embeddings", {"input": ask})).json() for ask in asks]
        assert all(item["data"] == found[0]["data"] for item in found)
        assert found[0]["usage"]["prompt_tokens"] == len(ids)
        short = (await client.post("/v1/embeddings", {"input": ids, "dimensions": 8})).json()
        vector, start = short["data"][0]["embedding"], found[0]["data"][0]["embedding"][:8]
        scale = math.sqrt(sum(value * value for value in start))
        assert vector == pytest.approx([value / scale for value in start])

    served(test)


@pytest.mark.parametrize("many", [True, False])
@pytest.mark.parametrize(
    ("path", "name"), [("/v1/embeddings", "input"), ("/rerank", "documents"), ("/score", "documents")]
)
def test_many_vectors_are_made_away_from_the_event_loop(
    monkeypatch: pytest.MonkeyPatch, path: str, name: str, many: bool
) -> None:
    threads: set[int] = set()

    def watched(token_ids: Sequence[int], dimensions: int = DIMENSIONS) -> list[float]:
        threads.add(threading.get_ident())
        return unit_vector(token_ids, dimensions)

    monkeypatch.setattr(serving, "unit_vector", watched)
    texts = [f"text {number}" for number in range(100 if many else 2)]
    query = {"query": "a"} if path == "/rerank" else {"queries": "a"} if path == "/score" else {}
    assert post(path, {name: texts, **query}).status == 200
    assert (threading.get_ident() not in threads) is many


def test_texts_that_share_words_are_nearer() -> None:
    red, also_red, sea = ([1, 2, 3, 4], [2, 1, 3, 9], [20, 21, 22, 23])
    base = unit_vector(red)
    assert similarity(base, unit_vector(red)) == pytest.approx(1)
    assert similarity(base, unit_vector(also_red)) > similarity(base, unit_vector(sea)) + 0.1


@pytest.mark.parametrize("path", ["/v1/rerank", "/v2/rerank", "/rerank"])
def test_rerank_puts_the_likest_document_first(path: str) -> None:
    documents = ["the wide open sea", {"text": "apples that are red"}, "boats"]
    got = post(path, {"query": "red apples are", "documents": documents, "top_n": 2}).json()
    assert got["results"][0]["index"] == 1
    assert got["results"][0]["document"] == {"text": "apples that are red"}
    assert len(got["results"]) == 2
    assert 1 >= got["results"][0]["relevance_score"] >= got["results"][1]["relevance_score"] >= 0


@pytest.mark.parametrize("path", ["/v1/score", "/score"])
def test_scores_pair_one_or_as_many_queries(path: str) -> None:
    one = post(path, {"text_1": "red", "text_2": ["red", "blue"]}).json()
    assert one["data"][0]["score"] == pytest.approx(1)
    assert one["data"][1]["score"] < 1
    many = post(path, {"queries": ["red", "blue"], "documents": ["red", "blue"]}).json()
    assert [item["score"] for item in many["data"]] == pytest.approx([1, 1])


def test_moderations_flag_by_words() -> None:
    got = post("/v1/moderations", {"input": ["I love you.", "I will kill the process"]}).json()
    assert [result["flagged"] for result in got["results"]] == [False, True]
    assert got["results"][1]["categories"]["violence"]
    parts = [{"type": "text", "text": "hi"}, {"type": "image_url", "image_url": {"url": "http://x"}}]
    assert len(post("/v1/moderations", {"input": parts, "model": "any"}).json()["results"]) == 1


def test_tokenize_counts_what_usage_counts_and_detokenize_gives_it_back() -> None:
    async def test(client: AsgiClient, state: AppState) -> None:
        said = "Hello, wörld 🎉"
        got = (await client.post("/tokenize", {"prompt": said, "return_token_strs": True})).json()
        assert got["count"] == len(got["tokens"]) == len(got["token_strs"])
        assert got["max_model_len"] == state.max_model_len
        back = await client.post("/detokenize", {"tokens": got["tokens"]})
        assert back.json() == {"prompt": said}
        counted = (await client.post("/tokenize", chat(said))).json()["count"]
        usage = (await client.post("/v1/chat/completions", chat(said, max_tokens=1))).json()["usage"]
        assert counted == usage["prompt_tokens"]
        assert (await client.post("/tokenize", {"prompt": ""})).json()["count"] == 0

    served(test)


def test_adapters_are_loaded_served_and_unloaded() -> None:
    async def test(client: AsgiClient, state: AppState) -> None:
        sql = {"lora_name": "sql", "lora_path": "adapters/sql"}
        got = await client.post("/v1/load_lora_adapter", sql)
        assert (got.status, got.body) == (200, b"Success: LoRA adapter 'sql' added successfully.")
        assert got.headers["content-type"].startswith("text/plain")
        cards = {card["id"]: card for card in (await client.get("/v1/models")).json()["data"]}
        assert cards["sql"]["root"] == "adapters/sql"
        assert cards["sql"]["parent"] == "mocker"
        assert cards["start"]["parent"] == "mocker"
        answer = (await client.post("/v1/chat/completions", chat(model="sql", max_tokens=1))).json()
        assert answer["model"] == "sql"
        again = await client.post("/v1/load_lora_adapter", sql)
        assert again.status == 400
        assert "already been loaded" in again.json()["error"]["message"]
        assert (await client.post("/v1/load_lora_adapter", {**sql, "load_inplace": True})).status == 200
        got = await client.post("/v1/unload_lora_adapter", {"lora_name": "sql"})
        assert (got.status, got.body) == (200, b"Success: LoRA adapter 'sql' removed successfully.")
        for name in ("sql", "mocker"):
            assert (await client.post("/v1/unload_lora_adapter", {"lora_name": name})).status == 404
        for wrong in ({}, {"lora_name": "a"}, {"lora_name": "", "lora_path": "x"}, {"lora_name": 3}):
            assert (await client.post("/v1/load_lora_adapter", wrong)).status == 400
        assert (await client.post("/v1/chat/completions", chat(model="sql"))).status == 404

    served(test, lora_modules=("start=x/y", '{"name": "other", "path": "z"}'))


@pytest.mark.parametrize("module", ["x", "=y", "x=", "{", '{"name": "a"}', "mocker=x"])
def test_a_wrong_lora_module_refuses_the_start(module: str) -> None:
    with pytest.raises(ArgumentError, match="lora-modules"):
        create_app(ServeSettings(lora_modules=(module,)))


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/v1/embeddings", {}, "input"),
        ("/v1/embeddings", {"input": ""}, "input"),
        ("/v1/embeddings", {"input": []}, "input"),
        ("/v1/embeddings", {"input": ["a", ""]}, "input"),
        ("/v1/embeddings", {"input": ["a", 1]}, "body.input"),
        ("/v1/embeddings", {"input": ["a"] * 2049}, "input"),
        ("/v1/embeddings", {"input": "a", "dimensions": 0}, "dimensions"),
        ("/v1/embeddings", {"input": "a", "dimensions": 1537}, "dimensions"),
        ("/v1/embeddings", {"input": "a", "encoding_format": "hex"}, "body.encoding_format"),
        ("/v1/embeddings", {"input": "word " * 300}, "input"),
        ("/v1/rerank", {"query": "", "documents": ["a"]}, "query"),
        ("/v1/rerank", {"query": "a", "documents": []}, "documents"),
        ("/v1/rerank", {"query": "a", "documents": [3]}, "documents.0"),
        ("/v1/rerank", {"query": "a", "documents": ["a"], "top_n": -1}, "top_n"),
        ("/v1/score", {"queries": ["a", "b"], "documents": ["a"]}, "queries"),
        ("/v1/score", {"queries": "a"}, "documents"),
        ("/v1/score", {"queries": "", "documents": "a"}, "queries"),
        ("/v1/moderations", {"input": []}, "input"),
        ("/v1/moderations", {"input": [{"type": "smell"}]}, "input.0"),
        ("/tokenize", {}, "prompt"),
        ("/tokenize", {"prompt": "a", "messages": []}, "prompt"),
        ("/tokenize", {"messages": []}, "messages"),
        ("/detokenize", {}, None),
        ("/detokenize", {"tokens": [-1]}, "tokens"),
    ],
)
def test_what_is_wrong_is_400_with_its_param(path: str, body: dict[str, Any], param: str | None) -> None:
    got = post(path, body, max_model_len=256)
    assert got.status == 400
    assert got.json()["error"]["param"] == param
