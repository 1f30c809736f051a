"""Traces and metrics of two real brokers, as a collector gets them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiohttp import web
from clusters.collector import Collector, SeenSpan, collecting
from clusters.standalone import Cluster, wait_for

pytestmark = pytest.mark.system

EXTENSIBLE = "org.apache.pulsar.broker.loadbalance.extensions.ExtensibleLoadManagerImpl"
MODULAR = "org.apache.pulsar.broker.loadbalance.impl.ModularLoadManagerImpl"
NAMESPACE = "public/default"
TOPICS = [f"persistent://{NAMESPACE}/t{number}" for number in range(8)]
CALLER = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "100")
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "300")
    with collecting() as made:
        yield made


def _move(cluster: Cluster, bundle: str, to: str) -> None:
    path = f"/admin/v2/namespaces/{bundle}/unload?destinationBroker={to}"
    assert cluster.request(0, "PUT", path)[0] == 204


def _placed(cluster: Cluster) -> dict[str, str]:
    """Bundle → its owner, after a lookup of each topic at broker 0."""
    for topic in TOPICS:
        cluster.owner_of(topic)
    owners: dict[str, str] = {}
    for index in range(cluster.count):
        served = cluster.get(index, "/loadmanager/v1/peers/bundles")
        owners.update(dict.fromkeys(served, cluster.broker_id(index)))
    return {bundle: owner for bundle, owner in owners.items() if bundle.startswith(NAMESPACE)}


def _placed_at(cluster: Cluster, broker: str) -> str | None:
    """A bundle that is placed there; if none is, all are placed again at the next lookups."""
    for bundle, owner in _placed(cluster).items():
        if owner == broker:
            return bundle
    cluster.request(0, "PUT", f"/admin/v2/namespaces/{NAMESPACE}/unload")
    return None


def _shape(spans: list[SeenSpan], of: SeenSpan) -> set[tuple[str, str]]:
    """Name and broker of all spans below one; each must be there, down to it."""
    by_id = {span.id: span for span in spans}
    assert all(span.parent in by_id for span in spans if span is not of)
    return {(span.name, span.broker) for span in spans if span is not of}


def test_a_lookup_and_a_move_are_one_trace_each_through_the_stored_orders(
    tmp_path: Path, collector: Collector
) -> None:
    """In the extensible manager brokers order by state records."""
    settings = {"loadManagerClassName": EXTENSIBLE, "loadManagerOtlpEndpoint": collector.url}
    settings["loadBalancerSheddingEnabled"] = "false"
    with Cluster(tmp_path, brokers=2, settings=settings) as cluster:
        asked, other = cluster.broker_id(0), cluster.broker_id(1)
        bundle = wait_for(lambda: _placed_at(cluster, other), "a bundle at the other broker")
        lookup = wait_for(
            lambda: next(
                (
                    it
                    for it in collector.named("lookup")
                    if (it.attributes["bundle"], it.attributes["broker"]) == (bundle, other)
                ),
                None,
            ),
            "the lookup's span",
        )
        assert (lookup.broker, lookup.parent) == (asked, "")
        wanted = {
            ("place", asked),
            ("take a bundle", other),
            ("take the claim", other),
            ("open", other),
        }
        wait_for(
            lambda: {(it.name, it.broker) for it in collector.trace(lookup)} >= wanted,
            "the spans of the lookup",
        )
        assert _shape(collector.trace(lookup), lookup) == wanted

        _move(cluster, bundle, asked)
        move = wait_for(
            lambda: next(
                (it for it in collector.named("move") if it.attributes["bundle"] == bundle), None
            ),
            "the move's span",
        )
        assert move.attributes["state"] == "done"
        assert (move.attributes["source"], move.attributes["destination"]) == (other, asked)
        assert move.attributes["pause_ms"] > 0
        wanted = {
            (name, other)
            for name in ("release a bundle", "settle", "give up the claim", "hand over", "close")
        } | {(name, asked) for name in ("take a bundle", "take the claim", "open")}
        wait_for(
            lambda: {(it.name, it.broker) for it in collector.trace(move)} >= wanted,
            "the spans of the move",
        )
        assert wanted <= _shape(collector.trace(move), move)
        assert not any(it.failed for it in collector.spans)


def test_a_move_over_http_is_part_of_the_request_that_ordered_it_and_metrics_are_those_of_the_page(
    tmp_path: Path, collector: Collector
) -> None:
    """In the modular manager brokers order over HTTP."""
    settings = {"loadManagerClassName": MODULAR, "loadManagerOtlpEndpoint": collector.url}
    settings["loadBalancerSheddingEnabled"] = "false"
    with Cluster(tmp_path, brokers=2, settings=settings) as cluster:
        bundle, source = next(iter(_placed(cluster).items()))
        leader = cluster.broker_id(cluster.leader())
        (to,) = {cluster.broker_id(0), cluster.broker_id(1)} - {source}
        cluster.headers = {"traceparent": CALLER}
        _move(cluster, bundle, to)
        cluster.headers = {}
        move = wait_for(lambda: collector.named("move"), "the move's span")[0]
        assert move.broker == leader
        assert move.trace == CALLER.split("-")[1]
        wanted = {("settle", source), ("close", source), ("open", to)}
        wait_for(
            lambda: {(it.name, it.broker) for it in collector.trace(move)} >= wanted,
            "the spans of the move",
        )
        ordered = wait_for(lambda: _requests(collector, move), "the span of the request")
        assert {it.parent for it in ordered} == {CALLER.split("-")[2]}
        cluster.headers = {"Accept": "application/openmetrics-text"}
        asked = [cluster.broker_id(0), cluster.broker_id(1)].index(source)
        exemplar = f'# {{trace_id="{move.trace}"}}'
        wait_for(lambda: exemplar in cluster.get(asked, "/metrics"), "the page has the trace")
        cluster.headers = {}
        _check_metrics(cluster, collector)


def _requests(collector: Collector, move: SeenSpan) -> list[SeenSpan]:
    """The requests for a move, once that of the leader is over: they end after it."""
    spans = [it for it in collector.trace(move) if it.name.endswith("/unload")]
    return spans if move.parent in {it.id for it in spans} else []


def _check_metrics(cluster: Cluster, collector: Collector) -> None:
    """They are those of the page."""

    def missing(index: int) -> set[str]:
        types = [it for it in cluster.get(index, "/metrics").splitlines() if it[:6] == "# TYPE"]
        shown = {line.split()[2].removesuffix("_total") for line in types}
        assert len(shown) > 50
        sent = {
            name for sender, name in list(collector.metrics) if sender == cluster.broker_id(index)
        }
        for suffix in ("_total", "_sum", "_count"):  # of gauges and summaries
            shown -= {name.removesuffix(suffix) for name in sent}
        return shown

    for index in range(2):
        wait_for(lambda at=index: not missing(at), "all metrics")
    broker = cluster.broker_id(0)
    counts = collector.metrics[broker, "loadmanager_http_answers"].sum
    assert counts.is_monotonic
    labels = {each.key: each.value.string_value for each in counts.data_points[0].attributes}
    assert (labels["cluster"], labels["broker"]) == ("standalone", broker)
    (pauses,) = collector.metrics[broker, "loadmanager_move_pause_seconds"].histogram.data_points
    assert len(pauses.bucket_counts) == 1 + len(pauses.explicit_bounds)


def test_a_collector_that_never_answers_costs_nothing_but_what_is_sent_to_it(
    tmp_path: Path, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)

    async def never(_request: web.Request) -> web.StreamResponse:
        await asyncio.Event().wait()
        raise AssertionError

    collector.answer = never
    with Cluster(tmp_path, brokers=2) as cluster:
        wait_for(
            lambda: (
                'loadmanager_otlp_lost_total{cluster="standalone",broker="'
                f'{cluster.broker_id(0)}",signal="metrics",why="full"}} 0.0'
                not in cluster.get(0, "/metrics")
            ),
            "a page of metrics is left out",
        )
        assert len(_placed(cluster)) > 0
        assert collector.requests > 0
    ended = [it for it in cluster.events() if it["event"] == "stopped"]
    assert len(ended) == 2
