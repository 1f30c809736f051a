"""The settings of a member of a sharded service: those of every member, without a file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from loadmanager.engine.moves.settings import MoveSettings
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.engine.strategies.splitting.merging import MergeSettings
from loadmanager.engine.strategies.splitting.settings import SplitSettings
from loadmanager.kit import key_names
from loadmanager.kit.conf import Live
from loadmanager.kit.errors import BadInputError, ConfigError
from loadmanager.kit.history.settings import HistorySettings
from loadmanager.kit.metrics.settings import MetricsSettings
from loadmanager.kit.settings import Keys, raise_if
from loadmanager.kit.system.settings import SamplerSettings
from loadmanager.kit.zookeeper.settings import ZooKeeperSettings
from loadmanager.leader import plugins
from loadmanager.leader.members import AbsenceSettings
from loadmanager.leader.strategy_keys import strategy_problems, with_own
from loadmanager.member.settings import BrokerSettings, StateSettings

KEYS = Keys(
    (
        BrokerSettings,
        MetricsSettings,
        ZooKeeperSettings,
        SamplerSettings,
        HistorySettings,
        StrategySettings,
        SplitSettings,
        MergeSettings,
        MoveSettings,
        AbsenceSettings,
        StateSettings,
    ),
    key_names.PULSAR,
    plugins.own_settings,
    with_own,
)
OF_SHARDS = {
    "loadManagerClassName": "ExtensibleLoadManagerImpl",
    "loadBalancerNamespaceMaximumBundles": "10000",
    "metadataStoreSessionTimeoutMillis": "10000",
    "loadManagerMovesTimeoutInSeconds": "600",
    "loadBalancerOverrideBrokerNicSpeedGbps": "10",
    "loadBalancerDirectMemoryResourceWeight": "1",
    "loadManagerHistoryEnabled": "false",
    "loadBalancerBandwidthInResourceWeight": "0",
    "loadBalancerBandwidthOutResourceWeight": "0",
}
"""What differs from a broker: members need no connections among them. A move may take as long as
`prepare` and `open`. What goes over the network card says little of a service, and memory stands
for the budgets that it names. Nothing is written to disk unless that is asked for.
"""
SPLITS = "loadBalancerAutoBundleSplitEnabled", "loadManagerBundleMergeEnabled"

Leaf = TypeVar("Leaf")


class MemberSettings:
    """Implements `member.base.SettingsInForce`; nothing changes while the member runs."""

    rejected: Mapping[str, str] = {}

    def __init__(self, values: Mapping[str, str], *, splits: bool = False) -> None:
        """`splits`: whether shards may be split and merged.

        Raises `ConfigError` for values that are no text or out of range, for strategies that
        nobody has, and for keys that nobody knows, unless a plug-in that has them is left out.
        """
        for name, value in values.items():
            if not isinstance(value, str):
                raise ConfigError(f"{name} = {value!r}: text is expected, as in a file")
        self._settings = KEYS.parse(
            {**OF_SHARDS, **dict.fromkeys(SPLITS, f"{splits}".lower()), **values}
        )
        names = ", ".join(unknown.name for unknown in self._settings.unknown)
        if names and not plugins.left_out():  # whose keys they may be
            raise ConfigError(f"nothing goes by these settings: {names}")
        raise_if(list(strategy_problems(self._settings.leaf(StrategySettings))))
        self._lives: dict[type, Live[Any]] = {
            kind: Live(leaf) for kind, leaf in self._settings.by_leaf.items()
        }

    def live(self, kind: type[Leaf]) -> Live[Leaf]:
        """See the port."""
        return self._lives[kind]

    def strategies_with(self, changes: Mapping[str, str]) -> StrategySettings:
        """See the port."""
        try:
            return self._settings.with_overrides(changes).leaf(StrategySettings)
        except ConfigError as error:
            raise BadInputError(str(error)) from None
