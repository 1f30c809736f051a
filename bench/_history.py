"""Made-up histories, from a seed: a small designed day whose answers are known in closed form, and
a large random one.
"""

from __future__ import annotations

import gzip
import json
import random
import zlib
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import msgspec

from loadmanager.kit.history import layout
from loadmanager.kit.units import DAY_MS

CLUSTER = "made-up"
DATE = "2026-11-20"
START_MS = layout.day_start_ms(DATE)
MINUTE_MS = 60_000
MINUTES = 1375
"""The length of the designed day: eleven times the 125 minutes in which b0's usage takes every
value.
"""


def folder(root: Path, kind: str, date: str = DATE) -> Path:
    """The folder for segments of a kind."""
    path = root / layout.cluster_folder(CLUSTER) / layout.partition(kind, date)
    path.mkdir(parents=True, exist_ok=True)
    return path


def write(
    root: Path,
    kind: str,
    broker: str,
    lines: Iterable[str],
    *,
    sequence: int = 1,
    date: str = DATE,
    level: int = 1,
) -> Path:
    """One sealed segment."""
    name = layout.stem(broker, START_MS, sequence) + layout.COMPRESSED
    path = folder(root, kind, date) / name
    with gzip.open(path, "wt", compresslevel=level) as file:
        file.writelines(f"{line}\n" for line in lines)
    return path


def record(kind_fields: dict[str, Any], minute: float, broker: str) -> str:
    """One record's line."""
    return json.dumps(_record(kind_fields, minute, broker))


def compact(kind_fields: dict[str, Any], minute: float, broker: str) -> str:
    """The same without spaces, made in less time, for days of a million lines."""
    return msgspec.json.encode(_record(kind_fields, minute, broker)).decode()


def _record(kind_fields: dict[str, Any], minute: float, broker: str) -> dict[str, Any]:
    return {"v": 2, "ts": START_MS + int(minute * MINUTE_MS), "broker": broker, **kind_fields}


def broker_load(
    minute: float,
    broker: str,
    usage: float,
    *,
    bundles: int = 1,
    rate: float = 10.0,
    faults: tuple[str, ...] = (),
    cpu: float | None = None,
) -> str:
    """A broker_load record."""
    resources = {
        name: {"usage": 0.0, "limit": 100.0}
        for name in ("memory", "directMemory", "bandwidthIn", "bandwidthOut")
    }
    cpu_used = usage * 100 if cpu is None else cpu
    fields = {
        "intervalMs": MINUTE_MS,
        "usage": usage,
        "cpu": {"usage": cpu_used, "limit": 100.0},
        **resources,
    }
    return record(
        {
            **fields,
            "bundles": bundles,
            "msgRateIn": rate,
            "msgThroughputIn": rate * 100,
            "faults": list(faults),
        },
        minute,
        broker,
    )


def bundle_load(
    minute: float,
    broker: str,
    bundle: str,
    throughput: float,
    topics: int = 2,
    *,
    stored: int | None = None,
) -> str:
    """A bundle_load record; `stored`: bytes, if it says so."""
    fields: dict[str, Any] = {
        "intervalMs": MINUTE_MS,
        "bundle": bundle,
        "msgRateIn": throughput / 100,
        "msgThroughputIn": throughput,
        "topics": topics,
    }
    if stored is not None:
        fields["storedBytes"] = stored
    return record(fields, minute, broker)


def topic_load(minute: float, broker: str, topic: str, bundle: str, throughput: float) -> str:
    """A topic_load record."""
    fields = {
        "intervalMs": MINUTE_MS,
        "topic": topic,
        "bundle": bundle,
        "msgRateIn": throughput / 100,
        "msgThroughputIn": throughput,
    }
    return record(fields, minute, broker)


def step(
    minute: float, broker: str, bundle: str, before: str, after: str, reason: str, **more: Any
) -> str:
    """An ownership record."""
    return record(
        {"bundle": bundle, "before": before, "after": after, "reason": reason, **more},
        minute,
        broker,
    )


