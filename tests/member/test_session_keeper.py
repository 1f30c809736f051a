"""The session keeper fences first; then it registers again, or ends the broker."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from types import SimpleNamespace
from typing import Any

import pytest
import structlog

from loadmanager.kit.errors import OperationalError
from loadmanager.kit.metadata.lease import BEATS_MIN
from loadmanager.kit.metadata.memory import MemoryStore, MemoryTree
from loadmanager.kit.tasks import Scope
from loadmanager.member.session_keeper import SILENT, SILENT_S, STOOD, SessionKeeper
from loadmanager.testing.cluster import LoopTime


class Broker:
    """Records the order of fencing, losing and registering."""

    def __init__(self, store: MemoryStore, **options: bool) -> None:
        self.events: list[str] = []
        self.reasons: list[str] = []
        self.failures = 0
        hosting: Any = SimpleNamespace(fence_all=lambda: self.events.append("fenced"))
        ownership: Any = SimpleNamespace(
            lose_all=self._lost,
            give_up_interrupted=lambda: None,
        )
        self.session_keeper = SessionKeeper(
            store=store,
            hosting=hosting,
            ownership=ownership,
            clock=LoopTime(),
            register=self._register,
            **options,
        )

    def _lost(self, reason: str) -> list[str]:
        self.events.append("lost")
        self.reasons.append(reason)
        return []

    async def _register(self) -> bool:
        if self.failures:
            self.failures -= 1
            self.events.append("failed")
            raise OperationalError("the store does not answer")
        self.events.append("registered")
        return True

    async def until(self, *events: str) -> None:
        """Wait until exactly these events have happened."""
        async with asyncio.timeout(5):
            while self.events != list(events):
                await asyncio.sleep(0.01)


async def test_a_lost_session_is_fenced_and_every_reconnect_verifies_the_registration() -> None:
    """A lost connection fences nothing. A lost session fences first, then loses all bundles.

    Each reconnect verifies the registration.
    """
    async with MemoryTree().session() as store, Scope("test") as scope:
        broker = Broker(store)
        scope.spawn(broker.session_keeper.watch_session(), "session")
        scope.spawn(broker.session_keeper.keep_registered(), "registration")
        await broker.until("registered")
        store.suspend()
        store.resume()
        await broker.until("registered", "registered")
        store.expire()
        await broker.until("registered", "registered", "fenced", "lost")
        store.resume()
        with structlog.testing.capture_logs() as logs:
            await broker.until("registered", "registered", "fenced", "lost", "registered")
            await asyncio.sleep(0)
        assert [entry["event"] for entry in logs] == [
            "registered; bundles come with the next lookups"
        ]
        scope.cancel()


async def test_a_registration_that_fails_is_tried_again() -> None:
    """A connection that is lost again during a registration does not end the broker."""
    async with MemoryTree().session() as store, Scope("test") as scope:
        broker = Broker(store)
        broker.failures = 3
        scope.spawn(broker.session_keeper.watch_session(), "session")
        scope.spawn(broker.session_keeper.keep_registered(), "registration")
        await broker.until("failed", "failed", "failed", "registered")
        scope.cancel()


async def test_lease_that_runs_out_fences_once() -> None:
    """A lease that runs out fences once, and again only after it was proven in between."""
    async with MemoryTree().session(timeout_s=0.2) as store, Scope("test") as scope:
        broker = Broker(store)
        scope.spawn(broker.session_keeper.watch_lease(), "lease")
        store.suspend()
        await broker.until("fenced", "lost")
        await asyncio.sleep(0.3)
        assert broker.events == ["fenced", "lost"]
        store.resume()
        await asyncio.sleep(0.15)
        store.suspend()
        await broker.until("fenced", "lost", "fenced", "lost")
        scope.cancel()


async def test_a_fence_says_whether_the_store_was_silent_or_the_process_stood_still() -> None:
    """By whether the process had sent heartbeats in vain."""
    async with MemoryTree().session() as store:
        broker, lease = Broker(store), store.lease
        for beats in (0, BEATS_MIN):
            lease.answered_s, lease.beats = 1.0, beats
            broker.session_keeper.fence_unproven()
        assert broker.reasons == [STOOD, SILENT]


async def test_it_is_told_for_how_long_the_lease_was_not_held() -> None:
    """Once, when it is held again; and for how long the store had not answered before."""
    async with MemoryTree().session(timeout_s=0.2) as store, Scope("test") as scope:
        broker, told = Broker(store), list[tuple[float, float]]()
        broker.session_keeper.on_proven = lambda *it: told.append(it)
        scope.spawn(broker.session_keeper.watch_lease(), "lease")
        store.suspend()
        await broker.until("fenced", "lost")
        assert not told
        ended_s, answered_s = store.lease.proven_until_s, store.lease.answered_s
        store.resume()
        async with asyncio.timeout(5):
            while not told:
                await asyncio.sleep(0.01)
        unproven_s, unanswered_s = told[0]
        assert 0 < unproven_s <= LoopTime().monotonic_s() - ended_s
        assert unanswered_s == ended_s - answered_s > 0
        scope.cancel()


async def test_a_silence_of_the_store_is_told_while_it_lasts() -> None:
    """Once, some seconds after the last answer; and its end, when the lease was held all the
    time.
    """
    async with MemoryTree().session(timeout_s=60) as store, Scope("test") as scope:
        broker, told = Broker(store), list[tuple[float, ...]]()
        broker.session_keeper.on_silent = lambda silent_s: told.append((silent_s,))
        broker.session_keeper.on_proven = lambda *it: told.append(it)
        scope.spawn(broker.session_keeper.watch_lease(), "lease")
        store.suspend()
        async with asyncio.timeout(10):
            while not told:
                await asyncio.sleep(0.01)
        ((silent_s,),) = told
        assert SILENT_S <= silent_s <= LoopTime().monotonic_s() - store.lease.answered_s
        await asyncio.sleep(10)
        assert len(told) == 1
        store.resume()
        async with asyncio.timeout(5):
            while len(told) < 2:
                await asyncio.sleep(0.01)
        unproven_s, unanswered_s = told[1]
        assert unproven_s == 0 < silent_s <= unanswered_s
        assert not broker.events  # nothing was fenced
        scope.cancel()


class SelfFenced(Broker):
    """Its host has a fence of its own for bundle b."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__(store)
        keeper = self.session_keeper
        keeper._hosting = SimpleNamespace(  # type: ignore[assignment]
            fence_all=lambda: self.events.append("fenced"), fence_unproven=self._fence_unproven
        )
        keeper._ownership = SimpleNamespace(  # type: ignore[assignment]
            settled=lambda: {"b": 7, "other": 8},
            lose_all=self._lose_all,
            verify_all=lambda: self.events.append("verified"),
            give_up_interrupted=lambda: None,
        )

    def _fence_unproven(self, lives: dict[str, int]) -> set[str]:
        assert lives == {"b": 7, "other": 8}
        self.events.append("fenced in part")
        return {"b"}

    def _lose_all(self, _reason: str, kept: Collection[str] = ()) -> list[str]:
        self.events.append(f"lost all but {sorted(kept)}")
        return ["other"] if kept else ["b"]


