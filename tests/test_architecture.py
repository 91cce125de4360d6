"""Holds the code to docs/architecture.md: who imports whom, what the core may touch, sizes, clean files."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCES = sorted(path for part in ("app", "mocker_core") for path in (ROOT / part).rglob("*.py"))
LINE_CEILING = 400

# Floors of the core, lowest first. A package uses lower floors and itself, never a sibling on its own floor.
FLOORS = {
    **dict.fromkeys(
        ("errors", "engine_args", "request", "events", "commands", "metrics", "hashing", "rng", "trace"), 0
    ),
    **dict.fromkeys(("kv", "perf", "offload", "handoff"), 1),
    "sched": 2,
    "engine": 3,
    **dict.fromkeys(("live", "replay"), 4),
}
WEB = {
    "app",
    "fastapi",
    "starlette",
    "pydantic",
    "uvicorn",
    "httpx",
    "sse_starlette",
    "prometheus_client",
    "zmq",
}
OUTSIDE_WORLD = {
    "asyncio",
    "time",
    "datetime",
    "threading",
    "socket",
    "os",
    "logging",
    "subprocess",
    "selectors",
}
HASHES = {"hashlib", "zlib", "xxhash", "binascii"}


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")


def _walk(node: ast.AST) -> Iterator[ast.AST]:
    """Every node but those that only the type checker sees."""
    yield node
    for child in ast.iter_child_nodes(node):
        if not _is_type_checking(child):
            yield from _walk(child)


@cache
def imports(path: Path) -> frozenset[str]:
    """Modules that this file imports, anywhere in it; `from a import b` is a.b if there is such a module."""
    found: set[str] = set()
    package = module_name(path).split(".")
    for node in _walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            start = package[: len(package) - node.level + (path.name == "__init__.py")] if node.level else []
            base = ".".join([*start, *([node.module] if node.module else [])])
            found |= {f"{base}.{a.name}" if is_module(f"{base}.{a.name}") else base for a in node.names}
    return frozenset(found)


@cache
def is_module(name: str) -> bool:
    place = ROOT.joinpath(*name.split("."))
    return place.with_suffix(".py").exists() or (place / "__init__.py").exists()


def core_files() -> list[Path]:
    return [path for path in SOURCES if module_name(path).startswith("mocker_core.")]


def part(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def offences(files: list[Path], banned: set[str], but: tuple[str, ...] = ()) -> list[str]:
    return [
        f"{module_name(path)} imports {name}"
        for path in files
        for name in sorted(imports(path))
        if name.split(".")[0] in banned and not module_name(path).startswith(but or ("\0",))
    ]


def test_every_part_of_the_core_has_a_floor() -> None:
    assert {part(module_name(path)) for path in core_files()} <= FLOORS.keys()


def test_core_imports_go_down_the_floors_only() -> None:
    wrong = []
    for path in core_files():
        own = part(module_name(path))
        for name in imports(path):
            if not name.startswith("mocker_core"):
                continue
            other = part(name)
            # The flat modules of the lowest floor may use one another.
            same = other == own or FLOORS.get(other) == FLOORS[own] == 0
            if not other or not (same or FLOORS[other] < FLOORS[own]):
                wrong.append(f"{module_name(path)} imports {name}")
    assert not wrong


def test_imports_make_no_circle() -> None:
    names = {module_name(path) for path in SOURCES}
    graph = {module_name(path): sorted(imports(path) & names) for path in SOURCES}
    done: set[str] = set()

    def visit(name: str, trail: tuple[str, ...]) -> None:
        assert name not in trail, " -> ".join([*trail[trail.index(name) :], name])
        if name not in done:
            for used in graph[name]:
                visit(used, (*trail, name))
            done.add(name)

    for name in graph:
        visit(name, ())


def test_core_knows_no_web_library_and_no_app() -> None:
    assert not offences([*core_files(), ROOT / "mocker_core" / "__init__.py"], WEB)


def test_only_the_live_part_of_the_core_touches_clock_loop_and_machine() -> None:
    assert not offences(core_files(), OUTSIDE_WORLD, but=("mocker_core.live",))


def test_hashes_and_randomness_come_from_their_modules() -> None:
    assert not offences(core_files(), HASHES, but=("mocker_core.hashing", "mocker_core.rng"))
    made = re.compile(r"\bRandom\(|\brandom\.\w+\(|\b(uuid|secrets)\.\w+\(")
    makers = {module_name(path) for path in core_files() if made.search(path.read_text(encoding="utf-8"))}
    assert makers <= {"mocker_core.rng"}


def test_only_app_settings_and_cli_read_the_environment() -> None:
    readers = {
        module_name(path)
        for path in SOURCES
        if re.search(r"\bos\.(environ|getenv)\b", path.read_text(encoding="utf-8"))
    }
    assert readers <= {"app.cli", "app.settings.load"}


@pytest.mark.parametrize("path", SOURCES, ids=module_name)
def test_source_file_is_small_and_says_what_it_owns(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.count("\n") <= LINE_CEILING
    assert path.stem not in {"utils", "util", "common", "helpers", "misc"}
    if text.strip():
        tree = ast.parse(text)
        assert ast.get_docstring(tree), "no module docstring"
        if len(tree.body) > 1 and path.name != "__init__.py":
            assert "from __future__ import annotations" in text


def tracked_files() -> list[Path]:
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    return [ROOT / name for name in listed.stdout.split("\0") if name]


def test_tracked_files_name_no_registry_host_and_no_path_of_a_machine() -> None:
    # Written in pieces, so that this file does not match itself.
    pieces = [
        ("py", "pi", "org"),
        ("python", "hosted", "org"),
        ("npm", "js", "(org|com)"),
        ("crates", "", "io"),
    ]
    hosts = "|".join(rf"{start}{end}\.{top}" for start, end, top in pieces)
    places = r"(?<![\w.~-])/(work|" + r"root|home/\w+|Users/\w+)/"
    wrong = re.compile(f"{hosts}|{places}")
    found = []
    for path in tracked_files():
        if not path.is_file():
            continue
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        found += [f"{path.relative_to(ROOT)}: {match.group()}" for match in wrong.finditer(text)]
    assert not found


def test_constraints_pin_names_and_versions_only() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if not re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.+!]+", line)] == []


def test_every_dependency_is_pinned() -> None:
    import tomllib

    def normal(name: str) -> str:
        return re.sub(r"[-_.]+", "-", re.split(r"[\[<>=!;]", name)[0]).lower()

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"].values()
    named = {normal(text) for group in (project["dependencies"], *extras) for text in group} - {"llm-mocker"}
    pins = {normal(line) for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()}
    assert named - pins == set()
