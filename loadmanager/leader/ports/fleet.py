"""The brokers that a leader leads, and the policies that bind it: its own cluster's or Pulsar's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from typing import Protocol

from loadmanager.engine.load.reports import LocalBrokerData
from loadmanager.engine.policies.isolation import IsolationPolicy
from loadmanager.kit.addresses import BrokerAddress


class LiveBrokers(Protocol):
    """The live brokers."""

    @property
    def registered(self) -> Set[str]:
        """brokerIds of the live brokers."""
        ...

    @property
    def reports(self) -> Mapping[str, LocalBrokerData]:
        """brokerId → its last report; brokers without a usable one are missing."""
        ...

    def address(self, broker_id: str) -> BrokerAddress | None:
        """The address of a live broker; None for one that is not live, or not known yet."""
        ...


class Reporting(LiveBrokers, Protocol):
    """The live brokers, with those who want to hear of each report."""

    @property
    def listeners(self) -> list[Callable[[str, LocalBrokerData | None], None]]:
        """Called with a brokerId and its new report, or None when the broker is gone."""
        ...


class Policies(Protocol):
    """The policies that restrict where bundles may be placed."""

    @property
    def isolation(self) -> Mapping[str, IsolationPolicy]:
        """Name → policy, in order of name."""
        ...

    @property
    def groups(self) -> Mapping[str, str]:
        """Namespace → anti-affinity group."""
        ...

    @property
    def domains(self) -> Mapping[str, Sequence[str]]:
        """Failure domain → brokerIds."""
        ...
