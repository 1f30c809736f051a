"""One broker answers for all: whoever reaches only that one sees and orders everything."""

from __future__ import annotations

import asyncio
import itertools
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import RawTestServer
from broker.admin.serving import ORDERS, Served, serving
from kit.security.certificates import Authority
from kit.security.tokens import ADMIN, VALUES, token, verifier
from structlog.testing import capture_logs

from loadmanager.broker.admin.calls import CONNECTIONS_MAX, SIGN, Calls, UnansweredError
from loadmanager.cli import main
from loadmanager.cli.admin.client import AdminClient, TlsFiles
from loadmanager.kit.addresses import BrokerAddress
from loadmanager.kit.http.passing_on import (
    BROKER,
    FOLLOW,
    MISDIRECTED,
    UNDECIDED,
    WITHIN,
)
from loadmanager.kit.metadata.leader import Leader
from loadmanager.kit.tasks import forever

FIRST = f"{ORDERS}/0x00000000_0x40000000"
REPORT = "/loadmanager/v1/load-report"
UNLOAD = f"/admin/v2/namespaces/{FIRST}/unload"


async def test_a_request_for_a_broker_that_is_named() -> None:
    """That one answers, with its name; one that is not there is said; its redirect is followed."""
    async with serving(2) as served:
        other = served.broker_id(1)
        headers = {BROKER: other, WITHIN: "5"}
        for name, at in ((other, 0), (other, 1), (served.broker_id(0), 1)):
            answer = await served.ask("GET", REPORT, at=at, headers={BROKER: name})
            assert (answer.status, answer.headers[BROKER]) == (200, name)
            assert answer.body["webServiceUrl"] == f"http://{name}"
        await served.own(FIRST)
        assert (await served.ask("PUT", UNLOAD, headers=headers)).status == 307
        answer = await served.ask("PUT", UNLOAD, headers={**headers, FOLLOW: "true"})
        assert answer.status == 204
        assert FIRST not in served.owners()
        nobody = await served.ask("GET", REPORT, headers={BROKER: "nobody:1"})
        assert (nobody.status, nobody.reason) == (502, "nobody:1 is not active")
        for within in ("nonsense", "nan", "-1", "1e9"):
            headers[WITHIN] = within
            assert (await served.ask("GET", REPORT, headers=headers)).status == 200
        await served.servers[1].stop()
        gone = await served.ask("GET", REPORT, headers=headers)
        assert (gone.status, gone.headers[BROKER]) == (502, other)
        assert gone.reason == f"{other} cannot be reached: connection refused"


async def test_who_may_not_ask_here_is_not_passed_on() -> None:
    """The rights are looked at first, by the broker that is asked; then by the other one."""
    async with serving(2, values=VALUES, verifier=verifier(), token=token(ADMIN)) as served:
        headers = {BROKER: served.broker_id(1)}
        assert (await served.ask("GET", REPORT, headers=headers)).status == 200
        for credentials, status in (("", 401), (f"Bearer {token('stranger')}", 403)):
            refused = await served.ask(
                "GET", REPORT, headers={**headers, "Authorization": credentials}
            )
            assert (refused.status, BROKER in refused.headers) == (status, False)


async def test_a_stranger_has_nothing_passed_on() -> None:
    """Not even what each broker answers to everybody; who proves a role has that passed on."""
    async with serving(2, values=VALUES, verifier=verifier(), token=token(ADMIN)) as served:
        other, none = {BROKER: served.broker_id(1)}, {"Authorization": ""}
        for path in ("/admin/v2/brokers/health", "/admin/v2/brokers/ready", "/status.html", "/ui/"):
            assert (await served.ask("GET", path, headers=none)).status == 200
            assert (await served.ask("GET", path, headers={**other, **none})).status == 401
            answer = await served.ask("GET", path, headers=other)
            assert (answer.status, answer.headers[BROKER]) == (200, served.broker_id(1))
        follow = {FOLLOW: "true", "Authorization": ""}
        of_other = f"/admin/v2/brokers/health?brokerId={served.broker_id(1)}"
        assert (await served.ask("GET", of_other, headers=follow)).status == 307
        assert (await served.ask("GET", of_other, headers={FOLLOW: "true"})).status == 200
        proven = {**other, "Authorization": f"Bearer {token('stranger')}"}
        health = "/admin/v2/brokers/health"
        assert (await served.ask("GET", health, headers=proven)).status == 200


