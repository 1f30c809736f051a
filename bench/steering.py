"""A real Pulsar 4.0 that balances itself beside one that `loadmanager fleet` steers in `act`.

`python -m bench steering [--cases threshold,avg,transfer,daemon] [--seconds 240,120,60] [--runs
1]`: for each case, three brokers, of which one has all bundles of 48 topics; the rate of the k-th
is 600/k messages/s. Then balancing begins, each minute, with the settings that Pulsar ships, except
those that ignore small loads. Later a broker joins, and another one leaves in order; `--seconds`
says how long each of the three parts lasts (0: it is left out), `--runs` how often all is done.
Prints over time the standard deviations of the brokers' CPU and of the messages/s that are sent to
them; after how many seconds the busiest broker was within 10 % of the mean and stayed there; moves;
how long receipts took; and how long producers waited. Needs Java 17 and Maven.

Rules by resources need brokers that report CPU of their own: each has control groups, where this
process may make them (`fleet.real.CPU_GROUPS`). Else all brokers report the machine's CPU, and only
`uniform` and `daemon-uniform`, which go by messages/s, have anything to do.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import pulsar
from clients.pulsar import distribution
from ports import free_port
from steer.real import CPU_GROUPS, NAMESPACE, RealPulsar, a_real_pulsar, gather

from loadmanager.engine.moves.breaker import spread

TOPICS, BUNDLES, BROKERS = 48, 16, 4
RATES = [600 / (1 + number) for number in range(TOPICS)]
PARTS = ("all on one", "one joined", "one left")
CORES = 0.2
"""What a broker may use, as it reports: with all of the load, most of it."""
EACH_S = 30
"""Between two figures that are printed."""
SLOW_MS = 100.0
"""A receipt that takes longer is a pause of its producer."""
WITHIN = 0.1
"""The busiest broker has at most so much more than the mean."""
READY_S = 300.0
IMPL = "org.apache.pulsar.broker.loadbalance.impl"
SMALL = {
    "loadBalancerBundleUnloadMinThroughputThreshold": "0",
    "minUnloadMessage": "1",
    "minUnloadMessageThroughput": "1",
}
"""Without these, half a megabyte a second is not worth a move, in Pulsar or here."""
PULSARS = {
    "threshold": {"loadBalancerLoadSheddingStrategy": f"{IMPL}.ThresholdShedder"},
    "uniform": {"loadBalancerLoadSheddingStrategy": f"{IMPL}.UniformLoadShedder"},
    "avg": {
        "loadBalancerLoadSheddingStrategy": f"{IMPL}.AvgShedder",
        "loadBalancerLoadPlacementStrategy": f"{IMPL}.AvgShedder",
    },
    "transfer": {},
}
"""Case → settings of brokers that balance themselves."""
DAEMONS = {
    "daemon": {},
    "daemon-threshold": {
        "loadBalancerLoadSheddingStrategy": "ThresholdShedder",
        "loadBalancerLoadPlacementStrategy": "LeastLongTermMessageRate",
    },
    "daemon-uniform": {"loadBalancerLoadSheddingStrategy": "UniformLoadShedder"},
}
"""Case → settings of the daemon."""


class Load:
    """Sends at the rates of the topics, one message a request, and notes how long receipts took."""

    def __init__(self, cluster: RealPulsar) -> None:
        quiet = pulsar.FileLogger(pulsar.LoggerLevel.Error, os.devnull)
        self._client = pulsar.Client(cluster.service_url, logger=quiet)
        self._producers = [
            self._client.create_producer(
                name(number), batching_enabled=False, max_pending_messages=50_000
            )
            for number in range(TOPICS)
        ]
        self.took_ms: list[float] = []
        self.paused_ms: dict[int, list[float]] = {}
        """Topic → how long each of its pauses was: the longest receipt of each."""
        self.results: Counter[str] = Counter()
        self._pause_ends_s = [0.0] * TOPICS
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        begun_s, sent = time.monotonic(), [0] * TOPICS
        while not self._ended.wait(0.02):
            passed_s = time.monotonic() - begun_s
            for number, producer in enumerate(self._producers):
                while sent[number] < passed_s * RATES[number]:
                    sent[number] += 1
                    producer.send_async(b"x" * 100, partial(self._done, number, time.monotonic()))

    def _done(self, number: int, sent_s: float, result: Any, _id: Any) -> None:
        now_s = time.monotonic()
        took_ms = (now_s - sent_s) * 1000
        self.results[str(result).rpartition(".")[2]] += 1
        self.took_ms.append(took_ms)
        if took_ms > SLOW_MS:
            pauses = self.paused_ms.setdefault(number, [])
            if sent_s > self._pause_ends_s[number] or not pauses:
                pauses.append(took_ms)
            else:  # it was sent in the pause before it ended
                pauses[-1] = max(pauses[-1], took_ms)
            self._pause_ends_s[number] = now_s

    def begin(self) -> None:
        """Forget what was noted."""
        self.took_ms, self.paused_ms, self.results = [], {}, Counter()

    @contextmanager
    def running(self) -> Iterator[Load]:
        """Sends meanwhile."""
        self._thread.start()
        try:
            yield self
        finally:
            self._ended.set()
            self._thread.join()
            self._client.close()


@dataclass
class Watch:
    """The state of a cluster, second by second."""

    cluster: RealPulsar
    rates: Mapping[str, float]
    """Bundle → messages/s that are sent to it."""
    owners: dict[str, str] = field(default_factory=dict)
    used_s: dict[int, float] = field(default_factory=dict)
    """Broker → CPU seconds, when it was last looked at."""

    def rates_now(self) -> tuple[dict[str, float], int]:
        """Broker → messages/s that are sent to it, and how many bundles have moved."""
        now = self.cluster.owners()
        moved = sum(now[bundle] != self.owners.get(bundle) for bundle in now)
        self.owners |= now
        loads = {self.cluster.broker(index): 0.0 for index in self._running()}
        for bundle, owner in now.items():
            loads[owner] += self.rates[bundle]
        return loads, moved

    def cpu_now(self, passed_s: float) -> list[float]:
        """Percent of a core that each broker used since it was last looked at."""
        percents = []
        for index in self._running():
            path = self.cluster.groups(f"broker{index}")[0] / "cpuacct.usage"
            if path.exists():
                used_s = int(path.read_text()) / 1e9
                percents.append((used_s - self.used_s.get(index, used_s)) / passed_s * 100)
                self.used_s[index] = used_s
        return percents

    def _running(self) -> list[int]:
        return [at for at in range(BROKERS) if f"broker{at}" in self.cluster.processes]


def name(number: int) -> str:
    """A topic."""
    return f"persistent://{NAMESPACE}/t-{number}"


def main(argv: list[str]) -> int:
    """Measure each case, and print its lines."""
    parser = argparse.ArgumentParser(prog="python -m bench steering", description=__doc__)
    parser.add_argument("--cases", default="threshold,avg,transfer,daemon")
    parser.add_argument("--seconds", default="240,120,60")
    parser.add_argument("--runs", type=int, default=1)
    args = parser.parse_args(argv)
    seconds = [float(text) for text in args.seconds.split(",")]
    cores = CORES if all(os.access(root, os.W_OK) for root in CPU_GROUPS) else 0.0
    print(f"cores of each broker: {cores or 'all report those of the machine'}")
    for run in range(args.runs):
        for case in args.cases.split(","):
            print(f"run {run + 1}, {case}", flush=True)
            _case(case, seconds, cores)
    return 0


def _case(case: str, seconds: list[float], cores: float) -> None:
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        cluster = stack.enter_context(
            a_real_pulsar(
                distribution(),
                Path(folder),
                "extensible" if case == "transfer" else "modular",
                brokers=BROKERS,
                later=1,
                cores=cores,
                settings={
                    "loadBalancerSheddingIntervalMinutes": "1",
                    **SMALL,
                    **PULSARS.get(case, {}),
                },
                bundles=BUNDLES,
            )
        )
        cluster.switch(on=False)
        load = stack.enter_context(Load(cluster).running())
        gather(cluster, READY_S)
        watch = Watch(cluster, rates_of(cluster))
        time.sleep(60)  # Pulsar measures CPU each minute
        stack.enter_context(_balancing(case, cluster, Path(folder)))
        for part, length_s in zip(PARTS, seconds, strict=True):
            if not length_s:
                continue
            load.begin()
            if part == PARTS[1]:
                cluster.start_broker(BROKERS - 1)
                cluster.wait_broker(BROKERS - 1)
            elif part == PARTS[2]:
                cluster.kill("broker1", signal.SIGTERM)
            _measure(f"{case}, {part}", watch, load, length_s)


def rates_of(cluster: RealPulsar) -> dict[str, float]:
    """Bundle → messages/s that are sent to it."""
    rates: dict[str, float] = {}
    for bundle in cluster.owners():
        span = bundle.rpartition("/")[2]
        topics = cluster.request("GET", f"persistent/{NAMESPACE}?bundle={span}")
        rates[bundle] = sum(RATES[int(topic.rpartition("-")[2])] for topic in topics)
    return rates


def _measure(what: str, watch: Watch, load: Load, seconds: float) -> None:
    """Watch for so long, and print what was seen."""
    rates, cpu, moves, moved_s = list[str](), list[str](), 0, 0.0
    even_s: float | None = None
    watch.rates_now()
    begun_s = shown_s = time.monotonic()
    watch.cpu_now(1.0)
    while (now_s := time.monotonic()) < begun_s + seconds:
        loads, moved = watch.rates_now()
        now, mean = spread(loads), statistics.mean(loads.values())
        if max(loads.values()) > mean * (1 + WITHIN):
            even_s = None
        elif even_s is None:
            even_s = now_s - begun_s
        moves, moved_s = moves + moved, now_s - begun_s if moved else moved_s
        if now_s >= begun_s + EACH_S * len(rates):
            rates.append(f"{now:.0f}")
            percents = watch.cpu_now(max(0.1, now_s - shown_s))
            cpu.append(f"{statistics.pstdev(percents or [0]):.0f}")
            shown_s = now_s
        time.sleep(1)
    slow = [took for took in load.took_ms if took > SLOW_MS]
    pauses = [paused for each in list(load.paused_ms.values()) for paused in each]
    reached = "not reached" if even_s is None else f"after {even_s:.0f} s"
    print(f"{what}, a figure each {EACH_S} s")
    print(f"  messages/s, standard deviation: {' '.join(rates)}, at the end {now:.0f}")
    print(f"  percent of a core, standard deviation: {' '.join(cpu[1:])}; at the end {percents}")
    print(f"  busiest broker within {WITHIN:.0%} of the mean: {reached}")
    print(
        f"  {len(pauses)} pauses of producers, {sum(pauses) / 1000:.1f} s together, the median "
        f"{statistics.median(pauses or [0]):.0f}, the longest {max(pauses, default=0):.0f} ms"
    )
    print(
        f"  {moves} moves, the last after {moved_s:.0f} s; {len(slow)} of {len(load.took_ms)} "
        f"receipts took more than {SLOW_MS:g} ms, of these the median "
        f"{statistics.median(slow or [0]):.0f}, the longest {max(load.took_ms, default=0):.0f} ms; "
        f"results {dict(load.results)}; bundles {sorted(Counter(watch.owners.values()).values())}; "
        f"load of the machine {os.getloadavg()[0]:.1f}",
        flush=True,
    )


@contextmanager
def _balancing(case: str, cluster: RealPulsar, folder: Path) -> Iterator[None]:
    if case in PULSARS:
        cluster.request("POST", "brokers/configuration/loadBalancerSheddingEnabled/true")
        yield
        return
    command = [sys.executable, "-m", "loadmanager", "fleet", "--pulsar", cluster.url()]
    command += ["--mode", "act", "--data-dir", str(folder / "fleet")]
    command += ["--listen", f"127.0.0.1:{free_port()}"]
    for key, text in {**SMALL, **DAEMONS[case]}.items():
        command += ["--set", f"{key}={text}"]
    with (folder / "fleet.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            yield
        finally:
            process.terminate()
            process.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
