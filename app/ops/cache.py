"""vLLM's /reset_prefix_cache, /sleep, /wake_up and /is_sleeping, with their effect on the engine's cache.

Owns what is asleep. Everything done to a core goes through its rank's own task (`Engine.call_core`).
"""

from __future__ import annotations

import logging
from typing import Annotated

from fastapi import APIRouter, Query, Response

from app.errors import bad_request
from app.openai.choice import ChoiceRun
from app.openai.serving import check_ready
from app.state import AppState, State
from mocker_core.errors import MockerError
from mocker_core.live.protocols import LiveCore

router = APIRouter(tags=["Operations"])

logger = logging.getLogger("mocker.cache")

_SLEEPER = "sleeper"
_MODES = ("abort", "wait", "keep")
_MEMORY = frozenset({"weights", "kv_cache"})
_TAGS = _MEMORY | {"scheduling"}


class Sleeper:
    """The sleep of one server. Asleep, requests are taken and wait; none is scheduled."""

    def __init__(self, state: AppState) -> None:
        self._state = state
        self._asleep: frozenset[str] = frozenset()
        self.sleeping = False
        self.level = 0  # of the latest sleep

    async def sleep(self, level: int, mode: str) -> None:
        """Level 0 stops scheduling; 1 and 2 drop the KV cache as well (the mocker has no weights to drop).

        `mode` says what happens to requests: abort ends them, wait lets those received end, keep leaves
        them standing; at level 1 and 2 they lose their KV and compute it again.
        """
        engine = self._state.engine
        self.sleeping = True
        self.level = level
        if level >= 1:
            self._asleep = _MEMORY
        if not await engine.pause(drain=mode == "wait"):
            return  # woken before everything had ended
        if mode == "abort":
            await self._abort_requests()
        if level >= 1:
            await reset_prefix_cache_of_all(self._state, preempt=True)

    def wake_up(self, tags: frozenset[str]) -> None:
        """Wake what the tags name, or all without tags. Scheduling goes on once nothing is asleep."""
        self._asleep = self._asleep - tags if tags else frozenset()
        if self.sleeping and not self._asleep:
            self.sleeping = False
            self._state.engine.resume()

    async def _abort_requests(self) -> None:
        state = self._state
        now_ms = state.engine.now_ms()
        for request_id in state.dispatcher.live_ids():
            run = state.dispatcher.find(request_id)
            if isinstance(run, ChoiceRun):
                state.dispatcher.forget(request_id)
                state.submitter.cancel(run)
                run.abort(now_ms)
            else:
                state.dispatcher.fail(request_id, MockerError("The engine was put to sleep."))
        state.dispatcher.flush()
        await state.engine.cancel_all()


async def reset_prefix_cache_of_all(state: AppState, *, preempt: bool) -> bool:
    """Forget the cached blocks of every rank and tier; `preempt` frees those of running requests first.

    False: some rank kept its cache because blocks of it are in use.
    """

    def reset(core: LiveCore, now_ms: float) -> bool:
        if preempt:
            core.preempt_all(now_ms)
        return core.reset_prefix_cache(now_ms)

    done = True
    for rank in range(state.engine.args.dp_size):
        if not await state.engine.call_core(rank, reset):
            done = False
            logger.warning("The prefix cache of rank %d was not reset: blocks of it are in use.", rank)
    return done


def sleeper_of(state: AppState) -> Sleeper:
    sleeper: Sleeper = state.extras.setdefault(_SLEEPER, Sleeper(state))
    return sleeper


@router.post("/reset_prefix_cache", response_class=Response, summary="Forget every cached KV block")
async def reset_prefix_cache(
    state: State,
    reset_running_requests: Annotated[bool, Query(description="Preempt running requests first.")] = False,
    reset_external: Annotated[bool, Query(description="Accepted; every tier is always reset.")] = False,
) -> Response:
    """200 even if blocks in use kept the cache from being reset, as vLLM answers."""
    check_ready(state)
    await reset_prefix_cache_of_all(state, preempt=reset_running_requests)
    return Response(status_code=200)


@router.post("/reset_mm_cache", response_class=Response, summary="Accepted; nothing is cached")
@router.post("/reset_encoder_cache", response_class=Response, summary="Accepted; nothing is cached")
async def reset_nothing(state: State) -> Response:
    check_ready(state)
    return Response(status_code=200)


@router.post("/sleep", response_class=Response, summary="Stop scheduling; level 1 and 2 drop the KV cache")
async def sleep(
    state: State,
    level: Annotated[int, Query(ge=0, le=2)] = 1,
    mode: Annotated[str, Query(description="abort, wait or keep")] = "abort",
) -> Response:
    check_ready(state)
    if mode not in _MODES:
        raise bad_request(f"mode is {mode!r}; it must be one of {', '.join(_MODES)}.", "mode")
    await sleeper_of(state).sleep(level, mode)
    return Response(status_code=200)


@router.post("/wake_up", response_class=Response, summary="Wake what sleeps, or what the tags name")
async def wake_up(
    state: State,
    tags: Annotated[list[str] | None, Query(description="weights, kv_cache, scheduling; several")] = None,
) -> Response:
    check_ready(state)
    given = frozenset(tags or ())
    if unknown := sorted(given - _TAGS):
        raise bad_request(f"tags has {unknown[0]!r}; a tag is one of {', '.join(sorted(_TAGS))}.", "tags")
    sleeper_of(state).wake_up(given)
    return Response(status_code=200)


@router.get("/is_sleeping", summary="Whether the engine sleeps")
async def is_sleeping(state: State) -> dict[str, bool]:
    return {"is_sleeping": sleeper_of(state).sleeping}
