"""Which namespaces have too few bundles or badly placed boundaries, and which would be better?"""

from __future__ import annotations

import math
import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from loadmanager.nightly.day import (
    NUMBER,
    TEXT,
    TEXTS,
    WHOLE,
    Columns,
    Day,
    Finding,
    Row,
    busiest_hour,
    command,
    is_busy,
    listed,
    many,
    namespace_of,
    over,
)
from loadmanager.nightly.hurt import clients_of
from loadmanager.nightly.questions import imbalance
from loadmanager.nightly.questions.broker_usage import OVER_HOURS_MIN
from loadmanager.nightly.questions.hot_bundles import hot_share
from loadmanager.nightly.questions.splits import edges

NAME = "namespaces"
ABOUT = (
    "Which namespaces are divided badly? A namespace wants four bundles for each broker's worth of "
    "its traffic, so that there is something to move; that is told if it hurt: if brokers that "
    "carried much of it were overloaded, the load was uneven, or one bundle keeps a broker busy. "
    "The boundaries divide the day's bytes of its "
    "recorded topics evenly."
)
COLUMNS: Columns = {
    "namespace": (TEXT, "the namespace"),
    "bundles": (WHOLE, "bundles that recorded load at the end of the day"),
    "bytes": (NUMBER, "bytes of the day, in and out"),
    "largest_share": (NUMBER, "the part of its busiest bundle"),
    "cut_into": (
        WHOLE,
        (
            "bundles, counting those without an owner: the rest of the hash space is taken to have "
            "bundles of the same size"
        ),
    ),
    "share": (NUMBER, "its part of the bytes of all namespaces"),
    "wanted": (WHOLE, "bundles that it should have"),
    "cuts": (TEXTS, "boundaries that would divide its recorded topics evenly"),
    "topics": (WHOLE, "its recorded topics with traffic"),
    "largest_share_then": (NUMBER, "the part of the busiest bundle with these boundaries"),
    "commands": (TEXTS, "what makes these boundaries"),
}
BUNDLES_PER_BROKER = 4
BUNDLES_MAX = 128
HASHES = 0xFFFFFFFF
TOPICS_MIN = 2
SHARE_MIN = 0.05
BLAME_MIN = 0.25
"""A namespace that carries so much of a busy broker is a part of why that is busy."""
PRESENT_MS = 600_000


def table(day: Day) -> list[Row]:
    spaces: dict[str, list[Row]] = {}
    for row in day.answer("hot_bundles"):
        spaces.setdefault(namespace_of(row["bundle"]), []).append(row)
    split = {row["parent"]: row["ts"] for row in day.answers.get("splits", ())}
    brokers = max(len({row["broker"] for row in day.facts.brokers}), 1)
    everything = sum(row["bytes"] for rows in spaces.values() for row in rows)
    topics: dict[str, list[tuple[int, str, float]]] = {}
    for row in day.answer("hot_topics"):
        if row["bytes"] > 0:
            name = row["topic"]
            placed = (zlib.crc32(name.encode()), name, row["bytes"])
            topics.setdefault(namespace_of(name.partition("://")[2]), []).append(placed)
    rows = [
        _row(
            space,
            bundles,
            split,
            brokers=brokers,
            everything=everything,
            topics=topics.get(space, []),
        )
        for space, bundles in spaces.items()
    ]
    return sorted(rows, key=lambda row: (-row["share"], row["namespace"]))


