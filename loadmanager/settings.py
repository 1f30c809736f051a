"""broker.conf → frozen settings → the settings in force.

Every component declares its own leaf (`core.conf.conf`). This module lists the leaves, parses
Pulsar's properties syntax into them, and says what is wrong with a file: values that are out of
range or cannot be parsed, values that contradict each other, unknown keys (with the nearest known
name).

`LiveSettings` is what a running broker goes by: the file, and above it the dynamic values that the
metadata store holds. A stored value that cannot be used takes out itself only.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, TypeVar

from loadmanager.adapters.admin.settings import AdminSettings
from loadmanager.adapters.files.properties import read_properties as read_properties  # noqa: PLC0414 - part of this module
from loadmanager.adapters.files.settings import HistorySettings
from loadmanager.adapters.metrics.settings import MetricsSettings
from loadmanager.adapters.system.settings import SamplerSettings
from loadmanager.adapters.zookeeper.settings import ZooKeeperSettings
from loadmanager.core.conf import Key, Live
from loadmanager.core.errors import BadInputError, ConfigError
from loadmanager.core.messaging.settings import MessagingSettings
from loadmanager.core.strategies import registry
from loadmanager.core.strategies.settings import StrategySettings
from loadmanager.core.strategies.splitting.settings import SplitSettings
from loadmanager.core.throttling.settings import ThrottlingSettings
from loadmanager.runtime.shared.settings import BrokerSettings

LEAVES: tuple[type, ...] = (
    BrokerSettings,
    AdminSettings,
    MetricsSettings,
    ZooKeeperSettings,
    SamplerSettings,
    StrategySettings,
    SplitSettings,
    MessagingSettings,
    ThrottlingSettings,
    HistorySettings,
)
"""Every component's settings, in the order of config/broker.conf."""

NUMBER_MAX = 2**63 - 1
UNKNOWN_MAX = 1_000
"""So many unknown keys are told of."""

Leaf = TypeVar("Leaf")

MODULAR = "ModularLoadManagerImpl"
REJECTED = "loadManagerRejectedDynamicConfiguration"
"""What `LiveSettings.in_force` calls the stored values that are not in force."""

_BOOLEANS = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class KnownKey:
    """One key with the leaf and field that it sets."""

    key: Key
    leaf: type
    field: str
    annotation: Any
    default: Any


@dataclass(frozen=True, slots=True)
class Unknown:
    """A key that nobody knows, and the nearest known name if one is close."""

    name: str
    nearest: str | None


