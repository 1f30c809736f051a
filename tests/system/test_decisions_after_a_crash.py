"""Real brokers: what a leader decided is known, and is undone, after that leader was killed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from clusters.standalone import Cluster, wait_for

pytestmark = pytest.mark.system

LEADER = "/admin/v2/brokers/leaderBroker"
OWN = "/loadmanager/v1"
TOPIC = "persistent/public/m/t"


def admin(cluster: Cluster, at: int, *words: str) -> Any:
    """A command at a broker; its JSON."""
    url = f"http://127.0.0.1:{cluster.http_port + at}"
    command = [sys.executable, "-m", "loadmanager", "admin", *words, "--json", "--url", url]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def leader(cluster: Cluster, at: int) -> str | None:
    """Who leads, as a broker knows it."""
    _, answer = cluster.request(at, "GET", LEADER)
    name: str | None = answer.get("brokerId")
    return name


def test_a_decision_outlives_its_leader(tmp_path: Path) -> None:
    """Each of the other brokers shows it by its id and undoes it: one is asked for the archive that
    the dead leader left beside its own.
    """
    with Cluster(tmp_path, session_ms=6_000) as cluster:
        cluster.request(0, "PUT", "/admin/v2/namespaces/public/m", {"bundles": {"numBundles": 2}})
        first = cluster.leader()
        others = [at for at in range(3) if at != first]
        source, destination = map(cluster.broker_id, others)
        owner = cluster.owner_of(TOPIC)
        bundle = f"public/m/{cluster.get(0, f'/lookup/v2/topic/{TOPIC}/bundle')}"
        for to in (source, destination):
            if cluster.broker_id(owner) != to:
                admin(cluster, first, "bundles", "move", bundle, "--to", to)
        moved = cluster.get(first, f"{OWN}/decisions?bundle={bundle}&limit=1")["decisions"][0]
        assert (moved["kind"], moved["destination"]) == ("move", destination)
        path = f"{OWN}/archive/events?about={moved['id']}"
        wait_for(lambda: cluster.get(first, path)["events"], "the archive has the decision")
        cluster.kill(first)
        for at in others:
            wait_for(
                lambda at=at: leader(cluster, at) in (source, destination), "another one leads"
            )
        for at in others:
            (event,) = wait_for(
                lambda at=at: admin(cluster, at, "history", moved["id"]), "the dead leader's part"
            )
            assert (event["record"]["bundle"], event["record"]["owner"]) == (bundle, destination)
            (step,) = wait_for(
                lambda at=at: admin(cluster, at, "undo", moved["id"])["steps"], "what to undo"
            )
            assert (step["of"], step["now"], step["then"]) == (bundle, destination, source)
        admin(cluster, others[1], "undo", moved["id"], "--yes")
        wait_for(
            lambda: cluster.get(others[0], f"{OWN}/bundles/{bundle}")["owner"] == source,
            "the bundle is back",
        )
