"""Who was hurt by what a card tells of."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from loadmanager.kit.units import HOUR_MS
from loadmanager.nightly.day import Day, lasting

NOBODY = "nobody"
"""How the words begin where no client had to wait."""
TENANTS_MAX = 3
SHARE_MIN = 0.005
"""A smaller part of a broker's traffic is not shown as one."""


@dataclass(frozen=True, slots=True)
class OnBrokers:
    """The tenants whose bundles some brokers had; the namespaces where all are of one tenant."""

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


def clients_per_bundle(names: Collection[str], day: Day) -> Mapping[str, float] | None:
    """Bundle → its producers and consumers, on the mean of the time that it had an owner that day;
    without those of which no load is recorded. None: no client of any bundle is recorded.
    """
    bundles = day.facts.bundles
    if not pc.sum(bundles["connection_hours"]).as_py():
        return None
    intervals_ms = _intervals(day)
    hours, clients = dict[str, float](), dict[str, float]()
    wanted = pc.is_in(bundles["bundle"], pa.array(sorted(names), pa.string()))
    for row in bundles.filter(wanted).to_pylist():
        name, spent_h = row["bundle"], row["samples"] * intervals_ms.get(row["broker"], 0) / HOUR_MS
        hours[name] = hours.get(name, 0.0) + spent_h
        clients[name] = clients.get(name, 0.0) + row["connection_hours"]
    return {name: clients[name] / spent_h for name, spent_h in hours.items() if spent_h > 0}


def in_words(hurt: Hurt, day: Day) -> str:
    """Who was hurt, for people."""
    if isinstance(hurt, str):
        return hurt
    on = ", ".join(hurt.brokers[:TENANTS_MAX])
    rows = _bundles(hurt, day)
    what, named = "tenant", _named(rows, _tenant)
    if len(named) == 1:  # a company's own cluster, say
        what, named = "namespace", _named(rows, _namespace)
    if not named:
        return f"clients on {on}, whose tenants no record names: {hurt.how}"
    everything = sum(amount for _, amount, _ in named)
    its = "its" if len(hurt.brokers) == 1 else "their"
    texts = [
        f"{name} ({_part(amount, everything)} of {its} traffic, for {lasting(spent_h)})"
        for name, amount, spent_h in named[:TENANTS_MAX]
    ]
    rest = len(named) - TENANTS_MAX
    more = f" and {rest:,} more" if rest > 0 else ""
    s = "s" if len(named) > 1 else ""
    return f"{what}{s} {', '.join(texts)}{more}, with bundles on {on}: {hurt.how}"


def _part(amount: float, everything: float) -> str:
    part = amount / everything if everything > 0 else 0.0
    return f"{part:.0%}" if part >= SHARE_MIN else "less than 1%"


def _bundles(hurt: OnBrokers, day: Day) -> list[dict[str, Any]]:
    """The bundles that these brokers had meanwhile, each with the time that it was there."""
    if "hot_bundles" not in day.answers:
        return []  # that question failed, and said why
    begun_ms = day.start_ms if hurt.begun_ms is None else hurt.begun_ms
    ended_ms = day.until_ms if hurt.ended_ms is None else hurt.ended_ms
    interval_ms = _intervals(day)
    there = pc.is_in(day.facts.bundles["broker"], pa.array(hurt.brokers, pa.string()))
    bundles = []
    for row in day.facts.bundles.filter(there).to_pylist():
        each_ms = interval_ms.get(row["broker"], 0)
        lasted_ms = min(row["last_ts"], ended_ms) - max(row["first_ts"] - each_ms, begun_ms)
        if lasted_ms > 0:
            bundles.append({**row, "spent_ms": min(row["samples"] * each_ms, lasted_ms)})
    return bundles


def _named(
    rows: Iterable[dict[str, Any]], name_of: Callable[[Mapping[str, Any]], str]
) -> list[tuple[str, float, float]]:
    """Each tenant or namespace of these bundles: its name, their bytes that day, and for how many
    hours it had one there; those with most bytes first.
    """
    named = []
    for name, group in groupby(sorted(rows, key=name_of), key=name_of):
        of_name = list(group)
        amount = sum(row["bytes"] for row in of_name)
        named.append((name, amount, max(row["spent_ms"] for row in of_name) / HOUR_MS))
    return sorted(named, key=lambda each: (-each[1], each[0]))


def _tenant(row: Mapping[str, Any]) -> str:
    return str(row["bundle"]).partition("/")[0]


def _namespace(row: Mapping[str, Any]) -> str:
    return "/".join(str(row["bundle"]).split("/")[:2])


def _intervals(day: Day) -> dict[str, float]:
    """Broker → the mean time that a sample of its load stands for, in ms."""
    times: dict[str, float] = {}
    samples: dict[str, int] = {}
    for step in day.facts.brokers:
        times[step["broker"]] = times.get(step["broker"], 0.0) + step["interval_ms"]
        samples[step["broker"]] = samples.get(step["broker"], 0) + step["samples"]
    return {broker: times[broker] / samples[broker] for broker in times}
