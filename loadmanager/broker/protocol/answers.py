"""What goes to one client: frames are queued, and written at once."""

from __future__ import annotations

import asyncio

from loadmanager.broker.protocol.serving import Serving
from loadmanager.broker.wire import pulsar_pb2 as pb
from loadmanager.broker.wire.frames import encode
from loadmanager.engine.history.clients import HUNG_UP
from loadmanager.kit.logger import get_logger

FLUSH_BYTES = 256 * 1024
"""Queued messages of this size are written at once: the transport then tells whether the client
keeps up.
"""

BY_CLIENT = "its client ended the connection"
UNREAD_BYTES_MAX = 64 * 1024 * 1024
"""A connection is closed when its client leaves this many bytes unread, beyond its full outbound
buffer.
"""

log = get_logger("protocol")


class Answers:
    """The outgoing half of a connection."""

    def __init__(self, server: Serving) -> None:
        self.server = server
        self.peer = ""
        self._transport: asyncio.Transport | None = None
        self._out: list[bytes] = []
        self.queued_bytes = 0
        """Bytes of messages that wait for the next `flush`."""
        self.writable = True
        """False while the outbound buffer is full because the client does not read."""
        self._unread_bytes = self._written_bytes = 0
        self.closing = False
        """Whether the broker closed it; what was written may still be on its way."""
        self.ended = BY_CLIENT

    def discard(self) -> None:
        """Forget what was received and not processed: the connection is being closed."""
        raise NotImplementedError

    @property
    def open(self) -> bool:
        """True if the client is still there."""
        return self._transport is not None

    @property
    def waiting_bytes(self) -> int:
        """Bytes that were written and that the system has not taken."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def send(self, frame: bytes) -> None:
        """Queue a frame for the next `flush`."""
        self._out.append(frame)

    def send_message(self, head: bytes, tail: bytes) -> None:
        """Queue a MESSAGE in two parts, and write when `FLUSH_BYTES` are queued; `writable` may be
        False afterwards.
        """
        self._out.append(head)
        self._out.append(tail)
        self.queued_bytes += len(head) + len(tail)
        if self.queued_bytes >= FLUSH_BYTES:
            self.flush()

    def error(self, request_id: int, code: pb.ServerError.ValueType, text: str) -> None:
        self.send(_error(request_id, code, text))

    def flush(self) -> None:
        """Write what is queued, in one piece; drop it once the connection is closing."""
        if self._out and self._transport is not None and not self._transport.is_closing():
            data = b"".join(self._out)
            self.server.attachments.bytes_out += len(data)
            self._transport.write(data)
            self._written_bytes += len(data)
            if not self.writable:
                self._unread_bytes += len(data)
            self.server.attachments.admission.outbound.written(self)
        self._out.clear()
        self.queued_bytes = 0
        if self._unread_bytes > UNREAD_BYTES_MAX:
            log.info("a client does not read its answers; its connection is closed", peer=self.peer)
            self.abort()

    def close(self, reason: str) -> None:
        """Write what is queued and hang up."""
        if self._transport is not None:
            log.debug("closing a connection", peer=self.peer, reason=reason)
            self.closing, self.ended = True, reason
            self.flush()
        if self._transport is not None:
            self._transport.close()
            self.discard()

    def abort(self, reason: str = HUNG_UP) -> None:
        """Hang up at once; nothing more is written."""
        self.ended = self.ended if self.closing else reason
        self.closing = True
        self._out.clear()
        self._unread_bytes = self.queued_bytes = 0
        self.discard()
        if self._transport is not None:
            self._transport.abort()


def _error(request_id: int, code: pb.ServerError.ValueType, text: str) -> bytes:
    return encode(error=pb.CommandError(request_id=request_id, error=code, message=text))
