"""The ASGI application for `uvicorn app.main:app`, with settings from the environment (MOCKER_...)."""

from __future__ import annotations

import os

from app.factory import MockerApp, create_app
from app.settings_load import load_settings


def _from_environment() -> MockerApp:
    settings = load_settings((), os.environ).settings
    assert settings is not None
    return create_app(settings)


app = _from_environment()
