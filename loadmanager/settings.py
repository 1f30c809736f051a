"""broker.conf → frozen settings.

Every component declares its own leaf (`core.conf.conf`); this module lists the leaves, parses Pulsar's properties syntax into them and says what
is wrong with a file: values out of range, values that cannot be parsed, keys that nobody knows (with the nearest known name).
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import re
import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, TypeVar

from loadmanager.adapters.admin.settings import AdminSettings
from loadmanager.adapters.files.settings import HistorySettings
from loadmanager.adapters.metrics.settings import MetricsSettings
from loadmanager.adapters.system.settings import SamplerSettings
from loadmanager.adapters.zookeeper.settings import ZooKeeperSettings
from loadmanager.core.conf import Key
from loadmanager.core.errors import ConfigError
from loadmanager.core.messaging.settings import MessagingSettings
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

FILE_BYTES_MAX = 4_000_000
NUMBER_MAX = 2**63 - 1
UNKNOWN_MAX = 1_000
"""So many unknown keys are told of."""

Leaf = TypeVar("Leaf")

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_SEPARATOR = re.compile(r"(?<!\\)(?:\s*[=:]\s*|\s+)")
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


@cache
def known_keys() -> dict[str, KnownKey]:
    """Every key and alias that is understood; Pulsar's spelling → where it goes."""
    known: dict[str, KnownKey] = {}
    for leaf in LEAVES:
        hints = typing.get_type_hints(leaf)
        for field in dataclasses.fields(leaf):
            key: Key = field.metadata["key"]
            for name in (key.name, *key.aliases):
                if name in known:
                    raise AssertionError(f"{name} is declared by {known[name].leaf.__name__} and by {leaf.__name__}")
                known[name] = KnownKey(key, leaf, field.name, hints[field.name], field.default)
    return known


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
            name: spell(getattr(self.by_leaf[known.leaf], known.field)) for name, known in known_keys().items() if name == known.key.name
        }


def load(path: Path | None = None, overrides: Mapping[str, str] | None = None) -> Settings:
    """Settings of a file (None: defaults) with `overrides` on top. Raises `ConfigError` naming every bad key, its value and what is allowed."""
    return parse({**(read_properties(path) if path else {}), **(overrides or {})})


def parse(values: Mapping[str, str]) -> Settings:
    """Settings of key → text; see `load`."""
    known, problems = known_keys(), []
    fields: dict[type, dict[str, Any]] = {leaf: {} for leaf in LEAVES}
    given: dict[str, str] = {}
    # An alias gives way to the present spelling of the same key, whatever their order in the file.
    for name in sorted((name for name in values if name in known), key=lambda name: name == known[name].key.name):
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
        return f" from {key.minimum:g} to {key.maximum:g}"
    if key.minimum is not None:
        return f" of at least {key.minimum:g}"
    return f" of at most {key.maximum:g}" if key.maximum is not None else ""


def spell(value: Any) -> str:
    """A value as broker.conf spells it."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(value)
    return str(int(value)) if isinstance(value, float) and abs(value) < 1e15 and value == int(value) else str(value)


def read_properties(path: Path) -> dict[str, str]:
    """Parse a file in Java's properties syntax (comments, `=`, `:` or blanks, continued lines, escapes); the last of two equal keys wins.

    Raises `ConfigError` when the file cannot be read.
    """
    try:
        if path.stat().st_size > FILE_BYTES_MAX:
            raise ConfigError(f"{path}: larger than {FILE_BYTES_MAX} bytes, so not a broker.conf")
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 at byte {error.start}") from None
    properties: dict[str, str] = {}
    for line in _logical_lines(text):
        name, *rest = _SEPARATOR.split(line, maxsplit=1)
        properties[_unescape(name)] = _unescape(rest[0]) if rest else ""
    return properties


def _logical_lines(text: str) -> Iterator[str]:
    pending = ""
    for raw in text.splitlines():
        line = raw.lstrip()
        if not pending and (not line or line[0] in "#!"):
            continue
        trailing = len(line) - len(line.rstrip("\\"))
        if trailing % 2:
            pending += line[:-1]
            continue
        yield pending + line
        pending = ""
    if pending:
        yield pending


def _unescape(text: str) -> str:
    def character(match: re.Match[str]) -> str:
        code = match[1]
        return chr(int(code[1:], 16)) if code[0] == "u" and len(code) == 5 else _ESCAPES.get(code, code)

    return _ESCAPE.sub(character, text)


def parse_overrides(pairs: list[str]) -> dict[str, str]:
    """`--set key=value` arguments as a mapping. Raises `ConfigError` for one without `=`; unknown keys are reported as those of a file are."""
    overrides: dict[str, str] = {}
    for pair in pairs:
        name, separator, text = pair.partition("=")
        if not separator or not name.strip():
            raise ConfigError(f"--set {pair}: key=value is expected")
        overrides[name.strip()] = text
    return overrides


def unknown_text(unknown: tuple[Unknown, ...]) -> str:
    """Unknown keys on one line, each with the nearest known name where one is close."""
    return ", ".join(f"{item.name} (did you mean {item.nearest}?)" if item.nearest else item.name for item in unknown)


def template() -> str:
    """The text of config/broker.conf: every key that is honoured, its default, one comment line each, by component."""
    lines = [
        "# Every key that loadmanager honours, with its default. The syntax and the names are Apache Pulsar's: a broker.conf of Pulsar works, too.",
        "# Check a file without starting: loadmanager config check FILE",
    ]
    for leaf in LEAVES:
        lines += ["", f"### {(leaf.__doc__ or leaf.__name__).splitlines()[0].rstrip('.')}"]
        for field in dataclasses.fields(leaf):
            key: Key = field.metadata["key"]
            allowed = f" ({', '.join(key.choices)})" if key.choices else ""
            dynamic = " [dynamic]" if key.dynamic else ""
            lines += ["", f"# {key.doc}{allowed}{dynamic}", f"{key.name}={spell(field.default)}"]
    return "\n".join(lines) + "\n"
