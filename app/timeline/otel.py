"""OpenTelemetry: one span for each request, with a child for each phase. Needs the extra `otel`.

Names follow the semantic conventions for generative AI, latencies those of vLLM. Exported in a thread of the
library's own; imported only with --otlp-endpoint.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from app.openai.answer import RunGroup
from app.openai.choice import ChoiceRun, Outcome
from app.timeline.record import RequestRecord
from app.timeline.spans import Phase
from app.timeline.tracker import RecordListener
from mocker_core.errors import ArgumentError

_PATH = "/v1/traces"


class SpanExport(RecordListener):
    """Makes the spans of a request when it has ended. `now_ms` is the engine's clock."""

    def __init__(self, provider: Any, now_ms: Callable[[], float]) -> None:
        from opentelemetry import trace
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._trace = trace
        self._propagator = TraceContextTextMapPropagator()
        self._tracer = provider.get_tracer("mocker")
        # Engine time begins anywhere; spans have the time of day.
        self._zero_ns = time.time_ns() - int(now_ms() * 1e6)

    def on_end(self, record: RequestRecord, run: ChoiceRun) -> None:
        spans = record.spans
        assert spans.end_us is not None
        name = "text_completion" if record.request_id.rpartition("_")[2].startswith("cmpl-") else "chat"
        span = self._tracer.start_span(
            f"{name} {record.model}",
            context=self._parent(run),
            kind=self._trace.SpanKind.SERVER,
            start_time=self._ns(spans.start_us),
            attributes={"gen_ai.operation.name": name, **_attributes(record)},
        )
        inside = self._trace.set_span_in_context(span)
        for phase, start_us, end_us in spans.spans:
            child = self._tracer.start_span(phase.value, context=inside, start_time=self._ns(start_us))
            child.end(self._ns(end_us))
        for at_us in record.preempted_us:
            span.add_event("preempted", timestamp=self._ns(at_us))
        if record.first_token_us is not None:
            span.add_event("first token", timestamp=self._ns(record.first_token_us))
        if record.outcome in (Outcome.FAILED, Outcome.REJECTED):
            span.set_attribute("error.type", record.outcome.value)
            span.set_status(self._trace.StatusCode.ERROR)
        span.end(self._ns(spans.end_us))

    def _parent(self, run: ChoiceRun) -> Any:
        """The caller's trace, if it named one."""
        given = run.answer.traceparent if isinstance(run.answer, RunGroup) else None
        return None if not given else self._propagator.extract({"traceparent": given})

    def _ns(self, us: int) -> int:
        return self._zero_ns + us * 1000


def otlp_provider(endpoint: str) -> Any:
    """A provider that sends spans to `endpoint` (OTLP over HTTP; /v1/traces is added to a bare address)."""
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise ArgumentError(
            f"--otlp-endpoint needs the extra otel ({error.name} is missing); install llm-mocker[otel]."
        ) from None
    parts = urlsplit(endpoint)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise ArgumentError(
            f"--otlp-endpoint is {endpoint!r}; it must be a URL such as http://localhost:4318."
        )
    url = endpoint if parts.path not in ("", "/") else endpoint.rstrip("/") + _PATH
    provider = TracerProvider(resource=Resource.create({"service.name": "mocker"}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=url)))
    return provider


def _attributes(record: RequestRecord) -> dict[str, Any]:
    spans = record.spans
    assert spans.end_us is not None
    found: dict[str, Any] = {
        "gen_ai.provider.name": "vllm",
        "gen_ai.request.model": record.model,
        "gen_ai.response.model": record.model,
        "gen_ai.response.id": record.request_id,
        "gen_ai.usage.input_tokens": record.prompt_tokens,
        "gen_ai.usage.output_tokens": record.generated,
        "gen_ai.usage.cache_read.input_tokens": record.cached_tokens,
        "gen_ai.latency.e2e": (spans.end_us - spans.start_us) / 1e6,
        "mocker.dp_rank": record.dp_rank or 0,
        "mocker.preemptions": record.preemptions,
    }
    if record.max_tokens:
        found["gen_ai.request.max_tokens"] = record.max_tokens
    if record.finish_reason is not None:
        found["gen_ai.response.finish_reasons"] = (record.finish_reason,)
    if record.admitted_us is not None:
        found["gen_ai.latency.time_in_queue"] = (record.admitted_us - spans.start_us) / 1e6
    if record.first_token_us is not None:
        found["gen_ai.latency.time_to_first_token"] = (record.first_token_us - spans.start_us) / 1e6
    parts_us = spans.parts_at(0.0)
    for phase in (Phase.PREFILL, Phase.DECODE):
        found[f"gen_ai.latency.time_in_model_{phase.value}"] = parts_us[phase] / 1e6
    return found
