"""Reads a scrape of /metrics with the client library's own parser."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def parse(text: str) -> tuple[Samples, set[str]]:
    """All samples, and the names of those that may never fall."""
    samples: Samples = {}
    rising: set[str] = set()
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            samples[sample.name, frozenset(sample.labels.items())] = sample.value
            if family.type in ("counter", "histogram"):
                rising.add(sample.name)
    return samples, rising


def total(samples: Samples, name: str, **labels: str) -> float:
    """Over every sample of that name with those labels."""
    found = [value for (known, own), value in samples.items() if known == name and labels.items() <= set(own)]
    assert found, name
    return sum(found)
