"""Brokers that are full while the model explains far less of it: bundles leave them nevertheless.

What such a broker uses more than its traffic explains may be due to bundles that are dearer than
anything says, or to something else that runs there. So it is taken for the cost of its bundles, by
their messages, and a few of them leave. If the sensor falls with them, more follow; if not, none.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from loadmanager.kit.units import HOUR_MS

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
    last_ms: int
    """When it was full last, and the model did not explain it."""


def stopped(reliefs: Mapping[str, Relief], shown: Mapping[str, float]) -> set[str]:
    """The brokers that nothing more leaves, since it did not help; `shown`: broker → its sensor."""
    return {
        broker
        for broker, now in shown.items()
        if (relief := reliefs.get(broker))
        and relief.cycles >= CYCLES + int(max(relief.shown - now, 0.0) / FALL)
    }


def after(
    reliefs: Mapping[str, Relief],
    full: Mapping[str, float],
    given: Collection[str],
    now_ms: int,
) -> dict[str, Relief]:
    """After a cycle. `full`: broker → its sensor, of those that the model does not explain;
    `given`: those whose bundles left. What is an hour old is forgotten.
    """
    remembered = {
        broker: relief for broker, relief in reliefs.items() if now_ms - relief.last_ms < HOUR_MS
    }
    for broker, shown in full.items():
        before = remembered.get(broker)
        began, cycles = (before.shown, before.cycles) if before else (round(shown, 4), 0)
        remembered[broker] = Relief(began, cycles, now_ms)
    for broker in given:
        if relief := remembered.get(broker):
            remembered[broker] = Relief(relief.shown, relief.cycles + 1, relief.last_ms)
    return remembered
