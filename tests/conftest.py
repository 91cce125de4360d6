"""What every test shares: property tests without time limits, and signals that reach processes of tests."""

from __future__ import annotations

import signal

from hypothesis import HealthCheck, settings

# A busy machine would break a limit by itself.
settings.register_profile("no-deadline", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("no-deadline")

# A shell starts background jobs with SIGINT ignored, and so would every server that a test starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
