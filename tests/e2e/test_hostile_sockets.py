"""Clients that speak no HTTP, dribble, half-close or vanish: no 5xx but 503, and nothing is left of them."""

from __future__ import annotations

import json
import random
import socket
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.harness.live_server import ServerProcess

pytestmark = pytest.mark.e2e

CHAT = "/v1/chat/completions"
BODY = json.dumps(
    {
        "messages": [{"role": "user", "content": "word " * 200}],
        "max_tokens": 400,
        "ignore_eos": True,
        "stream": True,
    }
).encode()
HEAD = f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n".encode()


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    flags = ["--block-size", "16", "--uvicorn-log-level", "critical", "--disable-log-requests"]
    with ServerProcess(flags) as live:
        yield live


@pytest.fixture(autouse=True)
def nothing_is_left(server: ServerProcess) -> Iterator[None]:
    """After each test blocks, requests, tasks and descriptors are what they were before it."""
    before = figures(server)
    yield
    deadline_s = time.monotonic() + 30
    while (now := figures(server)) != before:
        assert time.monotonic() < deadline_s, (before, now)
        time.sleep(0.02)


def figures(server: ServerProcess) -> dict[str, int]:
    with httpx.Client() as http:
        found = http.get(f"{server.url}/admin/metrics").json()
    rank = found["ranks"][0]
    place = Path(f"/proc/{server.process.pid}/fd")
    return {
        "blocks": rank["active_decode_blocks"],
        "requests": found["requests"]["live"] + rank["running_requests"] + rank["waiting_requests"],
        "load": found["requests"]["server_load"],
        "tasks": found["process"]["open_tasks"],
        "descriptors": len(list(place.iterdir())) if place.exists() else 0,
    }


def connect(server: ServerProcess) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=20)


def statuses(raw: bytes) -> list[int]:
    return [int(line.split()[1]) for line in raw.split(b"\r\n") if line.startswith(b"HTTP/1.1 ")]


def read_rest(sock: socket.socket) -> bytes:
    data = b""
    try:
        while more := sock.recv(65536):
            data += more
    except (ConnectionError, TimeoutError):
        pass
    return data


def is_served(server: ServerProcess) -> None:
    got = httpx.post(
        server.url + CHAT, json={"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1}
    )
    assert got.status_code == 200


def test_random_bytes_are_no_reason_for_a_500(server: ServerProcess) -> None:
    random_ = random.Random(1)
    for _ in range(150):
        with connect(server) as sock:
            try:
                sock.sendall(random_.randbytes(random_.randrange(1, 400)))
                sock.shutdown(socket.SHUT_WR)
            except OSError:
                pass  # it was refused already
            assert all(status < 500 for status in statuses(read_rest(sock)))
    is_served(server)


def test_requests_damaged_at_one_place_are_refused_or_served(server: ServerProcess) -> None:
    random_ = random.Random(2)
    whole = HEAD + f"Content-Length: {len(BODY)}\r\n\r\n".encode() + BODY.replace(b"400", b"2")
    for _ in range(150):
        damaged = bytearray(whole)
        for _ in range(random_.randrange(1, 4)):
            damaged[random_.randrange(len(damaged))] = random_.randrange(256)
        with connect(server) as sock:
            sock.sendall(damaged)
            sock.shutdown(socket.SHUT_WR)
            assert all(status < 500 for status in statuses(read_rest(sock)))
    is_served(server)


WRONG_LENGTHS = [
    b"Content-Length: 99999999999999999999\r\n\r\n{}",
    b"Content-Length: -1\r\n\r\n{}",
    b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
    b"Content-Length: 50000000\r\n\r\n{}",
    b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",
    b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n{}",
    b"Transfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    b"X: " + b"y" * 200_000 + b"\r\n\r\n",
    b"\r\n" * 1000,
]


@pytest.mark.parametrize("rest", WRONG_LENGTHS, ids=[str(item[:40]) for item in WRONG_LENGTHS])
def test_wrong_lengths_and_chunks_are_refused(server: ServerProcess, rest: bytes) -> None:
    with connect(server) as sock:
        try:
            sock.sendall(HEAD + rest)
            sock.shutdown(socket.SHUT_WR)
        except OSError:
            pass
        assert all(400 <= status < 500 for status in statuses(read_rest(sock)))
    is_served(server)


def test_slow_bodies_hold_nobody_up_and_vanish_without_a_trace(server: ServerProcess) -> None:
    slow = [connect(server) for _ in range(40)]
    for sock in slow[:20]:
        sock.sendall(HEAD + f"Content-Length: {len(BODY)}\r\n\r\n".encode())
    for sock in slow[20:]:
        sock.sendall(HEAD[:20])
    for place in range(20):
        for sock in slow[:20]:
            sock.sendall(BODY[place : place + 1])
        is_served(server)
    for sock in slow:
        sock.close()


@pytest.mark.parametrize("after", ["head", "half the body", "the body", "the first token"])
@pytest.mark.parametrize("how", ["half-close", "close", "reset"])
def test_a_client_that_leaves_at_any_moment_frees_all(server: ServerProcess, after: str, how: str) -> None:
    whole = HEAD + f"Content-Length: {len(BODY)}\r\n\r\n".encode() + BODY
    sent = {"head": len(HEAD), "half the body": len(whole) - len(BODY) // 2}.get(after, len(whole))
    leave: dict[str, Callable[[socket.socket], None]] = {
        "half-close": lambda sock: sock.shutdown(socket.SHUT_WR),
        "close": lambda sock: None,
        # Linger of 0 s: closing sends a reset.
        "reset": lambda sock: sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01" + b"\0" * 7),
    }
    for _ in range(5):
        with connect(server) as sock:
            sock.sendall(whole[:sent])
            if after == "the first token":
                data = b""
                while b'"content":"' not in data:
                    data += sock.recv(65536)
            leave[how](sock)
            if how == "half-close":
                assert all(status < 500 for status in statuses(read_rest(sock)))


def test_a_reader_that_stops_reading_and_leaves_frees_all(server: ServerProcess) -> None:
    socks = [connect(server) for _ in range(10)]
    for sock in socks:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.sendall(HEAD + f"Content-Length: {len(BODY)}\r\n\r\n".encode() + BODY)
    for sock in socks:
        assert sock.recv(100)
    is_served(server)
    for sock in socks:
        sock.close()


def test_pipelined_requests_are_answered_in_order(server: ServerProcess) -> None:
    one = b"GET /version HTTP/1.1\r\nHost: x\r\n\r\n"
    with connect(server) as sock:
        sock.sendall(one * 20)
        data = b""
        while data.count(b'{"version"') < 20:
            data += sock.recv(65536)
    assert data.count(b"HTTP/1.1 200 OK") == 20


def test_tls_is_served_with_the_given_files(tmp_path: Path) -> None:
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "2",
        "-subj",
        "/CN=localhost",
    ]
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(cert)]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("openssl is not installed.")
    from tests.harness.live_server import LiveServer

    with LiveServer(ssl_keyfile=str(key), ssl_certfile=str(cert), speedup_ratio=1e6) as live:
        context: Any = ssl.create_default_context(cafile=str(cert))
        with httpx.Client(verify=context) as http:
            url = live.url.replace("http:", "https:") + CHAT
            body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 3, "stream": True}
            got = http.post(url, json=body)
        assert got.status_code == 200
        assert got.text.endswith("data: [DONE]\n\n")
