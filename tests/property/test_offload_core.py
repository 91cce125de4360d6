"""Random traffic on a small core with offload tiers: the laws hold after each step and all requests end."""

from __future__ import annotations

from typing import Any

from hypothesis import event, given
from hypothesis import strategies as st

from mocker_core.commands import (
    ActivateDestination,
    CancelDestination,
    CancelSource,
    ReleaseSource,
    ReserveDestination,
    SubmitHandoffPrefill,
)
from mocker_core.errors import MockerError
from mocker_core.events import DestinationExpired, SourceExpired, StorageTier
from mocker_core.request import DirectRequest, HandoffId, RequestId
from tests.harness.invariants import assert_drained
from tests.property.engine_pair import Ask
from tests.property.profiles import examples
from tests.property.strategies import STREAMS, engine_args, stream_token
from tests.unit.offload.tier_driver import BLOCK_BYTES, Driver

GBPS = st.sampled_from([0.0, 0.05, 1.0, 1.0, 7.3])


@st.composite
def offload_args(draw: st.DrawFn, worker_type: str | None = None) -> dict[str, Any]:
    args = draw(engine_args(worker_type=worker_type)) | {
        "num_gpu_blocks": draw(st.integers(5, 12)),
        "block_size": draw(st.integers(2, 3)),
        "enable_prefix_caching": True,
        "enable_chunked_prefill": True,
        "max_model_len": None,
        "kv_bytes_per_token": BLOCK_BYTES // 4,
        "num_g2_blocks": draw(st.sampled_from([1, 2, 5, 40])),
        "num_g3_blocks": draw(st.sampled_from([0, 0, 1, 3, 40])),
        "handoff_session_timeout_ms": draw(st.sampled_from([3.0, 60.0, 300_000.0])),
    }
    for link in ("g1_to_g2", "g2_to_g1", "g2_to_g3", "g3_to_g2"):
        args[f"bandwidth_{link}_gbps"] = draw(GBPS)
    return args