async def test_what_has_a_fence_of_its_own_goes_on_until_the_session_is_lost() -> None:
    """When the lease is back, the claims are verified. The host is asked again only if the lease
    was proven in between.
    """
    async with MemoryTree().session(timeout_s=0.2) as store, Scope("test") as scope:
        broker = SelfFenced(store)
        scope.spawn(broker.session_keeper.watch_lease(), "lease")
        scope.spawn(broker.session_keeper.watch_session(), "session")
        once = ["fenced in part", "lost all but ['b']"]
        store.suspend()
        await broker.until(*once)
        broker.session_keeper.fence_unproven()
        assert (broker.events, broker.session_keeper.unleased_bundles) == (once, 1)
        store.resume()
        await broker.until(*once, "verified")
        store.suspend()
        await broker.until(*once, "verified", *once)
        store.expire()
        await broker.until(*once, "verified", *once, "fenced", "lost all but []")
        assert broker.session_keeper.unleased_bundles == 0
        assert broker.session_keeper.fenced_times == 2  # its loss is a part of the second time
        scope.cancel()


async def test_shutdown_policy_ends_the_broker() -> None:
    """With `zookeeperSessionExpiredPolicy=shutdown` an expired session fences, then ends the
    broker.
    """
    async with MemoryTree().session() as store:
        broker = Broker(store, end_when_lost=True)
        watching = broker.session_keeper.watch_session()
        asyncio.get_running_loop().call_later(0.05, store.expire)
        with pytest.raises(OperationalError, match="zookeeperSessionExpiredPolicy"):
            await asyncio.wait_for(watching, 5)
        assert broker.events == ["fenced", "lost"]


async def test_store_that_ends_for_good_ends_the_broker() -> None:
    """No session will follow a closed store, so the broker must end."""
    store = MemoryTree().session()
    await store.__aenter__()
    watching = asyncio.wait_for(Broker(store).session_keeper.watch_session(), 5)
    asyncio.get_running_loop().call_later(
        0.05, store._loop.call_soon, lambda: [queue.close() for queue in store._states]
    )
    with pytest.raises(OperationalError, match="ended for good"):
        await watching
    await store.__aexit__()
