"""What every test shares: no property test has a time limit, which a busy machine would break by itself."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("no-deadline", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("no-deadline")
