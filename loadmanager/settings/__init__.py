"""broker.conf → frozen settings → the settings in force.

Every component declares its own leaf (`core.conf.conf`). This module lists the leaves, parses
Pulsar's properties syntax into them, and reports what is wrong with a file: values that are out of
range or cannot be parsed, values that contradict each other, and unknown keys with the nearest
known name.

`settings.live` overrides them with the dynamic values of a running broker.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, TypeVar

from loadmanager.adapters.admin.settings import AdminSettings
from loadmanager.adapters.files.properties import read_properties
from loadmanager.adapters.files.settings import HistorySettings
from loadmanager.adapters.metrics.settings import MetricsSettings
from loadmanager.adapters.security.settings import (
    BrokerClientSettings,
    BrokerClientTlsSettings,
    TlsSettings,
    TokenSettings,
)
from loadmanager.adapters.system.settings import SamplerSettings
from loadmanager.adapters.zookeeper.settings import ZooKeeperSettings
from loadmanager.core.conf import NO_EFFECT, Checked, Key
from loadmanager.core.errors import ConfigError
from loadmanager.core.load.manager import Manager
from loadmanager.core.messaging.settings import MessagingSettings, StorageSettings
from loadmanager.core.moves.settings import MoveSettings
from loadmanager.core.strategies import registry
from loadmanager.core.strategies.settings import OtherManagerSettings, StrategySettings
from loadmanager.core.strategies.splitting.merging import MergeSettings
from loadmanager.core.strategies.splitting.settings import SplitSettings
from loadmanager.core.throttling.settings import IgnoredSettings, ThrottlingSettings
from loadmanager.runtime.broker.access import AccessSettings
from loadmanager.runtime.shared.listeners import advertised, binds
from loadmanager.runtime.shared.settings import BrokerSettings, StateSettings
from loadmanager.settings.access import access_problems
from loadmanager.settings.protections import ProtectionSettings, missing_protections
from loadmanager.settings.pulsar import KEYS as PULSAR_KEYS
from loadmanager.settings.tls import tls_problems

LEAVES: tuple[type, ...] = (
    BrokerSettings,
    AdminSettings,
    MetricsSettings,
    ZooKeeperSettings,
    SamplerSettings,
    StrategySettings,
    SplitSettings,
    MergeSettings,
    MoveSettings,
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
)
"""Every component's settings, in the order of config/broker.conf."""

NUMBER_MAX = 2**63 - 1
UNKNOWN_MAX = 1_000
"""At most this many unknown keys are reported."""

SHOWN_MAX = 200
"""Characters of a wrong value that an error shows."""

HIDDEN = "*****"
"""What is shown of a secret."""

Leaf = TypeVar("Leaf")

_BOOLEANS = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class KnownKey:
    """One key, and the leaf and field that it sets."""

    key: Key
    leaf: type
    field: str
    annotation: Any
    default: Any


@dataclass(frozen=True, slots=True)
class Unknown:
    """A key that no component declares."""

    name: str
    nearest: str | None
    """The key that it probably means; None if there is none, or Pulsar has this key."""

    @property
    def of_pulsar(self) -> bool:
        """True if Pulsar has this key: it is not a typo."""
        return self.name in PULSAR_KEYS


def known_keys() -> dict[str, KnownKey]:
    """Every key and alias, as Pulsar spells it → the field that it sets.

    Includes the keys of third parties' strategies. Raises `ConfigError` for a key that two
    components declare.
    """
    return _known_keys((*LEAVES, *registry.own_settings()))


@cache
def _known_keys(leaves: tuple[type, ...]) -> dict[str, KnownKey]:
    known: dict[str, KnownKey] = {}
    for leaf in leaves:
        hints = typing.get_type_hints(leaf)
        for field, key in _keys(leaf):
            for name in (key.name, *key.aliases):
                if name in known:
                    raise ConfigError(
                        f"{name} is declared by {known[name].leaf.__name__} and by {leaf.__name__}"
                    )
                known[name] = KnownKey(key, leaf, field.name, hints[field.name], field.default)
    return known


def dynamic_names() -> list[str]:
    """Keys that may be changed on a running broker, sorted, in their present spelling."""
    return sorted(
        known.key.name
        for name, known in known_keys().items()
        if known.key.dynamic and name == known.key.name
    )


