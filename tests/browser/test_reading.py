"""The page while it reads a time gone by, and what it shows of one that is recorded."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from broker.admin.serving import ORDERS, Served, serving
from broker.admin.test_archive import ended_in, in_folder, recorded_in, written
from browser.chromium import CHROMIUM, Page, browser
from cli.test_past import UNUSED, forget_file

from loadmanager.engine.history.members import MemberChange
from loadmanager.engine.history.records import BrokerLoad, BundleLoad
from loadmanager.kit.history.archive_file import GAPS
from loadmanager.kit.system.clock import SystemClock

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine"),
]
MINUTE = 60_000
HOLD_ARCHIVES = """(() => {
  const real = window.fetch;
  const free = new Promise((go) => { window.letGo = go; });
  window.fetch = async (url, ...more) => {
    if (String(url).includes("/archive")) await free;
    return real(url, ...more);
  };
  return true;
})()"""


def _lacks_in(folder: Path, broker: str, begin_ms: int, end_ms: int) -> None:
    """Have a broker's archive say that it lacks records of a time."""
    (path,) = folder.rglob(f"*{broker.rpartition(':')[2]}.sqlite")
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(GAPS)
        db.execute("INSERT INTO gap VALUES(?, ?, 'the disk is full')", (begin_ms, end_ms))


