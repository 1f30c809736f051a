"""The settings in force in a running broker: those of its file, overridden by dynamic values.

The metadata store holds the dynamic values. One that cannot be used is left out; the others act.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from loadmanager.broker.settings import KEYS, check, problems
from loadmanager.engine.strategies import registry
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.kit.conf import Key, Live
from loadmanager.kit.errors import BadInputError, ConfigError
from loadmanager.kit.settings import Problem, SettingOrigin, Settings, parse_value, spell

REJECTED = "loadManagerRejectedDynamicConfiguration"
"""What `LiveSettings.in_force` calls the stored values that are not in force."""

NOT_OF_A_CYCLE = ("loadManagerClassName", "loadBalancerSheddingIntervalMinutes")
"""Keys beside those of strategies that a dry run does not depend on."""

Leaf = TypeVar("Leaf")


def check_of_strategies(names: Iterable[str]) -> None:
    """Raise `BadInputError` for a key that a dry run does not depend on."""
    keys = KEYS.by_name()
    for name in names:
        leaf = keys[name].leaf if name in keys else None
        if leaf is not StrategySettings and leaf not in registry.own_settings():
            like = KEYS.nearest(name)
            hint = f"; did you mean {like}?" if like and name not in keys else ""
            raise BadInputError(f"{name[:100]} is not a key of strategies{hint}")
        if keys[name].key.name in NOT_OF_A_CYCLE:
            raise BadInputError(f"{name} makes no difference to a single cycle")


class LiveSettings:
    """The settings in force: one `Live` per leaf, which the users of the leaf hold.

    `apply` takes the stored dynamic values. Where a value cannot be used, the last good value of
    its key stays in force (at first that of the file), and `rejected` says why; the others act.
    """

    def __init__(self, settings: Settings) -> None:
        self._file = settings
        self._settings = settings
        self._lives: dict[type, Live[Any]] = {
            leaf: Live(value) for leaf, value in settings.by_leaf.items()
        }
        self._good: dict[str, str] = {}
        """The dynamic values in force."""
        self._stored: Mapping[str, object] = {}
        self.rejected: dict[str, str] = {}
        """Key → the key, the value and the reason, of stored values that are not in force."""

    def live(self, kind: type[Leaf]) -> Live[Leaf]:
        """The settings of one component; always the same object."""
        return self._lives[kind]

    def in_force(self) -> dict[str, str]:
        """Every key with the value in force, as broker.conf spells it; `REJECTED` → the reasons."""
        shown = self._settings.runtime()
        return {**shown, REJECTED: "; ".join(self.rejected.values())} if self.rejected else shown

    def origins(self) -> dict[str, SettingOrigin]:
        """Every key → where its value in force comes from."""
        return {name: self._origin(name) for name in self._settings.runtime()}

    def _origin(self, name: str) -> SettingOrigin:
        if name in self._good:
            return "settings set"
        if name in self._file.overridden:
            return "--set"
        return "broker.conf" if name in self._file.given else "default"

    def dynamic_names(self) -> list[str]:
        """Keys that may be changed on a running broker."""
        return KEYS.dynamic_names()

    def apply(self, stored: Mapping[str, object]) -> list[str]:
        """Put stored dynamic values in force; returns what changed, as `key: before -> after`.

        Unknown keys belong to another program.
        """
        self._stored, before = stored, self._settings
        self._settings, self._good, self.rejected = self._accept(stored)
        if self._settings.by_leaf == before.by_leaf:
            return []
        for leaf, live in self._lives.items():
            live.set(self._settings.by_leaf[leaf])
        was = before.runtime()
        return [
            f"{name}: {was[name]} -> {value}"
            for name, value in self._settings.runtime().items()
            if was[name] != value
        ]

    def reload(self, file: Settings) -> tuple[list[str], list[str]]:
        """Put the dynamic keys of a changed file in force, below the stored values; returns what
        changed, as `apply` does, and the other changed keys, which take a restart.

        Raises `ConfigError` if the values contradict each other; nothing changes then.
        """
        before, dynamic = self._file.given, set(self.dynamic_names())
        differ = {
            name for name in {*before, *file.given} if before.get(name) != file.given.get(name)
        }
        given = {name: text for name, text in before.items() if name not in dynamic}
        given |= {name: text for name, text in file.given.items() if name in dynamic}
        changed = KEYS.parse(given)
        check(changed)
        self._file = dataclasses.replace(changed, overridden=file.overridden)
        return self.apply(self._stored), sorted(differ - dynamic)

    def strategies_with(self, changed: Mapping[str, str]) -> StrategySettings:
        """The settings of strategies in force, with some keys changed, for a dry run.

        Raises `BadInputError` for a key that does not belong to a strategy, and for a value, or
        values together, that could not be in force.
        """
        check_of_strategies(changed)
        try:
            settings = self._settings.with_overrides(changed)
            check(settings)
        except ConfigError as error:
            raise BadInputError(str(error)) from None
        return settings.leaf(StrategySettings)

    def reject_all(self, where: str, reason: str) -> None:
        """Keep what is in force, because the stored values cannot be read."""
        self.rejected = {where: reason}

    def changed(
        self, stored: Mapping[str, object], name: str, value: str | None
    ) -> dict[str, object]:
        """The stored values with one value set, or removed (None).

        Raises `BadInputError` with the reason when the key is not dynamic, or when `apply` would
        reject this value, or reject another value because of it.
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
        """The settings, the dynamic values in them, and the reason why each other is rejected."""
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
                rejected[name] = text
                good = self._good.get(name)
                if good is None or accepted[name] == good:
                    del accepted[name]
                else:
                    accepted[name] = good

    def _culprits(self, problem: Problem, accepted: Mapping[str, str]) -> list[str]:
        """The dynamic values that cause a problem: the new ones, else those in force."""
        dynamic = [name for name in problem.names if name in accepted]
        return [name for name in dynamic if accepted[name] != self._good.get(name)] or dynamic


