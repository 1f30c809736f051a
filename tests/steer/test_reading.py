"""Reading a cluster over HTTP: whatever it answers, the view says what is known and how old."""

from __future__ import annotations

import asyncio
import os
import socket
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import theirs
from aiohttp import web
from kit.security.certificates import Authority
from steer.fake_pulsar import NAMESPACE, NONSENSE, RANGES, STORED, Nonsense, a_pulsar, empty, failed
from steer.watched import watching

from loadmanager.engine.history.records import BundleLoad
from loadmanager.kit.errors import ConfigError, OperationalError
from loadmanager.steer import settings_file as conf
from loadmanager.steer.pulsar.bodies import CHUNK_BYTES, SMALL_BYTES
from loadmanager.steer.pulsar.client import PulsarClient
from loadmanager.steer.pulsar.settings import PulsarSettings


def is_shop(record: Any) -> bool:
    """Whether it is the load of a bundle of the shop."""
    return isinstance(record, BundleLoad) and record.bundle.startswith(NAMESPACE)


@pytest.mark.parametrize("extensible", [False, True])
async def test_both_managers_give_the_same_view(tmp_path: Path, *, extensible: bool) -> None:
    """An extensible broker publishes no report: it is made of topics, metrics and owned bundles."""
    async with watching(tmp_path, extensible=extensible) as daemon:
        await daemon.work.read()
        picture = daemon.work.picture
        assert picture.extensible is extensible
        assert picture.missing(1) is None
        reports = picture.reports
        shop = [
            [bundle for bundle in reports[broker].bundles if bundle.startswith(NAMESPACE)]
            for broker in daemon.pulsar.brokers
        ]
        assert list(map(len, shop)) == [12, 2, 2]
        assert [reports[broker].msg_rate_in for broker in daemon.pulsar.brokers] == [1200, 200, 200]
        assert reports[daemon.pulsar.brokers[0]].cpu.percent == pytest.approx(65)
        kinds = Counter(record.kind for record in daemon.history.records)
        assert kinds["broker_load"] == 3
        assert kinds["bundle_load"] >= 16
        stored = {each.stored_bytes for each in daemon.history.records if is_shop(each)}
        assert stored == ({STORED} if extensible else {None}), "a load report does not say"


async def test_only_reads_are_sent_while_observing(tmp_path: Path) -> None:
    """Neither observing nor advising changes anything."""
    async with watching(tmp_path, settings={"mode": "advise"}) as daemon:
        for _ in range(3):
            daemon.clock.pass_s(60)
            await daemon.cycle()
        assert {line.partition(" ")[0] for line in daemon.pulsar.log} == {"GET"}
        assert not any("lookup" in line for line in daemon.pulsar.log)
        assert daemon.work.advice.shown(None).plan.unloads


async def test_a_strategy_that_fails_to_see_a_report_costs_no_reading(tmp_path: Path) -> None:
    """The broker was read, and its report is recorded; the failures in a row are counted."""

    def observe(broker: str, *_: Any) -> object:
        if broker == one:
            raise ZeroDivisionError("a bug in a plug-in")
        return None

    with theirs.registered(observe=observe):
        settings = {"loadBalancerLoadSheddingStrategy": theirs.NAME}
        async with watching(tmp_path, settings=settings) as daemon:
            one = daemon.pulsar.brokers[0]
            await daemon.work.read()
            assert not daemon.work.picture.problems
            kinds = Counter(record.kind for record in daemon.history.records)
            assert kinds["broker_load"] == 3
            assert daemon.work.load_manager.term.steps.failures["observe"] == 1