async def test_what_others_have_passed_on_keeps_no_order_waiting() -> None:
    """Though the broker that it goes to is frozen, and takes all that may be passed on to it."""
    waiting, crowd = itertools.count(1), asyncio.Event()

    async def frozen(request: web.BaseRequest) -> web.Response:
        if request.path == "/order":
            return web.Response(text="done")
        if request.path != SIGN and next(waiting) == CONNECTIONS_MAX:
            crowd.set()
        await forever()
        return web.Response()

    calls = Calls(patience_s=0.05, sign_s=600)
    async with RawTestServer(frozen) as server:
        url = server.make_url("/x")
        address = BrokerAddress("frozen:1", "", str(url.origin()))

        async def passed_on() -> None:
            async with calls.repeated(address, "GET", url, {}, b"", timeout_s=600):
                pass

        async with asyncio.TaskGroup() as tasks:
            others = [tasks.create_task(passed_on()) for _ in range(2 * CONNECTIONS_MAX)]
            await crowd.wait()
            answer = await calls.ask(address, "POST", "/order", timeout_s=60, bytes_max=10)
            for other in others:
                other.cancel()
        await calls.close()
    assert answer.body == b"done"


async def test_clients_of_a_listener_are_redirected_within_it() -> None:
    """To the name that they can resolve; the broker itself knows who that is."""
    async with serving(2, listener="outside") as served:
        await served.own(FIRST)
        answer = await served.ask("PUT", UNLOAD, at=1)
        assert answer.headers["Location"].startswith(f"http://out-0.example.com{UNLOAD}")
        assert (await served.ask("PUT", UNLOAD, at=1, headers={FOLLOW: "true"})).status == 204
        assert FIRST not in served.owners()


async def test_the_cluster_names_addresses_that_its_reader_reaches() -> None:
    """Those of the listener that was asked by, though the leader is another broker; none where
    none is advertised for it.
    """
    path = "/loadmanager/v1/cluster"

    def urls(answer: Any) -> list[str | None]:
        return [broker["url"] for broker in answer["brokers"]]

    async with serving(2) as served:
        inside = sorted(served.url(index) for index in (0, 1))
        answer = await served.ask("GET", path, at=1, headers={FOLLOW: "true"})
        assert urls(answer.body) == inside
    async with serving(2, listener="outside") as served:
        for at in (0, 1):
            answer = await served.ask("GET", path, at=at, headers={FOLLOW: "true"})
            assert sorted(map(str, urls(answer.body))) == [
                "http://out-0.example.com",
                "http://out-1.example.com",
            ]
        sock = socket.create_server(("127.0.0.1", 0))
        await served.servers[1].listen(sock, "elsewhere")
        elsewhere = f"http://127.0.0.1:{sock.getsockname()[1]}{path}"
        async with served.session.get(elsewhere, headers={FOLLOW: "true"}) as response:
            assert urls(await response.json()) == [None, None]


async def test_a_command_asks_one_broker(capsys: pytest.CaptureFixture[str]) -> None:
    """Also for the load report of another one, and for what only the leader does; who knows no
    such broker is asked directly.
    """
    async with serving(2, listener="outside") as served:
        await served.own(FIRST, at=1)
        admin = AdminClient(served.url(0), timeout_s=60)
        at = await asyncio.to_thread(admin.at, served.broker_id(1))
        assert at.url == served.url(0)
        words = ("bundles", "unload", FIRST, "--to", served.broker_id(0))
        assert await _admin(served, *words) == 0
        assert served.owners()[FIRST] == served.broker_id(0)
        assert await _admin(served, "moves", "list", at=1) == 0  # the leader is another one
        capsys.readouterr()


