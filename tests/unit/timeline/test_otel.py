from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("opentelemetry.sdk")

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from app.state import AppState
from app.timeline import otel
from app.timeline.otel import SpanExport, otlp_provider
from app.timeline.tracker import tracker_of
from mocker_core.errors import ArgumentError
from tests.harness.asgi_stream import AsgiClient
from tests.unit.app.serving_fixtures import chat, served

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def exporter(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(otel, "otlp_provider", lambda endpoint: provider)
    yield exporter
    provider.shutdown()


def test_request_is_a_span_in_the_callers_trace_with_its_phases_inside(
    exporter: InMemorySpanExporter,
) -> None:
    async def test(client: AsgiClient, state: AppState) -> Any:
        headers = {"traceparent": PARENT, "X-Request-Id": "spanned"}
        await client.post("/v1/chat/completions", chat(max_tokens=4, ignore_eos=True), headers)
        return tracker_of(state).find("chatcmpl-spanned")

    record = served(test, otlp_endpoint="http://127.0.0.1:4318", speedup_ratio=100.0)
    *phases, root = exporter.get_finished_spans()
    assert root.name == "chat mocker"
    assert root.parent is not None and f"{root.parent.span_id:016x}" == "b7ad6b7169203331"
    assert f"{root.context.trace_id:032x}" == "0af7651916cd43dd8448eb211c80319c"
    assert root.attributes is not None
    assert root.attributes["gen_ai.usage.output_tokens"] == 4
    assert root.attributes["gen_ai.response.finish_reasons"] == ("length",)
    assert root.attributes["gen_ai.response.id"] == "chatcmpl-spanned"
    assert root.start_time is not None and root.end_time is not None
    assert root.end_time - root.start_time == (record.spans.end_us - record.spans.start_us) * 1000
    assert [phase.name for phase in phases] == [phase.value for phase, _, _ in record.spans.spans]
    assert all(phase.parent is not None and phase.parent.span_id == root.context.span_id for phase in phases)


def test_endpoint_that_is_no_url_is_refused() -> None:
    with pytest.raises(ArgumentError, match="localhost:4318"):
        otlp_provider("localhost:4318")


def test_nothing_is_imported_without_the_setting() -> None:
    async def test(client: AsgiClient, state: AppState) -> None:
        assert not any(isinstance(listener, SpanExport) for listener in tracker_of(state).listeners)

    served(test)
