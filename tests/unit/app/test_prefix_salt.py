"""What keeps prefixes apart: vLLM's cache_salt, and the adapter that a request names."""

from __future__ import annotations

from typing import Any

import pytest

from app.state import AppState
from tests.harness.asgi_stream import AsgiClient
from tests.unit.app.serving_fixtures import chat, served

LORAS: dict[str, Any] = {"lora_modules": ("sql=x/y", "law=x/z"), "served_model_name": ("base", "other-name")}
LONG = "word " * 100


@pytest.mark.parametrize(
    ("path", "ask"),
    [
        ("/v1/chat/completions", chat(LONG)),
        ("/v1/completions", {"prompt": LONG}),
        ("/v1/responses", {"input": LONG}),
    ],
)
def test_another_salt_or_adapter_finds_no_prefix(path: str, ask: dict[str, Any]) -> None:
    async def test(client: AsgiClient, state: AppState) -> None:
        async def cached(**more: Any) -> int:
            usage = (await client.post(path, {**ask, **more})).json()["usage"]
            details = usage.get("prompt_tokens_details") or usage["input_tokens_details"]
            return int(details["cached_tokens"])

        own: list[dict[str, Any]] = [
            {},
            {"cache_salt": "a"},
            {"cache_salt": "b"},
            {"model": "sql"},
            {"model": "law"},
            {"model": "sql", "cache_salt": "a"},
        ]
        for more in own:
            assert await cached(**more) == 0, more
        for more in own:
            assert await cached(**more) > 64, more
        assert await cached(model="other-name") > 64, "another name of the same model"

    served(test, **LORAS)


def test_an_empty_salt_is_refused() -> None:
    async def test(client: AsgiClient, state: AppState) -> None:
        got = await client.post("/v1/chat/completions", chat(cache_salt=""))
        assert got.status == 400
        assert got.json()["error"]["param"] == "cache_salt"

    served(test)


def test_an_answer_sent_back_is_found_within_its_salt() -> None:
    async def test(client: AsgiClient, state: AppState) -> None:
        body = chat("Hi", cache_salt="a", max_tokens=100, ignore_eos=True)
        answer = (await client.post("/v1/chat/completions", body)).json()
        turns = [
            *body["messages"],
            answer["choices"][0]["message"],
            {"role": "user", "content": "More"},
        ]
        for salt, least, most in (("a", 64, 1000), ("b", 0, 0)):
            ask = {"messages": turns, "max_tokens": 1, "cache_salt": salt}
            usage = (await client.post("/v1/chat/completions", ask)).json()["usage"]
            assert least <= usage["prompt_tokens_details"]["cached_tokens"] <= most

    served(test)
