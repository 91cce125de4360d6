from __future__ import annotations

from app.lateness import BOUNDS_MS, LatenessHistogram


def test_each_value_is_counted_in_the_bucket_whose_bound_holds_it() -> None:
    histogram = LatenessHistogram()
    histogram.observe(BOUNDS_MS[0], 2)
    histogram.observe(BOUNDS_MS[0] + 0.001, 1)
    histogram.observe(5000.0, 1)
    assert histogram.counts[0] == 2
    assert histogram.counts[1] == 1
    assert histogram.counts[-1] == 1
    assert histogram.total == 4
    assert histogram.max_ms == 5000.0


def test_quantiles_are_bounds_and_never_above_the_greatest_value() -> None:
    histogram = LatenessHistogram()
    assert histogram.quantile_ms(0.5) is None
    for _ in range(99):
        histogram.observe(0.3, 1)
    histogram.observe(7.0, 1)
    assert histogram.quantile_ms(0.5) == 0.5
    assert histogram.quantile_ms(1.0) == 7.0
