"""Sends spans, with OpenTelemetry's own library: it makes them, samples them as its variables say,
collects them in a bounded queue, and sends them from a thread of its own.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)
from opentelemetry.trace import Span as Traced

from loadmanager.kit.otlp.counts import FAILED, FULL, Shipped
from loadmanager.kit.otlp.settings import TRACES
from loadmanager.kit.otlp.transport import BoundedSession
from loadmanager.kit.tracing import Attribute, Span, SpanSide

QUEUE_MAX = 2048
BATCH_MAX = 256
"""A thread that encodes more at a time keeps the event loop waiting."""
TEXT_MAX = 300
"""Characters of one text in a span."""
STOP_S = 2.0
"""A stop waits so long for the collector."""
_KINDS = {
    SpanSide.INSIDE: SpanKind.INTERNAL,
    SpanSide.SERVER: SpanKind.SERVER,
    SpanSide.CLIENT: SpanKind.CLIENT,
}


class _Counted(SpanExporter):
    """Shipped what an exporter sends; called by one thread."""

    def __init__(self, exporter: SpanExporter, counts: Shipped) -> None:
        self._exporter, self._counts = exporter, counts
        self.taken = 0
        """Spans that have left the queue."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.taken += len(spans)
        result = SpanExportResult.FAILURE
        try:
            result = self._exporter.export(spans)
        finally:
            if result is SpanExportResult.SUCCESS:
                self._counts.sent += len(spans)
            else:
                self._counts.lost[FAILED] += len(spans)
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()


class _Queue(BatchSpanProcessor):
    """Leaves out the newest spans when the collector is too slow, and counts them."""

    def __init__(self, exporter: _Counted, counts: Shipped) -> None:
        super().__init__(exporter, max_queue_size=QUEUE_MAX, max_export_batch_size=BATCH_MAX)
        self._counted, self._counts = exporter, counts
        self._added = 0

    def on_end(self, span: ReadableSpan) -> None:
        if span.context is None or not span.context.trace_flags.sampled:
            return
        if self._added - self._counted.taken >= QUEUE_MAX:
            self._counts.lost[FULL] += 1
            return
        self._added += 1
        super().on_end(span)


class _Span:
    """Implements `kit.tracing.Span`."""

    __slots__ = ("_span",)

    def __init__(self, span: Traced) -> None:
        self._span = span

    @property
    def traceparent(self) -> str:
        context = self._span.get_span_context()
        flags = int(context.trace_flags)
        return f"00-{context.trace_id:032x}-{context.span_id:016x}-{flags:02x}"

    @property
    def recording(self) -> bool:
        return self._span.is_recording()

    def note(self, **attributes: Attribute | None) -> None:
        self._span.set_attributes(
            {name: _short(value) for name, value in attributes.items() if value is not None}
        )

    def fail(self, why: str) -> None:
        self._span.set_status(Status(StatusCode.ERROR, why[:TEXT_MAX]))

    def end(self) -> None:
        self._span.end()


class SpanSender:
    """Implements `kit.tracing.Tracer`; sends what it makes to `url`."""

    def __init__(self, url: str, resource: Resource, version: str) -> None:
        self.counts = Shipped(TRACES)
        exporter = _Counted(OTLPSpanExporter(url, session=BoundedSession()), self.counts)
        self._queue = _Queue(exporter, self.counts)
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(self._queue)
        self._tracer = self._provider.get_tracer("loadmanager", version)

    def start(
        self, name: str, parent: str, kind: SpanSide, attributes: dict[str, Attribute]
    ) -> Span:
        context = set_span_in_context(NonRecordingSpan(_context(parent)))
        shown = {name: _short(value) for name, value in attributes.items()}
        return _Span(self._tracer.start_span(name, context, _KINDS[kind], shown))

    def stop(self) -> None:
        """Send what waits, for `STOP_S` at most. Blocks: call it in a thread."""
        last = threading.Thread(target=self._queue.shutdown, name="otlp-last", daemon=True)
        last.start()
        last.join(STOP_S)


def _context(parent: str) -> SpanContext:
    if not parent:
        return SpanContext(0, 0, is_remote=False)  # of no span
    _, trace_id, span_id, flags = parent.split("-")
    return SpanContext(
        int(trace_id, 16), int(span_id, 16), is_remote=True, trace_flags=TraceFlags(int(flags, 16))
    )


def _short(value: Attribute) -> Attribute:
    return value[:TEXT_MAX] if isinstance(value, str) else value
