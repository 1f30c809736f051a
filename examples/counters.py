"""A service of your own behind the load manager: counters, each owned by one process.

A key is a topic name, so it hashes into a bundle; the process that owns the bundle counts. Moves,
splits, dead processes and lookups are loadmanager's. Numbers are in a shared folder, a file a key.

    python examples/counters.py serve --set metadataStoreUrl=zk:127.0.0.1:2181/counters
    python examples/counters.py add apples --url http://127.0.0.1:8080
"""

from __future__ import annotations

import argparse
import asyncio
import json
import socket
import sys
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from loadmanager.broker import settings
from loadmanager.broker.ports.directory import Directory
from loadmanager.broker.process import BrokerOptions, run_broker
from loadmanager.engine.bundles.ranges import BundleRange, split_bundle_name, topic_hash
from loadmanager.engine.load.reports import NamespaceBundleStats
from loadmanager.kit.addresses import BrokerAddress
from loadmanager.kit.clock import Clock
from loadmanager.kit.errors import LoadManagerError, OperationalError
from loadmanager.kit.names import TopicName
from loadmanager.member.ports.hosting import HostUsage, TopicTraffic

NAMESPACE = "public/default"
ELSEWHERE = "elsewhere"
PERIOD_S = 5.0
RETRY_S = 0.2


def topic_of(key: str) -> str:
    """The name that decides the bundle of a key."""
    return f"persistent://{NAMESPACE}/{key}"


@dataclass(slots=True)
class Bundle:
    """An open bundle: its life, and what was counted since rates were taken."""

    life: int
    added: dict[str, int] = field(default_factory=dict)
    rates: dict[str, float] = field(default_factory=dict)


class Counters:
    """Implements `loadmanager.broker.service.BrokerService`."""

    def __init__(self, folder: Path, _settings: object, *, clock: Clock, **_: Any) -> None:
        self._folder = folder
        self._clock = clock
        self._bundles: dict[str, Bundle] = {}
        self._writers: set[asyncio.StreamWriter] = set()
        self._measured_s = clock.monotonic_s()
        self._bytes_in = self._bytes_out = 0

    def begin(self, directory: Directory) -> None:
        """Lookups and the lease are there."""
        self._directory = directory

    async def listen(self, sock: socket.socket, _listener: str = "", tls: object = None) -> None:
        """A line with a key in, a line of JSON out."""
        if tls is not None:
            raise OperationalError("counters are not served over TLS")
        self._server = await asyncio.start_server(self._converse, sock=sock)

    async def stop(self) -> None:
        """Hang up."""
        self._server.close()
        self._hang_up()

    def limits_changed(self) -> None:
        """There are no rate limits here."""

    def samples(self, _detail: object) -> tuple[()]:
        """There are no metrics of its own."""
        return ()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            while line := await reader.readline():
                self._bytes_in += len(line)
                answer = json.dumps(await self._add(line.decode().strip())).encode() + b"\n"
                self._bytes_out += len(answer)
                writer.write(answer)
                await writer.drain()
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _add(self, key: str) -> dict[str, Any]:
        try:
            name = await self._directory.owned_bundle(TopicName.parse(topic_of(key)))
        except LoadManagerError as error:
            return {"error": str(error)}
        # From here to the end nothing waits: the bundle is ours until the number is written.
        if not self._directory.lease.held(self._clock.monotonic_s()):
            self._directory.fence()
            return {"error": ELSEWHERE}
        bundle = self._bundles.get(name or "")
        if bundle is None:
            return {"error": ELSEWHERE}
        file = self._folder / f"{quote(key, safe='')}.count"
        count = int(file.read_text()) + 1 if file.exists() else 1
        file.write_text(str(count))
        bundle.added[key] = bundle.added.get(key, 0) + 1
        return {"key": key, "count": count, "by": self._directory.self_address.broker_id}

    def _hang_up(self) -> None:
        for writer in self._writers:
            writer.close()

    # What the load manager asks (`loadmanager.member.ports.hosting.Hosting`)

    async def open_bundle(self, bundle: str, life: int) -> None:
        """Serve. There is nothing to load: numbers are read when they are needed."""
        older = self._bundles.get(bundle)
        if older is None or older.life < life:
            self._bundles[bundle] = Bundle(life)

    def fence_bundle(self, bundle: str, life: int) -> None:
        """Serve no more, from this instant. Nothing needs to be saved: numbers are in files."""
        opened = self._bundles.get(bundle)
        if opened is not None and opened.life == life:
            del self._bundles[bundle]

    async def settle_bundle(self, bundle: str, life: int) -> None:
        """Nothing is left for the next owner."""

    async def close_bundle(
        self, bundle: str, life: int, *, destination: BrokerAddress | None, timeout_s: float
    ) -> int:
        """Nobody needs to be told: whoever asks next is sent on."""
        self.fence_bundle(bundle, life)
        return 0

    def close_topic(self, topic: str, *, force: bool) -> bool:
        """A key cannot be closed by itself."""
        return False

    def split_bundle(self, parent: str, life: int, children: list[str], children_life: int) -> None:
        """Go on as the children; each takes the keys of its range along."""
        opened = self._bundles.get(parent)
        if opened is None or opened.life != life:
            return
        del self._bundles[parent]
        for child in children:
            span = BundleRange.parse(split_bundle_name(child)[1])
            rates = {k: v for k, v in opened.rates.items() if topic_hash(topic_of(k)) in span}
            added = {k: v for k, v in opened.added.items() if topic_hash(topic_of(k)) in span}
            self._bundles[child] = Bundle(children_life, added, rates)

    def merge_bundles(self, parts: dict[str, int], merged: str, merged_life: int) -> None:
        """Go on as one bundle with the keys of all."""
        opened = [self._bundles.get(bundle) for bundle in parts]
        if any(
            one is None or one.life != life
            for one, life in zip(opened, parts.values(), strict=True)
        ):
            return
        joined = Bundle(merged_life)
        for bundle in parts:
            part = self._bundles.pop(bundle)
            joined.added.update(part.added)
            joined.rates.update(part.rates)
        self._bundles[merged] = joined

    def fence_all(self) -> None:
        """The session cannot be proven: serve nothing."""
        self._bundles.clear()
        self._hang_up()

    def bundle_stats(self) -> dict[str, NamespaceBundleStats]:
        """Rates of the last period: what the leader balances by."""
        self._measure()
        return {
            name: NamespaceBundleStats(
                topics=len(bundle.rates), msg_rate_in=sum(bundle.rates.values())
            )
            for name, bundle in self._bundles.items()
        }

    def _measure(self) -> None:
        elapsed_s = self._clock.monotonic_s() - self._measured_s
        if elapsed_s < PERIOD_S:
            return
        self._measured_s += elapsed_s
        for bundle in self._bundles.values():
            bundle.rates = {key: count / elapsed_s for key, count in bundle.added.items()}
            bundle.added = {}

    def topics(self, bundle: str) -> dict[str, TopicTraffic]:
        """Rates of each key: what splits go by."""
        opened = self._bundles.get(bundle)
        rates = opened.rates if opened else {}
        return {topic_of(key): TopicTraffic(msg_rate_in=rate) for key, rate in rates.items()}

    def clients(self, bundle: str) -> int:
        """Clients of this service hold no bundle: each request finds its own."""
        return 0

    def usage(self) -> HostUsage:
        """Bytes on the wire."""
        return HostUsage(0, 0, self._bytes_in, self._bytes_out)


