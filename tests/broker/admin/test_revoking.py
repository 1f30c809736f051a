"""What an operator does when a token got into wrong hands."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from broker.admin.serving import ORDERS, Served, serving
from broker.admin.test_admin_access import EVENTS, TOPIC, secured
from broker.admin.test_archive import in_folder
from broker.admin.test_audit import as_role, changes
from broker.composed.test_rights import a_producer, answer_to
from clusters.running import Client, eventually, until
from kit.security.tokens import ADMIN, SECRET, VALUES, token, verifier
from structlog.testing import capture_logs

from loadmanager.broker.topics.access import GRANTS_MAX, BrokerAccess
from loadmanager.broker.topics.refused_tokens import TOKENS_MAX
from loadmanager.broker.wire import pulsar_pb2 as pb
from loadmanager.broker.wire.frames import encode
from loadmanager.cli import main
from loadmanager.cli.admin.times import clock
from loadmanager.kit.metadata import paths
from loadmanager.kit.names import TopicName
from loadmanager.kit.security.tokens import create_token
from loadmanager.kit.system.clock import SystemClock

REFUSED = "/loadmanager/v1/refused-tokens"
NEW = TopicName("persistent", ORDERS, "new")
LEAKED = create_token("writer", SECRET, algorithm="HS256", token_id="leaked")
OTHER = create_token("writer", SECRET, algorithm="HS256", token_id="other")


async def ended(client: Client) -> None:
    """Wait until the broker has hung up."""
    async with asyncio.timeout(60):
        while await client._reader.read(65536):
            pass


async def answers(client: Client) -> bool:
    """True if the broker answers a PING."""
    return (await answer_to(client, encode(ping=pb.CommandPing()))).HasField("pong")


async def attached(served: Served, credentials: str) -> Client:
    """A client of broker 0 with a producer."""
    client = await served.cluster.connect(await served.brokers[0].listen(), credentials)
    assert (await answer_to(client, a_producer(topic=NEW))).HasField("producer_success")
    return client


def access_of(served: Served) -> BrokerAccess:
    """The access checks of broker 0."""
    access = served.brokers[0].parts.access
    assert access is not None
    return access


async def test_a_refused_token() -> None:
    """Its connections end, it counts nowhere any more, over HTTP neither; other tokens of the same
    role do, and it does again when it is allowed.
    """
    async with secured() as served:
        await served.brokers[0].serve(NEW)
        leaked, other = await attached(served, LEAKED), await attached(served, OTHER)
        headers = {"Authorization": f"Bearer {LEAKED}"}
        stats = f"{TOPIC}/partitions"
        assert (await served.ask("GET", stats, headers=headers)).status == 200
        answer = await served.ask("PUT", f"{REFUSED}/leaked", {"note": "on a chat"})
        assert answer.status == 204
        await ended(leaked)
        assert await answers(other)
        refused = await served.ask("GET", stats, headers=headers)
        assert (refused.status, "refused" in refused.reason) == (401, True)
        with pytest.raises(AssertionError):
            await attached(served, LEAKED)
        (entry,) = (await served.get(REFUSED)).items()
        assert (entry[0], entry[1]["note"], entry[1]["until"]) == ("leaked", "on a chat", None)
        assert (await served.ask("DELETE", f"{REFUSED}/leaked")).status == 204
        await until(lambda: "leaked" not in access_of(served).refused)
        assert await answers(await attached(served, LEAKED))
        assert (await served.ask("DELETE", f"{REFUSED}/leaked")).status == 404
        assert [each["path"] for each in await changes(served)][:2] == [paths.REFUSED_TOKENS] * 2


async def test_what_is_not_given_again_stays() -> None:
    """Of a token that is refused a second time: when it ends, and why it is refused."""
    async with secured() as served:
        (broker,) = served.brokers
        end_ms = broker.clock.now_ms() + 3_600_000
        path = f"{REFUSED}/leaked"
        assert (await served.ask("PUT", path, {"until": end_ms, "note": "chat"})).status == 204
        assert (await served.ask("PUT", path, {"note": ""})).status == 204
        await until(lambda: "leaked" in access_of(served).refused)
        entry = (await served.get(REFUSED))["leaked"]
        assert (entry["until"], entry["note"]) == (end_ms, "chat")
        assert (await served.ask("PUT", path, {"note": "mail"})).status == 204
        await until(lambda: access_of(served).refused.shown()["leaked"].note == "mail")
        assert access_of(served).refused.shown()["leaked"].until == end_ms


async def test_a_token_without_an_id() -> None:
    """It is refused by its fingerprint."""
    async with secured() as served:
        await served.brokers[0].serve(NEW)
        client = await attached(served, token("writer"))
        name = verifier().verify(token("writer")).token_id
        assert name.startswith("sha256-")
        assert (await served.ask("PUT", f"{REFUSED}/{name}")).status == 204
        await ended(client)


async def test_a_stream_that_a_refused_token_began() -> None:
    """It ends, without waiting for an event."""
    superuser = create_token(ADMIN, SECRET, algorithm="HS256", token_id="mine")
    async with secured() as served:
        headers = {"Authorization": f"Bearer {superuser}"}
        async with served.session.get(served.url() + EVENTS, headers=headers) as answer:
            await answer.content.readline()
            assert (await served.ask("PUT", f"{REFUSED}/mine")).status == 204
            async with asyncio.timeout(60):
                await answer.content.read()


async def test_a_role_is_disconnected_on_all_brokers(capsys: pytest.CaptureFixture[str]) -> None:
    """With how many connections on which broker; others stay, and its clients may come back."""
    async with serving(2, values=VALUES, verifier=verifier(), token=token(ADMIN)) as served:
        ports = [await broker.listen() for broker in served.brokers]
        connect = served.cluster.connect
        clients = [await connect(port, token("writer")) for port in ports]
        other = await connect(ports[1], token("other"))
        words = ["admin", "roles", "disconnect", "writer", "--url", served.url(0), "--json"]
        capsys.readouterr()
        with capture_logs():
            assert await asyncio.to_thread(main, [*words, "--token", token(ADMIN)]) == 0
        told = json.loads(capsys.readouterr().out)
        assert told["brokers"] == {served.broker_id(0): 1, served.broker_id(1): 1}
        for client in clients:
            await ended(client)
        assert await answers(other)
        assert await answers(await connect(ports[0], token("writer")))
        stream = served.session.get(served.url() + EVENTS, headers=as_role(ADMIN))
        async with stream as answer:
            await answer.content.readline()
            path = f"/loadmanager/v1/roles/{ADMIN}/disconnect"
            assert (await served.ask("POST", path, at=1)).status == 200
            async with asyncio.timeout(60):
                await answer.content.read()


async def test_the_audit_tells_of_it_once(capsys: pytest.CaptureFixture[str]) -> None:
    """Not of what the brokers order each other then: it follows from that."""
    async with serving(3, values=VALUES, verifier=verifier(), token=token(ADMIN)) as served:
        words = ["--url", served.url(0), "--token", token(ADMIN)]

        async def told(*more: str) -> str:
            capsys.readouterr()
            with capture_logs():
                assert await asyncio.to_thread(main, ["admin", *more, *words]) == 0
            return capsys.readouterr().out

        await told("roles", "disconnect", "a/b")
        await told("tokens", "refuse", "leaked", "--note", "chat")
        await told("tokens", "allow", "leaked")
        lines = (await told("audit")).splitlines()
        said = ("ended the connections of the role a/b", "refused the token leaked: chat")
        for text in (*said, "allowed the token leaked again"):
            assert len([line for line in lines if text in line]) == 1, lines
        assert not [line for line in lines if "disconnect" in line]


async def test_which_tokens_were_refused_then(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also one that is allowed again."""
    values = {**VALUES, **in_folder(tmp_path)}
    async with serving(1, values=values, verifier=verifier(), token=token(ADMIN)) as served:
        words = ["--url", served.url(0), "--token", token(ADMIN)]

        async def told(*more: str) -> str:
            capsys.readouterr()
            with capture_logs():
                await asyncio.to_thread(main, ["admin", *more, *words])
            return capsys.readouterr().out

        await told("tokens", "refuse", "leaked", "--note", "chat")
        between = clock(SystemClock().now_ms() + 1_000).replace(" ", "T")
        await asyncio.sleep(2.1)  # moments are said by the second
        await told("tokens", "allow", "leaked")
        out = await eventually(
            lambda: told("tokens", "list", "--at", between), lambda out: '"leaked"' in out, 20
        )
        assert "chat" in out
        assert "leaked" not in await told("tokens", "list")