async def test_what_came_over_tls_does_not_go_on_without(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where brokers ask each other without TLS; a command asks the others itself then, over TLS."""
    authority = Authority(tmp_path)
    tls = (authority.server(authority.issue("broker")), authority.client())
    rights = {"values": VALUES, "verifier": verifier(), "token": token(ADMIN)}
    async with serving(2, tls=tls, plain_inside=True, **rights) as served:  # type: ignore[arg-type]
        await served.own(FIRST, at=0)
        for headers in ({BROKER: served.broker_id(1)}, {FOLLOW: "true"}):
            path = "/loadmanager/v1/heat" if FOLLOW in headers else REPORT
            answer = await served.ask("GET", path, at=int(FOLLOW in headers), headers=headers)
            assert (answer.status, BROKER in answer.headers) == (MISDIRECTED, False)
            assert "brokerClientTlsEnabled" in answer.reason
        files = TlsFiles(trust=str(authority.trust))
        admin = AdminClient(served.url(0), timeout_s=60, token=token(ADMIN), tls=files)
        at = await asyncio.to_thread(admin.at, served.broker_id(1))
        assert at.url == served.url(1)
        words = ("--tls-trust-certs", str(authority.trust), "--token", token(ADMIN))
        assert await _admin(served, "moves", "list", *words, at=1) == 0
        capsys.readouterr()


async def test_the_servers_of_the_metadata_store() -> None:
    """As the broker reaches them: here nobody listens."""
    async with serving(1, values={"metadataStoreUrl": "zk:127.0.0.1:1/x"}) as served:
        (server,) = await served.get("/loadmanager/v1/ensemble")
        assert server["address"] == "127.0.0.1:1"
        assert "refused" in server["failure"]


async def _admin(served: Served, *words: str, at: int = 0) -> int:
    with capture_logs():
        return await asyncio.to_thread(
            main, ["admin", *words, "--url", served.url(at), "--timeout", "60"]
        )


async def test_a_frozen_broker_is_not_waited_for() -> None:
    """One that accepts and never answers is given up soon; a slow one that gives signs is not."""
    signs, released = itertools.count(1), asyncio.Event()

    async def silent(_request: web.BaseRequest) -> web.Response:
        await forever()
        return web.Response()

    async def slow(request: web.BaseRequest) -> web.Response:
        if request.path == SIGN:
            if next(signs) == 3:
                released.set()
            return web.Response(text="1.0")
        await released.wait()
        return web.Response(text="at last")

    with pytest.raises(UnansweredError, match="frozen:1 does not answer, for"):
        await _repeated_at(silent, sign_s=0.05)
    assert await _repeated_at(slow, sign_s=60) == "at last"


async def _repeated_at(
    handler: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]], sign_s: float
) -> str:
    """What a broker answers to a request that another one sends on."""
    calls = Calls(patience_s=0.05, sign_s=sign_s)
    try:
        async with RawTestServer(handler) as server:
            url = server.make_url("/x")
            address = BrokerAddress("frozen:1", "", str(url.origin()))
            asked = calls.repeated(address, "GET", url, {}, b"", timeout_s=600)
            async with asked as answer:
                return await answer.text()
    finally:
        await calls.close()


async def test_brokers_that_send_a_request_to_each_other() -> None:
    """Right after a leader was lost, each may take the other one for the leader: whoever asks is
    told so, instead of being sent to and fro.
    """
    async with serving() as served:
        first, second = (broker.parts.member.cluster.leading for broker in served.brokers)
        was = first.leader
        assert was is not None
        url = served.url(1)
        first.leader = Leader(served.broker_id(1), url, was.epoch)
        assert second.leader == was
        cluster = "/loadmanager/v1/cluster"
        answer = await served.ask("GET", cluster, headers={FOLLOW: "true"})
        assert (answer.status, answer.headers[UNDECIDED]) == (503, "true")
        assert "the brokers do not agree yet on the owner or the leader" in str(answer.body)
        assert (await served.ask("GET", cluster)).status == 307
        first.leader = was
        assert (await served.ask("GET", cluster, headers={FOLLOW: "true"})).status == 200