def serve(args: argparse.Namespace) -> int:
    """One process of the service."""
    args.folder.mkdir(parents=True, exist_ok=True)
    # A cluster of its own: in the history of another one its processes would be lost brokers.
    own = {"clusterName": "counters", "loadManagerHistoryDirectory": str(args.folder / "history")}
    values = ({} if args.config else own) | settings.KEYS.parse_overrides(args.set)
    loaded = settings.KEYS.load(args.config, values)
    return run_broker(loaded, BrokerOptions(service=partial(Counters, args.folder)))


def add(args: argparse.Namespace) -> int:
    """Add 1 to a key: look up who owns it, ask there, and look up again while it moves."""
    path = topic_of(args.key).replace("://", "/")
    deadline_s = time.monotonic() + args.patience
    while True:
        try:
            with urllib.request.urlopen(f"{args.url}/lookup/v2/topic/{path}", timeout=5) as answer:
                owner = urlsplit(json.load(answer)["brokerUrl"])
            with socket.create_connection((owner.hostname, owner.port), timeout=5) as connection:
                connection.sendall(f"{args.key}\n".encode())
                answer = json.loads(connection.makefile().readline())
            if "error" not in answer:
                print(f"{answer['key']} = {answer['count']}  (by {answer['by']})")
                return 0
            problem = answer["error"]
        except (OSError, ValueError) as error:
            problem = str(error)
        if time.monotonic() > deadline_s:
            print(f"{args.key}: {problem}", file=sys.stderr)
            return 1
        time.sleep(RETRY_S)


def main() -> int:
    """Parse and run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(required=True)
    serving = commands.add_parser("serve", help="run one process")
    serving.add_argument("--config", type=Path, help="broker.conf")
    serving.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    serving.add_argument("--folder", type=Path, default=Path("data/counters"))
    serving.set_defaults(run=serve)
    adding = commands.add_parser("add", help="add 1 to a key")
    adding.add_argument("key")
    adding.add_argument("--url", default="http://127.0.0.1:8080", help="any process")
    adding.add_argument("--patience", type=float, default=60, metavar="S")
    adding.set_defaults(run=add)
    args = parser.parse_args()
    status: int = args.run(args)
    return status


if __name__ == "__main__":
    sys.exit(main())
