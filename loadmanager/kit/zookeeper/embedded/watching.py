"""Requests about watches, and the events that watchers are sent."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import NamedTuple, Protocol

from loadmanager.kit.zookeeper.embedded.access import Acl, check_access
from loadmanager.kit.zookeeper.embedded.client import StoreClient
from loadmanager.kit.zookeeper.embedded.codes import (
    ErrorCode,
    EventKind,
    Opcode,
    Permission,
    RefusedRequestError,
    WatchMode,
)
from loadmanager.kit.zookeeper.embedded.jute import JuteReader, MalformedRecordError, integer
from loadmanager.kit.zookeeper.embedded.nodes import TreeNode
from loadmanager.kit.zookeeper.embedded.outgoing import ENTRY_BYTES, EventFrames
from loadmanager.kit.zookeeper.embedded.reading import Handler
from loadmanager.kit.zookeeper.embedded.records import event, path_in
from loadmanager.kit.zookeeper.embedded.transactions import NodeEvent
from loadmanager.kit.zookeeper.embedded.tree import NodeTree
from loadmanager.kit.zookeeper.embedded.watches import TreeWatches, WatchersAlike

FEW = 500
"""So few events of a transaction are sent as answers are, which costs less than to share them."""
NO_ZXID = -1
"""In an event that catches up with a change of unknown number."""
ANY_MODE = WatchMode.ONCE | WatchMode.PERSISTENT | WatchMode.RECURSIVE
_MODES = {0: WatchMode.PERSISTENT, 1: WatchMode.RECURSIVE}
_CHILDREN, _DATA, _ANY, _PERSISTENT, _RECURSIVE = 1, 2, 3, 4, 5
_REMOVED_MODES = {
    _CHILDREN: WatchMode.ONCE,
    _DATA: WatchMode.ONCE,
    _ANY: ANY_MODE,
    _PERSISTENT: WatchMode.PERSISTENT,
    _RECURSIVE: WatchMode.RECURSIVE,
}
"""The types of removeWatches."""


class EventSender(Protocol):
    """Where events go."""

    def send(self, taker: StoreClient, answer: bytes) -> None:
        """One event."""
        ...

    def send_events(
        self, events: Sequence[tuple[StoreClient, EventFrames]], shared_bytes: int
    ) -> None:
        """Those of a transaction, which take `shared_bytes` of memory together."""
        ...


class _Event(NamedTuple):
    number: int
    acl: Acl
    frame: bytes


@dataclass(slots=True)
class _Heard:
    """The events of a transaction that those who watch alike hear of."""

    group: WatchersAlike
    events: list[_Event] = field(default_factory=list)
    size: int = 0

    def add(self, happened: _Event) -> None:
        self.events.append(happened)
        self.size += ENTRY_BYTES + len(happened.frame)


class TreeWatching:
    """Answers requests about watches; `handlers` has one for each opcode."""

    def __init__(self, tree: NodeTree, watches: TreeWatches, sender: EventSender) -> None:
        self._tree = tree
        self._watches = watches
        self._sender = sender
        self.handlers: dict[int, Handler] = {
            Opcode.ADD_WATCH: self._add,
            Opcode.REMOVE_WATCHES: self._remove,
            Opcode.CHECK_WATCHES: self._check,
            Opcode.SET_WATCHES: self._set,
            Opcode.SET_WATCHES_2: self._set,
        }

    def send_events(self, events: Iterable[NodeEvent]) -> None:
        """Tell the watchers what the last transaction did, those who may read the node.

        Thousands of changes that hundreds watch are millions of events: here it is only noted who
        hears of what, which costs as much as the changes and the watchers, not their product.
        """
        heard: dict[int, _Heard] = {}
        size = 0
        for number, happened in enumerate(events):
            groups = self._watches.concerned(happened)
            if not groups:
                continue
            frame = event(happened.kind, happened.path, self._tree.zxid)
            size += ENTRY_BYTES + len(frame)
            for group in groups:
                if id(group) not in heard:
                    heard[id(group)] = _Heard(group)
                heard[id(group)].add(_Event(number, happened.acl, frame))
        of_clients: dict[StoreClient, list[_Heard]] = {}
        for each in heard.values():
            for client in each.group.watchers:
                assert isinstance(client, StoreClient), "clients watch"
                of_clients.setdefault(client, []).append(each)
        if sum(len(each.events) * len(each.group.watchers) for each in heard.values()) <= FEW:
            for client, lists in of_clients.items():
                for frame in filter(None, _frames(client, lists)):
                    self._sender.send(client, frame)
        else:
            self._sender.send_events(
                [
                    (client, EventFrames(_frames(client, lists), sum(each.size for each in lists)))
                    for client, lists in of_clients.items()
                ],
                size,
            )

    def _add(self, client: StoreClient, reader: JuteReader) -> bytes:
        path, mode = path_in(reader), _MODES.get(reader.integer())
        if mode is None:
            raise MalformedRecordError("an unknown mode of a watch")
        self._watches.add_lasting(path, client, mode)
        return integer(ErrorCode.OK)

    def _remove(self, client: StoreClient, reader: JuteReader) -> bytes:
        path, kind = path_in(reader), reader.integer()
        modes = _removed(kind)
        removed = False
        if kind != _DATA and kind != _RECURSIVE:
            removed |= self._watches.children.remove(path, client, modes)
        if kind != _CHILDREN:
            removed |= self._watches.data.remove(path, client, modes)
        if not removed:
            raise RefusedRequestError(ErrorCode.NO_WATCHER)
        return b""

    def _check(self, client: StoreClient, reader: JuteReader) -> bytes:
        path, kind = path_in(reader), reader.integer()
        modes = _removed(kind)
        watched = kind != _CHILDREN and self._watches.data.has(path, client, modes)
        if kind in (_CHILDREN, _ANY):
            watched |= self._watches.children.has(path, client, modes)
        if not watched:
            raise RefusedRequestError(ErrorCode.NO_WATCHER)
        return b""

    def _set(self, client: StoreClient, reader: JuteReader) -> bytes:
        """A client that has connected again tells what it watches, and the last change it has heard
        of; it is sent at once what it has missed.
        """
        heard_zxid = reader.long()
        watches = self._watches
        for table, missed in (
            (watches.data, _missed_by_reader),
            (watches.data, _missed_by_waiter),
            (watches.children, _missed_by_lister),
        ):
            for path in reader.vector(lambda: path_in(reader)):
                kind = missed(self._tree.find(path), heard_zxid)
                if kind is None:
                    watches.add(table, path, client, WatchMode.ONCE)
                else:
                    self._sender.send(client, event(kind, path, NO_ZXID))
        if not reader.at_end:
            for mode in (WatchMode.PERSISTENT, WatchMode.RECURSIVE):
                for path in reader.vector(lambda: path_in(reader)):
                    watches.add_lasting(path, client, mode)
        return b""


def _frames(client: StoreClient, lists: Sequence[_Heard]) -> Iterator[bytes]:
    """Each event once, in the order in which they happened; empty if the client may not hear of
    it.
    """
    events: Iterable[_Event] = lists[0].events
    if len(lists) > 1:
        events = heapq.merge(*(each.events for each in lists), key=itemgetter(0))
    last_number = -1
    permitted: dict[int, bool] = {}  # by the id of an ACL: to compare two takes long
    for number, acl, frame in events:
        if number == last_number:
            continue
        last_number = number
        if id(acl) not in permitted:
            permitted[id(acl)] = _may_read(client, acl)
        yield frame if permitted[id(acl)] else b""


def _may_read(client: StoreClient, acl: Acl) -> bool:
    try:
        check_access(acl, Permission.READ, client.identities)
    except RefusedRequestError:
        return False
    return True


def _missed_by_reader(node: TreeNode | None, heard_zxid: int) -> EventKind | None:
    """What somebody has missed who had read the data of a node."""
    if node is None:
        return EventKind.DELETED
    return EventKind.CHANGED if node.mzxid > heard_zxid else None


def _missed_by_waiter(node: TreeNode | None, _heard_zxid: int) -> EventKind | None:
    """What somebody has missed who waits for a node to be created."""
    return None if node is None else EventKind.CREATED


def _missed_by_lister(node: TreeNode | None, heard_zxid: int) -> EventKind | None:
    """What somebody has missed who had read the names of a node's children."""
    if node is None:
        return EventKind.DELETED
    return EventKind.CHILDREN if node.pzxid > heard_zxid else None


def _removed(kind: int) -> WatchMode:
    modes = _REMOVED_MODES.get(kind)
    if modes is None:
        raise MalformedRecordError("an unknown type of a watch")
    return modes