@st.composite
def asks(draw: st.DrawFn, number: int) -> Ask:
    """Most of it is a stream's beginning: what one request leaves behind the next ones want back."""
    stream = draw(st.integers(0, STREAMS - 1))
    prompt, output = draw(st.integers(1, 16)), draw(st.integers(0, 6))
    shared = draw(st.sampled_from([prompt + output, prompt + output, prompt, prompt // 2]))
    tokens = [stream_token(stream, at) for at in range(shared)]
    tokens += [stream_token(10 + number, at) for at in range(shared, prompt + output)]
    return Ask(f"r{number}", tuple(tokens[:prompt]), tuple(tokens[prompt:]), draw(st.sampled_from([0, 0, 1])))


@st.composite
def actions(draw: st.DrawFn, number: int, *, handoffs: bool) -> tuple[str, Any]:
    kinds = ["submit"] * 4 + ["pass", "steps", "steps", "steps", "wait", "cancel", "rare"]
    if handoffs:
        kinds += ["source", "reserve", "activate", "activate", "release", "rare"]
    kind = draw(st.sampled_from(kinds))
    if kind == "rare":
        kind = draw(st.sampled_from(["reset", "cancel_destination", "cancel_source"]))
    if kind in ("submit", "source", "reserve"):
        return kind, draw(asks(number))
    if kind == "wait":
        return kind, draw(st.sampled_from([0.0, 0.3, 1.0, 5.0, 50.0]))
    return kind, draw(st.integers(0, 9))


@st.composite
def scripts(draw: st.DrawFn, *, handoffs: bool) -> list[tuple[str, Any]]:
    return [draw(actions(number, handoffs=handoffs)) for number in range(draw(st.integers(1, 40)))]


class Traffic:
    """Carries out a script and keeps the book of who was accepted and who ended how."""

    def __init__(self, args: dict[str, Any]) -> None:
        self.driver = Driver(**args)
        self.accepted: list[str] = []
        self.cancelled: set[str] = set()

    def take(self, kind: str, value: Any) -> None:
        driver = self.driver
        if kind in ("submit", "source", "reserve"):
            self.send(kind, value.request_id, direct_request(value))
        elif kind == "pass":
            driver.execute_pass()
        elif kind == "steps":
            for _ in range(2 * value + 1):
                driver.step()
        elif kind == "wait":
            driver.advance_to(driver.now_ms + value, grant=value != 1.0)
        elif kind == "cancel":
            if self.accepted:
                self.cancel(self.accepted[value % len(self.accepted)])
        elif kind == "reset":
            event(f"reset {driver.core.reset_prefix_cache(driver.now_ms)}")
            driver.check()
        elif self.accepted:
            self.command(kind, self.accepted[value % len(self.accepted)])

    def send(self, kind: str, request_id: str, request: DirectRequest) -> None:
        handoff_id = HandoffId(request_id)
        try:
            if kind == "submit":
                self.driver.receive(request)
            elif kind == "source":
                self.driver.apply(SubmitHandoffPrefill(handoff_id, request))
            else:
                self.driver.apply(ReserveDestination(handoff_id, request))
        except MockerError:
            return
        self.accepted.append(request_id)

    def cancel(self, request_id: str) -> None:
        if self.driver.cancel(request_id) and request_id not in self.driver.finished:
            self.cancelled.add(request_id)

    def command(self, kind: str, request_id: str) -> None:
        handoff_id = HandoffId(request_id)
        if kind == "activate":
            self.driver.apply(ActivateDestination(handoff_id))
        elif kind == "release":
            self.driver.apply(ReleaseSource(handoff_id))
        else:
            known = request_id in self.driver.core.requests
            command = CancelSource if kind == "cancel_source" else CancelDestination
            self.driver.apply(command(handoff_id))
            if (
                known
                and request_id not in self.driver.core.requests
                and request_id not in self.driver.finished
            ):
                self.cancelled.add(request_id)

    def finish(self) -> None:
        """Let everything end, by itself or by its deadline, and look at the book."""
        driver = self.driver
        while driver.step():
            pass
        assert_drained(driver.core)
        expired = {
            str(told.request_id)
            for told in driver.lifecycle
            if isinstance(told, SourceExpired | DestinationExpired)
        }
        ended = {str(request_id) for request_id in driver.finished} | expired
        assert not self.cancelled & ended, "ended twice"
        assert set(self.accepted) == self.cancelled | ended


def direct_request(ask: Any) -> DirectRequest:
    return DirectRequest(
        request_id=RequestId(ask.request_id),
        tokens=ask.tokens,
        max_output_tokens=len(ask.output),
        output_token_ids=ask.output,
        priority=ask.priority,
    )


def play(args: dict[str, Any], script: list[tuple[str, Any]]) -> Traffic:
    traffic = Traffic(args)
    for kind, value in script:
        traffic.take(kind, value)
    traffic.finish()
    stats = traffic.driver.core.offload_stats()
    assert stats is not None
    event(f"swap-ins: {min(stats.swap_ins_total, 3)}")
    event(f"from disk: {stats.g3_to_g2_bytes_total > 0}")
    event(f"preemptions: {min(traffic.driver.core.metrics().vllm_preemptions_total, 2)}")
    return traffic


@examples(150)
@given(args=offload_args(), script=scripts(handoffs=False))
def test_laws_hold_with_tiers(args: dict[str, Any], script: list[tuple[str, Any]]) -> None:
    play(args, script)


@examples(150)
@given(args=offload_args("decode"), script=scripts(handoffs=True))
def test_laws_hold_with_tiers_and_handoffs(args: dict[str, Any], script: list[tuple[str, Any]]) -> None:
    play(args, script)


@examples(80)
@given(args=offload_args(), script=scripts(handoffs=False))
def test_no_identity_is_lost_while_the_host_has_room(
    args: dict[str, Any], script: list[tuple[str, Any]]
) -> None:
    args |= {"num_g2_blocks": 10_000, "num_g3_blocks": 0}
    script = [action for action in script if action[0] != "reset"]
    driver = play(args, script).driver
    assert driver.core.offload is not None
    ever = set(driver.mirror.stored(StorageTier.DEVICE))
    assert ever == driver.mirror.resident[StorageTier.DEVICE] | driver.mirror.resident[StorageTier.HOST]


@examples(60)
@given(args=offload_args(), script=scripts(handoffs=False))
def test_same_script_gives_the_same_events_and_times(
    args: dict[str, Any], script: list[tuple[str, Any]]
) -> None:
    first, second = play(args, script).driver, play(args, script).driver
    assert first.finished == second.finished
    assert first.mirror.events == second.mirror.events