def _row(
    space: str,
    bundles: Sequence[Row],
    split: Mapping[str, float],
    *,
    brokers: int,
    everything: float,
    topics: Sequence[tuple[int, str, float]],
) -> Row:
    latest = max(row["last_ts"] for row in bundles)
    present = _latest(
        [
            row
            for row in bundles
            if row["last_ts"] >= max(latest - PRESENT_MS, split.get(row["bundle"], 0))
        ]
    )
    now = [row["bytes"] for row in present]
    bytes_ = sum(row["bytes"] for row in bundles)
    share = over(bytes_, everything) or 0.0
    wanted = min(max(1, math.ceil(BUNDLES_PER_BROKER * brokers * share)), BUNDLES_MAX)
    better = boundaries(topics, wanted) if topics else None
    return {
        "namespace": space,
        "bundles": len(present),
        "bytes": bytes_,
        "largest_share": over(max(now), sum(now)),
        "cut_into": len(present) + _rest([row["bundle"] for row in present]),
        "share": share,
        "wanted": wanted,
        "cuts": None if better is None else [f"0x{cut:08x}" for cut in better[0]],
        "topics": None if better is None else len(topics),
        "largest_share_then": None if better is None else better[1],
        "commands": []
        if better is None
        else commands([row["bundle"] for row in present], better[0], topics),
    }


def _latest(bundles: Sequence[Row]) -> list[Row]:
    """The bundles without those in whose range others have recorded load later.

    A broker records the last load of a bundle a moment after it has split it.
    """
    newest: list[tuple[tuple[int, int], Row]] = []
    unnamed = []
    for row in sorted(bundles, key=lambda row: (-row["last_ts"], row["bundle"])):
        edge = edges(row["bundle"])
        if edge is None:
            unnamed.append(row)
            continue
        place = bisect_left(newest, edge[0], key=lambda pair: pair[0][0])
        before, after = newest[place - 1 : place] if place else [], newest[place : place + 1]
        if any(low < edge[1] and edge[0] < high for (low, high), _ in (*before, *after)):
            continue
        newest.insert(place, (edge, row))
    return [row for _, row in newest] + unnamed


def _rest(present: Sequence[str]) -> int:
    """The number of bundles of the same size that the rest of the hash space has."""
    ranges = [edge for name in present if (edge := edges(name)) is not None]
    covered = sum(high - low for low, high in ranges)
    if covered <= 0:
        return 0
    return max(math.ceil((HASHES - covered) * len(present) / covered - 0.5), 0)