def known_keys() -> dict[str, KnownKey]:
    """Every key and alias that is understood; Pulsar's spelling → where it goes.

    Includes those of third parties' strategies. Raises `ConfigError` for a key that two components
    declare.
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

    def runtime(self) -> dict[str, str]:
        """Every key with the value in force, as broker.conf would spell it."""
        return {
            name: spell(getattr(self.by_leaf[known.leaf], known.field))
            for name, known in known_keys().items()
            if name == known.key.name
        }


def load(path: Path | None = None, overrides: Mapping[str, str] | None = None) -> Settings:
    """Settings of a file (None: defaults) with `overrides` on top.

    Raises `ConfigError` naming every bad key, its value and what is allowed.
    """
    return parse({**(read_properties(path) if path else {}), **(overrides or {})})


def parse(values: Mapping[str, str]) -> Settings:
    """Settings of key → text; see `load`."""
    known, problems = known_keys(), []
    fields: dict[type, dict[str, Any]] = {leaf: {} for leaf in (*LEAVES, *registry.own_settings())}
    given: dict[str, str] = {}
    # An alias gives way to the present spelling of the same key, whatever their order in the file.
    for name in sorted(
        (name for name in values if name in known), key=lambda name: name == known[name].key.name
    ):
        target, text = known[name], values[name].strip()
        try:
            fields[target.leaf][target.field] = _value(target, text)
        except ValueError as error:
            problems.append(f"{name} = {text!r}: {error}")
            continue
        given[target.key.name] = text
    if problems:
        raise ConfigError("; ".join(sorted(problems)))
    by_leaf = {leaf: leaf(**chosen) for leaf, chosen in fields.items()}
    own = {leaf: by_leaf[leaf] for leaf in registry.own_settings()}
    by_leaf[StrategySettings] = dataclasses.replace(by_leaf[StrategySettings], own=own)
    return Settings(by_leaf, given, tuple(_unknown(values, known)))


def _unknown(values: Mapping[str, str], known: Mapping[str, KnownKey]) -> Iterator[Unknown]:
    for name in values:
        if name not in known:
            yield Unknown(name, _nearest(name))


@lru_cache(maxsize=UNKNOWN_MAX)
def _nearest(name: str) -> str | None:
    near = difflib.get_close_matches(name, known_keys(), n=1, cutoff=0.88)
    return near[0] if near else None


def _value(target: KnownKey, text: str) -> Any:
    """Parse one value; raises `ValueError` saying what is allowed."""
    key, kind = target.key, target.annotation
    optional = typing.get_origin(kind) in (types.UnionType, typing.Union)
    if optional:
        kind = next(member for member in typing.get_args(kind) if member is not types.NoneType)
    if not text and kind is not str:
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


@dataclass(frozen=True, slots=True)
class Problem:
    """Settings that cannot be in force together, or one that cannot be in force at all."""

    names: tuple[str, ...]
    text: str


def check(settings: Settings) -> None:
    """Raise `ConfigError` for settings that a broker cannot run with, naming all of their
    `problems`.

    Plug-ins must have been registered before.
    """
    found = problems(settings)
    if found:
        raise ConfigError("; ".join(problem.text for problem in found))


def problems(settings: Settings) -> list[Problem]:
    """Unknown strategies, and values that contradict each other. (`parse` has
    checked the ranges.)
    """
    return [*_strategy_problems(settings.leaf(StrategySettings)), *_contradictions(settings)]


def _strategy_problems(strategies: StrategySettings) -> Iterator[Problem]:
    names = ("loadBalancerLoadSheddingStrategy", "loadBalancerLoadPlacementStrategy")
    texts: dict[tuple[str, ...], str] = {
        names[:1]: _refusal(lambda: registry.shedder(strategies.shedder)),
        names[1:]: _refusal(lambda: registry.placement(strategies.placement)),
    }
    if not any(texts.values()):
        texts[names] = _refusal(lambda: registry.check(strategies.shedder, strategies.placement))
    if registry.short_name(strategies.load_manager_class) != MODULAR:
        texts[("loadManagerClassName",)] = (
            f"loadManagerClassName = {strategies.load_manager_class!r}: {MODULAR} is allowed"
            " (this broker runs no other load manager, and would place nothing)"
        )
    yield from (Problem(names, text) for names, text in texts.items() if text)


def _refusal(check: Callable[[], object]) -> str:
    try:
        check()
    except ConfigError as error:
        return str(error)
    return ""


def _contradictions(settings: Settings) -> Iterator[Problem]:
    strategies, broker = settings.leaf(StrategySettings), settings.leaf(BrokerSettings)
    low, high = "loadBalancerAvgShedderLowThreshold", "loadBalancerAvgShedderHighThreshold"
    if strategies.avg_low > strategies.avg_high:
        text = f"{low} = {strategies.avg_low:g} is above {high} = {strategies.avg_high:g}"
        yield Problem((low, high), text)
    low, high = (
        "loadBalancerReportUpdateMinIntervalMillis",
        "loadBalancerReportUpdateMaxIntervalMinutes",
    )
    if broker.report_interval_min_ms > broker.report_interval_max_minutes * 60_000:
        text = (
            f"{low} = {broker.report_interval_min_ms} is longer than {high} = "
            f"{broker.report_interval_max_minutes:g}"
        )
        yield Problem((low, high), text)
    if broker.broker_port == broker.web_port != 0:
        text = f"brokerServicePort and webServicePort are both {broker.web_port}"
        yield Problem(("brokerServicePort", "webServicePort"), text)


def dynamic_names() -> list[str]:
    """Keys that may be changed on a running broker, sorted, in their present spelling."""
    return sorted(
        known.key.name
        for name, known in known_keys().items()
        if known.key.dynamic and name == known.key.name
    )


class LiveSettings:
    """What is in force in a running broker: one `Live` per leaf, which its users hold.

    `apply` takes the dynamic values that the metadata store holds. One that cannot be used falls
    back to the last good value of its key (the file's, if there was no other since the process
    started), and `rejected` says why; the others act.
    """

    def __init__(self, settings: Settings) -> None:
        self._file = settings
        self._settings = settings
        self._lives: dict[type, Live[Any]] = {
            leaf: Live(value) for leaf, value in settings.by_leaf.items()
        }
        self._good: dict[str, str] = {}
        """The dynamic values in force."""
        self.rejected: dict[str, str] = {}
        """Key → `key = value: reason`, of stored values that are not in force."""

    def live(self, kind: type[Leaf]) -> Live[Leaf]:
        """The settings of one component; always the same object."""
        return self._lives[kind]

    def in_force(self) -> dict[str, str]:
        """Every key with the value in force, as broker.conf would spell it, and what
        is rejected.
        """
        shown = self._settings.runtime()
        return {**shown, REJECTED: "; ".join(self.rejected.values())} if self.rejected else shown

    def dynamic_names(self) -> list[str]:
        """Keys that may be changed on a running broker."""
        return dynamic_names()

    def apply(self, stored: Mapping[str, object]) -> None:
        """Put stored dynamic values in force. Keys that nobody knows are another program's."""
        self._settings, self._good, self.rejected = self._accept(stored)
        for leaf, live in self._lives.items():
            live.set(self._settings.by_leaf[leaf])

    def reject_all(self, where: str, reason: str) -> None:
        """The stored values cannot be read: what is in force stays in force."""
        self.rejected = {where: reason}

    def changed(
        self, stored: Mapping[str, object], name: str, value: str | None
    ) -> dict[str, object]:
        """The stored values with one of them set, or removed (None).

        Raises `BadInputError` with the reason when the key is not dynamic, or when `apply` would
        reject the value, or another one because of it.
        """
        if value is not None or name not in stored:
            _require_dynamic(name)
        spellings = _spellings(name)
        after = {other: text for other, text in stored.items() if other not in spellings}
        if value is not None:
            after[spellings[0]] = value
        before = self._accept(stored)[2]
        for other, reason in self._accept(after)[2].items():
            if other == spellings[0] or other not in before:
                raise BadInputError(reason)
        return after

    def _accept(
        self, stored: Mapping[str, object]
    ) -> tuple[Settings, dict[str, str], dict[str, str]]:
        """The settings, the dynamic values in them, and why each other stored value is rejected."""
        accepted: dict[str, str] = {}
        rejected: dict[str, str] = {}
        values = _by_present_name(stored)
        for name, value in values.items():
            why_not = _unusable(name, value)
            if why_not:
                rejected[name] = f"{name} = {_shortened(value)}: {why_not}"
                if name in self._good:
                    accepted[name] = self._good[name]
            else:
                accepted[name] = _text(value)
        while True:
            settings = self._file.with_overrides(accepted)
            involved = {
                name: problem.text
                for problem in problems(settings)
                for name in self._culprits(problem, accepted)
            }
            if not involved:
                return settings, accepted, rejected
            for name, text in involved.items():
                rejected[name] = f"{name} = {_shortened(values[name])}: {text}"
                good = self._good.get(name)
                if good is None or accepted[name] == good:
                    del accepted[name]
                else:
                    accepted[name] = good

    def _culprits(self, problem: Problem, accepted: Mapping[str, str]) -> list[str]:
        """The dynamic values that make a problem: the new ones, or without a new one those in
        force.
        """
        dynamic = [name for name in problem.names if name in accepted]
        return [name for name in dynamic if accepted[name] != self._good.get(name)] or dynamic


