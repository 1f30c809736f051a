"""broker.conf → frozen settings.

Every component declares its own leaf (`kit.conf.conf`), and each product lists the leaves of its
components in `Keys`, which parses Pulsar's properties syntax into them. It says what is wrong with
a file: values that are out of range or cannot be parsed, values that contradict each other, and
unknown keys with the nearest known name.
"""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Literal, TypeVar

from loadmanager.kit.conf import NO_EFFECT, Checked, Key
from loadmanager.kit.errors import ConfigError
from loadmanager.kit.files.properties import read_properties

NUMBER_MAX = 2**63 - 1
UNKNOWN_MAX = 1_000
"""At most this many unknown keys are reported."""

SHOWN_MAX = 200
"""Characters of a wrong value that an error shows."""

HIDDEN = "*****"
"""What is shown of a secret."""

SettingOrigin = Literal["settings set", "--set", "broker.conf", "default"]
"""Where a value comes from: stored for all brokers, the command line, the file, or this version."""

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
    """The key that it probably means; None if there is none, or others have this key."""
    of_others: bool
    """True if others have this key, Pulsar first of all: it is not a typo."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A value that cannot be in force, or values that cannot be in force together."""

    names: tuple[str, ...]
    """The keys of these values."""
    text: str


def _no_leaves() -> tuple[type, ...]:
    return ()


def _as_it_is(leaves: Mapping[type, Any]) -> Mapping[type, Any]:
    return leaves


