"""Every expression of the Grafana dashboard and of the alerts names metrics and labels that exist."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from app.metrics.families import Family, Kind, mocker_families, process_families, vllm_families

DEPLOY = Path(__file__).resolve().parents[3] / "deploy"
# What Prometheus adds to every sample by itself.
SCRAPE_LABELS = {"job", "instance"}
_METRIC = re.compile(r"\b(?:vllm|mocker|process|python)[:_][a-zA-Z0-9_:]+")
_SELECTOR = re.compile(r"((?:vllm|mocker|process|python)[:_][a-zA-Z0-9_:]+)\{([^}]*)\}")
_GROUPING = re.compile(r"\bby \(([^)]*)\)")


def known() -> dict[str, set[str]]:
    """Names of samples, each with its labels."""
    found: dict[str, set[str]] = {}
    families: list[Family] = [
        *vllm_families(1000, lora=True, hidden=False),
        *mocker_families(offload=True),
        *process_families(),
    ]
    for family in families:
        labels = set(family.labels) | SCRAPE_LABELS
        if family.kind is Kind.HISTOGRAM:
            found |= {f"{family.name}_{end}": labels for end in ("sum", "count")}
            found[f"{family.name}_bucket"] = labels | {"le"}
        else:
            found[family.name + ("_total" if family.kind is Kind.COUNTER else "")] = labels
    return found


def expressions() -> Iterator[tuple[str, str]]:
    board: dict[str, Any] = json.loads((DEPLOY / "grafana" / "mocker.json").read_text(encoding="utf-8"))
    for panel in board["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"]
    for variable in board["templating"]["list"]:
        if variable["type"] == "query":
            yield f"${variable['name']}", variable["definition"]
    rules = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yaml").read_text(encoding="utf-8"))
    for group in rules["groups"]:
        for rule in group["rules"]:
            yield rule["alert"], rule["expr"]


@pytest.mark.parametrize(("where", "expression"), list(expressions()))
def test_expression_names_metrics_and_labels_that_exist(where: str, expression: str) -> None:
    metrics = known()
    named = _METRIC.findall(expression)
    assert named, "no metric"
    assert set(named) <= metrics.keys()
    for name, selector in _SELECTOR.findall(expression):
        assert set(re.findall(r"(\w+)\s*=", selector)) <= metrics[name]
    for grouping in _GROUPING.findall(expression):
        labels = {label.strip() for label in grouping.split(",")}
        assert all(labels <= metrics[name] for name in named)


def test_every_family_of_ours_and_most_of_vllms_have_a_panel() -> None:
    shown = " ".join(expression for _, expression in expressions())
    missing = [
        family.name for family in vllm_families(1000, lora=False, hidden=False) if family.name not in shown
    ]
    # Always 0 here, or no figure to plot.
    assert set(missing) == {
        "vllm:mm_cache_queries",
        "vllm:mm_cache_hits",
        "vllm:cache_config_info",
        "vllm:engine_sleep_state",
    }


def test_panels_have_ids_of_their_own_and_do_not_overlap() -> None:
    board = json.loads((DEPLOY / "grafana" / "mocker.json").read_text(encoding="utf-8"))
    panels = board["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells


def test_scrape_example_is_valid_and_points_at_the_rules() -> None:
    config = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yaml").read_text(encoding="utf-8"))
    (job,) = config["scrape_configs"]
    assert job["metrics_path"] == "/metrics"
    assert all((DEPLOY / "prometheus" / name).is_file() for name in config["rule_files"])