async def test_a_token_is_read_again_and_does_not_leave_the_cluster(tmp_path: Path) -> None:
    """A redirect to a host that the cluster does not list is not followed at all."""
    async with watching(tmp_path, token="one") as daemon, a_pulsar(1) as stranger:
        await daemon.work.read()
        assert not daemon.work.picture.problems
        daemon.pulsar.token = "two"
        await daemon.work.read()
        assert "answered 401" in daemon.work.picture.problems["brokers"]
        (tmp_path / "token").write_text("two\n")
        await daemon.work.read()
        assert not daemon.work.picture.problems

        seen: list[str | None] = []

        def answer(request: web.Request) -> web.Response:
            seen.append(request.headers.get("Authorization"))
            return web.json_response({})

        stranger.nonsense["/load-report"] = answer
        daemon.pulsar.nonsense["/load-report"] = lambda request: web.Response(
            status=307, headers={"Location": f"{stranger.url()}{request.rel_url}"}
        )
        await daemon.work.read()
        assert not seen
        assert all("is not a broker" in why for why in daemon.work.picture.problems.values())


ASKED = ("/brokers", "/load-report", "/runtime", "/namespaceIsolationPolicies", "/antiAffinity")


@pytest.mark.parametrize(
    ("where", "nonsense"),
    [
        (where, nonsense)
        for where in ASKED
        for nonsense in NONSENSE
        if (where, nonsense) != ("/antiAffinity", empty)  # in 4.2: no group
    ],
)
async def test_nonsense_moves_nothing(tmp_path: Path, where: str, nonsense: Nonsense) -> None:
    """What cannot be read stays unknown, is named, and keeps every decision away."""
    async with watching(tmp_path, settings={"mode": "act"}) as daemon:
        daemon.pulsar.switch_off()
        daemon.pulsar.nonsense[where] = nonsense
        await daemon.cycle()
        assert daemon.work.picture.problems
        assert "Incomplete" in str(daemon.work.hold.reason())
        assert daemon.pulsar.moved == []
        daemon.pulsar.nonsense.clear()
        await daemon.work.read()
        await daemon.cycle()
        assert daemon.pulsar.moved != []


async def test_a_broker_that_does_not_answer_goes_stale(tmp_path: Path) -> None:
    """It is listed for 30 s more; nothing goes there, and nothing waits for it."""
    async with watching(tmp_path, settings={"mode": "advise"}) as daemon:
        await daemon.cycle()
        dead = daemon.pulsar.brokers[2]
        await daemon.pulsar.stop(dead)
        for _ in range(3):
            daemon.clock.pass_s(30)
            await daemon.cycle()
        picture = daemon.work.picture
        assert dead in picture.registered
        assert dead not in picture.answering
        assert picture.address(dead) is None
        assert picture.shown().brokers[dead].age_seconds == 90
        plan = daemon.work.advice.plan
        assert plan is not None
        assert plan.unloads
        assert dead not in {move.destination for move in plan.unloads}
        assert any(skip.what == dead and "StaleReport" in skip.reason for skip in plan.skipped)
        daemon.pulsar.brokers.remove(dead)
        await daemon.cycle()
        assert dead not in picture.reports


async def test_no_order_is_sent_by_a_daemon_that_does_not_lead(tmp_path: Path) -> None:
    """It reads on."""
    async with watching(tmp_path) as daemon:
        path, at = (
            "/admin/v2/brokers/configuration/loadBalancerSheddingEnabled",
            daemon.pulsar.brokers[0],
        )
        daemon.client.leads = lambda: False
        with pytest.raises(OperationalError, match="not sent: another daemon may lead"):
            await daemon.client.send("POST", f"{path}/false", at)
        assert await daemon.client.get("/admin/v2/brokers", at)
        assert {line.partition(" ")[0] for line in daemon.pulsar.log} == {"GET"}


async def test_answers_are_bounded() -> None:
    """In size, by a limit that is told."""
    async with a_pulsar(1) as pulsar:
        settings = PulsarSettings(urls=(pulsar.url(),), answer_bytes_max=2000)
        pulsar.nonsense["/brokers"] = lambda _request: web.Response(body=b"x" * 100_000)
        async with PulsarClient(settings) as client:
            with pytest.raises(OperationalError, match="more than 2000 bytes"):
                await client.get("/admin/v2/brokers")
            assert client.cost.requests == 1
            assert client.cost.failures == 1


