"""The limits of one broker over a store that counts, without the rest of the broker."""

from __future__ import annotations

from collections.abc import Mapping

from clusters.counting_store import CountingStore
from limits.driven import DrivenClock, a_broker

from loadmanager.broker.topics.limits import Limits
from loadmanager.kit.conf import Live
from loadmanager.kit.names import NamespaceName
from loadmanager.kit.settings import SettingOrigin
from loadmanager.limits.settings import ThrottlingSettings
from loadmanager.member.namespaces import Namespaces
from loadmanager.member.settings import BrokerSettings

NS = NamespaceName.parse("public/default")


class NoDynamic:
    """No key was changed on running brokers."""

    rejected: Mapping[str, str] = {}

    def in_force(self) -> dict[str, str]:
        return {}

    def origins(self) -> Mapping[str, SettingOrigin]:
        return {}

    def dynamic_names(self) -> list[str]:
        return []

    def apply(self, stored: Mapping[str, object]) -> list[str]:
        return []

    def reject_all(self, where: str, reason: str) -> None: ...

    def changed(
        self, stored: Mapping[str, object], name: str, value: str | None
    ) -> dict[str, object]:
        return dict(stored)


class Opening:
    """The limits of a broker over a store that counts, with a namespace that has a limit."""

    def __init__(self, store: CountingStore) -> None:
        clock = DrivenClock()
        self.store, self.throttling = store, a_broker(clock)
        self.namespaces = Namespaces(store, Live(BrokerSettings()))
        self.limits = Limits(
            store,
            self.namespaces,
            self.throttling,
            NoDynamic(),
            clock=clock,
            in_force=Live(ThrottlingSettings()),
            changed=lambda: None,
        )

    async def limit_at_opening(self) -> object:
        """Open a topic; the limit of its namespace that is in force then."""
        await self.limits.opening(NS)
        return self.throttling.namespace_policies(str(NS)).get("publishMaxMessageRate")
