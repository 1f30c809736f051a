"""What one tenant at its worst does to another tenant of the same broker.

`python -m bench neighbours [--seconds 6] [--attacks unknown,topics] [--pulsar] [--store]`: for each
attack, a broker with tokens and permissions is started. A neighbour publishes one message at a
time, before the attack and during it; the attacker has a token, and permissions for a namespace of
its own. Prints the neighbour's latencies from SEND to receipt. `--pulsar`: the same against a real
Pulsar 4.0.4 (`bin/pulsar standalone`; needs Java 17 and Maven). `--store`: topics are stored.
"""

from __future__ import annotations

import argparse
import base64
import json
import math
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import maven
from clients.pulsar import Standalone, distribution
from clusters.standalone import Cluster
from kit.security.tokens import ADMIN, SECRET, VALUES, token

from bench._attacks import RECEIPT, Wire, a_send

ATTACKS = (
    "unknown",
    "forbidden",
    "topics",
    "memory",
    "large",
    "flood",
    "schemas",
    "scrapes",
    "reconnects",
    "strangers",
)
RATE = 50.0
"""Messages/s of the neighbour."""
PATIENCE_S = 5.0
"""After so long without a receipt the neighbour connects again."""
LOADED_TOPICS = 500
"""Topics that exist before the scrapes, so that there is something to show."""
PLUGIN = "org.apache.pulsar.client.impl.auth.AuthenticationToken"


@dataclass(slots=True)
class Target:
    """A running broker."""

    host: str
    port: int
    web: str
    log: Path
    """Where it logs."""

    def request(self, method: str, path: str, body: Any = None) -> str:
        """The answer to a request of the superuser that succeeds."""
        asked = urllib.request.Request(
            f"{self.web}/admin/v2/{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json", "Authorization": f"Bearer {token(ADMIN)}"},
        )
        with urllib.request.urlopen(asked, timeout=30) as answer:
            return str(answer.read().decode())

    def prepare(self) -> None:
        """A tenant for each, with the permissions that it needs."""
        for tenant, role in (("victim", "honest"), ("evil", "attacker")):
            clusters = json.loads(self.request("GET", "clusters"))
            info = {"adminRoles": [], "allowedClusters": clusters}
            self.request("PUT", f"tenants/{tenant}", info)
            self.request("PUT", f"namespaces/{tenant}/ns", {"bundles": {"numBundles": 4}})
            path = f"namespaces/{tenant}/ns/permissions/{role}"
            self.request("POST", path, ["produce", "consume"])


@dataclass
class Neighbour:
    """Publishes one message at a time, and notes how long each took, in seconds."""

    target: Target
    took_s: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    _wire: Wire | None = None
    _sequence_id: int = 0

    def run(self, seconds: float) -> None:
        """Publish for so long; afterwards `took_s` has the latencies."""
        self.took_s, self.failures = [], []
        until_s = time.monotonic() + seconds
        while (began_s := time.monotonic()) < until_s:
            try:
                self._publish()
            except (OSError, ConnectionError) as error:
                self.failures.append(f"{type(error).__name__}: {error}")
                if self._wire is not None:
                    self._wire.socket.close()
                self._wire = None
                time.sleep(0.05)
            took_s = time.monotonic() - began_s
            self.took_s.append(took_s)
            time.sleep(max(0.0, 1 / RATE - took_s))

    def _publish(self) -> None:
        if self._wire is None:
            wire = Wire(self.target.host, self.target.port, token("honest"), timeout_s=PATIENCE_S)
            wire.produce("persistent://victim/ns/orders")
            self._wire, self._sequence_id = wire, 0
        self._sequence_id += 1
        if self._wire.ask_frame(a_send(self._sequence_id, b"x" * 100)).command.type != RECEIPT:
            raise ConnectionError("refused")

    def quantile_ms(self, fraction: float) -> float:
        """A quantile of the latencies, in milliseconds."""
        ordered = sorted(self.took_s) or [math.nan]
        return ordered[min(len(ordered) - 1, int(len(ordered) * fraction))] * 1000


class Secured(Cluster):
    """A cluster that asks who its clients are."""

    headers: Mapping[str, str] = {"Authorization": f"Bearer {token(ADMIN)}"}


