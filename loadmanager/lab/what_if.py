"""What a day would have been with other brokers or other traffic, and how many brokers it needs.

The change comes when the averages have warmed up, so that what follows it is measured, too. How
many brokers are enough is asked of clusters in which everything was so from the beginning.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from loadmanager.kit.errors import BadInputError
from loadmanager.lab.calibration import Calibration
from loadmanager.lab.days import DayEvent, DayOfLoad, Kind, Swing
from loadmanager.lab.measures import HOT, WARM_UP_MINUTES, Measures, Minute, measure

BROKERS_TIMES_MAX = 8
"""The search for enough brokers ends at so many times as many as there are."""
HIGHEST_PERCENTILE = 95.0
"""Brokers are enough if in so many percent of the minutes none was above 85 %."""

POINTS_OFF_MAX = 10.0
"""Where the model, or the most used broker of a replay, is farther off, nothing is enough."""
SPREAD_POINTS = 3.0
"""A spread that is off by no more points says nothing against brokers being enough."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """A change of the brokers and of their traffic."""

    without: tuple[str, ...] = ()
    """Brokers that are lost."""
    zones: tuple[str, ...] = ()
    """Failure domains that are lost, with all their brokers."""
    added: int = 0
    """New brokers, of the usual size."""
    times: float = 1.0
    """All traffic, as a multiple."""
    tenants: Mapping[str, float] = field(default_factory=dict)
    """Tenant → its traffic, as a multiple; `times` comes on top of it."""

    def of(self, day: DayOfLoad, begins: int = WARM_UP_MINUTES) -> DayOfLoad:
        """The day, changed from this minute on. Raises `BadInputError` for brokers and tenants
        that the day does not have, and if no broker is left.
        """
        self._check(day)
        without = self.lost(day)
        new = _new_brokers(day, self.added)
        sizes = sorted(day.cores.values())
        events = [each for each in day.events if each.broker not in without or each.minute < begins]
        events += [DayEvent(begins, Kind.DIES, name) for name in without]
        events += [DayEvent(begins, Kind.JOINS, name) for name in new]
        return replace(
            day,
            cores={**day.cores, **dict.fromkeys(new, sizes[len(sizes) // 2])},
            events=tuple(sorted(events, key=lambda event: event.minute)),
            changes=(*day.changes, *self._swings(day, begins)),
        )

    def _check(self, day: DayOfLoad) -> None:
        if unknown := sorted({*self.without} - day.cores.keys()):
            names = ", ".join(sorted(day.cores)[:10])
            text = f"no loads of broker {unknown[0]} are recorded on this day, only of {names}"
            raise BadInputError(text)
        if unknown := sorted(self.tenants.keys() - {*map(_tenant, day.bundles)}):
            names = ", ".join(sorted({*map(_tenant, day.bundles)})[:10])
            raise BadInputError(f"no tenant {unknown[0]} on this day; there are {names}")
        domains = _domains(day)
        if unknown := sorted({*self.zones} - domains.keys()):
            names = ", ".join(sorted(domains)[:10]) or (
                "none: a leader records them where failureDomainsEnabled is true"
            )
            raise BadInputError(f"no failure domain {unknown[0]} on this day; there are {names}")
        if not self.added and not day.cores.keys() - {*self.lost(day)}:
            raise BadInputError("no broker is left")

    def lost(self, day: DayOfLoad) -> tuple[str, ...]:
        """The brokers that are lost, by name or with their failure domain."""
        domains = _domains(day)
        of_zones = {name for zone in self.zones for name in domains.get(zone, ())}
        of_zones &= day.cores.keys() - {*self.without}
        return (*self.without, *sorted(of_zones))

    def _swings(self, day: DayOfLoad, begins: int) -> list[Swing]:
        def swing(factor: float, tenant: str | None = None) -> Swing:
            rows = [at for at, name in enumerate(day.bundles) if _tenant(name) == tenant]
            return Swing(
                minute=begins,
                minutes=day.minutes,
                factor=factor,
                bundles=None if tenant is None else np.array(rows, np.int64),
            )

        swings = [swing(factor, tenant) for tenant, factor in sorted(self.tenants.items())]
        return [*swings, swing(self.times)] if self.times != 1 else swings


def _domains(day: DayOfLoad) -> Mapping[str, Sequence[str]]:
    """The failure domains that were in force last."""
    return day.rules[-1].failure_domains if day.rules else {}


def _tenant(bundle: str) -> str:
    return bundle.partition("/")[0]


def _new_brokers(day: DayOfLoad, count: int) -> list[str]:
    names = (f"new-{number}" for number in range(1, len(day.cores) + count + 1))
    return [name for name in names if name not in day.cores][:count]


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIfOutcome:
    """What came of a day."""

    brokers: int
    """Those that were alive at its end."""
    mean: float
    """The mean usage of the brokers, in percent."""
    highest: float
    """The usage of the most used broker, in percent, which was more in 5 % of the minutes."""
    undone: float
    """Work that brokers could not do, in minutes of one broker."""
    measures: Measures

    @property
    def enough(self) -> bool:
        """Whether there were enough brokers."""
        return self.highest <= 100 * HOT


def outcome(minutes: Sequence[Minute]) -> WhatIfOutcome:
    """What came of these minutes, but for those before the change."""
    after = [minute for minute in minutes[WARM_UP_MINUTES:] if len(minute.usage)]
    if not after:
        raise BadInputError("no broker is alive on this day")
    most = [minute.usage.max() for minute in after]
    return WhatIfOutcome(
        brokers=len(after[-1].usage),
        mean=100 * float(np.mean([minute.usage.mean() for minute in after])),
        highest=100 * float(np.percentile(most, HIGHEST_PERCENTILE)),
        undone=sum(float(np.maximum(minute.usage - 1, 0).sum()) for minute in after),
        measures=measure(minutes),
    )


def nobody_knows(calibration: Calibration, lived: WhatIfOutcome, replayed: WhatIfOutcome) -> bool:
    """Whether a day does not tell if brokers are enough: the model of its load is far off, or the
    replay of it as it was. `lived`: the day as it was, by the model.
    """
    most_off = abs(replayed.highest - lived.highest)
    spread_off = abs(calibration.happened.spread - calibration.replayed.spread)
    uneven = calibration.far_off and spread_off > SPREAD_POINTS
    return uneven or max(most_off, 100 * calibration.error) > POINTS_OFF_MAX


def fewest(
    day: DayOfLoad, change: WhatIf, play: Callable[[DayOfLoad], WhatIfOutcome]
) -> tuple[int, WhatIfOutcome] | None:
    """The fewest brokers that are enough for a day with this change, and what comes of it; None:
    not even `BROKERS_TIMES_MAX` times as many as there are. Brokers leave in the order of their
    names, the last one first; those that come are of the usual size.
    """
    without = change.lost(day)
    left = [name for name in day.brokers if name not in without]
    there = len(left) + change.added

    def with_brokers(count: int) -> WhatIfOutcome:
        lost = tuple(sorted(left)[count:])
        more = max(count - len(left), 0)
        return play(replace(change, without=(*change.without, *lost), added=more).of(day, 0))

    too_few, count = 0, max(there, 1)
    best: tuple[int, WhatIfOutcome] | None = None
    while best is None and count <= BROKERS_TIMES_MAX * max(there, 1):
        tried = with_brokers(count)
        if tried.enough:
            best = count, tried
        else:
            too_few, count = count, 2 * count
    while best is not None and best[0] - too_few > 1:
        count = (too_few + best[0]) // 2
        tried = with_brokers(count)
        if tried.enough:
            best = count, tried
        else:
            too_few = count
    return best
