"""The ASGI application for `uvicorn app.main:app`, with settings from the environment (MOCKER_...)."""

from __future__ import annotations

from app.factory import create_app
from app.settings.load import settings_from_environment

app = create_app(settings_from_environment())
