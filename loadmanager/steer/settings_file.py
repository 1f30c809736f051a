"""The configuration of `loadmanager fleet`: a file with a section for each cluster.

    # for all clusters
    loadBalancerLoadSheddingStrategy=ThresholdShedder
    [east]
    pulsar=http://broker-1:8080,http://broker-2:8080
    mode=advise

Keys are those of the daemon and, of broker.conf, those that decide about moves. Every other key is
refused: it would do nothing.
"""

from __future__ import annotations

import dataclasses
import re
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loadmanager.engine.moves.settings import MoveSettings
from loadmanager.engine.strategies import registry
from loadmanager.engine.strategies.settings import OtherManagerSettings, StrategySettings
from loadmanager.engine.strategies.splitting.settings import SplitSettings
from loadmanager.kit import key_names
from loadmanager.kit.conf import NO_EFFECT
from loadmanager.kit.errors import BadInputError, ConfigError
from loadmanager.kit.names import SYSTEM_NAMESPACE, NamespaceName, is_system_namespace
from loadmanager.kit.security.settings import TokenSettings
from loadmanager.kit.settings import Keys, KnownKey, Settings, parse_value
from loadmanager.kit.zookeeper.settings import ZooKeeperSettings, check_url
from loadmanager.leader import plugins
from loadmanager.leader.strategy_keys import strategies_of, with_own
from loadmanager.leader.windows import Window
from loadmanager.steer.http.fleet_access import FleetApiSettings
from loadmanager.steer.pulsar.settings import METADATA_URL, PulsarSettings
from loadmanager.steer.settings import ACT, APPROVE, FleetSettings

FILE_BYTES_MAX = 1_000_000
CLUSTERS_MAX = 50
SOCKET_BYTES_MAX = 107
"""Of the path of a Unix socket, as the kernel has it."""
LEAVES: tuple[type, ...] = (PulsarSettings, FleetSettings, FleetApiSettings, TokenSettings)
ACTING: tuple[type, ...] = (StrategySettings, MoveSettings, SplitSettings)
"""Leaves of broker.conf whose keys decide about moves; those of single strategies are added."""
ACTING_KEYS = Keys(
    (*ACTING, ZooKeeperSettings, OtherManagerSettings),
    key_names.PULSAR | key_names.OURS,
    plugins.own_settings,
    with_own,
)
PULSAR_DECIDES = frozenset({"algorithm", "flow_difference_percent", "hits_min"})
"""Settings of splits that have no effect: where a bundle is split is up to its owner."""
DEFAULTS = {
    "loadBalancerLoadSheddingStrategy": "BalancedShedder",
    "loadBalancerLoadPlacementStrategy": "BalancedPlacement",
    "loadManagerMovesAtOnceMax": "1",
    "loadManagerMovesPerMinuteMax": "6",
    "loadBalancerBrokerLoadDataTTLInSeconds": "75",
    "loadBalancerAutoUnloadSplitBundlesEnabled": "false",
}
"""Where the daemon differs from a broker: it is more careful, and goes by what bundles carry, since
a broker's CPU shows a move minutes later.
"""
STORED_DEFAULTS = {"loadBalancerBrokerLoadDataTTLInSeconds": "1800"}
"""Reports in ZooKeeper may be a quarter of an hour old."""
_SECTION = re.compile(r"\[([A-Za-z0-9][-.\w]{0,62})\]", re.ASCII)


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """One cluster."""

    name: str
    pulsar: PulsarSettings
    fleet: FleetSettings
    strategies: StrategySettings
    moves: MoveSettings
    splits: SplitSettings
    api: FleetApiSettings
    tokens: TokenSettings
    store: ZooKeeperSettings | None = None
    """Where the lock of daemons on several hosts is, below a root of the cluster's own."""
    given: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Key → text, as the file and the command line say."""
    decides_by: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Key → text of the strategies, with what the daemon has other defaults for than a broker."""

    @property
    def has_tokens(self) -> bool:
        """True if clients of the HTTP API can prove who they are."""
        return bool(self.tokens.secret_key or self.tokens.public_key)

    def with_changes(self, changes: Mapping[str, str]) -> ClusterSettings:
        """These settings with some keys changed. Raises `ConfigError`."""
        return parse(self.name, {**self.given, **changes})


