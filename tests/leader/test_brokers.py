"""Load reports from the store: a corrupt report is left out, logged, and does no other harm."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from clusters.members import NS, a_fleet
from structlog.testing import capture_logs

from loadmanager.engine.policies.eligibility import versions_of
from loadmanager.kit.metadata import paths
from loadmanager.kit.metadata.documents import Corrupt
from loadmanager.kit.metadata.memory import MemoryStore, MemoryTree
from loadmanager.kit.metadata.store import Change, ChangeKind
from loadmanager.kit.names import TopicName
from loadmanager.leader.brokers import Brokers
from loadmanager.testing.cluster import LoopTime

GOOD, BAD = "good:8080", "bad:8080"
BUNDLE = "public/default/0x00000000_0x40000000"
REPORT: dict[str, Any] = {"webServiceUrl": "http://h:8080", "pulsarServiceUrl": "pulsar://h:6650"}
RESYNC = Change(ChangeKind.RESYNC, paths.BROKERS)


def a_report(**fields: Any) -> bytes:
    """The JSON of a report."""
    return json.dumps({**REPORT, **fields}).encode()


def stats(**fields: Any) -> bytes:
    """The JSON of a report with one bundle's figures."""
    return a_report(lastStats={BUNDLE: fields}, bundles=[BUNDLE])


CORRUPT = {
    "three parts": a_report(bundles=["a/b/c/0x00000000_0x40000000"]),
    "three parts in the figures": a_report(lastStats={"a/b/c/0x00000000_0x40000000": {}}),
    "one part": a_report(bundles=["a/0x00000000_0x40000000"]),
    "a forbidden character": a_report(bundles=["a b/c/0x00000000_0x40000000"]),
    "dots": a_report(bundles=["../c/0x00000000_0x40000000"]),
    "no range": a_report(bundles=["public/default/zz"]),
    "a range upside down": a_report(bundles=["public/default/0x40000000_0x00000000"]),
    "a range in another spelling": a_report(bundles=["public/default/0_0x40000000"]),
    "no JSON": b"garbage",
    "no value": b"",
    "a list": b"[]",
    "no UTF-8": b'{"brokerId":"\xff\xfe"}',
    "no UTF-8 in a bundle": b'{"bundles":["\xff/b/0x00000000_0x40000000"]}',
    "deep": b'{"a":' * 20_000,
    "NaN": b'{"msgRateIn":NaN}',
    "endless": b'{"msgRateIn":1e999}',
    "negative": stats(msgRateIn=-2.1e10),
    "negative throughput": a_report(msgThroughputOut=-1),
    "huge": stats(msgThroughputIn=1e17),
    "negative count": a_report(numBundles=-1),
    "a text for a number": stats(msgRateIn="many"),
    "no URLs": b"{}",
    "no URL": a_report(webServiceUrl="nonsense"),
    "another scheme": a_report(webServiceUrl="file:///etc/passwd"),
    "no port": a_report(webServiceUrl="http://h:99999"),
    "a path": a_report(webServiceUrl="http://h:80/admin?x="),
    "a line break": a_report(webServiceUrl="http://h\r\nX: y"),
    "no service": a_report(pulsarServiceUrl="http://h:6650"),
}


@pytest.fixture
async def store() -> AsyncIterator[MemoryStore]:
    """A store with a good broker."""
    async with MemoryTree().session() as session:
        await register(session, GOOD, a_report(bundles=[BUNDLE]))
        yield session


async def register(store: MemoryStore, broker_id: str, report: bytes) -> None:
    """Write a broker's registration, which its session holds."""
    if not await store.create(paths.broker(broker_id), report, ephemeral=True):
        await store.put(paths.broker(broker_id), report)


async def test_a_registration_that_no_session_holds_is_no_broker(store: MemoryStore) -> None:
    """No broker is there, so no bundle may be placed there."""
    await store.create(paths.broker(BAD), a_report())
    corrupt = Corrupt()
    brokers = Brokers(store, LoopTime(), corrupt)
    await brokers.on_change(RESYNC)
    assert (set(brokers.reports), brokers.registered, corrupt.paths) == (
        {GOOD},
        {GOOD},
        [paths.broker(BAD)],
    )


async def test_versions_of_both_managers(store: MemoryStore) -> None:
    """The extensible manager's registrations name the version otherwise."""
    await register(store, GOOD, a_report(brokerVersionString="4.0.1"))
    await register(store, BAD, a_report(brokerVersion="4.2.0"))
    brokers = Brokers(store, LoopTime())
    await brokers.on_change(RESYNC)
    assert versions_of(brokers.reports) == {GOOD: "4.0.1", BAD: "4.2.0"}


@pytest.mark.parametrize("value", CORRUPT.values(), ids=CORRUPT)
async def test_only_the_corrupt_report_is_left_out(store: MemoryStore, value: bytes) -> None:
    """It is logged once and counted. Its broker stays registered, and its next report counts."""
    corrupt, heard = Corrupt(), list[tuple[str, bool]]()
    brokers = Brokers(store, LoopTime(), corrupt)
    brokers.listeners.append(lambda broker, report: heard.append((broker, report is not None)))
    await register(store, BAD, a_report())
    await brokers.on_change(RESYNC)
    await register(store, BAD, value)
    with capture_logs() as lines:
        for _ in range(3):
            await brokers.on_change(Change(ChangeKind.CHANGED, paths.broker(BAD)))
    assert [line["path"] for line in lines] == [paths.broker(BAD)]
    assert (corrupt.counts, corrupt.paths) == ({"report": 1}, [paths.broker(BAD)])
    assert (set(brokers.reports), brokers.registered) == ({GOOD}, {GOOD, BAD})
    assert brokers.address(BAD) is None
    assert heard == [(BAD, True), (GOOD, True), (BAD, False)]
    await register(store, BAD, a_report())
    await brokers.on_change(Change(ChangeKind.CHANGED, paths.broker(BAD)))
    assert (set(brokers.reports), corrupt.paths, heard[-1]) == ({GOOD, BAD}, [], (BAD, True))


