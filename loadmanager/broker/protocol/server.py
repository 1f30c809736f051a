"""Our broker's protocol server: sockets, timers and the table of commands. What it serves is in the
`TopicRegistry`.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from typing import Any

from loadmanager.broker.ports.access import Access
from loadmanager.broker.ports.directory import Directory
from loadmanager.broker.protocol.access import ClientAccess
from loadmanager.broker.protocol.auditing import audited
from loadmanager.broker.protocol.connection import Connection, Handler
from loadmanager.broker.protocol.consumers import (
    on_ack,
    on_close_consumer,
    on_consumer_stats,
    on_flow,
    on_get_last_message_id,
    on_redeliver,
    on_seek,
    on_subscribe,
    on_unsubscribe,
)
from loadmanager.broker.protocol.expiry import MessageExpiry
from loadmanager.broker.protocol.hosted import Client, HostedTopic
from loadmanager.broker.protocol.log_proof import LOOK_INTERVAL_S
from loadmanager.broker.protocol.lookups import (
    on_connect,
    on_get_topics,
    on_lookup,
    on_partition_metadata,
    on_ping,
    on_pong,
)
from loadmanager.broker.protocol.producers import on_close_producer, on_producer, on_send
from loadmanager.broker.protocol.registry import TopicRegistry
from loadmanager.broker.protocol.schemas import on_get_or_create_schema, on_get_schema
from loadmanager.broker.protocol.topic_host import RegistryTopics
from loadmanager.broker.protocol.topic_telemetry import samples
from loadmanager.broker.wire.frames import COMMAND_TYPES
from loadmanager.kit.audit import Audit
from loadmanager.kit.listener import Listener, Tls
from loadmanager.kit.telemetry import Detail, Sample

HANDLERS: dict[int, Handler] = {
    COMMAND_TYPES[name]: handler
    for name, handler in (
        ("connect", on_connect),
        ("subscribe", on_subscribe),
        ("producer", on_producer),
        ("send", on_send),
        ("ack", on_ack),
        ("flow", on_flow),
        ("unsubscribe", on_unsubscribe),
        ("close_producer", on_close_producer),
        ("close_consumer", on_close_consumer),
        ("ping", on_ping),
        ("pong", on_pong),
        ("redeliver", on_redeliver),
        ("partition_metadata", on_partition_metadata),
        ("lookup", on_lookup),
        ("consumer_stats", on_consumer_stats),
        ("seek", on_seek),
        ("get_last_message_id", on_get_last_message_id),
        ("get_topics", on_get_topics),
        ("get_schema", on_get_schema),
        ("get_or_create_schema", on_get_or_create_schema),
    )
}
"""Type of a command → its handler."""


class BrokerServer(TopicRegistry):
    """A topic registry that listens, measures traffic and probes silent clients."""

    client_access: ClientAccess | None = None
    """None: clients need not say who they are."""
    audit: Audit | None = None
    """Is told of what clients changed."""
    _listeners: tuple[Listener, ...] = ()
    _tasks: tuple[asyncio.Task[Any], ...] = ()
    _unproven = False
    """Whether stored topics are served without the lease, or were a moment ago."""

    def protect(self, access: Access) -> None:
        """Ask clients who they are from now on; called before the first connection."""
        self.client_access = ClientAccess(access, self, self._topics)

    def disconnect(self, role: str) -> int:
        """Hang up on the clients of a role; returns how many these are."""
        return 0 if self.client_access is None else self.client_access.disconnect(role)

    def tell_changes(self, audit: Audit) -> None:
        """Tell of what clients change from now on; called before the first connection."""
        self.audit = audit

    @property
    def topic_host(self) -> RegistryTopics:
        """What operators ask of topics."""
        return RegistryTopics(self)

    @property
    def handlers(self) -> dict[int, Handler]:
        """Type of a command → its handler."""
        handlers = HANDLERS if self.audit is None else audited(self.audit, HANDLERS)
        return handlers if self.client_access is None else self.client_access.around(handlers)

    def begin(self, directory: Directory) -> None:
        """Serve what `directory` says, and start the timers.

        Connections come with `listen`, or over other transports: `Connection(self, self.handlers)`.
        """
        self.directory = directory
        stats = self._repeat_work(lambda: self.settings.value.stats_interval_s, self.measure)
        keep_alive = self._repeat(lambda: self.settings.value.keep_alive_s / 2, self._keep_alive)
        self._tasks += (self.spawn(stats, "traffic"), self.spawn(keep_alive, "keep-alive"))
        expiry, settings = self._build_expiry(), self.settings
        for interval_s, work, name in (
            (lambda: settings.value.expiry_minutes * 60, expiry.check_ages, "ages"),
            (lambda: settings.value.quota_check_s, expiry.check_quotas, "quotas"),
        ):
            self._tasks += (self.spawn(self._repeat_work(interval_s, work), name),)
        if (checks := self.client_access) is not None:
            refresh = self._repeat(
                lambda: checks.access.refresh_s, lambda: checks.refresh(_ours(self.connections))
            )
            self._tasks += (
                self.spawn(refresh, "proofs"),
                self.spawn(checks.rights.run(), "rights"),
            )
        if (storing := self.storing) is not None:
            rate = storing.settings
            saving = self._repeat(lambda: 1 / rate.value.cursor_saves_per_s, storing.save_cursors)
            looking = self._repeat_work(lambda: LOOK_INTERVAL_S, self._look)
            self._tasks += (self.spawn(saving, "cursors"), self.spawn(looking, "look"))

    async def listen(self, sock: socket.socket, listener: str = "", tls: Tls | None = None) -> None:
        """Accept connections of a bound socket; their clients belong to a listener."""
        handlers = self.handlers
        accepting = Listener(
            sock,
            lambda: Connection(self, handlers, listener),
            self.failures.report,
            spawn=self.spawn,
            tls=tls,
        )
        self._listeners += (accepting,)

    async def _repeat(self, interval_s: Callable[[], float], step: Callable[[], None]) -> None:
        while True:
            await asyncio.sleep(interval_s())
            with self._contained():
                step()

    async def _repeat_work(
        self, interval_s: Callable[[], float], work: Callable[[], Coroutine[Any, Any, None]]
    ) -> None:
        while True:
            await asyncio.sleep(interval_s())
            with self._contained():
                await work()

    @contextmanager
    def _contained(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # noqa: BLE001 - contained: the next turn may succeed
            self.failures.report("a periodic step failed and is tried again", error)

    def _build_expiry(self) -> MessageExpiry:
        return MessageExpiry(
            self._topics.values,
            dispatcher=self.dispatcher,
            clock=self.clock,
            failures=self.failures,
            close_producers=self._close_producers,
        )

    def _close_producers(self, hosted: HostedTopic) -> None:
        for producer in list(hosted.producers.values()):
            self.close_producer(producer, None)

    async def stop(self) -> None:
        """Stop listening and close every connection."""
        for task in self._tasks:
            task.cancel()
        self.resumer.stop()
        for listener in self._listeners:
            listener.close()
        for connection in list(self.connections):
            connection.close("the broker stops")

    def samples(self, detail: Detail) -> Iterator[Sample]:
        """The metrics of topics and connections, of turns and of the access checks. Takes time in
        the number of topics that changed since the last call, and of those that are shown.
        """
        changed, self.dispatcher.changed = self.dispatcher.changed, {}
        for hosted in changed:
            if self._topics.get(hosted.core.name) is hosted:
                self._totals.count(hosted.figures, hosted.counts())
        shown = list(islice(self._topics.values(), detail.topics))
        counts = replace(self.connected, active=len(self.connections), opening=len(self._opening))
        unacked_max = self.settings.value.unacked_per_consumer_max
        yield from samples(self._totals, shown, counts, detail, unacked_max)
        yield from self.turns.samples()
        if self.client_access is not None:
            yield from self.client_access.refusals.samples()

    # ports.hosting.SelfChecking and SelfFencing

    async def trouble(self, *, tries: bool = False) -> str:
        """The storage cannot be written to."""
        return "" if self.storing is None else await self.storing.health.trouble(tries=tries)

    def fence_unproven(self, lives: Mapping[str, int]) -> Collection[str]:
        """Go on with the stored topics of these lives; the clients of others are told to come back.

        A bundle stays open even if it has no stored topic.
        """
        if self.storing is None:
            self.fence_all()
            return ()
        kept = {
            bundle
            for bundle, opened in self._bundles.items()
            if lives.get(bundle) == opened.life and not opened.fenced
        }
        for hosted in list(self._topics.values()):
            if hosted.bundle not in kept or hosted.stored is None:
                self._bundles[hosted.bundle].topics.pop(hosted.core.name, None)
                del self._topics[hosted.core.name]
                hosted.fence(self.clock.monotonic_ns())
                self._close_topic(hosted, None)
                self._forget(hosted)
        for bundle in self._bundles.keys() - kept:
            self.fence_bundle(bundle, self._bundles[bundle].life)
            del self._bundles[bundle]
        self._unproven = True
        self.spawn(self._look(), "look")
        self.dispatcher.deliver()
        return kept

    async def _look(self) -> None:
        """While the lease is not held, look for marks of others in the storage."""
        if not self._unproven or self.storing is None:
            return
        if self.directory.lease.held(self.clock.monotonic_s()):
            self._unproven = False
            self.dispatcher.deliver()  # what waited for a proof
        else:
            await self.storing.proof.look()

    def _keep_alive(self) -> None:
        """Probe silent connections; close those that stay silent."""
        now_s, keep_alive_s = self.clock.monotonic_s(), self.settings.value.keep_alive_s
        for connection in list(self.connections):
            connection.keep_alive(now_s, keep_alive_s)


def _ours(connections: Iterable[Client]) -> list[Connection]:
    return [connection for connection in connections if isinstance(connection, Connection)]