def boundaries(topics: Sequence[tuple[int, str, float]], wanted: int) -> tuple[list[int], float]:
    """Boundaries between topics (hash, name, bytes) in order of their hash, such that each of
    `wanted` pieces carries about as much; and the part of the busiest piece.
    """
    placed = sorted(topics)
    everything = sum(bytes_ for _, _, bytes_ in placed)
    pieces: dict[int, float] = {}
    cuts, so_far, last = [], 0.0, None
    for index, (hash_, _, bytes_) in enumerate(placed):
        piece = int((so_far + bytes_ / 2) / everything * wanted)
        if last is not None and piece != last:
            before = placed[index - 1][0]
            cuts.append(before + (hash_ - before) // 2 + 1)
        pieces[piece] = pieces.get(piece, 0.0) + bytes_
        so_far, last = so_far + bytes_, piece
    return sorted(set(cuts)), max(pieces.values()) / everything


def commands(
    bundles: Sequence[str], cuts: Sequence[int], topics: Sequence[tuple[int, str, float]]
) -> list[str]:
    """The splits that bring a namespace these boundaries, where none divides the topics yet."""
    by_range = sorted((edge, name) for name in bundles if (edge := edges(name)) is not None)
    lows, hashes = [edge[0] for edge, _ in by_range], sorted(hash_ for hash_, _, _ in topics)
    within: dict[str, list[int]] = {}
    for cut in cuts:
        place = bisect_right(lows, cut) - 1
        if place < 0 or cut >= by_range[place][0][1]:
            continue
        (low, high), name = by_range[place]
        before, at, end = (
            bisect_left(hashes, edge) for edge in (within.get(name, [low])[-1], cut, high)
        )
        if before < at < end:  # a topic on either side
            within.setdefault(name, []).append(cut)
    return [
        line
        for name, at in within.items()
        for line in command(
            "loadmanager admin bundles split",
            name,
            " --algorithm specified_positions_divide "
            + " ".join(f"--at 0x{cut:08x}" for cut in at),
        )
    ]


def _too_busy(day: Day) -> dict[str, list[str]] | None:
    """Namespace → brokers with much of it that were overloaded, or busier than others when the load
    was uneven; None: it is not known which.
    """
    rows = day.answers.get("broker_usage")
    if not rows:
        return None
    names = {row["broker"] for row in rows if row["hours_over"] >= OVER_HOURS_MIN}
    if imbalance.was_uneven(day):
        mean = fmean(row["mean"] for row in rows)
        names |= {row["broker"] for row in rows if row["mean"] > mean}
    carried: dict[str, dict[str, float]] = {}
    table = day.facts.bundles
    columns = (table[name].to_pylist() for name in ("bundle", "broker", "bytes"))
    for bundle, broker, bytes_ in zip(*columns, strict=True):
        if broker in names:
            of_broker = carried.setdefault(broker, {})
            space = namespace_of(bundle)
            of_broker[space] = of_broker.get(space, 0.0) + bytes_
    busy: dict[str, list[str]] = {}
    for broker, spaces in sorted(carried.items()):
        for space, bytes_ in spaces.items():
            if bytes_ >= BLAME_MIN * sum(spaces.values()):
                busy.setdefault(space, []).append(broker)
    return busy


def findings(rows: Sequence[Any], day: Day) -> list[Finding]:
    """Namespaces with much traffic, and too few bundles or badly placed boundaries."""
    if not is_busy(day):
        return []
    findings, hours = [], day.facts.namespaces_by_hour
    busy = _too_busy(day)
    for row in rows:
        if row.share < SHARE_MIN:
            continue
        better = (
            row.cuts
            and row.largest_share_then is not None
            and row.largest_share is not None
            and row.largest_share_then < 0.75 * row.largest_share
        )
        wanted = min(row.wanted, row.topics or row.wanted)  # a bundle without a topic helps nobody
        few = row.cut_into < wanted and (row.topics or TOPICS_MIN) >= TOPICS_MIN
        hot = (row.largest_share or 0.0) * row.share >= hot_share(day)
        if few and (hot or busy is None or row.namespace in busy):
            title = f"{row.namespace} has {many(row.cut_into, 'bundle')} and wants {wanted}"
            text = (
                f"It carries {row.share:.0%} of the traffic; with so few bundles there "
                "is little to move from a busy broker."
            )
            if busy and row.namespace in busy:
                names = listed(busy[row.namespace])
                text += f" Too busy for some of the day, with much of it: {names}."
            advice = f"Split its bundles until there are about {wanted}."
            importance = 35 + 20 * row.share
        elif better and row.largest_share > 2 / max(row.bundles, 1):
            title = f"One bundle of {row.namespace} carries {row.largest_share:.0%} of it"
            text = (
                f"It has {row.bundles} bundles; other boundaries would have left "
                f"{row.largest_share_then:.0%} at most in one."
            )
            advice = "Divide it at these boundaries."
            importance = 30 + 20 * row.largest_share
        else:
            continue
        carried = ((at["hour"], at["bytes"]) for at in hours if at["namespace"] == row.namespace)
        findings.append(
            Finding(
                importance=importance,
                question=NAME,
                title=title,
                text=text + busiest_hour(carried),
                advice=advice,
                hurt=clients_of([row.namespace], "little of it can be moved off a busy broker"),
                numbers={
                    "bundles": row.bundles,
                    "cutInto": row.cut_into,
                    "wanted": row.wanted,
                    "largestShare": row.largest_share,
                    "largestShareThen": row.largest_share_then,
                    "cuts": row.cuts,
                },
                where=row.namespace,
                plot="bundles",
                explains=[f"boundaries of {row.namespace}"],
                commands=row.commands
                if better
                else command("loadmanager admin bundles list", row.namespace),
            )
        )
    return findings
