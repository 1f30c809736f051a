"""What is sent to an OpenTelemetry collector, and what a bad one can do."""

from __future__ import annotations

import asyncio
import math
import subprocess
import sys
from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from clusters.collector import Collector
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.sdk.metrics.export import MetricsData, ResourceMetrics, ScopeMetrics
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from loadmanager.kit import tracing
from loadmanager.kit.errors import NotFoundError
from loadmanager.kit.http.middlewares import errors
from loadmanager.kit.http.tracing import traced
from loadmanager.kit.otlp.counts import FAILED, FULL
from loadmanager.kit.otlp.identity import resource_of
from loadmanager.kit.otlp.pages import PageSender, metrics_of
from loadmanager.kit.otlp.sending import Process, sending
from loadmanager.kit.otlp.settings import OtlpSettings, wanted
from loadmanager.kit.otlp.spans import QUEUE_MAX, SpanSender
from loadmanager.kit.system.clock import SystemClock
from loadmanager.kit.telemetry import Sample, Telemetry, gauge
from loadmanager.member.move_pauses import Pauses

RESOURCE = Resource({"service.instance.id": "b"})
PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
UNSAMPLED = PARENT[:-2] + "00"


@pytest.fixture
async def collector(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Collector]:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "60")
    async with Collector().serving() as made:
        yield made


async def _until(condition: object) -> None:
    async with asyncio.timeout(60):
        while not condition():  # type: ignore[operator]
            await asyncio.sleep(0.01)


def test_nothing_is_sent_unless_somebody_asked_for_it() -> None:
    off = OtlpSettings()
    assert wanted(off, {}).urls == {}
    assert wanted(off, {"OTEL_SERVICE_NAME": "x", "OTEL_TRACES_EXPORTER": "otlp"}).urls == {}
    everything = {"traces": "http://c:4318/v1/traces", "metrics": "http://c:4318/v1/metrics"}
    base = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318/"}
    assert wanted(off, base).urls == everything
    assert wanted(OtlpSettings(endpoint="http://c:4318"), {}).urls == everything
    assert wanted(OtlpSettings(endpoint="http://c:4318"), {"OTEL_SDK_DISABLED": "true"}).urls == {}


@pytest.mark.parametrize(
    ("environ", "urls"),
    [
        ({"OTEL_TRACES_EXPORTER": "none"}, {"metrics": "http://c/v1/metrics"}),
        ({"OTEL_METRICS_EXPORTER": "none"}, {"traces": "http://c/v1/traces"}),
        (
            {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "https://t/x"},
            {"traces": "https://t/x", "metrics": "http://c/v1/metrics"},
        ),
    ],
)
def test_each_signal_has_its_own_variables(environ: dict[str, str], urls: dict[str, str]) -> None:
    environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c", **environ}
    assert wanted(OtlpSettings(), environ).urls == urls


@pytest.mark.parametrize(
    "environ",
    [
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "c:4317"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
    ],
)
def test_what_cannot_be_sent_is_said(environ: dict[str, str]) -> None:
    told = wanted(OtlpSettings(), environ)
    assert told.urls == {}
    assert len(told.problems) == 2
    assert [*OtlpSettings(endpoint="c:4317").contradictions()]
    assert not [*OtlpSettings(endpoint="http://c:4318").contradictions()]


