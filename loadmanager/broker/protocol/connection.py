"""One client's TCP connection: frames in, frames out, in order, with one write per read.

Frames are taken one at a time, and only while nothing holds the connection (`throttle`): to stop
reading the socket would not stop the frames that the last read brought. A handler either acts at
once or returns a coroutine, which runs as a task, so that a slow lookup does not delay the publish
behind it.
"""

from __future__ import annotations

import asyncio
import select
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, cast

from loadmanager.broker.protocol.answers import BY_CLIENT, Answers
from loadmanager.broker.protocol.hosted import (
    AttachedConsumer,
    AttachedProducer,
    subscriptions_of,
    topics_of,
)
from loadmanager.broker.protocol.serving import Serving
from loadmanager.broker.protocol.turns import Party
from loadmanager.broker.wire import pulsar_pb2 as pb
from loadmanager.broker.wire.frames import (
    COMMAND_TYPES,
    CONNECT_BYTES_MAX,
    FRAME_PADDING_BYTES,
    REQUEST_ID_NONE,
    Frame,
    FrameError,
    FrameReader,
    Peeked,
    encode,
    request_id_of,
)
from loadmanager.kit.errors import LoadManagerError
from loadmanager.kit.logger import get_logger
from loadmanager.kit.security.identity import Identity
from loadmanager.limits.tracker import HoldCause, Holder

REQUESTS_MAX = 500
"""Requests of one connection in progress at once; beyond that, it is not read."""

PRODUCERS_MAX = 50_000
CONSUMERS_MAX = 50_000
"""Producers and consumers that one connection may attach."""

CLOSED_IDS_MAX = 10_000
"""How many ids of producers that the broker closed a connection remembers."""

READ_AHEAD_BYTES = 256 * 1024
"""A connection that waits for its turn is not read while so much is unprocessed."""

LOOK_FRAMES = 4
"""After so many frames a connection looks whether its turn is over."""

SLOWED_S = 1.0
SLOWED_MAX = 30
"""The pause after a refusal that is one too many, and after how many of them it is closed."""

PEER_CHECK_NS = 1_000_000_000
"""While reading is paused, check this often whether the client disconnected."""

LONG_HOLD_NS = 1_000_000_000
"""A hold that lasts longer holds up whatever its client waits for, not only publishes."""

CONNECT = COMMAND_TYPES["connect"]

Handler = Callable[["Connection", Frame], Coroutine[Any, Any, None] | None]

log = get_logger("protocol")


