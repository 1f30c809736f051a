"""The page in a real browser, on real brokers that serve stock clients."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from broker.admin.serving import ORDERS, serving
from broker.admin.test_admin_leading import FIRST, HALVES, SECOND, hot_broker
from broker.admin.test_archive import a_decision, ended_in, in_folder, recorded_in, written
from broker.admin.test_findings_shown import flap
from browser.chromium import CHROMIUM, Page, browser
from cli.test_admin_command import Shell
from clusters.running import eventually, until
from clusters.standalone import Cluster, wait_for
from kit.security.tokens import ADMIN, VALUES, token, verifier
from msgspec import structs
from steer.fake_pulsar import a_pulsar
from system.proxy import Proxy
from system.workload import client

from bench.page import Made
from loadmanager.engine.history.archived import RESOURCES
from loadmanager.engine.history.clients import CLOSED_HERE, ClientStep
from loadmanager.engine.history.findings import FindingStep
from loadmanager.engine.history.members import MemberChange
from loadmanager.engine.history.records import AuditedChange, BrokerLoad, BundleLoad, OwnershipStep
from loadmanager.engine.load.reports import ResourceUsage
from loadmanager.kit.names import TopicName
from loadmanager.kit.system.clock import SystemClock
from loadmanager.kit.tasks import Scope
from loadmanager.leader.findings import TermFindings
from loadmanager.leader.http.page import PageRoutes
from loadmanager.steer.clusters import FleetClusters
from loadmanager.steer.compose import ClusterDaemon
from loadmanager.steer.options import FleetOptions
from loadmanager.steer.settings_file import parse

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine"),
]
TOPIC = "persistent://public/default/shown"
V1 = "/loadmanager/v1"
PLACED = "one of 3 equally good brokers"
LATER = "the only broker that could be chosen"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two brokers, and a client that publishes to one topic."""
    settings = {
        "metadataStoreSessionTimeoutMillis": "8000",
        "loadBalancerReportUpdateMinIntervalMillis": "500",
        "statsUpdateFrequencyInSecs": "1",
        "loadBalancerSheddingIntervalMinutes": "0.05",
        "loadManagerHistoryIntervalSeconds": "1",
    }
    folder = tmp_path_factory.mktemp("browser")
    with Cluster(folder, brokers=2, settings=settings) as running:
        stop = threading.Event()
        thread = threading.Thread(target=_publish, args=(running.service_url(), stop))
        thread.start()
        yield running
        stop.set()
        thread.join()


def _publish(url: str, stop: threading.Event) -> None:
    connected = client(url)
    producer = connected.create_producer(TOPIC)
    while not stop.wait(0.02):
        producer.send_async(b"x" * 1000, lambda _result, _id: None)
    connected.close()


def bundle_of(cluster: Cluster) -> dict[str, Any]:
    """The one bundle with its owner, once it is reported."""

    def reported() -> Any:
        status, told = cluster.request(0, "GET", f"{V1}/bundles")
        bundles = told["bundles"] if status == 200 else []
        return bundles[0] if bundles and bundles[0]["rate"] else None

    return dict(wait_for(reported, "the bundle is reported"))


async def until_focused(page: Page, text: str) -> None:
    """Press Tab until an element with this text has the focus."""
    for _ in range(30):
        await page.key("Tab")
        if await page.value("document.activeElement.innerText") == text:
            return
    raise AssertionError(f"{text} cannot be reached by Tab")


async def test_what_it_shows_and_does(cluster: Cluster) -> None:
    """Bars, heat, decisions; a story; a move by mouse, a pause and another move by keyboard.
    Nothing is asked of another host, nothing goes wrong, and a phone shows all of it.
    """
    bundle = bundle_of(cluster)
    leader = wait_for(lambda: _leader(cluster), "there is a leader")
    asked = next(i for i in range(2) if cluster.broker_id(i) != leader)
    async with browser() as page:
        await page.size(1200, 800)
        await page.go(f"http://{cluster.broker_id(asked)}/")
        await page.wait("document.querySelectorAll('.broker').length === 2")
        await page.wait_text("leader", "#brokers")
        await page.wait_text("public/default", "#heat")
        await page.wait_text("moved nothing", "#decisions")
        await page.wait_text("No limit held anybody", "#throttled")

        await page.click("#heat-rows .row")
        await page.wait_text(bundle["owner"], "aside")
        await page.click("aside button", "Move…")
        await page.wait_text("gives it up", "dialog[open]")
        await page.click("dialog button", "Move it")
        await page.wait_text("moved to", ".toast")
        other = next(i for i in range(2) if cluster.broker_id(i) != bundle["owner"])
        await page.wait_text(f"{cluster.broker_id(other)} for", "aside")
        await page.wait_text("1 client waited", "#moves")
        await page.key("Escape")
        await page.wait("!document.querySelector('aside')")

        await page.key("p")
        await page.wait_text("No queued move begins", "dialog[open]")
        await until_focused(page, "Pause")
        await page.key("Enter")
        await page.wait_text("Moves are paused until", ".summary")
        await page.key("h")
        await page.key("Enter")
        await page.wait_text(cluster.broker_id(other), "aside")
        await until_focused(page, "Move…")
        await page.key("Enter")
        await page.wait_text("gives it up", "dialog[open]")
        await until_focused(page, "Move it")
        await page.key("Enter")
        await page.wait_text(f"moved to {bundle['owner']}", ".toast")
        await page.key("?")
        await page.wait_text("Keys", "dialog[open]")
        await page.key("Escape")
        await page.wait("!document.querySelector('dialog')")
        await page.key("p")
        await page.wait_text("Resume moves", "dialog[open]")
        await until_focused(page, "Resume")
        await page.key("Enter")
        await page.wait("!document.querySelector('.summary').innerText.includes('paused')")

        await page.key("r")
        await page.wait_text("would move nothing now", "dialog[open]")
        await page.key("Escape")
        await page.wait("!document.querySelector('dialog')")
        await page.size(400, 800, dark=True)
        for _ in range(2):  # with and without the story
            assert await page.value("document.documentElement.scrollWidth <= innerWidth")
            await page.key("Escape")
        assert page.errors == []
        host = cluster.broker_id(asked)
        assert {url.split("/")[2] for url in page.requests} == {host}


def _leader(cluster: Cluster) -> Any:
    status, told = cluster.request(0, "GET", f"{V1}/cluster")
    return told["leader"]["broker"] if status == 200 else None


