"""The page in a real browser over a change of leader, and without any: on real brokers."""

from __future__ import annotations

import os
import re
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from broker.admin.serving import serving
from broker.admin.test_archive import in_folder, recorded_in, written
from browser.chromium import CHROMIUM, Page, browser
from clusters.running import until
from clusters.standalone import Cluster, wait_for
from system.workload import client

from loadmanager.engine.history.members import MemberChange
from loadmanager.engine.history.records import BundleLoad
from loadmanager.kit.system.clock import SystemClock

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine"),
]
V1 = "/loadmanager/v1"
FIRST, SECOND = "acme/orders/0x00000000_0x40000000", "acme/orders/0x40000000_0x80000000"
RECORDED = "the map is what the brokers recorded"


@contextmanager
def busy(folder: Path, *, restart: bool = False) -> Iterator[Cluster]:
    """Two brokers, and a client that publishes to topics of both."""
    settings = {
        "loadBalancerReportUpdateMinIntervalMillis": "500",
        "statsUpdateFrequencyInSecs": "1",
        "loadManagerHistoryIntervalSeconds": "1",
    }
    with Cluster(
        folder, brokers=2, settings=settings, session_ms=8_000, restart=restart
    ) as running:
        stop = threading.Event()
        thread = threading.Thread(target=_publish, args=(running.service_url(), stop))
        thread.start()
        try:
            yield running
        finally:
            stop.set()
            thread.join()


def _publish(url: str, stop: threading.Event) -> None:
    connected = client(url)
    names = [f"persistent://public/default/shown-{number}" for number in range(12)]
    producers = [connected.create_producer(name) for name in names]
    while not stop.wait(0.05):
        for producer in producers:
            producer.send_async(b"x" * 1000, lambda _result, _id: None)
    connected.close()


def asks(page: Page) -> set[str]:
    """What the archives were asked about heat; each broker gets the same question."""
    heats = (re.search(r"archive/heat\?(since=\d+)", url) for url in page.requests)
    return {it[1] for it in heats if it}


async def test_the_heat_goes_on_into_earlier_terms(tmp_path: Path) -> None:
    """The leader dies under an open page: the map keeps what was before, which the archives are
    asked for a few times at most. Another visitor sees the same. What became of the lost broker is
    told with the same figures at a time gone by.
    """
    with busy(tmp_path, restart=True) as cluster:
        leader = cluster.leader()
        asked = f"http://{cluster.broker_id(1 - leader)}/ui"
        async with browser() as page:
            await page.size(1200, 800)
            await page.go(asked)
            await page.wait("document.querySelectorAll('#heat-rows .row').length >= 2")
            wait_for(lambda: all(_recorded(cluster, index) for index in range(2)), "records")
            assert len(asks(page)) <= 3
            page.requests.clear()
            cluster.kill(leader)
            other = cluster.broker_id(1 - leader)
            await page.wait_text(f"{other} began to lead at", "#heat", 120)
            await page.wait_text(RECORDED, "#heat")
            await page.wait_text("new leader", "#heat .legend")
            assert 1 <= len(asks(page)) <= 3
            await page.wait_text("the broker is back after", ".lately", 120)
            live = _return_of(await page.text(".lately"))
            await page.go(f"{asked}?again")
            await page.wait_text(f"{other} began to lead at", "#heat")
            await page.wait_text(RECORDED, "#heat")
            moment = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
            await page.go(f"{asked}?at={moment}&last=600")
            await page.wait_text("the broker is back after", ".lately")
            assert _return_of(await page.text(".lately")) == live
            await page.wait_text(f"{other} began to lead at", "#heat")


CHOOSE_A_TIME = """(() => {
    const slider = document.querySelector(".timebar #time");
    slider.value = 990;
    slider.dispatchEvent(new Event("change", { bubbles: true }));
})()"""


def _recorded(cluster: Cluster, index: int) -> list[str]:
    """The bundles whose traffic a broker has recorded."""
    until = SystemClock().now_ms()
    question = f"heat?since={until - 600_000}&until={until}"
    return [it["bundle"] for it in cluster.get(index, f"{V1}/archive/{question}")["bundles"]]


def _return_of(text: str) -> str:
    """How long a lost broker was away."""
    (away,) = re.findall(r"the broker is back after ([^,]+),", text)
    return str(away)