def _keys(leaf: type) -> Iterator[tuple[dataclasses.Field[Any], Key]]:
    for field in dataclasses.fields(leaf):
        if "key" in field.metadata:
            yield field, field.metadata["key"]


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings of one process, immutable; a component receives only its leaf."""

    by_leaf: Mapping[type, Any]
    given: Mapping[str, str]
    """Known keys that a file or an override set, as text."""
    unknown: tuple[Unknown, ...] = ()

    def leaf(self, kind: type[Leaf]) -> Leaf:
        """The settings of one component."""
        found: Leaf = self.by_leaf[kind]
        return found

    def with_overrides(self, overrides: Mapping[str, str]) -> Settings:
        """These settings with some keys changed. Raises `ConfigError` as `parse` does."""
        changed = parse({**self.given, **overrides})
        unknown = tuple(dict.fromkeys((*self.unknown, *changed.unknown)))[:UNKNOWN_MAX]
        return dataclasses.replace(changed, unknown=unknown)

    def without_effect(self) -> dict[str, str]:
        """Keys that are set and do nothing here, sorted, with the reasons."""
        known = known_keys()
        return {
            name: known[name].key.doc.removeprefix(NO_EFFECT)
            for name in sorted(self.given)
            if known[name].key.doc.startswith(NO_EFFECT)
        }

    def given_shown(self) -> dict[str, str]:
        """The given settings in order of name; secrets as `HIDDEN`."""
        shown = self.runtime()
        return {
            name: HIDDEN if shown.get(name) == HIDDEN else text
            for name, text in sorted(self.given.items())
        }

    def runtime(self) -> dict[str, str]:
        """Every key with its value, as broker.conf spells it; secrets as `HIDDEN`."""
        shown = {
            name: spell(getattr(self.by_leaf[known.leaf], known.field))
            for name, known in known_keys().items()
            if name == known.key.name
        }
        secret = {name for name in shown if shown[name] and known_keys()[name].key.secret}
        return shown | dict.fromkeys(secret, HIDDEN)


@dataclass(frozen=True, slots=True)
class Problem:
    """A value that cannot be in force, or values that cannot be in force together."""

    names: tuple[str, ...]
    """The keys of these values."""
    text: str


def load(path: Path | None = None, overrides: Mapping[str, str] | None = None) -> Settings:
    """Settings of a file (None: defaults), with `overrides` on top.

    Raises `ConfigError` naming every key whose value is out of range or cannot be parsed, its value
    and what is allowed.
    """
    return parse({**(read_properties(path) if path else {}), **(overrides or {})})


def parse(values: Mapping[str, str]) -> Settings:
    """Settings of key → text. Raises `ConfigError` as `load` does."""
    settings, bad_values = _parsed(values)
    _raise_if(bad_values)
    return settings


def examine(path: Path, overrides: Mapping[str, str]) -> tuple[Settings, list[Problem]]:
    """The settings of a file, and everything that keeps a broker from running with them.

    A value that cannot be parsed is replaced by its default. Raises `ConfigError` for a file that
    cannot be read. Plug-ins must have been registered before.
    """
    settings, bad_values = _parsed({**read_properties(path), **overrides})
    bad_names = {name for problem in bad_values for name in problem.names}
    others = (problem for problem in problems(settings) if bad_names.isdisjoint(problem.names))
    return settings, [*bad_values, *others]


def _raise_if(problems: Sequence[Problem]) -> None:
    """Raise `ConfigError` with all problems, if there are any."""
    if problems:
        raise ConfigError("; ".join(problem.text for problem in problems))


def _parsed(values: Mapping[str, str]) -> tuple[Settings, list[Problem]]:
    """The settings of key → text, and the values that cannot be parsed, by name."""
    known, bad_values = known_keys(), []
    fields: dict[type, dict[str, Any]] = {leaf: {} for leaf in (*LEAVES, *registry.own_settings())}
    given: dict[str, str] = {}
    # The last spelling of a key wins, whatever their order in the file.
    for name in sorted(
        (name for name in values if name in known),
        key=lambda name: (name == known[name].key.name) != known[name].key.older_first,
    ):
        target, text = known[name], values[name].strip()
        if name in target.key.aliases and text in ("", "-1"):
            continue
        if not text and target.key.name in given:
            continue
        try:
            fields[target.leaf][target.field] = parse_value(target, text)
        except ValueError as error:
            bad_values.append(
                Problem((target.key.name,), f"{name} = {text[:SHOWN_MAX]!r}: {error}")
            )
            continue
        given[target.key.name] = text
    by_leaf = {leaf: leaf(**chosen) for leaf, chosen in fields.items()}
    own = {leaf: by_leaf[leaf] for leaf in registry.own_settings()}
    by_leaf[StrategySettings] = dataclasses.replace(by_leaf[StrategySettings], own=own)
    bad_values.sort(key=lambda problem: problem.text)
    return Settings(by_leaf, given, tuple(_unknown(values, known))), bad_values


def _unknown(values: Mapping[str, str], known: Mapping[str, KnownKey]) -> Iterator[Unknown]:
    for name in values:
        if name not in known:
            yield Unknown(name, nearest(name))


@lru_cache(maxsize=UNKNOWN_MAX)
def nearest(name: str) -> str | None:
    """The key that an unknown one probably means; None if Pulsar has this key."""
    if name in PULSAR_KEYS:
        return None
    names = sorted(PULSAR_KEYS.union(known_keys()))
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.88)
    return near[0] if near else None


def parse_value(target: KnownKey, text: str) -> Any:
    """Parse one value; raises `ValueError` saying what is allowed."""
    key, kind = target.key, target.annotation
    optional = typing.get_origin(kind) in (types.UnionType, typing.Union)
    if optional:
        kind = next(member for member in typing.get_args(kind) if member is not types.NoneType)
    if not text:
        return None if optional else (() if typing.get_origin(kind) is tuple else target.default)
    if kind is bool:
        if text.lower() not in _BOOLEANS:
            raise ValueError("true or false is allowed")
        return _BOOLEANS[text.lower()]
    if kind in (int, float):
        return _number(key, kind, text)
    if typing.get_origin(kind) is tuple:
        return tuple(part.strip() for part in text.split(",") if part.strip())
    if key.choices is not None and text not in key.choices:
        raise ValueError(f"one of {', '.join(key.choices)} is allowed")
    return text


def _number(key: Key, kind: type, text: str) -> int | float:
    what = f"{'a whole number' if kind is int else 'a number'}{_range_text(key)} is allowed"
    try:
        if not text.isascii() or "_" in text:  # Python reads these, Java does not
            raise ValueError
        value = kind(text)
    except ValueError:
        raise ValueError(what) from None
    low = -NUMBER_MAX if key.minimum is None else key.minimum
    high = NUMBER_MAX if key.maximum is None else key.maximum
    if not low <= value <= high or value in (math.inf, -math.inf):
        raise ValueError(what)
    number: int | float = value
    return number


def _range_text(key: Key) -> str:
    if key.minimum is not None and key.maximum is not None:
        return f" from {spell(key.minimum)} to {spell(key.maximum)}"
    if key.minimum is not None:
        return f" of at least {spell(key.minimum)}"
    return f" of at most {spell(key.maximum)}" if key.maximum is not None else ""


def check(settings: Settings) -> None:
    """Raise `ConfigError` with all `problems` of settings that a broker cannot run with.

    Plug-ins must have been registered before.
    """
    _raise_if(problems(settings))


def strategies_of(settings: Settings) -> StrategySettings:
    """The settings of the strategies, for what runs them without a broker.

    Raises `ConfigError` for an unknown strategy, for two that do not go together, and for values of
    a strategy that contradict each other.
    """
    strategies = settings.leaf(StrategySettings)
    of_strategies = _contradictions(settings, registry.own_settings())
    _raise_if([*_strategy_problems(strategies), *of_strategies])
    return strategies


def problems(settings: Settings) -> list[Problem]:
    """Missing protection, unknown strategies, and values that contradict each other.

    `parse` checks the ranges.
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
        *_strategy_problems(settings.leaf(StrategySettings)),
        *_contradictions(settings, settings.by_leaf),
        *_address_problems(settings.leaf(BrokerSettings)),
        *(Problem(names, text) for names, text in tls),
    ]