class Connection(Answers, asyncio.Protocol):
    """The server's side of one connection."""

    def __init__(self, server: Serving, handlers: dict[int, Handler], listener: str = "") -> None:
        super().__init__(server)
        self.producers: dict[int, AttachedProducer] = {}
        self.consumers: dict[int, AttachedConsumer] = {}
        self._closed_ids: dict[int, None] = {}
        self.connected = False
        self.listener = listener
        """The advertised listener whose addresses the client is given; empty: the internal one."""
        self.identity: Identity | None = None
        """The client's identity; None without authentication."""
        self.roles: tuple[str, ...] = ()
        """Its role, and the one for which a proxy asks."""
        self.refreshes = False
        """Whether the client can renew its proof."""
        self.protocol_version = 0
        self.client_version = ""
        self.address = ""
        """The client's address, without port."""
        self._clock = server.clock
        self.last_heard_s = self._since_s = server.clock.monotonic_s()
        self.pinged = False
        self.requests = 0
        self._handlers = handlers
        self._reader = FrameReader(CONNECT_BYTES_MAX)
        self._read_bytes, self._read_s = 0, self.last_heard_s
        """How much the client had read when it was last seen to read, and when that was."""
        self._owed = 0
        """Receipts that wait for the storage."""
        self.topics = lambda: topics_of(self)
        """The topics of its producers and consumers."""
        self.subscriptions = partial(subscriptions_of, self)
        """Those of a topic that its consumers are attached to."""
        self.waits = self._has_waiting
        self.throttle = server.throttling.connection(self)
        self._unread_since_ns = 0
        self._reading = True
        self._processing = False
        self.party = server.turns.party(None)
        """On whose account its work goes."""
        self._waits = False
        """Whether frames wait for the party's turn, or for one of its requests to end."""
        self._granted = False
        """Whether it is the party's turn, for which the frames have waited."""
        self._unfinished = self._admitted = False
        """Whether it is known to have bytes of an unfinished frame, and to belong to its party."""
        self._slowed = 0

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's is one by behaviour, not by type
        self._transport = cast(asyncio.Transport, transport)
        name = transport.get_extra_info("peername")
        self.address = str(name[0]) if isinstance(name, tuple) else str(name)
        self.peer = f"{name[0]}:{name[1]}" if isinstance(name, tuple) else self.address
        high = self.server.settings.value.outbound_buffer_kb * 1024
        self._transport.set_write_buffer_limits(high=high, low=high // 2)
        self.party = self.server.turns.party(("address", self.address))
        self.server.attachments.opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone: incomplete frames are discarded."""
        self._transport = None
        self.party.full.pop(self, None)
        if self._unfinished:
            self.server.attachments.admission.unfinished.holds(self, 0)
        self.party.connections -= self._admitted
        self.server.attachments.admission.outbound.forget(self)
        self._reader.discard()
        self._out.clear()
        self.server.throttling.disconnect(self.throttle, self._clock.monotonic_ns())
        self.server.attachments.closed(self)

    def data_received(self, data: bytes) -> None:
        """Process bytes; a broker that cannot prove its session ignores them and hangs up."""
        self.server.attachments.bytes_in += len(data)
        self.last_heard_s = now_s = self._clock.monotonic_s()
        self.pinged = False
        if not self.server.may_serve(now_s):
            self.close("this broker cannot prove its session")
            return
        self._reader.feed(data)
        if self.throttle.paused:
            self.stop_reading()
            self._tell_buffer()
        elif self._waits:
            self.stop_reading()
        else:
            self.process()

    def pause_writing(self) -> None:
        """The client does not read: it gets no more messages, and the broker does not read it."""
        self.writable = False
        for consumer in self.consumers.values():
            consumer.core.writable = False
        self._hold(HoldCause.OUTBOUND_BUFFER)
        self.stop_reading()

    def resume_writing(self) -> None:
        """The client reads again."""
        self.writable, self._unread_bytes = True, 0
        for consumer in self.consumers.values():
            consumer.subscription.written(consumer.core)
            self.server.dispatcher.touch(consumer.hosted, consumer.subscription)
        self._release(HoldCause.OUTBOUND_BUFFER)

    # Frames

    def lost(self) -> bool:
        """True if the client is gone. While reading is paused, asks the system, and aborts the
        connection of a client that is.
        """
        if self._transport is not None and not self._reading and _hung_up(self._transport):
            self.abort(BY_CLIENT)
            return True
        return self._transport is None

    @property
    def is_held(self) -> bool:
        """True if something holds the connection."""
        return self.throttle.paused

    @property
    def unprocessed_bytes(self) -> int:
        """Bytes that were received and wait, because the connection is held."""
        return self._reader.pending_bytes

    def _has_waiting(self, holder: Holder | None = None) -> bool:
        """See `Readable.waits`. One that limits hold is read until a publish of each producer waits
        whose limits hold it, or as much as is looked at. Of a producer whose publishes may be
        behind that, they are taken to wait, too.
        """
        if not self._reading and not self.throttle.by_limits_only:
            return True
        lasts = self.throttle.paused_for_ns(self._clock.monotonic_ns()) > LONG_HOLD_NS
        sends = False
        for frame in self._reader.peek():
            if frame is Peeked.REQUEST:
                if lasts:
                    return True
            elif frame is Peeked.MORE:
                return sends
            elif frame is not Peeked.QUIET:
                sends = True
                if holder is None or lasts or self._sender(frame) is holder:
                    return True
        return False

    def _sender(self, producer_id: int) -> Holder | None:
        producer = self.producers.get(producer_id)
        return None if producer is None else producer.sender

    @property
    def _shows_all(self) -> bool:
        """Whether a publish of each producer waits whose limits hold it, or as much as is looked
        at.
        """
        holders = self.throttle.holders
        for frame in self._reader.peek():
            if frame is Peeked.MORE:
                return True
            if isinstance(frame, int) and not (holders := holders - {self._sender(frame)}):
                return True
        return False

    def discard(self) -> None:
        """See `Answers.discard`."""
        self._reader.discard()

    def _hold(self, cause: HoldCause) -> None:
        self.throttle.hold(cause, self._clock.monotonic_ns())

    def _release(self, cause: HoldCause) -> None:
        self.throttle.release(cause, self._clock.monotonic_ns())
        self.server.dispatcher.deliver()

    @property
    def _full(self) -> bool:
        """True if nothing more is to be read now. One that limits hold is read on until it shows
        whether they hold anything up.
        """
        if self.throttle.paused:
            return not self.throttle.by_limits_only or self._shows_all
        return self._waits and self.unprocessed_bytes >= READ_AHEAD_BYTES

    def stop_reading(self) -> None:
        """Read nothing more while something holds the connection, or enough waits for its turn."""
        if (
            self._full
            and self._reading
            and self._transport is not None
            and not self._transport.is_closing()
        ):
            self._reading = False
            self._unread_since_ns = self._clock.monotonic_ns()
            self._transport.pause_reading()

    def go_on(self) -> None:
        """Process what was read, then read on: the last hold has ended."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if not self.server.may_serve(self._clock.monotonic_s()):
            return  # the lease ran out while it was held; the connection is aborted
        if not self._reading and self._clock.monotonic_ns() - self._unread_since_ns > PEER_CHECK_NS:
            self.last_heard_s, self.pinged = self._clock.monotonic_s(), False
            self._unread_since_ns = self._clock.monotonic_ns()
            if _hung_up(transport):
                # The client has connected again and repeats what was not acknowledged; what it sent
                # here must not be stored a second time.
                self.abort(BY_CLIENT)
                return
        self.process()
        if (
            not self._reading
            and not self._full
            and self._transport is not None
            and not transport.is_closing()
        ):
            self._reading = True
            transport.resume_reading()

    def process(self) -> None:
        """Take and handle frames until they run out, or something holds the connection, or its turn
        is over; then deliver and write, once.
        """
        if self._processing or self._waits:
            return  # a handler ended a hold: `_take_frames` goes on by itself
        turns = self.server.turns
        if not self._granted and not turns.may_run(self.party):
            self._wait()
            return
        self._granted = False
        begun = turns.begin()
        self._processing = True
        try:
            self._take_frames(turns.until_ns(self.party))
        except FrameError as error:
            self.error(REQUEST_ID_NONE, pb.UnknownError, str(error))
            self.close(str(error))
        except Exception as error:  # noqa: BLE001 - contained: a bug costs this connection only
            self._fail(error)
        finally:
            self._processing = False
        if self.throttle.paused:
            self.stop_reading()
        self._tell_buffer()
        self.server.dispatcher.deliver()
        self.flush()
        turns.end(self.party, begun)
        waits = self.throttle.paused or self._full or self._waits
        unfinished_bytes = 0 if waits else self._reader.pending_bytes
        if unfinished_bytes or self._unfinished:
            self._unfinished = unfinished_bytes > 0
            self.server.attachments.admission.unfinished.holds(self, unfinished_bytes)

    def _tell_buffer(self) -> None:
        """Tell how much waits because a limit holds, or held, the connection."""
        throttle = self.throttle
        if throttle.limited:
            waiting_bytes = self._reader.pending_bytes if throttle.paused else 0
            buffer, now_ns = self.server.throttling.publish_buffer, self._clock.monotonic_ns()
            for blocked in buffer.waiting(throttle, waiting_bytes, now_ns):
                blocked.owner.stop_reading()

    def _wait(self) -> None:
        """The frames that were read wait for the party's turn."""
        self._waits = True
        self.server.turns.wait(self.party, self.take_turn)
        self.stop_reading()

    def take_turn(self) -> None:
        """It is the party's turn: process what was read, unless something holds the connection."""
        self._waits = False
        if not self.throttle.paused:
            self._granted = True
            self.go_on()
            self._granted = False

    def refused(self) -> None:
        """A request was refused. With too many, this connection pauses each time, and is closed
        after `SLOWED_MAX` pauses.
        """
        if self.server.turns.refused(self.party) and not self._waits:
            self._slowed += 1
            if self._slowed > SLOWED_MAX:
                log.info("a client is refused too often; its connection is closed", peer=self.peer)
                self.close("too many of its requests were refused")
                return
            self._waits = True
            self.server.turns.later(SLOWED_S, self.take_turn)
            self.stop_reading()

    def _take_frames(self, until_ns: int) -> None:
        throttle, pending_max = (
            self.throttle,
            self.server.throttling.settings.pending_publishes_per_connection,
        )
        turns, now_ns, taken = self.server.turns, self._clock.monotonic_ns, 0
        while not throttle.paused and not self._waits and self._transport is not None:
            if not turns.may_ask(self.party):
                self._waits = True
                self.party.full[self] = self.take_turn
                return
            frame = self._reader.take()
            if frame is None:
                break
            self._handle(frame)
            if 0 < pending_max <= len(self._out):
                self._hold(HoldCause.PENDING_PUBLISH_REQUESTS)
                asyncio.get_running_loop().call_soon(
                    self._release, HoldCause.PENDING_PUBLISH_REQUESTS
                )
            taken += 1
            if taken % LOOK_FRAMES or now_ns() < until_ns:
                continue
            if not self._waits and self._reader.pending_bytes:
                self._wait()

    def welcome(self) -> bool:
        """CONNECT was accepted: from now on messages may come. False if its role has too many
        connections: this one is closed.
        """
        if self._unfinished:
            self._unfinished = False
            self.server.attachments.admission.unfinished.holds(self, 0)
        self.party = self.server.turns.party(self.roles or None)
        self.party.connections += 1
        self._admitted = True
        most = self.server.settings.value.connections_per_role_max
        if self.roles and 0 < most < self.party.connections:
            text = "Reached the maximum number of connections of this role"
            self.server.clients.refused(self, pb.NotAllowedError, text)
            self.error(REQUEST_ID_NONE, pb.NotAllowedError, text)
            self.close(text)
            return False
        self.connected = True
        message_bytes_max = self.server.settings.value.message_bytes_max
        self._reader.frame_bytes_max = message_bytes_max + FRAME_PADDING_BYTES
        return True

    def _handle(self, frame: Frame) -> None:
        kind = frame.command.type
        if not self.connected and kind != CONNECT:
            raise FrameError(f"command {kind} came before CONNECT")
        handler = self._handlers.get(kind)
        if handler is None:
            self._refuse_unknown(frame)
            return
        working = handler(self, frame)
        if working is not None:
            self.requests += 1
            self.party.requests += 1
            if self.requests == REQUESTS_MAX:
                self._hold(HoldCause.REQUESTS_IN_PROGRESS)
            party = self.party
            running = self._run(working, party)
            try:
                self.server.spawn(self.server.turns.in_turns(running, party), f"command-{kind}")
            except RuntimeError:  # the broker is stopping: no task is started any more
                running.close()
                working.close()
                self.close("the broker stops")

    async def _run(self, working: Coroutine[Any, Any, None], party: Party) -> None:
        """Run a handler's coroutine; a bug in it costs this connection, not the broker."""
        try:
            await working
        except LoadManagerError as error:
            self.close(str(error))
        except Exception as error:  # noqa: BLE001 - contained: a bug costs this connection only
            self._fail(error)
        finally:
            self.requests -= 1
            self.server.turns.ended(party)
            if self.requests == REQUESTS_MAX - 1:
                self.throttle.release(HoldCause.REQUESTS_IN_PROGRESS, self._clock.monotonic_ns())
        self.server.dispatcher.deliver()
        self.flush()

    def _fail(self, error: Exception) -> None:
        self.server.failures.report(
            "a command failed; its connection is closed", error, peer=self.peer
        )
        self.close("internal error")

    def _refuse_unknown(self, frame: Frame) -> None:
        """Answer a command that is not served with ERROR; raise `FrameError` if it has no request
        id.
        """
        request_id = request_id_of(frame.command)
        if request_id is None:
            raise FrameError(f"command {frame.command.type} is not served")
        text = f"command {frame.command.type} is not served"
        self.error(request_id, pb.UnsupportedVersionError, text)

    # Answers

    def owe(self, receipts: int) -> None:
        """Add to the receipts that wait for the storage; with too many, stop reading."""
        self._owed += receipts
        owed_max = self.server.throttling.settings.pending_publishes_per_connection
        if 0 < owed_max <= self._owed:
            self._hold(HoldCause.PENDING_PUBLISH_REQUESTS)
        elif receipts < 0 and self._owed == owed_max - 1:
            self.throttle.release(HoldCause.PENDING_PUBLISH_REQUESTS, self._clock.monotonic_ns())

    def keep_alive(self, now_s: float, keep_alive_s: float) -> None:
        """Probe the client after `keep_alive_s` of silence, and close the connection after twice
        that. A client that is not read may be silent, but has to read: one that takes nothing of
        a full outbound buffer for twice that time is closed, too. One that has not said CONNECT is
        closed after `keep_alive_s`, whatever it sends (Pulsar's `PulsarHandler`).
        """
        if self.closing:
            self.abort()  # closed one interval ago, and the client does not read what was left
            return
        read_bytes = self._written_bytes - self.waiting_bytes
        if self.writable or read_bytes != self._read_bytes:
            self._read_bytes, self._read_s = read_bytes, now_s
        elif now_s - self._read_s > 2 * keep_alive_s:
            log.info("a client does not read its answers; its connection is closed", peer=self.peer)
            self.abort()
            return
        if not self.connected and now_s - self._since_s >= keep_alive_s:
            self.close("CONNECT did not come in time")
            return
        silent_s = now_s - self.last_heard_s
        waits = self.is_held or self._waits
        if waits and silent_s >= keep_alive_s / 2:
            # Its PING may be among what we do not read; unanswered, it would hang up. If it has
            # hung up, writing shows it.
            self.send(encode(pong=pb.CommandPong()))
            self.flush()
        if waits or silent_s < keep_alive_s:
            return
        if self.pinged and silent_s > 2 * keep_alive_s:
            self.close("no answer to PING")
        elif not self.pinged:
            self.pinged = True
            self.send(encode(ping=pb.CommandPing()))
            self.flush()

    # Producers that the broker closed

    def close_producer(self, producer_id: int) -> None:
        """Forget a producer. SENDs that its client sent before it knew are ignored."""
        self.producers.pop(producer_id, None)
        self._closed_ids[producer_id] = None
        if len(self._closed_ids) > CLOSED_IDS_MAX:
            del self._closed_ids[next(iter(self._closed_ids))]

    def was_closed(self, producer_id: int) -> bool:
        """True if the broker closed the last producer of that id."""
        return producer_id in self._closed_ids

    def add_producer(self, producer: AttachedProducer) -> None:
        """A producer was attached."""
        self.producers[producer.producer_id] = producer
        self._closed_ids.pop(producer.producer_id, None)


def _hung_up(transport: asyncio.Transport) -> bool:
    """True if the client closed its side, even while bytes before that are unread (Linux; elsewhere
    False until it is read).
    """
    return hasattr(select, "POLLRDHUP") and _polled(transport, select.POLLRDHUP)


def _polled(transport: asyncio.Transport, event: int) -> bool:
    """Whether there is such an event at the socket."""
    sock = transport.get_extra_info("socket")
    if sock is None or sock.fileno() < 0:
        return False
    poller = select.poll()
    poller.register(sock.fileno(), event)
    return bool(poller.poll(0))
