"""Finds tests by the names that documents give them: `path::name`."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def is_a_test(reference: str) -> bool:
    """Whether `path::name` is a test function of the module at that path, from the root of the checkout."""
    path, _, name = reference.partition("::")
    return name.startswith("test_") and name in _tests_of(path)


@cache
def _tests_of(path: str) -> frozenset[str]:
    file = ROOT / path
    if not file.is_file():
        return frozenset()
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
