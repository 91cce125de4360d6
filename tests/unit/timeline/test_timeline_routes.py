from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

from app.state import AppState
from app.timeline.tracker import tracker_of
from tests.harness.asgi_stream import AsgiClient
from tests.unit.app.serving_fixtures import chat, served

# Few blocks, long answers: running requests push each other out.
TIGHT = {"num_gpu_blocks_override": 24, "max_num_seqs": 8, "max_model_len": 384}


def assert_adds_up(timeline: dict[str, Any]) -> None:
    assert round(sum(timeline["parts_ms"].values()) * 1000) == round(timeline["e2e_ms"] * 1000)
    assert timeline["finished_ms"] == timeline["e2e_ms"]
    spans = timeline["spans"]
    assert spans[-1]["end_ms"] == timeline["e2e_ms"]
    assert all(a["end_ms"] == b["start_ms"] for a, b in pairwise(spans))


def test_preempted_requests_read_as_preempted_as_often_as_they_were() -> None:
    async def test(client: AsgiClient, state: AppState) -> list[dict[str, Any]]:
        bodies = [chat(f"Request {index}", max_tokens=160, ignore_eos=True) for index in range(8)]
        answers = await asyncio.gather(*(client.post("/v1/chat/completions", body) for body in bodies))
        found = [(await client.get(f"/admin/requests/{answer.json()['id']}")).json() for answer in answers]
        assert (
            sum(timeline["preemptions"] for timeline in found)
            == state.engine.metrics(0).vllm_preemptions_total
        )
        return found

    # Slow enough that each pass takes time in the plan.
    timelines = served(test, speedup_ratio=200.0, **TIGHT)
    assert any(timeline["preemptions"] >= 2 for timeline in timelines)
    for timeline in timelines:
        assert_adds_up(timeline)
        times = timeline["preemptions"]
        phases = [span["phase"] for span in timeline["spans"]]
        assert len(timeline["preempted_at_ms"]) == len(timeline["readmitted_at_ms"]) == times
        assert phases.count("preempted") == times
        assert phases.count("prefill") == times + 1
        assert timeline["output_tokens"] == 160


def test_request_is_found_by_answer_id_and_by_request_id() -> None:
    async def test(client: AsgiClient, state: AppState) -> None:
        headers = {"X-Request-Id": "mine"}
        answer = await client.request("POST", "/v1/chat/completions", chat(max_tokens=3), headers)
        by_answer = (await client.get(f"/admin/requests/{answer.json()['id']}")).json()
        by_request = (await client.get("/admin/requests/mine")).json()
        assert by_answer == by_request
        assert by_answer["id"] == "chatcmpl-mine"
        assert by_answer["prompt_tokens"] == answer.json()["usage"]["prompt_tokens"]
        assert by_answer["model"] == "mocker"
        assert_adds_up(by_answer)

    served(test)


def test_choices_know_their_siblings() -> None:
    async def test(client: AsgiClient, state: AppState) -> None:
        await client.request(
            "POST", "/v1/chat/completions", chat(max_tokens=3, n=3), {"X-Request-Id": "three"}
        )
        first = (await client.get("/admin/requests/three")).json()
        assert first["id"] == "0_chatcmpl-three"
        assert first["siblings"] == ["1_chatcmpl-three", "2_chatcmpl-three"]

    served(test)


def test_unknown_request_is_404_with_a_sentence() -> None:
    async def test(client: AsgiClient, state: AppState) -> None:
        answer = await client.get("/admin/requests/nobody")
        assert answer.status == 404
        assert "--timeline-requests" in answer.json()["error"]["message"]

    served(test)


def test_only_the_latest_ended_requests_are_kept() -> None:
    async def test(client: AsgiClient, state: AppState) -> None:
        for index in range(5):
            await client.request(
                "POST", "/v1/chat/completions", chat(max_tokens=1), {"X-Request-Id": f"number-{index}"}
            )
        listed = (await client.get("/admin/requests")).json()
        assert [item["id"] for item in listed["ended"]] == ["chatcmpl-number-4", "chatcmpl-number-3"]
        assert listed["live"] == []
        assert (await client.get("/admin/requests/number-1")).status == 404
        assert all(record.run is None for record in tracker_of(state).ended.values())

    served(test, timeline_requests=2)


