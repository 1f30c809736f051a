"""The objects that routes call, those of one broker."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from loadmanager.broker.ports.directory import Directory
from loadmanager.broker.ports.topics import TopicHost
from loadmanager.broker.topics.deleting import Deleting
from loadmanager.broker.topics.limits import Limits
from loadmanager.broker.topics.refused_tokens import RefusedTokens
from loadmanager.broker.topics.topics import Topics
from loadmanager.kit.addresses import BrokerAddress
from loadmanager.kit.audit import Audit, ChangeShown
from loadmanager.kit.history.archive import Archive
from loadmanager.kit.metadata.leader import Leader
from loadmanager.leader.brokers import Brokers
from loadmanager.leader.events import EventHub
from loadmanager.leader.present_leader import PresentLeader
from loadmanager.member.health import Health
from loadmanager.member.namespaces import Namespaces
from loadmanager.member.orders import Orders
from loadmanager.member.ownership.ownership import Ownership
from loadmanager.member.placement_policies import PlacementPolicies
from loadmanager.member.ports.hosting import Hosting
from loadmanager.member.splitting import Splitting
from loadmanager.member.unloading import Unloading


@dataclass(frozen=True, slots=True, kw_only=True)
class UseCases:
    """The use cases of one broker."""

    self_address: BrokerAddress
    brokers: Brokers
    leading: PresentLeader
    health: Health
    ownership: Ownership
    namespaces: Namespaces
    topics: Topics
    topic_host: TopicHost | None
    """None: the host serves something else than Pulsar's topics."""
    directory: Directory
    hosting: Hosting
    unloading: Unloading
    splitting: Splitting
    deleting: Deleting
    orders: Orders
    limits: Limits
    policies: PlacementPolicies
    events: EventHub
    load_report: Callable[[], bytes]
    """The load report, JSON."""
    extensible: bool
    """Whether this broker runs the extensible manager, which publishes no load report."""
    settings: Callable[[], Mapping[str, str]]
    """broker.conf key → value in force."""
    refused_tokens: RefusedTokens | None
    """None: without authentication."""
    disconnect: Callable[[str], int]
    """Ends the connections of a role here; returns how many."""
    audit: Audit
    archive: Archive | None
    """What answers from the archive; None: this broker keeps no archive."""
    stop: Callable[[int], None]
    """Begins a graceful stop that unloads at most so many bundles/s (0: any number)."""

    def why_no_leader(self) -> str:
        """Why this broker may know no leader, after "there is no leader now"."""
        return self.health.why_no_leader()

    def store_silent_ms(self) -> int | None:
        """For how long the metadata store has not answered this broker, where it should have."""
        return self.health.store_silent_ms()

    def tell_listeners(self, changes: Sequence[ChangeShown]) -> None:
        """Tell those who listen to events of changes."""
        self.events.publish_changes(changes)

    def archives(self) -> list[str]:
        """The live brokers."""
        return sorted(self.brokers.registered)

    def addresses(self) -> Iterator[BrokerAddress]:
        """The addresses of the live brokers."""
        addresses = map(self.brokers.address, self.brokers.registered)
        return (address for address in addresses if address is not None)

    def address_of(self, leader: Leader) -> BrokerAddress:
        """The address at which the leader answers."""
        return self.brokers.of_leader(leader)
