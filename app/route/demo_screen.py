"""The demo's picture of the lanes: redrawn in place on a terminal, one line per ended lane elsewhere. Pure
but for writing to the stream it is given."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from typing import Any, TextIO

_STATES = ("prefill", "transfer", "decode")
_ROWS = 12


class Screen:
    """Shows `/admin/lanes` answers, one after the other."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._live = out.isatty()
        self._drawn_rows = 0
        self._told: dict[str, None] = {}

    def show(self, lanes: Mapping[str, Any], names: Mapping[str, str]) -> None:
        if self._live:
            self._redraw(picture(lanes, names, shutil.get_terminal_size().columns))
        else:
            self._tell_ended(lanes, names)
        self._out.flush()

    def _redraw(self, rows: list[str]) -> None:
        if self._drawn_rows:
            self._out.write(f"\x1b[{self._drawn_rows}A")
        for row in rows:
            self._out.write(f"\x1b[2K{row}\n")
        # Rows of an earlier, longer picture.
        for _ in range(self._drawn_rows - len(rows)):
            self._out.write("\x1b[2K\n")
        self._drawn_rows = max(self._drawn_rows, len(rows))

    def _tell_ended(self, lanes: Mapping[str, Any], names: Mapping[str, str]) -> None:
        for lane in reversed(lanes["lanes"]):
            key = f"{lane['request_id']}@{lane['prefill_ms']}"
            if lane["state"] in _STATES or key in self._told:
                continue
            self._told[key] = None
            if len(self._told) > 1000:
                self._told.pop(next(iter(self._told)))
            self._out.write(lane_row(lane, names) + "\n")


def picture(lanes: Mapping[str, Any], names: Mapping[str, str], columns: int) -> list[str]:
    """All rows of one picture: the counts, then the lanes, open ones first."""
    ended = lanes.get("ended", {})
    counts = ", ".join(f"{count} {state}" for state, count in ended.items()) or "none ended"
    rows = [f"{lanes.get('open', 0)} open, {counts}"]
    rows += [lane_row(lane, names) for lane in lanes["lanes"][:_ROWS]]
    return [row[: max(20, columns - 1)] for row in rows]


def lane_row(lane: Mapping[str, Any], names: Mapping[str, str]) -> str:
    """`prefill-1 ══▶ decode-1` with how far the request got."""
    source = names.get(lane["prefill"] or "", "-")
    target = names.get(lane["decode"] or "", "-")
    arrow = {"prefill": "··········", "transfer": "════▶·····"}.get(lane["state"], "═════════▶")
    times = f"prefill {_ms(lane['prefill_ms'])}  first byte {_ms(lane['first_byte_ms'])}"
    tail = lane["error"] or f"{lane['events']} events"
    return (
        f"{lane['request_id'][:8]:<8} {source:>10} {arrow} {target:<10} {lane['state']:<9} {times}  "
        f"{_ms(lane['elapsed_ms'])} in all  {tail}"
    )


def _ms(value: float | None) -> str:
    return "     -   " if value is None else f"{value:6.0f} ms"
