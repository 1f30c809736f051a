"""Stock clients at a steady rate while bundles move, split, and brokers die: what they lost, what
came out of order, what came twice, and how long each move held them up.

The producers and the consumers are processes of their own. A producer sends numbers to each topic
and never gives up; a message that it repeats after a disconnect may be stored twice, unless brokers
de-duplicate. A consumer acknowledges everything; after a broker died it gets again what it had
acknowledged since the last save of its cursor.
"""

from __future__ import annotations

import multiprocessing
import signal
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any

import pulsar
from clusters.processes import NAMESPACE, Fleet

from loadmanager.engine.bundles.ranges import topic_hash

SUBSCRIPTION = "campaign"
WINDOW_S = 2.0
"""How long after a move its topics are watched."""
SPAWN = multiprocessing.get_context("spawn")
LAST_S = 120.0
"""The last messages come within this time: clients try again after pauses of up to a minute."""
QUIET = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
Receipts = dict[str, list[tuple[int, float]]]
"""Topic → number and time of each receipt, in order of arrival."""


@dataclass(slots=True)
class Received:
    """The messages that the consumer of one topic got."""

    last: int = -1
    seen: set[int] = field(default_factory=set)
    ids: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Ledger and entry id of each number's first arrival."""
    disorder: list[int] = field(default_factory=list)
    """Numbers that came first after greater ones."""
    stored_twice: int = 0
    delivered_again: int = 0

    def take(self, number: int, message_id: tuple[int, int]) -> None:
        """A message came."""
        if number in self.seen:
            same = self.ids[number] == message_id
            self.delivered_again += same
            self.stored_twice += not same
            return
        self.seen.add(number)
        self.ids[number] = message_id
        if number < self.last:
            self.disorder.append(number)
        self.last = max(self.last, number)


def produce(url: str, topics: Sequence[str], rate: float, ready: Any, stop: Any, out: Any) -> None:
    """A process: send at `rate` over all topics until `stop`; then wait for all receipts."""
    user = pulsar.Client(url, logger=QUIET, operation_timeout_seconds=60)
    producers = [
        user.create_producer(topic, send_timeout_millis=0, block_if_queue_full=True)
        for topic in topics
    ]
    receipts: Receipts = {topic: [] for topic in topics}
    lock, open_sends = threading.Lock(), 0

    def done(topic: str, number: int) -> Callable[[Any, Any], None]:
        def on_receipt(result: Any, _message_id: Any) -> None:
            nonlocal open_sends
            with lock:
                open_sends -= 1
                if result == pulsar.Result.Ok:
                    receipts[topic].append((number, time.monotonic()))

        return on_receipt

    ready.set()
    began_s, sent = time.monotonic(), 0
    while not stop.is_set():
        if (left_s := began_s + sent / rate - time.monotonic()) > 0:
            time.sleep(min(left_s, 0.05))
            continue
        index, number = sent % len(topics), sent // len(topics)
        with lock:
            open_sends += 1
        producers[index].send_async(b"%d" % number, done(topics[index], number))
        sent += 1
    deadline_s = time.monotonic() + 90
    while open_sends and time.monotonic() < deadline_s:
        time.sleep(0.05)
    out.put((receipts, began_s, time.monotonic() - began_s, open_sends))
    user.close()


def consume(url: str, topics: Sequence[str], ready: Any, wanted: Any, out: Any) -> None:
    """A process: receive and acknowledge on all topics, until there are all that are wanted at the
    end. A client whose broker was killed may be at its longest pause between two tries.
    """
    user = pulsar.Client(
        url, logger=QUIET, operation_timeout_seconds=60, message_listener_threads=2
    )
    received = {topic: Received() for topic in topics}

    def listener(topic: str) -> Callable[[Any, Any], None]:
        got = received[topic]

        def on_message(consumer: Any, message: Any) -> None:
            place = message.message_id()
            got.take(int(message.data()), (place.ledger_id(), place.entry_id()))
            consumer.acknowledge(message)

        return on_message

    for topic in topics:
        user.subscribe(
            topic,
            SUBSCRIPTION,
            consumer_type=pulsar.ConsumerType.Failover,
            initial_position=pulsar.InitialPosition.Earliest,
            message_listener=listener(topic),
        )
    ready.set()
    numbers: dict[str, set[int]] = wanted.get()
    deadline_s = time.monotonic() + LAST_S
    while time.monotonic() < deadline_s and any(
        not numbers[topic] <= got.seen for topic, got in received.items()
    ):
        time.sleep(0.1)
    time.sleep(2.0)  # for what comes a second time
    out.put(received)
    user.close()