@dataclass(frozen=True)
class Keys:
    """The keys that a product honours."""

    leaves: tuple[type, ...]
    """Every component's settings, in the order of the template."""
    others: frozenset[str] = frozenset()
    """Keys that others honour: not typos."""
    added: Callable[[], tuple[type, ...]] = _no_leaves
    """The leaves of plug-ins; registers these."""
    joined: Callable[[Mapping[type, Any]], Mapping[type, Any]] = _as_it_is
    """Puts the values of plug-ins where the product looks for them."""

    def all_leaves(self) -> tuple[type, ...]:
        """The leaves, those of plug-ins included."""
        return (*self.leaves, *self.added())

    def by_name(self) -> dict[str, KnownKey]:
        """Every key and alias, as Pulsar spells it → the field that it sets.

        Raises `ConfigError` for a key that two components declare.
        """
        return _keys_of(self.all_leaves())

    def dynamic_names(self) -> list[str]:
        """Keys that may be changed while the product runs, sorted, in their present spelling."""
        return sorted(
            declared.key.name
            for name, declared in self.by_name().items()
            if declared.key.dynamic and name == declared.key.name
        )

    def nearest(self, name: str) -> str | None:
        """The key that an unknown one probably means; None if others have this key."""
        if name in self.others:
            return None
        return _nearest(name, self.others.union(self.by_name()))

    def load(
        self, path: Path | None = None, overrides: Mapping[str, str] | None = None
    ) -> Settings:
        """Settings of a file (None: defaults), with `overrides` on top.

        Raises `ConfigError` naming every key whose value is out of range or cannot be parsed, its
        value and what is allowed.
        """
        settings = self.parse({**(read_properties(path) if path else {}), **(overrides or {})})
        keys = self.by_name()
        names = (keys[name].key.name for name in overrides or () if name in keys)
        return dataclasses.replace(settings, overridden=frozenset(names))

    def parse(self, values: Mapping[str, str]) -> Settings:
        """Settings of key → text. Raises `ConfigError` as `load` does."""
        settings, bad_values = self.parsed(values)
        raise_if(bad_values)
        return settings

    def parsed(self, values: Mapping[str, str]) -> tuple[Settings, list[Problem]]:
        """The settings of key → text, and the values that cannot be parsed, by name.

        Each of those is replaced by its default.
        """
        keys, bad_values = self.by_name(), []
        fields: dict[type, dict[str, Any]] = {leaf: {} for leaf in self.all_leaves()}
        given: dict[str, str] = {}
        # The last spelling of a key wins, whatever their order in the file.
        for name in sorted(
            (name for name in values if name in keys),
            key=lambda name: (name == keys[name].key.name) != keys[name].key.older_first,
        ):
            target, text = keys[name], values[name].strip()
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
        by_leaf = self.joined({leaf: leaf(**chosen) for leaf, chosen in fields.items()})
        bad_values.sort(key=lambda problem: problem.text)
        unknown = (
            Unknown(name, self.nearest(name), name in self.others)
            for name in values
            if name not in keys
        )
        return Settings(self, by_leaf, given, tuple(unknown)), bad_values

    def parse_overrides(self, pairs: list[str]) -> dict[str, str]:
        """`--set key=value` arguments as a mapping.

        Raises `ConfigError` for an argument without `=`, for a key that nobody has, and for a value
        of a key that another one has replaced.
        """
        overrides: dict[str, str] = {}
        for pair in pairs:
            name, separator, text = pair.partition("=")
            if not separator or not name.strip():
                raise ConfigError(f"--set {pair}: key=value is expected")
            name = name.strip()
            if name not in self.by_name() and name not in self.others:
                near = self.nearest(name)
                hint = f"; did you mean {near}?" if near else ""
                raise ConfigError(f"--set {name}: there is no such key{hint}")
            overrides[name] = text
        if refused := self.parsed(overrides)[0].refused():
            raise ConfigError(f"--set {refused[0].text}")
        return overrides

    def template(self) -> str:
        """The text of config/broker.conf: each component's keys with a comment and the default."""
        lines = [
            "# Every key that loadmanager honours, with its default. Syntax and names are those of",
            "# Apache Pulsar: its broker.conf works, too. A running broker can change [dynamic] keys.",  # noqa: E501 - a line of the file
            "# Check a file without starting a broker: loadmanager config check FILE",
        ]
        for leaf in self.all_leaves():
            lines += ["", f"### {(leaf.__doc__ or leaf.__name__).splitlines()[0].rstrip('.')}"]
            for field, key in keys_of(leaf):
                allowed = f" ({', '.join(key.choices)})" if key.choices else ""
                dynamic = " [dynamic]" if key.dynamic else ""
                lines += [
                    "",
                    f"# {key.doc}{allowed}{dynamic}",
                    f"{key.name}={spell(field.default)}",
                ]
        return "\n".join(lines) + "\n"


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings of one process, immutable; a component receives only its leaf."""

    keys: Keys
    by_leaf: Mapping[type, Any]
    given: Mapping[str, str]
    """Known keys that a file or an override set, as text."""
    unknown: tuple[Unknown, ...] = ()
    overridden: frozenset[str] = frozenset()
    """Those that `--set` said, whatever the file says."""

    def leaf(self, kind: type[Leaf]) -> Leaf:
        """The settings of one component."""
        leaf: Leaf = self.by_leaf[kind]
        return leaf

    def with_overrides(self, overrides: Mapping[str, str]) -> Settings:
        """These settings with some keys changed. Raises `ConfigError` as `Keys.parse` does."""
        changed = self.keys.parse({**self.given, **overrides})
        unknown = tuple(dict.fromkeys((*self.unknown, *changed.unknown)))[:UNKNOWN_MAX]
        return dataclasses.replace(changed, unknown=unknown, overridden=self.overridden)

    def without_effect(self) -> dict[str, str]:
        """Keys that are set, accepted, and do nothing here, sorted, with the reasons."""
        refused = {name for problem in self.refused() for name in problem.names}
        without = self._without_effect()
        return {name: reason for name, reason in without.items() if name not in refused}

    def _without_effect(self) -> dict[str, str]:
        keys = self.keys.by_name()
        return {
            name: keys[name].key.doc.removeprefix(NO_EFFECT)
            for name in sorted(self.given)
            if keys[name].key.doc.startswith(NO_EFFECT)
        }

    def refused(self) -> list[Problem]:
        """The values of keys that do nothing any more, as another key has replaced them."""
        keys, names = self.keys.by_name(), self._without_effect()
        kinds = {keys[name].leaf: None for name in names}
        problems = self.contradictions(kinds)
        return [problem for problem in problems if not set(problem.names) - names.keys()]

    def changed_without_effect(self) -> dict[str, str]:
        """Those of `without_effect` that are not what they are by default."""
        defaults, values = self.keys.load().runtime(), self.runtime()
        return {
            name: reason
            for name, reason in self.without_effect().items()
            if values.get(name) != defaults.get(name)
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
        keys = self.keys.by_name()
        shown = {
            name: spell(getattr(self.by_leaf[declared.leaf], declared.field))
            for name, declared in keys.items()
            if name == declared.key.name
        }
        secret = {name for name in shown if shown[name] and keys[name].key.secret}
        return shown | dict.fromkeys(secret, HIDDEN)

    def contradictions(self, kinds: Iterable[type]) -> Iterator[Problem]:
        """The values of these leaves that contradict each other."""
        for kind in kinds:
            leaf = self.by_leaf[kind]
            if issubclass(kind, Checked):  # Python remembers this for a class, not for an instance
                try:
                    yield from [Problem(names, text) for names, text in leaf.contradictions()]
                except Exception as error:  # noqa: BLE001 - whatever a third party's leaf raises
                    names = tuple(key.name for _, key in keys_of(kind))
                    yield Problem(names, f"{kind.__name__} cannot check its values: {error!r}")


@cache
def _keys_of(leaves: tuple[type, ...]) -> dict[str, KnownKey]:
    keys: dict[str, KnownKey] = {}
    for leaf in leaves:
        hints = typing.get_type_hints(leaf)
        for field, key in keys_of(leaf):
            for name in (key.name, *key.aliases):
                if name in keys:
                    raise ConfigError(
                        f"{name} is declared by {keys[name].leaf.__name__} and by {leaf.__name__}"
                    )
                keys[name] = KnownKey(key, leaf, field.name, hints[field.name], field.default)
    return keys


def keys_of(leaf: type) -> Iterator[tuple[dataclasses.Field[Any], Key]]:
    """The fields of a leaf, and their keys."""
    for field in dataclasses.fields(leaf):
        if "key" in field.metadata:
            yield field, field.metadata["key"]


@lru_cache(maxsize=UNKNOWN_MAX)
def _nearest(name: str, names: frozenset[str]) -> str | None:
    import difflib  # only for typos

    near = difflib.get_close_matches(name, sorted(names), n=1, cutoff=0.88)
    return near[0] if near else None


def raise_if(problems: Sequence[Problem]) -> None:
    """Raise `ConfigError` with all problems, if there are any."""
    if problems:
        raise ConfigError("; ".join(problem.text for problem in problems))


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


def unknown_text(unknown: tuple[Unknown, ...]) -> str:
    """Unknown keys on one line: the number of Pulsar's, and the names of the rest."""
    others = [
        f"{item.name} (did you mean {item.nearest}?)" if item.nearest else item.name
        for item in unknown
        if not item.of_others
    ]
    count = len(unknown) - len(others)
    ours = [f"{count} of Pulsar's keys"] if count else []
    return ", ".join([*others, *ours])
