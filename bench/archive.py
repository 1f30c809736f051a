"""What the memory of a broker costs it, and how long its answers take.

`python -m bench archive [--bundles 1000 5000] [--days 7] [--live 1000] [--seconds 20]`: for each
number of bundles, the archive of one broker over that many days (a sample of all bundles every
minute, in which every figure changes; an event of each bundle every six hours), its CPU and bytes a
day, and the times of its answers. Then two brokers with `--live` bundles, with a topic in each, one
with an archive and one without, which record all of them every five seconds (twelve times as often
as by default): a client publishes to them by turns, one message at a time; latencies from SEND to
receipt, and the CPU of the processes. `--live 0` leaves that out.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import psutil

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from clusters.standalone import Cluster

from bench._attacks import RECEIPT, Wire, a_send
from loadmanager.engine.history.archived import ARCHIVED
from loadmanager.engine.history.records import BundleLoad, OwnershipStep
from loadmanager.kit.history.archive_file import ArchiveFile
from loadmanager.kit.history.archive_reader import ArchiveReader
from loadmanager.kit.units import DAY_MS

BROKER = "b1:8080"
BEGIN_MS = 1_700_000_000_000 // DAY_MS * DAY_MS
MINUTE_MS, MINUTES = 60_000, 24 * 60
TIDY_MINUTES = 60
BYTES_MAX = 256 << 20
EVENTS_EVERY = 360
"""Minutes between two events of a bundle."""
ASKED = 20
RATE = 200.0
"""Messages/s of the client."""
ROUNDS = 4
INTERVAL_S = 5


def main(argv: list[str]) -> int:
    """Print the two tables."""
    parser = argparse.ArgumentParser(prog="python -m bench archive", description=__doc__)
    parser.add_argument("--bundles", type=int, nargs="*", default=[1_000, 5_000])
    parser.add_argument("--days", type=int, default=7)
    parser.add_argument("--live", type=int, default=1_000, help="bundles of the two brokers")
    parser.add_argument("--seconds", type=float, default=20.0, help="of publishing to each")
    args = parser.parse_args(argv)
    for bundles in args.bundles:
        with tempfile.TemporaryDirectory() as folder:
            _of_file(Path(folder) / "b.sqlite", bundles, args.days)
    if args.live:
        with tempfile.TemporaryDirectory() as folder:
            _live(Path(folder), args.live, args.seconds)
    return 0


def _of_file(path: Path, bundles: int, days: int) -> None:
    names = [f"acme/n{at // 100}/0x{at:08x}_0x{at + 1:08x}" for at in range(bundles)]
    file = ArchiveFile(path, BROKER, ARCHIVED, BEGIN_MS)
    rng, until_ms = np.random.default_rng(1), BEGIN_MS + days * DAY_MS
    spent_s = 0.0
    for minute in range(days * MINUTES):
        now_ms = BEGIN_MS + (minute + 1) * MINUTE_MS
        records = [*_loads(names, now_ms, rng.random(bundles)), *_steps(names, now_ms, minute)]
        began_s = time.process_time()
        file.write(records, now_ms, 0)
        if minute % TIDY_MINUTES == 0:
            file.roll_up(now_ms)
            file.retain(BEGIN_MS, BYTES_MAX)
        spent_s += time.process_time() - began_s
    print(
        f"{bundles:,} bundles, {days} days: {file.size / 1e6:.1f} MB, "
        f"{spent_s / days:.1f} s of CPU a day ({spent_s / days / 864:.3f} % of a core)",
        flush=True,
    )
    file.close()
    reader = ArchiveReader(path, ARCHIVED)
    noon_ms = until_ms - DAY_MS // 2
    bytes_s = ("msg_throughput_in", "msg_throughput_out")
    questions: dict[str, Callable[[], object]] = {
        "all loads of a moment, today": lambda: reader.moment(noon_ms, ["bundle_load"]),
        "all loads of a moment, on the first day": lambda: reader.moment(
            BEGIN_MS + DAY_MS // 2, ["bundle_load"]
        ),
        "the heat of a day": lambda: reader.heat(
            "bundle_load", bytes_s, (until_ms - DAY_MS, until_ms, 120), 60
        ),
        "the heat of all days": lambda: reader.heat(
            "bundle_load", bytes_s, (BEGIN_MS, until_ms, 120), 60
        ),
        "the story of a bundle": lambda: reader.events([], names[7], BEGIN_MS, until_ms, 1_000),
        "the loads of a bundle, all days": lambda: reader.series(
            "bundle_load", names[7], BEGIN_MS, until_ms, 10_000
        ),
    }
    for what, question in questions.items():
        took_s, cpu_s = [], []
        for _ in range(ASKED):
            began_s, began_cpu_s = time.perf_counter(), time.process_time()
            question()
            took_s.append(time.perf_counter() - began_s)
            cpu_s.append(time.process_time() - began_cpu_s)
        print(f"    {what:40}{_ms(took_s)}, {1000 * min(cpu_s):.1f} ms of CPU at least", flush=True)


def _loads(names: Sequence[str], now_ms: int, figures: np.ndarray) -> list[BundleLoad]:
    return [
        BundleLoad(
            ts=now_ms,
            broker=BROKER,
            interval_ms=MINUTE_MS,
            bundle=name,
            msg_throughput_in=1e5 * figure,
            msg_rate_in=100 * figure,
            topics=2,
            producers=3,
        )
        for name, figure in zip(names, figures.tolist(), strict=True)
    ]


def _steps(names: Sequence[str], now_ms: int, minute: int) -> list[OwnershipStep]:
    return [
        OwnershipStep(
            ts=now_ms, broker=BROKER, bundle=name, before="Free", after="Owned", reason="lookup"
        )
        for name in names[minute % EVENTS_EVERY :: EVENTS_EVERY]
    ]


def _ms(took_s: Sequence[float]) -> str:
    ordered = sorted(took_s)
    return f"{ordered[len(ordered) // 2] * 1000:8.1f} ms (most {ordered[-1] * 1000:.1f})"


class _Broker:
    """A broker whose bundles all have a topic."""

    def __init__(self, cluster: Cluster, bundles: int) -> None:
        self._process = psutil.Process(cluster.pid(0))
        self.took_s: list[float] = []
        self.cpu_s = self.wall_s = 0.0
        cluster.request(
            0, "PUT", "/admin/v2/namespaces/public/many", {"bundles": {"numBundles": bundles}}
        )
        self._topics = Wire("127.0.0.1", cluster.pulsar_port, "", timeout_s=60)
        for at in range(3 * bundles):  # nearly all bundles get a topic
            self._topics.produce(f"persistent://public/many/t-{at}")
        self._wire = Wire("127.0.0.1", cluster.pulsar_port, "", timeout_s=60)
        self._wire.produce("persistent://public/many/timed")
        self._sent = 0

    def publish(self, seconds: float) -> None:
        """One message at a time, for so long."""
        before, began_s = self._cpu_s(), time.monotonic()
        while (sent_s := time.monotonic()) < began_s + seconds:
            self._sent += 1
            if self._wire.ask_frame(a_send(self._sent, b"x" * 100)).command.type != RECEIPT:
                raise ConnectionError("the broker refused a message")
            self.took_s.append(time.monotonic() - sent_s)
            time.sleep(max(0.0, 1 / RATE - self.took_s[-1]))
        self.cpu_s += self._cpu_s() - before
        self.wall_s += time.monotonic() - began_s

    def _cpu_s(self) -> float:
        times = self._process.cpu_times()
        return float(times.user + times.system)


def _live(folder: Path, bundles: int, seconds: float) -> None:
    """One broker with an archive and one without, by turns."""
    settings = {
        "loadManagerHistoryIntervalSeconds": str(INTERVAL_S),
        "loadManagerStorageDirectory": "",
        "loadBalancerAutoBundleSplitEnabled": "false",
        # Nobody answers pings while the other broker is made, or has its turn.
        "keepAliveIntervalSeconds": "3600",
    }
    with ExitStack() as stack:
        brokers = {}
        for name, bytes_max in (("with", BYTES_MAX), ("without", 0)):
            (folder / name).mkdir()
            its = {**settings, "loadManagerArchiveMaxBytes": str(bytes_max)}
            cluster = stack.enter_context(Cluster(folder / name, brokers=1, settings=its))
            brokers[name] = _Broker(cluster, bundles)
        for _ in range(ROUNDS):
            for broker in brokers.values():
                broker.publish(seconds / ROUNDS)
    print(f"\n{bundles:,} bundles recorded every {INTERVAL_S} s, with an archive and without:")
    for name, broker in brokers.items():
        ordered = sorted(broker.took_s)
        p50, p99, p999 = (ordered[int(len(ordered) * part)] * 1000 for part in (0.5, 0.99, 0.999))
        print(
            f"    {name:8} p50 {p50:6.2f} ms  p99 {p99:6.2f} ms  p99.9 {p999:6.2f} ms  "
            f"{100 * broker.cpu_s / broker.wall_s:5.1f} % CPU  "
            f"mean {statistics.fmean(ordered) * 1000:.2f} ms, {len(ordered)} messages"
        )
