"""A leader that changes often."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from loadmanager.engine.findings import words
from loadmanager.engine.findings.finding import FindingShown
from loadmanager.kit.units import HOUR_MS

CHANGES_MIN = 3
"""So many changes in an hour, beside those of leaders that stopped in order, and of outages of the
metadata store.
"""
CLUSTER = "the cluster"
NAMED_MAX = 3


@dataclass(frozen=True, slots=True)
class LeaderChange:
    """A term that began after another one."""

    at_ms: int
    before: str
    """The broker that had led."""
    orderly: bool
    """Whether that broker had stopped in order."""
    by_store: bool = False
    """Whether the metadata store had given no answer before: that is told by itself."""


def often(changes: Sequence[LeaderChange], now_ms: int) -> list[FindingShown]:
    """A finding if the leader changed often in the last hour; changes in order of time."""
    wonders = [it for it in changes if not (it.orderly or it.by_store)]
    lately = [it for it in wonders if now_ms - it.at_ms < HOUR_MS]
    if len(lately) < CHANGES_MIN:
        return []
    gave_up: dict[str, int] = {}
    for change in lately:
        gave_up[change.before] = gave_up.get(change.before, 0) + 1
    order = sorted(gave_up, key=lambda broker: (-gave_up[broker], broker))
    named = ", ".join(f"{broker} {gave_up[broker]} ×" for broker in order[:NAMED_MAX])
    more = f" and {len(order) - NAMED_MAX} others" if len(order) > NAMED_MAX else ""
    return [
        FindingShown(
            kind="leader",
            about=CLUSTER,
            since=lately[0].at_ms,
            title=f"The leader changed {len(lately)} times in the last hour",
            text=f"These led no longer: {named}{more}; leaders that stopped in order are not "
            "counted, nor those of an outage of the metadata store. Every new leader waits for "
            "reports before it decides.",
            advice=words.LEADER_LOGS,
            command="loadmanager admin brokers leader",
        )
    ]