def move(
    minute: float, bundle: str, source: str, destination: str, pause_ms: float
) -> dict[str, list[str]]:
    """Both brokers' records of a move."""
    return {
        source: [
            step(
                minute,
                source,
                bundle,
                "Owned",
                "Releasing",
                "shed",
                cause="leader",
                destination=destination,
            ),
            step(
                minute + pause_ms / MINUTE_MS,
                source,
                bundle,
                "Releasing",
                "Free",
                "shed",
                cause="leader",
                destination=destination,
                pauseMs=pause_ms,
            ),
        ],
        destination: [
            step(minute, destination, bundle, "Free", "Assigning", "transferred"),
            step(
                minute + pause_ms / MINUTE_MS,
                destination,
                bundle,
                "Assigning",
                "Owned",
                "transferred",
            ),
        ],
    }


# The designed day of brokers b0 to b3. The tests that look for a planted fact describe it.

FLAPPING = "t/flap/0x00000000_0xffffffff"
HOT = "t/hot/0x00000000_0x80000000"
COLD = "t/hot/0x80000000_0xffffffff"
SPLIT_USELESS, SPLIT_USEFUL = "t/split/0x00000000_0x80000000", "t/split/0x80000000_0xffffffff"
MOVED_USELESS, MOVED_USEFUL = "t/move/0x00000000_0x80000000", "t/move/0x80000000_0xffffffff"
"""The latter was acquired before the day began."""
STARVING = "persistent://t/hot/starving"
USEFUL_MINUTE, USELESS_MINUTE = 300, 800
FLAP_MINUTES = (100, 110, 120, 170)
NEW_BROKER_MINUTE, NEW_BROKER_LOAD_MINUTE = 600, 690
SPLIT_MINUTE = 400


def designed(root: Path) -> None:
    """Write the designed day."""
    for broker, lines in _designed_loads().items():
        write(root, "broker_load", broker, lines)
    write(root, "bundle_load", "b1", _designed_bundles())
    write(root, "topic_load", "b1", _designed_topics())
    steps: dict[str, list[str]] = {f"b{index}": [] for index in range(4)}
    for bundle, owner in (
        (FLAPPING, "b1"),
        (MOVED_USELESS, "b2"),
        (SPLIT_USELESS, "b1"),
        (SPLIT_USEFUL, "b1"),
    ):
        steps[owner] += [
            step(0, owner, bundle, "Free", "Assigning", "lookup"),
            step(0, owner, bundle, "Assigning", "Owned", "lookup"),
        ]
    moves = [
        move(minute, FLAPPING, *(("b1", "b2") if index % 2 == 0 else ("b2", "b1")), 40.0)
        for index, minute in enumerate(FLAP_MINUTES)
    ]
    moves += [
        move(USEFUL_MINUTE, MOVED_USEFUL, "b2", "b1", 20.0),
        move(USELESS_MINUTE, MOVED_USELESS, "b2", "b1", 2500.0),
    ]
    for one in moves:
        for broker, lines in one.items():
            steps[broker] += lines
    steps["b1"] += _designed_splits()
    for broker, lines in steps.items():
        write(root, "ownership", broker, lines)
    write(root, "throttle", "b1", _designed_limits())
    unload = {
        "epoch": 1,
        "cycle": 1,
        "strategy": "ThresholdShedder",
        "action": "unload",
        "bundle": MOVED_USEFUL,
        "source": "b2",
        "why": {"usage": 0.9},
    }
    write(
        root,
        "decision",
        "b0",
        [record({**unload, "destination": "b1", "reason": "Overloaded"}, USEFUL_MINUTE, "b0")],
    )


