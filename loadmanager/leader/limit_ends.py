"""Lifts the limits that were set for a time: each is as it was before. Whoever leads at that time
does so; a limit that somebody changed since stays as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from loadmanager.engine.load.wishes import LIMIT_NAMES, LimitEnd
from loadmanager.kit.clock import Clock
from loadmanager.kit.errors import CorruptDataError
from loadmanager.kit.logger import get_logger
from loadmanager.kit.metadata import paths
from loadmanager.kit.metadata.documents import (
    Document,
    field_of,
    read_object,
    with_field,
    write_object,
)
from loadmanager.kit.metadata.store import (
    Change,
    ChangeKind,
    Check,
    Delete,
    Operation,
    Put,
    VersionConflictError,
)
from loadmanager.leader.own_changes import OwnChanges
from loadmanager.leader.wishes import OperatorWishes

log = get_logger("limits")


@dataclass(frozen=True, slots=True)
class _Lifted:
    """What lifts a limit."""

    write: Operation
    before: Document
    after: Document
    """The field of the document that holds it, before and after; without it: it is not set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TermLimitEnds:
    """The ends of limits, in one term."""

    wishes: OperatorWishes
    checks: Sequence[Check]
    clock: Clock
    own_changes: OwnChanges

    async def step(self) -> None:
        """Lift the limits whose time is over."""
        now_ms = self.clock.now_ms()
        for name, end in sorted(self.wishes.limit_ends.items()):
            if end.until_ms <= now_ms:
                await self._lift(f"{paths.LIMIT_ENDS}/{name}")

    async def _lift(self, path: str) -> None:
        """By what is stored now: somebody may have set the limit anew a moment ago."""
        store = self.wishes.store
        node = await store.get(path)
        if node is not None:
            end = msgspec.json.decode(node.value, type=LimitEnd)
            if end.until_ms > self.clock.now_ms():
                return
            lifted = await self._lifted(end)
            writes = [] if lifted is None else [lifted.write]
            try:
                await store.commit([*self.checks, *writes, Delete(path, node.version)])
            except VersionConflictError:
                return  # the next step looks again
            if lifted is not None:
                self.own_changes.made(
                    f"ends {_named(end.path)} of {_whose(end.of)}, which was set for a time",
                    end.of,
                    before=lifted.before,
                    after=lifted.after,
                )
            log.info(
                "a limit ended" if lifted else "a limit was changed before it ended",
                of=end.of,
                limit="/".join(end.path),
                now=end.before if lifted else None,
            )
        await self.wishes.on_change(Change(ChangeKind.CHANGED, path))

    async def _lifted(self, end: LimitEnd) -> _Lifted | None:
        """What puts the limit back; None if it is another one by now."""
        node = await self.wishes.store.get(end.of)
        if node is None:
            return None
        try:
            document = read_object(node.value, end.of)
        except CorruptDataError:  # others log it; what is in it is nobody's limit
            return None
        if field_of(document, end.path) != end.after:
            return None
        changed = with_field(document, end.path, end.before)
        before, after = (_only(end.path[0], of) for of in (document, changed))
        return _Lifted(Put(end.of, write_object(changed), node.version), before, after)


def _only(name: str, document: Document) -> Document:
    """A document without all but one field, as a record of a change has it."""
    return {name: document[name]} if name in document else {}


def _named(path: Sequence[str]) -> str:
    """The limit at a place of a stored document, as `limits set` names it."""
    return LIMIT_NAMES.get(path[0], path[0])


def _whose(path: str) -> str:
    """The topic or the namespace of a document of policies."""
    topic = paths.topic_of_policies(path)
    return path.removeprefix(f"{paths.POLICIES}/") if topic is None else str(topic)
