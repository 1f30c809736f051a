"""A clock that a test drives, and clients that send as soon as they may."""

from __future__ import annotations

from loadmanager.core.bundles.names import TopicName
from loadmanager.core.conf import Live
from loadmanager.core.throttling.broker import BrokerThrottling, TopicThrottling
from loadmanager.core.throttling.settings import ThrottlingSettings

MS = 1_000_000
SECOND = 1_000_000_000
TOPIC = TopicName.parse("persistent://public/default/orders")


class DrivenClock:
    """Nanoseconds that move only when told; also a `ports.clock.Clock`."""

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

    def __init__(
        self,
        broker: BrokerThrottling,
        topic: TopicThrottling,
        messages: int,
        size: int,
        *,
        cap: int | None = None,
    ) -> None:
        self.clock = broker.clock
        self.throttle = broker.connection(self.on_pause, self.go_on)
        self.topic = topic
        self.sender = topic.sender("p", self.throttle)
        self.frame = (messages, size)
        self.left = cap
        self.sent: list[tuple[int, int, int]] = []
        self.paused_calls: list[str] = []

    def on_pause(self) -> None:
        self.paused_calls.append("pause")

    def go_on(self) -> None:
        """Send until paused, or until the backlog is used up."""
        self.paused_calls.append("resume")
        while not self.throttle.paused and self.left != 0:
            self.left = None if self.left is None else self.left - 1
            self.sent.append((self.clock(), *self.frame))
            self.sender.charge(self.topic.publish, *self.frame)

    def messages(self, since_ns: int = 0, until_ns: int = 1 << 62) -> int:
        return sum(messages for at, messages, _ in self.sent if since_ns <= at < until_ns)

    def size(self, since_ns: int = 0, until_ns: int = 1 << 62) -> int:
        return sum(size for at, _, size in self.sent if since_ns <= at < until_ns)


def a_broker(clock: DrivenClock, **settings: object) -> BrokerThrottling:
    """A broker with the given settings."""
    return BrokerThrottling(Live(ThrottlingSettings(**settings)), cluster="c", clock=clock)  # type: ignore[arg-type]


def run_until(
    broker: BrokerThrottling, clock: DrivenClock, end_ns: int, *, late_ms: float = 0.0
) -> None:
    """Serve wake-ups in order of time, each `late_ms` late, until `end_ns`."""
    while (at_ns := broker.wakeups.next_ns()) is not None and at_ns < end_ns:
        clock.now_ns = max(clock.now_ns, at_ns + round(late_ms * MS))
        broker.wakeups.run()
    clock.now_ns = max(clock.now_ns, end_ns)


def jain(shares: list[float]) -> float:
    """Jain's fairness index: 1 when all shares are equal."""
    return sum(shares) ** 2 / (len(shares) * sum(share * share for share in shares))
