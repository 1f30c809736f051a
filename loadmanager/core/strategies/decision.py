"""What strategies answer: every yes and every no is a value with its reason and the numbers that it
came from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec


class Unload(msgspec.Struct, frozen=True):
    """Move a bundle away from its owner; to `destination` if the strategy or the cycle chose one.

    A `Struct`, because a cycle over a large cluster makes thousands, and a frozen dataclass takes 1
    µs to make.
    """

    bundle: str
    source: str
    destination: str | None
    reason: str
    why: Mapping[str, float | str] = {}
    swap: str | None = None
    """The swap that this move is part of, named by the bundle that goes the other way: all of its
    moves are made, or none.
    """


@dataclass(frozen=True, slots=True)
class Placement:
    """Where an unowned bundle belongs.

    `candidates` are the brokers among which the rule leaves only chance; `broker` is one of them,
    None without any.
    """

    bundle: str
    broker: str | None
    candidates: tuple[str, ...]
    rejected: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Split:
    """Cut a bundle at `boundaries`; none when its owner is to find them."""

    bundle: str
    boundaries: tuple[int, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class Skip:
    """A no: what was not done, and why."""

    what: str
    reason: str


@dataclass(frozen=True, slots=True)
class Plan:
    """The outcome of one cycle."""

    strategy: str
    unloads: tuple[Unload, ...] = ()
    placements: tuple[Placement, ...] = ()
    splits: tuple[Split, ...] = ()
    skipped: tuple[Skip, ...] = ()
