"""Bytes of streamed chunks: what is constant for a choice is encoded once, pieces are spliced in.

Owns the field order and the difference of the wire profiles in a chunk. Must not know tokens or the engine.
"""

from __future__ import annotations

from typing import Literal

import orjson
from msgspec import Struct

from app.text.plan import FinishWord

ChunkKind = Literal["chat", "text"]
# abort: vLLM's word for a request that an engine put to sleep ended.
FinishReason = FinishWord | Literal["abort"]

_GOING_ON = b',"finish_reason":null'
_OBJECTS = {"chat": "chat.completion.chunk", "text": "text_completion"}


class Envelope(Struct, frozen=True, kw_only=True):
    """What all chunks of an answer share. `created` in seconds since 1970."""

    kind: ChunkKind
    id: str
    created: int
    model: str
    profile: str
    include_usage: bool = False

    def head(self) -> bytes:
        """`data: {` and the shared fields, up to the choices."""
        fields = {"id": self.id, "object": _OBJECTS[self.kind], "created": self.created, "model": self.model}
        return b"data: " + orjson.dumps(fields)[:-1] + b',"choices":['

    def usage_record(self, usage: bytes) -> bytes:
        """The chunk without choices that carries the usage."""
        return self.head() + b'],"usage":' + usage + b"}\n\n"


class ChoiceChunks:
    """Builds the records of one choice. Texts come as JSON fragments: escaped, without quotes."""

    __slots__ = ("_chat", "_end", "_head", "_vllm", "plain_head", "plain_tail")

    def __init__(self, envelope: Envelope, index: int) -> None:
        self._chat = envelope.kind == "chat"
        self._vllm = envelope.profile == "vllm"
        self._head = envelope.head() + b'{"index":%d,' % index
        usage_null = envelope.include_usage and not self._vllm
        self._end = b'}],"usage":null}\n\n' if usage_null else b"}]}\n\n"
        self.plain_head = self._head + (b'"delta":{"content":"' if self._chat else b'"text":"')
        going_on = b',"finish_reason":null,"stop_reason":null' if self._vllm and not self._chat else _GOING_ON
        self.plain_tail = (
            (b'"},"logprobs":null' if self._chat else b'","logprobs":null') + going_on + self._end
        )

    def role(self, usage: bytes | None = None) -> bytes:
        """The first record of a chat choice."""
        return self.record(b'"delta":{"role":"assistant","content":""}', usage=usage)

    def content(self, fragment: bytes) -> bytes:
        if self._chat:
            return b'"delta":{"content":"' + fragment + b'"}'
        return b'"text":"' + fragment + b'"'

    def reasoning(self, fragment: bytes) -> bytes:
        """Under both names that vLLM gave it in turn; OpenAI has none, other servers the second."""
        if not self._chat:
            return self.content(fragment)
        newer = b'"reasoning":"' + fragment + b'",' if self._vllm else b""
        return b'"delta":{' + newer + b'"reasoning_content":"' + fragment + b'"}'

    def tool_call(self, index: int, call_id: str, name: str, fragment: bytes, *, first: bool) -> bytes:
        """A piece of a call's arguments; id, type and name come with the first piece only."""
        if not self._chat:
            return self.content(fragment)
        opening = b""
        function = b'{"arguments":"' + fragment + b'"}'
        if first:
            opening = b'"id":' + orjson.dumps(call_id) + b',"type":"function",'
            function = b'{"name":' + orjson.dumps(name) + b',"arguments":"' + fragment + b'"}'
        return b'"delta":{"tool_calls":[{"index":%d,' % index + opening + b'"function":' + function + b"}]}"

    def function_call(self, name: str, fragment: bytes, *, first: bool) -> bytes:
        """A piece of a call in OpenAI's deprecated shape, for a request that had `functions`."""
        opening = b'"name":' + orjson.dumps(name) + b"," if first else b""
        return b'"delta":{"function_call":{' + opening + b'"arguments":"' + fragment + b'"}}'

    def empty(self) -> bytes:
        return b'"delta":{}' if self._chat else b'"text":""'

    def record(
        self,
        body: bytes,
        *,
        logprobs: bytes = b"null",
        finish: FinishReason | None = None,
        stop_reason: str | int | None = None,
        token_ids: list[int] | None = None,
        usage: bytes | None = None,
    ) -> bytes:
        """One whole record around a body from `content`, `reasoning`, `tool_call` or `empty`."""
        parts = [self._head, body, b',"logprobs":', logprobs, self._finish(finish, stop_reason)]
        if token_ids is not None:
            parts += [b',"token_ids":', orjson.dumps(token_ids)]
        parts.append(self._end if usage is None else b'}],"usage":' + usage + b"}\n\n")
        return b"".join(parts)

    def last(
        self,
        body: bytes | None,
        finish: FinishReason,
        stop_reason: str | int | None,
        *,
        logprobs: bytes = b"null",
        token_ids: list[int] | None = None,
        usage: bytes | None = None,
    ) -> bytes:
        """A choice's end: one record with the last text (vllm), or that text and an empty one (openai)."""
        if self._vllm or (body is None and logprobs == b"null" and not token_ids):
            return self.record(
                self.empty() if body is None else body,
                logprobs=logprobs,
                finish=finish,
                stop_reason=stop_reason,
                token_ids=token_ids,
                usage=usage,
            )
        text = self.record(body or self.empty(), logprobs=logprobs, token_ids=token_ids, usage=usage)
        return text + self.record(self.empty(), finish=finish, stop_reason=stop_reason, usage=usage)

    def _finish(self, finish: FinishReason | None, stop_reason: str | int | None) -> bytes:
        reason = b"null" if finish is None else b'"' + finish.encode() + b'"'
        field = b',"finish_reason":' + reason
        if self._vllm and (finish is not None or not self._chat):
            field += b',"stop_reason":' + orjson.dumps(stop_reason)
        return field
