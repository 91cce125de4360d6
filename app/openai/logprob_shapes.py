"""Logprobs in OpenAI's two shapes, from the text layer's plausible values. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from app.text.logprobs import LogprobModel, PositionLogprobs, TokenLogprob


class LogprobSource:
    """Entries of one choice. `top` alternatives a position; `as_ids` writes tokens as `token_id:N`."""

    __slots__ = ("_as_ids", "_model", "_offset", "_seed", "_top", "shape")

    def __init__(
        self,
        model: LogprobModel,
        seed: int,
        top: int,
        shape: Literal["chat", "text"],
        *,
        as_ids: bool = False,
    ) -> None:
        self._model = model
        self._seed = seed
        self._top = top
        self._as_ids = as_ids
        self._offset = 0
        self.shape = shape

    def entry(self, position: int, token_id: int) -> dict[str, Any]:
        """The entry of one generated token, in this source's shape; call once per position, in order."""
        found = self._model.at(self._seed, position, token_id, self._top)
        if self.shape == "chat":
            return {**self._chat(found.sampled), "top_logprobs": [self._chat(item) for item in found.top]}
        return self._text(found)

    def prompt_entries(self, token_ids: Sequence[int]) -> list[dict[str, Any]]:
        """Entries of an echoed prompt (text shape). The first token has no logprob."""
        entries = [self.entry(-1 - position, token_id) for position, token_id in enumerate(token_ids)]
        if entries:
            entries[0] |= {"token_logprob": None, "top_logprobs": None}
        return entries

    def _chat(self, item: TokenLogprob) -> dict[str, Any]:
        return {"token": self._name(item), "logprob": item.logprob, "bytes": list(item.token_bytes)}

    def _text(self, found: PositionLogprobs) -> dict[str, Any]:
        name = self._name(found.sampled)
        top = {self._name(item): item.logprob for item in found.top}
        if self._top:
            top.setdefault(name, found.sampled.logprob)
        offset = self._offset
        self._offset += len(found.sampled.token)
        return {
            "token": name,
            "token_logprob": found.sampled.logprob,
            "top_logprobs": top if self._top else None,
            "text_offset": offset,
        }

    def _name(self, item: TokenLogprob) -> str:
        return f"token_id:{item.token_id}" if self._as_ids else item.token


def logprobs_object(shape: Literal["chat", "text"], entries: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The `logprobs` value of a choice or chunk."""
    if shape == "chat":
        return {"content": list(entries)}
    top = [entry["top_logprobs"] for entry in entries]
    return {
        "text_offset": [entry["text_offset"] for entry in entries],
        "token_logprobs": [entry["token_logprob"] for entry in entries],
        "tokens": [entry["token"] for entry in entries],
        "top_logprobs": top if any(item is not None for item in top) else None,
    }
