"""GET and PATCH /admin/config: the settings of this server, and those that change while it runs.

Owns the order of a change: everything is checked first, then it holds from each rank's next pass on.
"""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Annotated, Any

from fastapi import APIRouter, Body

from app.errors import bad_request
from app.faults import FaultRates, faults_of
from app.openai.canned import canned_of
from app.openai.serving import check_ready
from app.state import AppState, State
from mocker_core.errors import ArgumentError

router = APIRouter(tags=["Admin"])

_PRICES = ("speedup_ratio", "decode_speedup_ratio", "timing_model")
_LIVE = (*_PRICES, "faults")
_EXAMPLE = {"speedup_ratio": 10, "timing_model": {"type": "fixed", "decode_ms": 8}, "faults": {"error": 0.01}}


@router.get("/admin/config", summary="What this server runs with; `live` may be changed with PATCH")
async def get_config(state: State) -> dict[str, Any]:
    return _config(state)


@router.patch("/admin/config", summary="Change what passes cost and how many requests fail, at once")
async def patch_config(
    state: State, changes: Annotated[dict[str, Any], Body(examples=[_EXAMPLE])]
) -> dict[str, Any]:
    """Names that are left out stay as they are, and so do the other rates in `faults`.

    A pass that runs keeps its price. If any value is wrong nothing changes.
    """
    check_ready(state)
    for name in changes:
        if name not in _LIVE:
            raise bad_request(f"{name} cannot be changed live; only {', '.join(_LIVE)} can.", name)
    lock: asyncio.Lock = state.extras.setdefault("config_lock", asyncio.Lock())
    async with lock:
        await _apply(state, changes)
    return _config(state)


async def _apply(state: AppState, changes: dict[str, Any]) -> None:
    faults = faults_of(state)
    rates = faults.rates
    if "faults" in changes:
        if not isinstance(changes["faults"], dict):
            raise bad_request(
                f"faults is {changes['faults']!r:.60}; it must be an object of rates.", "faults"
            )
        rates = FaultRates.from_mapping(changes["faults"], rates)
    prices = {name: changes[name] for name in _PRICES if name in changes}
    if isinstance(prices.get("timing_model"), str):
        prices["timing_model"] = {"type": prices["timing_model"]}
    if prices:
        try:
            await state.engine.reprice(prices)
        except ArgumentError as error:
            raise bad_request(str(error), next(iter(prices)) if len(prices) == 1 else None) from None
    faults.rates = rates


def _config(state: AppState) -> dict[str, Any]:
    args = state.engine.args
    content = canned_of(state)
    return {
        "live": {
            **{name: getattr(args, name) for name in _PRICES},
            "faults": dataclasses.asdict(faults_of(state).rates),
        },
        "content": None if content is None else content.state(),
        "settings": state.settings.public_values(),
    }
