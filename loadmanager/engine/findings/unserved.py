"""Bundles of brokers that left, which nobody serves, and whose clients may wait for that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from loadmanager.engine.findings import words
from loadmanager.engine.findings.finding import FindingShown, bounded, command
from loadmanager.kit.units import MINUTE_MS

NAMED_MAX = 3


@dataclass(frozen=True, slots=True)
class UnservedBundles:
    """What nobody serves of what a broker had owned."""

    broker: str
    since_ms: int
    """When it left."""
    how: str
    """`stopped`, `drained` or `lost`."""
    bundles: Sequence[str]
    """The first ones."""
    total: int
    clients: int | None
    """Those that these bundles had; None: the broker had not published any."""


def unserved(left: Sequence[UnservedBundles], now_ms: int) -> list[FindingShown]:
    """A finding for each broker whose bundles have had no owner for a minute. Not for those that
    had no clients: the next lookup places them.
    """
    return bounded(
        _finding(each)
        for each in left
        if each.total and each.clients != 0 and now_ms - each.since_ms >= MINUTE_MS
    )


def _finding(left: UnservedBundles) -> FindingShown:
    some = left.bundles[:NAMED_MAX]
    more = f" and {left.total - len(some)} more" if left.total > len(some) else ""
    clients = "Whether they had clients is not known."
    if left.clients is not None:
        clients = f"They had {left.clients:,} clients."
    return FindingShown(
        kind="unserved",
        about=left.broker,
        since=left.since_ms,
        title=words.unserved(left.total, left.broker, left.how),
        text=f"Without an owner until the next lookup: {', '.join(some)}{more}. {clients}",
        advice=words.LOOK_UP,
        command=command("loadmanager admin history", some[0]) if some else None,
    )
