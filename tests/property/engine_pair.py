"""Drives the engine core and the plain reference side by side and compares all that is visible.

Every method applies one step to both and fails with a readable difference. Identities differ in
kind (hashes here, small numbers there), so they are compared through a one-to-one map that grows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from mocker_core import commands as c
from mocker_core.engine.core import EngineCore
from mocker_core.engine_args import MockEngineArgs
from mocker_core.errors import MockerError
from mocker_core.events import BlocksRemoved, BlocksStored, DestinationReserved, KvEvent, SourceHeld
from mocker_core.request import DirectRequest, HandoffId, RequestId
from tests.harness.invariants import ResidentMirror, assert_drained, assert_invariants
from tests.reference.plain_core import PlainArgs, PlainCore, PlainRequest


@dataclass(frozen=True, slots=True)
class Ask:
    """One request as both engines can make it."""

    request_id: str
    tokens: tuple[int, ...]
    output: tuple[int, ...]
    priority: int = 0

    def real(self, *, local: bool) -> DirectRequest:
        return DirectRequest(
            request_id=RequestId(self.request_id),
            tokens=self.tokens,
            max_output_tokens=len(self.output),
            output_token_ids=self.output,
            priority=self.priority,
            local=local,
        )

    def plain(self) -> PlainRequest:
        # A handoff prefill has one token even if none is planned; the name of that token is its own.
        ids = (*self.tokens, *self.output, (self.request_id, "more"))
        return PlainRequest(
            self.request_id, len(self.tokens), len(self.output), lambda a, b: ids[a:b], self.priority
        )


class EnginePair:
    def __init__(self, args: dict[str, Any]) -> None:
        self.core = EngineCore(MockEngineArgs.from_mapping(args | {"enable_kv_events": True}))
        timing = args.get("timing_model")
        plain = {name: value for name, value in args.items() if name != "timing_model"}
        if timing is not None:
            plain |= {"fixed_prefill_ms": timing["prefill_ms"], "fixed_decode_ms": timing["decode_ms"]}
        self.plain = PlainCore(PlainArgs.from_mapping(plain))
        self.now_ms = 0.0
        self.mirror = ResidentMirror()
        self.ended: list[str] = []
        self.planned: dict[str, tuple[int, ...]] = {}
        self._to_plain: dict[int, int] = {}
        self._to_real: dict[int, int] = {}
        self._positions: dict[str, int] = {}

    def live_ids(self) -> list[str]:
        return list(self.core.requests)

    def submit(self, ask: Ask) -> None:
        self.planned[ask.request_id] = ask.output
        self.core.receive(ask.real(local=True))
        self.plain.receive(ask.plain())
        self._check()

    def run_pass(self) -> bool:
        """One pass; False if it changed nothing."""
        before = self.core.metrics()
        real = self.core.execute_pass(self.now_ms)
        plain = self.plain.execute_pass(self.now_ms)
        assert real.end_ms == pytest.approx(plain.end_ms, abs=1e-9, rel=0)
        assert self._outputs(real.outputs) == _rejections_last(plain.outputs)
        assert [(a.request_id, a.reused_input_tokens) for a in real.admissions] == plain.admissions
        assert _lifecycle(real.lifecycle) == plain.lifecycle
        self._same_events(real.kv_events, plain.kv_events)
        assert _numbers(real.metrics) == plain.metrics
        self.ended += [signal.request_id for signal in real.outputs if signal.completed]
        progress = real.end_ms > self.now_ms or real.made_progress(before)
        assert progress == plain.progress
        self.now_ms = real.end_ms
        self._check()
        return progress

    def cancel(self, request_id: str) -> None:
        applied = self.core.cancel(RequestId(request_id), self.now_ms)
        assert applied == self.plain.cancel(request_id, self.now_ms)
        if applied and request_id not in self.ended:  # a held source has had its output's end
            self.ended.append(request_id)
        self._check()

    def retry(self) -> None:
        effects = self.core.retry_destinations(self.now_ms)
        self.plain.attempt_grant()
        self._same_effects(effects.lifecycle, effects.kv_events)

    def handoff_prefill(self, handoff_id: str, ask: Ask) -> None:
        self.planned[ask.request_id] = ask.output
        self._command(c.SubmitHandoffPrefill(HandoffId(handoff_id), ask.real(local=False)), grants=True)
        self.plain.submit_handoff_prefill(handoff_id, ask.plain())
        self._check()

    def reserve(self, handoff_id: str, ask: Ask, *, grants: bool) -> None:
        command = c.ReserveDestination(HandoffId(handoff_id), ask.real(local=False))
        try:
            effects: c.CommandEffects | None = self._command(command, grants=grants)
        except MockerError:
            effects = None
        if effects is None:
            with pytest.raises(ValueError):
                self.plain.reserve_destination(handoff_id, ask.plain())
            return
        self.planned[ask.request_id] = ask.output
        self.plain.reserve_destination(handoff_id, ask.plain())
        if grants:
            self.plain.attempt_grant()
        self._same_effects(effects.lifecycle, effects.kv_events)

    def handoff_command(self, kind: str, handoff_id: str, *, grants: bool) -> None:
        commands: dict[str, tuple[Callable[[HandoffId], c.SchedulerCommand], Callable[[str], bool]]] = {
            "release_source": (c.ReleaseSource, self.plain.release_source),
            "cancel_source": (c.CancelSource, self.plain.cancel_source),
            "activate": (c.ActivateDestination, self.plain.activate_destination),
            "cancel_destination": (c.CancelDestination, self.plain.cancel_destination),
        }
        made, answer = commands[kind]
        before = set(self.core.requests)
        effects = self._command(made(HandoffId(handoff_id)), grants=grants)
        applied = isinstance(effects.result, c.Applied)
        assert applied == answer(handoff_id)
        if applied and grants:
            self.plain.attempt_grant()
        self.ended += [r for r in before - set(self.core.requests) if r not in self.ended]
        self._same_effects(effects.lifecycle, effects.kv_events)

    def drain(self) -> None:
        """Ends everything: cancels what can't go on; then nothing may be left."""
        for _ in range(2000):
            if self.core.is_empty() or not self.run_pass():
                break
        for request_id in list(self.core.requests):
            if request_id not in self.core.requests:
                continue
            request = self.core.requests[RequestId(request_id)]
            if request.handoff_id is not None:
                self.handoff_command("cancel_source", request.handoff_id, grants=False)
            else:
                self.cancel(request_id)
        assert_drained(self.core)
        assert sorted(self.ended) == sorted(self.planned), "every accepted request ends exactly once"

    def _command(self, command: c.SchedulerCommand, *, grants: bool) -> c.CommandEffects:
        return self.core.apply_command(command, allow_destination_grant=grants, now_ms=self.now_ms)

    def _check(self) -> None:
        assert_invariants(self.core)
        self.mirror.check(self.core)
        assert self.core.handoffs.has_pending == bool(self.plain.pending)

    def _outputs(self, outputs: Sequence[Any]) -> list[tuple[Any, ...]]:
        """With the token's position in the plan instead of its id, as the plain engine tells it."""
        told = []
        for signal in outputs:
            position = None
            if signal.token_id is not None:
                position = self._positions.get(signal.request_id, -1) + 1
                self._positions[signal.request_id] = position
                plan = self.planned[signal.request_id]
                assert not plan or signal.token_id == plan[position]
            told.append((signal.request_id, position, signal.completed, signal.rejected))
        return told

    def _same_effects(self, lifecycle: Sequence[Any], events: Sequence[KvEvent]) -> None:
        assert _lifecycle(lifecycle) == self.plain.take_lifecycle()
        self._same_events(events, self.plain.take_kv_events())
        assert _numbers(self.core.metrics()) == self.plain._metrics()
        self._check()

    def _same_events(self, real: Sequence[KvEvent], plain: Sequence[PlainEvent]) -> None:
        self.mirror.feed(real)
        ours, theirs = _flat_real(real), _flat_plain(plain)
        assert [kind for kind, *_ in ours] == [kind for kind, *_ in theirs]
        for (_, parent, identity), (_, plain_parent, plain_identity) in zip(ours, theirs, strict=True):
            for a, b in ((parent, plain_parent), (identity, plain_identity)):
                assert (a is None) == (b is None)
                if a is not None and b is not None:
                    assert self._to_plain.setdefault(a, b) == b
                    assert self._to_real.setdefault(b, a) == a


