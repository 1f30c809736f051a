"""Connections that a limit holds for minutes, while other topics on them wait."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from loadmanager.engine.findings import words
from loadmanager.engine.findings.finding import FindingShown, bounded, command
from loadmanager.kit.units import MINUTE_MS

LASTING_MS = 2 * MINUTE_MS


@dataclass(frozen=True, slots=True)
class LimitedConnection:
    """A connection that limits hold at the moment of a look, now or again and again."""

    client: str
    since_ms: int
    limits: Sequence[str]
    topics: Sequence[str]
    """Whose publishes the limits hold."""
    others: int
    """How many other topics use it."""


def held_connections(
    connections: Mapping[str, Sequence[LimitedConnection]], now_ms: int
) -> list[FindingShown]:
    """A finding for each set of limits that has held connections of other topics for minutes."""
    lasting: dict[str, list[LimitedConnection]] = {}
    for _, each in sorted(connections.items()):
        for connection in each:
            if connection.others and now_ms - connection.since_ms >= LASTING_MS:
                lasting.setdefault(" and ".join(connection.limits), []).append(connection)
    return bounded(_finding(limits, lasting[limits]) for limits in sorted(lasting))


def _finding(limits: str, connections: Sequence[LimitedConnection]) -> FindingShown:
    longest = min(connections, key=lambda it: (it.since_ms, it.client))
    others = sum(each.others for each in connections)
    topics = sorted({topic for each in connections for topic in each.topics})
    return FindingShown(
        kind="throttling",
        about=f"connections held by {limits}",
        since=longest.since_ms,
        title=words.connections_held(len(connections), limits, others),
        text=f"Held longest: {longest.client}. A publish that a limit holds stops its connection: "
        "its other producers and consumers wait, and so does one that is to attach through it.",
        advice=words.OWN_CONNECTION,
        command=command("loadmanager admin limits why", topics[0]),
    )
