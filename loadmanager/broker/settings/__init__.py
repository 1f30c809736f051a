"""The keys of a broker: each component declares its own leaf, and this module lists the leaves.

`settings.live` overrides them with the dynamic values of a running broker.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from loadmanager.broker.messaging.settings import MessagingSettings, StorageSettings
from loadmanager.broker.settings.access import access_problems
from loadmanager.broker.settings.protections import ProtectionSettings, missing_protections
from loadmanager.broker.settings.tls import tls_problems
from loadmanager.broker.topics.access import AccessSettings
from loadmanager.engine.load.price import PriceSettings
from loadmanager.engine.moves.settings import MoveSettings
from loadmanager.engine.strategies.settings import OtherManagerSettings, StrategySettings
from loadmanager.engine.strategies.splitting.merging import MergeSettings
from loadmanager.engine.strategies.splitting.settings import SplitSettings
from loadmanager.kit import key_names
from loadmanager.kit.files.properties import read_properties
from loadmanager.kit.history.settings import AnalysisSettings, HistorySettings
from loadmanager.kit.http.settings import AdminSettings
from loadmanager.kit.metrics.settings import MetricsSettings
from loadmanager.kit.otlp.settings import OtlpSettings
from loadmanager.kit.security.settings import (
    BrokerClientSettings,
    BrokerClientTlsSettings,
    TlsSettings,
    TokenSettings,
)
from loadmanager.kit.settings import Keys, Problem, Settings, raise_if
from loadmanager.kit.system.settings import SamplerSettings
from loadmanager.kit.zookeeper.settings import ZooKeeperSettings, ZooKeeperTlsSettings
from loadmanager.leader import plugins
from loadmanager.leader.members import AbsenceSettings
from loadmanager.leader.strategy_keys import refusal, strategy_problems, with_own
from loadmanager.limits.settings import IgnoredSettings, ThrottlingSettings
from loadmanager.member.listeners import advertised, binds
from loadmanager.member.settings import BrokerSettings, StateSettings

LEAVES: tuple[type, ...] = (
    BrokerSettings,
    AdminSettings,
    MetricsSettings,
    OtlpSettings,
    ZooKeeperSettings,
    ZooKeeperTlsSettings,
    SamplerSettings,
    StrategySettings,
    SplitSettings,
    MergeSettings,
    MoveSettings,
    AbsenceSettings,
    StateSettings,
    MessagingSettings,
    StorageSettings,
    ThrottlingSettings,
    AccessSettings,
    TokenSettings,
    BrokerClientSettings,
    TlsSettings,
    BrokerClientTlsSettings,
    ProtectionSettings,
    IgnoredSettings,
    OtherManagerSettings,
    HistorySettings,
    AnalysisSettings,
    PriceSettings,
)
"""Every component's settings, in the order of config/broker.conf."""

KEYS = Keys(LEAVES, key_names.PULSAR, plugins.own_settings, with_own)


def examine(path: Path, overrides: Mapping[str, str]) -> tuple[Settings, list[Problem]]:
    """The settings of a file, and everything that keeps a broker from running with them.

    A value that cannot be parsed is replaced by its default. Raises `ConfigError` for a file that
    cannot be read.
    """
    settings, bad_values = KEYS.parsed({**read_properties(path), **overrides})
    bad_names = {name for problem in bad_values for name in problem.names}
    others = (problem for problem in problems(settings) if bad_names.isdisjoint(problem.names))
    return settings, [*bad_values, *others]


def check(settings: Settings) -> None:
    """Raise `ConfigError` with all `problems` of settings that a broker cannot run with."""
    raise_if(problems(settings))


def problems(settings: Settings) -> list[Problem]:
    """Missing protection, unknown strategies, and values that contradict each other.

    `Keys.parse` checks the ranges.
    """
    missing = missing_protections(settings.leaf(ProtectionSettings))
    access = access_problems(
        settings.leaf(AccessSettings),
        settings.leaf(TokenSettings),
        settings.leaf(BrokerClientSettings),
    )
    tls = tls_problems(
        settings.leaf(BrokerSettings),
        settings.leaf(TlsSettings),
        settings.leaf(BrokerClientTlsSettings),
    )
    return [
        *(Problem((name,), text) for name, text in missing),
        *(Problem(names, text) for names, text in access),
        *strategy_problems(settings.leaf(StrategySettings)),
        *settings.contradictions(settings.by_leaf),
        *_address_problems(settings.leaf(BrokerSettings)),
        *(Problem(names, text) for names, text in tls),
    ]


def _address_problems(broker: BrokerSettings) -> Iterator[Problem]:
    text = refusal(lambda: advertised(broker))
    if text:
        yield Problem(("advertisedListeners", "internalListenerName"), text)
    elif text := refusal(lambda: binds(broker)):
        yield Problem(("bindAddresses",), text)
