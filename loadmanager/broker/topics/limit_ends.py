"""Limits that end by themselves: the end is stored beside the limit, in the same transaction, and
the leader of that time lifts the limit (`leader.limit_ends`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from loadmanager.engine.load.wishes import LimitEnd, check_hold
from loadmanager.kit.clock import Clock
from loadmanager.kit.errors import ConflictError, CorruptDataError
from loadmanager.kit.metadata import paths
from loadmanager.kit.metadata.documents import (
    Corrupt,
    Document,
    field_of,
    read_object,
    with_field,
)
from loadmanager.kit.metadata.store import Check, Create, Delete, Node, Operation, Put, Store

ENDS_MAX = 1_000


@dataclass(frozen=True, slots=True)
class LimitChange:
    """How a limit is set or removed: the change of its document, and the operation that goes with
    it; None: nothing does.
    """

    change: Callable[[Document], Document]
    also: Callable[[], Awaitable[Operation]] | None


class LimitEnds:
    """The ends of limits, as operators' requests write them."""

    def __init__(self, store: Store, clock: Clock, corrupt: Corrupt) -> None:
        self._store, self._clock, self._corrupt = store, clock, corrupt

    async def change(
        self, of: str, path: tuple[str, ...], rate: Document | None, for_s: float | None
    ) -> LimitChange:
        """How the field `path` of the document `of` becomes `rate`, for so long, after which it is
        as it was; without `for_s` for good: an earlier end goes.

        Raises `BadInputError` for a wrong time, `ConflictError` if there are too many ends.
        """
        end_path = paths.limit_end(of, path)
        node = await self._store.get(end_path)
        if node is None and for_s is None:
            return LimitChange(lambda document: with_field(document, path, rate), None)
        earlier, before = self._decoded(end_path, node), list[Any]()
        if for_s is not None:
            check_hold(for_s)
            await self._store.create(paths.LIMIT_ENDS, b"")  # a transaction makes no parents
            if node is None and len(await self._store.children(paths.LIMIT_ENDS)) >= ENDS_MAX:
                raise ConflictError(f"{ENDS_MAX} limits have an end already")

        def change(document: Document) -> Document:
            was = field_of(document, path)
            if earlier is not None and was == earlier.after:
                was = earlier.before  # the limit that was set for good
            before[:] = [was]
            return with_field(document, path, rate)

        async def also() -> Operation:
            present = await self._store.get(end_path)
            if for_s is None:
                return Check(of) if present is None else Delete(end_path, present.version)
            until_ms = self._clock.now_ms() + round(for_s * 1000)
            value = msgspec.json.encode(LimitEnd(until_ms, of, path, before[0], rate))
            if present is None:
                return Create(end_path, value)
            return Put(end_path, value, present.version)

        return LimitChange(change, also)

    async def all(self) -> list[LimitEnd]:
        """Those that are stored, the first to end first; without those whose limit somebody has
        changed since, which will stay as it is.
        """
        names = await self._store.children(paths.LIMIT_ENDS)
        some = [f"{paths.LIMIT_ENDS}/{name}" for name in names]
        nodes = await self._store.get_many(some)
        decoded = [self._decoded(path, node) for path, node in zip(some, nodes, strict=True)]
        ends = [end for end in decoded if end is not None]
        of = sorted({end.of for end in ends})
        documents = dict(zip(of, await self._store.get_many(of), strict=True))
        holding = [end for end in ends if _holds(end, documents[end.of])]
        return sorted(holding, key=lambda end: (end.until_ms, end.of, end.path))

    def _decoded(self, path: str, node: Node | None) -> LimitEnd | None:
        if node is not None:
            with self._corrupt.left_out("wish", path):
                return msgspec.json.decode(node.value, type=LimitEnd)
        return None


def _holds(end: LimitEnd, node: Node | None) -> bool:
    """Whether the limit is still what was set for a time."""
    if node is None:
        return False
    try:
        return bool(field_of(read_object(node.value, end.of), end.path) == end.after)
    except CorruptDataError:
        return False
