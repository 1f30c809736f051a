"""The pins, cordons, goals, ends of limits and the pause of operators: small documents in the
metadata store, so that they outlive the leader. Every broker reads them, because any broker may
lead, or place bundles.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import msgspec

from loadmanager.engine.load.wishes import Cordon, LimitEnd, Pause, Pin, Wishes
from loadmanager.engine.plans.order import GoalOrder
from loadmanager.kit.clock import Clock
from loadmanager.kit.errors import ConflictError, NotFoundError, OperationalError
from loadmanager.kit.metadata import paths
from loadmanager.kit.metadata.documents import Corrupt
from loadmanager.kit.metadata.store import (
    Change,
    ChangeKind,
    Check,
    Create,
    Delete,
    Operation,
    Put,
    Store,
    VersionConflictError,
)

PINS_MAX = 1_000
CORDONS_MAX = 1_000

Wish = TypeVar("Wish", Pin, Cordon, Pause, GoalOrder, LimitEnd)


class OperatorWishes:
    """Keeps the wishes of operators. A watch on `paths.WISHES` must call `on_change`."""

    def __init__(self, store: Store, clock: Clock, corrupt: Corrupt) -> None:
        self.store = store
        self._clock = clock
        self._corrupt = corrupt
        self.pins: dict[str, Pin] = {}
        """Bundle → its pin, also one that is over."""
        self.cordons: dict[str, Cordon] = {}
        self.goals: dict[str, GoalOrder] = {}
        self.limit_ends: dict[str, LimitEnd] = {}
        """By the names of their nodes."""
        self._pause: Pause | None = None
        self.refusals: Callable[[], Mapping[str, frozenset[str]]] = dict
        """What brokers refuse now; see `Wishes.refusals`."""
        self.stays: Callable[[], Mapping[str, Pin]] = dict
        """What is not to be moved now, as its owners say; a pin of an operator counts more."""
        self.costs: Callable[[], Mapping[str, float]] = dict
        """See `Wishes.costs`."""
        self.copies: Callable[[], Mapping[str, frozenset[str]]] = dict
        """See `Wishes.copies`."""

    # Cache

    async def on_change(self, change: Change) -> None:
        """Read what a change concerns."""
        if change.kind is ChangeKind.RESYNC:
            present = [
                f"{root}/{name}"
                for root in (paths.PINS, paths.CORDONS, paths.GOALS, paths.LIMIT_ENDS)
                for name in await self.store.children(root)
            ]
            present_before = [paths.pin(bundle) for bundle in self.pins]
            present_before += [paths.cordon(broker) for broker in self.cordons]
            present_before += [paths.goal(order_id) for order_id in self.goals]
            present_before += [f"{paths.LIMIT_ENDS}/{name}" for name in self.limit_ends]
            for path in dict.fromkeys([*present_before, *present, paths.PAUSE]):
                await self._read(path)
        else:
            await self._read(change.path)

    async def _read(self, path: str) -> None:
        root, _, name = path.rpartition("/")
        if path == paths.PAUSE:
            self._pause = await self._document(path, Pause)
        elif root == paths.PINS:
            _set(self.pins, paths.decode(name), await self._document(path, Pin))
        elif root == paths.CORDONS:
            _set(self.cordons, paths.decode(name), await self._document(path, Cordon))
        elif root == paths.GOALS:
            _set(self.goals, paths.decode(name), await self._document(path, GoalOrder))
        elif root == paths.LIMIT_ENDS:
            _set(self.limit_ends, name, await self._document(path, LimitEnd))

    async def _document(self, path: str, kind: type[Wish]) -> Wish | None:
        """A stored wish; None without one, or if it is corrupt."""
        node = await self.store.get(path)
        if node is None:
            self._corrupt.mended(path)
            return None
        with self._corrupt.left_out("wish", path):
            return msgspec.json.decode(node.value, type=kind)
        return None

    # Queries

    def now(self) -> Wishes:
        """The wishes that count now."""
        now_ms = self._clock.now_ms()
        pins = {bundle: pin for bundle, pin in self.pins.items() if pin.until_ms > now_ms}
        if stays := self.stays():
            pins = {**stays, **pins}
        return Wishes(pins, self.cordons, self.refusals(), self.costs(), self.copies())

    def pause(self) -> Pause | None:
        """The pause, unless it is over."""
        pause = self._pause
        return pause if pause is not None and pause.until_ms > self._clock.now_ms() else None

    # Changes, under the checks of the leader's term

    async def pin(self, bundle: str, pin: Pin | None, checks: Sequence[Check]) -> None:
        """Pin a bundle, or remove its pin. Raises `NotFoundError`, `ConflictError`."""
        if pin is None and bundle not in self.pins:
            raise NotFoundError(f"{bundle} is not pinned")
        if pin is not None and bundle not in self.pins and len(self.pins) >= PINS_MAX:
            if len(self.now().pins) >= PINS_MAX:
                raise ConflictError(f"{PINS_MAX} bundles are pinned; remove some pins first")
            await self.forget_old(checks)
        await self._write(paths.pin(bundle), pin, checks)

    async def cordon(self, broker: str, cordon: Cordon | None, checks: Sequence[Check]) -> None:
        """Cordon a broker, or end its cordon. Raises `NotFoundError`, `ConflictError`."""
        if cordon is None and broker not in self.cordons:
            raise NotFoundError(f"{broker} is not cordoned")
        if cordon is not None and len(self.cordons.keys() | {broker}) > CORDONS_MAX:
            raise ConflictError(f"{CORDONS_MAX} brokers are cordoned")
        await self._write(paths.cordon(broker), cordon, checks)

    async def set_goal(
        self, order_id: str, order: GoalOrder | None, checks: Sequence[Check]
    ) -> None:
        """Store an order to reach a goal, or forget it."""
        await self._write(paths.goal(order_id), order, checks)

    async def set_pause(self, pause: Pause | None, checks: Sequence[Check]) -> None:
        """Pause the queue of moves, or let it go on."""
        await self._write(paths.PAUSE, pause, checks)

    async def forget_old(self, checks: Sequence[Check]) -> None:
        """Delete the pins that are over."""
        now_ms = self._clock.now_ms()
        for bundle in [name for name, pin in self.pins.items() if pin.until_ms <= now_ms]:
            await self._write(paths.pin(bundle), None, checks)

    async def _write(self, path: str, wish: Wish | None, checks: Sequence[Check]) -> None:
        """Raises `OperationalError` if the term is over, or the node is changed meanwhile."""
        node = await self.store.get(path)
        change: Operation | None = None if node is None else Delete(path)
        if wish is not None:
            value = msgspec.json.encode(wish)
            if node is None:
                await self.store.create(path.rpartition("/")[0], b"")  # a commit makes no parents
            change = Create(path, value) if node is None else Put(path, value)
        try:
            if change is not None:
                await self.store.commit([*checks, change])
        except VersionConflictError:
            raise OperationalError(
                "this broker's term as leader is over, or somebody else changed the same; try again"
            ) from None
        await self._read(path)


def _set(wishes: dict[str, Wish], name: str, wish: Wish | None) -> None:
    if wish is None:
        wishes.pop(name, None)
    else:
        wishes[name] = wish
