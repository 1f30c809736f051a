"""The cost of recording the history to a broker: time on its event loop, and how long the loop is
held up while segments are written and compressed.

`python -m bench history [--bundles 1000] [--seconds 20]`: a sample of all bundles every second,
which is sixty times as often as by default.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import statistics
import tempfile
import time

from loadmanager.adapters.files.history import FLUSH_S, FileHistory
from loadmanager.adapters.files.settings import HistorySettings
from loadmanager.adapters.system.clock import SystemClock
from loadmanager.core.history.records import OwnershipStep, bundle_loads
from loadmanager.core.load.reports import NamespaceBundleStats

TICK_S = 0.001


def main(argv: list[str]) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench history", description=__doc__)
    parser.add_argument("--bundles", type=int, default=1000)
    parser.add_argument("--seconds", type=int, default=20)
    args = parser.parse_args(argv)
    asyncio.run(_run(args.bundles, args.seconds))
    return 0


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
        ):
            cuts = statistics.quantiles(delays, n=1000)
            print(
                f"loop late by, {name:37} p50 {cuts[499]:6.2f}  p99 {cuts[989]:6.2f}  p99.9 "
                f"{cuts[998]:6.2f}  max {max(delays):6.2f} ms"
            )


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