@contextmanager
def ours(folder: Path, *, store: bool) -> Iterator[Target]:
    """One broker of ours."""
    settings = {
        **VALUES,
        "brokerClientAuthenticationPlugin": PLUGIN,
        "brokerClientAuthenticationParameters": f"token:{token(ADMIN)}",
        **({} if store else {"loadManagerStorageDirectory": ""}),
        "loadBalancerAutoBundleSplitEnabled": "false",
    }

    with Secured(folder, brokers=1, settings=settings) as cluster:
        web = f"http://127.0.0.1:{cluster.http_port}"
        yield Target("127.0.0.1", cluster.pulsar_port, web, cluster.log)


class SecuredPulsar(Standalone):
    """A real Pulsar that asks who its clients are."""

    def _ready(self) -> bool:
        target = Target("", 0, f"http://127.0.0.1:{self.http_port}", self.log)
        try:
            return bool(target.request("GET", "namespaces/public/default"))
        except OSError:
            return False


@contextmanager
def pulsar(folder: Path) -> Iterator[Target]:
    """A real Pulsar."""
    key = "data:;base64," + base64.b64encode(SECRET).decode()
    settings = {
        "authenticationEnabled": "true",
        "authenticationProviders": (
            "org.apache.pulsar.broker.authentication.AuthenticationProviderToken"
        ),
        "tokenSecretKey": key,
        "authorizationEnabled": "true",
        "superUserRoles": ADMIN,
        "brokerClientAuthenticationPlugin": PLUGIN,
        "brokerClientAuthenticationParameters": f"token:{token(ADMIN)}",
    }
    with SecuredPulsar(distribution(), folder, settings) as running:
        web = f"http://127.0.0.1:{running.http_port}"
        yield Target("127.0.0.1", running.pulsar_port, web, running.log)


def attacked(target: Target, kind: str, seconds: float) -> dict[str, Any]:
    """The neighbour's latencies before and during one attack."""
    target.prepare()
    neighbour = Neighbour(target)
    neighbour.run(2.0)
    if kind == "scrapes":
        _load(target)
    neighbour.run(seconds)
    row: dict[str, Any] = {"attack": kind, "p50": neighbour.quantile_ms(0.5)}
    row["p99"] = neighbour.quantile_ms(0.99)
    lines = target.log.read_text(errors="replace").count("stopped serving")
    asked = {
        "kind": kind,
        "host": target.host,
        "port": target.port,
        "web": target.web,
        "token": token("attacker"),
        "namespace": "evil/ns",
        "seconds": seconds + 1.5,
    }
    command = [sys.executable, "-m", "bench._attacks", json.dumps(asked)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        time.sleep(1.0)
        neighbour.run(seconds)
        out, _ = process.communicate(timeout=60)
    row |= {"during p50": neighbour.quantile_ms(0.5), "during p99": neighbour.quantile_ms(0.99)}
    row |= {"answers": len(neighbour.took_s), "failures": neighbour.failures}
    row["fenced"] = target.log.read_text(errors="replace").count("stopped serving") - lines
    row["did"] = json.loads(out or "{}")
    return row


def _load(target: Target) -> None:
    wire = Wire(target.host, target.port, token("attacker"), timeout_s=30)
    for number in range(LOADED_TOPICS):
        wire.produce(f"persistent://evil/ns/loaded-{number}")


def main(argv: list[str]) -> int:
    """Measure, and print a line for each attack."""
    parser = argparse.ArgumentParser(prog="python -m bench neighbours", description=__doc__)
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--attacks", default=",".join(ATTACKS))
    parser.add_argument("--pulsar", action="store_true")
    parser.add_argument("--store", action="store_true")
    args = parser.parse_args(argv)
    if args.pulsar and (reason := maven.missing()) is not None:
        print(reason)
        return 1
    print(
        f"{'attack':12}{'p50':>8}{'p99':>8} -> {'p50':>8}{'p99':>9}{'x p99':>7}"
        f"{'answers':>9}{'failed':>8}{'fenced':>8}  the attacker"
    )
    for kind in args.attacks.split(","):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder)
            with pulsar(path) if args.pulsar else ours(path, store=args.store) as target:
                row = attacked(target, kind, args.seconds)
        print(
            f"{kind:12}{row['p50']:8.1f}{row['p99']:8.1f} -> {row['during p50']:8.1f}"
            f"{row['during p99']:9.1f}{row['during p99'] / row['p99']:7.1f}{row['answers']:9}"
            f"{len(row['failures']):8}{row['fenced']:8}  {json.dumps(row['did'])}"
            f"{' ' + row['failures'][0][:60] if row['failures'] else ''}",
            flush=True,
        )
    return 0
