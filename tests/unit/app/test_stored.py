"""Stored chat completions: what is kept, in which order, with which limits."""

from __future__ import annotations

from typing import Any

import pytest

from app.openai.bounded_store import BoundedStore
from app.openai.stored.store import chat_store
from app.state import AppState
from tests.harness.asgi_stream import AsgiClient
from tests.unit.app.serving_fixtures import chat, scripted, served

PATH = "/v1/chat/completions"


def stored_chat(content: str = "Hello", **more: Any) -> dict[str, Any]:
    return chat(content, store=True, max_tokens=4, **more)


def test_the_stored_body_is_the_answer_with_its_metadata() -> None:
    async def test(client: AsgiClient, state: AppState) -> None:
        made = (await client.post(PATH, stored_chat(metadata={"a": "b"}, n=2))).json()
        found = (await client.get(f"{PATH}/{made['id']}")).json()
        assert found == {**made, "metadata": {"a": "b"}}

    served(test)


@pytest.mark.parametrize(
    "metadata", [{"a": 1}, {"a" * 65: "x"}, {"a": "x" * 513}, {str(n): "" for n in range(17)}]
)
def test_metadata_out_of_its_limits_is_refused(metadata: dict[str, Any]) -> None:
    async def test(client: AsgiClient, state: AppState) -> None:
        refused = await client.post(PATH, stored_chat(metadata=metadata))
        assert refused.status == 400
        assert refused.json()["error"]["param"].startswith("metadata")
        made = (await client.post(PATH, stored_chat())).json()
        assert (await client.post(f"{PATH}/{made['id']}", {"metadata": metadata})).status == 400
        assert (await client.post(f"{PATH}/{made['id']}", {})).status == 400
        assert (await client.get(f"{PATH}/{made['id']}")).json()["metadata"] == {}

    served(test)


def test_pages_filters_and_orders() -> None:
    async def test(client: AsgiClient, state: AppState) -> None:
        made = [
            (await client.post(PATH, stored_chat(metadata={"n": str(number % 2), "x": "y"}))).json()["id"]
            for number in range(4)
        ]

        async def listed(query: str) -> list[str]:
            got = await client.get(f"{PATH}?{query}")
            assert got.status == 200, got.body
            return [item["id"] for item in got.json()["data"]]

        assert await listed("") == made
        assert await listed("order=desc&limit=3") == made[:0:-1]
        assert await listed("metadata%5Bn%5D=1") == made[1::2]
        assert await listed("metadata[n]=1&metadata[x]=z") == []
        assert await listed(f"after={made[2]}") == made[3:]
        assert await listed("model=mocker") == made
        assert await listed("model=none") == []
        for wrong in ("after=none", "limit=0", "limit=101", "order=up"):
            assert (await client.get(f"{PATH}?{wrong}")).status == 400
        last = (await client.get(f"{PATH}?limit=2")).json()
        assert (last["first_id"], last["last_id"], last["has_more"]) == (made[0], made[1], True)

    served(test)


def test_messages_are_shown_as_they_were_sent() -> None:
    parts = [{"type": "text", "text": "What"}, {"type": "image_url", "image_url": {"url": "data:,x"}}]
    messages = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": parts}]

    async def test(client: AsgiClient, state: AppState) -> None:
        made = (await client.post(PATH, {"messages": messages, "store": True, "max_tokens": 2})).json()
        data = (await client.get(f"{PATH}/{made['id']}/messages")).json()["data"]
        assert [item["id"] for item in data] == [f"{made['id']}-0", f"{made['id']}-1"]
        assert [item["content"] for item in data] == ["Be kind.", "What"]
        assert data[1]["content_parts"] == parts
        newest = (await client.get(f"{PATH}/{made['id']}/messages?order=desc&limit=1")).json()
        assert newest["data"] == [data[1]]

    served(test)


@pytest.mark.parametrize(
    ("method", "path"), [("GET", ""), ("POST", ""), ("DELETE", ""), ("GET", "/messages")]
)
def test_an_unknown_id_is_404(method: str, path: str) -> None:
    async def test(client: AsgiClient, state: AppState) -> None:
        got = await client.request(method, f"{PATH}/chatcmpl-x{path}", {"metadata": {}})
        assert got.status == 404
        assert got.json()["error"]["message"].startswith("Chat completion with id 'chatcmpl-x' not found")

    served(test)


def test_an_answer_that_fails_or_loses_its_client_is_not_kept() -> None:
    async def test(client: AsgiClient, engine: Any, state: AppState) -> None:
        failing = client.open("POST", PATH, stored_chat())
        await engine.wait_submitted(1)
        engine.dispatcher.on_dead(0, [engine.submitted[0].request_id], "it broke")
        await failing.finished()
        leaving = client.open("POST", PATH, stored_chat(stream=True, ignore_eos=True))
        await engine.wait_submitted(2)
        engine.emit(engine.next_token(engine.submitted[1], 0))
        leaving.hang_up()
        await leaving.finished()
        assert len(chat_store(state)) == 0

    scripted(test)


def bounded(**bounds: int) -> BoundedStore[str]:
    return BoundedStore(weigh=len, is_pinned=lambda text: text.startswith("pin"), **bounds)


def test_the_oldest_go_beyond_the_number() -> None:
    store = bounded(max_items=3)
    for key in "abcde":
        store.put(key, key)
    assert list(store) == ["c", "d", "e"]
    store.put("c", "again")
    store.put("f", "f")
    assert list(store) == ["e", "again", "f"]


def test_the_oldest_go_beyond_the_weight() -> None:
    store = bounded(max_bytes=10)
    for key in "abc":
        store.put(key, key * 4)
    assert list(store) == ["bbbb", "cccc"]
    assert store.weight_bytes == 8
    store.replace("b", "b" * 7)
    assert list(store) == ["cccc"]
    store.put("big", "x" * 11)
    assert len(store) == 0
    assert store.weight_bytes == 0


def test_what_is_pinned_stays_until_it_is_not() -> None:
    store = bounded(max_items=1)
    store.put("a", "pin a")
    store.put("b", "pin b")
    assert len(store) == 2
    store.replace("a", "a")
    assert list(store) == ["pin b"]


def test_replacing_or_dropping_what_is_gone_does_nothing() -> None:
    store = bounded()
    store.replace("a", "a")
    store.weigh_again("a")
    assert store.pop("a") is None
    assert store.get("a") is None
    assert "a" not in store