def _address_problems(broker: BrokerSettings) -> Iterator[Problem]:
    text = _refusal(lambda: advertised(broker))
    if text:
        yield Problem(("advertisedListeners", "internalListenerName"), text)
    elif text := _refusal(lambda: binds(broker)):
        yield Problem(("bindAddresses",), text)


def _strategy_problems(strategies: StrategySettings) -> Iterator[Problem]:
    names = ("loadBalancerLoadSheddingStrategy", "loadBalancerLoadPlacementStrategy")
    texts: dict[tuple[str, ...], str] = {
        names[:1]: _refusal(lambda: registry.shedder(strategies.shedder)),
        names[1:]: _refusal(lambda: registry.placement(strategies.placement)),
    }
    if not any(texts.values()):
        texts[names] = _refusal(lambda: registry.check(strategies.shedder, strategies.placement))
    if Manager.of(strategies.load_manager_class) is None:
        allowed = " and ".join(manager.short_name for manager in Manager)
        texts[("loadManagerClassName",)] = (
            f"loadManagerClassName = {strategies.load_manager_class[:SHOWN_MAX]!r}: {allowed} are "
            "allowed"
        )
    yield from (Problem(names, text) for names, text in texts.items() if text)


def _refusal(check: Callable[[], object]) -> str:
    try:
        check()
    except ConfigError as error:
        return str(error)
    return ""


