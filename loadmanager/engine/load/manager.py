"""Pulsar's two load managers, by the names of their classes."""

from __future__ import annotations

from enum import Enum


class Manager(Enum):
    """A load manager, with the full name of its class in Pulsar."""

    MODULAR = "org.apache.pulsar.broker.loadbalance.impl.ModularLoadManagerImpl"
    EXTENSIBLE = "org.apache.pulsar.broker.loadbalance.extensions.ExtensibleLoadManagerImpl"

    @property
    def short_name(self) -> str:
        """The last part of the class name."""
        return self.value.rpartition(".")[2]

    @staticmethod
    def of(name: str | None) -> Manager | None:
        """The manager of a full or short class name; None for other names, and without one."""
        return _BY_SHORT_NAME.get((name or "").rpartition(".")[2])


_BY_SHORT_NAME = {manager.short_name: manager for manager in Manager}
