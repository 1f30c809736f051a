"""Removes, from time to time, messages that are too old or too many: time to live, retention by
time, backlog quotas.

Ages are those of publication. Finding the first message that is young enough takes a binary search,
which reads from the storage what the cache lacks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from loadmanager.broker.messaging.settings import CONSUMER_EVICTION
from loadmanager.broker.messaging.subscription import Subscription
from loadmanager.broker.messaging.topic import EVICTED_TO
from loadmanager.broker.protocol.dispatcher import Dispatcher
from loadmanager.broker.protocol.failures import Failures
from loadmanager.broker.protocol.hosted import HostedTopic
from loadmanager.broker.wire.frames import publish_time_of
from loadmanager.kit.clock import Clock
from loadmanager.kit.errors import LoadManagerError
from loadmanager.kit.logger import get_logger

AT_ONCE = 20
"""Topics that are looked at before clients have their turn."""

log = get_logger("storage")

Look = Callable[[HostedTopic], Coroutine[Any, Any, None]]


class MessageExpiry:
    """Enforces time to live, retention and backlog quotas in the topics that are served."""

    def __init__(
        self,
        topics: Callable[[], Iterable[HostedTopic]],
        *,
        dispatcher: Dispatcher,
        clock: Clock,
        failures: Failures,
        close_producers: Callable[[HostedTopic], None],
    ) -> None:
        self._topics = topics
        self._dispatcher = dispatcher
        self._clock = clock
        self._failures = failures
        self._close_producers = close_producers
        self._running = set[Look]()

    async def check_ages(self) -> None:
        """Have messages beyond their time to live count as acknowledged; drop those beyond the
        retention.
        """
        await self._look_at_all(self._check_age)

    async def check_quotas(self) -> None:
        """Evict what exceeds a backlog quota, or close the producers of its topic."""
        await self._look_at_all(self._check_quota)

    async def _look_at_all(self, look: Look) -> None:
        """A topic that fails is left out. Does nothing while the last time is not over."""
        if look in self._running:
            return
        self._running.add(look)
        try:
            for number, hosted in enumerate(list(self._topics())):
                try:
                    if not hosted.fenced:
                        await look(hosted)
                except LoadManagerError as error:
                    log.warning(
                        "the age of messages is not known", topic=str(hosted.name), error=str(error)
                    )
                except Exception as error:  # noqa: BLE001 - contained: the other topics go on
                    self._failures.report(f"looking after {hosted.name} failed", error)
                if number % AT_ONCE == AT_ONCE - 1:
                    await asyncio.sleep(0)
        finally:
            self._running.discard(look)
            self._dispatcher.deliver()

    async def _check_age(self, hosted: HostedTopic) -> None:
        core, rules = hosted.core, hosted.core.rules
        if rules.ttl_s > 0 and await self._older(hosted, core.slowest, rules.ttl_s):
            young = await self._first_younger(hosted, rules.ttl_s)
            for subscription in list(core.subscriptions.values()):
                self.expire(hosted, subscription, young)
        oldest = core.log.first_id
        if rules.retention_s >= 0 and await self._older(hosted, oldest, rules.retention_s):
            core.drop_older(await self._first_younger(hosted, rules.retention_s))

    async def _check_quota(self, hosted: HostedTopic) -> None:
        core, rules = hosted.core, hosted.core.rules
        core.too_old = rules.quota_s > 0 and await self._older(hosted, core.slowest, rules.quota_s)
        if core.too_old and rules.age_policy == CONSUMER_EVICTION:
            young = await self._first_younger(hosted, rules.quota_s)
            for subscription in list(core.subscriptions.values()):
                self.expire(hosted, subscription, young)
            core.too_old = False
        full = 0 <= rules.quota_bytes <= core.backlog_bytes
        if full and rules.evicts:
            core.evict(int(rules.quota_bytes * EVICTED_TO))
            self._moved(hosted)
        elif (full or core.too_old) and hosted.producers:
            log.warning(
                "a backlog exceeds its quota; the producers are closed",
                topic=str(hosted.name),
                bytes=core.backlog_bytes,
                too_old=core.too_old,
            )
            self._close_producers(hosted)

    def expire(self, hosted: HostedTopic, subscription: Subscription, entry_id: int) -> int:
        """Have everything below `entry_id` count as acknowledged; returns how many entries were
        not.
        """
        expired = subscription.expire_until(entry_id)
        if expired:
            self._moved(hosted)
        return expired

    def _moved(self, hosted: HostedTopic) -> None:
        if hosted.stored is not None:
            hosted.stored.moved()
        self._dispatcher.touch(hosted)

    async def _older(self, hosted: HostedTopic, entry_id: int, age_s: float) -> bool:
        """True if an entry at or above that id exists and is older."""
        if entry_id >= hosted.core.log.end_id:
            return False
        entry = await hosted.fetch(max(entry_id, hosted.core.log.first_id))
        return entry is not None and publish_time_of(entry.tail) < self._before_ms(age_s)

    async def _first_younger(self, hosted: HostedTopic, age_s: float) -> int:
        before_ms = self._before_ms(age_s)
        return await hosted.published_since(before_ms, lambda: not hosted.fenced) or 0

    def _before_ms(self, age_s: float) -> int:
        return self._clock.now_ms() - int(age_s * 1000)
