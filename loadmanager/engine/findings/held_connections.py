"""Connections that a limit holds for minutes, while other topics on them wait."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from loadmanager.engine.findings import words
from loadmanager.engine.findings.finding import FindingShown, bounded, command
from loadmanager.kit.text import moment
from loadmanager.kit.units import MINUTE_MS

LASTING_MS = 2 * MINUTE_MS
LATER_MS = 1_000
"""A limit that began to hold so much after another is told with its own time."""


@dataclass(frozen=True, slots=True)
class LimitedConnection:
    """A connection that limits hold at the moment of a look, now or again and again."""

    client: str
    since_ms: int
    limits: Mapping[str, int]
    """Each, with when it began to hold the connection (ms since the epoch)."""
    topics: Sequence[str]
    """Whose publishes the limits hold."""
    others: int
    """How many other topics use it."""


def held_connections(
    connections: Mapping[str, Sequence[LimitedConnection]], now_ms: int
) -> list[FindingShown]:
    """A finding for each set of limits that has held connections of other topics for minutes."""
    lasting: dict[tuple[str, ...], list[LimitedConnection]] = {}
    for _, each in sorted(connections.items()):
        for connection in each:
            if connection.others and now_ms - connection.since_ms >= LASTING_MS:
                lasting.setdefault(_lasting(connection, now_ms), []).append(connection)
    return bounded(_finding(limits, lasting[limits]) for limits in sorted(lasting))


def _lasting(connection: LimitedConnection, now_ms: int) -> tuple[str, ...]:
    """The limits that have held it for minutes, without those that began to do so just now. All, if
    they took turns.
    """
    limits = sorted(connection.limits)
    return tuple(it for it in limits if now_ms - connection.limits[it] >= LASTING_MS) or tuple(
        limits
    )


def _finding(names: Sequence[str], connections: Sequence[LimitedConnection]) -> FindingShown:
    limits = " and ".join(names)
    first = {name: min(each.limits[name] for each in connections) for name in names}
    longest = min(connections, key=lambda it: (min(it.limits[name] for name in names), it.client))
    since_ms = min(first.values())
    later = [it for it in names if first[it] - since_ms >= LATER_MS]
    since = "".join(f" {it} only since {moment(first[it])}." for it in later)
    others = sum(each.others for each in connections)
    topics = sorted({topic for each in connections for topic in each.topics})
    return FindingShown(
        kind="throttling",
        about=f"connections held by {limits}",
        since=since_ms,
        title=words.connections_held(len(connections), limits, others),
        text=f"Held longest: {longest.client}.{since} A publish that a limit holds stops its "
        "connection: its other producers and consumers wait, and so does one that is to attach "
        "through it.",
        advice=words.OWN_CONNECTION,
        command=command("loadmanager admin limits why", topics[0]),
    )