async def test_a_time_gone_by(cluster: Cluster) -> None:
    """The slider shows what the brokers recorded, of all of them, also after the broker that is
    asked was not the one that recorded it; nothing can be changed then. The address has the time.
    """
    bundle = bundle_of(cluster)["bundle"]

    def is_recorded() -> bool:
        path = f"{V1}/archive/series?kind=bundle_load&name={bundle}"
        return any(
            len(cluster.request(index, "GET", path)[1].get("points", [])) >= 15
            for index in range(2)
        )

    wait_for(is_recorded, "the load of the bundle is recorded")
    async with browser() as page:
        await page.size(1200, 800)
        await page.go(f"http://{cluster.broker_id(0)}/ui")
        await page.wait_text("now", ".timebar output")
        await page.wait_text("Pause…", "#moves")
        await page.key("a")
        for _ in range(2):  # 3.6 s each
            await page.key("ArrowLeft")
        await page.wait_text("what the brokers recorded", ".past-note")
        await page.wait_text("UTC", ".live")  # it has been read
        await page.wait("document.querySelectorAll('.broker.active').length === 2")
        await page.wait("document.querySelectorAll('#heat-rows .row').length === 1")
        assert "UTC" in await page.value("document.querySelector('.timebar output').title")
        assert "Pause…" not in await page.text("#moves")
        assert "What would move?" not in await page.text(".top")
        address = await page.value("location.search")
        assert address.startswith("?at=20")
        await page.click("#heat-rows .row")
        await page.wait_text("As of", "aside")
        await page.wait_text("1 producer, 0 consumers", "aside dl")
        assert "127.0.0.1" in await page.text("aside dl")
        assert "Move…" not in await page.text("aside")
        await page.click("aside dl button")  # its owner
        await page.wait_text("Its bundles, the hottest first", "aside")
        await page.wait_text("msg/s", "aside .list")
        assert "Cordon…" not in await page.text("aside")

        await page.go(f"http://{cluster.broker_id(1)}/ui{address}")  # as somebody else opens it
        await page.wait_text("what the brokers recorded", ".past-note")
        await page.wait("document.querySelectorAll('.broker.active').length === 2")
        await page.go(f"http://{cluster.broker_id(0)}/ui#client=127.0.0.1")
        await page.wait_text("is served by", "aside .lines")
        await page.go(f"http://{cluster.broker_id(1)}/ui?at=2020-01-01T00:00:00Z&last=60")
        await page.wait_text("The records of this cluster begin at", ".past-note")
        await page.wait_text("Nothing is recorded of then", ".summary")
        await page.wait_text("No broker is recorded of then.", "#brokers")
        assert await page.value("document.querySelector('.past-note .problem time').title")
        await page.click(".timebar button", "Now")
        await page.wait_text("Pause…", "#moves")
        assert await page.value("location.search") == ""
        assert not page.errors


async def test_a_visitor_must_prove_who_he_is() -> None:
    """The page asks for a token, refuses a wrong one, and keeps the right one in its tab only."""
    async with (
        serving(1, values=VALUES, verifier=verifier(), token=token(ADMIN)) as served,
        browser() as page,
    ):
        await page.go(served.url() + "/ui")
        await page.wait_text("Who are you?")
        await page.wait_text("at the daemon of a fleet, others may read, too")
        for given, shown in ((token("stranger"), "may not see"), (token(ADMIN), "Bundles")):
            await page.value(f"document.querySelector('input').value = {given!r}")
            await page.click("button", "Use it")
            await page.wait_text(shown)
        assert await page.value("JSON.stringify(localStorage) + document.cookie") == "{}"


async def test_what_operators_click() -> None:
    """A sealed plan is carried out; a bundle is unloaded and split; a broker is cordoned, drained
    and uncordoned: on the page of a broker that passes all of it on, and the stream of events, too.
    """
    shedder = {"loadBalancerLoadSheddingStrategy": "OverloadShedder"}
    async with hot_broker(shedder) as served, browser() as page:
        hot, idle = served.broker_id(1), served.broker_id(0)
        await page.size(1200, 800)
        await page.go(f"http://{hot}/ui")
        await page.wait("document.querySelectorAll('.broker').length === 2")
        await page.click(".top button", "What would move?")
        await page.wait_text("as OverloadShedder would", "dialog[open]")
        words = await page.text("dialog .table")
        assert "Overloaded: its broker uses" in words
        assert "in all are to leave" in words
        await page.click("dialog button", "Carry out this plan")
        await page.wait_text("queued", ".toast")
        await until(lambda: idle in served.owners().values())
        await page.wait_text("moved", "#decisions")

        owned = served.owners()
        for bundle, owner in owned.items():
            at = served.brokers.index(
                next(b for b in served.brokers if b.address.broker_id == owner)
            )
            await served.open_two_topics(bundle.rpartition("/")[2], at=at)
        for button, confirm, said in (
            ("Unload…", "Unload it", "was unloaded"),
            ("Split…", "Split it", "was split"),
        ):
            await page.click("#heat-rows .row")
            await page.click("aside button", button)
            await page.click("dialog button", confirm)
            await page.wait_text(said, ".toast")
            await page.key("Escape")
            await served.own(*(owned.keys() - served.owners().keys() if "Unload" in button else ()))
        await until(lambda: len(served.owners()) == len(owned) + 1)

        await _on_broker(page, hot, "Cordon…", "Cordon it", "cordoned")
        await _on_broker(page, hot, "Drain…", "Drain it", "drained")
        assert hot not in served.owners().values()
        await _on_broker(page, hot, "Uncordon…", "Uncordon it", "")
        assert page.errors == []
        assert f"http://{hot}{V1}/events" in page.requests


async def test_a_goal_is_seen_before_it_is_approved() -> None:
    """The curve of its plan, with its limits and its note; and what a broker uses by the model,
    beside what its sensors show.
    """
    async with hot_broker() as served, browser() as page:
        hot = served.broker_id(1)
        hours = {"moves": 40, "windows": ["Mon-Sun 00:00-00:00"]}
        even = {"kind": "even", "withinPoints": 5}
        goal = {"goal": even, "limits": hours, "note": "before the sale"}
        status, proposed = await served.call("POST", f"{V1}/goals", goal)
        assert status == 200, proposed
        await page.size(1200, 800)
        await page.go(f"http://{hot}/ui")
        await page.wait_text("it takes about", ".goals")
        for told in ("at most 40 moves", "moves only in Mon-Sun", "note: before the sale"):
            await page.wait_text(told, ".goals")
        await page.click(".goals button", "Approve…")
        for told in ("At most 40 moves.", "Moves only in Mon-Sun", "Note: before the sale."):
            await page.wait_text(told, "dialog")
        await page.wait_text("before", "dialog .curve")
        await page.wait_text("after 1 move. The model may be", "dialog .curve")
        assert await page.value("document.querySelector('dialog .curve path').getAttribute('d')")
        await page.click("dialog button", "Approve")
        await page.wait_text("is approved", ".toast")
        idle = served.broker_id(0)
        await until(lambda: idle in served.owners().values())
        await page.wait_text("points off)", "#decisions")
        await served.brokers[0].operations.overview.load_manager.shed()  # type: ignore[attr-defined]
        await page.click("#broker-rows .name", hot)
        await page.wait_text("By the model", "aside")
        await page.wait_text("±", "aside")
        assert page.errors == []


