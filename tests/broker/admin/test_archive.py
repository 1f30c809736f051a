"""The routes of archives: each broker answers for its own, and for those beside it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from broker.admin.serving import Served, serving
from clusters.running import until

from loadmanager.engine.history.records import BundleLoad, Decision, OwnershipStep, Throttle
from loadmanager.kit.history.archive import Archive
from loadmanager.kit.system.clock import SystemClock

BUNDLE = "acme/orders/0x00000000_0x40000000"
ROOT = "/loadmanager/v1/archive"
MINUTE = 60_000


def a_decision(ts: int, action: str = "skip", **more: Any) -> Decision:
    """Of an earlier term."""
    return Decision(
        ts=ts,
        broker="b0",
        epoch=1,
        cycle=ts // MINUTE,
        strategy="BalancedShedder",
        action=action,
        **more,
    )


def in_folder(folder: Path) -> dict[str, str]:
    """Settings with which brokers have archives."""
    return {"loadManagerHistoryDirectory": str(folder)}


def archive_of(served: Served, index: int) -> Archive:
    """That of a broker."""
    archive = served.brokers[index].archive
    assert archive is not None
    return archive


async def written(served: Served, index: int, *records: Any) -> None:
    """Records that a broker's archive has."""
    archive = archive_of(served, index)
    before = archive.written
    archive.append(*records)
    await archive.settle()  # else it writes once a second
    await until(lambda: archive.written >= before + len(records), within_s=20)


def recorded_in(folder: Path, runs: list[tuple[int, int, int]]) -> None:
    """Have all archives of a folder say when they were written."""
    for path in folder.rglob("*.sqlite"):
        with closing(sqlite3.connect(path)) as db, db:
            db.execute("DELETE FROM run")
            db.executemany("INSERT INTO run(id, began, ended, dropped) VALUES(?, ?, ?, 0)", runs)


def ended_in(folder: Path, broker: str, at_ms: int) -> None:
    """Have the archive of a broker say that it ended then."""
    (path,) = [it for it in folder.rglob("*.sqlite") if broker.split(":")[1] in str(it)]
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE run SET ended = ?", (at_ms,))


async def test_each_broker_answers_for_its_own(tmp_path: Path) -> None:
    """Events by kind and by what they are about, and loads at a moment and over a time."""
    now = SystemClock().now_ms()
    async with serving(values=in_folder(tmp_path)) as served:
        step = OwnershipStep(
            ts=now, broker="b0", bundle=BUNDLE, before="Free", after="Owned", reason="r"
        )
        load = BundleLoad(
            ts=now, broker=served.broker_id(0), interval_ms=MINUTE, bundle=BUNDLE, msg_rate_in=7
        )
        await written(served, 0, step, load, a_decision(now, what=BUNDLE, code="Pinned"))
        path = f"{ROOT}/events?about={BUNDLE}"
        answer = await served.get(path)
        assert answer["part"] == served.broker_id(0)
        assert {event["kind"] for event in answer["events"]} == {"ownership", "decision.skip"}
        one = await served.get(f"{path}&kind=ownership&limit=1&until={now}")
        assert one["events"][0]["record"]["after"] == "Owned"
        assert (await served.get(f"{path}&since={now + 1}"))["events"] == []
        assert (await served.get(path, at=1))["events"] == []
        (loads,) = (await served.get(f"{ROOT}/loads?at={now - 1}&kind=bundle_load"))["loads"]
        assert loads["figures"][BUNDLE][0] == 7
        series = await served.get(f"{ROOT}/series?name=acme/&since=0")
        assert [point["figures"][0] for point in series["points"]] == [7]
        parts = await served.get(ROOT)
        assert parts == {
            "brokers": sorted(served.broker_id(index) for index in range(2)),
            "beside": [],
        }


async def test_limits_of_topics_that_the_broker_owned_then(tmp_path: Path) -> None:
    """Not of one that it gave up within the time of the record, nor of one that it got later; nor
    those of a record that is old. Other limits stay.
    """
    at = SystemClock().now_ms() - 10 * MINUTE
    async with serving(values=in_folder(tmp_path)) as served:
        me = served.broker_id(0)
        whole = {"bundle": "acme/orders/0x00000000_0xffffffff", "reason": "r"}

        def step(ms: int, before: str, after: str) -> OwnershipStep:
            return OwnershipStep(ts=ms, broker=me, before=before, after=after, **whole)

        def limits(ms: int, *names: str) -> list[Throttle]:
            return [
                Throttle(
                    ts=ms, broker=me, interval_ms=MINUTE, level="topic", limit=name, held=1,
                    configured_messages_per_s=10, configured_bytes_per_s=-1,
                    delivered_messages_per_s=9, delivered_bytes_per_s=9, waited_ms=1,
                )
                for name in names
            ]  # fmt: skip

        async def held(ms: int) -> list[str]:
            answer = await served.get(f"{ROOT}/loads?at={ms}&kind=throttle")
            return [name for it in answer["loads"] for name in it["figures"]]

        topic = "persistent://acme/orders/had publish"
        await written(
            served, 0, *limits(at, topic, "publish rate of a tenant"),
            step(at - 50_000, "Opening", "Owned"), step(at - 20_000, "Owned", "Free"),
        )  # fmt: skip
        assert await held(at - 30_000) == [f"topic: {topic}", "topic: publish rate of a tenant"]
        for ms in (at - 55_000, at - 10_000):  # before it had it, and after
            assert await held(ms) == ["topic: publish rate of a tenant"]
        assert await held(at + 100_000) == ["topic: publish rate of a tenant"]
        assert await held(at + 200_000) == []  # it is old


async def test_a_part_that_is_beside(tmp_path: Path) -> None:
    """A broker that is gone left its file in the same folder: another one answers from it."""
    now = SystemClock().now_ms()
    values = in_folder(tmp_path)
    async with serving(values=values) as served:
        await written(served, 1, a_decision(now, what=BUNDLE))
        gone = served.broker_id(1)
    async with serving(brokers=1, values=values) as served:
        assert gone in (await served.get(ROOT))["beside"]
        path = f"{ROOT}/events?kind=decision.skip"
        assert (await served.get(path))["events"] == []
        answer = await served.get(f"{path}&part={gone}")
        assert answer["part"] == gone
        assert len(answer["events"]) == 1
        missing = await served.ask("GET", f"{path}&part=nowhere:1")
        assert (missing.status, "nowhere:1" in missing.reason) == (404, True)


async def test_wrong_questions(tmp_path: Path) -> None:
    """They are refused in words; without an archive it is said why."""
    async with serving(brokers=1, values=in_folder(tmp_path)) as served:
        for query, text in (
            ("events?limit=0", "limit"),
            ("events?since=x", "since"),
            ("loads?kind=decision", "kind"),
            ("series?kind=bundle_load", "name"),
            ("series?name=x&kind=y", "kind"),
        ):
            answer = await served.ask("GET", f"{ROOT}/{query}")
            assert (answer.status, text in answer.reason) == (412, True), answer
    async with serving(brokers=1) as served:
        answer = await served.ask("GET", f"{ROOT}/events")
        assert (answer.status, "loadManagerArchiveMaxBytes" in answer.reason) == (404, True)