@dataclass(slots=True)
class Outcome:
    """The results of a campaign."""

    acknowledged: int = 0
    rate: float = 0.0
    lost: list[str] = field(default_factory=list)
    disorder: list[str] = field(default_factory=list)
    stored_twice: int = 0
    delivered_again: int = 0
    unanswered: int = 0
    """Messages without a receipt at the end."""
    pauses_ms: dict[str, list[float]] = field(default_factory=dict)
    """Kind of event → the longest time without a receipt on a topic of its bundle, for each."""


class Campaign:
    """A workload over a fleet with stored topics, by `with`; events are methods."""

    def __init__(self, fleet: Fleet, *, topics: int = 64, rate: float = 5000.0) -> None:
        self.fleet = fleet
        self.topics = [f"persistent://{NAMESPACE}/campaign-{number}" for number in range(topics)]
        self._rate = rate
        self._events: list[tuple[str, float, list[str]]] = []
        self._stop, self._wanted = SPAWN.Event(), SPAWN.Queue()
        self._outs = [SPAWN.Queue(), SPAWN.Queue()]
        self._processes: list[Any] = []
        self._receipts: Receipts = {}
        self._began_s = 0.0
        """When the first message was sent."""
        self._restarted_s = 0.0
        """When all brokers were restarted."""

    def __enter__(self) -> Campaign:
        url = self.fleet.service_url()
        ready = [SPAWN.Event(), SPAWN.Event()]
        consuming = (url, self.topics, ready[1], self._wanted, self._outs[1])
        producing = (url, self.topics, self._rate, ready[0], self._stop, self._outs[0])
        for target, args, started in (
            (consume, consuming, ready[1]),
            (produce, producing, ready[0]),
        ):
            process = SPAWN.Process(target=target, args=args, daemon=True)
            process.start()
            self._processes.append(process)
            assert started.wait(120), "the clients did not start"
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.kill()
            process.join()

    # Events

    def bundles(self) -> dict[str, list[str]]:
        """Bundle (its range) → its topics."""
        found = self.fleet.get(self._alive(), f"/admin/v2/namespaces/{NAMESPACE}/bundles")
        edges = [int(edge, 16) for edge in found["boundaries"]]
        ranges = [f"0x{low:08x}_0x{high:08x}" for low, high in zip(edges, edges[1:], strict=False)]
        bundles: dict[str, list[str]] = {span: [] for span in ranges}
        for topic in self.topics:
            value = topic_hash(topic)
            index = max(n for n, low in enumerate(edges[:-1]) if low <= value)
            bundles[ranges[index]].append(topic)
        return {span: topics for span, topics in bundles.items() if topics}

    def _alive(self) -> int:
        return next(n for n in range(self.fleet.count) if self.fleet.alive(f"broker-{n}"))

    def _did(self, kind: str, at_s: float, topics: Sequence[str]) -> None:
        self._events.append((kind, at_s, list(topics)))

    def nothing(self, number: int) -> None:
        """Watch the topics of a bundle for as long as after a move, to compare."""
        bundles = sorted(self.bundles().items())
        self._did("nothing", time.monotonic(), bundles[number % len(bundles)][1])

    def unload(self, number: int) -> None:
        """Unload a bundle: the next lookup places it."""
        bundles = sorted(self.bundles().items())
        span, topics = bundles[number % len(bundles)]
        at_s, path = time.monotonic(), f"/admin/v2/namespaces/{NAMESPACE}/{span}/unload"
        status, body = self.fleet.request(self._alive(), "PUT", path)
        assert status in (204, 404, 409, 412, 503), (status, body)
        self._did("unload", at_s, topics)

    def transfer(self, number: int) -> None:
        """Move a bundle to a broker."""
        bundles = sorted(self.bundles().items())
        span, topics = bundles[number % len(bundles)]
        to = (self.fleet.owner_of(topics[0]) + 1) % self.fleet.count
        at_s = time.monotonic()
        moved = self.fleet.move(f"{NAMESPACE}/{span}", to)
        self._did("transfer" if moved else "transfer refused", at_s, topics)

    def split(self) -> None:
        """Split the bundle with the most topics."""
        span, topics = max(self.bundles().items(), key=lambda pair: (len(pair[1]), pair[0]))
        path = f"/admin/v2/namespaces/{NAMESPACE}/{span}/split?unload=true"
        at_s = time.monotonic()
        status, body = self.fleet.request(self._alive(), "PUT", path)
        assert status in (204, 409, 412), (status, body)
        self._did("split" if status == 204 else "split refused", at_s, topics)

    def kill(self, index: int, kind: str) -> None:
        """Kill -9 a broker and start it again."""
        topics = [topic for topic in self.topics if self.fleet.owner_of(topic) == index]
        self._did(kind, self.fleet.kill(index), topics)
        self.fleet.start(index)

    def pause(self, index: int) -> None:
        """SIGSTOP a broker for two session timeouts."""
        topics = [topic for topic in self.topics if self.fleet.owner_of(topic) == index]
        at_s = time.monotonic()
        self.fleet.signal(index, signal.SIGSTOP)
        time.sleep(2 * self.fleet.session_s)
        self.fleet.signal(index, signal.SIGCONT)
        self._did("SIGSTOP", at_s, topics)
        self.fleet.wait_until_ready(index)

    def restart_zookeeper(self) -> None:
        """Kill -9 ZooKeeper and start it again."""
        at_s = time.monotonic()
        self.fleet.kill_zookeeper()
        self.fleet.start_zookeeper()
        self._did("restart of ZooKeeper", at_s, self.topics)
        for index in range(self.fleet.count):
            self.fleet.wait_until_ready(index)

    def restart_all(self) -> None:
        """Stop all brokers gracefully at once, and start them again."""
        self._restarted_s = time.monotonic()
        for index in range(self.fleet.count):
            self.fleet.signal(index, signal.SIGTERM)
        for index in range(self.fleet.count):
            self.fleet.process_of(index).wait(60)
            self.fleet.start(index, wait=False)
        for index in range(self.fleet.count):
            self.fleet.wait_until_ready(index)

    def restart_each(self) -> None:
        """Stop each broker gracefully, and start it again before the next one."""
        for index in range(self.fleet.count):
            self.fleet.terminate(index)
            self.fleet.start(index)

    # The end

    def finish(self) -> Outcome:
        """Stop the producers, let the consumers get the rest, and compare."""
        alive = [self.fleet.alive(f"broker-{index}") for index in range(self.fleet.count)]
        assert all(alive), "a broker has ended"
        self._stop.set()
        receipts, self._began_s, seconds, unanswered = self._outs[0].get(timeout=120)
        self._receipts = receipts
        self._wanted.put({topic: {n for n, _ in told} for topic, told in receipts.items()})
        received: dict[str, Received] = self._outs[1].get(timeout=2 * LAST_S)
        outcome = Outcome(unanswered=unanswered)
        for topic, answered in receipts.items():
            got = received[topic]
            name = topic.rpartition("/")[2]
            outcome.acknowledged += len(answered)
            outcome.lost += [f"{name}:{n}" for n, _ in answered if n not in got.seen]
            outcome.disorder += [f"{name}:{number}" for number in got.disorder]
            outcome.stored_twice += got.stored_twice
            outcome.delivered_again += got.delivered_again
        outcome.rate = outcome.acknowledged / seconds
        for kind, at_s, topics in self._events:
            gaps = [_longest_gap_s(receipts[topic], at_s) for topic in topics]
            outcome.pauses_ms.setdefault(kind, []).append(1e3 * max(gaps, default=0.0))
        return outcome

    def recovered_s(self) -> list[float]:
        """For each topic, the longest time without a receipt when all brokers were restarted."""
        return [_longest_gap_s(told, self._restarted_s) for told in self._receipts.values()]

    def latencies_s(self, since_s: float = 0, until_s: float = inf) -> list[float]:
        """The waits for receipts of the messages that were due in a span of time."""
        found = []
        for index, topic in enumerate(self.topics):
            for number, answered_s in self._receipts[topic]:
                due_s = self._began_s + (number * len(self.topics) + index) / self._rate
                if since_s <= due_s < until_s:
                    found.append(answered_s - due_s)
        return found


def _longest_gap_s(answered: Sequence[tuple[int, float]], at_s: float) -> float:
    """The longest time without a receipt that began within `WINDOW_S` of an event."""
    times = [time_s for _, time_s in answered]
    gaps = [
        after - before
        for before, after in zip(times, times[1:], strict=False)
        if at_s - 0.1 <= after and before <= at_s + WINDOW_S
    ]
    return max(gaps, default=0.0)