async def test_the_story_of_a_bundle_that_was_split() -> None:
    """A click on its row in the heat map tells what it was split into, and why, as links; those of
    a bundle that has just moved are not shown as zeros.
    """
    topics = {"loadBalancerNamespaceBundleMaxTopics": "1"}
    async with hot_broker(topics) as served, browser() as page:
        idle = served.broker_id(0)
        await served.open_two_topics(FIRST.rpartition("/")[2], at=1)
        await served.brokers[1].measure()
        await page.size(1200, 800)
        await page.go(f"http://{idle}/ui")
        await page.wait_text("00–40", "#heat-rows")
        manager = served.brokers[0].operations.overview.load_manager  # type: ignore[attr-defined]

        async def has_split() -> Any:
            await manager.split()
            return [one for one in manager.records.decisions.last(100) if one.kind == "split"]

        await eventually(has_split, bool)
        row = "#heat-rows .ended"
        await page.wait(f"document.querySelector({row!r})")
        await page.click(row)
        await page.wait_text("it was split into", "aside")
        await page.wait_text("was split on", "aside")
        await page.wait_text("Topics: topics 3, limit 1", "aside")
        await until(lambda: not any(f"acme/orders/{half}" in served.owners() for half in HALVES))
        await served.own(f"acme/orders/{HALVES[0]}")
        await page.click("aside .list button", "00–20")
        await page.wait_text("0x00000000_0x20000000", "aside .mono")
        await page.wait_text("not reported yet", "aside")
        assert "0 topics" not in await page.text("aside")
        assert page.errors == []


async def test_whatever_has_a_name_is_found_and_has_an_address() -> None:
    """A topic leads to its bundle, a part of a name to a broker; what is open is in the address,
    which a reload and the way back follow.
    """
    async with hot_broker() as served, browser() as page:
        home = f"http://{served.broker_id(0)}/ui"
        await page.size(1200, 800)
        await page.go(home)
        await page.wait_text("acme/orders", "#heat")
        await page.click(".top button", "Find…")
        await page.command("Input.insertText", text="acme/orders/t1")
        await page.wait_text("persistent://acme/orders/t1", "#found [aria-selected=true]")
        await page.key("Enter")
        await page.wait_text("acme/orders", "aside")
        bundle = await page.value("decodeURI(location.hash)")
        assert bundle.startswith("#bundle=acme/orders/0x")
        await page.go(f"{home}{bundle}")
        await page.command("Page.reload")
        await page.wait_text(bundle.rpartition("/")[2], "aside .mono")
        await page.key("f")
        await page.command("Input.insertText", text=served.broker_id(1))
        await page.wait_text(served.broker_id(1), "#found [aria-selected=true]")
        await page.key("Enter")
        await page.wait_text(served.broker_id(1), "aside h2")
        await page.value("history.back()")
        await page.wait_text(bundle.rpartition("/")[2], "aside .mono")
        await page.key("Escape")
        await page.wait("location.hash === ''")
        await page.key("f")
        await page.command("Input.insertText", text="no/such/topic")
        await page.wait_text("no/such", ".find [role=status]")
        await page.key("Escape")
        await page.wait("!document.querySelector('dialog')")
        (busy, *_) = (await served.get("/loadmanager/v1/busiest-topics"))["brokers"][
            served.broker_id(1)
        ]
        await page.key("f")
        await page.command("Input.insertText", text=busy["topic"].rpartition("/")[2])
        await page.wait_text(busy["topic"], "#found")
        await page.key("Escape")
        await page.wait("!document.querySelector('dialog')")
        await served.ask("PUT", "/admin/v2/namespaces/acme/idle", {"bundles": {"numBundles": 2}})
        await page.key("f")
        await page.command("Input.insertText", text="acme/idle")
        await page.wait_text("acme/idle/0x80000000_0xffffffff", "#found")
        await page.key("Escape")
        await page.wait("!document.querySelector('dialog')")
        # the browser's own word on the namespace that is not there
        assert [error for error in page.errors if "404" not in error] == []


async def test_what_a_lost_broker_had(tmp_path: Path) -> None:
    """At a time gone by after it was lost: its bundles, and where each was served next."""
    then = SystemClock().now_ms() - 600_000
    async with serving(values=in_folder(tmp_path)) as served, browser() as page:
        lost, other = served.broker_id(0), served.broker_id(1)
        load = {"ts": then - 9_000, "broker": lost, "interval_ms": 60_000, "msg_rate_in": 7.0}
        owned = {"before": "Opening", "after": "Owned", "reason": "lookup"}
        members = [
            MemberChange(ts=then - 5_000, broker=other, of=lost, event="left", how="lost"),
            OwnershipStep(ts=then - 2_000, broker=other, bundle=FIRST, **owned),
        ]
        await written(served, 0, *(BundleLoad(bundle=each, **load) for each in (FIRST, SECOND)))
        await written(served, 1, *members)
        await page.size(1200, 800)
        moment = datetime.fromtimestamp((then + 1_000) / 1000, UTC).isoformat()
        at = moment.replace("+00:00", "Z")
        await page.go(f"{served.url()}/ui?at={at}&last=60#broker={lost}")
        await page.wait_text("What it had when it left at", "aside")
        await page.wait_text(f"at {other} after 3.0 s", "aside")
        await page.wait_text("by nobody in the ten minutes after", "aside")
        assert not page.errors


async def test_which_bundles_of_a_lost_broker_had_owners_then(tmp_path: Path) -> None:
    """By the records of owners: a leader records that they are served once all are, and its
    finding outlasts its term.
    """
    lost_ms = SystemClock().now_ms() // 1_000 * 1_000 - 900_000
    async with serving(values=in_folder(tmp_path)) as served, browser() as page:
        lost, other = served.broker_id(0), served.broker_id(1)
        used = {name: ResourceUsage() for name in RESOURCES}
        owned = {"before": "Opening", "after": "Owned", "reason": "authoritative lookup"}
        left = {"of": lost, "event": "left", "how": "lost", "bundles": 2, "unheard_ms": 6_190}
        back = {"of": lost, "event": "back", "took_ms": 6_188}
        found = FindingStep(
            ts=lost_ms + 20_000, broker=other, epoch=1, event="began", what="unserved",
            about=lost, since=lost_ms, title=f"1 bundle has no owner since {lost} was lost",
        )  # fmt: skip
        await written(
            served, 0,
            *(OwnershipStep(ts=lost_ms - 50_000, broker=lost, bundle=each, **owned)
              for each in (FIRST, SECOND)),
        )  # fmt: skip
        await written(
            served, 1,
            MemberChange(ts=lost_ms - 60_000, broker=other, of=other, event="leads", epoch=1),
            MemberChange(ts=lost_ms + 190, broker=other, left_at=lost_ms, **left),
            OwnershipStep(ts=lost_ms + 500, broker=other, bundle=FIRST, **owned),
            MemberChange(ts=lost_ms + 6_188, broker=other, **back),
            found,
            OwnershipStep(ts=lost_ms + 70_000, broker=other, bundle=SECOND, **owned),
            MemberChange(ts=lost_ms + 95_000, broker=other, of=other, event="leads", epoch=2),
            *(BrokerLoad(ts=lost_ms + each, broker=other, interval_ms=60_000, usage=0.1, **used)
              for each in (30_000, 90_000, 150_000)),
        )  # fmt: skip
        await page.size(1200, 800)

        async def go(after_ms: int) -> None:
            moment = datetime.fromtimestamp((lost_ms + after_ms) / 1000, UTC).isoformat()
            await page.go("about:blank")
            await page.go(f"{served.url()}/ui?at={moment.replace('+00:00', 'Z')}")

        await go(19_000)
        await page.wait_text(f"1 bundle of {lost}, which was lost, had no owner", ".status")
        await page.wait_text("2 bundles, 1 without an owner until the next lookup", ".lately")
        await go(100_000)
        await page.wait_text("2 bundles placed after 70 s", ".lately")
        assert "owner" not in await page.text(".summary .status")
        assert not await page.value("!!document.querySelector('#findings')")
        assert not page.errors


