"""What the limits of this broker did: recorded at intervals, and told of the present one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from loadmanager.engine.history.records import Throttle
from loadmanager.kit.tasks import sleep
from loadmanager.limits.broker import BrokerThrottling
from loadmanager.limits.limit import Limit
from loadmanager.limits.schedule import RatedTime
from loadmanager.limits.stats import Counters
from loadmanager.member.base import Base

MS_NS = 1_000_000
AT_ONCE = 200
"""Limits looked at before other tasks get their turn."""


class LimitRecords:
    """Every limit that has a rate, or had one, with what it did since the last records."""

    def __init__(self, base: Base, throttling: BrokerThrottling) -> None:
        self._base, self._throttling = base, throttling
        self._counters: dict[Limit, Counters] = {}
        self._taken_s = base.clock.monotonic_s()

    async def take(self, now_ms: int, interval_ms: int) -> list[Throttle]:
        """Those of an interval that is over."""
        removed = self._throttling.schedule.take_removed()
        self._taken_s = self._base.clock.monotonic_s()
        records, self._counters = await self._since((now_ms, interval_ms), removed)
        return records

    async def present(self) -> Sequence[Throttle]:
        """Those of the interval that lasts: the next that are taken are of its time, too."""
        removed = self._throttling.schedule.take_removed(keep=True)
        lasts_ms = max(round((self._base.clock.monotonic_s() - self._taken_s) * 1000), 1)
        records, _ = await self._since((self._base.clock.now_ms(), lasts_ms), removed)
        return records

    async def _since(
        self, sample: tuple[int, int], removed_parts: Iterable[RatedTime]
    ) -> tuple[list[Throttle], dict[Limit, Counters]]:
        """`sample`: the end of an interval, and how long it was; with the counters at its end."""
        interval_ms, records = sample[1], list[Throttle]()
        since_ns = self._base.clock.monotonic_ns() - interval_ms * MS_NS
        before, counters = dict(self._counters), dict[Limit, Counters]()
        removed, stood_ns = dict[Limit, RatedTime](), dict[Limit, int]()
        for part in removed_parts:
            before.setdefault(part.limit, part.began)
            lasted_ns = part.ended[0] - max(part.began[0], since_ns)
            stood_ns[part.limit] = stood_ns.get(part.limit, 0) + lasted_ns
            removed[part.limit] = part
        for index, limit in enumerate(list(self._throttling.limits())):
            if index % AT_ONCE == AT_ONCE - 1:
                await sleep(0)
            if not limit.active:  # removed meanwhile: the next sample records it
                counters[limit] = before.get(limit, limit.stats.began)
                continue
            now_ns = self._base.clock.monotonic_ns()
            figures, stats = limit.snapshot(now_ns), limit.stats
            counters[limit] = now = (*stats.counters(now_ns)[:3], figures.held, stats.waited_ns)
            part = RatedTime(limit, limit.message_rate(), limit.byte_rate(), stats.began, now)
            stood = stood_ns.get(limit, 0) + now_ns - max(part.began[0], since_ns)
            record = self._throttle(part, before.get(limit, part.began), sample, stood)
            record.queue_length = figures.queue_length
            records.append(record)
        records += [
            self._throttle(part, before[limit], sample, stood_ns[limit])
            for limit, part in removed.items()
            if limit not in counters and part.ended[1:] != before[limit][1:]
        ]
        return records, counters

    def _throttle(
        self, part: RatedTime, before: Counters, sample: tuple[int, int], stood_ns: int
    ) -> Throttle:
        """What a limit did in the interval, at whose beginning its counters had been `before`;
        `sample`: the end of the interval, and how long it was.
        """
        limit, ended, (ts, interval_ms) = part.limit, part.ended, sample
        return Throttle(
            ts=ts,
            broker=self._base.broker_id,
            interval_ms=interval_ms,
            level=limit.level,
            limit=limit.name,
            configured_messages_per_s=part.messages_per_s,
            configured_bytes_per_s=part.bytes_per_s,
            delivered_messages_per_s=(ended[1] - before[1]) * 1000 / interval_ms,
            delivered_bytes_per_s=(ended[2] - before[2]) * 1000 / interval_ms,
            held=ended[3] - before[3],
            waited_ms=(ended[4] - before[4]) / MS_NS,
            stood_ms=min(max(stood_ns, 0) // MS_NS, interval_ms),
        )
