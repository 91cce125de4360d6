"""The dashboard's page: complete in itself, its parts consistent with each other, its policy true."""

from __future__ import annotations

import base64
import hashlib
import re
import shutil
import subprocess
from collections import Counter
from importlib.resources import files
from pathlib import Path

import pytest

from app.dashboard.assemble import MODULES, STYLES, dashboard_page

PAGE = dashboard_page().body.decode()
PARTS = {
    name: files("app.dashboard.page").joinpath(name).read_text(encoding="utf-8")
    for name in (*MODULES, *STYLES, "page.html")
}


def _inside(tag: str) -> str:
    found = re.findall(rf"<{tag}(?: [^>]*)?>(.*?)</{tag}>", PAGE, re.S)
    assert len(found) == 1, f"{len(found)} {tag} elements"
    return str(found[0])


def test_page_loads_nothing_else() -> None:
    addresses = set(re.findall(r"https?://[^\s'\"<>)]+", PAGE))
    assert addresses == {"http://www.w3.org/2000/svg"}  # a namespace's name
    assert not re.search(r"@import|url\(|<link(?! rel=\"icon\" href=\"data:)|\bsrc=|import\(", PAGE)


def test_policy_names_this_style_and_this_script() -> None:
    policy = dashboard_page().policy
    assert "default-src 'none'" in policy and "unsafe-inline" not in policy
    for tag, directive in (("style", "style-src"), ("script", "script-src")):
        digest = base64.b64encode(hashlib.sha256(_inside(tag).encode()).digest()).decode()
        assert f"{directive} 'sha256-{digest}'" in policy


def test_page_has_no_inline_style_or_handler_that_the_policy_would_refuse() -> None:
    assert not re.search(r"<[^>]+\s(?:style|on\w+)=", PARTS["page.html"])


def test_every_file_of_the_page_is_used() -> None:
    present = {Path(item.name).name for item in files("app.dashboard.page").iterdir()}
    assert {name for name in present if name.endswith((".js", ".css", ".html"))} == set(PARTS)


def test_modules_come_after_what_they_import_and_import_what_exists() -> None:
    for place, name in enumerate(MODULES):
        for names, source in re.findall(r"^import \{([^}]+)\} from \"\./([\w.]+)\";$", PARTS[name], re.M):
            assert source in MODULES[:place], f"{name} imports {source}"
            exported = set(
                re.findall(r"^export (?:async )?(?:function\*?|const|class) (\w+)", PARTS[source], re.M)
            )
            assert {item.strip() for item in names.split(",")} <= exported, f"{name} from {source}"


def test_joined_modules_share_no_top_level_name() -> None:
    names = re.findall(r"^(?:async )?(?:function\*?|const|let|class) (\w+)", _inside("script"), re.M)
    assert [name for name, times in Counter(names).items() if times > 1] == []
    assert not re.search(r"^(?:import|export) ", _inside("script"), re.M)


def test_every_element_that_a_module_wants_is_in_the_page() -> None:
    wanted = set(re.findall(r"byId\(\"([\w-]+)\"\)", _inside("script")))
    ids = re.findall(r"\bid=\"([\w-]+)\"", PARTS["page.html"])
    assert wanted - set(ids) == set()
    assert len(ids) == len(set(ids))


def test_every_label_points_at_an_element() -> None:
    ids = set(re.findall(r"\bid=\"([\w-]+)\"", PARTS["page.html"]))
    pointed = re.findall(r"\b(?:aria-labelledby|aria-describedby|for)=\"([\w-]+)\"", PARTS["page.html"])
    assert set(pointed) <= ids


def test_both_themes_define_the_same_colours() -> None:
    light, dark = re.findall(r"\{([^}]*--page:[^}]*)\}", PARTS["theme.css"])
    assert set(re.findall(r"--\w+", light)) == set(re.findall(r"--\w+", dark))


@pytest.mark.parametrize("ground", ["card", "page"])
@pytest.mark.parametrize("theme", [0, 1])
def test_text_stands_out_from_its_ground(theme: int, ground: str) -> None:
    """WCAG AA for text: a contrast of at least 4.5."""
    block = re.findall(r"\{([^}]*--page:[^}]*)\}", PARTS["theme.css"])[theme]
    colours = {name: value.strip() for name, value in re.findall(r"--(\w+): ([^;]+);", block)}
    for name in ("ink", "soft", "bad"):
        assert _contrast(colours[name], colours[ground]) >= 4.5, name


@pytest.mark.node
def test_script_is_valid(tmp_path: Path) -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("no Node.js found")
    script = tmp_path / "page.mjs"
    script.write_text(_inside("script"), encoding="utf-8")
    checked = subprocess.run([node, "--check", str(script)], capture_output=True, text=True, timeout=60)
    assert checked.returncode == 0, checked.stderr


def _contrast(one: str, other: str) -> float:
    lighter, darker = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
