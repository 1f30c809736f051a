"""How much more the brokers could carry if their work were spread evenly.

What a broker uses beside its traffic stays where it is; only what it carries is spread.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from loadmanager.engine.load.columns import Array

CARRIED_MIN = 1e-9
"""So little work has no headroom that could be said."""


MEASURABLE_MIN = 0.05
ERRORS = 2.0
"""Traffic that uses less of the brokers than this, or than so many mean errors of the model, tells
nothing of what more of it would use: the rest is noise of the sensors.
"""


@dataclass(frozen=True, slots=True)
class Headroom:
    """Of one resource. Below 1, the brokers cannot even carry what there is."""

    times: float
    """The traffic that all brokers could carry, as a multiple of the present one."""
    times_without_one: float
    """The same without the broker that has the most room; 0 where there is only one."""
    carried_usage: float
    """What the present traffic uses of a broker on the mean, as a fraction."""
    least: float = 0.0
    least_without_one: float = 0.0
    """The same multiples if all that is used were the traffic's: they carry so much at least."""


def headroom(
    limit: float,
    beside: Array,
    per_work: Array,
    work: Array,
    *,
    closed: NDArray[np.bool_] | None = None,
) -> Headroom | None:
    """The headroom below this usage (a fraction); None where next to nothing is carried.

    `beside`: usage beside traffic; `per_work`: the usage that a unit of work adds; `work`: what
    is carried now; `closed`: whether it takes nothing, so that it has no room. All of them are
    `[broker]`. A broker to which work adds nothing does not count.
    """
    counts = per_work > 0
    carried = float(work[counts].sum())
    if carried < CARRIED_MIN:
        return None
    room = np.maximum(limit - beside[counts], 0.0) / per_work[counts]
    if closed is not None:
        room[closed[counts]] = 0.0
    whole = float(room.sum())
    usage = float((per_work[counts] * work[counts]).mean())
    return Headroom(whole / carried, (whole - float(room.max())) / carried, usage)


def at_least(limit: float, usage: Array, closed: NDArray[np.bool_]) -> tuple[float, float]:
    """The traffic that is carried below a limit at least, and without one broker, as multiples: if
    all that is used were the traffic's. `usage`, `closed`: `[broker]`.
    """
    each = limit / max(float(usage.sum()), CARRIED_MIN)
    number = int((~closed).sum())
    return each * number, each * max(number - 1, 0)


def measurable_from(errors: Sequence[float]) -> float:
    """The usage (a fraction) that traffic must have before headroom says something, with these
    errors of the model, one for each broker.
    """
    mean = sum(errors) / len(errors) if errors else 0.0
    return max(MEASURABLE_MIN, ERRORS * mean)
