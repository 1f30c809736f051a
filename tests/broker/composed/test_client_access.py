"""Permissions over the binary protocol."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import jwt
import pytest
from clusters.running import NS, Client, Cluster, a_cluster
from kit.security.tokens import ADMIN, VALUES, token, verifier
from structlog.testing import capture_logs

from loadmanager.broker.wire import pulsar_pb2 as pb
from loadmanager.broker.wire.frames import Frame, encode
from loadmanager.engine.policies.permissions import FIELD
from loadmanager.kit.names import TopicName
from loadmanager.kit.security.identity import Identity, Verifier
from loadmanager.testing.cluster import LoopTime

TOPIC = TopicName("persistent", NS, "t")
CONNECTED, ERROR, PONG, CHALLENGE = 3, 14, 19, 36
GRANTS = {
    "namespace_auth": {"writer": ["produce"]},
    "destination_auth": {str(TOPIC): {"reader": ["consume"]}},
}
FORGED = jwt.encode({"sub": ADMIN}, b"another secret key of 32 bytes..", algorithm="HS256")
QUESTIONS: dict[str, tuple[dict[str, Any], set[str]]] = {
    "lookup": (
        {"lookup": pb.CommandLookupTopic(topic=str(TOPIC), request_id=7)},
        {ADMIN, "boss", "reader", "writer"},
    ),
    "partitions": (
        {"partition_metadata": pb.CommandPartitionedTopicMetadata(topic=str(TOPIC), request_id=7)},
        {ADMIN, "boss", "reader", "writer"},
    ),
    "producer": (
        {"producer": pb.CommandProducer(topic=str(TOPIC), producer_id=1, request_id=7)},
        {ADMIN, "boss", "writer"},
    ),
    "subscribe": (
        {
            "subscribe": pb.CommandSubscribe(
                topic=str(TOPIC), subscription="s", subType=1, consumer_id=1, request_id=7
            )
        },
        {ADMIN, "boss", "reader"},
    ),
    "topics": (
        {"get_topics": pb.CommandGetTopicsOfNamespace(namespace=str(NS), request_id=7)},
        {ADMIN, "boss", "writer"},
    ),
    "schema": (
        {"get_schema": pb.CommandGetSchema(topic=str(TOPIC), request_id=7)},
        {ADMIN, "boss", "reader", "writer"},
    ),
}


@asynccontextmanager
async def secured(checks: Verifier | None = None, **values: str) -> AsyncIterator[Cluster]:
    """A broker that asks clients who they are, with `GRANTS`."""
    async with a_cluster({**VALUES, **values}, verifier=checks or verifier()) as cluster:
        namespaces = cluster.brokers[0].use.namespaces
        await namespaces.update_policies(NS, lambda policies: {**policies, FIELD: GRANTS})
        await namespaces.update_tenant(NS.tenant, {"adminRoles": ["boss"]})
        await cluster.brokers[0].serve(TOPIC)
        yield cluster


async def greet(
    cluster: Cluster, credentials: str, *, method: str = "token", **fields: Any
) -> tuple[Client, Frame]:
    """A client that has said CONNECT, and the answer."""
    port = await cluster.brokers[0].listen()
    client = Client(*await asyncio.open_connection("127.0.0.1", port))
    cluster.clients.append(client)
    connect = pb.CommandConnect(
        client_version="raw",
        protocol_version=20,
        auth_method_name=method,
        auth_data=credentials.encode(),
        **fields,
    )
    await client.send(encode(connect=connect))
    return client, await client.take()


def refusal(frame: Frame) -> int | None:
    """The error in an answer."""
    fields = frame.command.ListFields()[-1][1]
    for name in ("error", "error_code"):
        if name in fields.DESCRIPTOR.fields_by_name and fields.HasField(name):
            return int(getattr(fields, name))
    return None


@pytest.mark.parametrize(
    ("method", "credentials"),
    [
        ("", ""),
        ("none", ""),
        ("token", ""),
        ("token", "x"),
        ("token", FORGED),
        ("token", token(ADMIN, lives_s=-60)),
        ("basic", "admin:admin"),
        ("tls", ""),
    ],
)
async def test_who_proves_nothing_is_refused(method: str, credentials: str) -> None:
    """With an error, and the connection ends; nothing else was answered."""
    async with secured() as cluster:
        with capture_logs() as logs:
            client, answer = await greet(cluster, credentials, method=method)
        assert answer.command.type == ERROR
        (line,) = [line for line in logs if line["event"] == "a client is refused"]
        assert (line["address"], bool(line["reason"])) == ("127.0.0.1", True)
        assert not credentials[4:] or credentials[4:] not in str(line)
        assert answer.command.error.error == pb.AuthenticationError
        with pytest.raises((AssertionError, ConnectionError)):
            await client.take()


async def test_nothing_comes_before_connect() -> None:
    """A command before CONNECT ends the connection."""
    async with secured() as cluster:
        port = await cluster.brokers[0].listen()
        client = Client(*await asyncio.open_connection("127.0.0.1", port))
        cluster.clients.append(client)
        await client.send(encode(**QUESTIONS["lookup"][0]))
        assert (await client.take()).command.type == ERROR


@pytest.mark.parametrize("role", [ADMIN, "boss", "reader", "writer", "stranger"])
async def test_who_may(role: str) -> None:
    """Each command, for each role: what is not permitted is AuthorizationError."""
    async with secured() as cluster:
        for name, (question, allowed) in QUESTIONS.items():
            client, connected = await greet(cluster, token(role))
            assert connected.command.type == CONNECTED
            await client.send(encode(**question))
            error = refusal(await client.take())
            if role in allowed:
                assert error in (None, pb.TopicNotFound), (name, error)
            else:
                assert error == pb.AuthorizationError, name


async def test_a_permission_acts_at_once() -> None:
    """A role that was permitted may, also on a connection that is open; one that is not any more
    may not.
    """
    async with secured() as cluster:
        client, _ = await greet(cluster, token("late"))
        namespaces = cluster.brokers[0].use.namespaces
        question = encode(**QUESTIONS["lookup"][0])
        for grants, error in (
            ({}, pb.AuthorizationError),
            ({"namespace_auth": {"late": ["consume"]}}, None),
            ({}, pb.AuthorizationError),
        ):
            await namespaces.update_policies(
                NS, lambda policies, grants=grants: {**policies, FIELD: grants}
            )
            async with asyncio.timeout(60):
                while True:
                    await client.send(question)
                    if refusal(await client.take()) == error:
                        break


async def test_proxies() -> None:
    """A proxy asks for a role; both must be permitted."""
    async with secured(superUserRoles=f"{ADMIN},proxy") as cluster:
        for original, expected in (("reader", None), ("stranger", pb.AuthorizationError)):
            client, _ = await greet(cluster, token("proxy"), original_principal=original)
            await client.send(encode(**QUESTIONS["lookup"][0]))
            assert refusal(await client.take()) == expected
        for role, original in (("proxy", ""), ("reader", ADMIN)):
            _, answer = await greet(cluster, token(role), original_principal=original)
            assert answer.command.type == ERROR


async def test_an_anonymous_role() -> None:
    """Clients that prove nothing may have a role, if the operator wants that."""
    async with secured(anonymousUserRole="reader") as cluster:
        client, answer = await greet(cluster, "", method="")
        assert answer.command.type == CONNECTED
        await client.send(encode(**QUESTIONS["lookup"][0]))
        assert refusal(await client.take()) is None
        _, answer = await greet(cluster, "x")
        assert answer.command.type == ERROR


class Brief:
    """Takes `role` for a proof without end, and `role for 0.2` for one that ends so soon."""

    def verify(self, credentials: str) -> Identity:
        role, _, lives = credentials.partition(" for ")
        return Identity(role, LoopTime().now_ms() / 1000 + float(lives) if lives else None)


async def test_a_proof_that_ends() -> None:
    """A client that can renew it is asked to, and stays; others are closed."""
    flags = pb.FeatureFlags(supports_auth_refresh=True)
    async with secured(Brief(), authenticationRefreshCheckSeconds="1") as cluster:
        client, _ = await greet(cluster, "writer for 0.2", feature_flags=flags)
        challenge = await client.take_of(CHALLENGE)
        assert challenge.command.auth_challenge.challenge.auth_method_name == "token"
        await renew(client, "writer")
        await client.send(encode(ping=pb.CommandPing()))
        assert (await client.take()).command.type == PONG
        other, _ = await greet(cluster, "writer for 0.2", feature_flags=flags)
        await other.take_of(CHALLENGE)
        await renew(other, ADMIN)
        silent, _ = await greet(cluster, "writer for 0.2")
        for closed in (other, silent):
            with pytest.raises((AssertionError, ConnectionError)):
                await closed.take()


async def renew(client: Client, credentials: str) -> None:
    """Answer a challenge."""
    data = pb.AuthData(auth_method_name="token", auth_data=credentials.encode())
    await client.send(encode(auth_response=pb.CommandAuthResponse(response=data)))
