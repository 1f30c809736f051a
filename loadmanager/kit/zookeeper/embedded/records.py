"""Requests and answers of ZooKeeper's protocol, to and from bytes. Source: `zookeeper.jute`."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from loadmanager.kit.zookeeper.embedded.access import Acl, AclEntry, AclIdentity
from loadmanager.kit.zookeeper.embedded.codes import (
    ErrorCode,
    EventKind,
    NodeKind,
    Opcode,
)
from loadmanager.kit.zookeeper.embedded.jute import (
    JuteReader,
    MalformedRecordError,
    boolean,
    buffer,
    integer,
    long,
    text,
    vector,
)
from loadmanager.kit.zookeeper.embedded.nodes import TreeStat
from loadmanager.kit.zookeeper.embedded.sessions import PASSWORD_BYTES, TreeSession
from loadmanager.kit.zookeeper.embedded.transactions import (
    CheckVersion,
    CreateNode,
    DeleteNode,
    OperationResult,
    SetAcl,
    SetData,
    TreeOperation,
)

EVENT_XID = -1
_CONNECTED = 3
"""The state in every event."""
_HEADER = struct.Struct(">iqi")
_STAT = struct.Struct(">qqqqiiiqiiq")
_INT_BITS = 1 << 32
_KINDS_IN_MULTI = [kind for kind in NodeKind if not kind.ends_unchanged]
CREATIONS = (Opcode.CREATE, Opcode.CREATE_2, Opcode.CREATE_CONTAINER, Opcode.CREATE_TTL)


class ConnectRequest(NamedTuple):
    """The first record of a connection."""

    last_zxid: int
    timeout_ms: int
    session_id: int
    """0: a new session is wanted."""
    password: bytes
    says_read_only: bool
    """Clients since 3.4 end it with a flag, and expect one in the answer."""


def connect_request(data: bytes) -> ConnectRequest:
    """Raises `MalformedRecordError`."""
    reader = JuteReader(data)
    reader.integer()  # the version of the protocol, always 0
    last_zxid, timeout_ms = reader.long(), reader.integer()
    session_id, password = reader.long(), reader.buffer() or b""
    return ConnectRequest(last_zxid, timeout_ms, session_id, password, not reader.at_end)


def connect_answer(session: TreeSession | None, *, says_read_only: bool) -> bytes:
    """None: the session that was asked for has ended."""
    flag = boolean(False) if says_read_only else b""
    if session is None:
        return integer(0) * 2 + long(0) + buffer(bytes(PASSWORD_BYTES)) + flag
    return b"".join(
        (integer(0), integer(session.timeout_ms), long(session.id), buffer(session.password), flag)
    )


def path_in(reader: JuteReader) -> str:
    """A path. Raises `MalformedRecordError` also if it is null."""
    path = reader.text()
    if path is None:
        raise MalformedRecordError("a path is null")
    return path


def acl_in(reader: JuteReader) -> list[AclEntry]:
    """Entries of an ACL."""
    return reader.vector(
        lambda: AclEntry(reader.integer(), AclIdentity(reader.text(), reader.text()))
    )


def operation(kind: int, reader: JuteReader) -> TreeOperation:
    """The operation that a request asks for. Raises `MalformedRecordError`."""
    wanted = _operation(kind, reader)
    # As at a real server: only the request of its own makes a container.
    if (
        isinstance(wanted, CreateNode)
        and wanted.kind == NodeKind.CONTAINER
        and kind != Opcode.CREATE_CONTAINER
    ):
        return replace(wanted, kind=NodeKind.PERSISTENT)
    return wanted


def multi_operation(kind: int, reader: JuteReader) -> TreeOperation:
    """As `operation`, for one of a transaction, whose rules for kinds of nodes are others."""
    wanted = _operation(kind, reader)
    if kind == Opcode.SET_ACL:
        raise MalformedRecordError("a transaction cannot change ACLs")
    if isinstance(wanted, CreateNode) and kind != Opcode.CREATE_TTL:
        if wanted.kind not in _KINDS_IN_MULTI:
            raise MalformedRecordError(f"a transaction cannot create a node of kind {wanted.kind}")
        if wanted.kind == NodeKind.CONTAINER:
            return replace(wanted, with_stat=True)
    return wanted


def _operation(kind: int, reader: JuteReader) -> TreeOperation:
    if kind in CREATIONS:
        path, data, acl = path_in(reader), reader.buffer(), acl_in(reader)
        flags = reader.integer()
        ttl_ms = reader.long() if kind == Opcode.CREATE_TTL else -1
        return CreateNode(path, data, acl, flags, ttl_ms, kind != Opcode.CREATE)
    if kind == Opcode.DELETE:
        return DeleteNode(path_in(reader), reader.integer())
    if kind == Opcode.SET_DATA:
        return SetData(path_in(reader), reader.buffer(), reader.integer())
    if kind == Opcode.SET_ACL:
        return SetAcl(path_in(reader), acl_in(reader), reader.integer())
    if kind == Opcode.CHECK:
        return CheckVersion(path_in(reader), reader.integer())
    raise MalformedRecordError(f"a transaction cannot have an operation of type {kind}")


def multi_kinds(reader: JuteReader) -> Iterable[int]:
    """The types of the operations of a transaction; whoever iterates reads each of them."""
    while True:
        kind, done, _ = reader.integer(), reader.boolean(), reader.integer()
        if done:
            return
        yield kind


def header(xid: int, zxid: int, code: int = ErrorCode.OK) -> bytes:
    """Before every answer and event."""
    return _HEADER.pack(xid, zxid, code)


def event(kind: EventKind, path: str, zxid: int) -> bytes:
    """What a watcher is sent."""
    return header(EVENT_XID, zxid) + integer(kind) + integer(_CONNECTED) + text(path)


def stat(shown: TreeStat) -> bytes:
    """A stat; numbers that are too large are wrapped, as in Java."""
    try:
        return _STAT.pack(*shown)
    except struct.error:
        cversion = (shown.cversion + _INT_BITS // 2) % _INT_BITS - _INT_BITS // 2
        return _STAT.pack(*shown._replace(cversion=cversion))


def acl_out(acl: Acl) -> bytes:
    """An ACL. Null schemes and ids are not stored."""
    return vector(
        integer(entry.permissions)
        + text(entry.identity.scheme or "")
        + text(entry.identity.id or "")
        for entry in acl
    )


def result(done: OperationResult) -> bytes:
    """The body of the answer to a change."""
    path = b"" if done.path is None else text(done.path)
    return path + (b"" if done.stat is None else stat(done.stat))


def multi_item(kind: int, code: int, body: bytes) -> bytes:
    """A result within the answer to a transaction."""
    return integer(kind) + boolean(False) + integer(code) + body


def multi_error(code: int) -> bytes:
    """An operation of a transaction that was refused, undone or not tried."""
    return multi_item(Opcode.ERROR, code, integer(code))


MULTI_END = integer(-1) + boolean(True) + integer(-1)


def multi_results(kinds: Sequence[int], results: Sequence[OperationResult]) -> bytes:
    """The body of the answer to a transaction that was done."""
    items = (
        multi_item(Opcode.CREATE_2 if done.path and done.stat else kind, 0, result(done))
        for kind, done in zip(kinds, results, strict=True)
    )
    return b"".join((*items, MULTI_END))


def multi_refusals(count: int, failed: int, code: ErrorCode) -> bytes:
    """The body of the answer to a transaction of which the operation `failed` was refused."""
    codes = [ErrorCode.OK] * failed + [code]
    codes += [ErrorCode.RUNTIME_INCONSISTENCY] * (count - len(codes))
    return b"".join((*map(multi_error, codes), MULTI_END))
