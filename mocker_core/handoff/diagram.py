"""Draws the coordinator's table as mermaid state diagrams and keeps docs/handoff.md's copies of them.

Run `python -m mocker_core.handoff.diagram docs/handoff.md` after changing the table.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from mocker_core.handoff.coordinator_table import TRANSITIONS, ActionKind, HandoffOrder, HandoffState, Trigger


def mermaid(order: HandoffOrder) -> str:
    """The order's transitions as a mermaid state diagram; rows that do the same share one arrow."""
    arrows: dict[tuple[HandoffState, HandoffState, tuple[ActionKind, ...]], list[Trigger]] = {}
    for (state, trigger), step in TRANSITIONS[order].items():
        arrows.setdefault((state, step.next_state, step.actions), []).append(trigger)
    lines = ["stateDiagram-v2", "    [*] --> new"]
    for (state, next_state, actions), triggers in arrows.items():
        lines.append(f"    {state} --> {next_state}: {', '.join(triggers)} / {', '.join(actions)}")
    lines.append("    done --> [*]")
    return "\n".join(lines)


def with_diagrams(markdown: str) -> str:
    """The text with the part between each order's two marks replaced by its diagram as of now."""
    for order in HandoffOrder:
        start, end = f"<!-- diagram:{order} -->", f"<!-- /diagram:{order} -->"
        drawn = f"{start}\n```mermaid\n{mermaid(order)}\n```\n{end}"
        place = re.compile(f"{re.escape(start)}.*?{re.escape(end)}", re.DOTALL)
        found = len(place.findall(markdown))
        if found != 1:
            raise ValueError(f"The text has {found} places between {start} and {end}; it needs exactly one.")
        markdown = place.sub(drawn.replace("\\", "\\\\"), markdown)
    return markdown


if __name__ == "__main__":
    page = Path(sys.argv[1])
    page.write_text(with_diagrams(page.read_text(encoding="utf-8")), encoding="utf-8")
