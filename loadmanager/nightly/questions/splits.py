"""Which bundles were split, and did both halves carry traffic?"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

from loadmanager.engine.history.tenures import Tenure
from loadmanager.nightly.day import (
    NUMBER,
    TEXT,
    TEXTS,
    WHOLE,
    YES_NO,
    Columns,
    Day,
    Finding,
    Row,
    many,
    namespace_of,
    over,
)
from loadmanager.nightly.hurt import clients_of

NAME = "splits"
ABOUT = (
    "Which bundles were split, and were the children used? A split is useful when the "
    "busiest child carries less than nine tenths afterwards. What a child's own children carried "
    "counts as its."
)
COLUMNS: Columns = {
    "ts": (WHOLE, "when"),
    "parent": (TEXT, "the bundle that was split"),
    "broker": (TEXT, "its owner"),
    "children": (TEXTS, "the bundles that replaced it"),
    "bytes": (NUMBER, "bytes that the children carried that day, in and out"),
    "busiest_share": (NUMBER, "the part of the busiest child"),
    "useful": (YES_NO, "whether that is less than nine tenths"),
}
USELESS_SHARE = 0.9
Ranges = dict[str, tuple[list[int], list[tuple[int, float]]]]
"""Namespace → lower edges in order, and upper edge and bytes of each bundle."""


def table(day: Day) -> list[Row]:
    born: dict[str, dict[str, Tenure]] = {}
    for tenures in day.owners.values():
        for tenure in tenures:
            since = tenure.since_ms
            if tenure.parent is not None and since is not None and since >= day.start_ms:
                born.setdefault(tenure.parent, {}).setdefault(tenure.bundle, tenure)
    if not born:
        return []
    ranges = _ranges(day.answer("hot_bundles"))
    rows = [_row(parent, children, ranges, day) for parent, children in born.items()]
    return sorted(rows, key=lambda row: (row["ts"], row["parent"]))


def _row(parent: str, children: dict[str, Tenure], ranges: Ranges, day: Day) -> Row:
    carried = {child: _carried(child, ranges) for child in children}
    share = over(max(carried.values()), sum(carried.values()))
    first = min(children.values(), key=lambda tenure: (tenure.since_ms or 0, tenure.bundle))
    ahead = day.corrections.get(first.broker, 0.0)
    return {
        "ts": round((first.since_ms or 0) - ahead),
        "parent": parent,
        "broker": first.broker,
        "children": sorted(children),
        "bytes": sum(carried.values()),
        "busiest_share": share,
        "useful": None if share is None else share < USELESS_SHARE,
    }


def edges(bundle: str) -> tuple[int, int] | None:
    """The edges of a bundle's range; None for one whose name has none."""
    low, _, high = bundle.rpartition("/")[2].partition("_")
    try:
        return int(low, 16), int(high, 16)
    except ValueError:
        return None


def _ranges(bundles: Sequence[Row]) -> Ranges:
    of_namespace: dict[str, list[tuple[int, int, float]]] = {}
    for row in bundles:
        if (edge := edges(row["bundle"])) is not None:
            space = row["bundle"].rpartition("/")[0]
            of_namespace.setdefault(space, []).append((*edge, row["bytes"]))
    sorted_ranges: Ranges = {}
    for space, ranges in of_namespace.items():
        ranges.sort()
        sorted_ranges[space] = (
            [low for low, _, _ in ranges],
            [(high, sum_) for _, high, sum_ in ranges],
        )
    return sorted_ranges


def _carried(child: str, ranges: Ranges) -> float:
    """Bytes of a bundle and of those within it."""
    edge = edges(child)
    if edge is None:
        return 0.0
    lows, others = ranges.get(child.rpartition("/")[0], ([], []))
    begin, end = bisect_left(lows, edge[0]), bisect_left(lows, edge[1])
    return sum(bytes_ for high, bytes_ in others[begin:end] if high <= edge[1])


def findings(rows: Sequence[Any], _day: Day) -> list[Finding]:
    """Splits that left everything on one side."""
    useless = [row for row in rows if row.useful is False]
    if not useless:
        return []
    worst = max(useless, key=lambda row: (row.bytes, row.parent))
    return [
        Finding(
            importance=22 + min(2 * len(useless), 20),
            question=NAME,
            title=f"{len(useless)} of {many(len(rows), 'split')} did not divide the load",
            text=f"One child carried nearly everything afterwards; {worst.parent} is the busiest "
            f"of them, with {worst.busiest_share:.0%} on one side.",
            advice="defaultNamespaceBundleSplitAlgorithm=flow_or_qps_equally_divide divides where "
            "the traffic is; one hot topic needs partitions instead.",
            hurt=clients_of(
                (namespace_of(row.parent) for row in useless),
                "their bundles are more, and their load is where it was",
            ),
            numbers={
                "useless": len(useless),
                "splits": len(rows),
                "worstShare": worst.busiest_share,
            },
            at_ms=useless[0].ts,
            until_ms=useless[-1].ts,
            where=worst.parent,
            plot="timeline",
            commands=["loadmanager admin decisions"],
            causes=[f"bundle {child}" for row in useless for child in row.children],
        )
    ]
