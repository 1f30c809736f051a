"""Requests that read the tree."""

from __future__ import annotations

from collections.abc import Callable

from loadmanager.kit.zookeeper.embedded.access import check_access, without_digests
from loadmanager.kit.zookeeper.embedded.client import StoreClient
from loadmanager.kit.zookeeper.embedded.codes import (
    ErrorCode,
    Opcode,
    Permission,
    RefusedRequestError,
    WatchMode,
)
from loadmanager.kit.zookeeper.embedded.jute import (
    JuteReader,
    MalformedRecordError,
    buffer,
    integer,
    text,
    vector,
)
from loadmanager.kit.zookeeper.embedded.nodes import TreeNode
from loadmanager.kit.zookeeper.embedded.records import (
    MULTI_END,
    acl_out,
    multi_error,
    multi_item,
    multi_kinds,
    path_in,
    stat,
)
from loadmanager.kit.zookeeper.embedded.tree import NodeTree
from loadmanager.kit.zookeeper.embedded.watches import TreeWatches

MANY_BYTES_MAX = 16 << 20
"""The longest answer to many reads at once."""

Handler = Callable[[StoreClient, JuteReader], bytes]
"""Returns the body of the answer. Raises `RefusedRequestError` or `MalformedRecordError`."""


class TreeReads:
    """Answers requests that read; `handlers` has one for each opcode."""

    def __init__(self, tree: NodeTree, watches: TreeWatches) -> None:
        self._tree = tree
        self._watches = watches
        self.handlers: dict[int, Handler] = {
            Opcode.EXISTS: self._exists,
            Opcode.GET_DATA: self._data,
            Opcode.GET_CHILDREN: self._children,
            Opcode.GET_CHILDREN_2: self._children_and_stat,
            Opcode.GET_ACL: self._acl,
            Opcode.GET_ALL_CHILDREN_NUMBER: self._number_below,
            Opcode.GET_EPHEMERALS: self._ephemerals,
            Opcode.MULTI_READ: self._many,
            Opcode.SYNC: self._sync,
            Opcode.WHO_AM_I: self._who_am_i,
        }

    def _readable(self, client: StoreClient, path: str) -> TreeNode:
        node = self._tree.node(path)
        check_access(node.acl, Permission.READ, client.identities)
        return node

    def _exists(self, client: StoreClient, reader: JuteReader) -> bytes:
        path, watch = path_in(reader), reader.boolean()
        if "\0" in path:
            raise RefusedRequestError(ErrorCode.BAD_ARGUMENTS)
        node = self._tree.find(path)
        if node is not None:
            check_access(node.acl, Permission.READ, client.identities)
        if watch:  # for the creation of a node that is not there, too
            self._watches.add(self._watches.data, path, client, WatchMode.ONCE)
        return stat(self._tree.node(path).stat())

    def _data(self, client: StoreClient, reader: JuteReader) -> bytes:
        path, watch = path_in(reader), reader.boolean()
        node = self._readable(client, path)
        if watch:
            self._watches.add(self._watches.data, path, client, WatchMode.ONCE)
        return _data_of(node)

    def _children(self, client: StoreClient, reader: JuteReader) -> bytes:
        return self._listed(client, path_in(reader), watch=reader.boolean())

    def _listed(self, client: StoreClient, path: str, *, watch: bool) -> bytes:
        node = self._readable(client, path)
        if watch:
            self._watches.add(self._watches.children, path, client, WatchMode.ONCE)
        return _names_of(node)

    def _children_and_stat(self, client: StoreClient, reader: JuteReader) -> bytes:
        path, watch = path_in(reader), reader.boolean()
        return self._listed(client, path, watch=watch) + stat(self._tree.node(path).stat())

    def _acl(self, client: StoreClient, reader: JuteReader) -> bytes:
        node = self._tree.node(path_in(reader))
        check_access(node.acl, Permission.READ | Permission.ADMIN, client.identities)
        acl = node.acl
        try:
            check_access(acl, Permission.ADMIN, client.identities)
        except RefusedRequestError:
            acl = without_digests(acl)
        return acl_out(acl) + stat(node.stat())

    def _number_below(self, client: StoreClient, reader: JuteReader) -> bytes:
        path = path_in(reader)
        self._readable(client, path)
        return integer(self._tree.count_below(path))

    def _ephemerals(self, client: StoreClient, reader: JuteReader) -> bytes:
        prefix = (reader.text() or "").strip()
        paths = self._tree.ephemerals_of(client.session_id)
        return vector(text(path) for path in paths if path.startswith(prefix))

    def _many(self, client: StoreClient, reader: JuteReader) -> bytes:
        items: list[bytes] = []
        size = 0
        for kind in multi_kinds(reader):
            shown = _SHOWN_AMONG_MANY.get(kind)
            if shown is None:
                raise MalformedRecordError(f"type {kind} among reads")
            path, _ = path_in(reader), reader.boolean()  # as at a real server, nothing is watched
            try:
                item = multi_item(kind, 0, shown(self._readable(client, path)))
            except RefusedRequestError as refusal:
                item = multi_error(refusal.code)
            items.append(item)
            size += len(item)
            if size > MANY_BYTES_MAX:
                raise RefusedRequestError(ErrorCode.SYSTEM_ERROR)
        return b"".join((*items, MULTI_END))

    def _sync(self, _client: StoreClient, reader: JuteReader) -> bytes:
        return text(path_in(reader))

    def _who_am_i(self, client: StoreClient, _reader: JuteReader) -> bytes:
        return vector(
            text(identity.scheme or "") + text((identity.id or "").partition(":")[0])
            if identity.scheme == "digest"
            else text(identity.scheme or "") + text(identity.id or "")
            for identity in client.identities
        )


def _data_of(node: TreeNode) -> bytes:
    return buffer(node.data) + stat(node.stat())


def _names_of(node: TreeNode) -> bytes:
    return vector(map(text, sorted(node.children)))


_SHOWN_AMONG_MANY: dict[int, Callable[[TreeNode], bytes]] = {
    Opcode.GET_DATA: _data_of,
    Opcode.GET_CHILDREN: _names_of,
}
