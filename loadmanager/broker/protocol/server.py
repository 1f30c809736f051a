"""Our broker's protocol server: sockets, timers and the table of commands. What it serves is in the
`HostedBundles`.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

from loadmanager.broker.messaging.settings import MessagingSettings, StorageSettings
from loadmanager.broker.ports.access import Access
from loadmanager.broker.ports.directory import Directory
from loadmanager.broker.ports.log import Storage
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
from loadmanager.broker.protocol.hosted import HostedTopic
from loadmanager.broker.protocol.hosted_bundles import HostedBundles
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
from loadmanager.broker.protocol.schemas import on_get_or_create_schema, on_get_schema
from loadmanager.broker.protocol.serving import Serving
from loadmanager.broker.protocol.storing import Storing
from loadmanager.broker.protocol.topic_host import ServedTopics
from loadmanager.broker.wire.frames import COMMAND_TYPES
from loadmanager.engine.history.clients import HELD_S, REPEATS_EVERY_S
from loadmanager.kit.audit import Audit
from loadmanager.kit.clock import Clock
from loadmanager.kit.conf import Live
from loadmanager.kit.listener import Listener, Tls
from loadmanager.kit.telemetry import Detail, Sample
from loadmanager.limits.broker import BrokerThrottling
from loadmanager.limits.held_connections import held_connections

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


class BrokerServer(HostedBundles):
    """Hosts bundles, listens, measures traffic and probes silent clients.

    `connections_cap`: how many connections the process can serve at most, 0 for any number.
    """

    client_access: ClientAccess | None = None
    """None: clients need not say who they are."""
    audit: Audit | None = None
    """Is told of what clients changed."""
    _listeners: tuple[Listener, ...] = ()
    _tasks: tuple[asyncio.Task[Any], ...] = ()

    def __init__(
        self,
        settings: Live[MessagingSettings],
        *,
        clock: Clock,
        spawn: Callable[[Coroutine[Any, Any, Any], str], asyncio.Task[Any]],
        throttling: BrokerThrottling,
        connections_cap: int = 0,
    ) -> None:
        super().__init__(
            Serving(
                settings=settings,
                clock=clock,
                spawn=spawn,
                throttling=throttling,
                connections_cap=connections_cap,
            )
        )
        self.rules = self.serving.rules
        self.memory = self.serving.memory

    def store_in(self, storage: Storage, settings: Live[StorageSettings]) -> None:
        """Store persistent topics from now on; called before the first connection."""
        serving = self.serving
        serving.storing = Storing(
            storage,
            settings,
            messaging=serving.settings,
            memory=serving.memory,
            dispatcher=serving.dispatcher,
            directory=lambda: serving.directory,
            clock=serving.clock,
            spawn=serving.spawn,
            failures=serving.failures,
            may_serve=lambda: serving.may_serve(serving.clock.monotonic_s()),
            close_topic=lambda topic: serving.topics.close(topic, force=True),
        )

    def protect(self, access: Access) -> None:
        """Ask clients who they are from now on; called before the first connection."""
        self.client_access = ClientAccess(access, self.serving)

    def disconnect(self, role: str) -> int:
        """Hang up on the clients of a role; returns how many these are."""
        return 0 if self.client_access is None else self.client_access.disconnect(role)

    def tell_changes(self, audit: Audit) -> None:
        """Tell of what clients change from now on; called before the first connection."""
        self.audit = audit

    @property
    def topic_host(self) -> ServedTopics:
        """What operators ask of topics."""
        return ServedTopics(self.serving)

    @property
    def handlers(self) -> dict[int, Handler]:
        """Type of a command → its handler."""
        handlers = HANDLERS if self.audit is None else audited(self.audit, HANDLERS)
        return handlers if self.client_access is None else self.client_access.around(handlers)

    def begin(self, directory: Directory) -> None:
        """Serve what `directory` says, and start the timers.

        Connections come with `listen`, or over other transports: `Connection(serving, handlers)`.
        """
        serving, settings = self.serving, self.serving.settings
        serving.directory = directory
        expiry = self._build_expiry()
        self._repeat("traffic", lambda: settings.value.stats_interval_s, serving.topics.measure)
        self._repeat("keep-alive", lambda: settings.value.keep_alive_s / 2, self._keep_alive)
        self._repeat("ages", lambda: settings.value.expiry_minutes * 60, expiry.check_ages)
        self._repeat("quotas", lambda: settings.value.quota_check_s, expiry.check_quotas)
        self._repeat("refusals", lambda: REPEATS_EVERY_S, serving.clients.record_repeats)
        self._repeat("held", lambda: HELD_S, self._record_held)
        if (checks := self.client_access) is not None:
            self._repeat("proofs", lambda: checks.access.refresh_s, checks.refresh)
            self._tasks += (serving.spawn(checks.rights.run(), "rights"),)
        if (storing := serving.storing) is not None:
            rate = storing.settings
            self._repeat("cursors", lambda: 1 / rate.value.cursor_saves_per_s, storing.save_cursors)
            self._repeat("look", lambda: LOOK_INTERVAL_S, self._look)

    async def listen(self, sock: socket.socket, listener: str = "", tls: Tls | None = None) -> None:
        """Accept connections of a bound socket; their clients belong to a listener."""
        handlers = self.handlers
        accepting = Listener(
            sock,
            lambda: Connection(self.serving, handlers, listener),
            self.serving.failures.report,
            spawn=self.serving.spawn,
            tls=tls,
        )
        self._listeners += (accepting,)

    def _repeat(
        self,
        name: str,
        interval_s: Callable[[], float],
        work: Callable[[], Coroutine[Any, Any, None] | None],
    ) -> None:
        async def run() -> None:
            while True:
                await asyncio.sleep(interval_s())
                with self._contained():
                    if (running := work()) is not None:
                        await running

        self._tasks += (self.serving.spawn(run(), name),)

    @contextmanager
    def _contained(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # noqa: BLE001 - contained: the next turn may succeed
            self.serving.failures.report("a periodic step failed and is tried again", error)

    def _build_expiry(self) -> MessageExpiry:
        return MessageExpiry(
            self.serving.open_topics.values,
            dispatcher=self.serving.dispatcher,
            clock=self.serving.clock,
            failures=self.serving.failures,
            close_producers=self._close_producers,
        )

    def _close_producers(self, hosted: HostedTopic) -> None:
        for producer in list(hosted.producers.values()):
            self.serving.attachments.close_producer(producer, None, "the backlog quota is reached")

    async def stop(self) -> None:
        """Stop listening and close every connection."""
        for task in self._tasks:
            task.cancel()
        self.serving.resumer.stop()
        for listener in self._listeners:
            listener.close()
        for connection in list(self.serving.attachments.connections):
            connection.close("the broker stops")

    def limits_changed(self) -> None:
        """Limits were changed: resume the clients that may go on now; if they are many, the rest
        follows by the timer.
        """
        self.serving.resumer.release()

    def samples(self, detail: Detail) -> Iterator[Sample]:
        """The metrics of topics and connections, of turns and of the access checks."""
        yield from self.serving.topics.samples(detail)
        yield from self.serving.turns.samples()
        if self.client_access is not None:
            yield from self.client_access.refusals.samples()

    def _record_held(self) -> None:
        serving = self.serving
        now_ns = serving.clock.monotonic_ns()
        serving.clients.record_held(held_connections(serving.throttling, now_ns))

    def _keep_alive(self) -> None:
        """Probe silent connections; close those that stay silent."""
        now_s, keep_alive_s = (
            self.serving.clock.monotonic_s(),
            self.serving.settings.value.keep_alive_s,
        )
        for connection in list(self.serving.attachments.connections):
            connection.keep_alive(now_s, keep_alive_s)
