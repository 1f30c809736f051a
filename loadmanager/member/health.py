"""The health and the readiness of this broker."""

from __future__ import annotations

from dataclasses import dataclass

from loadmanager.kit.addresses import BrokerAddress
from loadmanager.kit.errors import OperationalError
from loadmanager.kit.metadata import paths
from loadmanager.kit.metadata.store import Store
from loadmanager.leader.brokers import Brokers
from loadmanager.leader.leading import Leading
from loadmanager.member.ownership import Ownership


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """The checks behind Pulsar's health and readiness endpoints."""

    self_address: BrokerAddress
    store: Store
    ownership: Ownership
    brokers: Brokers
    leading: Leading

    def ready(self) -> bool:
        """True if this broker is registered, knows a leader and takes lookups."""
        registered = self.self_address.broker_id in self.brokers.registered
        return self.ownership.accepting and registered and self.leading.leader is not None

    async def check(self) -> None:
        """Write to the store and read the value back.

        Raises `OperationalError` when that fails, or when this broker is stopping.
        """
        if not self.ownership.accepting:
            raise OperationalError("this broker is stopping")
        path = f"{paths.HEALTH}/{self.self_address.broker_id}"
        version = await self.store.put(path, b"")
        node = await self.store.get(path)
        if node is None or node.version < version:
            raise OperationalError("the metadata store lost a write")
