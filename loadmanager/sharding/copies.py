"""Copies of shards that other members serve: prepared for a move to this one, or standing by."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

from loadmanager.kit.errors import OperationalError
from loadmanager.kit.logger import get_logger
from loadmanager.kit.tasks import Scope, until_stopped, within
from loadmanager.sharding.shards import NotNow, Service, Shard

PREPARE_S = 300.0
"""How long the service's `prepare` may take."""
STOP_S = 5.0
"""How long its `follow` may go on when it is cancelled."""

log = get_logger("member")


class Copy:
    """One of them. `failure`: why it is of no use, once `prepared` is set."""

    def __init__(self, shard: Shard[Any]) -> None:
        self.shard = shard
        self.prepared = asyncio.Event()
        self.failure = ""
        self._work: asyncio.Task[None]

    def begin(self, work: asyncio.Task[None]) -> None:
        """The task that prepares it, and follows."""
        self._work = work

    def drop(self, why: str) -> None:
        """It is of no use any more."""
        self.failure = why
        self.prepared.set()
        self.shard.ended.set()
        if self._work is not asyncio.current_task():
            self._work.cancel()

    async def stop_following(self) -> bool:
        """Return when the service's `follow` has ended: its shard is opened next. False: `follow`
        failed, or goes on, and nothing may be opened from the copy.
        """
        self._work.cancel()
        await asyncio.wait({self._work})
        return not self.failure


class Copies:
    """All of them. `served`: whether a bundle is served here now. `owner`: the address where it is;
    empty: nowhere.
    """

    def __init__(
        self,
        service: Service[Any],
        scope: Scope,
        served: Callable[[str], bool],
        owner: Callable[[str], str],
    ) -> None:
        self._service, self._scope, self._served, self._owner = service, scope, served, owner
        self._all: dict[str, Copy] = {}
        self.standing: frozenset[str] = frozenset()
        """The bundles for which this member stands by: copies of those stay."""
        self.failures: Counter[str] = Counter()
        """Hook → how often it failed or took too long."""

    @property
    def possible(self) -> bool:
        """Whether the service has a `prepare`."""
        return hasattr(self._service, "prepare")

    @property
    def bundles(self) -> list[str]:
        """All of which there is a copy, or will be."""
        return list(self._all)

    def ready(self) -> list[str]:
        """The bundles for which this member stands by, with copies that are prepared."""
        return sorted(
            bundle
            for bundle, copy in self._all.items()
            if copy.prepared.is_set() and bundle in self.standing
        )

    async def make(self, bundle: str) -> None:
        """Return when there is a copy. Raises `OperationalError` if the service cannot make one."""
        copy = self._all.get(bundle)
        if copy is None:
            copy = self._all[bundle] = Copy(self.shard(bundle, 0))
            copy.begin(self._scope.spawn(self._work(copy), f"copy {bundle}"))
        await copy.prepared.wait()
        if copy.failure:
            raise OperationalError(copy.failure)

    def shard(self, bundle: str, token: int) -> Shard[Any]:
        """A shard of this member."""
        return Shard(bundle, token, self._served, self._owner)

    def take(self, bundle: str) -> Copy | None:
        """What is prepared for a bundle, which is opened now."""
        copy = self._all.pop(bundle, None)
        if copy is not None and not copy.prepared.is_set():
            copy.drop("the shard is opened before it is prepared")
            return None
        return copy

    def forget(self, bundle: str) -> None:
        """It is wanted no more."""
        copy = self._all.pop(bundle, None)
        if copy is not None:
            copy.drop("it is wanted no more")

    def forget_move(self, bundle: str) -> None:
        """It is not to be moved here, or has come."""
        if bundle not in self.standing:
            self.forget(bundle)

    def forget_moves(self) -> None:
        """Nothing is to be moved here."""
        for bundle in self.bundles:
            self.forget_move(bundle)

    def forget_all(self) -> None:
        """This member ends."""
        for bundle in self.bundles:
            self.forget(bundle)

    async def _work(self, copy: Copy) -> None:
        shard, hook = copy.shard, "prepare"
        try:
            preparing = self._service.prepare(shard)  # type: ignore[attr-defined]
            shard.prepared = await within(PREPARE_S, preparing, f"prepare {shard.name}")
            copy.prepared.set()
            if hasattr(self._service, "follow"):
                hook = "follow"
                await until_stopped(self._service.follow(shard), STOP_S, f"follow {shard.name}")
        except Exception as error:  # noqa: BLE001 - foreign code
            self._failed(copy, hook, error)

    def _failed(self, copy: Copy, hook: str, error: Exception) -> None:
        if isinstance(error, NotNow):
            text = f"the service says: not now: {error}"
        elif isinstance(error, TimeoutError) and hook == "follow":
            text = f"the service's follow went on for {STOP_S:g} s after it was cancelled"
        elif isinstance(error, TimeoutError):
            text = f"the service's {hook} took longer than {PREPARE_S:g} s"
        else:
            text = f"the service's {hook} failed: {type(error).__name__}: {error}"
        if not isinstance(error, NotNow):
            self.failures[hook] += 1
            log.error(
                "a hook of the service failed",
                hook=hook,
                bundle=copy.shard.bundle,
                error=text,
                exc_info=None if isinstance(error, OperationalError | TimeoutError) else error,
            )
        if self._all.get(copy.shard.bundle) is copy:
            del self._all[copy.shard.bundle]
        copy.drop(text)
