"""The producer of the daemon's canary; implements `steer.ports.producing.Producing`.

It speaks with the frames of `broker.wire`, which the daemon does not know, and does what stock
clients do when a broker closes their producer: it looks the topic up after 0.1 s, then at growing
intervals.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import AsyncGenerator
from itertools import count

from loadmanager.broker.wire import pulsar_pb2 as pb
from loadmanager.broker.wire.frames import FrameError, FrameReader, encode, encode_send
from loadmanager.kit.errors import OperationalError
from loadmanager.kit.tasks import sleep
from loadmanager.kit.text import printable
from loadmanager.steer.ports.producing import Way

FRAME_BYTES_MAX = 1 << 20
ANSWER_S = 10.0
"""A broker that has not answered for so long does not answer."""
ATTACHED_S = 60.0
"""No owner after so long: the producer is given up."""
AGAIN_S, AGAIN_MAX_S = 0.1, 5.0
REDIRECTS_MAX = 10
TEXT_MAX = 200
PROTOCOL_VERSION = 20
PRODUCER = 1
"""Its id, at every broker."""
CONNECT = 1
"""A lookup's answer: connect to this broker."""


class _Connection:
    """One connection, used by one caller at a time."""

    def __init__(
        self, url: str, way: Way, streams: tuple[asyncio.StreamReader, asyncio.StreamWriter]
    ) -> None:
        self.url = url
        self.ended = False
        self._way = way
        self._reader, self._writer = streams
        self._frames = FrameReader(FRAME_BYTES_MAX)
        self._numbers = count(1)

    @classmethod
    async def open(cls, url: str, way: Way) -> _Connection:
        """Connect, and say who this is."""
        connection = cls(url, way, await way.connect(url))
        try:
            await connection._greet()
        except BaseException:
            connection.close()
            raise
        return connection

    async def _greet(self) -> None:
        method, data = self._way.credentials()
        said = pb.CommandConnect(
            client_version="loadmanager canary", protocol_version=PROTOCOL_VERSION
        )
        said.feature_flags.supports_auth_refresh = True
        if method:
            said.auth_method_name, said.auth_data = method, data
        self._send(encode(connect=said))
        await self._answer("connected")

    def close(self) -> None:
        self.ended = True
        self._writer.close()

    async def look_up(self, topic: str, *, authoritative: bool) -> pb.CommandLookupTopicResponse:
        """Ask for the owner of a topic. Raises `OperationalError` when there is none now."""
        asked = pb.CommandLookupTopic(
            topic=topic, request_id=next(self._numbers), authoritative=authoritative
        )
        self._send(encode(lookup=asked))
        answer = (await self._answer("lookup_response")).lookup_response
        if answer.HasField("error"):
            raise OperationalError(
                f"no lookup at {self.url}: {printable(answer.message[:TEXT_MAX])}"
            )
        return answer

    async def produce(self, topic: str) -> None:
        """Attach the producer, and send a message; returns at its receipt."""
        asked = pb.CommandProducer(
            topic=topic,
            producer_id=PRODUCER,
            request_id=next(self._numbers),
            user_provided_producer_name=False,
        )
        self._send(encode(producer=asked))
        name = (await self._answer("producer_success")).producer_success.producer_name
        metadata = pb.MessageMetadata(
            producer_name=name, sequence_id=0, publish_time=time.time_ns() // 1_000_000
        )
        self._send(encode_send(PRODUCER, metadata, b"canary"))
        await self._answer("send_receipt")

    async def closed(self) -> str:
        """Wait until the broker closes the producer, or the connection ends; returns the service
        URL of the next owner, empty if that is not known.
        """
        while True:
            try:
                command = await self._take()
            except OperationalError:
                return ""
            if command.HasField("close_producer"):
                return self._next_owner(command.close_producer)

    def _next_owner(self, closed: pb.CommandCloseProducer) -> str:
        plain, tls = closed.assignedBrokerServiceUrl, closed.assignedBrokerServiceUrlTls
        with contextlib.suppress(OperationalError):
            return self._way.choose(plain, tls) if plain or tls else ""
        return ""

    async def _answer(self, name: str) -> pb.BaseCommand:
        """The next command of this name. Raises `OperationalError` for an error, or in time."""
        try:
            async with asyncio.timeout(ANSWER_S):
                while True:
                    command = await self._take()
                    if command.HasField(name):  # type: ignore[arg-type]
                        return command
                    for kind in ("error", "send_error"):
                        if command.HasField(kind):
                            text = printable(getattr(command, kind).message[:TEXT_MAX])
                            raise OperationalError(f"{self.url} answered: {text}")
                    if command.HasField("close_producer"):
                        raise OperationalError(f"{self.url} closed the producer")
        except TimeoutError:
            self.close()
            text = f"{self.url} did not answer within {ANSWER_S:g} s"
            raise OperationalError(text) from None

    async def _take(self) -> pb.BaseCommand:
        """The next command that is not about the connection. Raises `OperationalError` at its
        end.
        """
        while True:
            try:
                while (frame := self._frames.take()) is None:
                    data = await self._reader.read(65536)
                    if not data:
                        raise ConnectionResetError("the connection ended")
                    self._frames.feed(data)
            except (OSError, FrameError) as error:
                self.close()
                raise OperationalError(f"{self.url}: {error}") from None
            if frame.command.HasField("ping"):
                self._send(encode(pong=pb.CommandPong()))
            elif frame.command.HasField("auth_challenge"):
                method, data = self._way.credentials()
                proof = pb.AuthData(auth_method_name=method, auth_data=data)
                self._send(encode(auth_response=pb.CommandAuthResponse(response=proof)))
            else:
                return frame.command

    def _send(self, frame: bytes) -> None:
        self._writer.write(frame)


