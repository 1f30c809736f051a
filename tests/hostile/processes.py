"""Fuzzes a live cluster of three brokers, and checks what happened to it.

Two processes send frames, one sends HTTP requests. An `Observer` in a namespace of its own, the
neighbour, sends valid messages only, and must be served all the time.
"""

from __future__ import annotations

import math
import multiprocessing
import re
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from clusters.processes import Fleet
from clusters.standalone import wait_for
from hostile import frames, requests
from system.observer import Observer

from loadmanager.engine.bundles.ranges import NamespaceBundles, equal_boundaries
from loadmanager.kit.names import NamespaceName

SENDERS = 2
NEIGHBOUR = "calm/neighbour"
SETTINGS = {
    "exposeBundlesMetricsInPrometheus": "true",
    "backlogQuotaDefaultLimitBytes": str(2 << 20),
    "backlogQuotaDefaultRetentionPolicy": "consumer_backlog_eviction",
    "defaultRetentionSizeInMB": "0.1",
    "statsUpdateFrequencyInSecs": "5",
    "metadataStoreSessionTimeoutMillis": "10000",
    "loadBalancerSheddingEnabled": "true",
    "loadBalancerAutoBundleSplitEnabled": "true",
    "loadBalancerSheddingIntervalMinutes": "0.02",
}
"""Topics are small, so that growing memory is a leak, and a full one goes on. The leader decides
every second, so that it reads all that was stored."""

PAUSE_S_MAX = 30.0
"""The longest pause of the neighbour on a busy machine; the result has the real one."""
RSS_SHARE_MAX = 0.25
RSS_MB_MAX = 24.0
"""The limit of a broker's growth from the middle to the end of a run: a share, and MB."""
RSS_MB_AFTER_MAX = 5.0
"""The limit of growth after the run."""
TASKS_MORE_MAX = 4
FILES_MORE_MAX = 12
"""The number of connections between brokers and of segments of the history varies."""
QUIET_TIMEOUT_S = 60.0
SAMPLE_S = 1.0


@dataclass(slots=True)
class Footprint:
    """The resources that one broker uses."""

    rss_mb: float
    files: int
    tasks: int


@dataclass(slots=True)
class Result:
    """The result of a run; good if `problems` is empty."""

    frames: frames.Sent = field(default_factory=frames.Sent)
    requests: requests.Asked = field(default_factory=requests.Asked)
    took_s: float = 0.0
    before: list[Footprint] = field(default_factory=list)
    after: list[Footprint] = field(default_factory=list)
    rss_mb: list[list[float]] = field(default_factory=list)
    """For each broker one sample a second."""
    pause_s: float = 0.0
    latency_p50_s: float = 0.0
    latency_p99_s: float = 0.0
    latency_max_s: float = 0.0
    problems: list[str] = field(default_factory=list)


def fuzz(
    folder: Path,
    *,
    frame_count: int,
    request_count: int,
    seed: int,
    without: list[str],
    seconds: float = math.inf,
    say: Callable[[str], object] = print,
) -> Result:
    """Start a cluster, fuzz it, stop it. `without`, `seconds`: see `requests.send_requests`."""
    with Fleet(folder, settings=SETTINGS) as fleet:
        fleet.create_namespace(frames.NAMESPACE, 6)
        fleet.create_namespace(NEIGHBOUR, fleet.count)
        topics = _neighbour_topics(fleet.count)
        with Observer(topics, fleet.addresses()) as observer:
            wait_for(lambda: not observer.unserved(0.0), "the neighbour is served", 60)
            _warm_up(fleet)
            run = _Run(fleet, observer, seconds, say)
            return run.run(frame_count, request_count, seed, without)


def _neighbour_topics(bundles: int) -> dict[str, str]:
    """A topic in each bundle of the neighbour's namespace."""
    cut = NamespaceBundles(NamespaceName.parse(NEIGHBOUR), equal_boundaries(bundles))
    names = [f"persistent://{NEIGHBOUR}/t{index}" for index in range(100)]
    by_bundle = {cut.bundle_of_topic(name): name for name in names}
    return {name: bundle for bundle, name in by_bundle.items()}


def _warm_up(fleet: Fleet) -> None:
    """Use each broker once, so that libraries are loaded and pools filled."""
    ports = [fleet.pulsar_port + index for index in range(fleet.count)]
    frames.owned_topics(ports, fleet.http_port)
    for index in range(fleet.count):
        fleet.get(index, "/metrics")
        fleet.owned(index)