def test_client_that_left_is_cancelled_with_what_it_had() -> None:
    async def test(client: AsgiClient, state: AppState) -> None:
        body = chat(max_tokens=100_000, ignore_eos=True, stream=True)
        stream = client.open("POST", "/v1/chat/completions", body, {"X-Request-Id": "gone"})
        await stream.wait_for_bodies(3)
        live = (await client.get("/admin/requests")).json()["live"]
        assert [item["id"] for item in live] == ["chatcmpl-gone"]
        stream.hang_up()
        await stream.finished()
        timeline = (await client.get("/admin/requests/gone")).json()
        assert timeline["state"] == "cancelled"
        assert 0 < timeline["output_tokens"] < 100_000
        assert_adds_up(timeline)

    served(test, speedup_ratio=100.0)


def test_trace_has_passes_and_nested_phases() -> None:
    async def test(client: AsgiClient, state: AppState) -> None:
        await client.request(
            "POST", "/v1/chat/completions", chat(max_tokens=5, ignore_eos=True), {"X-Request-Id": "traced"}
        )
        events = (await client.get("/admin/trace?seconds=60")).json()["traceEvents"]
        passes = [event for event in events if event["ph"] == "X"]
        assert sum(event["args"]["output_tokens"] for event in passes) == 5
        assert all(event["dur"] >= 0 for event in passes)
        own = [event for event in events if event.get("id") == "chatcmpl-traced"]
        assert [event["ph"] for event in own].count("b") == [event["ph"] for event in own].count("e")
        assert own[0]["name"] == own[-1]["name"] == "chatcmpl-traced"
        assert {"prefill", "decode"} <= {event["name"] for event in own}

    served(test, speedup_ratio=100.0)


def test_explained_stream_has_headers_and_a_field_in_its_last_chunk() -> None:
    async def test(client: AsgiClient, state: AppState) -> None:
        headers = {"x-mocker-explain": "1"}
        choices: list[dict[str, Any]] = [{}, {"stream_options": {"include_usage": True}}]
        for more in choices:
            body = chat(max_tokens=4, ignore_eos=True, stream=True, **more)
            stream = await client.request("POST", "/v1/chat/completions", body, headers)
            records = stream.records()
            (facts,) = records[-2]["mocker"]["requests"]
            assert all("mocker" not in record for record in records[:-2])
            assert stream.headers["x-mocker-rank"] == "0"
            assert stream.headers["x-mocker-cached-tokens"] == str(facts["cached_tokens"])
            assert float(stream.headers["x-mocker-ttft-ms"]) == facts["ttft_ms"]
            assert float(stream.headers["x-mocker-queue-ms"]) == facts["parts_ms"]["queue"]
            assert facts["output_tokens"] == 4

    served(test)


def test_explained_whole_answer_has_both_too() -> None:
    async def test(client: AsgiClient, state: AppState) -> None:
        body = {"prompt": ["one", "two"], "max_tokens": 2}
        answer = await client.request("POST", "/v1/completions", body, {"x-mocker-explain": "true"})
        assert len(answer.json()["mocker"]["requests"]) == 2
        assert "x-mocker-ttft-ms" in answer.headers

    served(test)


def test_answers_are_not_explained_unasked_and_all_are_with_the_flag() -> None:
    async def explained(client: AsgiClient, state: AppState) -> tuple[bool, bool]:
        answer = await client.post("/v1/chat/completions", chat(max_tokens=2))
        return "mocker" in answer.json(), any(name.startswith("x-mocker") for name in answer.headers)

    assert served(explained) == (False, False)
    assert served(explained, explain=True) == (True, True)
