"""Records what brokers of a version answer to the daemon's questions, for `test_answers.py`.

`PYTHONPATH=tests python -m fleet.record 4.2.4 modular > tests/steer/samples/4.2.4-modular.json`:
three real brokers under some load. Needs Java 17 and Maven.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pulsar
from clients.pulsar import brokers, distribution
from clusters.standalone import wait_for
from steer.real import MANAGERS, NAMESPACE, RealPulsar, a_real_pulsar

TOPICS = 12
QUIET = pulsar.LoggerLevel.Error
ISOLATION = {
    "namespaces": [f"{NAMESPACE}-other"],
    "primary": ["127.0.0.9"],
    "secondary": [],
    "auto_failover_policy": {
        "policy_type": "min_available",
        "parameters": {"min_limit": "1", "usage_threshold": "80"},
    },
}
KEPT_KEYS = ("loadBalancer", "loadManager")
"""Of the settings: all others may differ from machine to machine."""


def main() -> None:
    """Start the cluster, and print its answers: path → status and body."""
    parser = argparse.ArgumentParser(prog="python -m fleet.record", description=__doc__)
    parser.add_argument("version")
    parser.add_argument("manager", choices=MANAGERS)
    args = parser.parse_args()
    home = distribution(), brokers(args.version)
    with (
        tempfile.TemporaryDirectory() as folder,
        a_real_pulsar(home[0], Path(folder), args.manager, broker_home=home[1]) as real,
    ):
        client = pulsar.Client(real.service_url, logger=pulsar.ConsoleLogger(QUIET))
        topics = [f"persistent://{NAMESPACE}/t-{number}" for number in range(TOPICS)]
        consumers = [client.subscribe(topic, "all") for topic in topics]
        producers = [client.create_producer(topic) for topic in topics]

        def reported() -> bool:
            for producer, consumer in zip(producers, consumers, strict=True):
                producer.send(b"x" * 100)
                consumer.acknowledge(consumer.receive())
            stats = _asked(real, 0, "broker-stats/topics")
            return f"{NAMESPACE}/t-" in stats["body"] and _has_bundles(real)

        wait_for(reported, "the brokers report their load", 120)
        json.dump(_recorded(real), sys.stdout, indent=1)
        client.close()


def _has_bundles(real: RealPulsar) -> bool:
    report = _asked(real, 0, "broker-stats/load-report")
    return report["status"] != 200 or bool(json.loads(report["body"])["bundles"])


def _recorded(real: RealPulsar) -> dict[str, Any]:
    found = {path: _asked(real, 0, path) for path in _paths(real)}
    for path, body in (
        ("clusters/c1/namespaceIsolationPolicies/p1", ISOLATION),
        ("clusters/c1/failureDomains/d1", {"brokers": [real.broker(0)]}),
        (f"namespaces/{NAMESPACE}/antiAffinity", "g1"),
    ):
        real.request("POST", path, body)
    for path in POLICIES:
        found[f"{path} with policies"] = _asked(real, 0, path)
    return found


POLICIES = (
    "clusters/c1/namespaceIsolationPolicies",
    "clusters/c1/failureDomains",
    f"namespaces/{NAMESPACE}/antiAffinity",
)


def _paths(real: RealPulsar) -> list[str]:
    return [
        "brokers",
        "brokers/leaderBroker",
        "brokers/configuration/runtime",
        f"brokers/c1/{real.broker(0)}/ownedNamespaces",
        "broker-stats/load-report",
        "broker-stats/topics",
        f"namespaces/{NAMESPACE}/bundles",
        f"persistent/{NAMESPACE}/t-0/stats",
        *POLICIES,
    ]


def _asked(real: RealPulsar, index: int, path: str) -> dict[str, Any]:
    try:
        with urllib.request.urlopen(f"{real.url(index)}/admin/v2/{path}", timeout=60) as answer:
            status, body = answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        status, body = error.code, error.read().decode()[:500]
    if path == "brokers/configuration/runtime":
        values = json.loads(body)
        body = json.dumps({key: values[key] for key in values if key.startswith(KEPT_KEYS)})
    return {"status": status, "body": body}


if __name__ == "__main__":
    main()
