"""A running cluster with stock clients → segments → the job → the report."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pulsar
import pytest
from clusters.standalone import Cluster, wait_for

from loadmanager.cli import main

pytestmark = [
    pytest.mark.system,
    pytest.mark.client,
    pytest.mark.timeout(900),
]

TOPIC = "persistent://public/default/measured"
LIMITED = "persistent://public/default/limited"


def test_from_clients_to_the_report(tmp_path: Path) -> None:
    """What clients did, a move, a split and a limit are in the report of the day."""
    settings = {"loadManagerHistoryIntervalSeconds": "0.5", "statsUpdateFrequencyInSecs": "1"}
    settings["loadBalancerSheddingEnabled"] = "false"
    with Cluster(tmp_path, brokers=2, settings=settings) as cluster:
        client = pulsar.Client(
            cluster.service_url(), logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
        )
        producer = client.create_producer(TOPIC)
        held = client.create_producer(LIMITED, block_if_queue_full=True, max_pending_messages=100)
        path = LIMITED.replace("://", "/")
        assert (
            cluster.request(
                0, "POST", f"/admin/v2/{path}/publishRate", {"publishThrottlingRateInMsg": 50}
            )[0]
            == 204
        )
        owner = cluster.owner_of(TOPIC)
        bundle = cluster.get(owner, "/lookup/v2/topic/" + TOPIC.replace("://", "/") + "/bundle")

        def send_for(seconds: float) -> None:
            until_s = time.monotonic() + seconds
            while time.monotonic() < until_s:
                producer.send(b"x" * 1000)
                held.send_async(b"y" * 100, lambda *_: None)

        send_for(3.0)
        order = f"/admin/v2/namespaces/public/default/{bundle}"
        to = cluster.broker_id(1 - owner)
        moved = cluster.request(owner, "PUT", f"{order}/unload?destinationBroker={to}")
        assert moved[0] == 204, moved
        send_for(2.0)
        wait_for(
            lambda: cluster.request(1 - owner, "PUT", f"{order}/split")[0] == 204, "it is split"
        )
        send_for(3.0)
        wait_for(
            lambda: b"loadmanager_history_records" in _metrics(cluster),
            "the metrics page tells of the history",
        )
        client.close()
    history = tmp_path / "data/history"
    assert not list(history.rglob("*.open")), "a graceful stop seals everything"
    dates = sorted({path.name[5:] for path in history.glob("cluster=*/kind=*/date=*")})
    output = tmp_path / "analysis"
    status = main(
        [
            "analyze",
            "--date",
            dates[-1],
            "--history",
            str(history),
            "--output",
            str(output),
            "--master",
            "local[2]",
            "--quiet",
            "--no-late",
        ]
    )
    assert status == 0
    report = json.loads((output / f"cluster=standalone/reports/{dates[-1]}.json").read_text())
    tables = {name: table["rows"] for name, table in report["tables"].items()}
    assert {row["broker"] for row in tables["broker_usage"]} == {
        cluster.broker_id(0),
        cluster.broker_id(1),
    }
    (topic,) = [row for row in tables["hot_topics"] if row["topic"] == TOPIC]
    assert topic["throughput_max"] > 1000
    moves = {
        (row["bundle"], row["source"], row["destination"]): (row["cause"], row["pause_ms"])
        for row in tables["moves"]
    }
    cause, pause_ms = moves[
        f"public/default/{bundle}", cluster.broker_id(owner), cluster.broker_id(1 - owner)
    ]
    assert cause == "operator"
    assert 0 < pause_ms < 60_000
    assert [row["parent"] for row in tables["splits"]] == [f"public/default/{bundle}"]
    (limit,) = [row for row in tables["throttling"] if LIMITED in row["limit"]]
    assert limit["configured_messages_per_s"] == 50
    assert limit["times_held"] > 0
    assert report["records"]["decision"] > 0
    page = (output / f"cluster=standalone/reports/{dates[-1]}.html").read_text()
    assert "<svg" in page


def _metrics(cluster: Cluster) -> bytes:
    status, body = cluster.request(0, "GET", "/metrics")
    assert status == 200
    return body.encode() if isinstance(body, str) else b""
