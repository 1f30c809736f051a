"""A connection of a client: its frames, its session, and how much it may make us hold."""

from __future__ import annotations

import asyncio
from typing import Protocol, cast

import structlog

from loadmanager.kit.zookeeper.embedded.client import (
    BACKLOG_BYTES_MAX,
    FOOTPRINT_BYTES,
    StoreClient,
)
from loadmanager.kit.zookeeper.embedded.jute import MalformedRecordError, integer
from loadmanager.kit.zookeeper.embedded.records import ConnectRequest, connect_request
from loadmanager.kit.zookeeper.embedded.words import is_word

FRAME_BYTES_MAX = 0xFFFFF
"""The longest request, as ZooKeeper's `jute.maxbuffer`."""
TURN_S = 0.005
"""Then it is the turn of other connections."""
BACKLOG_BYTES = 256 << 10
"""While so much waits to be sent, no request is read."""
_PREFIX = 4

log = structlog.get_logger("store")


class ConnectionKeeper(Protocol):
    """What a connection needs of its server."""

    def opened(self, connection: StoreConnection) -> bool:
        """A connection was made. False: there are too many."""
        ...

    def closed(self, connection: StoreConnection) -> None:
        """It is gone."""
        ...

    def connect(self, connection: StoreConnection, wanted: ConnectRequest) -> None:
        """Its first record has come: give it a session, or hang up."""
        ...

    def answer(self, connection: StoreConnection, frame: bytes) -> None:
        """A request has come. Raises `MalformedRecordError` if its header cannot be read."""
        ...

    def words(self, word: bytes) -> bytes:
        """The answer to a four-letter word."""
        ...

    def reads_again(self) -> None:
        """A connection has read what it was sent."""
        ...

    def relieve(self) -> None:
        """A connection holds much: if all hold too much, hang up on those that hold most, soon."""
        ...

    def failed(self, what: str, error: Exception) -> None:
        """A bug was met."""
        ...