async def test_what_the_command_says(capsys: pytest.CaptureFixture[str]) -> None:
    """Until when a token is refused, that nothing was done when it was so, that streams end."""
    async with secured() as served:
        more = ["--url", served.url(0), "--token", token(ADMIN)]

        async def says(*words: str) -> tuple[int, str]:
            capsys.readouterr()
            with capture_logs():
                status = await asyncio.to_thread(main, ["admin", *words, *more])
            return status, capsys.readouterr().out.strip()

        refuse = ("tokens", "refuse", "leaked")
        text = "leaked is refused until 2999-01-31 00:00:00Z"
        assert await says(*refuse, "--until", "2999-01-31T00:00Z", "--note", "chat") == (0, text)
        await until(lambda: "leaked" in access_of(served).refused)
        assert await says(*refuse) == (1, f"{text} already: nothing was done")
        assert await says(*refuse, "--note", "mail") == (0, text)
        status, said = await says("roles", "disconnect", "nobody")
        assert (status, said.split(";")[0]) == (0, "0 connections of nobody ended")
        assert "streams" in said


async def test_a_role_is_ended_again_however_many_were() -> None:
    """What is kept of them is bounded; a role that is among them is not forgotten."""
    async with secured() as served:
        access = access_of(served)
        for number in range(GRANTS_MAX + 1):
            access.end(f"role-{number}")
        access.end("role-0")
        assert access.ended(("role-0",)) == 2