async def test_a_page_that_is_opened_while_the_metadata_store_is_away(tmp_path: Path) -> None:
    """It shows the brokers as the one that is asked had seen them last, as of then; what the
    archives have of a time before; and the cluster once the store answers again.
    """
    with busy(tmp_path) as cluster:
        wait_for(
            lambda: _have_reported(*cluster.request(0, "GET", f"{V1}/cluster")),
            "both brokers have reported",
        )
        wait_for(lambda: all(_recorded(cluster, index) for index in range(2)), "records")
        moment = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        leader = cluster.broker_id(cluster.leader())
        os.kill(cluster.process.pid, signal.SIGSTOP)
        try:
            wait_for(
                lambda: cluster.request(0, "GET", f"{V1}/cluster")[0] == 503, "nobody leads", 120
            )
            async with browser() as page:
                await page.size(1200, 800)
                await page.go(f"http://{cluster.broker_id(0)}/ui")
                await page.wait_text("the metadata store (ZooKeeper) does not answer", ".trouble")
                await page.wait_text("Brokers as of before", "#last-seen")
                shown = await page.text("#last-seen")
                assert "with the last answer of the metadata store: who is there" in shown
                assert f"{leader} led, term 1." in shown
                for index in range(2):
                    assert cluster.broker_id(index) in shown
                assert shown.count("reported at") == 2
                await page.value(CHOOSE_A_TIME)
                await page.wait_text("what the brokers recorded", ".past-note")
                await page.wait("!document.querySelector('.trouble')")
                await page.go(f"http://{cluster.broker_id(0)}/ui?at={moment}&last=60")
                await page.wait("document.querySelectorAll('.broker.active').length === 2")
                await page.wait_text(f"{leader} led", ".top")
                assert not await page.value("!!document.querySelector('.trouble')")
                await page.click(".timebar button", "Now")
                await page.wait_text("Brokers as of before", "#last-seen")
                os.kill(cluster.process.pid, signal.SIGCONT)
                await page.wait("document.querySelectorAll('.broker.active').length === 2", 120)
                assert not await page.value("!!document.querySelector('#last-seen')")
        finally:
            os.kill(cluster.process.pid, signal.SIGCONT)


def _have_reported(status: int, body: Any) -> bool:
    """Whether there is a leader, and it has reports of both brokers."""
    return status == 200 and [bool(it["bundles"]) for it in body["brokers"]] == [True, True]


async def test_a_loss_of_then_is_told_as_its_leader_told_it(tmp_path: Path) -> None:
    """Its times are of what happened; the records of it came some time later."""
    now = SystemClock().now_ms()
    left = now - 60_000
    async with serving(values=in_folder(tmp_path)) as served, browser() as page:
        other = served.broker_id(1)

        def change(ago: int, event: str, **more: object) -> MemberChange:
            return MemberChange(ts=left + ago, broker=other, of="b9:8080", event=event, **more)

        await written(
            served,
            0,
            change(5_000, "left", how="lost", left_at=left, unheard_ms=13_000, bundles=2),
            change(5_001, "sign", how="did not answer"),
            change(5_302, "placed", took_ms=301),
            change(5_305, "back", took_ms=302, same_process=False),
        )
        await page.size(1200, 800)
        moment = datetime.fromtimestamp((left + 20_000) / 1000, UTC).isoformat()
        await page.go(f"{served.url()}/ui?at={moment.replace('+00:00', 'Z')}&last=60")
        await page.wait_text("b9:8080 lost 20 s ago (", ".lately")
        shown = await page.text(".lately")
        assert "up to 8.0 s after its last sign; asked then, it did not answer" in shown
        assert (
            "2 bundles placed after 301 ms at most; the broker is back after 302 ms, restarted"
            in shown
        )
        assert await page.value("document.querySelector('.lately time').title")
        assert not page.errors


async def test_recorded_heat_joins_that_of_the_term(tmp_path: Path) -> None:
    """Also of bundles that are no more, which are told from those that have an owner."""
    now = SystemClock().now_ms()
    async with serving(values=in_folder(tmp_path)) as served, browser() as page:
        first = served.broker_id(0)
        loads = [
            BundleLoad(
                ts=now - ago,
                broker=first,
                interval_ms=60_000,
                bundle=bundle,
                msg_throughput_in=1_000.0,
            )
            for ago in (120_000, 60_000, 1)
            for bundle in (FIRST, SECOND)
        ]
        await written(served, 0, *loads)
        await served.own(FIRST, at=1)
        await page.size(1200, 800)
        await page.go(f"{served.url()}/ui")
        await page.wait_text("00–40", "#heat")
        await until(lambda: any("/archive/heat" in url for url in page.requests))
        assert RECORDED not in await page.text("#heat")  # the brokers began with the term
        recorded_in(tmp_path, [(1, now - 600_000, now)])
        await page.go(f"{served.url()}/ui?again")
        await page.wait_text(RECORDED, "#heat")
        await page.wait("document.querySelectorAll('#heat-rows .row').length === 2")
        axis = "document.querySelector('#heat .axis')?.innerText ?? ''"
        await page.wait(f"/[23] min( \\d+ s)? ago/.test({axis})")
        ended = "[...document.querySelectorAll('#heat .ended b')].map((it) => it.innerText).join()"
        await page.wait(f"{ended} === '40–80'")
        assert await page.text("#heat .about") == "1"
        assert not page.errors


async def test_nothing_would_be_lost_with_a_broker_that_has_nothing() -> None:
    """Drained, say: what was computed before that is not shown any more."""
    async with serving(2) as served, browser() as page:
        await served.own(FIRST, at=1)
        await served.brokers[1].measure()
        await page.size(1200, 800)
        await page.go(f"{served.url()}/ui#broker={served.broker_id(1)}")
        await page.wait_text("1 bundle to", "aside")
        assert "If it were lost" in await page.text("aside dl")
        await served.brokers[1].use.orders.release(FIRST, None, epoch=1)
        await page.wait_text("It has none.", "aside")
        assert "If it were lost" not in await page.text("aside dl")
