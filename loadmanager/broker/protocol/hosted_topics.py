"""The open topics: opened when a client comes, measured, and closed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

from loadmanager.broker.messaging.subscription import SubscriptionType
from loadmanager.broker.messaging.topic import Topic, check_memory
from loadmanager.broker.protocol.attachments import Attachments
from loadmanager.broker.protocol.hosted import HostedTopic
from loadmanager.broker.protocol.server_state import ServerState
from loadmanager.broker.protocol.topic_telemetry import samples
from loadmanager.broker.protocol.totals import NamespaceTotals
from loadmanager.kit.errors import ConflictError, OperationalError
from loadmanager.kit.names import TopicName
from loadmanager.kit.telemetry import Detail, Sample
from loadmanager.member.ports.hosting import CountedTraffic

MEASURED_AT_ONCE = 100
RELIEVE_INTERVAL_S = 1.0
"""How often retained messages are dropped at most, while topics hold all that they may."""


class HostedTopics:
    """The topics of the bundles that are served here."""

    def __init__(self, state: ServerState, attachments: Attachments) -> None:
        self._state = state
        self._attachments = attachments
        self._totals = NamespaceTotals()
        self._opening: dict[str, asyncio.Future[None]] = {}
        self._relieved_s = float("-inf")
        self._measured_s = state.clock.monotonic_s()
        self.closed: dict[str, CountedTraffic] = {}
        """See `ports.hosting.TrafficCounter.take_closed`."""

    def served(self, topic: str) -> HostedTopic | None:
        """The open topic of that full name, if it is served now."""
        hosted = self._state.open_topics.get(topic)
        return hosted if hosted is not None and not hosted.fenced else None

    async def host(self, topic: TopicName) -> HostedTopic:
        """The topic, opened if need be.

        Raises `OperationalError` when its bundle is not served here: the client must look it up
        again.
        """
        name = str(topic)
        hosted = self.served(name)
        if hosted is not None:
            return hosted
        opening = self._opening.get(name)
        if opening is not None:
            await asyncio.shield(opening)
        else:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._opening[name] = future
            try:
                await self._open(topic)
            finally:
                del self._opening[name]
                future.set_result(None)
        hosted = self.served(name)
        if hosted is None:
            raise OperationalError(
                f"Namespace bundle for topic ({topic}) not served by this instance. Please "
                "redo the lookup."
            )
        return hosted

    async def _open(self, topic: TopicName) -> None:
        state = self._state
        bundle = await state.directory.owned_bundle(topic)
        opened = None if bundle is None else state.open_bundles.get(bundle)
        if bundle is None or opened is None or opened.fenced:
            return
        records = await state.directory.open_topic(topic)
        stored = None
        if state.storing is not None and topic.persistent:
            stored = await state.storing.open(topic, opened.life, records)
            ledger_id = stored.record.log_id
        else:
            ledger_id = await state.directory.next_ledger_id()
        # Meanwhile the bundle may have been unloaded or split: what was read is of an older life.
        # Without the lease, nothing is opened.
        leased = state.directory.lease.held(state.clock.monotonic_s())
        if not leased or state.open_bundles.get(bundle) is not opened or opened.fenced:
            if stored is not None:
                stored.log.close()
            return
        core = Topic(
            str(topic),
            ledger_id,
            state.settings,
            state.memory.part(str(topic.namespace)),
            partition=topic.partition,
            log=None if stored is None else stored.log,
            rules=state.rules.of(str(topic.namespace)),
        )
        for subscription in records.subscriptions:
            core.subscribe(subscription, SubscriptionType.EXCLUSIVE, 0, durable=True)
        now_ns = state.clock.monotonic_ns()
        hosted = HostedTopic(topic, bundle, core, state.throttling.topic(topic, now_ns))
        if stored is not None:
            stored.begin(hosted)
        opened.topics[core.name] = state.open_topics[core.name] = hosted
        state.dispatcher.touch(hosted)

    def check_room(self, topic: TopicName) -> None:
        """Raise `QuotaExceededError` when all topics together, or those of its namespace, hold as
        much as they may, retained messages left out; `StorageFullError` when the topic cannot be
        stored.
        """
        now_s, memory = (
            self._state.clock.monotonic_s(),
            self._state.memory.part(str(topic.namespace)),
        )
        if memory.full and now_s >= self._relieved_s + RELIEVE_INTERVAL_S:
            self._relieved_s = now_s
            for hosted in self._state.open_topics.values():
                hosted.core.trim(0)
        check_memory(memory)
        if self._state.storing is not None and topic.persistent:
            self._state.storing.check_writable()

    def close(self, topic: str, *, force: bool) -> bool:
        """Tell the clients of one topic and forget it."""
        hosted = self.served(topic)
        if hosted is None:
            return False
        if not (hosted.idle or force):
            raise ConflictError(
                f"Topic {topic} has active producers or consumers; close them first, or "
                "use force=true"
            )
        self.end(hosted)
        self._state.dispatcher.deliver()
        return True

    def end(self, hosted: HostedTopic) -> None:
        """Tell the clients of an open topic, and forget it."""
        del self._state.open_topics[hosted.core.name]
        self._state.open_bundles[hosted.bundle].topics.pop(hosted.core.name, None)
        hosted.fence(self._state.clock.monotonic_ns())
        self._attachments.close_all(hosted, None)
        self.forget(hosted)

    def forget(self, hosted: HostedTopic) -> None:
        """Count what it did, and free what it has."""
        carried = hosted.take_carried()
        if any(carried):
            self.closed[hosted.bundle] = carried.plus(
                self.closed.get(hosted.bundle, CountedTraffic())
            )
        self._totals.count(hosted.figures, hosted.counts())
        self._totals.leave(hosted.figures)
        self._state.dispatcher.changed.pop(hosted, None)
        hosted.close(self._state.clock.monotonic_ns())

    async def measure(self) -> None:
        """End a stats period, in slices; clients are served between them."""
        now_s = self._state.clock.monotonic_s()
        elapsed_s, self._measured_s = max(now_s - self._measured_s, 1e-3), now_s
        self._state.dispatcher.changed.clear()
        for number, hosted in enumerate(list(self._state.open_topics.values()), 1):
            if self._state.open_topics.get(hosted.core.name) is hosted:
                self._measure(hosted, elapsed_s)
            if number % MEASURED_AT_ONCE == 0:
                await asyncio.sleep(0)
        self._totals.measure(hosted.figures for hosted in self._state.open_topics.values())
        self._state.resumer.settle()

    def _measure(self, hosted: HostedTopic, elapsed_s: float) -> None:
        now_s, now_ns = self._state.clock.monotonic_s(), self._state.clock.monotonic_ns()
        hosted.measure(elapsed_s, now_ns)
        hosted.core.trim()
        hosted.core.forget_producers(now_s)
        hosted.forget_sought(now_s, now_ns)
        if self._state.storing is not None:
            self._state.storing.trim(hosted)
        self._totals.count(hosted.figures, hosted.counts())

    def samples(self, detail: Detail) -> Iterator[Sample]:
        """The metrics of topics and connections. Takes time in
        the number of topics that changed since the last call, and of those that are shown.
        """
        changed, self._state.dispatcher.changed = self._state.dispatcher.changed, {}
        for hosted in changed:
            if self._state.open_topics.get(hosted.core.name) is hosted:
                self._totals.count(hosted.figures, hosted.counts())
        shown = list(islice(self._state.open_topics.values(), detail.topics))
        counts = replace(
            self._attachments.counts,
            active=len(self._attachments.connections),
            opening=len(self._opening),
        )
        unacked_max = self._state.settings.value.unacked_per_consumer_max
        yield from samples(self._totals, shown, counts, detail, unacked_max)
