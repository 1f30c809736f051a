"""A protocol server alone in a process, for benchmarks: without ZooKeeper, it owns all topics.

It prints its port, then answers commands, one JSON object per line: {"policies": {topic:
policies}}, {"settings": {field: value}}, {"measure": seconds, "topic": name} (starts with the first
message), {"limits": true}.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
import time
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import replace
from typing import Any

from loadmanager.broker.messaging.schema import Schema, StoredSchema
from loadmanager.broker.messaging.settings import MessagingSettings
from loadmanager.broker.ports.directory import TopicRecords
from loadmanager.broker.ports.log import LogRecord
from loadmanager.broker.protocol.server import BrokerServer
from loadmanager.kit.addresses import BrokerAddress
from loadmanager.kit.conf import Live
from loadmanager.kit.metadata.lease import Lease
from loadmanager.kit.names import NamespaceName, TopicName
from loadmanager.kit.system.clock import SystemClock
from loadmanager.limits.broker import BrokerThrottling
from loadmanager.limits.settings import ThrottlingSettings
from loadmanager.member.ports.lookup import Lookup

BUNDLE = "public/default/0x00000000_0xffffffff"


class SchemasInMemory:
    """`Schemas` of one process."""

    def __init__(self) -> None:
        self._stored: dict[str, StoredSchema] = {}

    async def get(self, topic: TopicName) -> StoredSchema | None:
        return self._stored.get(str(topic))

    async def add(self, topic: TopicName, schema: Schema) -> int:
        stored = self._stored.setdefault(str(topic), StoredSchema(0, 0, schema))
        if stored.schema is not None:
            stored.schema.check_same(schema)
        return stored.version

    async def delete(self, topic: TopicName) -> int | None:
        return None if self._stored.pop(str(topic), None) is None else 1


class Alone:
    """The `Directory` of a broker that owns everything."""

    def __init__(self, port: int) -> None:
        self.lease = Lease(float("inf"))
        self.self_address = BrokerAddress(
            f"127.0.0.1:{port}", f"pulsar://127.0.0.1:{port}", "http://127.0.0.1:1"
        )
        self.schemas = SchemasInMemory()
        self._ledgers = 0
        self._epochs: dict[TopicName, int] = {}
        self._records: dict[TopicName, LogRecord] = {}
        self._cursors: dict[tuple[TopicName, str], bytes] = {}

    async def lookup(self, topic: TopicName, *, authoritative: bool = False) -> Lookup:
        return Lookup(self.self_address)

    def lookup_in_memory(self, topic: TopicName) -> Lookup | None:
        return Lookup(self.self_address)

    async def owned_bundle(self, topic: TopicName) -> str | None:
        return BUNDLE

    async def partitions(self, topic: TopicName, *, create: bool) -> int:
        return 0

    async def topics_of_namespace(self, namespace: NamespaceName, mode: str) -> list[str]:
        return []

    async def open_topic(self, topic: TopicName) -> TopicRecords:
        names = (name for recorded, name in self._cursors if recorded == topic)
        return TopicRecords(tuple(names), self._records.get(topic))

    async def record_subscription(
        self, topic: TopicName, subscription: str, cursor: bytes = b""
    ) -> None:
        self._cursors[topic, subscription] = cursor

    async def save_log_record(self, topic: TopicName, record: LogRecord) -> LogRecord:
        self._records[topic] = saved = replace(record, version=record.version + 1)
        return saved

    async def cursors(self, topic: TopicName, subscriptions: Sequence[str]) -> list[bytes]:
        return [self._cursors.get((topic, name), b"") for name in subscriptions]

    async def save_cursors(
        self, topic: TopicName, record: LogRecord, cursors: Mapping[str, bytes]
    ) -> None:
        self._cursors.update({(topic, name): value for name, value in cursors.items()})

    async def forget_subscription(self, topic: TopicName, subscription: str) -> None:
        self._cursors.pop((topic, subscription), None)

    async def next_ledger_id(self) -> int:
        self._ledgers += 1
        return self._ledgers

    async def topic_epoch(self, topic: TopicName) -> int:
        return self._epochs.get(topic, 0)

    async def next_topic_epoch(self, topic: TopicName) -> int:
        self._epochs[topic] = self._epochs.get(topic, 0) + 1
        return self._epochs[topic]


class Server:
    """The server with its commands."""

    def __init__(self) -> None:
        self.sock = socket.create_server(("127.0.0.1", 0))
        self.throttling = BrokerThrottling(
            ThrottlingSettings(), cluster="standalone", now_ns=time.monotonic_ns()
        )
        messaging = MessagingSettings(retention_mb=1, backlog_bytes_max=-1)
        self.broker = BrokerServer(
            Live(messaging), clock=SystemClock(), spawn=self.spawn, throttling=self.throttling
        )
        self._tasks: set[asyncio.Task[Any]] = set()

    def spawn(self, work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def run(self) -> None:
        port = self.sock.getsockname()[1]
        self.broker.begin(Alone(port))
        await self.broker.listen(self.sock)
        await self.broker.open_bundle(BUNDLE, 1)
        print(port, flush=True)
        reader = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
        )
        while line := await reader.readline():
            print(json.dumps(await self.answer(json.loads(line))), flush=True)
        await self.broker.stop()

    async def answer(self, request: dict[str, Any]) -> Any:
        for name, policies in request.get("policies", {}).items():
            self.throttling.set_topic_policies(TopicName.parse(name), policies, time.monotonic_ns())
        if "settings" in request:
            settings = ThrottlingSettings(**request["settings"])
            self.throttling.set_settings(settings, time.monotonic_ns())
        self.broker.limits_changed()
        if "limits" in request:
            return [repr(limit.snapshot(time.monotonic_ns())) for limit in self.throttling.limits()]
        return await self.measure(request) if "measure" in request else None

    async def measure(self, request: dict[str, Any]) -> dict[str, Any]:
        """Counts per second, and those of each producer or consumer, from the first message on."""
        name = str(TopicName.parse(request["topic"]))
        inwards = request.get("direction", "in") == "in"
        while (hosted := self.broker.serving.topics.served(name)) is None:
            await asyncio.sleep(0.001)
        core = hosted.core

        def counts() -> tuple[int, int]:
            return (
                (core.messages_in, core.bytes_in)
                if inwards
                else (core.messages_out, core.bytes_out)
            )

        before, started = counts(), time.monotonic()
        while counts() == before:
            started = time.monotonic()
            await asyncio.sleep(0.0005)
        marks = [(started, *before)]
        for second in range(1, request["measure"] + 1):
            await asyncio.sleep(max(started + second - time.monotonic(), 0))
            marks.append((time.monotonic(), *counts()))
            if second == 1:
                early = {c.core: c.core.delivered_messages for c in hosted.attached.values()}
        shares = (
            [[p.sender.messages, p.sender.size_bytes] for p in hosted.producers.values()]
            if inwards
            else []
        )
        return {
            "marks": marks,
            "producers": shares,
            "consumers": [core.delivered_messages - early.get(core, 0) for core in hosted.attached],
        }


if __name__ == "__main__":
    import uvloop

    uvloop.run(Server().run())
