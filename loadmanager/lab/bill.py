"""What each tenant used of the brokers: by what its traffic costs them, as the model has learned it
from the day's usage, and not by its bytes.

The idle part of brokers belongs to all: broker-hours are divided as the learned CPU is. Where the
model explains too little of a day, they are divided as the bytes are, and the bill names that day.
What is stored is what leaders counted; of a day without a count, that of open topics: brokers know
no others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from loadmanager.lab.days import CPU_OF_A_CORE, MINUTES_PER_DAY
from loadmanager.lab.recorded import Recording


@dataclass(slots=True)
class TenantUse:
    """A tenant on some days."""

    core_hours: float = 0.0
    """Of one core, for its traffic, by the model; of days that it explains."""
    broker_hours: float = 0.0
    """Its part of the hours of all brokers."""
    gigabytes: float = 0.0
    """In and out, 10⁹ bytes."""
    clients: int = 0
    """Producers and consumers, the most at once of each bundle, on the day with most of them."""
    stored_gigabyte_days: float | None = None
    """10⁹ bytes that its topics had stored, for a day; None: no record says."""


@dataclass(slots=True)
class Bill:
    """A month, as far as it was recorded."""

    tenants: dict[str, TenantUse] = field(default_factory=dict)
    days: int = 0
    broker_hours: float = 0.0
    error: float | None = None
    """The mean error of the model of a broker's usage, as a fraction: of the worst of the days that
    it explains; None: it explains none.
    """
    by_traffic: list[str] = field(default_factory=list)
    """Days of which the model explains too little to say what traffic costs."""
    open_only: list[str] = field(default_factory=list)
    """Days of which only what open topics had stored is known."""
    left_out: list[str] = field(default_factory=list)
    """Days without traffic, which nobody used."""

    def add(self, date: str, recording: Recording) -> None:
        """Count a day."""
        used = _used(recording)
        by_model = recording.fit.tells_costs
        parts = {
            name: each.core_hours if by_model else each.gigabytes for name, each in used.items()
        }
        everything = sum(parts.values())
        if everything <= 0:
            self.left_out.append(date)
            return
        broker_hours = sum(len(minute.live) for minute in recording.modelled) / 60
        for name, each in used.items():
            tenant = self.tenants.setdefault(name, TenantUse())
            tenant.core_hours += each.core_hours if by_model else 0.0
            tenant.broker_hours += broker_hours * parts[name] / everything
            tenant.gigabytes += each.gigabytes
            tenant.clients = max(tenant.clients, each.clients)
            if each.stored_gigabyte_days is not None:
                before = tenant.stored_gigabyte_days or 0.0
                tenant.stored_gigabyte_days = before + each.stored_gigabyte_days
        if recording.stored is not None and recording.stored_of_all is None:
            self.open_only.append(date)
        self.days += 1
        self.broker_hours += broker_hours
        if by_model:
            self.error = max(self.error or 0.0, recording.fit.error)
        else:
            self.by_traffic.append(date)


def _used(recording: Recording) -> dict[str, TenantUse]:
    day = recording.day
    assert day.carried is not None  # a recorded day has it
    seconds = 60 * np.asarray(day.carried, np.float64).sum(axis=0)
    used: dict[str, TenantUse] = {}
    for at, bundle in enumerate(day.bundles):
        tenant = used.setdefault(bundle.partition("/")[0], TenantUse())
        tenant.core_hours += float(seconds[at] * day.cost[at]) / CPU_OF_A_CORE / 3600
        tenant.gigabytes += float(seconds[at]) / 1e9
        tenant.clients += int(day.clients[at])
    stored = recording.stored if recording.stored_of_all is None else recording.stored_of_all
    for name, size in (stored or {}).items():
        tenant = used.setdefault(name.partition("/")[0], TenantUse())
        before = tenant.stored_gigabyte_days or 0.0
        tenant.stored_gigabyte_days = before + size / 1e9 * day.minutes / MINUTES_PER_DAY
    return used


def bills(recordings: Iterable[tuple[str, Recording]]) -> Mapping[str, Bill]:
    """Month (`YYYY-MM`) → its bill, of these days by date."""
    made: dict[str, Bill] = {}
    for date, recording in recordings:
        made.setdefault(date[:7], Bill()).add(date, recording)
    return made
