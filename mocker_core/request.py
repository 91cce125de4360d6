"""Requests as the engine sees them: token counts, identities and a plan, never text.

Owns `DirectRequest` (what is submitted) and the id types. The scheduler's mutable state of a
request is `sched.state.SchedRequest`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NewType, Protocol

from mocker_core.errors import RequestError

RequestId = NewType("RequestId", str)
HandoffId = NewType("HandoffId", str)
BlockIdentity = NewType("BlockIdentity", int)


class BlockSequence(Protocol):
    """Gives the identity of each full block of a request's prompt + output.

    `prompt_identities()` lists the full prompt blocks (P // block_size of them). `extend(parent, index)`
    is asked once per further block, in order, when its last token exists; `parent` is the identity
    of block `index - 1` (None for the first).
    """

    def prompt_identities(self) -> list[BlockIdentity]: ...

    def extend(self, parent: BlockIdentity | None, index: int) -> BlockIdentity: ...

    def block_tokens(self, index: int) -> Sequence[int] | None:
        """Token ids of full block `index`, or None where the source has no tokens (traces)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectRequest:
    """One request for one engine rank.

    Either `tokens` (uint32 ids) or `blocks` with `prompt_length` describes the prompt; `blocks` is
    how a trace replays without building tokens. `output_token_ids`, if given, is the planned
    output, and its length replaces `max_output_tokens`. Requests of different `salt` share no KV
    blocks (another adapter, another tenant); `blocks` have their own identities. `local` marks a
    plain request on a prefill or decode worker, priced as on an aggregated one (engine.md 4.4).
    """

    request_id: RequestId
    max_output_tokens: int
    tokens: Sequence[int] = ()
    blocks: BlockSequence | None = None
    prompt_length: int | None = None
    dp_rank: int | None = None
    priority: int = 0
    arrival_timestamp_ms: float | None = None
    output_token_ids: Sequence[int] | None = None
    salt: bytes = b""
    local: bool = False

    @property
    def num_prompt_tokens(self) -> int:
        return len(self.tokens) if self.prompt_length is None else self.prompt_length

    @property
    def num_output_tokens(self) -> int:
        if self.output_token_ids is None:
            return self.max_output_tokens
        return len(self.output_token_ids)

    def check_lengths(self) -> None:
        """Raises RequestError for what no engine could serve, whatever its arguments."""
        if self.num_prompt_tokens < 1 or self.num_output_tokens < 0:
            raise RequestError(
                f"A request needs at least 1 prompt token and max_tokens >= 0; it has "
                f"{self.num_prompt_tokens} and {self.num_output_tokens}."
            )
