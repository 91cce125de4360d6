from __future__ import annotations

import pytest

from mocker_core.engine_args import KvTransferTimingMode, MockEngineArgs
from mocker_core.handoff.timing import TransferTiming, transfer_delay_ms


def test_known_size_and_bandwidth_give_the_delay_in_ms() -> None:
    # 1000 tokens of 131072 bytes over 64 GB/s: 131.072 MB / 64e9 B/s = 2.048 ms.
    assert transfer_delay_ms(1000, 131_072, 64.0) == pytest.approx(2.048)


@pytest.mark.parametrize(
    ("tokens", "kv_bytes", "bandwidth"),
    [(0, 100, 1.0), (10, None, 1.0), (10, 100, None), (10, 100, 0.0)],
)
def test_missing_or_zero_operand_means_no_delay(
    tokens: int, kv_bytes: int | None, bandwidth: float | None
) -> None:
    assert transfer_delay_ms(tokens, kv_bytes, bandwidth) is None


def test_full_prompt_prefers_what_the_source_said() -> None:
    timing = TransferTiming(1_000_000, 1.0)
    moved = {"prompt_tokens": 5, "transferable_prompt_tokens": 4}
    assert timing.handoff_delay_ms(**moved, source_delay_ms=7.5) == 7.5
    assert timing.handoff_delay_ms(**moved) == pytest.approx(5.0)


def test_destination_missing_moves_only_the_reserved_blocks() -> None:
    timing = TransferTiming(1_000_000, 1.0, KvTransferTimingMode.DESTINATION_MISSING)
    assert timing.handoff_delay_ms(
        prompt_tokens=50, transferable_prompt_tokens=4, source_delay_ms=50.0
    ) == pytest.approx(4.0)
    assert timing.handoff_delay_ms(prompt_tokens=50, transferable_prompt_tokens=0) is None


def test_timing_from_args_takes_their_three_values() -> None:
    args = MockEngineArgs.from_mapping(
        {
            "kv_bytes_per_token": 7,
            "kv_transfer_bandwidth": 3.0,
            "kv_transfer_timing_mode": "destination_missing",
        }
    )
    assert TransferTiming.from_args(args) == TransferTiming(7, 3.0, KvTransferTimingMode.DESTINATION_MISSING)