def _designed_loads() -> dict[str, list[str]]:
    """b0: every value from 0.00 to 1.00, and 0.5 in each five minutes. b1 and b2: 0.2 and 0.8 until
    the useful move, then 0.5. b3: new, and it waits.
    """
    lines: dict[str, list[str]] = {}
    lines["b0"] = [broker_load(minute, "b0", usage_of_b0(minute)) for minute in range(MINUTES)]
    lines["b1"] = [
        broker_load(minute, "b1", 0.2 if minute < USEFUL_MINUTE else 0.5, cpu=30.0)
        for minute in range(MINUTES)
    ]
    lines["b2"] = [
        broker_load(
            minute,
            "b2",
            0.8 if minute < USEFUL_MINUTE else 0.5,
            cpu=(80.0 if minute < USEFUL_MINUTE else 50.0) - minute % 5 / 100,
            faults=("nicSpeed",) if minute < 120 else (),
        )
        for minute in range(MINUTES)
    ]
    lines["b3"] = [
        broker_load(
            minute,
            "b3",
            0.5,
            cpu=float(minute % 50),
            bundles=0 if minute < NEW_BROKER_LOAD_MINUTE else 1,
            rate=0.0 if minute < NEW_BROKER_LOAD_MINUTE else 10.0,
        )
        for minute in range(NEW_BROKER_MINUTE, MINUTES)
    ]
    return lines


def usage_of_b0(minute: int) -> float:
    """In each five minutes x, y, 0.5, 1 - y, 1 - x, with x and y going through 0.00 to 0.49."""
    five, at = divmod(minute, 5)
    first, second = 2 * five % 50, (2 * five + 1) % 50
    return (first, second, 50, 100 - second, 100 - first)[at] / 100


def _designed_bundles() -> Iterator[str]:
    """HOT carries as much as all others together: 1000 of 2000 bytes/s while all are there."""
    for minute in range(MINUTES):
        yield bundle_load(minute, "b1", HOT, 1000.0)
        yield bundle_load(minute, "b1", COLD, 400.0)
        yield bundle_load(minute, "b1", FLAPPING, 200.0)
        yield bundle_load(minute, "b1", MOVED_USEFUL, 100.0)
        yield bundle_load(minute, "b1", MOVED_USELESS, 100.0)
        for parent, (low, middle, high), shares in (
            (SPLIT_USELESS, ("0x00000000", "0x40000000", "0x80000000"), (100.0, 0.0)),
            (SPLIT_USEFUL, ("0x80000000", "0xc0000000", "0xffffffff"), (40.0, 60.0)),
        ):
            if minute <= SPLIT_MINUTE:
                yield bundle_load(minute, "b1", parent, 100.0)
            else:
                yield bundle_load(minute, "b1", f"t/split/{low}_{middle}", shares[0])
                yield bundle_load(minute, "b1", f"t/split/{middle}_{high}", shares[1])


def _designed_topics() -> Iterator[str]:
    """Eight equal topics of t/hot: one cut between each two in order of their hash."""
    for minute in range(MINUTES):
        for topic in topics_of_hot():
            yield topic_load(
                minute, "b1", topic, HOT if zlib.crc32(topic.encode()) < 0x80000000 else COLD, 175.0
            )


def topics_of_hot() -> list[str]:
    """In order of their hash."""
    return sorted(
        (f"persistent://t/hot/topic-{index}" for index in range(8)),
        key=lambda topic: zlib.crc32(topic.encode()),
    )


def _designed_splits() -> list[str]:
    lines = []
    for parent in (SPLIT_USELESS, SPLIT_USEFUL):
        low, high = parent.rpartition("/")[2].split("_")
        middle = {"0x00000000": "0x40000000", "0x80000000": "0xc0000000"}[low]
        lines.append(step(SPLIT_MINUTE, "b1", parent, "Owned", "Splitting", "admin"))
        lines += [
            step(SPLIT_MINUTE, "b1", f"t/split/{edges}", "Free", "Owned", "split", parent=parent)
            for edges in (f"{low}_{middle}", f"{middle}_{high}")
        ]
        lines.append(step(SPLIT_MINUTE, "b1", parent, "Splitting", "Free", "split into 2"))
    return lines


