"""How long the KV of a handoff takes from source to destination. Knows arguments, not requests or clocks."""

from __future__ import annotations

from dataclasses import dataclass

from mocker_core.engine_args import KvTransferTimingMode, MockEngineArgs


def transfer_delay_ms(
    tokens: int, kv_bytes_per_token: int | None, bandwidth_gbps: float | None
) -> float | None:
    """Milliseconds that `tokens` take over a link of `bandwidth_gbps` (1e9 B/s); None means no delay."""
    if tokens <= 0 or not kv_bytes_per_token or not bandwidth_gbps:
        return None
    return tokens * kv_bytes_per_token / (bandwidth_gbps * 1e9) * 1000


@dataclass(frozen=True, slots=True)
class TransferTiming:
    """What decides a handoff's transfer delay: bytes a token, bandwidth in GB/s and what is moved."""

    kv_bytes_per_token: int | None = None
    bandwidth_gbps: float | None = None
    mode: KvTransferTimingMode = KvTransferTimingMode.FULL_PROMPT

    @classmethod
    def from_args(cls, args: MockEngineArgs) -> TransferTiming:
        return cls(args.kv_bytes_per_token, args.kv_transfer_bandwidth, args.kv_transfer_timing_mode)

    def delay_ms(self, tokens: int) -> float | None:
        """Delay of moving `tokens`; None means none."""
        return transfer_delay_ms(tokens, self.kv_bytes_per_token, self.bandwidth_gbps)

    def handoff_delay_ms(
        self, *, prompt_tokens: int, transferable_prompt_tokens: int, source_delay_ms: float | None = None
    ) -> float | None:
        """Delay of one handoff, in ms; None means none.

        full_prompt moves the whole prompt: what the source said (`source_delay_ms`) rules, this
        side's own arguments fill in where it said nothing. destination_missing moves only the
        blocks that the destination did not have.
        """
        if self.mode is KvTransferTimingMode.DESTINATION_MISSING:
            return self.delay_ms(transferable_prompt_tokens)
        return source_delay_ms if source_delay_ms is not None else self.delay_ms(prompt_tokens)
