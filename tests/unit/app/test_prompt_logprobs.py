"""vLLM's prompt_logprobs on chat and text completions."""

from __future__ import annotations

from typing import Any

import pytest

from app.state import AppState
from tests.harness.asgi_stream import AsgiClient
from tests.unit.app.serving_fixtures import chat, served

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"


@pytest.mark.parametrize("top", [0, 1, 3])
def test_each_prompt_token_but_the_first_has_its_own_and_the_likeliest(top: int) -> None:
    async def test(client: AsgiClient, state: AppState) -> None:
        ids = state.tokenizer.encode("The sea is wide and blue")
        body = {"prompt": ids, "max_tokens": 1, "prompt_logprobs": top, "n": 2}
        whole = (await client.post(TEXT, body)).json()
        one, other = (choice["prompt_logprobs"] for choice in whole["choices"])
        assert one == other
        assert one[0] is None
        assert len(one) == len(ids)
        for token_id, entry in zip(ids[1:], one[1:], strict=True):
            own = entry[str(token_id)]
            assert own["decoded_token"] == state.tokenizer.token_text(token_id)
            assert own["logprob"] <= 0
            ranks = sorted(item["rank"] for item in entry.values())
            assert ranks == sorted({*range(1, top + 1), own["rank"]})

    served(test)


def test_chat_has_them_beside_its_choices() -> None:
    async def test(client: AsgiClient, state: AppState) -> None:
        got = (await client.post(CHAT, chat(max_tokens=1, prompt_logprobs=1))).json()
        assert len(got["prompt_logprobs"]) == got["usage"]["prompt_tokens"]
        assert "prompt_logprobs" not in (await client.post(CHAT, chat(max_tokens=1))).json()

    served(test)


@pytest.mark.parametrize("more", [{"prompt_logprobs": 1, "stream": True}, {"prompt_logprobs": -2}], ids=str)
@pytest.mark.parametrize("path", [CHAT, TEXT])
def test_streams_and_wrong_numbers_are_refused(path: str, more: dict[str, Any]) -> None:
    async def test(client: AsgiClient, state: AppState) -> None:
        got = await client.post(path, {**chat(), "prompt": "x", **more})
        assert got.status == 400
        assert got.json()["error"]["param"] == "prompt_logprobs"

    served(test)