def _designed_limits() -> Iterator[str]:
    """STARVING is held in three of four minutes and delivers the configured rate; another is never
    held.
    """
    for minute in range(MINUTES):
        held = minute % 4 != 3
        common = {
            "intervalMs": MINUTE_MS,
            "level": "topic",
            "configuredBytesPerS": -1.0,
            "deliveredBytesPerS": 0.0,
        }
        starving = {
            "limit": STARVING,
            "configuredMessagesPerS": 100.0,
            "deliveredMessagesPerS": 100.0 if held else 20.0,
        }
        waits = {
            "held": 6 if held else 0,
            "waitedMs": 60_000.0 if held else 0.0,
            "queueLength": 1 if held else 0,
        }
        yield record({**common, **starving, **waits}, minute, "b1")
        free = {
            "limit": "persistent://t/hot/free",
            "configuredMessagesPerS": 100.0,
            "deliveredMessagesPerS": 1.0,
        }
        yield record({**common, **free, "held": 0, "waitedMs": 0.0, "queueLength": 0}, minute, "b1")


# The large one.

BROKERS, BUNDLES = 20, 25_000
ROWS_A_SEGMENT = 100_000


def large(root: Path, rows: int, seed: int = 1) -> None:
    """About `rows` records: every bundle's load again and again over the day, and 1 % of everything
    else.
    """
    sequences = max(rows // ROWS_A_SEGMENT, 1)
    with ProcessPoolExecutor() as pool:
        list(
            pool.map(
                _large_segment,
                *zip(
                    *(
                        (root, number, sequences, min(rows, ROWS_A_SEGMENT), seed)
                        for number in range(sequences)
                    ),
                    strict=True,
                ),
            )
        )


def _large_segment(root: Path, number: int, sequences: int, rows: int, seed: int) -> None:
    rng = random.Random(f"{seed} {number}")
    span_ms = DAY_MS // sequences
    first_ms, broker = START_MS + number * span_ms, f"b{number % BROKERS:02}"
    offset = number * rows
    waves = [rng.random() for _ in range(997)]
    lines = []
    for index in range(rows):
        bundle = (offset + index) % BUNDLES
        load = (bundle % 97 + 1) * 1000.0 * (0.5 + waves[index % 997])
        lines.append(
            f'{{"v":2,"ts":{first_ms + index * span_ms // rows},"broker":"b{bundle % BROKERS:02}",'
            f'"intervalMs":60000,"bundle":"t/n{bundle // 500}/0x{bundle % 500 * 8589934:08x}_'
            f'0x{(bundle % 500 + 1) * 8589934 - 1:08x}","msgRateIn":{load / 100:.1f},'
            f'"msgRateOut":{load / 50:.1f},"msgThroughputIn":{load:.1f},'
            f'"msgThroughputOut":{2 * load:.1f},"topics":{bundle % 7 + 1},'
            '"producers":2,"consumers":2}'
        )
    write(root, "bundle_load", broker, lines, sequence=number)
    minutes = [
        first_ms / MINUTE_MS - START_MS / MINUTE_MS + index * span_ms / MINUTE_MS / (rows // 1000)
        for index in range(rows // 1000)
    ]
    write(
        root,
        "broker_load",
        broker,
        (
            broker_load(at, f"b{index % BROKERS:02}", rng.random(), bundles=9)
            for index, at in enumerate(minutes)
        ),
        sequence=number,
    )
    topics = (
        topic_load(
            at,
            f"b{index % BROKERS:02}",
            f"persistent://t/n{index % 50}/topic-{index % 3000}",
            f"t/n{index % 50}/0x00000000_0x7fffffff",
            rng.random() * 1e5,
        )
        for index, at in enumerate(minutes)
    )
    write(root, "topic_load", broker, topics, sequence=number)
    if number % 10 == 0:
        bundle = f"t/n{number % 50}/0x00000000_0x0083126d"
        for owner, moved in move(
            minutes[0], bundle, broker, f"b{(number + 1) % BROKERS:02}", 12.0
        ).items():
            write(root, "ownership", owner, moved, sequence=number)