class _Run:
    def __init__(
        self, fleet: Fleet, observer: Observer, seconds: float, say: Callable[[str], object]
    ) -> None:
        self._seconds = seconds
        self._fleet = fleet
        self._observer = observer
        self._say = say
        self._result = Result()

    def run(self, frame_count: int, request_count: int, seed: int, without: list[str]) -> Result:
        """Fuzz and check."""
        result, fleet = self._result, self._fleet
        everyone = range(fleet.count)
        result.before = [self._footprint(index) for index in everyone]
        result.rss_mb = [[] for _ in everyone]
        began_s = time.monotonic()
        self._send(frame_count, request_count, seed, without)
        ended_s = time.monotonic()
        result.took_s = ended_s - began_s
        self._judge_neighbour(began_s, ended_s)
        self._judge_processes()
        tracebacks = fleet.tracebacks()
        result.problems += [f"{n} × traceback: {what}" for what, n in tracebacks.most_common(30)]
        result.problems += result.frames.problems
        result.problems += [f"{n} × {what}" for what, n in result.requests.problems.most_common(40)]
        return result

    def _send(self, frame_count: int, request_count: int, seed: int, without: list[str]) -> None:
        fleet, result = self._fleet, self._result
        ports = [fleet.pulsar_port + index for index in range(fleet.count)]
        web = [fleet.http_port + index for index in range(fleet.count)]
        routes = [tuple(route) for route in fleet.inside(0)["routes"]]
        share = -(-frame_count // SENDERS)
        context = multiprocessing.get_context("spawn")  # no fork, because there are threads
        with ProcessPoolExecutor(SENDERS + 1, mp_context=context) as pool:
            sending = [
                pool.submit(
                    frames.send_frames,
                    ports,
                    fleet.http_port,
                    share,
                    seed * 1000 + number,
                    self._seconds,
                )
                for number in range(SENDERS if frame_count else 0)
            ]
            asking = pool.submit(
                requests.send_requests,
                web,
                routes,
                request_count,
                seed,
                without,
                seconds=self._seconds,
            )
            self._wait([*sending, asking])
            for future in sending:
                result.frames.add(future.result())
            result.requests = asking.result()

    def _wait(self, futures: list[Future[frames.Sent] | Future[requests.Asked]]) -> None:
        """Wait for the senders; sample each broker's memory once a second meanwhile."""
        said_s = time.monotonic()
        while not all(future.done() for future in futures):
            for index, samples in enumerate(self._result.rss_mb):
                if self._fleet.alive(f"broker-{index}"):
                    samples.append(self._rss_mb(index))
            time.sleep(SAMPLE_S)
            if time.monotonic() - said_s > 60:
                said_s = time.monotonic()
                self._say(f"RSS {[round(samples[-1]) for samples in self._result.rss_mb]} MB")

    # Judging

    def _judge_neighbour(self, began_s: float, ended_s: float) -> None:
        result, observer = self._result, self._observer
        result.pause_s = observer.longest_pause_s(began_s, ended_s)
        latencies = observer.latencies_s(began_s, ended_s)
        if latencies:
            result.latency_p50_s = latencies[len(latencies) // 2]
            result.latency_p99_s = latencies[int(len(latencies) * 0.99)]
            result.latency_max_s = latencies[-1]
        if result.pause_s > PAUSE_S_MAX:
            result.problems.append(f"the neighbour was not served for {result.pause_s:.1f} s")
        result.problems += [f"two owners: {proof}" for proof in observer.twice_owned()]
        result.problems += observer.faults
        try:
            wait_for(lambda: not observer.unserved(ended_s), "the neighbour is served again", 60)
        except AssertionError as error:
            result.problems.append(str(error))

    def _judge_processes(self) -> None:
        for index, before in enumerate(self._result.before):
            if not self._fleet.alive(f"broker-{index}"):
                status = self._fleet.process_of(index).returncode
                words = self._fleet.last_words(index)[-500:]
                self._result.problems.append(f"broker {index} ended with status {status}: {words}")
                continue
            try:
                self._judge_footprint(index, before)
            except AssertionError as error:
                self._result.problems.append(str(error))

    def _judge_footprint(self, index: int, before: Footprint) -> None:
        # The leader has more tasks than other brokers, and another broker may lead now.
        tasks_max = TASKS_MORE_MAX + max(item.tasks for item in self._result.before)

        def quiet() -> bool:
            now = self._footprint(index)
            files_ok = now.files <= before.files + FILES_MORE_MAX
            return files_ok and now.tasks <= tasks_max and not self._left_behind(index)

        problems = self._result.problems
        try:
            wait_for(quiet, f"broker {index} is quiet again", QUIET_TIMEOUT_S)
        except AssertionError:
            problems.append(f"broker {index}: {before} before, {self._footprint(index)} after")
            left = self._left_behind(index)
            problems.append(f"broker {index} has {left} consumers and producers without clients")
            problems.append(f"broker {index} runs {Counter(self._fleet.inside(index)['tasks'])}")
        quiet_mb = self._rss_mb(index)
        time.sleep(SAMPLE_S)
        after = self._footprint(index)
        self._result.after.append(after)
        grown_mb = after.rss_mb - quiet_mb
        if grown_mb > RSS_MB_AFTER_MAX:
            problems.append(f"broker {index} grows while idle, by {grown_mb:.0f} MB")
        samples = self._result.rss_mb[index]
        middle_mb = samples[len(samples) // 2] if samples else before.rss_mb
        if after.rss_mb > middle_mb * (1 + RSS_SHARE_MAX) + RSS_MB_MAX:
            problems.append(f"broker {index} grew: {middle_mb:.0f} → {after.rss_mb:.0f} MB")

    def _left_behind(self, index: int) -> int:
        """Consumers and producers of the fuzzed topics, whose clients are all gone."""
        page = str(self._fleet.get(index, "/metrics"))
        pattern = (
            rf'pulsar_bundle_(?:consumer|producer)_count{{[^}}]*"{frames.NAMESPACE}/.*}} (\S+)'
        )
        return sum(int(float(value)) for value in re.findall(pattern, page))

    def _rss_mb(self, index: int) -> float:
        rss: int = psutil.Process(self._fleet.process_of(index).pid).memory_info().rss
        return rss / 1e6

    def _footprint(self, index: int) -> Footprint:
        process = psutil.Process(self._fleet.process_of(index).pid)
        tasks = len(self._fleet.inside(index)["tasks"])
        return Footprint(self._rss_mb(index), process.num_fds(), tasks)
