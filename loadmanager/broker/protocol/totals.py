"""Sums over the open topics of each namespace, and of all of them. They are kept, so that the
metrics page need not visit the topics: only those in which something happened since it was read.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from operator import add, sub

from loadmanager.broker.messaging.subscription import Subscription
from loadmanager.broker.messaging.topic import Topic

COUNTS = (
    "topics",
    "subscriptions",
    "producers",
    "consumers",
    "backlog",
    "storage_bytes",
    "messages_in",
    "bytes_in",
    "messages_out",
    "bytes_out",
)
PRESENT = 6
"""The first so many `COUNTS` go with their topic. The others only grow."""

ENTRY_SIZES = {
    "128": 128,
    "512": 512,
    "1_kb": 1024,
    "2_kb": 2048,
    "4_kb": 4096,
    "16_kb": 16_384,
    "100_kb": 102_400,
    "1_mb": 1_232_896,
}
"""Pulsar's buckets of entry sizes (`ManagedLedgerMBeanImpl`): name → largest size in bytes."""
WRITE_LATENCIES = ("0_5", "1", "5", "10", "20", "50", "100", "200", "1000")
"""Pulsar's buckets of the time (ms) that storing an entry takes. In memory it takes microseconds:
all entries are in the first, and the time is not measured.
"""
_SIZES_MAX = tuple(ENTRY_SIZES.values())
_SIZES = len(_SIZES_MAX) + 1

WRITES = (
    *(f"entry_size_le_{name}" for name in (*ENTRY_SIZES, "overflow")),
    *(
        f"storage_write_latency_{name}"
        for name in (*(f"le_{it}" for it in WRITE_LATENCIES), "overflow")
    ),
    "entry_size_sum",
    "storage_write_latency_sum",
)
"""Entries stored, by size and by the time that it took; their bytes, and that time (0)."""

RATES = (
    *("rate_in", "rate_out", "throughput_in", "throughput_out", "write_rate", "read_rate"),
    *WRITES,
)
"""Messages/s, bytes/s, entries/s that were stored and delivered, and `WRITES` of a stats period."""

SUBSCRIPTION_RATES = ("rate_out", "throughput_out", "redeliver_rate", "read_rate")

NO_COUNTS = (0,) * len(COUNTS)
NO_RATES = (0.0,) * len(RATES)
_NO_WRITES = (0,) * len(WRITES)


class WriteCounts:
    """Counts the entries that a topic stores, in the order of `WRITES`."""

    __slots__ = ("counts",)

    def __init__(self) -> None:
        self.counts = [0] * len(WRITES)

    def add(self, size: int) -> None:
        """An entry of so many bytes was stored."""
        counts = self.counts
        counts[bisect_left(_SIZES_MAX, size)] += 1
        counts[-2] += size

    def take(self) -> Sequence[int]:
        """Return the counts since the last call, and begin again."""
        if not any(self.counts):
            return _NO_WRITES
        taken, self.counts = self.counts, [0] * len(WRITES)
        taken[_SIZES] = sum(taken[:_SIZES])
        return taken


class Figures:
    """The part of one topic in the totals, and the rates of its subscriptions."""

    __slots__ = (
        "_entries",
        "_subscriptions",
        "counts",
        "namespace",
        "rates",
        "subscription_rates",
        "writes",
    )

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace
        self.counts = NO_COUNTS
        """The last counts, in the order of `COUNTS`."""
        self.rates = NO_RATES
        """The rates over the last stats period, in the order of `RATES`."""
        self.subscription_rates: dict[str, tuple[float, ...]] = {}
        """In the order of `SUBSCRIPTION_RATES`."""
        self.writes = WriteCounts()
        self._entries = 0
        self._subscriptions: dict[Subscription, tuple[int, ...]] = {}

    def begin(self, entries: int) -> None:
        """The topic has so many entries from earlier owners."""
        self._entries = entries

    def measure(self, topic: Topic, traffic: tuple[float, ...], elapsed_s: float) -> None:
        """End a stats period, in which `traffic` were the first four rates."""
        before, now = self._subscriptions, dict[Subscription, tuple[int, ...]]()
        rates: dict[str, tuple[float, ...]] = {}
        for name, subscription in topic.subscriptions.items():
            counted = now[subscription] = (
                subscription.messages_out,
                subscription.bytes_out,
                subscription.messages_redelivered,
                subscription.entries_out,
                subscription.entries_expired,
            )
            last = before.get(subscription, (0, 0, 0, 0, 0))
            rates[name] = tuple(change / elapsed_s for change in map(sub, counted, last))
        self._subscriptions, self.subscription_rates = now, rates
        stored = topic.log.end_id
        read_rate = sum(rate[3] for rate in rates.values())
        write_rate = (stored - self._entries) / elapsed_s
        now_rates = (*traffic, write_rate, read_rate, *self.writes.take())
        self.rates = now_rates if any(now_rates) else NO_RATES
        self._entries = stored


class Totals:
    """Sums over some topics, in the orders of `COUNTS` and `RATES`."""

    __slots__ = ("counts", "rates")

    def __init__(
        self, counts: Iterable[int] = NO_COUNTS, rates: Iterable[float] = NO_RATES
    ) -> None:
        self.counts = tuple(counts)
        self.rates = tuple(rates)

    def __add__(self, other: Totals | Figures) -> Totals:
        return Totals(map(add, self.counts, other.counts), map(add, self.rates, other.rates))

    def __sub__(self, other: Totals | Figures) -> Totals:
        rates = (max(0.0, rate) for rate in map(sub, self.rates, other.rates))
        return Totals(map(sub, self.counts, other.counts), rates)


class NamespaceTotals:
    """The totals of the namespaces that have open topics here, and of this broker."""

    def __init__(self) -> None:
        self.broker = Totals()
        self.namespaces: dict[str, Totals] = {}

    def count(self, figures: Figures, counts: tuple[int, ...]) -> None:
        """A topic has these counts now."""
        if counts == figures.counts:
            return
        change = tuple(map(sub, counts, figures.counts))
        figures.counts = counts
        namespace = self.namespaces.get(figures.namespace)
        if namespace is None:
            namespace = self.namespaces[figures.namespace] = Totals()
        for totals in (namespace, self.broker):
            totals.counts = tuple(map(add, totals.counts, change))

    def leave(self, figures: Figures) -> None:
        """A topic was closed. What it published and delivered stays in the totals, until its
        namespace has no open topic.
        """
        self.count(figures, NO_COUNTS[:PRESENT] + figures.counts[PRESENT:])
        gone = Totals(rates=figures.rates)
        self.broker -= gone
        totals = self.namespaces.pop(figures.namespace, None)
        if totals is not None and totals.counts[0] > 0:
            self.namespaces[figures.namespace] = totals - gone

    def measure(self, topics: Iterable[Figures]) -> None:
        """All topics have new rates."""
        sums: dict[str, tuple[float, ...]] = {}
        for figures in topics:
            if figures.rates != NO_RATES:
                before = sums.get(figures.namespace, NO_RATES)
                sums[figures.namespace] = tuple(map(add, before, figures.rates))
        for namespace, totals in self.namespaces.items():
            totals.rates = sums.get(namespace, NO_RATES)
        self.broker.rates = tuple(map(sum, zip(*sums.values(), strict=True))) or NO_RATES
