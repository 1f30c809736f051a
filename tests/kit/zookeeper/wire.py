"""A client that speaks ZooKeeper's protocol frame by frame, and shows answers so that those of two
servers can be compared.
"""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass, field
from typing import Any

from loadmanager.kit.zookeeper.embedded.codes import Opcode
from loadmanager.kit.zookeeper.embedded.jute import (
    JuteReader,
    boolean,
    buffer,
    integer,
    long,
    text,
    vector,
)

EVENT, AUTH, SET_WATCHES, PING = -1, -4, -8, -2
STAT = (
    "czxid", "mzxid", "ctime", "mtime", "version", "cversion", "aversion", "owner", "length",
    "children", "pzxid",
)  # fmt: skip
LONGS = {"czxid", "mzxid", "ctime", "mtime", "owner", "pzxid"}
WRITES = {
    Opcode.CREATE, Opcode.CREATE_2, Opcode.CREATE_TTL, Opcode.CREATE_CONTAINER, Opcode.DELETE,
    Opcode.SET_DATA, Opcode.SET_ACL, Opcode.MULTI,
}  # fmt: skip


@dataclass
class Answer:
    """An answer: its error, its shown body, and the zxid of its header."""

    code: int
    body: Any
    zxid: int


class HungUpError(Exception):
    """The server has closed the connection."""


@dataclass
class WireClient:
    """One connection, made by `connect`."""

    port: int
    timeout_ms: int = 30_000
    session_id: int = 0
    password: bytes = bytes(16)
    last_zxid: int = 0
    granted_ms: int = 0
    events: list[tuple[int, str, int]] = field(default_factory=list)
    """Kind, path and zxid of each event."""

    def connect(self) -> bool:
        """Begin a session, or resume it; False: it has ended."""
        self.socket = socket.create_connection(("127.0.0.1", self.port), timeout=60)
        try:
            connected = self._connect()
        except BaseException:
            self.drop()
            raise
        if not connected:
            self.drop()
        return connected

    def _connect(self) -> bool:
        self.xid = 0
        body = integer(0) + long(self.last_zxid) + integer(self.timeout_ms)
        self.send(body + long(self.session_id) + buffer(self.password) + boolean(False))
        reader = JuteReader(self.receive())
        reader.integer()
        self.granted_ms, session_id = reader.integer(), reader.long()
        password = reader.buffer()
        assert password is not None
        assert reader.boolean() is False
        if not session_id:
            return False
        self.session_id, self.password = session_id, password
        return True

    def drop(self) -> None:
        """Close the socket; the session goes on."""
        self.socket.close()

    def send(self, frame: bytes) -> None:
        """Send a frame."""
        self.socket.sendall(struct.pack(">i", len(frame)) + frame)

    def receive(self) -> bytes:
        """The next frame. Raises `HungUpError`."""
        (length,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(length)

    def _exactly(self, length: int) -> bytes:
        data = b""
        while len(data) < length:
            try:
                part = self.socket.recv(length - len(data))
            except ConnectionError:
                part = b""
            if not part:
                raise HungUpError
            data += part
        return data

    def ask(self, kind: int, body: bytes, xid: int | None = None) -> Answer:
        """Send a request, and wait for its answer. Raises `HungUpError`."""
        if xid is None:
            self.xid += 1
            xid = self.xid
        self.send(integer(xid) + integer(kind) + body)
        while True:
            data = self.receive()
            reader = JuteReader(data)
            answered, zxid, code = reader.integer(), reader.long(), reader.integer()
            if answered == EVENT:
                event, state, path = reader.integer(), reader.integer(), reader.text()
                assert (state, reader.at_end) == (3, True)
                self.events.append((event, path or "", zxid))
                continue
            assert answered == xid, (answered, xid)
            if zxid > 0:
                self.last_zxid = zxid
            shown = _shown(kind, reader) if code == 0 else None
            assert reader.at_end, (kind, code, data)
            return Answer(code, shown, zxid)

    def catch_up(self) -> None:
        """Read the events that were sent before this."""
        self.ask(Opcode.PING, b"", PING)


def acl_of(entries: list[tuple[int, str, str]]) -> bytes:
    """The bytes of an ACL."""
    return vector(integer(bits) + text(scheme) + text(name) for bits, scheme, name in entries)


def multi_of(operations: list[tuple[int, bytes]]) -> bytes:
    """The bytes of a transaction."""
    items = [integer(kind) + boolean(False) + integer(-1) + body for kind, body in operations]
    return b"".join((*items, integer(-1) + boolean(True) + integer(-1)))


def _stat(reader: JuteReader) -> dict[str, int]:
    return {name: reader.long() if name in LONGS else reader.integer() for name in STAT}


def _acl(reader: JuteReader) -> list[Any]:
    return reader.vector(lambda: (reader.integer(), reader.text(), reader.text()))


def _children(reader: JuteReader) -> list[str]:
    return sorted(name or "" for name in reader.vector(reader.text))


def _multi(reader: JuteReader) -> list[Any]:
    results: list[Any] = []
    while True:
        kind, done, code = reader.integer(), reader.boolean(), reader.integer()
        if done:
            return results
        results.append((kind, code, _shown(kind, reader)))


def _shown(kind: int, reader: JuteReader) -> Any:
    match kind:
        case Opcode.CREATE | Opcode.SYNC:
            return reader.text()
        case Opcode.CREATE_2 | Opcode.CREATE_CONTAINER | Opcode.CREATE_TTL:
            return reader.text(), _stat(reader)
        case Opcode.EXISTS | Opcode.SET_DATA | Opcode.SET_ACL:
            return _stat(reader)
        case Opcode.GET_DATA:
            return reader.buffer(), _stat(reader)
        case Opcode.GET_ACL:
            return _acl(reader), _stat(reader)
        case Opcode.GET_CHILDREN | Opcode.GET_EPHEMERALS:
            return _children(reader)
        case Opcode.GET_CHILDREN_2:
            return _children(reader), _stat(reader)
        case Opcode.MULTI | Opcode.MULTI_READ:
            return _multi(reader)
        case Opcode.ADD_WATCH | Opcode.GET_ALL_CHILDREN_NUMBER | Opcode.ERROR:
            return reader.integer()
        case Opcode.WHO_AM_I:
            return sorted(reader.vector(lambda: (reader.text(), reader.text())))
    return None
