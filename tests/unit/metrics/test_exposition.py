from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.utils import floatToGoString

from app.metrics.exposition import number, render
from app.metrics.families import Family, Kind
from app.metrics.histogram import Histogram


@pytest.mark.parametrize(
    "value", [0.0, 1.0, 0.001, 2560.0, 100000.0, 1e6, 12345678.0, 1.7e9, 2e-7, float("inf")]
)
def test_numbers_are_written_as_prometheus_libraries_do(value: float) -> None:
    assert number(value) == floatToGoString(value)  # type: ignore[no-untyped-call]


def test_text_parses_back_to_what_went_in() -> None:
    histogram = Histogram((1.0, 10.0))
    histogram.observe(1.0)
    histogram.observe(5.0, 3)
    histogram.observe(11.0)
    families = [
        Family("a:requests", Kind.COUNTER, "Requests.", ("zone", "area")),
        Family("a:size", Kind.HISTOGRAM, "Size.", ("zone",), (1.0, 10.0)),
        Family("a:absent", Kind.GAUGE, "Never.", ()),
        Family("a:plain", Kind.GAUGE, "No label.", ()),
    ]
    text = render(
        families,
        {
            "a:requests": [(('z"1', "back\\slash\nline"), 3)],
            "a:size": [(("z",), histogram)],
            "a:plain": [((), 2.5)],
        },
    )
    requests, size, plain = text_string_to_metric_families(text)
    assert (requests.type, requests.samples[0].name) == ("counter", "a:requests_total")
    assert requests.samples[0].labels == {"zone": 'z"1', "area": "back\\slash\nline"}
    assert requests.samples[0].value == 3.0
    values = {(sample.name, sample.labels.get("le")): sample.value for sample in size.samples}
    assert values == {
        ("a:size_bucket", "1.0"): 1.0,
        ("a:size_bucket", "10.0"): 4.0,
        ("a:size_bucket", "+Inf"): 5.0,
        ("a:size_count", None): 5.0,
        ("a:size_sum", None): 27.0,
    }
    assert plain.samples[0].value == 2.5


def test_a_value_on_a_bound_counts_below_it() -> None:
    histogram = Histogram((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 2.0, 2.5):
        histogram.observe(value)
    assert histogram.counts == [2, 2, 1]
