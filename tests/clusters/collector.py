"""An OpenTelemetry collector for tests: it decodes what it gets, or behaves badly."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True)
class SeenSpan:
    """A span, with the broker that sent it."""

    broker: str
    name: str
    trace: str
    id: str
    parent: str
    attributes: dict[str, Any]
    failed: bool


@dataclass
class Collector:
    """What was sent so far."""

    url: str = ""
    answer: Answer | None = None
    """None: it takes everything."""
    spans: list[SeenSpan] = field(default_factory=list)
    metrics: dict[tuple[str, str], Any] = field(default_factory=dict)
    """Broker and name → the metric as it was last sent."""
    requests: int = 0

    def named(self, name: str) -> list[SeenSpan]:
        """The spans with a name."""
        return [span for span in self.spans if span.name == name]

    def trace(self, span: SeenSpan) -> list[SeenSpan]:
        """All spans of its trace."""
        return [each for each in self.spans if each.trace == span.trace]

    async def _traces(self, request: web.Request) -> web.StreamResponse:
        self.requests += 1
        if self.answer is not None:
            return await self.answer(request)
        for resource in ExportTraceServiceRequest.FromString(await request.read()).resource_spans:
            broker = _values(resource.resource.attributes)["service.instance.id"]
            for scope in resource.scope_spans:
                self.spans += [
                    SeenSpan(
                        broker,
                        span.name,
                        span.trace_id.hex(),
                        span.span_id.hex(),
                        span.parent_span_id.hex(),
                        _values(span.attributes),
                        span.status.code == 2,
                    )
                    for span in scope.spans
                ]
        return web.Response(content_type="application/x-protobuf")

    async def _metrics(self, request: web.Request) -> web.StreamResponse:
        self.requests += 1
        if self.answer is not None:
            return await self.answer(request)
        sent = ExportMetricsServiceRequest.FromString(await request.read())
        for resource in sent.resource_metrics:
            broker = _values(resource.resource.attributes)["service.instance.id"]
            for scope in resource.scope_metrics:
                self.metrics.update({(broker, each.name): each for each in scope.metrics})
        return web.Response(content_type="application/x-protobuf")

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[Collector]:
        """Serve on a free port of loopback."""
        application = web.Application(client_max_size=64 * 1024 * 1024)
        application.router.add_post("/v1/traces", self._traces)
        application.router.add_post("/v1/metrics", self._metrics)
        runner = web.AppRunner(application, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        try:
            yield self
        finally:
            await runner.cleanup()


@contextlib.contextmanager
def collecting() -> Iterator[Collector]:
    """A collector with an event loop of its own, in a thread."""
    collector, ready, done = Collector(), threading.Event(), asyncio.Event()
    loops: list[asyncio.AbstractEventLoop] = []

    async def serve() -> None:
        async with collector.serving():
            loops.append(asyncio.get_running_loop())
            ready.set()
            await done.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    assert ready.wait(60)
    try:
        yield collector
    finally:
        loops[0].call_soon_threadsafe(done.set)
        thread.join(30)


def _values(attributes: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in attributes}
