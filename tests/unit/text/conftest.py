"""No time limit for a single example: on a shared machine it would fail for no reason of ours."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("no-deadline", deadline=None)
settings.load_profile("no-deadline")
