"""Reading a cluster over HTTP: whatever it answers, the view says what is known and how old."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from aiohttp import web
from fleet.fake_pulsar import NAMESPACE, a_pulsar
from fleet.watched import watching

from loadmanager.adapters.pulsar_admin.client import PulsarClient
from loadmanager.adapters.pulsar_admin.settings import PulsarSettings
from loadmanager.core.errors import ConfigError, OperationalError


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


async def test_only_reads_are_sent_while_observing(tmp_path: Path) -> None:
    """Neither observing nor advising changes anything."""
    async with watching(tmp_path, settings={"mode": "advise"}) as daemon:
        for _ in range(3):
            daemon.clock.pass_s(60)
            await daemon.cycle()
        assert {line.partition(" ")[0] for line in daemon.pulsar.log} == {"GET"}
        assert not any("lookup" in line for line in daemon.pulsar.log)
        assert daemon.work.advice.document()["plan"]["unloads"]


async def test_a_token_is_read_again_and_does_not_leave_the_cluster(tmp_path: Path) -> None:
    """A redirect to a host that the cluster does not list gets no credentials."""
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
        assert seen == [None, None, None]


def _html(_request: web.Request) -> web.Response:
    return web.Response(text="<html>Bad gateway</html>", content_type="text/html")


def _nothing(_request: web.Request) -> web.Response:
    return web.Response(text="")


def _loop(request: web.Request) -> web.Response:
    return web.Response(status=307, headers={"Location": str(request.url)})


def _elsewhere(_request: web.Request) -> web.Response:
    return web.Response(status=307, headers={"Location": "file:///etc/passwd"})


def _bracket(_request: web.Request) -> web.Response:
    return web.Response(status=307, headers={"Location": "http://[x]/"})


def _failed(_request: web.Request) -> web.Response:
    return web.json_response({"reason": "no"}, status=500)


@pytest.mark.parametrize("nonsense", [_html, _nothing, _loop, _elsewhere, _bracket, _failed])
@pytest.mark.parametrize(
    "where",
    ["/brokers", "/load-report", "/runtime", "/namespaceIsolationPolicies", "/antiAffinity"],
)
async def test_nonsense_moves_nothing(tmp_path: Path, where: str, nonsense: object) -> None:
    """What cannot be read stays unknown, is named, and keeps every decision away."""
    async with watching(tmp_path, settings={"mode": "act"}) as daemon:
        daemon.pulsar.settings["loadBalancerSheddingEnabled"] = "false"
        daemon.pulsar.settings["loadBalancerAutoBundleSplitEnabled"] = "false"
        daemon.pulsar.nonsense[where] = nonsense  # type: ignore[assignment]
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
        assert picture.document()["brokers"][dead]["ageSeconds"] == 90
        plan = daemon.work.advice.plan
        assert plan is not None
        assert plan.unloads
        assert dead not in {move.destination for move in plan.unloads}
        assert any(skip.what == dead and "StaleReport" in skip.reason for skip in plan.skipped)
        daemon.pulsar.brokers.remove(dead)
        await daemon.cycle()
        assert dead not in picture.reports


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
    settings = PulsarSettings(urls=("http://h:1",), token_file=str(tmp_path / "none"))
    with pytest.raises(OperationalError, match="cannot be read"):
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
        daemon.pulsar.nonsense["/antiAffinity"] = _failed
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
