"""Puts back the documents of changes that are undone, all of them in one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from loadmanager.engine.load.wishes import Cordon, LimitEnd, Pause, Pin
from loadmanager.engine.moves.move import Author
from loadmanager.kit.audit import ChangeShown
from loadmanager.kit.errors import BadInputError, ConflictError, CorruptDataError
from loadmanager.kit.metadata import paths
from loadmanager.kit.metadata.documents import Document, read_object, write_object
from loadmanager.kit.metadata.store import (
    Change,
    ChangeKind,
    Create,
    Delete,
    Node,
    Operation,
    Put,
    VersionConflictError,
)
from loadmanager.leader.documents.undo import UndoStep
from loadmanager.leader.draining import Draining
from loadmanager.leader.quotas import TermQuotas
from loadmanager.leader.undo_documents import CannotUndoError, Draft, SetKey, put_back
from loadmanager.leader.wishes import OperatorWishes

GROUP = "resource_group_name"
"""The field of a namespace's policies that names its resource group."""


@dataclass(slots=True, kw_only=True)
class DocumentsBack:
    """The documents of a term that operators changed."""

    wishes: OperatorWishes
    quotas: TermQuotas
    draining: Draining

    async def draft(self, draft: Draft, changes: Sequence[ChangeShown], set_key: SetKey) -> None:
        """Add the documents of changes, the newest first, as they will be."""
        some = list(dict.fromkeys(each.path for each in changes if each.path is not None))
        draft.nodes = dict(zip(some, await self.wishes.store.get_many(some), strict=True))
        for change in changes:
            if change.path is not None:
                await self._undo(draft, change, change.path, set_key)

    async def _undo(self, draft: Draft, change: ChangeShown, path: str, set_key: SetKey) -> None:
        id_ = change.id or ""
        try:
            node = draft.nodes[path]
            now = draft.documents.get(path, None if node is None else read_object(node.value, path))
            then = put_back(change, now)
            if path == paths.DYNAMIC_CONFIGURATION:
                then = _with_settings(now or {}, then or {}, set_key)
            elif path.startswith(f"{paths.RESOURCE_GROUPS}/") and then is None:
                await self._check_unused(draft, paths.last(path))
            elif then is not None and then.get(GROUP) not in (None, (now or {}).get(GROUP)):
                await self._check_group(draft, str(then[GROUP]))
            elif path.startswith(f"{paths.WISHES}/"):
                self._check_wish(draft, path, then)
        except (BadInputError, CorruptDataError) as error:
            draft.refuse(id_, str(change), path, str(error))
            if isinstance(error, CannotUndoError) and error.changed:
                draft.changed.append(change)
            return
        draft.documents[path] = then
        before = "{}" if change.before is None and then is not None else change.before
        draft.steps.append(
            UndoStep(id=id_, what=str(change), of=path, now=change.after, then=before)
        )

    async def _check_unused(self, draft: Draft, group: str) -> None:
        """Raise `CannotUndoError` if a namespace is in a resource group that is to be deleted."""
        store, tenants = self.wishes.store, await self.wishes.store.children(paths.POLICIES)
        some = [
            f"{paths.POLICIES}/{tenant}/{name}"
            for tenant in tenants
            for name in await store.children(f"{paths.POLICIES}/{tenant}")
        ]
        for path, node in zip(some, await store.get_many(some), strict=True):
            document = draft.documents.get(path)
            if path not in draft.documents and node is not None:
                document = read_object(node.value, path)
            if (document or {}).get(GROUP) == group:
                namespace = path.removeprefix(f"{paths.POLICIES}/")
                raise CannotUndoError(f"{namespace} is in this resource group")

    async def _check_group(self, draft: Draft, group: str) -> None:
        """Raise `CannotUndoError` unless a resource group exists; else have its node read."""
        path = paths.resource_group(group)
        if path not in draft.nodes:
            draft.nodes[path] = await self.wishes.store.get(path)
        if draft.documents.get(path, draft.nodes[path]) is None:
            raise CannotUndoError(f"resource group {group} does not exist any more")
        draft.groups.add(path)

    def _check_wish(self, draft: Draft, path: str, then: Document | None) -> None:
        if then is None:
            return
        name, moves = paths.decode(paths.last(path)), self.draining.moves
        try:
            if path.startswith(f"{paths.CORDONS}/"):
                cordon = msgspec.convert(then, Cordon)
                self._check_cordon(draft, name, cordon)
                return
            if path == paths.PAUSE:
                until_ms = msgspec.convert(then, Pause).until_ms
            elif path.startswith(f"{paths.LIMIT_ENDS}/"):
                until_ms = msgspec.convert(then, LimitEnd).until_ms
            else:
                until_ms = msgspec.convert(then, Pin).until_ms
        except msgspec.ValidationError as error:
            raise CannotUndoError(f"its record is of another version: {error}") from None
        if until_ms <= moves.term.clock.now_ms():
            raise CannotUndoError("it would be over by now")

    def _check_cordon(self, draft: Draft, broker: str, cordon: Cordon) -> None:
        reports = self.draining.moves.cluster.brokers.reports
        if broker not in reports:
            raise CannotUndoError(f"{broker} is not active")
        if 0 < cordon.until_restart_of < reports[broker].start_timestamp:
            raise CannotUndoError(f"{broker} was restarted, which ended the cordon")
        others = [each for each in reports if each != broker]
        if all(draft.is_cordoned(each, self.wishes.cordons) for each in others):
            raise CannotUndoError(f"{broker} is the last broker that is not cordoned")

    def operations(self, draft: Draft) -> list[Operation]:
        """What is to be written; nothing if all is so already."""
        operations = [
            operation
            for path, document in sorted(draft.documents.items())
            if (operation := _operation(path, draft.nodes[path], document)) is not None
        ]
        # Who looked for the namespaces of a group before cannot delete it now.
        for path in sorted(draft.groups - draft.documents.keys()):
            if operations and (node := draft.nodes[path]) is not None:
                operations.append(Put(path, node.value, node.version))
        return operations

    async def write(self, draft: Draft) -> None:
        """Put the documents back, all or none. Raises `ConflictError`."""
        operations = self.operations(draft)
        if not operations:
            return
        for operation in operations:
            if isinstance(operation, Create):  # a transaction makes no parents
                await self.wishes.store.create(operation.path.rpartition("/")[0], b"")
        try:
            await self.wishes.store.commit([*self.draining.goals.checks, *operations])
        except VersionConflictError:
            raise ConflictError(
                "nothing is undone: somebody changed one of the documents at the same time, or "
                "this broker's term as leader is over; look at the plan again"
            ) from None
        await self._take_up(draft)

    async def _take_up(self, draft: Draft) -> None:
        """Act by the wishes and quotas that changed, as after an operator's order."""
        for path, document in sorted(draft.documents.items()):
            if path.startswith(f"{paths.RESOURCE_QUOTAS}/"):
                await self.quotas.on_change(path)
            if not path.startswith(f"{paths.WISHES}/"):
                continue
            await self.wishes.on_change(Change(ChangeKind.CHANGED, path))
            if path.startswith(f"{paths.CORDONS}/") and not (document or {}).get("drain"):
                broker = paths.decode(paths.last(path))
                self.draining.moves.cancel_of(broker, Author.DRAIN)
                await self.draining.over(broker)
        self.draining.moves.wake()


def _with_settings(now: Document, then: Document, set_key: SetKey) -> Document:
    """The dynamic settings that are to be put back, each as if it were set. Raises `BadInputError`
    for one that may not be set any more.
    """
    checked: dict[str, object] = dict(now)
    for name in sorted(now.keys() - then.keys()):
        checked = set_key(checked, name, None)
    for name in sorted(then):
        if name not in now or now[name] != then[name]:
            checked = set_key(checked, name, str(then[name]))
    return checked


def _operation(path: str, node: Node | None, document: Document | None) -> Operation | None:
    if node is None:
        return None if document is None else Create(path, write_object(document))
    if document is None:
        return Delete(path, node.version)
    if read_object(node.value, path) == document:
        return None
    return Put(path, write_object(document), node.version)
