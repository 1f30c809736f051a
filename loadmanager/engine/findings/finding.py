"""What is wrong in a cluster now, in the words of the nightly report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field
from shlex import quote
from typing import Literal, get_args

from loadmanager.kit.model import Shape

Kind = Literal[
    "lost",
    "lost often",
    "backlog",
    "clock",
    "disk",
    "flapping",
    "hot topic",
    "leader",
    "sensor",
    "throttling",
    "uneven",
    "unserved",
]
KINDS: tuple[Kind, ...] = get_args(Kind)
SHOWN_MAX = 50
"""Findings of one kind; those of the first names are shown."""


class FindingShown(Shape):
    """Something that is wrong now. Times are milliseconds since the epoch."""

    kind: Kind
    about: str
    """The broker, bundle, topic, limit or cluster."""
    since: int
    """Since when it is so, as far as this leader knows."""
    title: str
    text: str
    advice: str
    command: str | None = None
    """To paste into a shell."""


def command(text: str, name: str) -> str | None:
    """A command to paste, about a name that a client or an operator chose. None for a name that
    would drive a terminal (even when quoted, Ctrl-C ends a line), or that is taken for an option.
    """
    if not name or not name.isprintable() or name.startswith("-"):
        return None
    return f"{text} {quote(name)}"


@dataclass(slots=True)
class Lasting:
    """Since when things are as they should not be."""

    since_ms: dict[str, int] = field(default_factory=dict)
    """Name → since when."""

    def step(self, names: Set[str], now_ms: int) -> None:
        """These are so now, all others no longer are."""
        self.since_ms = {name: self.since_ms.get(name, now_ms) for name in names}

    def after(self, lasted_ms: int, now_ms: int) -> Mapping[str, int]:
        """Those that have been so for this time."""
        return {
            name: since_ms
            for name, since_ms in sorted(self.since_ms.items())
            if now_ms - since_ms >= lasted_ms
        }


def bounded(findings: Iterable[FindingShown]) -> list[FindingShown]:
    """The first ones in order of their names."""
    return sorted(findings, key=lambda finding: finding.about)[:SHOWN_MAX]