def _contradictions(settings: Settings, kinds: Iterable[type]) -> Iterator[Problem]:
    for kind in kinds:
        leaf = settings.by_leaf[kind]
        if isinstance(leaf, Checked):
            try:
                yield from [Problem(names, text) for names, text in leaf.contradictions()]
            except Exception as error:  # noqa: BLE001 - whatever a third party's leaf raises
                names = tuple(key.name for _, key in _keys(kind))
                yield Problem(names, f"{kind.__name__} cannot check its values: {error!r}")


def spell(value: Any) -> str:
    """The text of a value in broker.conf."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(value)
    return (
        str(int(value))
        if isinstance(value, float) and abs(value) < 1e15 and value == int(value)
        else str(value)
    )


def parse_overrides(pairs: list[str]) -> dict[str, str]:
    """`--set key=value` arguments as a mapping.

    Raises `ConfigError` for an argument without `=`, and for a key that neither this broker nor
    Pulsar has. Plug-ins must have been registered before.
    """
    overrides: dict[str, str] = {}
    for pair in pairs:
        name, separator, text = pair.partition("=")
        if not separator or not name.strip():
            raise ConfigError(f"--set {pair}: key=value is expected")
        name = name.strip()
        if name not in known_keys() and name not in PULSAR_KEYS:
            near = nearest(name)
            hint = f"; did you mean {near}?" if near else ""
            raise ConfigError(f"--set {name}: there is no such key{hint}")
        overrides[name] = text
    return overrides


def unknown_text(unknown: tuple[Unknown, ...]) -> str:
    """Unknown keys on one line: the number of Pulsar's, and the names of the others."""
    others = [
        f"{item.name} (did you mean {item.nearest}?)" if item.nearest else item.name
        for item in unknown
        if not item.of_pulsar
    ]
    count = len(unknown) - len(others)
    ours = [f"{count} of Pulsar's keys"] if count else []
    return ", ".join([*others, *ours])


def template() -> str:
    """The text of config/broker.conf: each component's keys with a comment and the default."""
    lines = [
        "# Every key that loadmanager honours, with its default. Syntax and names are those of",
        "# Apache Pulsar: its broker.conf works, too. A running broker can change [dynamic] keys.",
        "# Check a file without starting a broker: loadmanager config check FILE",
    ]
    for leaf in (*LEAVES, *registry.own_settings()):
        lines += ["", f"### {(leaf.__doc__ or leaf.__name__).splitlines()[0].rstrip('.')}"]
        for field, key in _keys(leaf):
            allowed = f" ({', '.join(key.choices)})" if key.choices else ""
            dynamic = " [dynamic]" if key.dynamic else ""
            lines += ["", f"# {key.doc}{allowed}{dynamic}", f"{key.name}={spell(field.default)}"]
    return "\n".join(lines) + "\n"