async def test_what_was_recorded_after_an_outage_is_not_of_a_moment_within(
    tmp_path: Path,
) -> None:
    """It has nothing, or what came at once when it was over; the load of another broker, which the
    outage did not concern, is shown.
    """
    begun = SystemClock().now_ms() // 1_000 * 1_000 - 900_000
    async with serving(values=in_folder(tmp_path)) as served, browser() as page:
        names = [served.broker_id(index) for index in range(2)]
        used = {name: ResourceUsage() for name in RESOURCES}
        load = {"interval_ms": 60_000, "usage": 0.1, **used}
        outage = {"event": "proven", "took_ms": 47_094, "unheard_ms": 5_023}
        for index, broker in enumerate(names):
            own = {"broker": broker, "of": broker}
            await written(
                served, index,
                *(BrokerLoad(ts=begun + at, broker=broker, msg_rate_in=rate, **load)
                  for at, rate in ((0, 50.0), (60_000, 2_774.9 if index else 70.0))),
                *(BundleLoad(ts=begun + at, broker=broker, interval_ms=60_000, bundle=FIRST)
                  for at in (0, 60_000) if index),
                *([MemberChange(ts=begun + 57_000, **own, **outage)] if index else []),
            )  # fmt: skip
        recorded_in(tmp_path, [(1, begun - 300_000, begun + 800_000)])
        await page.size(1200, 800)
        moment = datetime.fromtimestamp((begun + 20_000) / 1000, UTC).isoformat()
        await page.go(f"{served.url()}/ui?at={moment.replace('+00:00', 'Z')}&last=600")
        await page.wait_text(f"What {names[1]} carried then is not known: an outage", ".past-note")
        shown = "[...document.querySelectorAll('.broker.active')].map((it) => it.innerText).join()"
        await page.wait(f"{shown}.includes('– msg/s')")
        await page.wait_text("≥ 70", ".summary")
        await page.wait_text("(1 not counted)", ".summary")
        await page.wait_text(f"Without what {names[1]} carried then", "#heat")
        assert await page.value("document.querySelectorAll('.broker .bar.unknown').length") == 1
        unknown = "not known: an outage or standstill lies between then and the next record"
        for panel, head in ((f"bundle={FIRST}", "Bundle of"), (f"broker={names[1]}", names[1])):
            await page.value(f"(location.hash = {panel!r}, true)")
            await page.wait_text(head, "aside")
            await page.wait_text(unknown, "aside")
            assert "0 msg/s" not in await page.text("aside")
        assert not page.errors


async def test_a_broker_that_was_dead_then_is_not_counted(tmp_path: Path) -> None:
    """Though nobody recorded that it was lost, and it had recorded a load shortly before."""
    now = SystemClock().now_ms()
    at = now - 1_200_000
    async with serving(values=in_folder(tmp_path)) as served, browser() as page:
        names = [served.broker_id(index) for index in range(2)]
        used = {name: ResourceUsage() for name in RESOURCES}
        for index, broker in enumerate(names):
            load = {"ts": at - 60_000, "broker": broker, "interval_ms": 60_000, "usage": 0.5}
            await written(served, index, BrokerLoad(**load, **used))
        recorded_in(tmp_path, [(1, at - 300_000, now)])
        await page.size(1200, 800)
        moment = datetime.fromtimestamp(at / 1000, UTC).isoformat().replace("+00:00", "Z")
        await page.go(f"{served.url()}/ui?at={moment}&last=600")
        await page.wait("document.querySelectorAll('.broker.active').length === 2")
        ended_in(tmp_path, names[1], at - 30_000)
        await page.go(f"{served.url()}/ui?at={moment}&last=601")
        await page.wait("document.querySelectorAll('.broker.active').length === 1")
        await page.wait_text(f"{names[1]} recorded nothing then", ".past-note")
        assert not page.errors


