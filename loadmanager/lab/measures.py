"""The minutes of a day under a strategy, and the figures that they come to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from loadmanager.engine.load.columns import Array
from loadmanager.lab.days import DayEvent

FLAP_MINUTES = 60
"""A bundle that moves a second time within this has flapped."""


@dataclass(slots=True)
class Minute:
    """The figures of one minute."""

    usage: Array
    """The load of each live broker as a fraction; more than 1 if it was too much."""
    moves: int
    moved_bytes_s: float
    again: int
    """Bundles that were moved twice within an hour."""
    pause_s: float | None
    """Seconds that clients were without an owner because of moves, summed over clients; None: not
    known.
    """
    placed: int
    """Bundles of a dead broker that were placed."""
    events: tuple[DayEvent, ...]
    carried: float = 0.0
    """Bytes/s of all bundles."""
    live: tuple[str, ...] = ()
    """The live brokers, in the order of `usage`."""

    @property
    def spread(self) -> float:
        """Standard deviation of the brokers' usage in points; 0 if no broker is alive."""
        return float(self.usage.std() * 100) if len(self.usage) else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Measures:
    """The figures of a day, for clients and for operators."""

    spread: float
    """Standard deviation of the brokers' usage in points, mean over the minutes."""
    gap: float
    """The most used broker above the mean, in points, mean over the minutes."""
    ratio: float
    """Usage of the most used broker as a multiple of the mean, mean over the minutes."""
    hot_minutes: int
    """Minutes of brokers above 85 %."""
    broker_minutes: int
    """Minutes of all live brokers."""
    moves: int
    moved_bytes: float
    """Bytes/s of the moved bundles, summed."""
    again: int
    """Bundles that were moved a second time within an hour."""
    pause_s: float | None
    """Seconds that clients were without an owner because of moves, summed over clients; None: not
    known.
    """
    settle_minutes: float | None
    """Minutes after an event until the spread is at most a tenth above its median, at most 60; the
    mean; None without an event.
    """


HOT = 0.85
SETTLE_MINUTES_MAX = 60
WARM_UP_MINUTES = 20
"""Not measured: averages begin empty."""


def settling(minutes: Sequence[Minute]) -> dict[int, int]:
    """Minute with an event → minutes until the spread is usual again."""
    live = np.array([len(minute.usage) > 0 for minute in minutes])
    spreads = np.where(live, [minute.spread for minute in minutes], np.inf)
    usual = float(np.median(spreads[WARM_UP_MINUTES:][live[WARM_UP_MINUTES:]])) * 1.1
    settled = {}
    for at, minute in enumerate(minutes):
        if minute.events and at >= WARM_UP_MINUTES:
            calm = np.flatnonzero(spreads[at : at + SETTLE_MINUTES_MAX] <= usual)
            settled[at] = int(calm[0]) if len(calm) else SETTLE_MINUTES_MAX
    return settled


def ratio(usage: Array) -> float:
    """The most used broker as a multiple of the mean; 1 if no broker is used."""
    mean = usage.mean() if len(usage) else 0.0
    return float(usage.max() / mean) if mean > 0 else 1.0


def measure(minutes: Sequence[Minute]) -> Measures:
    """Sum up the minutes after the first, but for those in which no broker is alive."""
    measured = [minute for minute in minutes[WARM_UP_MINUTES:] if len(minute.usage)]
    settled = list(settling(minutes).values())
    pauses = [minute.pause_s for minute in measured]
    return Measures(
        spread=float(np.mean([minute.spread for minute in measured])),
        gap=float(
            np.mean([(minute.usage.max() - minute.usage.mean()) * 100 for minute in measured])
        ),
        ratio=float(np.mean([ratio(minute.usage) for minute in measured])),
        broker_minutes=sum(len(minute.usage) for minute in measured),
        hot_minutes=sum(int((minute.usage > HOT).sum()) for minute in measured),
        moves=sum(minute.moves for minute in measured),
        moved_bytes=sum(minute.moved_bytes_s for minute in measured),
        again=sum(minute.again for minute in measured),
        pause_s=None if None in pauses else sum((each or 0.0 for each in pauses), 0.0),
        settle_minutes=float(np.mean(settled)) if settled else None,
    )