async def test_endless_answers_cost_the_memory_of_one() -> None:
    """Large ones are read one after the other, small ones meanwhile."""
    limit, at_once = 8 << 20, 8
    chunk = b"x" * 65_536

    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield chunk

    async with a_pulsar(1) as pulsar:
        settings = PulsarSettings(urls=(pulsar.url(),), answer_bytes_max=limit, timeout_s=60)
        pulsar.nonsense["/topics"] = lambda _request: web.Response(body=endless())
        pulsar.nonsense["/load-report"] = lambda _request: web.Response(body=endless(), status=500)
        async with PulsarClient(settings) as client:
            bodies = client.bodies
            large = [
                asyncio.ensure_future(client.get_large("/topics", pulsar.brokers[0]))
                for _ in range(at_once)
            ]
            most = 0
            while not all(one.done() for one in large):
                most = max(most, bodies.held_bytes)
                await asyncio.sleep(0)
            for one in large:
                with pytest.raises(OperationalError, match=f"more than {limit} bytes"):
                    await one
            assert SMALL_BYTES < most < limit + at_once * (SMALL_BYTES + 2 * CHUNK_BYTES)
            assert bodies.held_bytes == 0
            before = client.cost.bytes_read
            with pytest.raises(OperationalError, match="answered 500: xxx"):
                await client.get_large("/load-report", pulsar.brokers[0])
            assert client.cost.bytes_read - before < 1 << 20
            assert await client.json("/admin/v2/brokers") == pulsar.brokers


async def test_a_broker_that_keeps_the_others_waiting_costs_its_time_only() -> None:
    """While it answers slowly, the time limit of the others does not count."""
    limit = 4 << 20

    async def slow() -> AsyncIterator[bytes]:
        yield b"x" * (2 << 20)
        await asyncio.Event().wait()

    async with a_pulsar(1) as pulsar:
        settings = PulsarSettings(urls=(pulsar.url(),), answer_bytes_max=limit, timeout_s=3)
        pulsar.nonsense["/topics"] = lambda _request: web.Response(body=slow())
        pulsar.nonsense["/load-report"] = lambda _request: web.Response(body=b"y" * (2 << 20))
        async with PulsarClient(settings) as client:
            slow_one = asyncio.ensure_future(client.get_large("/topics", pulsar.brokers[0]))
            while client.bodies.held_bytes <= SMALL_BYTES:
                await asyncio.sleep(0.01)
            answer = await client.get_large("/load-report", pulsar.brokers[0])
            assert len(answer) == 2 << 20
            with pytest.raises(OperationalError, match="no answer within 3 s"):
                await slow_one


async def test_reasons_are_those_of_the_system(tmp_path: Path) -> None:
    """A port that nobody listens on, one without TLS, and a certificate that nobody vouches for."""
    authority = Authority(tmp_path)
    runner = web.AppRunner(web.Application())
    await runner.setup()
    sock = socket.create_server(("127.0.0.1", 0))
    context = authority.server(authority.issue("broker")).value
    await web.SockSite(runner, sock, ssl_context=context).start()
    async with a_pulsar(1) as pulsar:
        for url, said in (
            ("http://127.0.0.1:1", "Connection refused"),
            (pulsar.url().replace("http", "https"), "is this a port for https?"),
            (f"https://127.0.0.1:{sock.getsockname()[1]}", "its certificate is not trusted"),
        ):
            async with PulsarClient(PulsarSettings(urls=(url,))) as client:
                with pytest.raises(OperationalError) as failed:
                    await client.get("/admin/v2/brokers")
            assert said in str(failed.value)
            assert "ssl:" not in str(failed.value)
    await runner.cleanup()


async def test_a_broker_that_hangs_costs_its_time_only() -> None:
    """The next one is asked."""
    async with a_pulsar(2) as pulsar:
        listening = pulsar.servers[pulsar.brokers[0]]
        await listening.cleanup()
        settings = PulsarSettings(urls=(pulsar.url(0), pulsar.url(1)), timeout_s=5)
        async with PulsarClient(settings) as client:
            assert await client.json("/admin/v2/brokers") == pulsar.brokers