async def test_what_the_archives_add(tmp_path: Path) -> None:
    """Decisions and changes of before the leader's term and the brokers began; and who led at a
    time gone by, with who had just been lost.
    """
    now = SystemClock().now_ms()
    async with serving(values=in_folder(tmp_path)) as served, browser() as page:
        lost, other = served.broker_id(0), served.broker_id(1)
        early, then = now - 50 * 3_600_000, now - 600_000
        placed = structs.replace(
            a_decision(early, "place", bundle=FIRST, destination=lost, ids=["0-3"], reason=PLACED),
            epoch=0,
        )
        made = AuditedChange(
            ts=early, broker=lost, role="deploy", address="c", over="http", what="PUT made"
        )
        used = {name: ResourceUsage() for name in RESOURCES}
        loads = [
            BrokerLoad(ts=then, broker=name, interval_ms=60_000, usage=0.5, **used)
            for name in (lost, other)
        ]
        members = [
            MemberChange(ts=then - 9_000, broker=lost, of=lost, event="leads", epoch=8),
            MemberChange(
                ts=then - 5_000, broker=other, of=lost, event="left", how="lost", bundles=1
            ),
            MemberChange(ts=then - 4_000, broker=other, of=lost, event="back", same_process=False),
            MemberChange(ts=then - 3_000, broker=other, of=other, event="leads", epoch=9),
        ]
        late = structs.replace(made, ts=SystemClock().now_ms(), what="DELETE made later")
        took = OwnershipStep(
            ts=then + 500, broker=other, bundle=SECOND, before="Opening", after="Owned",
            reason="lookup",
        )  # fmt: skip
        await written(served, 0, placed, made, late, *loads[:1])
        await written(served, 1, *members, *loads[1:], took)
        await served.own(FIRST, at=0)
        newest = structs.replace(
            placed, ts=SystemClock().now_ms() + 1, bundle=SECOND, ids=["0-4"], reason=LATER
        )
        await written(served, 1, newest)  # after this term began, by a broker that knew it not yet
        await page.size(1200, 800)
        await page.go(served.url() + "/ui")
        await page.wait_text("placed on", "#decisions")
        await page.wait_text(PLACED, "#decisions")
        await page.wait_text(LATER, "#decisions .entries li")  # the first one
        await page.wait_text("PUT made", "#changes")
        await page.wait_text("DELETE made later", "#changes")  # before a restart, after others
        await page.go(f"{served.url()}/ui?last=3600#bundle={FIRST}")  # another document
        await page.wait_text("acme/orders", "aside")
        await page.wait_text("In earlier terms", "aside")
        await page.wait_text(": what was before is not recorded.", "aside")
        await page.key("Escape")
        await page.key("f")
        await page.command("Input.insertText", text="0-3")
        await page.wait_text("place of", "#found [aria-selected=true]")
        await page.key("Enter")
        await page.wait_text("In earlier terms", "aside")
        moment = datetime.fromtimestamp((then + 1_000) / 1000, UTC).isoformat()
        await page.go(f"{served.url()}/ui?at={moment.replace('+00:00', 'Z')}")
        await page.wait_text(f"{other} led", ".top")
        assert "BROKERS\n2\n" in (await page.text(".summary")).upper() + "\n"
        assert (
            "BUNDLES\n1\n" in (await page.text(".summary")).upper() + "\n"
        )  # taken since the load
        await page.wait_text(f"{lost} lost 6.0 s ago (", ".lately")
        wanted = "), its session ended without a word; 1 bundle, 1 without an owner until the next"
        await page.wait_text(wanted, ".lately")
        await page.wait_text("1 bundle of", ".summary .status")
        early_on = datetime.fromtimestamp((early + 1_000) / 1000, UTC).isoformat()
        await page.go(f"{served.url()}/ui?at={early_on.replace('+00:00', 'Z')}")
        await page.wait_text(PLACED, "#decisions")
        link = f"{served.url()}/ui?at={moment.replace('+00:00', 'Z')}&last=60#bundle={FIRST}"
        await page.go(link)  # the time and what is open, both
        await page.wait_text("As of", "aside")
        await page.wait_text("What had been decided about it", "aside")
        assert not page.errors


async def test_who_was_refused_and_who_could_not_prove_a_session(tmp_path: Path) -> None:
    """What `find --refused` and `status` say of the last hour; and what clients went through."""
    now = SystemClock().now_ms()
    async with serving(values=in_folder(tmp_path)) as served, browser() as page:
        first = served.broker_id(0)
        lapse = MemberChange(ts=now - 9_000, broker=first, of=first, event="proven", took_ms=4_000)
        lost, earlier = (
            MemberChange(ts=now - ago, broker=first, of="b9:8080", event="left", how="lost")
            for ago in (9_000, 20_000)
        )
        turned_away = ClientStep(
            ts=now - 8_000, broker=first, event="refused", what="producer", name="p", times=3,
            client="10.0.0.9:1", address="10.0.0.9", topic=f"persistent://{FIRST}",
            reason="no such topic", code="TopicNotFound",
        )  # fmt: skip
        freeze = MemberChange(
            ts=now - 90_000, broker=first, of=first, event="stood", took_ms=5_000, clients=2
        )
        late = MemberChange(ts=now - 89_900, broker=first, of=first, event="proven", took_ms=100)
        silence = MemberChange(
            ts=now - 300_000, broker=first, of=first, event="proven", took_ms=40_000,
            unheard_ms=22_000,
        )  # fmt: skip
        await written(served, 0, lapse, earlier, lost, turned_away, freeze, late, silence)
        other = served.broker_id(1)
        begun = MemberChange(
            ts=now - 180_000, broker=other, of=other, event="unanswered", unheard_ms=4_000
        )
        short = MemberChange(
            ts=now - 400_000, broker=other, of=other, event="proven", took_ms=0, unheard_ms=9_000
        )
        await written(served, 1, short, begun)
        await page.size(1200, 800)
        await page.go(served.url() + "/ui")
        no_answer = f"{other} had no answer of the metadata store"
        await page.wait_text(f"at least {no_answer}: no record tells how that ended.", ".lately")
        await page.click(".lately .more button")
        await page.wait_text(f"(4.0 s) {first} could not prove its session", ".lately")
        await page.wait_text(f"(5.1 s) {first} stood still: frozen, or without a CPU.", ".lately")
        away = f"(62 s) at most {first} had no answer of the metadata store: its session was not"
        await page.wait_text(away, ".lately")
        short_of = f"(9.0 s) at most {no_answer}: its session stayed proven."
        await page.wait_text(short_of, ".lately")
        moment = datetime.fromtimestamp((now - 60_000) / 1000, UTC).isoformat()
        await page.go(f"{served.url()}/ui?at={moment.replace('+00:00', 'Z')}&last=60")
        await page.wait_text(f"(5.1 s) {first} stood still: frozen, or without a CPU.", ".lately")
        await page.wait_text("and 1 more: show them", ".lately")  # the loss was after that
        assert await page.value("document.querySelectorAll('.lately > li').length") == 4
        await page.go(served.url() + "/ui")
        losses = "2 losses of 1 broker, 1 standstill of brokers"
        today = f"{losses}, 2 interruptions of clients, as leaders counted, longest 5.0 s"
        await page.wait_text(today, "#moves")
        await page.click("#throttled summary")
        await page.wait_text("3 refusals in the last hour", "#throttled")
        await page.wait_text("was refused by", "#throttled")
        await page.wait_text("no such topic (TopicNotFound, 3 times)", "#throttled")
        assert not page.errors


