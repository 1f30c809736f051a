"""Brokers that are full while the model explains far less of it: bundles leave them nevertheless.

What such a broker uses more than its traffic explains may be due to bundles that are dearer than
anything says, or to something else that runs there. So it is taken for the cost of its bundles, by
their messages, and a few of them leave. If the sensor falls with them, more follow; if not, none.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from loadmanager.kit.units import HOUR_MS, MINUTE_MS

FULL_FOR_MS = 5 * MINUTE_MS
"""A broker is full for so long, in every cycle, before bundles leave it: a sensor may jump."""
CYCLES, FALL = 5, 0.05
"""In so many cycles bundles leave a broker, and in one more for each time that its sensor fell by
this since they began to.
"""


class Relief(NamedTuple):
    """What bundles that left a full broker came to."""

    shown: float
    """What its sensor showed when it was seen first."""
    cycles: int
    """In how many cycles bundles left."""
    since_ms: int
    """Since when it is full, or was before bundles left."""
    last_ms: int
    """When it was full last, and the model did not explain it."""


def leaves(relief: Relief, shown: float) -> bool:
    """Whether bundles leave a broker whose sensor shows this; not if it did not help."""
    if not relief.cycles:
        return relief.last_ms - relief.since_ms >= FULL_FOR_MS
    return relief.cycles < CYCLES + int(max(relief.shown - shown, 0.0) / FALL)


def after(
    reliefs: Mapping[str, Relief],
    full: Mapping[str, float],
    given: Collection[str],
    now_ms: int,
) -> dict[str, Relief]:
    """After a cycle. `full`: broker → its sensor, of those that the model does not explain;
    `given`: those whose bundles left. What is an hour old is forgotten, and at once a broker that
    is not full any more and that no bundle left.
    """
    remembered = {
        broker: relief
        for broker, relief in reliefs.items()
        if now_ms - relief.last_ms < HOUR_MS and (relief.cycles or broker in full)
    }
    for broker, shown in full.items():
        before = remembered.get(broker, Relief(round(shown, 4), 0, now_ms, now_ms))
        remembered[broker] = before._replace(last_ms=now_ms)
    for broker in given:
        if relief := remembered.get(broker):
            remembered[broker] = relief._replace(cycles=relief.cycles + 1)
    return remembered
