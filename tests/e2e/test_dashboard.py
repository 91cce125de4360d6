"""The dashboard in headless Chromium: it loads clean, moves under load, streams, switches, fits a phone."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from app.dashboard.feed import Frame, frame
from app.state import AppState
from tests.harness.browser import Browser, find_chromium, until
from tests.harness.live_server import LiveServer
from tests.harness.pd import LiveRouter

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.browser,
    pytest.mark.skipif(find_chromium() is None, reason="no Chromium found"),
]

MODEL = "mocker"


class Load:
    """Streaming clients that go on until told to stop."""

    def __init__(self, url: str, clients: int, *, max_tokens: int = 64) -> None:
        self._url = url
        self._max_tokens = max_tokens
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(index,)) for index in range(clients)]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(60)

    def _run(self, index: int) -> None:
        body = {
            "model": MODEL,
            "stream": True,
            "ignore_eos": True,
            "max_tokens": self._max_tokens,
            "messages": [{"role": "user", "content": f"client {index} " * 20}],
        }
        with httpx.Client(timeout=30, trust_env=False) as client:
            while not self._stop.is_set():
                with client.stream("POST", f"{self._url}/v1/chat/completions", json=body) as answer:
                    for _ in answer.iter_raw():
                        if self._stop.is_set():
                            break


@pytest.fixture(scope="module")
def server() -> Iterator[LiveServer]:
    """A pool that holds a few requests only, so that load brings preemptions."""
    with LiveServer(num_gpu_blocks_override=40, block_size=16, max_num_seqs=16) as server:
        yield server


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with Browser() as browser:
        yield browser


@pytest.fixture
def browser(chromium: Browser) -> Iterator[Browser]:
    chromium.prefer(prefers_color_scheme="light", prefers_reduced_motion="no-preference")
    chromium.resize(1440, 900)
    chromium.problems.clear()
    chromium.requested.clear()
    yield chromium
    chromium.send("Page.navigate", url="about:blank")


@contextmanager
def opened(browser: Browser, url: str) -> Iterator[None]:
    """The dashboard, once its first frame is drawn; nothing may go wrong on it."""
    browser.open(f"{url}/dashboard")
    browser.wait("document.getElementById('main').dataset.frames > 0")
    yield
    assert browser.problems == []


def text(browser: Browser, selector: str) -> str:
    return str(browser.run(f"document.querySelector({selector!r}).textContent"))


def tile(name: str) -> str:
    return f"Number(document.querySelector('[data-tile=\"{name}\"] b').textContent.replace(/[^0-9.]/g, ''))"


def test_page_loads_clean_and_from_this_server_only(browser: Browser, server: LiveServer) -> None:
    with opened(browser, server.url):
        assert text(browser, "#model") == MODEL
        assert "ready" in text(browser, "#facts")
        assert text(browser, "#link") == "live"
        hosts = {httpx.URL(url).netloc for url in browser.requested if url.startswith("http")}
        assert hosts == {f"127.0.0.1:{server.port}".encode()}


def test_numbers_move_under_load_and_preemptions_show(browser: Browser, server: LiveServer) -> None:
    with opened(browser, server.url), Load(server.url, 12, max_tokens=160):
        browser.wait(f"{tile('running')} > 0 && {tile('waiting')} > 0")
        browser.wait(f"{tile('preemptions')} > 0")
        browser.wait(f"{tile('throughput')} > 0")
        browser.wait("document.querySelectorAll('#rows .row').length > 5")
        browser.wait("document.querySelectorAll('#recent tr').length > 0")
        assert "held" in text(browser, "#blocks-note")
        assert " of 40 " in text(browser, "#blocks-note")


def test_request_opens_as_a_timeline_by_keyboard_and_closes_by_escape(
    browser: Browser, server: LiveServer
) -> None:
    body = {"model": MODEL, "max_tokens": 5, "messages": [{"role": "user", "content": "x" * 200}]}
    answer = httpx.post(f"{server.url}/v1/chat/completions", json=body, timeout=30).json()
    with opened(browser, server.url):
        browser.wait(f"document.querySelector('#recent tr').dataset.id.includes({answer['id']!r})")
        browser.run("document.querySelector('#recent button').focus()")
        browser.press("Enter", number=13, text="\r")
        browser.wait("document.querySelector('#drawer .story') !== null")
        told = text(browser, "#drawer-body")
        assert all(word in told for word in ("queued", "admitted", "prefill chunk 1 of 1", "first token"))
        assert browser.run("document.querySelectorAll('#drawer .ways i').length") >= 3
        browser.press("Escape", number=27)
        browser.wait("!document.getElementById('drawer').open")


def test_arrow_keys_move_among_running_requests(browser: Browser, server: LiveServer) -> None:
    with opened(browser, server.url), Load(server.url, 4, max_tokens=400):
        browser.wait("document.querySelectorAll('#rows .row').length >= 3")
        browser.run("document.querySelector('#rows .row').focus()")
        browser.press("ArrowDown", number=40)
        focused = "[...document.querySelectorAll('#rows .row')].indexOf(document.activeElement)"
        assert browser.run(focused) == 1
        assert (
            browser.run("[...document.querySelectorAll('#rows .row')].filter(r => r.tabIndex === 0).length")
            == 1
        )


def test_try_it_streams_chunk_by_chunk(browser: Browser, server: LiveServer) -> None:
    with opened(browser, server.url):
        browser.run(
            "window.lengths = new Set();"
            "const answer = document.getElementById('try-text');"
            "new MutationObserver(() => window.lengths.add(answer.textContent.length))"
            ".observe(answer, {childList: true});"
            "document.getElementById('try-max').value = 40;"
            "document.getElementById('try-send').click()"
        )
        browser.wait("document.getElementById('try-told').textContent.includes('40 chunks')")
        assert browser.run("window.lengths.size") >= 5  # it grew in steps
        assert "first after" in text(browser, "#try-told")
        assert text(browser, "#try-send") == "Send"


def test_page_fits_a_phone(browser: Browser, server: LiveServer) -> None:
    with opened(browser, server.url), Load(server.url, 6):
        browser.resize(360, 740)
        browser.wait("document.querySelectorAll('#recent tr').length > 0 && innerWidth === 360")
        assert browser.run("document.documentElement.scrollWidth") <= 360


def test_dark_follows_the_system_and_the_button_overrules_it(browser: Browser, server: LiveServer) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    with opened(browser, server.url):
        light = browser.run(ground)
        browser.prefer(prefers_color_scheme="dark")
        browser.wait(f"{ground} !== {light!r}")
        browser.run("document.getElementById('theme').click()")
        assert browser.run(ground) == light
        browser.run("document.getElementById('theme').click()")
        assert browser.run(ground) != light
        browser.run("localStorage.clear()")


def test_reduced_motion_stops_transitions(browser: Browser, server: LiveServer) -> None:
    browser.prefer(prefers_reduced_motion="reduce")
    with opened(browser, server.url), Load(server.url, 2):
        browser.wait("document.querySelector('#rows .track i') !== null")
        style = "getComputedStyle(document.querySelector('#rows .track i')).transitionDuration"
        assert browser.run(style) == "0s"


def test_every_focusable_element_has_a_name(browser: Browser, server: LiveServer) -> None:
    with opened(browser, server.url):
        nameless = browser.run(
            "[...document.querySelectorAll('button, input, select, textarea, [tabindex=\"0\"]')]"
            ".filter(e => !(e.ariaLabel || e.textContent.trim() || e.labels?.length || e.title"
            " || e.getAttribute('aria-labelledby'))).map(e => e.outerHTML)"
        )
        assert nameless == []


def test_hidden_page_costs_the_server_nothing(
    browser: Browser, server: LiveServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = 0

    async def counted(state: AppState) -> Frame:
        nonlocal made
        made += 1
        return await frame(state)

    monkeypatch.setattr("app.dashboard.feed_route.frame", counted)
    with opened(browser, server.url):
        until(lambda: made > 2, "frames are made for a visible page")
        _set_hidden(browser, True)
        browser.wait("document.getElementById('link').textContent === 'asleep'")
        time.sleep(0.5)  # what was under way ends
        before = made
        time.sleep(1.0)
        assert made == before
        _set_hidden(browser, False)
        until(lambda: made > before, "the page goes on when it is seen again")


def test_held_picture_stands_still(browser: Browser, server: LiveServer) -> None:
    with opened(browser, server.url):
        browser.run("document.getElementById('pause').click()")
        before = browser.run("document.getElementById('main').dataset.frames")
        browser.run("new Promise(wake => setTimeout(wake, 600))")
        assert browser.run("document.getElementById('main').dataset.frames") == before
        browser.run("document.getElementById('pause').click()")
        browser.wait(f"document.getElementById('main').dataset.frames > {before}")


def test_switch_acts_on_the_engine(browser: Browser) -> None:
    with LiveServer() as server, opened(browser, server.url):
        browser.wait("document.getElementById('switch-speedup_ratio') !== null")
        browser.run(
            "const field = document.getElementById('switch-speedup_ratio'); field.value = 50;"
            "field.dispatchEvent(new Event('change'))"
        )
        browser.wait("document.getElementById('facts').textContent.includes('50×')")
        assert httpx.get(f"{server.url}/admin/config").json()["live"]["speedup_ratio"] == 50
        browser.run(
            "const share = document.getElementById('switch-faults-error'); share.value = 100;"
            "share.dispatchEvent(new Event('change'))"
        )
        browser.wait("document.getElementById('switches-note').textContent === 'done'")
        body = {"model": MODEL, "messages": [{"role": "user", "content": "x"}]}
        assert httpx.post(f"{server.url}/v1/chat/completions", json=body).status_code == 500


def test_server_with_keys_is_asked_for_and_the_key_stays_in_memory(browser: Browser) -> None:
    with LiveServer(api_key=("api",), admin_key="admin") as server:
        browser.open(f"{server.url}/dashboard")
        browser.wait("document.getElementById('key-dialog').open")
        browser.run(
            "document.getElementById('key-admin').value = 'admin';"
            "document.getElementById('key-api').value = 'api';"
            "document.querySelector('#key-form .primary').click()"
        )
        browser.wait("document.getElementById('main').dataset.frames > 0")
        browser.run("document.getElementById('try-send').click()")
        browser.wait("document.getElementById('try-told').textContent.includes('chunks')")
        assert browser.run("localStorage.length + sessionStorage.length + document.cookie.length") == 0
        # A browser's console notes each 401 by itself; nothing else may go wrong.
        assert all("401" in problem for problem in browser.problems)


def test_declined_key_is_not_asked_for_again_until_wanted(browser: Browser) -> None:
    with LiveServer(admin_key="admin") as server:
        browser.open(f"{server.url}/dashboard")
        browser.wait("document.getElementById('key-dialog').open")
        browser.run("document.querySelector('#key-form [value=cancel]').click()")
        browser.wait("document.getElementById('link').textContent === 'locked'")
        browser.run("new Promise(wake => setTimeout(wake, 600))")
        assert not browser.run("document.getElementById('key-dialog').open")
        assert "admin key" in text(browser, "#notice")
        browser.run("document.getElementById('keys').click()")
        browser.run(
            "document.getElementById('key-admin').value = 'admin';"
            "document.querySelector('#key-form .primary').click()"
        )
        browser.wait("document.getElementById('main').dataset.frames > 0")
        browser.wait("document.getElementById('notice').hidden")


def test_page_takes_up_a_server_that_comes_back(browser: Browser) -> None:
    with LiveServer() as first:
        browser.open(f"{first.url}/dashboard")
        browser.wait("document.getElementById('main').dataset.frames > 0")
        port = first.port
    browser.wait("document.getElementById('link').textContent === 'no connection'")
    assert not browser.run("document.getElementById('notice').hidden")
    with LiveServer(port=port, served_model_name=("second",)):
        browser.wait("document.getElementById('model').textContent === 'second'")
        assert browser.run("document.getElementById('notice').hidden")


def test_chart_tells_a_seconds_values_by_pointer_and_by_key(browser: Browser, server: LiveServer) -> None:
    with opened(browser, server.url), Load(server.url, 4):
        browser.wait("document.getElementById('itl-now').textContent.includes('ms')")
        place = browser.run(
            "(() => { const box = document.getElementById('rate').getBoundingClientRect();"
            "return [box.right - 12, box.top + 40] })()"
        )
        browser.send("Input.dispatchMouseEvent", type="mouseMoved", x=place[0], y=place[1])
        browser.wait("document.getElementById('tip').textContent.includes('tokens/s')")
        browser.run("document.getElementById('itl').focus()")
        browser.press("ArrowLeft", number=37)
        assert "p99" in text(browser, "#tip")
        browser.run("document.getElementById('itl').blur()")
        assert browser.run("document.getElementById('tip').hidden")


def test_handoff_travels_its_lane(browser: Browser) -> None:
    """1 s of transfer and 64 tokens of decode: long enough to be seen in each stage."""
    link: dict[str, Any] = {"kv_bytes_per_token": 1_000_000, "kv_transfer_bandwidth": 0.05}
    with (
        LiveServer(disaggregation_mode="prefill", **link) as prefill,
        LiveServer(disaggregation_mode="decode", **link) as decode,
        LiveRouter([prefill.url], [decode.url]) as router,
        opened(browser, decode.url),
    ):
        browser.run(
            "window.stages = [];"
            "new MutationObserver(() => { for (const lane of document.querySelectorAll('.lane'))"
            " if (window.stages.at(-1) !== lane.dataset.stage) window.stages.push(lane.dataset.stage); })"
            ".observe(document.getElementById('lanes'), {subtree: true, childList: true, attributes: true})"
        )
        body = {"model": MODEL, "max_tokens": 64, "ignore_eos": True}
        body |= {"messages": [{"role": "user", "content": "x" * 200}]}
        assert httpx.post(f"{router.url}/v1/chat/completions", json=body, timeout=60).status_code == 200
        browser.wait("window.stages.at(-1) === 'done'")
        stages: Sequence[str] = browser.run("window.stages")
        assert list(stages)[-3:] == ["transfer", "decode", "done"]
        assert "1 completed" in text(browser, "#handoffs-note")
        browser.resize(360, 740)
        browser.wait("innerWidth === 360")
        assert browser.run("document.documentElement.scrollWidth") <= 360


def test_settings_of_the_page_are_the_servers(browser: Browser) -> None:
    name = "an-organisation/" + "a-very-long-name" * 6
    with (
        LiveServer(served_model_name=(name,), data_parallel_size=2) as server,
        opened(browser, server.url),
    ):
        assert text(browser, "#model") == name
        assert "2 ranks" in text(browser, "#facts")
        assert "on 2 ranks" in text(browser, "#blocks-note")
        browser.resize(360, 740)
        browser.wait("innerWidth === 360")
        assert browser.run("document.documentElement.scrollWidth") <= 360


def _set_hidden(browser: Browser, hidden: bool) -> None:
    browser.run(
        f"Object.defineProperty(document, 'hidden', {{value: {str(hidden).lower()}, configurable: true}});"
        "document.dispatchEvent(new Event('visibilitychange'))"
    )
