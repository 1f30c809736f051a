"""A real Pulsar 4.0 that balances itself beside one that `loadmanager fleet` steers in `act`.

`python -m bench steering [--cases pulsar,daemon] [--seconds 200]`: for each case, three brokers
(modular manager), of which one has all 16 bundles of 48 topics with rates of 10 to 240 messages/s.
Then shedding begins, by the same rule (UniformLoadShedder, every minute): brokers of one machine
have the same CPU, so that rules by resources do nothing there. Prints the standard deviation of the
brokers' messages/s, as sent, over time; moves; and how long receipts took. Needs Java 17 and Maven.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import pulsar
from clients.pulsar import distribution
from fleet.real import NAMESPACE, RealPulsar, a_real_pulsar, gather
from ports import free_port

from loadmanager.core.moves.breaker import spread

TOPICS, BUNDLES = 48, 16
RATES = [10 * (1 + number // 2) for number in range(TOPICS)]
SHOWN_S = (0, 30, 60, 90, 120, 150)
SLOW_MS = 100.0
BALANCED = 0.15
"""Balanced: the standard deviation is below this share of the mean."""
READY_S = 300.0
SETTINGS = {
    "loadBalancerSheddingIntervalMinutes": "1",
    "loadBalancerLoadSheddingStrategy": "org.apache.pulsar.broker.loadbalance.impl."
    "UniformLoadShedder",
    "minUnloadMessage": "1",
    "minUnloadMessageThroughput": "1",
}


class Load:
    """Sends at the rates of the topics, and notes how long each receipt took."""

    def __init__(self, cluster: RealPulsar) -> None:
        quiet = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
        self._client = pulsar.Client(cluster.service_url, logger=quiet)
        self._producers = [
            self._client.create_producer(
                name(number), batching_enabled=True, max_pending_messages=50_000
            )
            for number in range(TOPICS)
        ]
        self.took_ms: list[float] = []
        self.results: Counter[str] = Counter()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        begun_s, sent = time.monotonic(), [0] * TOPICS
        while not self._ended.wait(0.02):
            passed_s = time.monotonic() - begun_s
            for number, producer in enumerate(self._producers):
                while sent[number] < passed_s * RATES[number]:
                    sent[number] += 1
                    producer.send_async(b"x" * 100, partial(self._done, time.monotonic()))

    def _done(self, sent_s: float, result: Any, _id: Any) -> None:
        self.results[str(result).rpartition(".")[2]] += 1
        self.took_ms.append((time.monotonic() - sent_s) * 1000)

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


def name(number: int) -> str:
    """A topic."""
    return f"persistent://{NAMESPACE}/t-{number}"


def main(argv: list[str]) -> int:
    """Measure each case, and print its lines."""
    parser = argparse.ArgumentParser(prog="python -m bench steering", description=__doc__)
    parser.add_argument("--cases", default="pulsar,daemon")
    parser.add_argument("--seconds", type=float, default=200)
    args = parser.parse_args(argv)
    home = distribution()
    for case in args.cases.split(","):
        with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
            cluster = stack.enter_context(
                a_real_pulsar(home, Path(folder), "modular", settings=SETTINGS, bundles=BUNDLES)
            )
            cluster.switch(on=False)
            load = stack.enter_context(Load(cluster).running())
            gather(cluster, READY_S)
            rates = rates_of(cluster)
            time.sleep(20)  # the figures of the last moves are true again
            _measure(case, cluster, load, rates, args.seconds, Path(folder))
    return 0


def rates_of(cluster: RealPulsar) -> dict[str, float]:
    """Bundle → messages/s that are sent to it."""
    rates: dict[str, float] = {}
    for bundle in cluster.owners():
        span = bundle.rpartition("/")[2]
        topics = cluster.request("GET", f"persistent/{NAMESPACE}?bundle={span}")
        rates[bundle] = sum(RATES[int(topic.rpartition("-")[2])] for topic in topics)
    return rates


def _measure(
    case: str,
    cluster: RealPulsar,
    load: Load,
    rates: dict[str, float],
    seconds: float,
    folder: Path,
) -> None:
    load.took_ms.clear()
    load.results.clear()
    owners, moves, over_time = cluster.owners(), 0, list[tuple[float, float]]()
    with _balancing(case, cluster, folder):
        begun_s = time.monotonic()
        while (passed_s := time.monotonic() - begun_s) < seconds:
            now = cluster.owners()
            moves += sum(now[bundle] != owners.get(bundle) for bundle in now)
            owners |= now
            loads = {cluster.broker(index): 0.0 for index in range(cluster.brokers)}
            for bundle, owner in owners.items():
                loads[owner] += rates[bundle]
            over_time.append((passed_s, spread(loads)))
            time.sleep(1)
    _print(case, sum(rates.values()) / cluster.brokers, over_time, moves, load)


def _print(
    case: str, mean: float, over_time: list[tuple[float, float]], moves: int, load: Load
) -> None:
    shown = []
    for at_s in SHOWN_S:
        later = [value for passed_s, value in over_time if passed_s >= at_s]
        shown.append(f"{at_s} s: {later[0]:.0f}" if later else f"{at_s} s: -")
    unbalanced_s = [at_s for at_s, value in over_time if value > BALANCED * mean]
    still = unbalanced_s and unbalanced_s[-1] == over_time[-1][0]
    slow = [took for took in load.took_ms if took > SLOW_MS]
    print(f"{case}: standard deviation of messages/s (mean {mean:.0f}): {', '.join(shown)}")
    print(
        f"  balanced after {'-' if still else f'{max(unbalanced_s, default=0):.0f} s'}; "
        f"{moves} moves; {len(slow)} of {len(load.took_ms)} receipts took more than "
        f"{SLOW_MS:g} ms, of these the median {statistics.median(slow or [0]):.0f}, the longest "
        f"{max(load.took_ms):.0f} ms; results {dict(load.results)}",
        flush=True,
    )


@contextmanager
def _balancing(case: str, cluster: RealPulsar, folder: Path) -> Iterator[None]:
    if case == "pulsar":
        cluster.request("POST", "brokers/configuration/loadBalancerSheddingEnabled/true")
        yield
        return
    command = [sys.executable, "-m", "loadmanager", "fleet", "--pulsar", cluster.url()]
    command += ["--mode", "act", "--data-dir", str(folder / "fleet")]
    command += ["--listen", f"127.0.0.1:{free_port()}"]
    for pair in (
        "loadBalancerLoadSheddingStrategy=UniformLoadShedder",
        "minUnloadMessage=1",
        "minUnloadMessageThroughput=1",
    ):
        command += ["--set", pair]
    with (folder / "fleet.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            yield
        finally:
            process.terminate()
            process.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