def _spellings(name: str) -> tuple[str, ...]:
    """All spellings of a key, the present one first; of an unknown key its name."""
    known = known_keys().get(name)
    return (name,) if known is None else (known.key.name, *known.key.aliases)


def _by_present_name(stored: Mapping[str, object]) -> dict[str, object]:
    """Values of known keys in the order of their names; an older spelling gives way to the present
    one.
    """
    known = known_keys()
    names = sorted(
        (name for name in stored if name in known),
        key=lambda name: (known[name].key.name, name == known[name].key.name),
    )
    return {known[name].key.name: stored[name] for name in names}


def _unusable(name: str, value: object) -> str:
    """Why a stored value of a known key cannot be in force by itself; empty if it can."""
    known = known_keys()[name]
    if not known.key.dynamic:
        return _why_static(known.key)
    if not isinstance(value, str | int | float):
        return "a string is allowed"
    try:
        _value(known, _text(value).strip())
    except ValueError as error:
        return str(error)
    return ""


def _text(value: object) -> str:
    return value if isinstance(value, str) else spell(value)


def _shortened(value: object) -> str:
    return repr(_text(value))[:200] if isinstance(value, str | int | float) else repr(value)[:200]


def _require_dynamic(name: str) -> None:
    """Raise `BadInputError` for a key that cannot be changed on a running broker, saying why."""
    known = known_keys().get(name)
    if known is None:
        near = _nearest(name)
        raise BadInputError(
            f"{name} is not a key of broker.conf" + (f"; did you mean {near}?" if near else "")
        )
    if not known.key.dynamic:
        raise BadInputError(
            f"{name} cannot be changed on a running broker: {_why_static(known.key)}"
        )


