"""Turns what happens on this broker into the history's records."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import NamedTuple

from loadmanager.engine.history.members import MemberChange
from loadmanager.engine.history.records import (
    BrokerLoad,
    BundleLoad,
    TopicLoad,
    broker_load,
    bundle_loads,
    decisions,
    move_record,
)
from loadmanager.engine.load.reports import NamespaceBundleStats
from loadmanager.engine.load.usage import max_weighted_usage
from loadmanager.engine.moves.move import Move
from loadmanager.engine.strategies.plan import Plan
from loadmanager.kit.history.port import History
from loadmanager.kit.tasks import Interval, LoopBusy, every, sleep
from loadmanager.limits.broker import BrokerThrottling
from loadmanager.member.base import Base
from loadmanager.member.limit_records import LimitRecords
from loadmanager.member.ownership.ownership import Ownership
from loadmanager.member.ports.hosting import CountedTraffic, Hosting, TopicTraffic, TrafficCounter
from loadmanager.member.reporter import Reporter
from loadmanager.member.traffic import bundle_traffic

AT_ONCE = 200
"""Bundles recorded before other tasks get their turn."""
TOPICS_AT_ONCE = 2_000
NO_TRAFFIC = NamespaceBundleStats()
"""Of a bundle that is not served yet, or no more: what it carried is counted all the same."""


def _rates(carried: CountedTraffic, interval_ms: int) -> dict[str, float]:
    """Messages/s and bytes/s, over a time."""
    return {
        "msg_rate_in": carried.messages_in * 1000 / interval_ms,
        "msg_rate_out": carried.messages_out * 1000 / interval_ms,
        "msg_throughput_in": carried.bytes_in * 1000 / interval_ms,
        "msg_throughput_out": carried.bytes_out * 1000 / interval_ms,
    }


def _set_means(load: BrokerLoad | BundleLoad | TopicLoad, carried: CountedTraffic) -> None:
    """Have a record say what was carried in all of its time."""
    for name, rate in _rates(carried, load.interval_ms).items():
        setattr(load, name, rate)


class _TopicLoad(NamedTuple):
    """A topic that may be among the busiest."""

    order: float
    """Less for one with more traffic."""
    topic: str
    bundle: str
    measured: TopicTraffic
    carried: CountedTraffic | None = None
    """None: it is not counted."""

    def record(self, ts: int, broker: str, interval_ms: int) -> TopicLoad:
        """What is recorded of it."""
        item = self.measured
        load = TopicLoad(
            ts=ts,
            broker=broker,
            interval_ms=interval_ms,
            topic=self.topic,
            bundle=self.bundle,
            msg_rate_in=item.msg_rate_in,
            msg_rate_out=item.msg_rate_out,
            msg_throughput_in=item.msg_throughput_in,
            msg_throughput_out=item.msg_throughput_out,
            producers=item.producers,
            consumers=item.consumers,
            backlog_messages=item.backlog_messages,
        )
        if self.carried is not None:
            _set_means(load, self.carried)
        return load


@dataclass(slots=True, kw_only=True)
class Recorder:
    """Samples loads and limits at intervals; records decisions as they are made."""

    history: History
    base: Base
    reporter: Reporter
    hosting: Hosting
    ownership: Ownership
    throttling: BrokerThrottling | None
    """None: the host has no limits."""
    busy: LoopBusy
    counting: TrafficCounter | None = field(init=False, default=None)
    """None: the host counts nothing, so that loads are recorded as it measured them last."""
    _sampled_s: float = field(init=False)
    limits: LimitRecords | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        """Begin the first interval now."""
        self._sampled_s = self.base.clock.monotonic_s()
        if self.throttling is not None:
            self.limits = LimitRecords(self.base, self.throttling)

    def begin(self) -> None:
        """Record that the member is there, and sample at intervals, in its scope."""
        base, report = self.base, self.reporter.report
        self.history.append(
            MemberChange(
                ts=base.clock.now_ms(),
                broker=base.broker_id,
                of=base.broker_id,
                event="starts",
                version=report.broker_version_string,
                started_at=int(report.start_timestamp) or None,
            )
        )
        self.busy.on_late = self.stood_still
        recording = Interval(base.broker, lambda settings: settings.history_interval_s)
        base.scope.spawn(every(recording, self.sample, "record", base.steps), "record")

    def stops(self) -> None:
        """Record that the member stops in order: where all stop, no leader sees the last one leave,
        and one without bundles gives none up.
        """
        base = self.base
        stops = MemberChange(
            ts=base.clock.now_ms(), broker=base.broker_id, of=base.broker_id, event="stops"
        )
        self.history.append(stops)

    def stood_still(self, seconds: float) -> None:
        """This process did nothing for so long, until now: nor did its clients get anything."""
        base, report = self.base, self.reporter.report
        self.history.append(
            MemberChange(
                ts=base.clock.now_ms(),
                broker=base.broker_id,
                of=base.broker_id,
                event="stood",
                took_ms=round(1000 * seconds),
                clients=int(report.num_producers + report.num_consumers),
            )
        )

    def on_plan(self, epoch: int, cycle: int, plan: Plan, ids: Sequence[str]) -> None:
        """The leader, which is this broker, decided."""
        now_ms, me = self.base.clock.now_ms(), self.base.broker_id
        self.history.append(*decisions(now_ms, me, plan, epoch=epoch, cycle=cycle, ids=ids))

    def on_move(
        self, epoch: int, cycle: int, move: Move, life: int | None, ids: Sequence[str]
    ) -> None:
        """A move that the leader, which is this broker, carried out has ended."""
        now_ms, me = self.base.clock.now_ms(), self.base.broker_id
        self.history.append(
            move_record(now_ms, me, move, epoch=epoch, cycle=cycle, life=life, ids=ids)
        )

    async def sample(self) -> None:
        """Record loads and limits since the last sample."""
        now_ms = self.base.clock.now_ms()
        now_s = self.base.clock.monotonic_s()  # the wall clock may step back
        interval_ms, self._sampled_s = max(round((now_s - self._sampled_s) * 1000), 1), now_s
        report = self.reporter.report
        usage = max_weighted_usage(report, self.base.strategies.value.weights)
        faults = sorted(fault.sensor for fault in self.reporter.faults)
        stored, carried = await self._topics(now_ms, interval_ms)
        load = broker_load(
            now_ms,
            self.base.broker_id,
            report,
            usage=usage,
            interval_ms=interval_ms,
            faults=faults,
        )
        owned, stats = list(report.last_stats), report.last_stats
        if self.counting is not None:
            owned, stats = self.ownership.owned(), await bundle_traffic(self.hosting)
            _set_means(load, reduce(CountedTraffic.plus, carried.values(), CountedTraffic()))
        self.history.append(load)
        if self.limits is not None:
            self.history.append(*await self.limits.take(now_ms, interval_ms))
        for start in range(0, len(owned), AT_ONCE):
            part = {it: stats.get(it, NO_TRAFFIC) for it in owned[start : start + AT_ONCE]}
            loads = bundle_loads(
                now_ms, self.base.broker_id, part, interval_ms=interval_ms, stored=stored
            )
            for each in loads if self.counting is not None else ():
                _set_means(each, carried.get(each.bundle, CountedTraffic()))
            self.history.append(*loads)
            await sleep(0)  # other tasks get their turn

    async def _topics(
        self, now_ms: int, interval_ms: int
    ) -> tuple[dict[str, int], dict[str, CountedTraffic]]:
        """Record the topics with most traffic. Returns what each bundle has stored, in bytes; and
        what each carried since the last sample, also those that are gone, if that is counted.
        """
        count = self.base.broker.value.history_topics_max
        busiest: list[_TopicLoad] = []
        stored: dict[str, int] = {}
        carried = {} if self.counting is None else dict(self.counting.take_closed())
        looked_at = 0
        for bundle in self.ownership.owned():
            topics = self.hosting.topics(bundle)
            stored[bundle] = sum(item.stored_bytes for item in topics.values())
            if self.counting is None:
                loads = [
                    _TopicLoad(-(it.msg_throughput_in + it.msg_throughput_out), name, bundle, it)
                    for name, it in topics.items()
                ]
            else:
                counts = self.counting.take_carried(bundle)
                before = carried.get(bundle, CountedTraffic())
                carried[bundle] = reduce(CountedTraffic.plus, counts.values(), before)
                loads = [
                    _TopicLoad(-(of.bytes_in + of.bytes_out), name, bundle, topics[name], of)
                    for name, of in counts.items()
                    if name in topics
                ]
            busiest = heapq.nsmallest(count, [*busiest, *loads], key=lambda load: load[:2])
            looked_at += len(topics)
            if looked_at >= TOPICS_AT_ONCE:
                looked_at = 0
                await sleep(0)
        self.history.append(
            *(each.record(now_ms, self.base.broker_id, interval_ms) for each in busiest)
        )
        return stored, carried
