"""Strained brokers: bundles came to them, and they serve no more than before.

A network card may pass less than it says, and a CPU may be throttled where its sensor does not see
it. Such a broker reports what it serves, and no sensor shows that it is full: it looks as if it had
room. What gives it away is that nearly all of its bundles have less traffic than usual, those that
came and those that were there, while all of them together have as much as before, and those of
other brokers have theirs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from loadmanager.engine.load.snapshot import ClusterSnapshot
from loadmanager.engine.strategies.shedding.lost_traffic import (
    AGAIN_MS,
    LOST_LEAST,
    Came,
    losing_what_came,
)
from loadmanager.kit.reason import Reason

CAME_PART = 0.85
"""What came has less than this part of what it had before."""
LESS, NEARLY_ALL, SERVES = 0.95, 0.85, 0.85
"""Of what was there one in two has less than the first part of its usual traffic, and the second
part of the bundles have less than all of it; the broker serves the third part, at least, of what
these usually have.
"""
STRAINED = Reason(
    "ServesNoMore",
    "it serves no more than before bundles came to it, and nearly all of its bundles have less "
    "traffic than usual: it takes nothing for two hours, and gives away what it does not serve",
)
Asked = Mapping[str, Mapping[str, float]]
"""Strained broker → what its bundles are asked for, bytes/s: what they had before."""


def asked_of(snapshot: ClusterSnapshot, came: Mapping[str, Came], full: Collection[str]) -> Asked:
    """The strained brokers, in order, without those whose sensors show that they are full. Of the
    extensible manager there are none: what most bundles carry is estimated there.
    """
    if snapshot.extensible:
        return {}
    rows, has = snapshot.columns.row_of, snapshot.columns.throughputs
    asked = {}
    losing = {*losing_what_came(snapshot, came, 1.0, {}, CAME_PART)}
    for broker in sorted(losing - {*full}):
        there = _usual_there(snapshot, broker, came)
        served = float(has[rows[broker]])
        if served < SERVES * sum(there.values()) or not _strains(snapshot, broker, there):
            continue
        if _as_usual_elsewhere(snapshot, broker):
            stats = snapshot.reports[broker].last_stats
            before = there | {
                name: it.bytes_s
                for name, it in came.items()
                if it.broker == broker and name in stats
            }
            asked[broker] = {name: max(before[name], stats[name].throughput) for name in before}
    return asked


def still_strained(
    before: Mapping[str, int], asked: Asked, snapshot: ClusterSnapshot
) -> dict[str, int]:
    """Brokers that take nothing because they are, or were lately, strained → when last (ms)."""
    now_ms = snapshot.now_ms
    strained = {
        broker: at_ms
        for broker, at_ms in before.items()
        if now_ms - at_ms < AGAIN_MS and broker in snapshot.reports
    }
    return strained | dict.fromkeys(asked, now_ms)


def _usual_there(
    snapshot: ClusterSnapshot, broker: str, came: Mapping[str, Came]
) -> dict[str, float]:
    """The usual traffic of the bundles of a broker that did not come lately."""
    usual = {
        bundle: snapshot.data_of(bundle).long_term_data.throughput
        for bundle in snapshot.reports[broker].last_stats
        if bundle not in came
    }
    return {bundle: bytes_s for bundle, bytes_s in usual.items() if bytes_s > 0}


def _strains(snapshot: ClusterSnapshot, broker: str, there: Mapping[str, float]) -> bool:
    stats = snapshot.reports[broker].last_stats
    parts = [stats[bundle].throughput / usual for bundle, usual in there.items()]
    if len(parts) < LOST_LEAST:
        return False
    return bool(np.median(parts) < LESS and np.quantile(parts, NEARLY_ALL) < 1)


def _as_usual_elsewhere(snapshot: ClusterSnapshot, broker: str) -> bool:
    """Whether what the other brokers have is their usual traffic."""
    columns, reports = snapshot.columns, snapshot.reports
    usual = snapshot.averages.usual_of_all({it: reports[it].bundles for it in columns.names})
    others = np.ones(len(usual), np.bool_)
    others[columns.row_of[broker]] = False
    has = float(columns.throughputs[others].sum())
    return has > 0 and has >= LESS * float(usual[others].sum())
