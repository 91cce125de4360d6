"""When the next pass starts: anchored pass times, catching up, and the loop's lateness figures.

Pure arithmetic on ms of engine time; reads no clock. "Behind" means that the clock is past the
plan, so that a pass needs no waiting.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RankStats:
    """How well one rank keeps its plan. Lateness = clock at a pass's publication minus its planned end.

    `re_anchors` counts the times it fell more than max_catch_up_ms behind, `saturated_joins` the
    times a saturated loop moved its plan to the clock to let in what had arrived meanwhile.
    `saturated`: passes now cost more than they model.
    """

    passes: int = 0
    late_passes: int = 0
    re_anchors: int = 0
    saturated_joins: int = 0
    last_lateness_ms: float = 0.0
    max_lateness_ms: float = 0.0
    sum_lateness_ms: float = 0.0
    saturated: bool = False


class PassPlan:
    """The plan of one rank. While `next_ms` is None the next pass time comes from the clock.

    A *slice* is a stretch of passes run without giving the event loop a turn.
    """

    __slots__ = (
        "_last_lateness_ms",
        "_late_passes",
        "_max_catch_up_ms",
        "_max_lateness_ms",
        "_passes",
        "_re_anchors",
        "_saturated_joins",
        "_slice_ms",
        "_slice_plan_ms",
        "_slice_start_ms",
        "_sum_lateness_ms",
        "next_ms",
        "saturated",
    )

    def __init__(self, *, max_catch_up_ms: float, slice_ms: float) -> None:
        self.next_ms: float | None = None
        self.saturated = False
        self._max_catch_up_ms = max_catch_up_ms
        self._slice_ms = slice_ms
        self._slice_start_ms = 0.0
        self._slice_plan_ms = 0.0
        self._passes = 0
        self._late_passes = 0
        self._re_anchors = 0
        self._saturated_joins = 0
        self._last_lateness_ms = 0.0
        self._max_lateness_ms = 0.0
        self._sum_lateness_ms = 0.0

    def anchor(self, now_ms: float) -> None:
        """Work came after a wait: the next pass starts now."""
        self.next_ms = now_ms
        self.slice_began(now_ms, now_ms)

    def release(self) -> None:
        """No work is left, or none can go on: the clock decides again."""
        self.next_ms = None

    def start_ms(self, clock_ms: float, *, arrived_later: bool) -> float:
        """Engine time of the next pass. `arrived_later`: something received after the plan waits to join."""
        planned_ms = self.next_ms
        if planned_ms is None:
            self.anchor(clock_ms)
            return clock_ms
        behind_ms = clock_ms - planned_ms
        if behind_ms > self._max_catch_up_ms:
            self._re_anchors += 1
        elif arrived_later and self.saturated and behind_ms > 0:
            # Such a plan is never caught up with, so what arrived would wait for max_catch_up_ms.
            self._saturated_joins += 1
        else:
            return planned_ms
        self.next_ms = clock_ms
        self._slice_plan_ms += behind_ms
        return clock_ms

    def pass_ended(self, clock_ms: float, end_ms: float, *, waited: bool) -> None:
        """The pass that ends at `end_ms` is about to be published."""
        self.next_ms = end_ms
        lateness_ms = clock_ms - end_ms
        self._passes += 1
        self._last_lateness_ms = lateness_ms
        self._sum_lateness_ms += lateness_ms
        if lateness_ms > self._max_lateness_ms:
            self._max_lateness_ms = lateness_ms
        if not waited:
            self._late_passes += 1

    def slice_over(self, clock_ms: float) -> bool:
        """True once this slice used up its time: the event loop must get a turn."""
        return clock_ms - self._slice_start_ms >= self._slice_ms

    def slice_ended(self, clock_ms: float, plan_ms: float) -> None:
        """The loop yields while behind; saturated if its passes cost more than they model."""
        self.saturated = clock_ms - self._slice_start_ms > plan_ms - self._slice_plan_ms

    def slice_began(self, clock_ms: float, plan_ms: float) -> None:
        self._slice_start_ms = clock_ms
        self._slice_plan_ms = plan_ms

    def waited(self, clock_ms: float, plan_ms: float) -> None:
        """The loop slept until the clock came close to the plan: it is on time again."""
        self.saturated = False
        self.slice_began(clock_ms, plan_ms)

    def stats(self) -> RankStats:
        return RankStats(
            passes=self._passes,
            late_passes=self._late_passes,
            re_anchors=self._re_anchors,
            saturated_joins=self._saturated_joins,
            last_lateness_ms=self._last_lateness_ms,
            max_lateness_ms=self._max_lateness_ms,
            sum_lateness_ms=self._sum_lateness_ms,
            saturated=self.saturated,
        )