def when_of(at_ms: int) -> str:
    """A time as the page's address has it."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat().replace("+00:00", "Z")


async def test_nothing_of_now_is_shown_as_of_then(tmp_path: Path) -> None:
    """While archives are asked, neither brokers nor who leads; and nothing of then once it is now
    again.
    """
    now = SystemClock().now_ms()
    async with serving(2, values=in_folder(tmp_path)) as served, browser() as page:
        names = [served.broker_id(index) for index in range(2)]
        load = BrokerLoad(
            ts=now - 9 * MINUTE, broker=names[1], interval_ms=MINUTE, usage=0.5, **UNUSED
        )
        await written(served, 1, load)
        recorded_in(tmp_path, [(1, now - 30 * MINUTE, now)])
        await page.size(1200, 800)
        await page.go(served.url() + "/ui")
        await page.wait_text(names[0], "#brokers")
        await page.wait_text("leads since", ".top")
        await page.value(HOLD_ARCHIVES)
        await page.key("a")
        await page.key("ArrowLeft")
        await page.wait_text("Reading what was then.", ".summary")
        shown = await page.text("main") + await page.text(".top")
        assert not [name for name in names if name in shown], shown
        assert "Brokers" not in shown
        assert " led" not in await page.text(".top")
        await page.value("(window.letGo(), true)")
        await page.wait_text("Brokers", ".summary")
        assert "Reading" not in await page.text(".summary")
        await page.click(".timebar button", "Now")
        await page.wait_text("leads since", ".top")
        assert not page.errors


async def stopped_together(served: Served, stop: int, start: int, *, in_order: bool = True) -> None:
    """Brokers that stop in order, or die, and start again, at about one time; the second is the
    leader.
    """
    for index in range(2):
        of: dict[str, Any] = {"broker": served.broker_id(index), "of": served.broker_id(index)}
        load = BrokerLoad(
            ts=stop - 5_000, broker=of["broker"], interval_ms=MINUTE, usage=0.5, **UNUSED
        )
        changes = [
            MemberChange(ts=stop - 9 * MINUTE, event="starts", **of),
            MemberChange(ts=start, event="starts", **of),
        ]
        if in_order:
            changes.insert(1, MemberChange(ts=stop + 100 * index, event="stops", **of))
        if index:
            changes.append(MemberChange(ts=stop - 8 * MINUTE, event="leads", epoch=7, **of))
        await written(served, index, load, *changes)


async def test_a_short_orderly_stop_of_the_whole_cluster(tmp_path: Path) -> None:
    """No broker is shown as there, nor as leader: once all had said so, and once none was there."""
    stop = SystemClock().now_ms() - 20 * MINUTE
    ended, start = stop + 2_000, stop + 6_000
    async with serving(2, values=in_folder(tmp_path)) as served, browser() as page:
        await stopped_together(served, stop, start)
        recorded_in(tmp_path, [(100, stop - 10 * MINUTE, ended), (101, start, start + MINUTE)])

        async def go(at_ms: int, says: str) -> None:
            await page.go(f"{served.url()}/ui?at={when_of(at_ms)}&last=600")
            await page.wait_text(says, ".summary")

        await page.size(1200, 800)
        await go(stop - 2_000, "Brokers")
        await page.wait("document.querySelectorAll('.broker.active').length === 2")
        await page.wait_text(f"{served.broker_id(1)} led", ".top")
        await nobody(page, go(stop + 1_000, "No broker was there: "))
        assert "had stopped in order since" in await page.text(".summary")
        await nobody(page, go(ended + 1_000, "The whole cluster was down, for 4.0 s, until"))
        assert "all brokers had stopped in order." in await page.text(".summary")
        assert not page.errors


async def test_a_short_crash_of_the_whole_cluster(tmp_path: Path) -> None:
    """Each broker starts again after it, so that none lived through it."""
    crash = SystemClock().now_ms() - 20 * MINUTE
    async with serving(2, values=in_folder(tmp_path)) as served, browser() as page:
        await stopped_together(served, crash, crash + 6_000, in_order=False)
        spans = [
            (100, crash - 10 * MINUTE, crash + 2_000),
            (101, crash + 6_000, crash + MINUTE),
        ]
        recorded_in(tmp_path, spans)
        await page.size(1200, 800)
        await page.go(f"{served.url()}/ui?at={when_of(crash + 3_000)}&last=600")
        await page.wait_text("The whole cluster was down, for 4.0 s at most, until", ".summary")
        assert "stopped in order" not in await page.text(".summary")
        assert not await page.value("document.querySelectorAll('.broker.active').length")
        assert not page.errors


async def test_a_crash_of_the_whole_cluster_is_told_first(tmp_path: Path) -> None:
    """Of what is over: later freezes of single brokers do not push it out of the list."""
    crash = SystemClock().now_ms() - 20 * MINUTE
    async with serving(2, values=in_folder(tmp_path)) as served, browser() as page:
        await stopped_together(served, crash, crash + 6_000, in_order=False)
        own: dict[str, Any] = {"broker": served.broker_id(0), "of": served.broker_id(0)}
        freezes = [
            MemberChange(ts=crash + after * MINUTE, event="proven", took_ms=20_000, **own)
            for after in (3, 6, 9, 12)
        ]
        await written(served, 0, *freezes)
        spans = [
            (100, crash - 10 * MINUTE, crash + 2_000),
            (101, crash + 6_000, crash + 18 * MINUTE),
        ]
        recorded_in(tmp_path, spans)
        await page.size(1200, 800)
        await page.go(f"{served.url()}/ui?at={when_of(crash + 15 * MINUTE)}&last=1800")
        await page.wait_text("could not prove its session", ".lately")
        first = "document.querySelector('.lately li').textContent"
        await page.wait(f"{first}.startsWith('The whole cluster was down')")
        assert not page.errors


async def nobody(page: Page, going: Any) -> None:
    """Go to a time at which no broker is there, and none leads."""
    await going
    assert not await page.value("document.querySelectorAll('.broker.active').length")
    assert "who led is not known" in await page.text(".top")


async def test_a_leader_that_could_not_prove_its_session_did_not_lead(tmp_path: Path) -> None:
    """Nor one that was lost, from its last sign on: as `brokers leader --at` says."""
    begun = (SystemClock().now_ms() - 30 * MINUTE) // MINUTE * MINUTE
    lapse, following = begun + 5 * MINUTE, begun + 10 * MINUTE
    sign = following - 30_000
    async with serving(2, values=in_folder(tmp_path)) as served, browser() as page:
        names = [served.broker_id(index) for index in range(2)]
        own: dict[str, Any] = {"broker": names[1], "of": names[1]}
        lost = {"event": "left", "how": "lost", "unheard_ms": 31_000}
        for index, name in enumerate(names):
            load = {"broker": name, "interval_ms": MINUTE, "usage": 0.5, **UNUSED}
            times = range(begun, sign if index else following + MINUTE, MINUTE)
            await written(served, index, *(BrokerLoad(ts=ts, **load) for ts in times))
        await written(
            served, 1,
            MemberChange(ts=begun, event="leads", epoch=7, **own),
            MemberChange(ts=lapse, event="proven", took_ms=20_000, unheard_ms=5_000, **own),
        )  # fmt: skip
        await written(
            served, 0,
            MemberChange(ts=following, broker=names[0], of=names[0], event="leads", epoch=8),
            MemberChange(ts=following + 1_000, broker=names[0], of=names[1], **lost),
        )  # fmt: skip
        recorded_in(tmp_path, [(100, begun - MINUTE, following + 9 * MINUTE)])
        ended_in(tmp_path, names[1], sign)

        async def led(at_ms: int, says: str) -> None:
            await page.go("about:blank")
            await page.go(f"{served.url()}/ui?at={when_of(at_ms)}&last=600")
            await page.wait_text(says, ".top")

        await page.size(1200, 800)
        await led(lapse - 30_000, f"{names[1]} led")
        await led(lapse - 10_000, "who led is not known")
        await led(lapse + 30_000, f"{names[1]} led")
        await led(following - 10_000, "who led is not known")
        await page.wait_text(f"{names[1]} was lost about then: its last sign was at", ".past-note")
        await led(following + 30_000, f"{names[0]} led")
        assert not page.errors


async def test_what_a_broker_recorded_that_does_not_answer_is_not_counted(tmp_path: Path) -> None:
    """It is named at the figures that lack it: in the first line, at the brokers and the heat."""
    at = SystemClock().now_ms() - 600_000
    async with serving(values=in_folder(tmp_path)) as served, browser() as page:
        names = [served.broker_id(index) for index in range(2)]
        bundle = BundleLoad(
            ts=at, broker=names[0], interval_ms=60_000, bundle=f"{ORDERS}/0x00000000_0x40000000"
        )
        load = BrokerLoad(
            ts=at, broker=names[0], interval_ms=60_000, usage=0.5, msg_rate_in=70.0, **UNUSED
        )
        await written(served, 0, bundle, load)
        recorded_in(tmp_path, [(1, at - 300_000, at + 300_000)])
        await served.servers[1].stop()
        forget_file(tmp_path, names[1])
        await page.size(1200, 800)
        await page.go(f"{served.url()}/ui?at={when_of(at)}&last=600")
        await page.wait_text(f"Not counted: {names[1]}, whose archive did not answer", "#brokers")
        await page.wait_text(f"Without what {names[1]} carried then", "#heat")
        await page.wait_text("≥ 70", ".summary")
        lack = "document.querySelector('.timebar .lack')"
        await page.wait(f"{lack}?.offsetWidth > 200")
        assert f"what {names[1]} recorded from" in await page.value(f"{lack}.title")
        tiles = "[...document.querySelectorAll('.tile')].map((it) => it.innerText).join('|')"
        assert "≥ 1" in await page.value(tiles)
        assert "(1 not counted)" in await page.value(tiles)


async def test_the_bar_of_time_shows_when_records_are_missing(tmp_path: Path) -> None:
    """Hatched, with whose they are, from when to when, and why; several at once in one title."""
    now = SystemClock().now_ms()
    async with serving(values=in_folder(tmp_path)) as served, browser() as page:
        names = [served.broker_id(index) for index in range(2)]
        for name, minutes in zip(names, ((50, 30), (40, 20)), strict=True):
            _lacks_in(tmp_path, name, *(now - ago * MINUTE for ago in minutes))
        await page.size(1200, 800)
        await page.go(f"{served.url()}/ui?at={when_of(now - 45 * MINUTE)}&last=600")
        lacks = "[...document.querySelectorAll('.timebar .lack')].map((it) => it.title)"
        await page.wait(f"{lacks}.length === 3")
        first, both, last = await page.value(lacks)
        assert first.startswith(f"{names[0]} did not record all from ")
        assert first.endswith(": the disk is full")
        assert names[1] in last
        assert both.count("\n") == 1
        assert all(name in both for name in names)
        slider = await page.value("document.querySelector('#time').ariaValueText")
        assert f"{names[0]} did not record all" in slider


async def test_how_the_load_of_a_broker_went(tmp_path: Path) -> None:
    """Its usage as it was recorded, in the last hour and before a time gone by."""
    begun = (SystemClock().now_ms() - 30 * MINUTE) // MINUTE * MINUTE
    async with serving(2, values=in_folder(tmp_path)) as served, browser() as page:
        name = served.broker_id(1)
        for number, usage in enumerate((0.25, 0.5, 0.75, 0.5)):
            load = {"broker": name, "interval_ms": MINUTE, "usage": usage, **UNUSED}
            await written(served, 1, BrokerLoad(ts=begun + number * MINUTE, **load))
        recorded_in(tmp_path, [(100, begun - MINUTE, begun + 9 * MINUTE)])
        await page.size(1200, 800)
        await page.go(f"{served.url()}/ui#broker={name}")
        await page.wait_text(
            "in the last 60 min, as shedders see it: at most 75", "aside figcaption"
        )
        before = await page.value("document.querySelector('aside svg path').getAttribute('d')")
        assert before.partition("M")[2].partition("M")[0].count("L") == 7  # one follows the other
        at = begun + MINUTE + 10_000
        await page.go("about:blank")
        await page.go(f"{served.url()}/ui?at={when_of(at)}&last=600#broker={name}")
        await page.wait_text("in the 10 min before, as shedders see it: at most 50", "aside")
        assert not page.errors
