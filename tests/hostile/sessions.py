"""Random lives of clients at a broker in this process: they say CONNECT, attach producers and
consumers, use them, and change some of the frames that they send. Meanwhile an operator changes
their permissions, and moves their topics.

Bytes arrive in pieces, clients stop reading and go away at any moment. A seed fixes all of it.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from broker.admin.serving import ORDERS, Served
from clusters.running import until
from hostile.callers import Caller, connect, left_behind
from hostile.frames import FrameMaker
from hostile.roles import ROLES, secured
from structlog.testing import capture_logs
from system.raw import a_send

from loadmanager.broker.protocol.server import BrokerServer
from loadmanager.broker.wire import pulsar_pb2 as pb
from loadmanager.broker.wire.frames import encode
from loadmanager.kit.names import TopicName

TOPICS = [TopicName("persistent", ORDERS, f"t{index}") for index in range(6)]
NAMES = [str(topic) for topic in TOPICS]
SUBSCRIPTIONS = "abc"
AT_ONCE = 8
"""Sessions that live at the same time."""
STEPS_MAX = 200
QUIET_S = 60.0
WHO = ["superuser", "administrator of this tenant", "produces", "consumes", "without permissions"]
GRANTS = [[], ["produce"], ["consume"], ["produce", "consume"]]
CONNECTED, SEND, RECEIPT, MESSAGE, SUCCESS, ERROR, ATTACHED = 3, 6, 7, 9, 13, 14, 17
UNLOAD_SHARE = RIGHTS_SHARE = 0.003


@dataclass
class Lived:
    """How it went."""

    sessions: int = 0
    frames: int = 0
    answers: Counter[int] = field(default_factory=Counter)
    """Type of a command → how often it came."""
    problems: list[str] = field(default_factory=list)


class Session:
    """One client."""

    def __init__(self, server: BrokerServer, rng: random.Random, maker: FrameMaker) -> None:
        self.caller = Caller(server)
        self._rng = rng
        self._maker = maker
        self._unsent = b""
        self._left = rng.randrange(STEPS_MAX)
        self._sequence_id = 0
        self._paused = False
        role = ROLES[rng.choice(WHO)]
        if rng.random() < 0.98:
            self._unsent = connect(role.credentials, role.original)
            self._unsent += b"".join(rng.choices([self._producer(), self._subscribe()], k=3))

    def step(self) -> bool:
        """Say something; False when this is over."""
        rng = self._rng
        self._left -= 1
        if self._left < 0 or self.caller.ended:
            return False
        if rng.random() < 0.03:
            self._stop_or_go()
        self._unsent += self._said()
        self._deliver()
        return True

    def _deliver(self) -> None:
        """Some of what was said arrives, in pieces, while the broker reads."""
        rng, wire = self._rng, self.caller.wire
        for _ in range(rng.choice([1, 1, 2, 3])):
            if self._unsent and wire.reading and not wire.closed:
                whole = len(self._unsent)
                size = whole if rng.random() < 0.7 else rng.randrange(1, whole + 1)
                piece, self._unsent = self._unsent[:size], self._unsent[size:]
                self.caller.say(piece)

    def _stop_or_go(self) -> None:
        """The client stops reading, or goes on."""
        if self._paused:
            self.caller.connection.resume_writing()
        else:
            self.caller.connection.pause_writing()
        self._paused = not self._paused

    # What it says

    def _said(self) -> bytes:
        rng = self._rng
        kind = rng.random()
        if kind < 0.003:
            return self._maker.broken()
        if kind < 0.04:
            return self._maker.frame()
        frame = self._valid()
        is_send = frame[9] == SEND  # most changes of it end the connection
        if kind < (0.07 if is_send else 0.3):
            return self._maker.changed(frame)
        if 0.3 < kind < 0.305:
            cut = rng.randrange(len(frame))
            return frame[:cut] + rng.randbytes(1) + frame[cut + 1 :]
        return frame * rng.choice([1] * 20 + [2, 3])

    def _valid(self) -> bytes:
        makers: list[tuple[int, Callable[[], bytes]]] = [
            (3, self._producer),
            (3, self._subscribe),
            (8, self._send),
            (4, self._flow),
            (5, self._ack),
            (5, self._about_a_consumer),
            (4, self._question),
        ]
        (make,) = self._rng.choices([made for _, made in makers], [weight for weight, _ in makers])
        return make()

    def _one(self, attached: dict[int, Any]) -> int:
        """One that is attached, if there is any."""
        known = attached and self._rng.random() < 0.99
        return self._rng.choice(list(attached)) if known else self._rng.randrange(4)

    def _producer(self) -> bytes:
        rng = self._rng
        asked = pb.CommandProducer(
            topic=rng.choice(NAMES),
            producer_id=rng.randrange(4),
            request_id=rng.randrange(100),
            producer_access_mode=rng.choice([0, 0, 0, 1, 2, 3]),
        )
        if rng.random() < 0.3:
            asked.producer_name, asked.epoch = rng.choice("xyz"), rng.randrange(3)
        return encode(producer=asked)

    def _subscribe(self) -> bytes:
        rng = self._rng
        asked = pb.CommandSubscribe(
            topic=rng.choice(NAMES),
            subscription=rng.choice(SUBSCRIPTIONS),
            subType=rng.randrange(4),
            consumer_id=rng.randrange(4),
            request_id=rng.randrange(100),
            durable=rng.random() < 0.7,
            initialPosition=rng.randrange(2),
        )
        return encode(subscribe=asked)

    def _send(self) -> bytes:
        attached = self.caller.connection.producers
        if not attached and self._rng.random() < 0.98:
            return self._producer()  # a SEND of none ends the connection
        producer = self._one(attached)
        self._sequence_id += 1
        payload = self._rng.randbytes(self._rng.choice([1, 20, 2000]))
        return a_send(self._sequence_id, payload, producer_id=producer)

    def _flow(self) -> bytes:
        consumer = self._one(self.caller.connection.consumers)
        permits = self._rng.choice([1, 10, 1000])
        return encode(flow=pb.CommandFlow(consumer_id=consumer, messagePermits=permits))

    def _ack(self) -> bytes:
        """Of a message that came; mostly by its own consumer."""
        came = [
            one.command.message for one in self.caller.wire.frames if one.command.type == MESSAGE
        ]
        if not came:
            return self._flow()
        message, kind = self._rng.choice(came), self._rng.randrange(2)
        return encode(
            ack=pb.CommandAck(
                consumer_id=message.consumer_id, ack_type=kind, message_id=[message.message_id]
            )
        )

    def _about_a_consumer(self) -> bytes:
        rng, consumer = self._rng, self._one(self.caller.connection.consumers)
        about = {"consumer_id": consumer, "request_id": rng.randrange(100)}
        position = pb.MessageIdData(ledgerId=rng.randrange(9), entryId=rng.randrange(9))
        return rng.choice(
            [
                lambda: encode(redeliver=pb.CommandRedeliverUnacknowledgedMessages(
                    consumer_id=consumer)),
                lambda: encode(seek=pb.CommandSeek(message_id=position, **about)),
                lambda: encode(seek=pb.CommandSeek(message_publish_time=1, **about)),
                lambda: encode(get_last_message_id=pb.CommandGetLastMessageId(**about)),
                lambda: encode(consumer_stats=pb.CommandConsumerStats(**about)),
                lambda: encode(unsubscribe=pb.CommandUnsubscribe(force=True, **about)),
                lambda: encode(close_consumer=pb.CommandCloseConsumer(**about)),
                lambda: encode(close_producer=pb.CommandCloseProducer(
                    producer_id=self._one(self.caller.connection.producers), request_id=1)),
            ]
        )()  # fmt: skip

    def _question(self) -> bytes:
        rng = self._rng
        about = {"topic": rng.choice(NAMES), "request_id": rng.randrange(100)}
        schema = pb.Schema(name="s", schema_data=b"", type=1)
        listing = pb.CommandGetTopicsOfNamespace(namespace=str(ORDERS), request_id=1)
        return rng.choice(
            [
                lambda: encode(lookup=pb.CommandLookupTopic(**about)),
                lambda: encode(partition_metadata=pb.CommandPartitionedTopicMetadata(**about)),
                lambda: encode(get_topics=listing),
                lambda: encode(get_schema=pb.CommandGetSchema(**about)),
                lambda: encode(get_or_create_schema=pb.CommandGetOrCreateSchema(
                    schema=schema, **about)),
            ]
        )()  # fmt: skip


async def live_at_random(seed: int, sessions: int, seconds: float = math.inf) -> Lived:
    """Have so many sessions, but begin none after `seconds`; then look at the broker."""
    rng, lived, until_s = random.Random(seed), Lived(), time.monotonic() + seconds
    maker = FrameMaker(rng, NAMES)
    async with secured() as served:
        for topic in TOPICS:
            await served.brokers[0].serve(topic)
        server = served.brokers[0].parts.hosting
        with capture_logs() as logs:
            alive: list[Session] = []
            while alive or (lived.sessions < sessions and time.monotonic() < until_s):
                if len(alive) < AT_ONCE and lived.sessions < sessions:
                    alive.append(Session(server, rng, maker))
                    lived.sessions += 1
                session = rng.choice(alive)
                lived.frames += 1
                if not session.step():
                    session.caller.hang_up()
                    alive.remove(session)
                    kinds = (answer.command.type for answer in session.caller.wire.frames)
                    lived.answers.update(kinds)
                await _meanwhile(served, rng)
            lived.problems += await _left(served, server)
        errors = [line for line in logs if line["log_level"] in ("error", "critical")]
        lived.problems += [f"logged: {line}" for line in errors]
    return lived


async def _meanwhile(served: Served, rng: random.Random) -> None:
    """The broker goes on with what it has to do; an operator does something now and then."""
    for _ in range(rng.choice([0, 0, 1, 3, 10])):
        await asyncio.sleep(0)
    if rng.random() < RIGHTS_SHARE:
        path, actions = f"/admin/v2/namespaces/{ORDERS}/permissions", rng.choice(GRANTS)
        role = rng.choice(["writer", "reader"])
        await served.ask("POST" if actions else "DELETE", f"{path}/{role}", actions or None)
    if rng.random() < UNLOAD_SHARE:
        await served.ask("PUT", f"/admin/v2/namespaces/{ORDERS}/unload")
        for topic in TOPICS:
            await served.brokers[0].serve(topic)


async def _left(served: Served, server: BrokerServer) -> list[str]:
    """What is wrong with the broker when all sessions are over."""
    problems = []
    try:
        await until(lambda: not left_behind(server) and not _commands(), QUIET_S)
    except TimeoutError:
        problems.append(f"left behind: {left_behind(server)}, tasks {_commands()}")
    if server.serving.failures.count:
        problems.append(f"{server.serving.failures.count} commands failed")
    topic = TopicName("persistent", ORDERS, "after")
    await served.brokers[0].serve(topic)
    caller = Caller(server)
    await caller.connect(ROLES["superuser"].credentials)
    asked = pb.CommandSubscribe(
        topic=str(topic), subscription="s", subType=0, consumer_id=1, request_id=2
    )
    answers = [
        *await caller.ask(
            encode(producer=pb.CommandProducer(topic=str(topic), producer_id=1, request_id=1))
        ),
        *await caller.ask(encode(subscribe=asked)),
        *await caller.ask(encode(flow=pb.CommandFlow(consumer_id=1, messagePermits=1)), a_send(0)),
    ]
    kinds = [answer.command.type for answer in answers]
    if not {MESSAGE, RECEIPT} <= set(kinds):
        problems.append(f"a good client is answered with {kinds}")
    caller.hang_up()
    return problems


def _commands() -> list[str]:
    """Commands that are still being worked on."""
    return [task.get_name() for task in asyncio.all_tasks() if "command-" in task.get_name()]