class StoreConnection(StoreClient, asyncio.Protocol):
    """One connection."""

    def __init__(self, keeper: ConnectionKeeper, now_s: float) -> None:
        super().__init__("")
        self._keeper = keeper
        self.since_s = now_s
        """When it was made, and later when it was told to end, on the monotonic clock."""
        self.dismissed = False
        """True once it is to be hung up on after what waits for it."""
        self.address = ""
        self.requests = self.answers = 0
        self.ending = False
        self._transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()
        self._input = bytearray()
        self._at = 0
        self._output: list[bytes] = []
        self._output_bytes = 0
        self._working = self._flushing = False
        """True while a turn is scheduled."""
        self._reads = True
        """False while the socket is not read, because there is enough to do."""

    # asyncio's protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected."""
        # uvloop's is one by behaviour, not by type
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=BACKLOG_BYTES)
        peer = transport.get_extra_info("peername") or ("",)
        self.identities = [self.identities[0]._replace(id=str(peer[0]))]
        self.address = ":".join(str(part) for part in peer[:2])
        if not self._keeper.opened(self):
            self._transport.abort()

    def connection_lost(self, _error: Exception | None) -> None:
        """The connection is gone."""
        self._transport = None
        self.ending = True
        self._input.clear()
        self._output.clear()
        self._keeper.closed(self)

    def data_received(self, data: bytes) -> None:
        """Bytes have come."""
        if self.ending:
            return
        self._input += data
        if self.footprint > FOOTPRINT_BYTES:
            self._keeper.relieve()
        self._work()

    def pause_writing(self) -> None:
        """The client does not read what it was sent."""
        self.paused = True

    def resume_writing(self) -> None:
        """The client has read what it was sent."""
        self.paused = False
        self._keeper.reads_again()
        self._schedule_work()

    # Answers

    @property
    def footprint(self) -> int:
        """How many bytes it makes us hold."""
        return len(self._input) + self._backlog()

    def _backlog(self) -> int:
        buffered = self._transport.get_write_buffer_size() if self._transport else 0
        return self.waiting_bytes + self._output_bytes + buffered

    def take(self, answer: bytes | None) -> None:
        """Send an answer or an event as a frame. None: hang up after what was sent before."""
        if self._transport is None or self._transport.is_closing():
            return
        if answer is None:
            self.end()
        else:
            self.answers += 1
            self._put(integer(len(answer)) + answer)

    def dismiss(self) -> None:
        """Hang up after what waits for it."""
        self.dismissed = True
        self.since_s = self._loop.time()

    def end(self) -> None:
        """Hang up after what was sent before."""
        self.ending = True
        self.since_s = self._loop.time()
        self._schedule_flush()

    def abort(self) -> None:
        """Hang up at once."""
        self.ending = True
        if self._transport is not None:
            self._transport.abort()

    def overflow(self) -> None:
        """Hang up at once: more waits than may."""
        if self._transport is not None and not self._transport.is_closing():
            log.warning("a client does not read what it is sent; hung up", client=self.address)
            self.abort()
            self._keeper.closed(self)  # it watches nothing any more, from now on

    def _put(self, data: bytes) -> None:
        self._output.append(data)
        self._output_bytes += len(data)
        backlog = self._backlog()
        if backlog > FOOTPRINT_BYTES:
            if backlog > BACKLOG_BYTES_MAX + len(data):
                self.overflow()
            self._keeper.relieve()
        self._schedule_flush()

    def _schedule_flush(self) -> None:
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        data = b"".join(self._output)
        self._output.clear()
        self._output_bytes = 0
        if self._transport is None:
            return
        if data:
            self._transport.write(data)
        if self.ending:
            self._transport.close()
        else:
            self._schedule_work()

    # Requests

    def _schedule_work(self) -> None:
        if not (self._reads or self._working or self.ending):
            self._working = True
            self._loop.call_soon(self._work_later)

    def _work_later(self) -> None:
        self._working = False
        self._work()

    def _work(self) -> None:
        """Do what the frames that have come ask for, and read on if that is all."""
        try:
            read_on = self._work_through()
        except MalformedRecordError as error:
            self._refuse(str(error))
        except Exception as error:  # noqa: BLE001 - a bug costs the connection that finds it
            self._keeper.failed("a request failed; its client was hung up on", error)
            self.abort()
        else:
            del self._input[: self._at]
            self._at = 0
            self._read_on(read_on)

    def _read_on(self, reads: bool) -> None:
        self._reads = reads
        if self._transport is None or self.ending:
            return
        if reads:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    def _work_through(self) -> bool:
        """False: there is more to do later."""
        until_s = self._loop.time() + TURN_S
        while self._loop.time() < until_s:
            if self.ending or self._backlog() > BACKLOG_BYTES:
                return False  # `_flush` or `resume_writing` go on
            frame = self._next_frame()
            if frame is None:
                return True
            if self.session_id:
                self.requests += 1
                self._keeper.answer(self, frame)
            else:
                self._keeper.connect(self, connect_request(frame))
        self._reads = False
        self._schedule_work()
        return False

    def _next_frame(self) -> bytes | None:
        """The next complete frame. Raises `MalformedRecordError` for one that cannot be."""
        begin = self._at + _PREFIX
        if len(self._input) < begin:
            return None
        prefix = bytes(self._input[self._at : begin])
        if not self.session_id and is_word(prefix):
            self._output.append(self._keeper.words(prefix))
            self.end()
            return None
        length = int.from_bytes(prefix, "big", signed=True)
        if not 0 < length <= FRAME_BYTES_MAX:
            raise MalformedRecordError(f"a request of {length} bytes")
        if len(self._input) < begin + length:
            return None
        self._at = begin + length
        return bytes(self._input[begin : self._at])

    def _refuse(self, why: str) -> None:
        log.warning("hung up on a client", client=self.address, why=why)
        self.abort()
