"""No route needs a worker thread: beside a busy event loop one waits for the GIL, up to seconds at a time."""

from __future__ import annotations

from collections.abc import Iterator
from inspect import iscoroutinefunction

from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from app.factory import routers
from tests.unit.app.serving_fixtures import make_app


def sync_calls(dependant: Dependant) -> Iterator[str]:
    if dependant.call is not None and not iscoroutinefunction(dependant.call):
        yield repr(dependant.call)
    for part in dependant.dependencies:
        yield from sync_calls(part)


def test_every_route_and_dependency_is_a_coroutine() -> None:
    routes = [route for router in routers() for route in router.routes if isinstance(route, APIRoute)]
    assert len(routes) > 20
    assert {route.path: found for route in routes if (found := [*sync_calls(route.dependant)])} == {}


def test_every_error_handler_is_a_coroutine() -> None:
    handlers = make_app().exception_handlers
    own = [handler for handler in handlers.values() if handler.__module__.startswith("app.")]
    assert len(own) > 3
    assert [handler for handler in own if not iscoroutinefunction(handler)] == []
