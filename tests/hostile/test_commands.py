"""Every command of the binary protocol, said by everybody, before CONNECT and after it."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from google.protobuf.message import Message
from hostile.callers import Caller, connect, left_behind
from hostile.roles import CONSUMER, PRODUCER, PROVEN, ROLES, TOPIC, USER, Role, secured
from structlog.testing import capture_logs

from loadmanager.broker.wire import pulsar_pb2 as pb
from loadmanager.broker.wire.frames import COMMAND_TYPES, Frame

MAY = {
    "ping": PROVEN,
    "pong": PROVEN,
    "lookup": USER,
    "partition_metadata": USER,
    "producer": PRODUCER,
    "subscribe": CONSUMER,
    "get_topics": USER,
    "get_schema": USER,
    "get_or_create_schema": PRODUCER,
}
"""Who may say a command; all others are refused, or end the connection."""
PASSED_OVER = {"ack", "flow", "redeliver", "close_producer", "close_consumer"}
"""About a producer or consumer that may have gone meanwhile: nothing happens if there is none."""
OTHERS = [*(kind for kind in range(-1, 80) if kind not in COMMAND_TYPES.values()), 2**31 - 1]
"""Types that our pulsar.proto leaves out, among them transactions and watchers of topics."""
VALUES: dict[str, Any] = {"topic": str(TOPIC), "namespace": str(TOPIC.namespace)}
ERROR, CONNECTED = 14, 3


def a_frame(name: str) -> bytes:
    """A command with the fields that it must have, about the topic of `roles`."""
    command = pb.BaseCommand(type=COMMAND_TYPES[name])
    inner = getattr(command, name)
    inner.SetInParent()
    _fill(inner)
    return _framed(command.SerializeToString())


def _framed(body: bytes) -> bytes:
    return struct.pack(">II", 4 + len(body), len(body)) + body


def _fill(message: Message) -> None:
    for field in message.DESCRIPTOR.fields:
        if not field.is_required:
            continue
        if field.message_type is not None:
            _fill(getattr(message, field.name))
        elif field.type == field.TYPE_STRING:
            setattr(message, field.name, VALUES.get(field.name, "s"))
        elif field.type == field.TYPE_BYTES:
            setattr(message, field.name, b"s")
        else:
            setattr(message, field.name, 1)


def refused(caller: Caller, answers: Sequence[Frame]) -> bool:
    """True if the connection ended, or an answer has an error."""
    return caller.ended or any(error_of(answer) is not None for answer in answers)


def error_of(answer: Frame) -> int | None:
    """The error of an answer, if it has one."""
    (*_, (_, fields)) = answer.command.ListFields()
    for name in ("error", "error_code"):
        if name in fields.DESCRIPTOR.fields_by_name and fields.HasField(name):
            return int(getattr(fields, name))
    return None


@contextmanager
def no_errors() -> Iterator[None]:
    """Nothing of our own goes wrong meanwhile."""
    with capture_logs() as logs:
        yield
    assert not [line for line in logs if line["log_level"] in ("error", "critical")]


async def test_nothing_comes_before_connect() -> None:
    """Every command, of every type, is answered with ERROR, and ends the connection."""
    frames = [a_frame(name) for name in COMMAND_TYPES]
    frames += [_framed(pb.BaseCommand(type=kind).SerializeToString()) for kind in OTHERS]
    async with secured() as served:
        server = served.brokers[0].parts.hosting
        with no_errors():
            for frame in frames:
                caller = Caller(server)
                answers = await caller.ask(frame)
                assert [answer.command.type for answer in answers] == [ERROR], frame
                assert caller.ended, frame
                caller.hang_up()
        assert left_behind(server) == {}


@pytest.mark.parametrize("who", ROLES)
async def test_who_may_say_what(who: str) -> None:
    """What is not in `MAY` is refused to all; whoever is not who he says is refused everything."""
    role, wrong = ROLES[who], list[str]()
    async with secured() as served:
        await served.brokers[0].serve(TOPIC)
        server = served.brokers[0].parts.hosting
        with no_errors():
            for name in COMMAND_TYPES:
                caller = Caller(server)
                said = await _wrong(caller, role, name)
                wrong += [f"{name}: {who} {said}"] if said else []
                caller.hang_up()
        assert not wrong, "\n".join(wrong)
        assert left_behind(server) == {}


async def _wrong(caller: Caller, role: Role, name: str) -> str:
    """What is wrong with how a command of a role was taken; empty: nothing."""
    greeting = connect(role.credentials, role.original)
    if not role.proven:
        answers = await caller.ask(greeting, a_frame(name))
        kinds = [answer.command.type for answer in answers]
        return "" if (kinds, caller.ended) == ([ERROR], True) else f"gets {kinds}"
    (answer,) = await caller.ask(greeting)
    assert answer.command.type == CONNECTED
    answers = await caller.ask(a_frame(name))
    if name in PASSED_OVER:
        done = any(caller.connection.producers) or any(caller.connection.consumers)
        return "has something attached" if done else ""
    not_permitted = any(error_of(answer) == pb.AuthorizationError for answer in answers)
    if name not in MAY:
        return "" if refused(caller, answers) else "is served; if that is meant, add it to MAY"
    if MAY[name] not in role.belongs:
        return "" if not_permitted else f"is served, and is none of {MAY[name]}"
    if not_permitted or caller.ended:
        return f"is refused, and is one of {MAY[name]}"
    return ""


async def test_types_that_are_not_served() -> None:
    """They are refused to a superuser, too, and leave nothing."""
    role = ROLES["superuser"]
    async with secured() as served:
        server = served.brokers[0].parts.hosting
        with no_errors():
            for kind in OTHERS:
                caller = Caller(server)
                await caller.connect(role.credentials)
                answers = await caller.ask(_framed(pb.BaseCommand(type=kind).SerializeToString()))
                assert refused(caller, answers), kind
                caller.hang_up()
        assert left_behind(server) == {}