def _why_static(key: Key) -> str:
    """Why a key is not dynamic: those without effect on a broker say so in their documentation."""
    if key.doc.startswith(("Accepted", "Extensible manager")):
        return f"{key.doc[0].lower()}{key.doc[1:]}"
    return "it is read when the broker starts"


def spell(value: Any) -> str:
    """A value as broker.conf spells it."""
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

    Raises `ConfigError` for one without `=`; unknown keys are reported as those of a file are.
    """
    overrides: dict[str, str] = {}
    for pair in pairs:
        name, separator, text = pair.partition("=")
        if not separator or not name.strip():
            raise ConfigError(f"--set {pair}: key=value is expected")
        overrides[name.strip()] = text
    return overrides


def unknown_text(unknown: tuple[Unknown, ...]) -> str:
    """Unknown keys on one line, each with the nearest known name where one is close."""
    return ", ".join(
        f"{item.name} (did you mean {item.nearest}?)" if item.nearest else item.name
        for item in unknown
    )


def template() -> str:
    """The text of config/broker.conf: every key that is honoured, its default, one comment line
    each, by component.
    """
    lines = [
        (
            "# Every key that loadmanager honours, with its default. The syntax and the names are "
            "Apache Pulsar's: a broker.conf of Pulsar works, too."
        ),
        "# Check a file without starting: loadmanager config check FILE",
    ]
    for leaf in LEAVES:
        lines += ["", f"### {(leaf.__doc__ or leaf.__name__).splitlines()[0].rstrip('.')}"]
        for field, key in _keys(leaf):
            allowed = f" ({', '.join(key.choices)})" if key.choices else ""
            dynamic = " [dynamic]" if key.dynamic else ""
            lines += ["", f"# {key.doc}{allowed}{dynamic}", f"{key.name}={spell(field.default)}"]
    return "\n".join(lines) + "\n"