async def test_clients_of_a_lost_broker_count_while_they_are_waited_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Their record comes once all are back, or ten minutes later; the line does not wait for it.
    The command line says the same.
    """
    async with serving(2, values=in_folder(tmp_path)) as served, browser() as page:
        losing, lost = served.brokers[1], served.broker_id(1)
        topic = TopicName("persistent", ORDERS, "some")
        await losing.serve(topic)
        client = await served.cluster.connect(await losing.listen())
        await client.produce(topic)
        await losing.measure()
        reports = served.brokers[0].use.brokers.reports
        await until(
            lambda: any(it.producer_count for it in reports[lost].last_stats.values()), within_s=60
        )
        await page.size(1200, 800)
        await page.go(served.url() + "/ui")
        await page.wait_text("Brokers", ".summary")
        await served.servers[1].stop()
        losing.store.suspend()
        losing.store.expire()
        wanted = "1 broker lost, 1 interruption of clients, 1 of them not seen to be back"
        await page.wait_text(wanted, "#moves")
        assert wanted in (await Shell(served, capsys).run("status"))[1]


async def test_clients_of_a_move_that_came_back_after_the_leader_had_counted(
    tmp_path: Path,
) -> None:
    """They are back: by their own records, which the leader's count of the move does not have."""
    async with serving(values=in_folder(tmp_path)) as served, browser() as page:
        a, b = (served.broker_id(index) for index in range(2))
        begun = SystemClock().now_ms() - 100_000
        move = structs.replace(
            a_decision(
                begun + 750, "move", bundle=FIRST, source=a, destination=b, move="0-m1",
                author="operator", state="done", outcome="moved", owner=b, reason="Operator",
                started_at=begun, ended_at=begun + 750,
                clients_closed=2, clients_back=1, clients_within_ms=64_000,
            ),
            epoch=0,
        )  # fmt: skip

        def step(at_ms: int, broker: str, event: str, name: str, reason: str = "") -> ClientStep:
            return ClientStep(
                ts=begun + at_ms, broker=broker, event=event, what="producer", name=name,
                client="10.0.0.1:5", address="10.0.0.1", topic="persistent://acme/orders/a",
                bundle=FIRST, reason=reason, messages=5 if reason else None,
            )  # fmt: skip

        before = [
            *(step(-9_000, a, "attached", name) for name in ("p1", "p2")),
            *(step(60, a, "left", name, CLOSED_HERE) for name in ("p1", "p2")),
        ]
        await written(served, 0, move, *before)
        await written(served, 1, step(300, b, "attached", "p1"))
        recorded_in(tmp_path, [(1, begun - 300_000, begun + 100_000)])
        await page.size(1200, 800)
        await page.go(served.url() + "/ui")
        await page.wait_text("only 1 of 2 clients back within 64 s", "#moves")
        await page.wait("document.querySelectorAll('#moves .move-row.missing').length === 1")
        await written(served, 1, step(25_060, b, "attached", "p2"))
        await page.go("about:blank")
        await page.go(served.url() + "/ui")
        await page.wait_text("2 of 2 clients back, the last after 25 s", "#moves")
        await page.wait("document.querySelectorAll('#moves .move-row.missing').length === 0")
        await page.wait("!document.querySelector('#moves select')")
        assert "only 1 of 2" not in await page.text("body")
        assert not page.errors


async def test_that_the_whole_cluster_was_down(tmp_path: Path) -> None:
    """It is said of the last day, whatever time is shown; and whether all had stopped in order."""
    now, minute = SystemClock().now_ms(), 60_000
    begin, end = now - 300 * minute, now - 280 * minute
    async with serving(values=in_folder(tmp_path)) as served, browser() as page:
        first = served.broker_id(0)
        step = a_decision(begin - minute, "place", bundle=FIRST, destination=first)
        stopped = begin - 50 * minute
        for index in range(2):
            of = {"broker": served.broker_id(index), "of": served.broker_id(index)}
            await written(
                served, index,
                MemberChange(ts=stopped - 100, event="stops", **of),
                MemberChange(ts=begin - minute + 500, event="starts", **of),
                MemberChange(ts=end + 500, event="starts", **of),
            )  # fmt: skip
        await written(served, 0, step)
        recorded_in(
            tmp_path,
            [
                (100, stopped - 10 * minute, stopped),
                (101, begin - minute, begin),
                (102, end, now - 100 * minute),
            ],
        )
        await page.size(1200, 800)
        await page.go(served.url() + "/ui")
        await page.wait_text("at the earliest to", ".lately")
        await page.wait_text("for 20 min at most: no broker recorded anything.", ".lately")
        await page.wait_text("for 49 min: all brokers had stopped in order.", ".lately")
        for at, why in ((begin, "no broker recorded anything"), (stopped, "all brokers had stop")):
            moment = datetime.fromtimestamp(at / 1000 + 300, UTC).isoformat()
            await page.go(f"{served.url()}/ui?at={moment.replace('+00:00', 'Z')}&last=60")
            await page.wait_text(why, ".summary")
        moment = datetime.fromtimestamp(now / 1000 - 3_000, UTC).isoformat()
        await page.go(f"{served.url()}/ui?at={moment.replace('+00:00', 'Z')}&last=60")
        await page.wait_text("the last record before is of", ".summary")
        assert not page.errors


async def test_what_the_leader_finds_wrong(tmp_path: Path) -> None:
    """Nothing is shown where nothing is wrong; a card comes by itself, and opens. It is there when
    the moment of the look is shown, and not before.
    """
    async with serving(1, values=in_folder(tmp_path)) as served, browser() as page:
        await page.go(served.url() + "/ui")
        await page.wait_text("Bundles")
        assert not await page.value("!!document.querySelector('.findings')")
        findings = served.brokers[0].use.leading.findings
        assert isinstance(findings, TermFindings)
        flap(findings)
        await findings.step()
        await page.wait_text("moved back and forth", "#findings summary")
        await page.wait_text("; as of ", "#findings summary")
        await page.click("#findings summary")
        await page.wait_text("loadmanager admin decisions --bundle", "#findings li")
        looked = findings.shown().looked_at
        assert looked is not None
        made = AuditedChange(
            ts=looked - 1_000, broker="b", role="deploy", address="c", over="http", what="PUT made"
        )
        await written(served, 0, made)
        for at, shown in ((looked - 1, False), (looked, True)):
            moment = datetime.fromtimestamp(at / 1000, UTC).isoformat().replace("+00:00", "Z")
            await page.go("about:blank")
            await page.go(f"{served.url()}/ui?at={moment}")
            await page.wait_text("PUT made", "#changes")
            assert await page.value("!!document.querySelector('#findings')") is shown, at
        assert page.errors == []


async def test_questions_and_keys_are_open_at_once() -> None:
    """A key that is pressed as soon as they are there finds them open."""
    async with serving(1) as served, browser() as page:
        await page.go(served.url() + "/ui")
        await page.wait_text("Brokers", ".summary")
        for key in ("?", "p"):
            opened = await page.value(
                f"""new Promise((found) => {{
                  new MutationObserver((_, observer) => {{
                    const dialog = document.querySelector("dialog");
                    if (!dialog) return;
                    observer.disconnect();
                    found(dialog.open);
                  }}).observe(document.body, {{ childList: true, subtree: true }});
                  const pressed = new KeyboardEvent("keydown", {{ key: {key!r}, bubbles: true }});
                  document.body.dispatchEvent(pressed);
                }})"""
            )
            assert opened is True, key
            await page.key("Escape")
            await page.wait("!document.querySelector('dialog')")


async def test_other_pages_are_linked_where_they_can_be_reached() -> None:
    """At the address that its broker advertises, the page leads to those of the others, also once
    that broker is gone; behind a forwarded port, to none.
    """
    button = "[...document.querySelectorAll('aside a')].map((it) => it.href).join()"
    async with serving(2) as served, browser() as page:
        with Proxy(int(served.url(1).rpartition(":")[2])) as port:
            forwarded = f"http://127.0.0.1:{port.port}"
            for url, links in ((served.url(1), f"{served.url(0)}/ui"), (forwarded, "")):
                await page.go(f"{url}/ui#broker={served.broker_id(0)}")
                await page.wait_text("Its bundles", "aside")
                assert await page.value(button) == links
            await page.go("about:blank")
        await served.own(FIRST, at=0)
        await page.go(f"{served.url(1)}/ui?lost#broker={served.broker_id(0)}")  # another document
        await page.wait_text(f"1 bundle to {served.broker_id(1)}", "aside")  # if it were lost
        await page.go(f"{served.url(1)}/ui#broker={served.broker_id(0)}")
        await page.wait_text("Its bundles", "aside")
        await served.servers[1].stop()
        await page.wait_text("does not answer", ".trouble")
        anchors = "[...document.querySelectorAll('.trouble a')].map((it) => it.href).join()"
        assert await page.value(anchors) == f"{served.url(0)}/ui"


