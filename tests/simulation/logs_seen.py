"""The observer of runs with stored topics, whose logs have a fence of their own.

A run of a log may acknowledge what the later run found in it, and nothing else, whenever the
receipt comes. So at most one run is acknowledged at a time, with the lease and without. Whatever
has no log is served with the lease only. Nothing is opened without it.
"""

from __future__ import annotations

import json

from simulation.cluster import Cluster, Process
from simulation.operators import Operators
from simulation.simulate import Observer

from loadmanager.broker.protocol.connection import Connection
from loadmanager.broker.protocol.hosted import HostedTopic
from loadmanager.broker.protocol.log_proof import LOOK_VALID_S
from loadmanager.broker.wire.frames import DUPLICATE, FrameReader
from loadmanager.kit.metadata import paths
from loadmanager.kit.metadata.store import Change

RECEIPT, MESSAGE = 7, 9
FRAME_BYTES_MAX = 1 << 20
LATE_S = 1.0
"""A turn of a loop that stalls may take so long."""


class LogObserver(Observer):
    """Also reads what brokers write to clients."""

    def __init__(self, cluster: Cluster, operators: Operators) -> None:
        super().__init__(cluster, operators)
        self.unleased = 0
        """Receipts without the lease."""
        self._runs: dict[str, list[tuple[int, int, float]]] = {}
        """Record of a log → the runs that it had: number, first entry, when it was recorded."""
        self._open: dict[Process, set[str]] = {}
        cluster.on_receipt = lambda process, topic: None
        cluster.on_write = self.wrote

    def on_change(self, change: Change) -> None:
        """Remember the runs of logs."""
        super().on_change(change)
        node = self._cluster.server.tree.nodes.get(change.path)
        if not change.path.startswith(paths.LOGS) or node is None or node.value[:1] != b"{":
            return
        runs, seen = json.loads(node.value)["runs"], self._runs.setdefault(change.path, [])
        number, first_id, _ = runs[-1]
        if not seen or seen[-1][0] != number:
            seen.append((number, first_id, self._world.now_s))

    def after_step(self, process: Process) -> None:
        """No topic appears without the lease."""
        super().after_step(process)
        parts = process.parts
        names = set() if parts is None else set(parts.hosting.serving.open_topics)
        new, leased = names - self._open.get(process, set()), process.store.lease.held
        if new and not leased(self._world.now_s):
            self._world.fail(f"{process.machine.name} opened {min(new)} without the lease")
        self._open[process] = names

    def wrote(self, process: Process, connection: Connection, data: bytes) -> None:
        """Check what goes to a client."""
        reader = FrameReader(FRAME_BYTES_MAX)
        reader.feed(data)
        while (frame := reader.take()) is not None:
            command = frame.command
            if command.type == RECEIPT:
                receipt = command.send_receipt
                producer = connection.producers.get(receipt.producer_id)
                if producer is not None:
                    self._check(process, producer.hosted, receipt.message_id.entryId)
            elif command.type == MESSAGE:
                consumer = connection.consumers.get(command.message.consumer_id)
                if consumer is not None:
                    self._check(process, consumer.hosted, None)

    def _check(self, process: Process, hosted: HostedTopic, entry_id: int | None) -> None:
        """A receipt, or with None a message, of a topic."""
        leased = process.store.lease.held(self._world.now_s)
        if hosted.stored is None:
            if not leased:
                self._world.fail(f"{process.machine.name} serves {hosted.name} without the lease")
            elif entry_id is not None:
                super().sent_receipt(process, str(hosted.name))
            return
        self.unleased += entry_id is not None and not leased
        record, run = hosted.stored.record, hosted.stored.log.run  # type: ignore[attr-defined]
        path = f"{paths.log(hosted.name)}/{record.log_id:x}"
        for number, first_id, since_s in self._runs.get(path, []):
            if number <= run:
                continue
            late_s = self._world.now_s - since_s
            told = f"{process.machine.name} {{}} of {hosted.name}, run {run}; {number} began"
            if entry_id not in (None, DUPLICATE) and entry_id >= first_id:
                self._world.fail(told.format(f"acknowledged {entry_id}") + f" with {first_id}")
            if entry_id is None and late_s > LOOK_VALID_S + LATE_S:
                self._world.fail(told.format("delivered") + f" {late_s:.1f} s before")
