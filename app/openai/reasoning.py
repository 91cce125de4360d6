"""How much of an answer is reasoning, from the server's settings and what the request says. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.errors import bad_request
from app.settings import ServeSettings
from app.text.plan import ReasoningOptions
from mocker_core.engine_args import MockEngineArgs, ReasoningArgs

# How each effort changes the share of reasoning that the server has.
_EFFORT_FACTORS = {
    "none": 0.0,
    "minimal": 0.2,
    "low": 0.5,
    "medium": 1.0,
    "high": 1.4,
    "xhigh": 1.7,
    "max": 1.9,
}
_GREATEST_SHARE = 0.95
# What chat templates of several models call the switch.
_SWITCHES = ("enable_thinking", "thinking")


def reasoning_options(
    settings: ServeSettings,
    args: MockEngineArgs,
    *,
    effort: str | None = None,
    effort_param: str = "reasoning_effort",
    switch: bool | None = None,
) -> ReasoningOptions | None:
    """None: the answer has no reasoning. Raises ApiError 400 for an unknown effort.

    A server reasons with --reasoning or --reasoning-parser; `switch` says what the request wants, over that.
    effort "none" turns it off; another one changes its share.
    """
    if effort is not None and effort not in _EFFORT_FACTORS:
        known = ", ".join(_EFFORT_FACTORS)
        raise bad_request(f"{effort_param} is {effort!r:.60}; it must be one of {known}.", effort_param)
    reasons = args.reasoning is not None or settings.reasoning_parser is not None
    if not (reasons if switch is None else switch):
        return None
    share = args.reasoning or ReasoningArgs()
    ratio = min(share.thinking_ratio * _EFFORT_FACTORS[effort or "medium"], _GREATEST_SHARE)
    if effort == "none" or ratio <= 0:
        return None
    return ReasoningOptions(ratio, share.start_thinking_token_id, share.end_thinking_token_id)


def template_switch(template_kwargs: Mapping[str, Any] | None) -> bool | None:
    """What chat_template_kwargs say about thinking; None: nothing."""
    for name in _SWITCHES:
        value = (template_kwargs or {}).get(name)
        if isinstance(value, bool):
            return value
    return None