def test_opentelemetry_is_not_imported_unless_it_is_wanted() -> None:
    program = (
        "import sys, loadmanager.broker.process\n"
        "from loadmanager.kit.otlp.sending import *\n"
        "assert sending(OtlpSettings(), None, None, {}) is None\n"
        "sys.exit(any(name.partition('.')[0] == 'opentelemetry' for name in sys.modules))"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_without_the_extra_the_file_is_refused_and_the_environment_is_not() -> None:
    program = (
        "import sys; sys.modules['opentelemetry'] = None\n"
        "from loadmanager.kit.otlp.sending import *\n"
        "from loadmanager.kit.otlp.settings import require_installed\n"
        "from loadmanager.kit.system.clock import SystemClock\n"
        "process = Process(cluster='c', broker='b', version='1')\n"
        "environ = {'OTEL_EXPORTER_OTLP_ENDPOINT': 'http://127.0.0.1:1'}\n"
        "require_installed(OtlpSettings())\n"
        "assert sending(OtlpSettings(), process, SystemClock(), environ) is None\n"
        "require_installed(OtlpSettings(endpoint='http://127.0.0.1:1'))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert "traces and metrics are not sent" in done.stdout
    assert "ConfigError: loadManagerOtlpEndpoint is set: OpenTelemetry is not" in done.stderr


def test_without_a_tracer_a_span_is_one_shared_object() -> None:
    assert tracing.span("a", bundle="b") is tracing.part("c", PARENT)
    assert tracing.headers() == {}
    with tracing.span("a") as span:
        span.note(more=1)
        span.fail("why")


async def test_spans_are_parts_of_those_around_them_and_of_those_of_others(
    collector: Collector,
) -> None:
    sender = SpanSender(collector.url + "/v1/traces", RESOURCE, "1")
    uninstall = tracing.install(sender)
    with tracing.part("of nothing") as nothing:
        assert not nothing.recording
    with tracing.span("first", PARENT, topic="t" * 1000):
        inner = asyncio.create_task(_part("second"))
        await inner
    with pytest.raises(ValueError, match="wrong"):
        _fail("third")
    with tracing.part("fourth", UNSAMPLED), tracing.part("fifth"):
        assert tracing.traceparent().endswith("-00")
    for bad in ("", "x", PARENT + "0", "00-" + "0" * 32 + PARENT[35:], PARENT.upper()):
        with tracing.part("of nothing", bad) as nothing:
            assert not nothing.recording
    uninstall()
    await _until(lambda: sender.counts.sent == 3)
    (first,), (second,), (third,) = map(collector.named, ("first", "second", "third"))
    assert f"00-{first.trace}-{first.parent}-01" == PARENT
    assert (second.trace, second.parent) == (first.trace, first.id)
    assert third.parent == ""
    assert (first.failed, third.failed) == (False, True)
    assert len(first.attributes["topic"]) == 300
    assert first.broker == "b"
    await asyncio.to_thread(sender.stop)


async def test_a_request_is_part_of_the_trace_that_its_sender_names(collector: Collector) -> None:
    """With the status of its answer; only a fault of ours is a failure."""

    async def handle(request: web.Request) -> web.Response:
        kind = request.match_info["kind"]
        if kind == "missing":
            raise NotFoundError("there is no such thing")
        return web.json_response({"a": 1 / int(kind)})

    application = web.Application(middlewares=[errors, traced])
    application.router.add_get("/x/{kind}", handle)
    sender = SpanSender(collector.url + "/v1/traces", RESOURCE, "1")
    uninstall = tracing.install(sender)
    async with TestClient(TestServer(application)) as client:
        await client.get("/x/1")
        for kind in ("1", "missing", "0"):
            await client.get(f"/x/{kind}", headers={"traceparent": PARENT})
    uninstall()
    await _until(lambda: len(collector.spans) == 3)
    assert {span.name for span in collector.spans} == {"GET /x/{kind}"}
    assert {span.parent for span in collector.spans} == {PARENT.split("-")[2]}
    told = {it.attributes["http.response.status_code"]: it.failed for it in collector.spans}
    assert told == {200: False, 404: False, 500: True}
    await asyncio.to_thread(sender.stop)


async def _part(name: str) -> None:
    with tracing.part(name):
        pass


def _fail(name: str) -> None:
    with tracing.span(name):
        assert tracing.headers() == {"traceparent": tracing.traceparent()}
        raise ValueError("wrong")


async def _never(_request: web.Request) -> web.StreamResponse:
    await asyncio.Event().wait()
    raise AssertionError


async def _endless(request: web.Request) -> web.StreamResponse:
    answer = web.StreamResponse()
    await answer.prepare(request)
    while True:
        await answer.write(b"x" * 8192)


async def _busy(_request: web.Request) -> web.StreamResponse:
    return web.Response(status=503, headers={"Retry-After": "1e9"})


async def _elsewhere(_request: web.Request) -> web.StreamResponse:
    return web.Response(status=400, body=b"\xff" * 100)


async def test_spans_that_a_hanging_collector_does_not_take_are_bounded_and_counted(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "600")
    collector.answer = _never
    sender = SpanSender(collector.url + "/v1/traces", RESOURCE, "1")
    for _ in range(2 * QUEUE_MAX):
        sender.start("a", "", tracing.SpanSide.INSIDE, {}).end()
    assert QUEUE_MAX - 256 <= sender.counts.lost[FULL] <= QUEUE_MAX
    await asyncio.to_thread(sender.stop)  # which does not wait for the collector


@pytest.mark.parametrize("answer", [_never, _endless, _busy, _elsewhere])
async def test_spans_and_pages_that_a_bad_collector_does_not_take_are_counted(
    collector: Collector, answer: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    collector.answer = answer  # type: ignore[assignment]
    sender = SpanSender(collector.url + "/v1/traces", RESOURCE, "1")
    pages = PageSender(collector.url + "/v1/metrics", RESOURCE, "1", 0)
    sender.start("a", "", tracing.SpanSide.INSIDE, {}).end()
    pages.send([gauge("x", "X").sample(1)], 1)
    pages.send([gauge("x", "X").sample(1)], 1)
    assert pages.counts.lost[FULL] == 1
    await _until(lambda: sender.counts.lost[FAILED] == 1 and pages.counts.lost[FAILED] == 1)
    assert (sender.counts.sent, pages.counts.sent) == (0, 0)
    pages.stop()
    await asyncio.to_thread(sender.stop)


async def test_a_collector_that_comes_back_gets_the_next_page(collector: Collector) -> None:
    collector.answer = _elsewhere
    pages = PageSender(collector.url + "/v1/metrics", RESOURCE, "1", 0)
    pages.send([gauge("x", "X").sample(1)], 1)
    await _until(lambda: pages.counts.lost[FAILED] == 1)
    collector.answer = None
    pages.send([gauge("x", "X").sample(2.5)], 1)
    await _until(lambda: pages.counts.sent == 1)
    assert collector.metrics["b", "x"].gauge.data_points[0].as_double == 2.5
    pages.stop()


def test_metrics_keep_their_kinds() -> None:
    pauses = Pauses()
    for pause_ms in (1, 30, 99_000):
        pauses.add(pause_ms)
    samples = [
        *pauses.samples(),
        Sample("c", "C", 3, (("k", "v"),), "counter"),
        Sample("s", "S", 0.5, (("quantile", "0.5"),), "summary"),
        Sample("s", "S", 7, (), "summary", "_count"),
    ]
    metrics = [*metrics_of(samples, 1, 2)]
    scope = ScopeMetrics(InstrumentationScope("x"), metrics, "")
    encoded = encode_metrics(MetricsData([ResourceMetrics(RESOURCE, [scope], "")]))
    by_name = {it.name: it for it in encoded.resource_metrics[0].scope_metrics[0].metrics}
    assert set(by_name) == {"loadmanager_move_pause_seconds", "c", "s", "s_count"}
    (point,) = by_name["loadmanager_move_pause_seconds"].histogram.data_points
    assert (point.count, sum(point.bucket_counts)) == (3, 3)
    assert list(point.bucket_counts)[:4] == [1, 0, 0, 1]
    assert point.bucket_counts[-1] == 1
    assert math.isclose(point.sum, 99.031)
    assert not point.HasField("min")
    assert by_name["c"].sum.is_monotonic
    assert by_name["s"].gauge.data_points[0].attributes[0].value.string_value == "0.5"


async def test_the_environment_adds_to_who_sends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=test")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "mine")
    process = Process(cluster="c", broker="b", version="1")
    attributes = resource_of(process.attributes()).attributes
    assert attributes["deployment.environment"] == "test"
    assert attributes["service.name"] == "mine"
    assert attributes["service.instance.id"] == "b"


async def test_losses_are_a_failed_step(collector: Collector) -> None:
    """`kit.tasks.Steps` logs it once a minute, and counts it."""
    collector.answer = _elsewhere
    process = Process(cluster="c", broker="b", version="1")
    settings = OtlpSettings(endpoint=collector.url)
    sends = sending(settings, process, SystemClock(), {"OTEL_TRACES_EXPORTER": "none"})
    assert sends is not None
    telemetry = Telemetry([sends.samples])
    await sends._turn(telemetry)
    await _until(lambda: any(it.value for it in sends.samples()))
    with pytest.raises(Exception, match="did not take 1 spans or pages"):
        await sends._turn(telemetry)
    await sends.stop()
