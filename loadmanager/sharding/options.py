"""What a member is to do, as its program says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from loadmanager.engine.load.manager import Manager
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.kit.addresses import BrokerAddress
from loadmanager.kit.errors import BadInputError
from loadmanager.sharding.settings import MemberSettings
from loadmanager.sharding.shards import Service
from loadmanager.sharding.standbys import wanted


class Options:
    """Raises `BadInputError` and `ConfigError`."""

    def __init__(
        self,
        *,
        service: Service[Any],
        address: BrokerAddress,
        shards: int,
        eager: bool,
        budgets: Mapping[str, float],
        settings: Mapping[str, str],
    ) -> None:
        self.service, self.address, self.shards, self.eager = service, address, shards, eager
        self.budgets, self.settings = budgets, MemberSettings(settings)
        self.standbys = wanted(service, eager=eager)
        manager = self.settings.live(StrategySettings).value.load_manager_class
        if Manager.of(manager) is not Manager.EXTENSIBLE:
            raise BadInputError(
                f"with loadManagerClassName={manager} no shard is moved, and nothing is eager: "
                "leave it out"
            )
