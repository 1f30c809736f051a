"""The cost of recording the history to a broker: time on its event loop, how long the loop is held
up while segments are written and compressed, and the bytes of what a leader's cycle saw.

`python -m bench history [--bundles 1000] [--seconds 20]`: a sample of all bundles every second,
which is sixty times as often as by default; then an hour of cycles of 20 brokers, in which every
figure changes.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import gzip
import statistics
import tempfile
import time

import msgspec
import numpy as np

from loadmanager.engine.history.archived import ARCHIVED
from loadmanager.engine.history.cycles import ReportWriter
from loadmanager.engine.history.records import OwnershipStep, bundle_loads
from loadmanager.engine.load.reports import NamespaceBundleStats, ResourceUsage
from loadmanager.kit.history.archive import Archive
from loadmanager.kit.history.history import FLUSH_S, FileHistory
from loadmanager.kit.history.segment_writer import COMPRESS_LEVEL
from loadmanager.kit.history.settings import HistorySettings
from loadmanager.kit.system.clock import SystemClock
from loadmanager.lab.brokers import Fleet, MinuteReports
from loadmanager.lab.days import DaySize, make_day, traffic

TICK_S = 0.001
CYCLES = 60


def main(argv: list[str]) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench history", description=__doc__)
    parser.add_argument("--bundles", type=int, default=1000)
    parser.add_argument("--seconds", type=int, default=20)
    args = parser.parse_args(argv)
    asyncio.run(_run(args.bundles, args.seconds))
    _cycles(args.bundles)
    return 0


def _cycles(bundles: int) -> None:
    """The bytes of an hour of `seen` records, each cycle with all brokers."""
    day = make_day(1, DaySize(brokers=20, bundles=bundles, minutes=CYCLES, events=False))
    load, writer = traffic(day), ReportWriter("b:8080", 1)
    fleet = Fleet(day.cores, day.bundles, np.arange(bundles) % len(day.brokers))
    lines = []
    for minute in range(CYCLES):
        reports = MinuteReports(fleet, load.minute(minute), day.message_bytes, day.clients)
        for row, name in enumerate(day.brokers):
            cpu = ResourceUsage(usage=400 + minute / 7, limit=800)
            report = reports.of(row, cpu, minute * 60_000)
            lines.append(msgspec.json.encode(writer.record(minute * 60_000, name, report)))
    plain = b"\n".join(lines)
    for what, size in (
        ("plain", len(plain)),
        ("compressed", len(gzip.compress(plain, COMPRESS_LEVEL))),
    ):
        print(f"bytes of a bundle in a cycle, {what:21} {size / CYCLES / bundles:6.1f}")


async def _run(bundles: int, seconds: int) -> None:
    stats = {
        f"tenant/namespace/0x{number:08x}_0x{number + 1:08x}": NamespaceBundleStats(
            msg_rate_in=number * 1.5, msg_throughput_in=number * 1000.1, topics=3, producer_count=2
        )
        for number in range(bundles)
    }
    with tempfile.TemporaryDirectory() as folder:
        history = FileHistory(
            HistorySettings(directory=folder, segment_bytes_max=1 << 20),
            cluster="bench",
            broker="b:8080",
            clock=SystemClock(),
        )
        await history.start()
        idle = await _delays(history, seconds // 2, {})
        busy = await _delays(history, seconds, stats)
        await history.close()
        archived = await _archived(f"{folder}/archived", seconds, stats)
        step = OwnershipStep(
            ts=0,
            broker="b:8080",
            bundle="t/n/0x00000000_0xffffffff",
            before="Free",
            after="Owned",
            reason="lookup",
        )
        gc.disable()
        began_ns = time.perf_counter_ns()
        for _ in range(10_000):
            history.append(step)
        one_us = (time.perf_counter_ns() - began_ns) / 10_000 / 1000
        began_ns = time.perf_counter_ns()
        history.append(*bundle_loads(0, "b:8080", stats, interval_ms=60_000))
        sample_ms = (time.perf_counter_ns() - began_ns) / 1e6
        gc.enable()
        print(f"append of one record                     {one_us:8.2f} µs")
        print(
            f"sample of {bundles} bundles                   {sample_ms:8.2f} ms, "
            f"{sample_ms * 1000 / bundles:.2f} µs a bundle"
        )
        print(
            f"records written                          {history.written:8}, dropped "
            f"{history.dropped}"
        )
        for name, delays in (
            ("nothing recorded", idle),
            ("sampled, written, sealed, compressed", busy),
            ("the same, with an archive", archived),
        ):
            cuts = statistics.quantiles(delays, n=1000)
            print(
                f"loop late by, {name:37} p50 {cuts[499]:6.2f}  p99 {cuts[989]:6.2f}  p99.9 "
                f"{cuts[998]:6.2f}  max {max(delays):6.2f} ms"
            )


async def _archived(
    folder: str, seconds: int, stats: dict[str, NamespaceBundleStats]
) -> list[float]:
    """The delays with an archive beside the history, and what a sample costs with it."""
    settings, clock = HistorySettings(directory=folder, segment_bytes_max=1 << 20), SystemClock()
    archive = Archive(settings, ARCHIVED, cluster="bench", broker="b:8080", clock=clock)
    history = FileHistory(settings, cluster="bench", broker="b:8080", clock=clock, archive=archive)
    await history.start()
    delays = await _delays(history, seconds, stats)
    await history.close()
    print(
        f"records archived                         {archive.written:8}, dropped {archive.dropped}"
    )
    return delays


async def _delays(
    history: FileHistory, seconds: int, stats: dict[str, NamespaceBundleStats]
) -> list[float]:
    """The delays of a timer of a millisecond, in ms, while the history does its work."""
    delays: list[float] = []
    ended_s = time.monotonic() + seconds
    sampled_s = flushed_s = 0.0
    flushing: asyncio.Task[None] | None = None
    while (now_s := time.monotonic()) < ended_s:
        if stats and now_s - sampled_s >= 1:
            sampled_s = now_s
            history.append(
                *bundle_loads(int(time.time() * 1000), "b:8080", stats, interval_ms=1000)
            )
        if now_s - flushed_s >= FLUSH_S and (flushing is None or flushing.done()):
            flushed_s = now_s
            flushing = asyncio.create_task(history.flush())
        before_s = time.monotonic()
        await asyncio.sleep(TICK_S)
        delays.append((time.monotonic() - before_s - TICK_S) * 1000)
    return delays
