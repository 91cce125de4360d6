"""The official OpenAI Node SDK against a real server; skipped where Node.js or its package cannot be had."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.live_server import LiveServer

pytestmark = [pytest.mark.e2e, pytest.mark.node, pytest.mark.slow]

HERE = Path(__file__).parent / "node"


@pytest.fixture(scope="module")
def project() -> Path:
    """A directory with the package installed; kept between runs, made anew when package.json changes."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        pytest.skip("Node.js or npm is not installed.")
    digest = hashlib.sha256((HERE / "package.json").read_bytes()).hexdigest()[:12]
    place = Path(tempfile.gettempdir()) / f"mocker-node-{os.getuid()}-{digest}"
    if not (place / "installed").exists():
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        shutil.copy(HERE / "package.json", place)
        command = [npm, "install", "--no-package-lock", "--no-audit", "--no-fund", "--ignore-scripts"]
        done = subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=170, check=False)
        if done.returncode != 0:
            pytest.skip(f"The package openai could not be installed with npm: {done.stderr.strip()[-300:]}")
        (place / "installed").touch()
    return place


@pytest.fixture(scope="module", params=["vllm", "openai"])
def server(request: pytest.FixtureRequest) -> Iterator[LiveServer]:
    with LiveServer(speedup_ratio=1e6, block_size=16, wire_profile=request.param, api_key=("key-1",)) as live:
        yield live


def test_the_node_sdk_passes_every_check(project: Path, server: LiveServer) -> None:
    shutil.copy(HERE / "contract.mjs", project)
    done = subprocess.run(
        ["node", "contract.mjs"],
        cwd=project,
        env={**os.environ, "MOCKER_URL": server.url},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    print(done.stdout, done.stderr)
    lines = done.stdout.splitlines()
    assert [line for line in lines if line.startswith("not ok")] == []
    assert len(lines) == 12
    assert done.returncode == 0