def known_keys() -> dict[str, KnownKey]:
    """The daemon's own keys."""
    keys: dict[str, KnownKey] = {}
    for leaf in LEAVES:
        hints = typing.get_type_hints(leaf)
        for field in dataclasses.fields(leaf):
            key = field.metadata["key"]
            keys[key.name] = KnownKey(key, leaf, field.name, hints[field.name], field.default)
    return keys


def read_file(path: Path) -> dict[str, dict[str, str]]:
    """Section → key → text; keys before the first section count for every section.

    Raises `ConfigError` naming the line.
    """
    try:
        if path.stat().st_size > FILE_BYTES_MAX:
            raise ConfigError(f"{path}: larger than {FILE_BYTES_MAX} bytes")
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 at byte {error.start}") from None
    common: dict[str, str] = {}
    sections: dict[str, dict[str, str]] = {}
    values = common
    for number, raw in enumerate(lines, 1):
        line = raw.strip()
        if not line or line[0] in "#;":
            continue
        section = _SECTION.fullmatch(line)
        if section is not None:
            if section[1] in sections:
                raise ConfigError(f"{path}, line {number}: a second section {line}")
            values = sections[section[1]] = {}
            continue
        name, separator, text = line.partition("=")
        if not separator or line.startswith("["):
            raise ConfigError(f"{path}, line {number}: key=value or [cluster] is expected")
        values[name.strip()] = text.strip()
    if not sections:
        return {"default": common}
    return {name: {**common, **own} for name, own in sections.items()}


def clusters(
    sections: Mapping[str, Mapping[str, str]], overrides: Mapping[str, str]
) -> list[ClusterSettings]:
    """The settings of every cluster. Raises `ConfigError` naming cluster, key and value."""
    if len(sections) > CLUSTERS_MAX:
        raise ConfigError(f"{len(sections)} clusters: {CLUSTERS_MAX} are allowed")
    settings = [parse(name, {**values, **overrides}) for name, values in sections.items()]
    sockets = [cluster.api.socket for cluster in settings if cluster.api.socket]
    if len(set(sockets)) < len(sockets):
        raise ConfigError("apiSocket: each cluster needs a path of its own")
    return settings


def parse(name: str, values: Mapping[str, str]) -> ClusterSettings:
    """One cluster's settings. Raises `ConfigError`."""
    keys, problems = known_keys(), []
    own: dict[type, dict[str, Any]] = {leaf: {} for leaf in LEAVES}
    others: dict[str, str] = {}
    for key, text in values.items():
        target = keys.get(key)
        if target is None:
            others[key] = text
            continue
        try:
            own[target.leaf][target.field] = parse_value(target, text)
        except ValueError as error:
            problems.append(f"{key} = {text!r}: {error}")
    if not own[PulsarSettings].get("urls"):
        problems.append("pulsar: http://host:8080 of at least one broker is expected (--pulsar)")
    if own[PulsarSettings].get("token_file") and own[PulsarSettings].get("basic_file"):
        problems.append("tokenFile and basicFile: Pulsar is asked with one of them")
    stored = any(_is_store_url(key) for key in others)
    problems += [f"{key}: {why}" for key in others if (why := _without_effect(key, stored))]
    if problems:
        raise ConfigError(f"cluster {name}: {'; '.join(problems)}")
    fleet = FleetSettings(**own[FleetSettings])
    pulsar = PulsarSettings(**own[PulsarSettings])
    problems += _api_problems(FleetApiSettings(**own[FleetApiSettings]), own[TokenSettings])
    if problems:
        raise ConfigError(f"cluster {name}: {'; '.join(problems)}")
    try:
        _check_metadata(pulsar, fleet)
        slow = STORED_DEFAULTS if pulsar.metadata_url else {}
        texts = {**DEFAULTS, **slow, **others}
        decided = ACTING_KEYS.parse(texts)
        return ClusterSettings(
            name,
            pulsar,
            _checked(fleet),
            _strategies(decided),
            decided.leaf(MoveSettings),
            decided.leaf(SplitSettings),
            FleetApiSettings(**own[FleetApiSettings]),
            TokenSettings(**own[TokenSettings]),
            _store(name, decided, fleet) if stored else None,
            dict(values),
            {key: text for key, text in texts.items() if _of_strategies(key)},
        )
    except (ConfigError, BadInputError) as error:
        raise ConfigError(f"cluster {name}: {error}") from None


