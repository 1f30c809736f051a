"""Brokers where bundles lose their traffic: they take nothing.

A broker that reports and does not serve, as one that cannot reach its bookies, or that clients
cannot reach, uses next to no CPU, and neither does whatever comes to it. A shedder that fills what
is empty would give it all bundles.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from loadmanager.engine.load.columns import Array
from loadmanager.engine.load.reports import BundleData
from loadmanager.engine.load.snapshot import ClusterSnapshot
from loadmanager.engine.load.wishes import EVERY_BUNDLE
from loadmanager.kit.reason import Reason
from loadmanager.kit.units import HOUR_MS, MINUTE_MS

USUAL_PART, CAME_PART, BACK_PART = 0.5, 0.6, 0.9
"""A broker takes nothing if its bundles have less than this part of their usual traffic, where all
together have it; or if those that came have less than this part of what they had before, where
those that moved elsewhere have it. From then on, until these have the third part.
"""
LOST_LEAST, MOST = 3, 2 / 3
"""So many bundles have to have lost it, and this part of them all: the clients of a single one go
away by themselves.
"""
SHARE_LEAST = 0.05
"""Bundles whose usual traffic is less than this part of an even share tell nothing of a broker."""
BACK_MS = 3 * MINUTE_MS
"""Clients take so long to come back."""
REMEMBERED_MS, AGAIN_MS = 30 * MINUTE_MS, 2 * HOUR_MS
"""What came counts for so long; at a broker where it was lost, until that one is tried again."""
CAME_MAX = 300


class Came(NamedTuple):
    """A bundle that was moved."""

    broker: str
    bytes_s: float
    """Its traffic before."""
    at_ms: int


NOTHING_CAME: Mapping[str, Came] = MappingProxyType({})
LOST = Reason(
    "TrafficLost",
    "its bundles have lost their traffic, as if it did not serve their clients: it takes nothing",
)


def after(
    before: Mapping[str, Came],
    moves: Iterable[tuple[str, str, float]],
    losing: Collection[str],
    now_ms: int,
) -> dict[str, Came]:
    """What is remembered after a cycle with these moves: bundle, destination, bytes/s."""
    remembered = {
        bundle: each
        for bundle, each in before.items()
        if now_ms - each.at_ms < (AGAIN_MS if each.broker in losing else REMEMBERED_MS)
    }
    for bundle, broker, bytes_s in moves:
        remembered.pop(bundle, None)
        remembered[bundle] = Came(broker, bytes_s, now_ms)
    return dict(list(remembered.items())[-CAME_MAX:])


def losing_brokers(
    snapshot: ClusterSnapshot, came: Mapping[str, Came], before: Collection[str]
) -> tuple[str, ...]:
    """The brokers where traffic is lost, in order; `before`: those of the cycle before."""
    reports, names = snapshot.reports, snapshot.columns.names
    usual = snapshot.averages.usual_of_all({name: reports[name].bundles for name in names})
    whole = float(usual.sum())
    if whole <= 0:
        return ()
    of_all = min(float(snapshot.columns.throughputs.sum()) / whole, 1.0)
    lost = {
        *_below_usual(snapshot, usual, of_all, before),
        *losing_what_came(snapshot, came, of_all, dict.fromkeys(before, BACK_PART), CAME_PART),
    }
    return tuple(sorted(lost))


def refusing(snapshot: ClusterSnapshot, losing: Collection[str]) -> ClusterSnapshot:
    """The cluster in which these brokers take nothing."""
    if not losing:
        return snapshot
    refusals = dict.fromkeys(losing, frozenset({EVERY_BUNDLE}))
    wishes = snapshot.wishes
    return snapshot.having(wishes=replace(wishes, refusals={**wishes.refusals, **refusals}))


def _below_usual(
    snapshot: ClusterSnapshot, usual: Array, of_all: float, losing: Collection[str]
) -> Iterator[str]:
    """Those whose bundles have far less than `usual`, of which all together have `of_all`."""
    columns, reports = snapshot.columns, snapshot.reports
    has = columns.throughputs
    tells = usual * len(usual) > SHARE_LEAST * float(usual.sum())
    least = np.array([BACK_PART if name in losing else USUAL_PART for name in columns.names])
    least *= of_all
    moved_ms, since_ms = snapshot.recently_unloaded_ms, snapshot.now_ms - BACK_MS
    for row in np.flatnonzero(tells & (has < least * usual)).tolist():
        name = columns.names[row]
        parts = [
            (stats.throughput, before)
            for bundle, stats in reports[name].last_stats.items()
            if (before := _usual_of(snapshot.data_of(bundle))) > 0
            and moved_ms.get(bundle, since_ms) <= since_ms
        ]
        if _most_lost(parts, float(least[row])):
            yield name


def _most_lost(bundles: Sequence[tuple[float, float]], part: float) -> bool:
    """Whether most bundles have less than this part of what they had: now, before; bytes/s."""
    lost = sum(now < part * before for now, before in bundles)
    return lost >= max(LOST_LEAST, MOST * len(bundles))


def _usual_of(data: BundleData) -> float:
    """Bytes/s, without those of a burst; see `BundleAverages.usual_of_all`."""
    return min(data.short_term_data.throughput, data.long_term_data.throughput)


def losing_what_came(
    snapshot: ClusterSnapshot,
    came: Mapping[str, Came],
    of_all: float,
    before: Mapping[str, float],
    usual_part: float,
) -> Iterator[str]:
    """The brokers where what came has less than `usual_part` of what it had before, or than the
    part of this broker in `before`, while what went elsewhere has it; if nothing did, all together
    have `of_all` of their usual traffic.
    """
    parts = dict[str, list[tuple[float, float]]]()
    for bundle, each in came.items():
        report = snapshot.reports.get(each.broker)
        if report is None or snapshot.now_ms - each.at_ms < BACK_MS:
            continue
        stats = report.last_stats.get(bundle)
        if stats is not None and each.bytes_s > 0:
            now = min(stats.throughput, each.bytes_s)
            parts.setdefault(each.broker, []).append((now, each.bytes_s))
    all_has, all_had = (sum(sum(of[at] for of in its) for its in parts.values()) for at in (0, 1))
    for broker, its in parts.items():
        has, had = (sum(of[at] for of in its) for at in (0, 1))
        part = (all_has - has) / (all_had - had) if all_had > had else of_all
        least = part * before.get(broker, usual_part)
        if has < least * had and _most_lost(its, least):
            yield broker
