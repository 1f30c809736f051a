"""A clock that a test drives, and clients that send as soon as they may."""

from __future__ import annotations

from loadmanager.kit.names import TopicName
from loadmanager.limits.broker import BrokerThrottling, TopicThrottling
from loadmanager.limits.settings import ThrottlingSettings
from loadmanager.limits.tracker import Holder

MS = 1_000_000
SECOND = 1_000_000_000
TOPIC = TopicName.parse("persistent://public/default/orders")


class DrivenClock:
    """Nanoseconds that only the test advances; also a `kit.clock.Clock`."""

    def __init__(self, now_ns: int = 100 * SECOND) -> None:
        self.now_ns = now_ns

    def __call__(self) -> int:
        return self.now_ns

    def now_ms(self) -> int:
        return self.now_ns // MS

    def monotonic_s(self) -> float:
        return self.now_ns / SECOND

    def monotonic_ns(self) -> int:
        return self.now_ns

    def forward_ms(self, ms: float) -> None:
        self.now_ns += round(ms * MS)


class Client:
    """A connection with one producer that has an endless backlog of frames of one size; `sent` is
    (ns, messages, bytes) of each.
    """

    peer = "127.0.0.1:50000"

    def __init__(
        self,
        clock: DrivenClock,
        broker: BrokerThrottling,
        topic: TopicThrottling,
        messages: int,
        size: int,
        *,
        cap: int | None = None,
    ) -> None:
        self.clock = clock
        self.throttle = broker.connection(self)
        self.topic = topic
        self.sender = topic.sender("p", self.throttle)
        self.frame = (messages, size)
        self.left = cap
        self.sent: list[tuple[int, int, int]] = []
        self.beside: set[str] = set()
        """Other topics of its connection."""
        self.reads: dict[str, set[str]] = {}
        """Topic → the subscriptions of its connection's consumers."""

    def topics(self) -> set[str]:
        return {str(self.topic.name), *self.beside}

    def subscriptions(self, topic: str) -> set[str]:
        return self.reads.get(topic, set())

    def stop_reading(self) -> None:
        """This client sends only while it is not paused."""

    def waits(self, _holder: Holder | None = None) -> bool:
        return self.left != 0

    def go_on(self) -> None:
        """Send until paused, or until the backlog is used up."""
        while not self.throttle.paused and self.left != 0:
            self.left = None if self.left is None else self.left - 1
            self.sent.append((self.clock(), *self.frame))
            self.sender.charge(self.topic.publish, *self.frame, self.clock())

    def messages(self, since_ns: int = 0, until_ns: int = 1 << 62) -> int:
        return sum(messages for at, messages, _ in self.sent if since_ns <= at < until_ns)

    def size(self, since_ns: int = 0, until_ns: int = 1 << 62) -> int:
        return sum(size for at, _, size in self.sent if since_ns <= at < until_ns)


class Sharing:
    """A connection whose producers, one for each topic, send in turns without an end; `sent` is the
    times by producer.
    """

    peer = "127.0.0.1:50000"

    def __init__(
        self, clock: DrivenClock, broker: BrokerThrottling, topics: list[TopicThrottling]
    ) -> None:
        self.clock, self.topics_of = clock, topics
        self.throttle = broker.connection(self)
        self.senders = [topic.sender("p", self.throttle) for topic in topics]
        self.sent: list[list[int]] = [[] for _ in topics]
        self._next = 0

    def topics(self) -> set[str]:
        return {str(topic.name) for topic in self.topics_of}

    def subscriptions(self, _topic: str) -> set[str]:
        return set()

    def stop_reading(self) -> None:
        """This client sends only while it is not paused."""

    def waits(self, _holder: Holder | None = None) -> bool:
        return True

    def go_on(self) -> None:
        """Send until paused."""
        while not self.throttle.paused:
            at = self._next = (self._next + 1) % len(self.topics_of)
            self.sent[at].append(self.clock())
            self.senders[at].charge(self.topics_of[at].publish, 1, 100, self.clock())

    def counts(self, since_ns: int, until_ns: int) -> list[int]:
        """The number of messages of each producer that came in that time."""
        return [sum(since_ns <= at < until_ns for at in times) for times in self.sent]


def a_broker(clock: DrivenClock, **settings: object) -> BrokerThrottling:
    """A broker with the given settings."""
    return BrokerThrottling(ThrottlingSettings(**settings), cluster="c", now_ns=clock())  # type: ignore[arg-type]


def resume_ready(broker: BrokerThrottling) -> None:
    """Resume all whose last hold ended, as a server does after every event."""
    while (resumable := broker.next_ready()) is not None:
        resumable.go_on()


def settle(broker: BrokerThrottling, clock: DrivenClock) -> None:
    """Release and resume all that tokens suffice for, as a server does when its timer fires."""
    while (resumable := broker.release(clock())) is not None:
        resumable.go_on()


def run_until(
    broker: BrokerThrottling, clock: DrivenClock, end_ns: int, *, late_ms: float = 0.0
) -> None:
    """Serve wake-ups in order of time, each `late_ms` late, until `end_ns`."""
    settle(broker, clock)
    while (at_ns := broker.next_wakeup_ns()) is not None and at_ns < end_ns:
        clock.now_ns = max(clock.now_ns, at_ns + round(late_ms * MS))
        settle(broker, clock)
    clock.now_ns = max(clock.now_ns, end_ns)


def jain(shares: list[float]) -> float:
    """Jain's fairness index: 1 when all shares are equal."""
    return sum(shares) ** 2 / (len(shares) * sum(share * share for share in shares))
