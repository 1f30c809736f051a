"""How an archive keeps each kind of record."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class FiguresOf:
    """Of a kind of load: the figures of a thing at one moment, averaged later on."""

    columns: tuple[str, ...]
    row: Callable[[Any], tuple[str, tuple[float, ...]]]
    """Record → the name of the thing, and its figures."""


@dataclass(frozen=True, slots=True)
class EventsOf:
    """Of a kind of event: the record as it is, found by what it is about."""

    about: Callable[[Any], Iterable[str]]
    """Record → names: of a bundle, a namespace, a tenant, a topic, a broker, a role."""
    same: Callable[[Any], Hashable] = lambda _record: None
    """Records of the same value are counted, and the last one stands for all; None: never."""
    kind: Callable[[Any], str] = lambda record: str(record.kind)
    """Record → the kind that is asked for."""
    at: Callable[[Any], int] = lambda record: int(record.ts)
    """Record → when it happened, in ms since the epoch."""


Catalogue = Mapping[str, FiguresOf | EventsOf]
"""Kind of record → how it is kept; other kinds are not."""
