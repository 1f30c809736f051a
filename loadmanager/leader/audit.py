"""The audit log: every change that was allowed, with who made it.

It is written to the history, kept for `loadmanager admin audit`, and told to the leader, at whom
others listen. The change waits for none of these; the answer to who ordered it over HTTP waits
until it is in the archive.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from itertools import count

import msgspec

from loadmanager.engine.history.records import AuditedChange
from loadmanager.engine.plans.goals import NAMES_SHOWN
from loadmanager.kit.audit import ASKED, Asked, ChangeShown, Written, change_id
from loadmanager.kit.clock import Clock
from loadmanager.kit.errors import OperationalError
from loadmanager.kit.history.archive import Archive
from loadmanager.kit.history.port import History
from loadmanager.kit.logger import get_logger
from loadmanager.kit.metadata import paths
from loadmanager.kit.metadata.lease import Lease
from loadmanager.kit.metadata.store import (
    Change,
    Create,
    Delete,
    Node,
    Operation,
    Put,
    SessionState,
    Store,
)
from loadmanager.kit.tasks import sleep
from loadmanager.kit.telemetry import Sample, counter
from loadmanager.leader.change_words import in_words

CHANGES_MAX = 1_000
"""The last changes of this broker that are kept in memory."""
WAITING_MAX = 1_000
"""Changes that wait to be told to the leader; the oldest give way."""
CHANGES_AT_ONCE = 100
AGAIN_S = 1.0
TEXT_MAX = 2_000
"""Characters of a document, before or after, that are kept."""
WHAT_MAX = 1_000
NAMES_TEXT_MAX = 500
"""Characters of the names in an order to reach a goal."""
MOVES_OF_GOALS = frozenset({"progress", "underWay", "compared", "afterwards"})
"""Fields of such an order that say which moves were shown, or what came of it."""
HIDDEN = "*****"
"""What is shown of a secret."""
NOT_NAMED = "more documents were changed by this request"

CHANGES = counter("loadmanager_audit_changes", "Changes that somebody was allowed to make")
CHANGES_DROPPED = counter(
    "loadmanager_audit_dropped",
    "Changes of which the leader was not told: those who listen to its events missed them",
)

log = get_logger("audit")

Tell = Callable[[Sequence[ChangeShown]], Awaitable[bool]]
"""Tells the leader; False: there is none now. Raises `OperationalError`."""


class AuditLog:
    """Implements `kit.audit.Audit`. `secret`: whether a key of broker.conf holds one; `archive`:
    where the history's records are looked up.
    """

    def __init__(
        self,
        *,
        broker_id: str,
        clock: Clock,
        history: History | None,
        archive: Archive | None = None,
        secret: Callable[[str], bool] = lambda _key: False,
        tell: Tell | None = None,
    ) -> None:
        self._broker_id, self._clock, self._history = broker_id, clock, history
        self._secret, self._tell, self._archive = secret, tell, archive
        self._recent: deque[AuditedChange] = deque(maxlen=CHANGES_MAX)
        self._waiting: deque[AuditedChange] = deque()
        self._wake = asyncio.Event()
        self.count = self.dropped = 0
        self._numbers = count(1)

    def changed(self, asked: Asked) -> None:
        records = list(self._records(asked))
        asked.written.clear()
        self.count += len(records)
        if self._history is not None:
            self._history.append(*records)
        if asked.orders:  # they follow from what was told already
            return
        self._recent.extend(records)
        if self._tell is None:
            return
        self._waiting.extend(records)
        while len(self._waiting) > WAITING_MAX:
            self._waiting.popleft()
            self.dropped += 1
        self._wake.set()

    async def settle(self) -> None:
        if self._archive is not None:
            await self._archive.settle()

    def recent(self, limit: int) -> list[ChangeShown]:
        newest = [self._recent[-index] for index in range(1, min(limit, len(self._recent)) + 1)]
        return [_shown_of(record) for record in newest]

    async def run(self) -> None:
        """Tell the leader, for ever."""
        assert self._tell is not None
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._waiting:
                some = [self._waiting[i] for i in range(min(CHANGES_AT_ONCE, len(self._waiting)))]
                if not await self._tell_leader(some):
                    await sleep(AGAIN_S)
                    continue
                for record in some:  # meanwhile the oldest may have given way
                    if self._waiting and self._waiting[0] is record:
                        self._waiting.popleft()

    async def _tell_leader(self, records: list[AuditedChange]) -> bool:
        assert self._tell is not None
        try:
            return await self._tell([_shown_of(record) for record in records])
        except OperationalError as error:
            log.debug("the leader is not told of changes; trying again", error=str(error))
            return False

    def samples(self) -> Iterator[Sample]:
        """The numbers of changes."""
        yield CHANGES.sample(self.count)
        yield CHANGES_DROPPED.sample(self.dropped)

    def _records(self, asked: Asked) -> Iterator[AuditedChange]:
        failed = "failed: " if asked.failed else ""
        for written in asked.written.values() or (None,):
            before, after = (None, asked.body or None) if written is None else self._texts(written)
            before, after = _clipped(before), _clipped(after)
            now_ms = self._clock.now_ms()
            path = None if written is None else written.path[:WHAT_MAX]
            yield AuditedChange(
                ts=now_ms,
                broker=self._broker_id,
                role=asked.roles[0] if asked.roles else "",
                proxied=asked.roles[1] if len(asked.roles) > 1 else None,
                address=asked.address,
                over=asked.over,
                what=asked.what[:WHAT_MAX],
                path=path,
                before=before,
                after=after,
                note=self._note(asked),
                id=change_id(now_ms, next(self._numbers), self._broker_id),
                words=f"{failed}{in_words(asked.what, path, before, after)}"[:WHAT_MAX],
                failed=bool(asked.failed),
            )

    @staticmethod
    def _note(asked: Asked) -> str | None:
        more = f"{asked.unnamed} {NOT_NAMED}" if asked.unnamed else ""
        return "; ".join(filter(None, (asked.failed, asked.note, more))) or None

    def _texts(self, written: Written) -> tuple[str | None, str | None]:
        """The fields that are different before and after."""
        if not _is_shown(written.path):
            return (
                None if written.before is None else "{}",
                None if written.after is None else "{}",
            )
        before, after = _fields(written.before), _fields(written.after)
        if written.path.startswith(f"{paths.GOALS}/"):
            before, after = _asked_of_goal(before), _asked_of_goal(after)
        if isinstance(before, dict) and isinstance(after, dict):
            same = {name for name in before.keys() & after.keys() if before[name] == after[name]}
            before, after = (
                {name: part for name, part in each.items() if name not in same}
                for each in (before, after)
            )
        return self._text(before), self._text(after)

    def _text(self, fields: object) -> str | None:
        if fields is None:
            return None
        if isinstance(fields, dict):
            fields = {name: HIDDEN if self._secret(name) else it for name, it in fields.items()}
        return msgspec.json.encode(fields).decode()


def _shown_of(record: AuditedChange) -> ChangeShown:
    return msgspec.convert(record, ChangeShown, from_attributes=True)


def _is_shown(path: str) -> bool:
    """Whether a document is told: not those of topics and subscriptions, which are positions."""
    return not path.startswith(f"{paths.MANAGED_LEDGERS}/")


def _is_document(path: str, value: bytes) -> bool:
    """Whether a node that is made is more than the place of those below it."""
    return bool(value) or not _is_shown(path)


def _fields(value: bytes | None) -> object:
    if value is None:
        return None
    try:
        return msgspec.json.decode(value) if value else {}
    except (ValueError, RecursionError):
        return value[:TEXT_MAX].decode(errors="replace")


def _asked_of_goal(order: object) -> object:
    """What was asked of an order to reach a goal, and how many moves were planned: not the moves,
    which would leave no room for it.
    """
    if not isinstance(order, dict):
        return order
    fields = {name: it for name, it in order.items() if name not in MOVES_OF_GOALS}
    promise = order.get("promise")
    if isinstance(promise, dict):
        curve = promise.get("curve")
        last = curve[-1:] if isinstance(curve, list) else []
        fields["promise"] = {**promise, "curve": last}
    for within, names in (("goal", "names"), ("limits", "stay")):
        part = fields.get(within)
        if isinstance(part, dict) and isinstance(part.get(names), list):
            fields[within] = {**part, names: _some(part[names])}
    return fields


def _some(names: list[object]) -> list[object]:
    """As many names as there is room for, and how many others there are; a few in all."""
    room, fit = NAMES_TEXT_MAX, 0
    while fit < len(names) and (room := room - len(str(names[fit]))) >= 0:
        fit += 1
    if fit == len(names) <= NAMES_SHOWN:
        return names
    fit = min(fit, NAMES_SHOWN - 1)
    return [*names[:fit], f"… and {len(names) - fit} more"]


def _clipped(text: str | None) -> str | None:
    return text if text is None or len(text) <= TEXT_MAX else f"{text[:TEXT_MAX]}…"


def is_change(path: str) -> bool:
    """Whether an operator would call a write there a change: of tenants, policies, settings,
    topics, subscriptions, schemas, quotas, pins, cordons or refused tokens.
    """
    return path.startswith(ROOTS)


ROOTS = tuple(
    f"{root}/"
    for root in (
        paths.ADMIN,
        paths.MANAGED_LEDGERS,
        paths.SCHEMAS,
        paths.RESOURCE_QUOTAS,
        paths.WISHES,
        paths.REFUSED,
    )
)


class NotingStore:
    """A store that notes what is written for the request of its caller; it implements `Store`."""

    def __init__(self, store: Store) -> None:
        self._store = store

    @property
    def lease(self) -> Lease:
        return self._store.lease

    @property
    def session_id(self) -> int:
        return self._store.session_id

    @property
    def session_timeout_s(self) -> float:
        return self._store.session_timeout_s

    async def get(self, path: str) -> Node | None:
        node = await self._store.get(path)
        _saw(path, node)
        return node

    async def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        nodes = await self._store.get_many(paths)
        for path, node in zip(paths, nodes, strict=True):
            _saw(path, node)
        return nodes

    async def children(self, path: str) -> list[str]:
        return await self._store.children(path)

    async def create(self, path: str, value: bytes, *, ephemeral: bool = False) -> bool:
        created = await self._store.create(path, value, ephemeral=ephemeral)
        if created and _is_document(path, value):
            _wrote(path, value)
        return created

    async def put(self, path: str, value: bytes, *, version: int | None = None) -> int:
        now = await self._store.put(path, value, version=version)
        if _is_shown(path):  # a topic's version is its epoch: that is no change
            _wrote(path, value)
        return now

    async def delete(self, path: str, *, version: int | None = None) -> bool:
        deleted = await self._store.delete(path, version=version)
        if deleted:
            _wrote(path, None)
        return deleted

    async def commit(self, operations: Sequence[Operation]) -> int:
        done = await self._store.commit(operations)
        for operation in operations:
            if isinstance(operation, Create):
                if _is_document(operation.path, operation.value):
                    _wrote(operation.path, operation.value)
            elif isinstance(operation, Put) and _is_shown(operation.path):
                _wrote(operation.path, operation.value)
            elif isinstance(operation, Delete):
                _wrote(operation.path, None)
        return done

    def watch(self, root: str) -> AsyncIterator[Change]:
        return self._store.watch(root)

    def session_states(self) -> AsyncIterator[SessionState]:
        return self._store.session_states()


def _saw(path: str, node: Node | None) -> None:
    asked = ASKED.get()
    if asked is not None and node is not None and is_change(path):
        asked.saw(path, node.value)


def _wrote(path: str, value: bytes | None) -> None:
    asked = ASKED.get()
    if asked is not None and is_change(path):
        asked.wrote(path, value)