@pytest.mark.parametrize(("leads", "level"), [(True, "info"), (False, "debug")])
async def test_the_leader_tells_who_left(store: MemoryStore, *, leads: bool, level: str) -> None:
    """Of the whole fleet, one line says it, and what follows for bundles that are left."""
    brokers = Brokers(store, LoopTime(), leads=lambda: leads)
    await register(store, BAD, a_report())
    await brokers.on_change(RESYNC)
    with capture_logs() as lines:
        for broker_id in (GOOD, BAD):
            await store.delete(paths.broker(broker_id))
            await brokers.on_change(Change(ChangeKind.DELETED, paths.broker(broker_id)))
    assert [(line["peer"], line["log_level"]) for line in lines] == [
        (GOOD, level),
        (BAD, level),
    ]
    assert "the next lookups place its bundles" in lines[0]["event"]
    assert lines[0]["bundles"] == 1


async def test_pulsars_own_bundles_are_valid(store: MemoryStore) -> None:
    """Heartbeats and SLA monitors of Pulsar's brokers have namespaces of three parts."""
    names = ["pulsar/c1/127.0.0.1:38081", "sla-monitor/c1/h:8080", "pulsar/h:8080", "pulsar/system"]
    bundles = [f"{name}/0x00000000_0xffffffff" for name in names]
    await register(store, BAD, a_report(bundles=bundles, cpu={"usage": -1, "limit": -1}))
    brokers = Brokers(store, LoopTime())
    await brokers.on_change(RESYNC)
    assert brokers.reports[BAD].bundles == bundles


async def test_a_broker_that_is_gone_is_no_longer_corrupt(store: MemoryStore) -> None:
    """Both after a notification and after a RESYNC."""
    corrupt = Corrupt()
    brokers = Brokers(store, LoopTime(), corrupt)
    for change in (Change(ChangeKind.DELETED, paths.broker(BAD)), RESYNC):
        await register(store, BAD, b"garbage")
        await brokers.on_change(RESYNC)
        assert corrupt.paths == [paths.broker(BAD)]
        await store.delete(paths.broker(BAD))
        await brokers.on_change(change)
        assert (corrupt.paths, brokers.registered) == ([], {GOOD})


async def test_every_new_name_is_checked(store: MemoryStore) -> None:
    """Names of the last report are not checked again."""
    brokers = Brokers(store, LoopTime())
    other = "public/default/0x40000000_0x80000000"
    for bundles, readable in (
        ([BUNDLE], True),
        ([BUNDLE, other], True),
        ([other], True),
        ([BUNDLE, "a/b/c/d"], False),
        (["a/b/c/d"], False),
    ):
        await register(store, BAD, a_report(bundles=bundles))
        await brokers.on_change(RESYNC)
        assert (BAD in brokers.reports) == readable


async def test_a_report_from_the_future_counts_from_its_arrival(store: MemoryStore) -> None:
    """A clock that is a day ahead does not keep a report fresh for a day."""

    class Noon(LoopTime):
        def now_ms(self) -> int:
            return 1_000

    brokers = Brokers(store, Noon())
    for written, read in ((86_400_000, 1_000), (1_000, 1_000), (999, 999), (0, 0)):
        await register(store, GOOD, a_report(lastUpdate=written))
        await brokers.on_change(RESYNC)
        assert brokers.reports[GOOD].last_update == read


async def test_how_late_reports_came(store: MemoryStore) -> None:
    """By the clocks of its writer and its reader; a report that is read twice counts once, and a
    broker that is gone no more.
    """
    brokers = Brokers(store, LoopTime())
    now_ms = LoopTime().now_ms()
    await register(store, GOOD, a_report(lastUpdate=now_ms + 9_000_000))
    for _ in range(2):
        await brokers.on_change(RESYNC)
    await register(store, GOOD, a_report(lastUpdate=now_ms + 1))
    await brokers.on_change(RESYNC)
    early, late = brokers.delays[GOOD]
    assert early < -8_000_000 < late < 60_000
    await store.delete(paths.broker(GOOD))
    await brokers.on_change(RESYNC)
    assert GOOD not in brokers.delays


async def test_lookups_find_the_owner_whose_report_is_corrupt() -> None:
    """The lock contains the owner's address; its load report does not matter."""
    async with a_fleet(2, bundles=1) as fleet:
        asked, owner = fleet.brokers
        await owner.ownership.acquire(f"{NS}/0x00000000_0xffffffff", "test")
        path = paths.broker(owner.address.broker_id)
        await owner.store.put(path, b"garbage")
        await asked.brokers.on_change(Change(ChangeKind.CHANGED, path))
        assert owner.address.broker_id not in asked.brokers.reports
        answer = await asked.lookups.lookup(
            TopicName.parse(f"persistent://{NS}/t"), authoritative=False
        )
        assert answer.broker == owner.address
