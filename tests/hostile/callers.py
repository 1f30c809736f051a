"""Clients of the binary protocol without a socket: what they say arrives at once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from broker.protocol.driven_broker import PONG, Wire

from loadmanager.broker.protocol.connection import Connection
from loadmanager.broker.protocol.server import BrokerServer
from loadmanager.broker.wire import pulsar_pb2 as pb
from loadmanager.broker.wire.frames import Frame, encode

PING = encode(ping=pb.CommandPing())
ANSWER_TIMEOUT_S = 60.0


class Caller:
    """One connection."""

    def __init__(self, server: BrokerServer, wire: Wire | None = None) -> None:
        self.wire = Wire() if wire is None else wire
        self.connection = Connection(server.serving, server.handlers)
        self.connection.connection_made(self.wire)

    @property
    def ended(self) -> bool:
        """True if the broker has hung up."""
        return self.wire.closed

    def say(self, *frames: bytes) -> None:
        """Bytes that arrive in one read, unless the broker has hung up."""
        if not self.wire.closed:
            self.connection.data_received(b"".join(frames))

    async def ask(self, *frames: bytes) -> Sequence[Frame]:
        """What the broker answers; all of it, and without the PONG of a PING that follows."""
        before, pongs = len(self.wire.frames), self.wire.count(PONG)
        self.say(*frames, PING)
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            while not self.ended and (self.connection.requests or self.wire.count(PONG) == pongs):
                await asyncio.sleep(0)
        answers = self.wire.frames[before:]
        last_pong = [index for index, one in enumerate(answers) if one.command.type == PONG][-1:]
        return [one for index, one in enumerate(answers) if index not in last_pong]

    async def connect(self, credentials: str = "", original: str = "") -> Sequence[Frame]:
        """Say CONNECT, with a token if there is one; the answers."""
        return await self.ask(connect(credentials, original))

    def hang_up(self) -> None:
        """The client is gone."""
        self.wire.closed = True
        self.connection.connection_lost(None)


def connect(credentials: str = "", original: str = "") -> bytes:
    """CONNECT, with a token if there is one, and for whom a proxy asks."""
    asked = pb.CommandConnect(client_version="hostile", protocol_version=20)
    if credentials:
        asked.auth_method_name, asked.auth_data = "token", credentials.encode()
    if original:
        asked.original_principal = original
    return encode(connect=asked)


def left_behind(server: BrokerServer) -> dict[str, int]:
    """What clients still have at a broker: nothing, when all of them are gone."""
    topics = list(server.serving.open_topics.values())
    counts = {
        "connections": len(server.serving.attachments.connections),
        "producers": sum(len(topic.producers) for topic in topics),
        "consumers": sum(len(topic.attached) for topic in topics),
        "requests": sum(party.requests for party in server.serving.turns._parties.values()),
        "admitted": sum(party.connections for party in server.serving.turns._parties.values()),
    }
    return {what: count for what, count in counts.items() if count}