async def test_the_list_is_bounded_and_forgets() -> None:
    """An entry goes when its token has ended; too many are refused, and so are odd ids."""
    async with secured() as served:
        (broker,) = served.brokers
        soon = broker.clock.now_ms() + 2_000
        never: dict[str, Any] = {"since": 1, "until": None, "note": ""}
        full = {f"id-{number}": never for number in range(TOKENS_MAX - 1)}
        full["soon"] = {**never, "until": soon}
        await broker.store.put(paths.REFUSED_TOKENS, json.dumps(full).encode())
        await until(lambda: "soon" in access_of(served).refused)
        await until(lambda: broker.clock.now_ms() > soon)
        assert "soon" not in await served.get(REFUSED)
        path = f"{REFUSED}/one-more"
        assert (await served.ask("PUT", path)).status == 204
        assert (await served.ask("PUT", f"{REFUSED}/and-another")).status == 409
        assert (await served.ask("PUT", f"{REFUSED}/{'x' * 101}")).status == 412
        assert (await served.ask("PUT", path, {"until": 1})).status == 412


async def test_a_list_that_cannot_be_read() -> None:
    """What was refused before stays refused."""
    async with secured() as served:
        (broker,) = served.brokers
        assert (await served.ask("PUT", f"{REFUSED}/leaked")).status == 204
        await until(lambda: "leaked" in access_of(served).refused)
        await broker.store.put(paths.REFUSED_TOKENS, b"[")
        await until(lambda: paths.REFUSED_TOKENS in broker.parts.member.base.corrupt.paths)
        assert "leaked" in access_of(served).refused


async def test_without_authentication() -> None:
    """501: nothing of this would have an effect."""
    async with serving(1) as served:
        for method, path in (
            ("GET", REFUSED),
            ("PUT", f"{REFUSED}/x"),
            ("POST", "/loadmanager/v1/roles/x/disconnect"),
        ):
            assert (await served.ask(method, path)).status == 501