def _api_problems(api: FleetApiSettings, tokens: Mapping[str, Any]) -> Iterator[str]:
    if len(api.socket.encode()) > SOCKET_BYTES_MAX:
        yield f"apiSocket: a path of at most {SOCKET_BYTES_MAX} bytes is possible"
    if not (tokens.get("secret_key") or tokens.get("public_key")):
        for key, given in (
            ("superUserRoles", api.superusers),
            ("authenticateMetricsEndpoint", api.metrics),
        ):
            if given:
                yield f"{key}: it needs tokenSecretKey or tokenPublicKey"


def _check_metadata(pulsar: PulsarSettings, fleet: FleetSettings) -> None:
    """Raises `ConfigError`."""
    if not pulsar.metadata_url:
        return
    check_url(METADATA_URL, pulsar.metadata_url)
    if fleet.mode in (APPROVE, ACT):
        raise ConfigError(
            f"{METADATA_URL}: what brokers publish there may be 15 minutes old, which is too old "
            f"to move bundles by; leave it out with mode={fleet.mode}, or choose observe or advise"
        )


def _is_store_url(key: str) -> bool:
    declared = ACTING_KEYS.by_name().get(key)
    return declared is not None and (declared.leaf, declared.field) == (ZooKeeperSettings, "url")


def _of_strategies(key: str) -> bool:
    declared = ACTING_KEYS.by_name().get(key)
    own = (StrategySettings, *registry.own_settings())
    return declared is not None and declared.leaf in own


def _store(name: str, decided: Settings, fleet: FleetSettings) -> ZooKeeperSettings:
    """The metadata store below a root of the cluster's own. Raises `ConfigError`."""
    if fleet.restore_pulsar:
        raise ConfigError(
            "restorePulsarOnStop: with metadataStoreUrl another daemon takes over instead"
        )
    given = decided.leaf(ZooKeeperSettings)
    root = "/".join(part for part in (given.chroot, "loadmanager-fleet", name) if part)
    return dataclasses.replace(given, url=f"zk:{given.hosts}/{root}")


def _without_effect(key: str, stored: bool) -> str | None:
    """Why a key of broker.conf cannot be set here. `stored`: whether there is a metadata store."""
    declared = ACTING_KEYS.by_name().get(key)
    if declared is None:
        if key in ACTING_KEYS.others:
            return "it does nothing here"
        near = ACTING_KEYS.nearest(key)
        return "there is no such key" + (f"; did you mean {near}?" if near else "")
    if declared.key.doc.startswith(NO_EFFECT):
        return f"it does nothing here: {declared.key.doc.removeprefix(NO_EFFECT)}"
    if declared.leaf is SplitSettings and declared.field in PULSAR_DECIDES:
        return "it does nothing here: Pulsar chooses where it splits a bundle"
    if declared.leaf is ZooKeeperSettings and declared.field != "session_expired_policy":
        return None if stored else "without metadataStoreUrl it does nothing here"
    if declared.leaf in (*ACTING, *registry.own_settings()):
        return None
    return "it does nothing here"


def _checked(fleet: FleetSettings) -> FleetSettings:
    for text in fleet.quiet_hours:
        try:
            Window.parse(text)
        except BadInputError as error:
            raise ConfigError(f"quietHours: {error}") from None
    if fleet.canary_namespace:
        try:
            system = is_system_namespace(str(NamespaceName.parse(fleet.canary_namespace)))
        except BadInputError as error:
            raise ConfigError(f"canaryNamespace: {error}") from None
        if system:
            raise ConfigError("canaryNamespace: bundles of Pulsar's own namespaces are not moved")
    for shadow in fleet.shadows:
        if registry.short_name(shadow) not in registry.SHEDDERS:
            allowed = ", ".join(sorted(registry.SHEDDERS))
            raise ConfigError(f"shadowStrategies = {shadow[:100]!r}: one of {allowed} is allowed")
    return fleet


def _strategies(decided: Settings) -> StrategySettings:
    """Both managers' brokers are read into the same reports, and Pulsar's own topics stay."""
    strategies = strategies_of(decided)
    namespaces = (*strategies.excluded_namespaces, SYSTEM_NAMESPACE)
    return dataclasses.replace(strategies, excluded_namespaces=tuple(dict.fromkeys(namespaces)))
