"""Declarations of a component's settings.

A leaf is a frozen dataclass whose fields `conf` makes: the broker.conf key, its default, a line of
documentation and the allowed values stand beside the code that uses the setting.
`loadmanager.broker.settings` collects the leaves and parses files into them.

A component holds its leaf as a `Live` and reads `.value` whenever it needs a setting, so that a
changed dynamic key acts at once.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, make_dataclass
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

T = TypeVar("T")

NO_EFFECT = "Accepted, without effect: "
"""How the documentation of a key without effect begins."""
DEFAULT_ALONE = ". Any value but the default is refused"
"""How it ends, if another key has replaced it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One broker.conf key: its name as in Pulsar, its meaning and its allowed values."""

    name: str
    doc: str
    minimum: float | None = None
    maximum: float | None = None
    choices: Collection[str] | None = None
    dynamic: bool = False
    """Whether the admin API may change it on a running broker."""
    secret: bool = False
    """Whether the value is never shown."""
    aliases: tuple[str, ...] = ()
    """Older names that broker.conf may use. Empty and -1 mean that an older name is not set."""
    older_first: bool = False
    """Whether an older name that is set wins over `name`, as in Pulsar; else `name` wins, unless
    its value is the default.
    """


def conf(name: str, default: Any, doc: str, **allowed: Any) -> Any:
    """Declare a dataclass field that broker.conf can set; `allowed`: the other fields of its `Key`.

    The field's annotation decides the parsing: bool, int, float, str, `tuple[str, ...]` (comma
    list), or `… | None` (empty value means None).
    """
    key = Key(name=name, doc=doc, **allowed)
    return dataclasses.field(default=default, metadata={"key": key})


def without_effect(
    name: str, doc: str, keys: Mapping[str, tuple[Any, str]], *, replaced: Collection[str] = ()
) -> type:
    """A leaf of keys that Pulsar's files have and that do nothing here: key → (Pulsar's default,
    reason). Of those of them that another key has `replaced`, no value but the default is accepted.
    """
    fields = [
        (
            key,
            type(default),
            conf(key, default, NO_EFFECT + why + (DEFAULT_ALONE * (key in replaced))),
        )
        for key, (default, why) in keys.items()
    ]

    def contradictions(leaf: Any) -> Iterable[tuple[tuple[str, ...], str]]:
        for key in replaced:
            default, why = keys[key]
            if (value := getattr(leaf, key)) != default:
                yield (key,), f"{key} = {value}: it does nothing any more; {why}"

    namespace = {"__doc__": doc} | ({"contradictions": contradictions} if replaced else {})
    return make_dataclass(name, fields, namespace=namespace, frozen=True, kw_only=True)


@runtime_checkable
class Checked(Protocol):
    """A leaf that says which of its values cannot be in force together."""

    def contradictions(self) -> Iterable[tuple[tuple[str, ...], str]]:
        """The keys of such values, and what to tell of them."""
        ...


class Live(Generic[T]):
    """One settings leaf as it is in force now.

    Components keep this object, never a copy of its value.
    """

    __slots__ = ("_listeners", "_value")

    def __init__(self, value: T) -> None:
        self._value = value
        self._listeners: list[Callable[[T], None]] = []

    @property
    def value(self) -> T:
        """The leaf in force."""
        return self._value

    def listen(self, listener: Callable[[T], None]) -> Callable[[], None]:
        """Call `listener` with every new value; returns a function that ends this.

        Only for components that must act on a change; others read `value` when they need it.
        """
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def set(self, value: T) -> None:
        """Put a new value in force; listeners are called only when it differs."""
        if value == self._value:
            return
        self._value = value
        for listener in list(self._listeners):
            listener(value)