async def test_the_figures_stand_in_one_line() -> None:
    """On a phone, below the headline; on a wide screen, beside it."""
    places = """({
      headline: document.querySelector(".summary .status").getBoundingClientRect().bottom,
      tiles: [...document.querySelectorAll(".summary .tile")].map(
        (it) => it.getBoundingClientRect().top),
    })"""
    async with serving(1) as served, browser() as page:
        for width, below in ((400, True), (1200, False)):
            await page.size(width, 800)
            await page.go(served.url() + "/ui")
            await page.wait_text("Brokers", ".summary")
            found = await page.value(places)  # at once: the headline changes
            assert (len(found["tiles"]), len(set(found["tiles"]))) == (5, 1), width
            assert (found["tiles"][0] >= round(found["headline"])) is below, width
            assert await page.value("document.documentElement.scrollWidth <= innerWidth")


async def test_room_is_given_to_what_is_there() -> None:
    """Of a hundred brokers the fullest come first, and all are seen at a glance; of three, the list
    is no higher than its rows. Where nothing was decided and nobody changed anything, there is no
    more than a line.
    """
    async with browser() as page:
        for brokers, bundles, cells, low, high in (
            (100, 9_999, 100, 300, 600),
            (3, 4, 0, 100, 300),
        ):
            async with made(Made(brokers, bundles)) as url:
                await page.size(1440, 900)
                await page.go(f"{url}/ui")
                await page.wait("document.querySelectorAll('.broker').length > 2")
                assert await page.value("document.querySelectorAll('.cells i').length") == cells
                height = await page.value("document.querySelector('#brokers').offsetHeight")
                assert low < height < high
                if brokers == 100:  # the heat has what the cards below it leave
                    ends = "document.querySelector('.column + .column').lastElementChild"
                    below = f"innerHeight - {ends}.getBoundingClientRect().bottom"
                    assert await page.value(below) < 20
                for name in ("decisions", "moves", "throttled"):
                    height = await page.value(f"document.querySelector('#{name}').offsetHeight")
                    assert 60 < height < 110
                figures = "[...document.querySelectorAll('.broker .strong')]"
                texts = await page.value(f"{figures}.map((it) => parseInt(it.innerText))")
                assert all(first >= second - 5 for first, second in pairwise(texts))


class Told(Made):
    """A made-up cluster that does not answer for a while, and what is told of it."""

    def __init__(self) -> None:
        super().__init__(3, 4)
        self.answers = asyncio.Event()
        self.answers.set()
        self.usage, self.absent, self.findings = 0.3, list[dict[str, Any]](), list[str]()
        self.moves, self.goals = list[dict[str, Any]](), list[dict[str, Any]]()

    def cluster(self) -> dict[str, Any]:
        """Brokers with this usage, and those that left."""
        told = super().cluster()
        brokers = [{**each, "usage": self.usage} for each in told["brokers"]]
        return {**told, "absent": self.absent, "brokers": brokers, "expected": 0}

    async def answer(self, request: web.Request) -> web.Response:
        """Once it answers again."""
        await self.answers.wait()
        if request.match_info["what"] != "findings":
            return await super().answer(request)
        about = {"kind": "hot", "about": "x", "since": 0, "text": "", "advice": "", "command": None}
        return web.json_response({"findings": [{**about, "title": it} for it in self.findings]})

    def documents(self) -> dict[str, Callable[[], Any]]:
        """With its moves and goals."""
        queue = {"paused": None, "waiting": 0, "running": 0}
        return {
            **super().documents(),
            "moves": lambda: {**queue, "moves": self.moves},
            "goals": lambda: {"goals": self.goals},
        }

    def move(self, *, closed: int, back: int) -> None:
        """A bundle moved, and so many of its clients came back."""
        now_ms = int(time.time_ns() / 1e6)
        counted = {"clientsClosed": closed, "clientsBack": back, "clientsWithinMs": 7_500}
        self.moves.append(
            {
                "id": f"1-m{len(self.moves)}",
                "bundle": "a/b/0x00000000_0x80000000",
                "source": "broker-1",
                "destination": "broker-2",
                "reason": "Operator",
                "why": {},
                "author": "operator",
                "state": "done",
                "createdAt": now_ms - 6_000,
                "endedAt": now_ms - 5_000,
                "outcome": {"text": "", "pauseMs": 25, **counted},
            }
        )

    def lose(self, number: int, *, back: bool = False) -> None:
        """A broker had two bundles and four clients, of which one is back."""
        now_ms = int(time.time_ns() / 1e6)
        self.absent.append(
            {
                "broker": f"lost-{number}:8080",
                "how": "lost",
                "leftAt": now_ms - 60_000,
                "backAt": now_ms - 9_000 if back else None,
                "bundles": 2,
                "placed": 2 if back else 1,
                "placedAt": now_ms - 30_000,
                "clients": 4,
                "clientsBack": 1,
                "sign": "",
            }
        )


async def test_a_broker_that_is_silent_is_told() -> None:
    """Frozen, say: what the page shows is said to be old at once, and then that nobody answers."""
    cluster = Told()
    async with browser() as page, made(cluster) as url:
        await page.go(f"{url}/ui")
        await page.wait("document.querySelectorAll('.broker').length > 2")
        await page.wait("!document.querySelector('.top').innerText.includes('as of')")
        cluster.answers.clear()
        await page.wait_text("as of", ".top")
        await page.wait_text("does not answer", ".trouble")
        cluster.answers.set()
        await page.wait("!document.querySelector('.trouble')")
        await page.wait("!document.querySelector('.top').innerText.includes('as of')")


async def test_three_lines_of_what_was_lost_lately_are_shown() -> None:
    """The newest, whatever it was; a button shows the others."""
    cluster = Told()
    for number in range(5):
        cluster.lose(number, back=True)
        cluster.absent[-1]["backAt"] += number * 1_000
    lines = "document.querySelectorAll('.lately > li:not(:has(.more))').length"
    async with browser() as page, made(cluster) as url:
        await page.go(f"{url}/ui")
        await page.wait_text("and 2 more: show them", ".lately")
        assert await page.value(lines) == 3
        assert "lost-4:8080" in await page.text(".lately li")
        await page.click(".lately button", "show them")
        await page.wait(f"{lines} === 5")
        assert not await page.value("!!document.querySelector('.lately button')")


