"""How many examples the property tests try: HYPOTHESIS_PROFILE=thorough tries HYPOTHESIS_EXAMPLES, at random.

The default is derandomised, so that a run of the suite fails only for a change of the code.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

THOROUGH = os.environ.get("HYPOTHESIS_PROFILE") == "thorough"
MANY = int(os.environ.get("HYPOTHESIS_EXAMPLES", "5000"))


def examples(usual: int, **more: int) -> settings:
    """Settings of one test."""
    return settings(
        max_examples=MANY if THOROUGH else usual,
        derandomize=not THOROUGH,
        database=None,
        print_blob=True,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        **more,  # type: ignore[arg-type]  # stateful_step_count and the like
    )
