"""One client's TCP connection: frames in, frames out, in order, with one write per read.

Frames are taken one at a time and only while nothing holds the connection back (`throttle`): turning off the socket would not stop what the last read
already brought. Handlers either act at once or return a coroutine, which runs as a task, so that a slow lookup never delays a publish behind it.
"""

from __future__ import annotations

import asyncio
import select
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, cast

import structlog

from loadmanager.core.errors import LoadManagerError
from loadmanager.core.throttling.tracker import Cause
from loadmanager.core.wire import pulsar_pb2 as pb
from loadmanager.core.wire.frames import FRAME_PADDING_BYTES, REQUEST_ID_NONE, Frame, FrameError, FrameReader, encode, request_id_of

if TYPE_CHECKING:
    from loadmanager.adapters.protocol.hosted import AttachedConsumer, AttachedProducer
    from loadmanager.adapters.protocol.server import BrokerServer

REQUESTS_MAX = 5_000
"""Requests of one connection in progress at once; more are not read until some are answered."""

PEER_CHECK_NS = 1_000_000_000
"""While nothing is read, it is looked this often whether the client hung up meanwhile."""

Handler = Callable[["Connection", Frame], Coroutine[Any, Any, None] | None]

log = structlog.get_logger("protocol")


class Connection(asyncio.Protocol):
    """The server's side of one connection."""

    def __init__(self, server: BrokerServer, handlers: dict[int, Handler]) -> None:
        self.server = server
        self.producers: dict[int, AttachedProducer] = {}
        self.consumers: dict[int, AttachedConsumer] = {}
        self.closed_ids: set[int] = set()
        """Producers that we closed: their clients may still have SENDs on the way, which are passed over."""
        self.connected = False
        self.protocol_version = 0
        self.peer = ""
        self._clock = server.clock
        self.last_heard_s = server.clock.monotonic_s()
        self.pinged = False
        self.requests = 0
        self._handlers = handlers
        self._reader = FrameReader(server.settings.value.message_bytes_max + FRAME_PADDING_BYTES)
        self._out: list[bytes] = []
        self.throttle = server.throttling.connection(self._pause, self._go_on)
        self._unread_since_ns = 0
        self._reading = True
        self._transport: asyncio.Transport | None = None
        self._processing = False

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client connected."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one by behaviour, not by type
        name = transport.get_extra_info("peername")
        self.peer = f"{name[0]}:{name[1]}" if isinstance(name, tuple) else str(name)
        high = self.server.settings.value.outbound_buffer_kb * 1024
        self._transport.set_write_buffer_limits(high=high, low=high // 2)
        self.server.opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone; what it had not sent to the end is discarded."""
        self._transport = None
        self._reader.discard()
        self._out.clear()
        self.server.throttling.disconnect(self.throttle)
        self.server.closed(self)

    def data_received(self, data: bytes) -> None:
        """Bytes came in. A broker that cannot prove its session does not even look at them."""
        self.server.bytes_in += len(data)
        self.last_heard_s = now_s = self._clock.monotonic_s()
        self.pinged = False
        if not self.server.may_serve(now_s):
            self.close("this broker cannot prove its session")
            return
        self._reader.feed(data)
        self.process()

    def pause_writing(self) -> None:
        """The client does not read: it gets no more messages, and is not read either."""
        for consumer in self.consumers.values():
            consumer.core.writable = False
        self.throttle.hold(Cause.OUTBOUND_BUFFER)

    def resume_writing(self) -> None:
        """The client reads again."""
        for consumer in self.consumers.values():
            consumer.core.writable = True
            self.server.dispatcher.touch(consumer.hosted)
        self.throttle.release(Cause.OUTBOUND_BUFFER)
        self.server.dispatcher.deliver()

    # Frames

    @property
    def open(self) -> bool:
        """Whether the client is still there."""
        return self._transport is not None

    def lost(self) -> bool:
        """Whether the client is gone, even if nothing was read meanwhile that would show it: then hang up, too."""
        if self._transport is not None and not self._reading and _hung_up(self._transport):
            self.abort()
            return True
        return self._transport is None

    @property
    def held(self) -> bool:
        """Whether something holds the connection back."""
        return self.throttle.paused

    @property
    def unprocessed_bytes(self) -> int:
        """Bytes that were received and wait, because the connection is held back."""
        return self._reader.pending_bytes

    def _pause(self) -> None:
        """Something holds the connection back: `process` stops after the present frame, and nothing more is read."""
        if self._reading and self._transport is not None and not self._transport.is_closing():
            self._reading = False
            self._unread_since_ns = self._clock.monotonic_ns()
            self._transport.pause_reading()

    def _go_on(self) -> None:
        """Nothing holds it back any more: what was read already is processed before anything more is read."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if not self._reading and self._clock.monotonic_ns() - self._unread_since_ns > PEER_CHECK_NS:
            self.last_heard_s, self.pinged = self._clock.monotonic_s(), False
            self._unread_since_ns = self._clock.monotonic_ns()
            if _hung_up(transport):
                # It has connected again and sends what was not acknowledged once more; storing it here would store it twice.
                self.abort()
                return
        self.process()
        if not self._reading and not self.throttle.paused and self._transport is not None and not transport.is_closing():
            self._reading = True
            transport.resume_reading()

    def process(self) -> None:
        """Take and handle frames until they run out or something holds the connection back; then deliver and write, once."""
        if self._processing:
            return  # a handler released a hold: the loop below goes on by itself
        self._processing = True
        throttle, pending_max = self.throttle, self.server.throttling.settings.pending_publishes_per_connection
        try:
            while not throttle.paused and self._transport is not None:
                frame = self._reader.take()
                if frame is None:
                    break
                self._handle(frame)
                if 0 < pending_max <= len(self._out):
                    throttle.hold(Cause.PENDING_PUBLISH_REQUESTS)
                    asyncio.get_running_loop().call_soon(throttle.release, Cause.PENDING_PUBLISH_REQUESTS)
        except FrameError as error:
            self.send(self._error(REQUEST_ID_NONE, pb.UnknownError, str(error)))
            self.close(str(error))
        finally:
            self._processing = False
        if throttle.limited:
            self.server.throttling.publish_buffer.waiting(throttle, self._reader.pending_bytes if throttle.paused else 0)
        self.server.dispatcher.deliver()
        self.flush()

    def _handle(self, frame: Frame) -> None:
        kind = frame.command.type
        if not self.connected and kind != 2:
            raise FrameError(f"command {kind} came before CONNECT")
        handler = self._handlers.get(kind)
        if handler is None:
            self._refuse_unknown(frame)
            return
        working = handler(self, frame)
        if working is not None:
            self.requests += 1
            if self.requests == REQUESTS_MAX:
                self.throttle.hold(Cause.REQUESTS_IN_PROGRESS)
            self.server.spawn(self._run(working), f"command-{kind}")

    async def _run(self, working: Coroutine[Any, Any, None]) -> None:
        """Run what a handler left to do; a bug in it costs this connection, not the broker."""
        try:
            await working
        except LoadManagerError as error:
            self.close(str(error))
        except Exception:
            log.exception("a command failed; its connection is closed", peer=self.peer)
            self.close("internal error")
        finally:
            self.requests -= 1
            if self.requests == REQUESTS_MAX - 1:
                self.throttle.release(Cause.REQUESTS_IN_PROGRESS)
        self.server.dispatcher.deliver()
        self.flush()

    def _refuse_unknown(self, frame: Frame) -> None:
        """A command that is not served: an ERROR by its request id where it has one, else the connection is closed."""
        request_id = request_id_of(frame.command)
        if request_id is None:
            raise FrameError(f"command {frame.command.type} is not served")
        self.send(self._error(request_id, pb.UnsupportedVersionError, f"command {frame.command.type} is not served"))

    @staticmethod
    def _error(request_id: int, code: pb.ServerError.ValueType, text: str) -> bytes:
        return encode(14, error=pb.CommandError(request_id=request_id, error=code, message=text))

    # Answers

    def send(self, frame: bytes) -> None:
        """Queue a frame; it goes out with the next `flush`."""
        self._out.append(frame)

    def send_parts(self, head: bytes, tail: bytes) -> None:
        """Queue a frame in two parts."""
        self._out.append(head)
        self._out.append(tail)

    def error(self, request_id: int, code: pb.ServerError.ValueType, text: str) -> None:
        """Answer a request with an ERROR."""
        self.send(self._error(request_id, code, text))

    def flush(self) -> None:
        """Write what is queued, in one piece."""
        if self._out and self._transport is not None:
            data = b"".join(self._out)
            self.server.bytes_out += len(data)
            self._transport.write(data)
        self._out.clear()

    def close(self, reason: str) -> None:
        """Write what is queued and hang up."""
        if self._transport is not None:
            log.debug("closing a connection", peer=self.peer, reason=reason)
            self.flush()
            self._transport.close()
            self._reader.discard()

    def abort(self) -> None:
        """Hang up at once; nothing more is written."""
        self._out.clear()
        self._reader.discard()
        if self._transport is not None:
            self._transport.abort()


def _hung_up(transport: asyncio.Transport) -> bool:
    """Whether the client closed its side, though unread bytes may hide that (Linux; elsewhere it is noticed on reading)."""
    sock = transport.get_extra_info("socket")
    if sock is None or not hasattr(select, "POLLRDHUP"):
        return False
    poller = select.poll()
    poller.register(sock.fileno(), select.POLLRDHUP)
    return bool(poller.poll(0))
