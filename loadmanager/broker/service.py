"""The objects that a broker takes from outside: everything that touches the world."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from loadmanager.broker.messaging.memory import TopicMemory
from loadmanager.broker.messaging.settings import StorageSettings
from loadmanager.broker.ports.access import Access
from loadmanager.broker.ports.directory import Directory
from loadmanager.broker.ports.log import Storage
from loadmanager.broker.ports.topics import TopicHost
from loadmanager.broker.protocol.server import BrokerServer
from loadmanager.broker.topics.limits import PolicyListener
from loadmanager.kit.audit import Audit
from loadmanager.kit.conf import Live
from loadmanager.kit.history.archive import Archive
from loadmanager.kit.history.port import History, HistoryRecord
from loadmanager.kit.listener import Tls
from loadmanager.kit.security.identity import Verifier
from loadmanager.kit.telemetry import Detail, Sample
from loadmanager.member.ports.hosting import Hosting
from loadmanager.member.world import World


class BrokerService(Hosting, Protocol):
    """Serves the clients of a broker: Pulsar's topics, or whatever else hashes into bundles."""

    def begin(self, directory: Directory) -> None:
        """Called once, before anything else, when `directory` can answer."""
        ...

    async def listen(self, sock: socket.socket, listener: str = "", tls: Tls | None = None) -> None:
        """Serve clients on a bound socket: that of `brokerServicePort`, one of `bindAddresses` with
        the name of its listener, or one for TLS.
        """
        ...

    async def stop(self) -> None:
        """Hang up; the bundles were closed before."""
        ...

    def limits_changed(self) -> None:
        """An operator changed rate limits: clients that wait may go on."""
        ...

    def samples(self, detail: Detail) -> Iterable[Sample]:
        """The service's own metrics now; see `kit.telemetry.Source`."""
        ...


@runtime_checkable
class StoresTopics(Protocol):
    """A `BrokerService` that keeps topics in the storage."""

    def store_in(self, storage: Storage, settings: Live[StorageSettings]) -> None:
        """Store persistent topics from now on; called before `BrokerService.begin`."""
        ...


@runtime_checkable
class AuthenticatesClients(Protocol):
    """A `BrokerService` that authenticates its clients."""

    def protect(self, access: Access) -> None:
        """Authenticate clients by this from now on; called before `BrokerService.begin`."""
        ...


@runtime_checkable
class DisconnectsRoles(Protocol):
    """A `BrokerService` that knows the roles of its clients."""

    def disconnect(self, role: str) -> int:
        """Hang up on the clients of a role; returns how many these are."""
        ...


@runtime_checkable
class TellsChanges(Protocol):
    """A `BrokerService` that tells of what its clients change."""

    def tell_changes(self, audit: Audit) -> None:
        """Tell this of changes from now on; called before `BrokerService.begin`."""
        ...


@runtime_checkable
class RecordsClients(Protocol):
    """A `BrokerService` that records which clients come, leave and are refused."""

    def record_clients(
        self, history: History, broker: str
    ) -> Callable[[], Sequence[HistoryRecord]]:
        """Record them from now on; called before `BrokerService.begin`. Returns what tells those
        that are counted, and not recorded yet.
        """
        ...


@runtime_checkable
class HostsTopics(Protocol):
    """A `BrokerService` whose topics operators can ask, and give rules, as those of Pulsar's
    brokers.
    """

    @property
    def rules(self) -> PolicyListener:
        """Who keeps messages; told of the policies of namespaces."""
        ...

    @property
    def topic_host(self) -> TopicHost:
        """What operators ask of topics."""
        ...


@runtime_checkable
class SharesTopics(Protocol):
    """A `BrokerService` whose namespaces share the number of topics."""

    @property
    def memory(self) -> TopicMemory:
        """What they share."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Outside(World):
    """The objects that a broker takes from outside."""

    stop: Callable[[int], None]
    """Called when an operator stops this broker: unload at most so many bundles/s (0: any)."""
    service: Callable[..., BrokerService] = BrokerServer
    """Makes what hosts the bundles; called with the arguments of `BrokerServer`."""
    connections_cap: int = 0
    """The most client connections that the process can serve; 0: any number."""
    storage: Storage | None = None
    """Where persistent topics are stored; None: they are kept in memory."""
    verifier: Verifier | None = None
    """Checks what clients prove themselves with; None: they need not."""
    archive: Archive | None = None
    """What answers from the archive; None: this broker keeps no archive."""