async def test_a_time_that_cannot_be_shown() -> None:
    """The page says why it shows the present, and its address is that of the present."""
    async with browser() as page, made(Told()) as url:
        for at, why in (("3030-01-01T00:00:00Z", "is in the future"), ("yesterday", "is no time")):
            await page.go(f"{url}/ui?at={at}")
            await page.wait_text(f"{at} {why}. This is now.", ".past-note")
            assert await page.value("location.search") == ""
        await page.go(f"{url}/ui?at=2020-06-01T00:00:00Z")
        await page.wait_text("1 Jun 2020, ", ".past-note")


def an_ended_goal(code: str, text: str) -> dict[str, Any]:
    """A broker was to be emptied, and has bundles some minutes after the order has ended."""
    now_ms = int(time.time_ns() / 1e6)
    return {
        "id": "1-g1",
        "goal": {"kind": "emptied", "broker": "broker-1"},
        "state": "ended",
        "promise": {"curve": [{"moves": 3, "farthest": 0.0}], "later": None},
        "progress": {"arrived": 3, "farthest": 0.0},
        "ended": {"code": code, "text": text},
        "endedMs": now_ms - 300_000,
        "afterwards": {"atMs": now_ms, "farthest": 0.029, "reached": False},
    }


async def test_a_goal_that_was_never_reached_is_not_called_so_no_longer() -> None:
    """An operator stopped it; and its last figures are not those of now."""
    cluster = Told()
    cluster.goals.append(an_ended_goal("Stopped", "by an operator"))
    async with browser() as page, made(cluster) as url:
        await page.go(f"{url}/ui")
        await page.wait_text("; Stopped: by an operator", "#moves .goal")
        shown = await page.text("#moves .goal")
        assert "no longer" not in shown
        assert "when last looked at 0.0 points" in shown


async def test_a_goal_that_was_reached_and_is_not_any_more() -> None:
    """A broker that was drained and got bundles again: both are told, and when each was so."""
    cluster = Told()
    cluster.goals.append(an_ended_goal("Reached", "the goal is reached"))
    async with browser() as page, made(cluster) as url:
        await page.go(f"{url}/ui")
        await page.wait_text("; Reached: the goal is reached; no longer so at ", "#moves .goal")
        shown = await page.text("#moves .goal")
        assert "not reached" not in shown
        assert "points from the mean" not in shown


async def test_the_first_line_tells_what_is_wrong() -> None:
    """The worst of what is seen; that nothing moves is no comfort then."""
    cluster = Told()
    level = "document.querySelector('.status').className"
    async with browser() as page, made(cluster) as url:
        await page.go(f"{url}/ui")
        await page.wait_text("BalancedShedder has run 9 cycles in this term", ".status")
        assert await page.value(level) == "status ok"
        cluster.usage = 1.7
        await page.wait_text("broker-0.pulsar.svc:8080 uses 170", ".status")
        assert await page.value(level) == "status warn"
        cluster.findings = ["m3 is throttled", "m4 is hot"]
        await page.go(f"{url}/ui?again")
        await page.wait_text("m3 is throttled, and 1 other finding.", ".status")
        cluster.move(closed=6, back=0)
        cluster.move(closed=2, back=1)
        await page.wait_text("a/b 00–80 moved to broker-2", ".status")
        more = ": none of 6 clients back within 7.5 s; nor are all clients of 1 other move back."
        await page.wait_text(more, ".status")
        assert await page.value(level) == "status warn"
        cluster.lose(1, back=True)
        await page.wait_text("Only 1 of 4 clients of lost-1:8080, which was lost, are", ".status")
        assert await page.value(level) == "status warn"
        cluster.lose(2)
        await page.wait_text("lost-2:8080 lost", ".status")
        cluster.lose(3)
        await page.wait_text("2 brokers are lost: lost-2:8080", ".status")
        await page.wait_text("they had 4 bundles, 2 without an owner", ".status")
        await page.wait_text("lost-3:8080 lost", ".lately")
        assert await page.value(level) == "status bad"


@contextlib.asynccontextmanager
async def made(cluster: Made) -> AsyncIterator[str]:
    """The page of a cluster that is made up."""
    application = web.Application()
    application.router.add_routes(PageRoutes().routes())
    application.router.add_get("/loadmanager/v1/{what}", cluster.answer)
    runner = web.AppRunner(application)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def _on_broker(page: Page, broker: str, button: str, confirm: str, chip: str) -> None:
    await page.click("#broker-rows .name", broker)
    await page.click("aside button", button)
    await page.click("dialog button", confirm)
    await page.wait("!document.querySelector('dialog')")
    await page.key("Escape")
    shown = "[...document.querySelectorAll('#brokers .chip')].map((it) => it.innerText)"
    states = f"{shown}.filter((text) => text !== 'leader').join()"
    await page.wait(f"{states} === {chip!r}")


async def test_the_broker_of_the_page_dies(cluster: Cluster, tmp_path: Path) -> None:
    """The page says so, keeps what it knew, names the others, and goes on when there is an answer
    again. Here the other broker dies, too, as its leader.
    """
    async with browser() as page:
        await page.go(f"http://{cluster.broker_id(0)}/ui")
        await page.wait("document.querySelectorAll('.broker').length === 2")
        cluster.kill(1)
        await page.wait_text("lost", "#brokers")
        await page.wait_text("it owned no bundle", ".summary")
        cluster.kill(0)
        await page.wait_text("does not answer", ".trouble")
        await page.wait_text("What you see is of", ".trouble")
        assert await page.value("document.querySelectorAll('.broker').length") == 2


async def test_the_clusters_of_a_daemon(tmp_path: Path) -> None:
    """Each cluster's page shows all of them, the worst first, and leads to theirs. What a daemon
    has not is not asked for.
    """
    together, urls = FleetClusters(), []
    async with a_pulsar(2) as pulsar, Scope("test") as scope, browser() as page:
        pulsar.spread([14, 2])
        with contextlib.ExitStack() as stack:
            for name, url in (("east", pulsar.url()), ("west", "http://127.0.0.1:1")):
                given = {"pulsar": url, "mode": "advise", "readIntervalSeconds": "1"}
                daemon = ClusterDaemon(
                    parse(name, given), FleetOptions(tmp_path), port=0, together=together
                )
                daemon.listen(stack)
                scope.spawn(daemon.run(), name)
                urls.append(f"http://127.0.0.1:{daemon.port}/ui")
            await until(lambda: all(each.work for each in together.standings), 60)
            await page.go(urls[0])
            await page.wait("document.querySelectorAll('.broker').length === 2")
            await page.wait("document.querySelectorAll('.clusters li').length === 2")
            await page.wait_text("2 brokers", ".clusters [aria-current] + .small")
            first = await page.value("document.querySelector('.clusters li').innerText")
            assert first.startswith("west")
            assert await page.value("document.querySelector('.clusters a').href") == urls[1]
            assert not await page.value("document.querySelector('#heat')")
            assert page.errors == []
            scope.cancel()