PlainEvent = tuple[str, int | None, list[int]]
Flat = list[tuple[str, int | None, int]]


def _flat_real(events: Sequence[KvEvent]) -> Flat:
    flat: Flat = []
    for event in events:
        if isinstance(event, BlocksStored):
            parent = event.parent
            for block in event.blocks:
                flat.append(("stored", parent, block.identity))
                parent = block.identity
        elif isinstance(event, BlocksRemoved):
            flat += [("removed", None, identity) for identity in event.identities]
    return flat


def _flat_plain(events: Sequence[PlainEvent]) -> Flat:
    flat: Flat = []
    for kind, parent, identities in events:
        for identity in identities:
            flat.append((kind, parent if kind == "stored" else None, identity))
            parent = identity
    return flat


def _rejections_last(outputs: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """The rules leave open where the rejections of a pass stand among its other outputs."""
    return [o for o in outputs if not o[3]] + [o for o in outputs if o[3]]


def _lifecycle(events: Sequence[Any]) -> list[tuple[str, str, str, int]]:
    told: list[tuple[str, str, str, int]] = []
    for event in events:
        if isinstance(event, SourceHeld):
            told.append(("source_held", event.handoff_id, event.request_id, event.prompt_tokens))
        elif isinstance(event, DestinationReserved):
            tokens = event.transferable_prompt_tokens
            told.append(("destination_reserved", event.handoff_id, event.request_id, tokens))
        else:
            raise AssertionError(f"unexpected {event}")
    return told


def _numbers(metrics: Any) -> tuple[int, ...]:
    return (
        metrics.active_decode_blocks,
        metrics.total_blocks,
        metrics.running_requests,
        metrics.waiting_requests,
        metrics.vllm_preemptions_total,
    )