def _spellings(name: str) -> tuple[str, ...]:
    """The present spelling of a key and its aliases; only the name if the key is unknown."""
    declared = KEYS.by_name().get(name)
    return (name,) if declared is None else (declared.key.name, *declared.key.aliases)


def _by_present_name(stored: Mapping[str, object]) -> dict[str, object]:
    """Values of known keys, sorted by name; the present spelling wins over an alias."""
    keys = KEYS.by_name()
    names = sorted(
        (name for name in stored if name in keys),
        key=lambda name: (keys[name].key.name, name == keys[name].key.name),
    )
    return {keys[name].key.name: stored[name] for name in names}


def _unusable(name: str, value: object) -> str:
    """Why a stored value of a known key cannot be in force, whatever the others are; else empty."""
    declared = KEYS.by_name()[name]
    if not declared.key.dynamic:
        return _why_static(declared.key)
    if not isinstance(value, str | int | float):
        return "a string is allowed"
    text = _text(value).strip()
    if not text and declared.annotation is str:
        return "an empty value is allowed in a file only"
    try:
        parse_value(declared, text)
    except ValueError as error:
        return str(error)
    return ""


def _text(value: object) -> str:
    return value if isinstance(value, str) else spell(value)


def _shortened(value: object) -> str:
    return repr(_text(value))[:200] if isinstance(value, str | int | float) else repr(value)[:200]


def _require_dynamic(name: str) -> None:
    """Raise `BadInputError` with the reason for a key that a running broker cannot change."""
    declared = KEYS.by_name().get(name)
    if declared is None:
        near = KEYS.nearest(name)
        raise BadInputError(
            f"{name} is not a key of broker.conf" + (f"; did you mean {near}?" if near else "")
        )
    if not declared.key.dynamic:
        raise BadInputError(
            f"{name} cannot be changed on a running broker: {_why_static(declared.key)}"
        )


def _why_static(key: Key) -> str:
    """Why a key is not dynamic. The documentation of a key without effect says so."""
    if key.doc.startswith(("Accepted", "Extensible manager")):
        return f"{key.doc[0].lower()}{key.doc[1:]}"
    return "it is read when the broker starts"