@pytest.mark.parametrize(
    "url", ["", "broker:8080", "ftp://x:1", "http://user:pw@host:1", "http://h:1/admin", "http://"]
)
def test_addresses_that_are_refused(url: str) -> None:
    """Before anything is sent."""
    with pytest.raises(ConfigError):
        PulsarClient(PulsarSettings(urls=(url,)))


def test_a_secret_that_cannot_be_read_is_told_at_the_start(tmp_path: Path) -> None:
    """Not with the first request."""
    os.mkfifo(tmp_path / "pipe")
    for name, why in (("none", "No such file"), ("pipe", "not a regular file")):
        settings = PulsarSettings(urls=("http://h:1",), token_file=str(tmp_path / name))
        with pytest.raises(OperationalError, match=f"cannot be read: {why}"):
            PulsarClient(settings)


async def test_policies_of_a_namespace_that_is_new(tmp_path: Path) -> None:
    """They are read with the reading that shows it; those of the others are not read again."""
    async with watching(tmp_path, settings={"mode": "advise"}) as daemon:
        daemon.pulsar.groups[NAMESPACE] = "g1"
        owners = dict(daemon.pulsar.owners)
        daemon.pulsar.owners.clear()
        await daemon.work.read()
        assert daemon.work.picture.missing(60) is None
        assert daemon.work.picture.groups == {}
        daemon.pulsar.owners.update(owners)
        daemon.pulsar.nonsense["/antiAffinity"] = failed
        await daemon.work.read()
        assert "policies of acme/shop" in str(daemon.work.hold.reason())
        daemon.pulsar.nonsense.clear()
        await daemon.work.read()
        assert daemon.work.hold.reason() is None
        assert daemon.work.picture.groups == {NAMESPACE: "g1"}
        await daemon.work.read()
        assert (
            sum(line.endswith("/antiAffinity") for line in daemon.pulsar.log) == 1 + 3
        )  # a failed one is asked of every broker


async def test_bundles_that_change_with_each_reading_are_bounded(tmp_path: Path) -> None:
    """Those that nobody reports any more are forgotten, also where nothing is decided."""
    async with watching(tmp_path, (16, 0)) as daemon:
        daemon.work.watching.bundles_max = 40
        view, one = daemon.work.load_manager.cluster.view, daemon.pulsar.brokers[0]
        for number in range(4):
            bundles = [f"acme/n{number}/{span}" for span in RANGES]
            daemon.pulsar.owners = dict.fromkeys(bundles, one)
            daemon.pulsar.rates = dict.fromkeys(bundles, 1.0)
            daemon.clock.pass_s(30)
            await daemon.work.read()
            assert len(view.bundle_data) <= 40
        assert "more than 40 bundles" in daemon.work.picture.problems[one]
        daemon.clock.pass_s(15 * 60)
        await daemon.work.read()
        await daemon.work.read()
        assert one not in daemon.work.picture.problems
        assert set(daemon.work.picture.reports[one].last_stats) == set(bundles)


@pytest.mark.parametrize(
    ("seeds", "url", "trusted"),
    [
        (("https://a:1",), "https://b:2", True),
        (("https://a:1",), "http://b:2", False),
        (("https://a:1",), "http://a:1", False),
        (("http://c:3", "https://a:1"), "http://b:2", False),
        (("http://c:3", "https://a:1"), "http://c:3", True),
        (("http://a:1",), "http://b:2", True),
        (("http://a:1",), "http://stranger:2", False),
    ],
)
def test_who_gets_the_credentials(seeds: tuple[str, ...], url: str, *, trusted: bool) -> None:
    """Brokers that the cluster lists, and never without TLS where a seed has it."""
    client = PulsarClient(conf.parse("east", {"pulsar": ",".join(seeds)}).pulsar)
    client.learn(["b:2"])
    assert client._trusts(url) is trusted