async def producing(
    topic: str, way: Way, attached_s: float = ATTACHED_S
) -> AsyncGenerator[float | None]:
    """See the port; `attached_s`: the producer is given up after so long without an owner."""
    connection: _Connection | None = None
    closed_s: float | None = None
    owner, problems = "", deque[OperationalError](maxlen=1)
    try:
        while True:
            try:
                async with asyncio.timeout(attached_s):
                    connection = await _attached(topic, way, connection, owner, problems)
            except TimeoutError:
                why = problems[-1] if problems else "no broker answers"
                raise OperationalError(f"no receipt within {attached_s:g} s: {why}") from None
            yield 0.0 if closed_s is None else time.monotonic() - closed_s
            problems.clear()
            owner = await connection.closed()
            closed_s = time.monotonic()
            yield None
    finally:
        if connection is not None:
            connection.close()


async def _attached(
    topic: str,
    way: Way,
    last: _Connection | None,
    owner: str,
    problems: deque[OperationalError],
) -> _Connection:
    """A connection to the owner, whose first message has its receipt. `last`: the one where the
    producer was; `owner`: the service URL of the next owner, if the last one told it; `problems`
    takes what went wrong.
    """
    wait_s = AGAIN_S
    if last is not None and not owner:
        await sleep(wait_s)
    while True:
        try:
            url = owner or await _owner(topic, way, last)
            return await _moved(topic, way, last, url)
        except OperationalError as error:
            problems.append(error)
            owner = ""
        await sleep(wait_s)
        wait_s = min(2 * wait_s, AGAIN_MAX_S)


async def _owner(topic: str, way: Way, last: _Connection | None) -> str:
    """The service URL of the topic's owner: over the connection that is there, as clients ask."""
    if last is None or last.ended:
        return await way.find(topic)
    connection, authoritative = last, False
    try:
        for _ in range(REDIRECTS_MAX):
            answer = await connection.look_up(topic, authoritative=authoritative)
            url = way.choose(answer.brokerServiceUrl, answer.brokerServiceUrlTls)
            if answer.response == CONNECT:
                return url
            authoritative = answer.authoritative
            if connection is not last:
                connection.close()
            connection = last if url == last.url else await _Connection.open(url, way)
    finally:
        if connection is not last:
            connection.close()
    raise OperationalError("the redirects of its lookup do not end")


async def _moved(topic: str, way: Way, last: _Connection | None, url: str) -> _Connection:
    """The producer at a broker; the last connection is closed once it is not needed."""
    if last is not None and last.url == url and not last.ended:
        await last.produce(topic)
        return last
    connection = await _Connection.open(url, way)
    try:
        await connection.produce(topic)
    except BaseException:
        connection.close()
        raise
    if last is not None:
        last.close()
    return connection
