"""Who was hurt by what a card tells of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from loadmanager.kit.units import HOUR_MS

if TYPE_CHECKING:
    from loadmanager.nightly.day import Day

NOBODY = "nobody"
"""How the words begin where no client had to wait."""
TENANTS_MAX = 3
SHARE_MIN = 0.005
"""A smaller part of a broker's traffic is not shown as one."""


@dataclass(frozen=True, slots=True)
class OnBrokers:
    """The tenants whose bundles some brokers had."""

    brokers: Sequence[str]
    how: str
    """What that was like for them."""
    begun_ms: float | None = None
    """None: from the beginning of the day."""
    ended_ms: float | None = None
    """None: until its end."""


Hurt = str | OnBrokers
"""Who was hurt: in words, or those that the day's records name."""


def clients_of(namespaces: Iterable[str], how: str, most: int = TENANTS_MAX) -> str:
    """The clients of some namespaces, in words."""
    names = sorted(set(namespaces))
    if not names:
        return f"clients that no record names: {how}"
    rest = f" and {len(names) - most:,} more" if len(names) > most else ""
    return f"clients of {', '.join(names[:most])}{rest}: {how}"


def in_words(hurt: Hurt, day: Day) -> str:
    """Who was hurt, for people."""
    if isinstance(hurt, str):
        return hurt
    on = ", ".join(hurt.brokers[:TENANTS_MAX])
    tenants = _tenants(hurt, day)
    if not tenants:
        return f"clients on {on}, whose tenants no record names: {hurt.how}"
    everything = sum(amount for _, amount, _ in tenants)
    its = "its" if len(hurt.brokers) == 1 else "their"
    texts = [
        f"{name} ({_part(amount, everything)} of {its} traffic, for {spent_h:.1f} hours)"
        for name, amount, spent_h in tenants[:TENANTS_MAX]
    ]
    rest = len(tenants) - TENANTS_MAX
    more = f" and {rest:,} more" if rest > 0 else ""
    s = "s" if len(tenants) > 1 else ""
    return f"tenant{s} {', '.join(texts)}{more}, with bundles on {on}: {hurt.how}"


def _part(amount: float, everything: float) -> str:
    part = amount / everything if everything > 0 else 0.0
    return f"{part:.0%}" if part >= SHARE_MIN else "less than 1%"


def _tenants(hurt: OnBrokers, day: Day) -> list[tuple[str, float, float]]:
    """Each tenant that had bundles on these brokers meanwhile: its name, the bytes of these bundles
    there that day, and for how many hours it had one; those with most bytes first.
    """
    begun_ms = day.start_ms if hurt.begun_ms is None else hurt.begun_ms
    ended_ms = day.end_ms if hurt.ended_ms is None else hurt.ended_ms
    interval_ms = _intervals(day)
    if "hot_bundles" not in day.answers:
        return []  # that question failed, and said why
    there = pc.is_in(day.facts.bundles["broker"], pa.array(hurt.brokers, pa.string()))
    rows = [
        row
        for row in day.facts.bundles.filter(there).to_pylist()
        if row["last_ts"] > begun_ms
        and row["first_ts"] - interval_ms.get(row["broker"], 0) < ended_ms
    ]
    tenants = []
    rows.sort(key=_tenant)
    for name, group in groupby(rows, key=_tenant):
        of_tenant = list(group)
        spent_ms = max(
            min(
                row["samples"] * interval_ms.get(row["broker"], 0),
                min(row["last_ts"], ended_ms)
                - max(row["first_ts"] - interval_ms.get(row["broker"], 0), begun_ms),
            )
            for row in of_tenant
        )
        amount = sum(row["bytes"] for row in of_tenant)
        tenants.append((name, amount, spent_ms / HOUR_MS))
    return sorted(tenants, key=lambda each: (-each[1], each[0]))


def _tenant(row: Mapping[str, Any]) -> str:
    return str(row["bundle"]).partition("/")[0]


def _intervals(day: Day) -> dict[str, float]:
    """Broker → the mean time that a sample of its load stands for, in ms."""
    times: dict[str, float] = {}
    samples: dict[str, int] = {}
    for step in day.facts.brokers:
        times[step["broker"]] = times.get(step["broker"], 0.0) + step["interval_ms"]
        samples[step["broker"]] = samples.get(step["broker"], 0) + step["samples"]
    return {broker: times[broker] / samples[broker] for broker in times}
