"""`loadmanager admin compare`: two moments, what differs, and what is missing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from broker.admin.serving import serving
from broker.admin.test_archive import MINUTE, a_decision, in_folder, recorded_in, written
from cli.test_admin_command import Shell
from clusters.running import eventually

from loadmanager.cli.admin.away import away_text
from loadmanager.cli.admin.brokers import still_gone
from loadmanager.cli.admin.differences import (
    ClusterThen,
    causes_of,
    count_clients,
    departed,
    there_at,
)
from loadmanager.cli.admin.downtimes import back_lately
from loadmanager.cli.admin.past_owners import doubts_of, uncovered
from loadmanager.cli.admin.standing import _follow
from loadmanager.cli.admin.times import clock, span, span_between, time_of_day
from loadmanager.engine.bundles.ranges import topic_hash
from loadmanager.engine.history.archived import RESOURCES
from loadmanager.engine.history.away import Away, Gap
from loadmanager.engine.history.clients import ClientStep
from loadmanager.engine.history.members import MemberChange
from loadmanager.engine.history.records import (
    AuditedChange,
    BrokerLoad,
    BundleLoad,
    OwnershipStep,
    TopicLoad,
)
from loadmanager.engine.load.reports import ResourceUsage
from loadmanager.kit.history.archive_answers import ArchivedEvent, ArchivedLoads
from loadmanager.kit.metadata import paths
from loadmanager.kit.names import NamespaceName
from loadmanager.kit.system.clock import SystemClock
from loadmanager.leader.documents.members import AbsentBroker
from loadmanager.leader.owners_then import PastBundle, owners_at

UNUSED = {name: ResourceUsage() for name in RESOURCES}
LOW, HIGH = "0x00000000_0x80000000", "0x80000000_0xffffffff"
TEXTS = {"reason": "", "before": "Opening", "after": "Owned"}


def a_topic(namespace: str, bundle: str, *, besides: str = "") -> str:
    """One that lies in a half of its namespace."""
    names = (f"persistent://{namespace}/t{number}" for number in range(100))
    halves = {name: LOW if topic_hash(name) < 0x80000000 else HIGH for name in names}
    return next(name for name, half in halves.items() if half == bundle and name != besides)


def loads_of(ts: int, broker: str, usage: float, bundles: dict[str, tuple[float, int]]) -> Any:
    """A minute of a broker; `bundles`: bundle → messages/s, and its producers."""
    yield BrokerLoad(
        ts=ts, broker=broker, interval_ms=MINUTE, usage=usage, topics=9, bundles=len(bundles),
        msg_rate_in=sum(rate for rate, _ in bundles.values()), **UNUSED,
    )  # fmt: skip
    for bundle, (rate, producers) in bundles.items():
        yield BundleLoad(
            ts=ts, broker=broker, interval_ms=MINUTE, bundle=bundle, msg_rate_in=rate,
            producers=producers,
        )  # fmt: skip


def times_of(since_ms: int, until_ms: int) -> list[str]:
    """As the command takes them."""
    since, until = (clock(at).replace(" ", "T") for at in (since_ms, until_ms))
    return ["--since", since, "--until", until]


async def test_two_moments(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A broker was lost, a bundle moved, a limit changed, a namespace and a topic fell silent."""
    now = SystemClock().now_ms() // 1000 * 1000
    then, end = now - 60 * MINUTE, now - 30 * MINUTE
    lost_bundle, moved = f"acme/orders/{LOW}", f"acme/orders/{HIGH}"
    quiet, stays, nobodys = f"beta/jobs/{LOW}", f"gold/pay/{LOW}", f"gold/pay/{HIGH}"
    silent = a_topic("gold/pay", LOW)
    loud = a_topic("gold/pay", LOW, besides=silent)
    async with serving(values=in_folder(tmp_path)) as served:
        shell = Shell(served, capsys)
        a, b = served.broker_id(0), served.broker_id(1)
        lost = "127.0.0.1:1"

        def topics(ts: int, rates: dict[str, float]) -> list[TopicLoad]:
            of = {"ts": ts, "broker": a, "interval_ms": MINUTE, "bundle": stays}
            return [
                TopicLoad(topic=topic, msg_rate_in=rate, msg_throughput_in=rate, **of)
                for topic, rate in rates.items()
            ]

        owned = [
            OwnershipStep(ts=then - 2 * MINUTE, broker=broker, bundle=bundle, **TEXTS)
            for broker, bundle in ((lost, lost_bundle), (lost, nobodys))
        ]
        gained = OwnershipStep(ts=then + MINUTE, broker=a, bundle=lost_bundle, **TEXTS)
        left = MemberChange(
            ts=then + 50_000, broker=a, of=lost, event="left", how="lost", bundles=2
        )
        leads = MemberChange(ts=then + 51_000, broker=a, of=a, event="leads", epoch=2, before=lost)
        first = MemberChange(ts=then - 9 * MINUTE, broker=lost, of=lost, event="leads", epoch=1)
        limit = AuditedChange(
            ts=then + 2 * MINUTE, broker=a, role="jane", address="10.0.0.7", over="http", what="",
            path=paths.cordon(b), after="{}", words="cordoned b",
        )  # fmt: skip
        move = a_decision(
            then + 3 * MINUTE, "move", bundle=moved, source=a, destination=b, author="cycle",
            state="done", move="1-m1", ended_at=then + 3 * MINUTE,
        )  # fmt: skip
        client = {"client": "10.0.0.9:7", "address": "10.0.0.9", "what": "producer", "name": "p1"}
        gone = ClientStep(
            ts=then + 4 * MINUTE, broker=a, event="left", topic=silent, bundle=stays, **client
        )
        lost_topic = a_topic("acme/orders", LOW)
        cut = {**client, "topic": lost_topic, "bundle": lost_bundle}
        before_loss = [
            ClientStep(ts=then - MINUTE, broker=lost, event="attached", **cut | {"name": name})
            for name in ("p2", "p3")
        ]
        later = ClientStep(
            ts=then + 10_000, broker=lost, event="attached", **cut | {"name": "was-not-there"}
        )
        back = ClientStep(ts=then + 2 * MINUTE, broker=a, event="attached", **cut | {"name": "p3"})
        before_a = {moved: (10.0, 1), stays: (5.0, 3)}
        after_a = {lost_bundle: (20.0, 1), stays: (4.0, 2)}
        await written(
            served, 0,
            *loads_of(then, a, 0.5, before_a), *topics(then, {silent: 1.0, loud: 4.0}),
            *loads_of(end, a, 0.75, after_a), *topics(end, {silent: 0.0, loud: 4.0}),
            *loads_of(then, lost, 0.9, {lost_bundle: (20.0, 1), nobodys: (7.0, 1)}),
            first, *owned, gained, left, leads, limit, move, gone,
            *before_loss, later, back,
        )  # fmt: skip
        released = OwnershipStep(
            ts=then + 3 * MINUTE, broker=a, bundle=moved, before="Owned", after="Free", reason="",
            cause="leader", destination=b,
        )  # fmt: skip
        taken = OwnershipStep(ts=then + 3 * MINUTE, broker=b, bundle=moved, **TEXTS)
        await written(served, 0, released)
        await written(
            served, 1,
            *loads_of(then, b, 0.2, {quiet: (3.0, 1)}),
            *loads_of(end, b, 0.1, {quiet: (0.0, 1), moved: (10.0, 1)}), taken,
        )  # fmt: skip
        times = [clock(at).replace(" ", "T") for at in (then, end)]
        words = ("compare", "--since", times[0], "--until", times[1])
        status, out, _ = await shell.run(*words)
        assert status == 0
        assert "3 brokers then, 2 now" in out
        assert f"{lost} IS NOT THERE ANY MORE: lost since {clock(left.ts)}" in out
        assert f"{lost} led then; the leader changed once: {a} since" in out
        moved_by = "1: their broker was lost; 1: the balancer moved them"
        assert f"2 of 5 bundles have another owner ({moved_by})" in out
        assert f"  {moved}: {a} → {b} (the balancer moved them)" in out
        assert "50.0 → 75.0" in out
        assert "cordoned b" in out
        missing = out.partition("MISSING NOW")[2]
        assert f"  {nobodys} has no owner; {lost} was it (their broker was lost)" in missing
        assert "  beta/jobs has no traffic" in missing
        assert "  gold/pay has only 33% of what it had: 12.0 → 4.0 messages/s" in missing
        assert f"  {silent} has no traffic" in missing
        assert loud not in missing
        assert "  gold/pay has 2 producers, and had 4" in missing
        assert "producer p1 from 10.0.0.9:7" in missing
        assert f"  producer p2 from 10.0.0.9:7 on {lost_topic} left at " in missing
        assert f"{clock(left.ts)} and has not come back: its broker {lost} was lost" in missing
        assert "p3" not in missing
        assert "was-not-there" not in missing
        assert "orders has" not in missing  # another broker has all of it
        assert "only the busiest of each broker" in missing  # two of nine
        document = await shell.json(*words)
        assert document["missing"]["topics"] == [silent]
        assert {it["name"] for it in document["missing"]["clients"]} == {"p1", "p2"}
        assert {it["bundle"] for it in document["owners"]} == {lost_bundle, moved}
        assert (document["before"]["leader"], document["after"]["leader"]) == (lost, a)
        late = times[0], clock(end + 20 * MINUTE).replace(" ", "T")
        again = MemberChange(ts=end + 19 * MINUTE, broker=b, of=b, event="starts", version="9")
        await written(served, 1, again)
        out = (await shell.run("compare", "--since", late[0], "--until", late[1]))[1]
        assert f"{b} is there as before; between, it was restarted" in out  # without a load yet
        status, _, err = await shell.run("compare", "--since", times[1], "--until", times[0])
        assert (status, "--since is after --until" in err) == (2, True)
        recorded_in(tmp_path, [(1, end - 2 * MINUTE, now)])
        assert "recorded nothing at" in (await shell.run(*words))[1]
        status, _, err = await shell.run("compare", "--since", "9d", "--until", "8d")
        assert (status, "nothing is recorded of" in err) == (1, True)


def member(number: int, ts: int, event: str, **more: Any) -> ArchivedEvent:
    """A record of a broker."""
    record = {"ts": ts, "broker": "a", "of": "b", "event": event, **more}
    return ArchivedEvent(number, "member", ts, ts, 1, record)


def step(number: int, ts: int, after: str, cause: str = "lookup") -> ArchivedEvent:
    """A record of a bundle at broker b."""
    before = "Opening" if after == "Owned" else "Owned"
    of = {"before": before, "after": after, "cause": cause, "reason": ""}
    record = {"ts": ts, "broker": "b", "bundle": f"t/n/{LOW}", **of}
    return ArchivedEvent(number, "ownership", ts, ts, 1, record)


def test_a_loss_that_is_recorded_late_ends_what_was_owned_before_the_restart() -> None:
    """The leader records it within a second, when the next process may own bundles already."""
    before = [member(1, 1_000, "starts", startedAt=900), step(2, 2_000, "Owned")]
    again = [member(3, 9_000, "starts", startedAt=8_000), step(4, 9_500, "Owned")]
    left = member(5, 9_900, "left", how="lost", startedAt=900)
    (bundle,) = owners_at([], [*before, *again, left], 10_000)
    assert bundle.owner == "b"
    assert not owners_at([], [*before, left], 10_000)


def test_a_bundle_that_the_next_process_took_again_was_served_before_by_the_lost_one() -> None:
    """It was taken long before, and the next process of the same address fails once at first."""
    bundle = f"t/n/{LOW}"
    lost, back = 100_000, 106_000
    failed = step(2, lost + 3_000, "Free")
    failed.record["before"] = "Assigning"
    events = [
        member(1, lost + 2_900, "starts", startedAt=lost + 2_500),
        failed,
        member(3, back - 200, "left", how="lost", startedAt=1_000),
        step(4, back, "Owned"),
    ]

    def loads(ts: int) -> ArchivedLoads:
        return ArchivedLoads(
            kind="bundle_load", broker="b", ts=ts, span_ms=MINUTE, columns=["msg_rate_in"],
            figures={bundle: [9.0]},
        )  # fmt: skip

    for before_loss in (50_000, 80_000):  # recorded before the moment, and after it
        (of,) = owners_at([loads(before_loss)], events, 60_000)
        assert (of.owner, of.at) == ("b", before_loss)
    (of,) = owners_at([loads(80_000)], events, lost + 2_000)
    assert of.owner == "b"
    (of,) = owners_at([loads(80_000)], events, back - 100)
    assert of.owner is None
    assert not owners_at([loads(back + 60_000)], events, 60_000)


def test_a_broker_that_stands_still_owns_nothing_once_its_session_is_over() -> None:
    """It records that its bundles ended when it goes on; and it had them from long before."""
    events = [member(1, 70_000, "left", how="lost"), step(2, 120_000, "Free", "lapse")]
    of = ArchivedLoads(
        kind="bundle_load", broker="b", ts=60_000, span_ms=MINUTE, columns=["msg_rate_in"],
        figures={f"t/n/{LOW}": [9.0]},
    )  # fmt: skip
    for loads in ([], [of]):
        assert [it.owner for it in owners_at(loads, events, 69_000)] == ["b"]
        assert not any(it.owner for it in owners_at(loads, events, 80_000))


def test_a_bundle_that_is_on_its_way_has_no_owner() -> None:
    """From the fence on, which is recorded once the next broker has it."""
    served = step(1, 2_000, "Owned")
    released = step(2, 9_000, "Free", "operator")
    released.record["pauseMs"] = 5_000.0
    for at_ms, owner in ((3_999, "b"), (4_000, None), (8_999, None)):
        assert [it.owner for it in owners_at([], [served, released], at_ms)] == [owner] * bool(
            owner
        )


def test_what_no_bundle_has_of_a_hash_space() -> None:
    """Before, between and after; of bundles that overlap, as about a split, all are covered."""
    names = [f"t/n/{each}" for each in (LOW, "0x40000000_0x80000000")]
    assert uncovered(names) == ["0x80000000_0xffffffff"]
    assert uncovered([f"t/n/{HIGH}"]) == ["0x00000000_0x80000000"]
    assert uncovered([f"t/n/{LOW}", f"t/n/{HIGH}"]) == []
    assert uncovered([]) == ["0x00000000_0xffffffff"]
    assert uncovered(["t/n/0x10000000_0x20000000", "t/n/0x30000000_0xffffffff"]) == [
        "0x00000000_0x10000000",
        "0x20000000_0x30000000",
    ]


def test_figures_of_a_bundle_that_has_just_come_are_of_a_part_of_the_time() -> None:
    """Those of its owner whose time began before it came, and all of one before."""
    bundle = f"t/n/{LOW}"

    def loads(broker: str, ts: int) -> ArchivedLoads:
        return ArchivedLoads(
            kind="bundle_load", broker=broker, ts=ts, span_ms=MINUTE, columns=["msg_rate_in"],
            figures={bundle: [9.0]},
        )  # fmt: skip

    came = step(1, 100_000, "Owned")
    for loads_then, in_part in (
        ([loads("b", 159_000)], True),
        ([loads("b", 160_000)], False),
        ([loads("a", 90_000)], True),
    ):
        (of,) = owners_at(loads_then, [came], 125_000)
        assert (of.owner, of.in_part) == ("b", in_part)
        assert len(doubts_of([of])) == in_part
        then = ClusterThen(125_000, {bundle: of}, loads_then, {})
        assert then.uncounted() == ({bundle} if in_part else set())
    (of,) = owners_at([loads("a", 90_000)], [], 125_000)
    assert (of.owner, of.in_part) == ("a", False)


@pytest.mark.parametrize(
    ("changed_s", "shown", "doubt"),
    [
        ([], 3.0, False),
        ([20], 10.0, False),
        ([-20], 3.0, False),
        ([-20, 20], 3.0, True),
        ([100], 3.0, False),
    ],
)
async def test_a_record_stands_for_a_moment_if_nothing_changed_between(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    changed_s: list[int],
    shown: float,
    doubt: bool,
) -> None:
    """A limit that was set after a moment, in the minute of the record that it lies in: the record
    before stands for the moment, if none was set in its minute either; else this is said, and the
    bundle is not compared. Without a change, it is the record that the moment lies in.
    """
    now = SystemClock().now_ms() // 1000 * 1000
    then, end = now - 20 * MINUTE, now - 10 * MINUTE
    limited, stays = f"acme/chat/{LOW}", f"acme/orders/{LOW}"
    path = paths.policies(NamespaceName.parse("acme/chat"))
    before, after = ('{"publishMaxMessageRate": {"c": 1}}', '{"publishMaxMessageRate": {"c": 2}}')
    async with serving(values=in_folder(tmp_path)) as served:
        shell = Shell(served, capsys)
        a = served.broker_id(0)
        for ts, rate in ((then - 5_000, 10.0), (then + 55_000, 3.0), (end, 3.0)):
            await written(served, 0, *loads_of(ts, a, 0.5, {limited: (rate, 1), stays: (4.0, 1)}))
        for at_s in changed_s:
            change = AuditedChange(
                ts=then + 1000 * at_s, broker=a, role="ops", address="1.2.3.4", over="http",
                what="POST", path=path, before=before, after=after,
            )  # fmt: skip
            await written(served, 0, change)
        at = clock(then).replace(" ", "T")
        _, out, _ = await shell.run("bundles", "list", "--at", at)
        row = next(line for line in out.splitlines() if line.startswith(limited))
        assert (row.split()[3], "its limits changed at" in row) == (f"{shown:.1f}", doubt)
        assert ("limits of 1 bundle were changed about then" in out) == doubt
        _, out, _ = await shell.run("brokers", "list", "--at", at)
        row = next(line for line in out.splitlines() if line.startswith(a))
        assert (f" {shown + 4:.1f} " in row, "msg/s: not sure of 1 bundle" in row) == (True, doubt)
        status, out, _ = await shell.run("compare", *times_of(then, end))
        assert (status, f"{shown + 4:.1f} → 7.0" in out) == (0, True)
        row = next(line for line in out.splitlines() if line.startswith("acme "))
        assert ("1 of 2 bundles" in row) == doubt
        assert ("acme/chat has only 30% of what it had" in out) == (shown == 10.0)


async def test_a_move_between_a_moment_and_the_end_of_its_record(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The owner of then had it in the minute before. After the move, both have a part of it."""
    now = SystemClock().now_ms() // 1000 * 1000
    then, end = now - 20 * MINUTE, now - 10 * MINUTE
    moves, stays = f"acme/chat/{LOW}", f"acme/orders/{LOW}"
    async with serving(values=in_folder(tmp_path)) as served:
        shell = Shell(served, capsys)
        a, b = served.broker_id(0), served.broker_id(1)
        for ts, of_a, of_b in (
            (then - 5_000, {moves: (40.0, 1), stays: (4.0, 1)}, {}),
            (then + 55_000, {stays: (4.0, 1)}, {moves: (10.0, 1)}),
            (end, {stays: (4.0, 1)}, {moves: (40.0, 1)}),
        ):
            await written(served, 0, *loads_of(ts, a, 0.5, of_a))
            await written(served, 1, *loads_of(ts, b, 0.1, of_b))
        texts = {"bundle": moves, "reason": "order"}
        gave = OwnershipStep(
            ts=then + 40_010, broker=a, before="Releasing", after="Free", pause_ms=20, **texts
        )
        got = OwnershipStep(ts=then + 40_000, broker=b, before="Opening", after="Owned", **texts)
        await written(served, 0, gave)
        await written(served, 1, got)
        rows = await shell.json("brokers", "list", "--at", clock(then))
        assert {it["broker"]: (it["msg_rate_in"], it["doubt"]) for it in rows} == {
            a: (44.0, ""),
            b: (0.0, ""),
        }
        rows = await shell.json("brokers", "list", "--at", clock(then + 50_000))
        assert {it["broker"]: it["msg_rate_in"] for it in rows} == {a: 4.0, b: 10.0}
        assert all("came or went" in it["doubt"] for it in rows)
        row = next(it for it in rows if it["broker"] == b)
        assert "msg/s: not sure of 1 bundle" in row["doubt"]
        (row, _) = await shell.json("bundles", "list", "--at", clock(then + 50_000))
        assert (row["owner"], row["doubt"]) == (
            b,
            f"in part: it came at {time_of_day(then + 40_000)}",
        )


def test_records_of_one_process_follow_each_other() -> None:
    """In either order; not those of the next process, or of another broker or kind."""

    def loads(ts: int, span_ms: int = MINUTE, broker: str = "b", kind: str = "k") -> ArchivedLoads:
        return ArchivedLoads(
            kind=kind, broker=broker, ts=ts, span_ms=span_ms, columns=[], figures={}
        )

    first, second = loads(100_000), loads(160_200)
    assert _follow(first, second)
    assert _follow(second, first)
    for other in (
        loads(160_000, 40_000), loads(220_200), first, loads(160_000, broker="c"),
        loads(160_000, kind="l"),
    ):  # fmt: skip
        assert not _follow(first, other)


async def test_what_a_broker_records_right_after_its_start_is_not_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It has measured nothing yet: its figures are not known, and sums say at their rows which
    bundles they lack.
    """
    now = SystemClock().now_ms() // 1000 * 1000
    then, end = now - 20 * MINUTE, now - 10 * MINUTE
    taken, stays = f"acme/orders/{LOW}", f"acme/orders/{HIGH}"
    async with serving(values=in_folder(tmp_path)) as served:
        shell = Shell(served, capsys)
        a, b = served.broker_id(0), served.broker_id(1)
        for ts in (then, end):
            await written(
                served, 0, *loads_of(ts, a, 0.5, {stays: (60.0, 1), f"beta/jobs/{LOW}": (1.0, 1)})
            )
        own = {"broker": b, "of": b}
        await written(
            served, 1,
            MemberChange(ts=then - 30_000, event="starts", started_at=then - 31_000, **own),
            *loads_of(then, b, 0.097, {taken: (100.0, 1)}),
            MemberChange(ts=end - 9_000, event="starts", started_at=end - 10_000, **own),
            OwnershipStep(ts=end - 8_000, broker=b, bundle=taken, **TEXTS),
            *loads_of(end - 1_000, b, 0.0, {taken: (0.0, 0)}),
        )  # fmt: skip
        words = ("compare", *times_of(then, end))
        status, out, _ = await shell.run(*words)
        assert status == 0
        lines = [line for line in out.splitlines() if "  " in line and " → " in line]
        rows = {line.split()[0]: line for line in lines}
        assert [each.strip() for each in rows[b].split("  ")[1:] if each] == [
            "9.7 → -",
            "1 → 1",
            "100.0 → -",
        ]
        assert rows["acme"].split("  ")[-1].strip() == "1 of 2 bundles"
        assert rows["beta"].rstrip().endswith("0.00")
        document = await shell.json(*words)
        assert b in document["before"]["brokers"]
        assert b not in document["after"]["brokers"]


async def test_a_broker_that_was_away_and_is_back_did_not_come(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A frozen one that goes on is the process of before; one that restarted came."""
    now = SystemClock().now_ms() // 1000 * 1000
    then, end = now - 20 * MINUTE, now - 10 * MINUTE
    async with serving(values=in_folder(tmp_path)) as served:
        shell = Shell(served, capsys)
        a, b, c = served.broker_id(0), served.broker_id(1), "127.0.0.1:1"
        for ts in (then, end):
            await written(served, 0, *loads_of(ts, a, 0.5, {}))
        of = {"broker": a, "event": "left", "how": "lost"}
        left = [MemberChange(ts=then - 5_000, of=it, **of) for it in (b, c)]
        await written(
            served, 0, *left, *loads_of(end, b, 0.1, {}), *loads_of(end, c, 0.1, {}),
            MemberChange(ts=then + 5_000, broker=b, of=b, event="back"),
            MemberChange(ts=then + 6_000, broker=c, of=c, event="starts", started_at=then),
        )  # fmt: skip
        _, out, _ = await shell.run("compare", *times_of(then, end))
        since = f"lost since {clock(then - 5_000)}"
        assert f"{b} is back, and no restart of it is recorded; then: {since}" in out
        assert f"{c} came: it started at {clock(then + 6_000)}" in out
        assert f"{b} came" not in out


async def test_an_outage_that_lasts_at_the_second_moment_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is recorded when it ends; not one that begins after that moment."""
    async with serving(values=in_folder(tmp_path)) as served:
        now = SystemClock().now_ms() // 1000 * 1000
        a = served.broker_id(0)
        for at in (now - 20 * MINUTE, now - 10 * MINUTE):
            await written(served, 0, *loads_of(at, a, 0.5, {f"acme/orders/{LOW}": (1.0, 1)}))
        outage = MemberChange(
            ts=now - 8 * MINUTE, broker=a, of=a, event="proven", took_ms=4 * MINUTE
        )
        await written(served, 0, outage)
        for until_ms, told in ((now - 10 * MINUTE, True), (now - 13 * MINUTE, False)):
            times = [clock(at).replace(" ", "T") for at in (now - 20 * MINUTE, until_ms)]
            words = ("compare", "--since", times[0], "--until", times[1])
            out = (await Shell(served, capsys).run(*words))[1]
            assert (f"from {clock(now - 12 * MINUTE)} to" in out) is told, out
        leader = ("brokers", "leader", "--at", clock(now - 10 * MINUTE).replace(" ", "T"))
        out = (await Shell(served, capsys).run(*leader))[1]
        assert "could not prove its session" in out


async def test_nothing_is_carried_while_no_broker_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nobody led, nothing had an owner, and the loads of before are not those of then: neither as
    the second moment, nor as the first, nor between.
    """
    now = SystemClock().now_ms() // 1000 * 1000
    begin, down, up = now - 12 * MINUTE, now - 8 * MINUTE, now - 4 * MINUTE
    bundle, topic = f"acme/orders/{LOW}", a_topic("acme/orders", LOW)
    async with serving(values=in_folder(tmp_path)) as served:
        shell, a = Shell(served, capsys), served.broker_id(0)

        def member(ts: int, event: str, **more: Any) -> MemberChange:
            return MemberChange(ts=ts, broker=a, of=a, event=event, **more)

        client = {"client": "10.0.0.9:7", "what": "producer", "topic": topic, "bundle": bundle}
        await written(
            served, 0,
            member(begin, "starts"), member(begin, "leads", epoch=1),
            OwnershipStep(ts=begin, broker=a, bundle=bundle, **TEXTS),
            ClientStep(ts=begin, broker=a, event="attached", name="p1", **client),
            *loads_of(down - 2_000, a, 0.5, {bundle: (9.0, 1)}),
            member(up, "starts"), member(up, "leads", epoch=2),
            OwnershipStep(ts=up + 1_000, broker=a, bundle=bundle, **TEXTS),
            *loads_of(up + MINUTE, a, 0.5, {bundle: (8.0, 1)}),
        )  # fmt: skip
        recorded_in(tmp_path, [(1, begin, down), (2, up, now)])
        before, within, after = down - 30_000, down + 2 * MINUTE, up + 2 * MINUTE

        async def compared(since_ms: int, until_ms: int) -> str:
            times = [clock(at).replace(" ", "T") for at in (since_ms, until_ms)]
            return (await shell.run("compare", "--since", times[0], "--until", times[1]))[1]

        for soon in (within, down + 3_000):
            out = await compared(before, soon)
            assert "1 broker then, 0 now" in out
            assert f"NO BROKER RAN at {clock(soon)}" in out
            assert f"{a} led then, and nobody at the end" in out
            assert "50.0 → -" in out
            assert "9.0 → -" in out
            assert f"{bundle} has no owner; {a} was it (their broker was lost)" in out
            assert "producer p1 from 10.0.0.9:7" in out
            assert f"left at {clock(min(soon, down + 12_000))} and has not come back" in out
            assert "has no traffic" not in out
        at = clock(within).replace(" ", "T")
        (row,) = await shell.json("bundles", "list", "acme/orders", "--at", at)
        assert (row["owner"], row["lastOwner"]) == (None, a)
        out = (await shell.run("bundles", "list", "acme/orders", "--at", at))[1]
        assert f"none: {a} was down" in out
        out = await compared(within, after)
        assert "0 brokers then, 1 now" in out
        assert "- → 50.0" in out
        assert f"nobody led then; the leader changed once: {a} since" in out
        out = await compared(within, within + MINUTE)
        assert "0 brokers then, 0 now" in out
        assert "nobody led then, and nobody at the end" in out
        out = await compared(before, after)
        assert "led all the time" not in out
        assert "traffic is not compared" not in out


@pytest.mark.parametrize(
    ("counted_ms", "producers", "consumers"),
    [(5_000, 5.0, 8.0), (10_000, 5.0, 8.0), (20_000, 4.0, 7.0), (30_000, 2.0, 7.0)],
)
def test_clients_are_counted_as_they_were_at_a_moment(
    counted_ms: int, producers: float, consumers: float
) -> None:
    """Whenever the record ended that counted them: before the moment, or after it. Clients of
    another broker or of a topic of another bundle do not count.
    """
    bundle, topic = f"acme/orders/{LOW}", a_topic("acme/orders", LOW)
    elsewhere = a_topic("acme/orders", HIGH)

    def client(ts: int, event: str, **more: Any) -> ClientStep:
        of = {"broker": "b", "what": "producer", "topic": topic, "name": "p", **more}
        return ClientStep(ts=ts, event=event, **of)

    steps = [
        client(11_000, "left"), client(16_000, "left"), client(17_000, "attached"),
        client(21_000, "left"), client(22_000, "left"),
        client(12_000, "left", broker="other"), client(12_000, "left", topic=elsewhere),
        client(12_000, "left", what="consumer"),
    ]  # fmt: skip
    figures = {"producers": producers, "consumers": consumers}
    of = PastBundle(bundle, "b", counted_ms, figures, "b")
    count_clients([of], steps, 15_000)
    assert of.figures == {"producers": 4.0, "consumers": 7.0}


def test_clients_that_are_missing_were_there_then() -> None:
    """One that came later and left is not missing, nor one that came again. Of one whose broker was
    lost no step says that it left it: others know that it was there.
    """
    then_ms = 10_000

    def client(ts: int, event: str, name: str, **more: Any) -> ArchivedEvent:
        record = {"ts": ts, "broker": "b", "event": event, "what": "producer", "name": name}
        return ArchivedEvent(1, f"client.{event}", ts, ts, 1, {**record, **more})

    events = [
        client(11_000, "left", "was-there", attachedMs=1_000),
        client(12_000, "left", "moved", attachedMs=9_000),
        client(12_001, "attached", "moved"),
        client(12_002, "attached", "later"),
        client(12_003, "left", "came-again", attachedMs=9_000),
        client(12_004, "attached", "lost"),
        client(13_000, "left", "moved", attachedMs=999),
        client(13_001, "left", "later", attachedMs=999),
        client(13_002, "left", "too-young", attachedMs=3_001),
        client(13_003, "attached", "came-again"),
        client(13_004, "left", "lost", attachedMs=1_000),
        client(13_005, "left", "of-an-earlier-version"),
    ]
    some = {"was-there", "moved", "of-an-earlier-version"}
    assert {it.name for it in departed(events, then_ms)} == some
    before = [
        client(9_000, "attached", "lost"), client(8_000, "attached", "later"),
        client(8_500, "left", "later"),
    ]  # fmt: skip
    there = there_at([it.record_as(ClientStep) for it in (*before, *events)], then_ms)
    assert {it.name for it in departed(events, then_ms, there)} == {*some, "lost"}


@pytest.mark.parametrize(
    ("events", "cause"),
    [
        ([step(1, 5, "Free", "operator")], "an operator had them unloaded"),
        ([step(1, 5, "Free", "split")], "they were split"),
        ([member(1, 5, "left", how="stopped"), step(2, 6, "Free", "loss")], "their broker stopped"),
        ([step(1, 5, "Free", "loss")], "their broker lost its session or their claims"),
        ([step(1, 5, "Owned")], "why is not recorded"),
    ],
)
def test_causes(events: list[ArchivedEvent], cause: str) -> None:
    """Why a broker owns a bundle no more."""
    (changed,) = causes_of([(f"t/n/{LOW}", "b", "c")], events)
    assert changed.cause == cause


def move(number: int, ts: int, source: str, destination: str, author: str) -> ArchivedEvent:
    """A record of a move of the bundle."""
    of = {"epoch": 1, "cycle": 0, "strategy": "", "action": "move", "bundle": f"t/n/{LOW}"}
    ways = {"source": source, "destination": destination, "author": author, "state": "done"}
    return ArchivedEvent(
        number, "decision.move", ts, ts, 1, {"ts": ts, "broker": "a", **of, **ways}
    )


def test_the_last_of_several_causes_counts() -> None:
    """The balancer moved it to b; then an operator did, or its broker was lost."""
    first = [move(1, 5, "a", "b", "cycle"), step(2, 6, "Owned")]
    by_operator = [*first, move(3, 7, "b", "c", "operator"), step(4, 8, "Free", "operator")]
    (changed,) = causes_of([(f"t/n/{LOW}", "a", "c")], by_operator)
    assert changed.cause == "an operator moved them"
    (changed,) = causes_of([(f"t/n/{LOW}", "a", "c")], [*first, member(3, 7, "left", how="lost")])
    assert changed.cause == "their broker was lost"
    (changed,) = causes_of([(f"t/n/{LOW}", "a", "b")], first)
    assert changed.cause == "the balancer moved them"


def test_the_departure_that_ended_what_a_broker_had_counts() -> None:
    """It was lost, and others took the bundle; that it was drained later did not move it."""
    taken = step(3, 8, "Owned")
    taken.record["broker"] = "c"
    lost = [member(1, 7, "left", how="lost"), step(2, 7, "Free", "loss"), taken]
    drained = [*lost, member(4, 60, "left", how="drained")]
    (changed,) = causes_of([(f"t/n/{LOW}", "b", "c")], drained)
    assert changed.cause == "their broker was lost"
    back = [*lost[:2], step(5, 20, "Owned"), member(4, 60, "left", how="drained")]
    (changed,) = causes_of([(f"t/n/{LOW}", "b", "c")], back)
    assert changed.cause == "their broker was drained"


def test_a_cause_before_the_broker_had_it_again_does_not_count() -> None:
    """A plan took it from a, which got it back, and then was lost."""
    by_plan = [step(1, 5, "Free", "planned"), move(2, 6, "b", "a", "plan")]
    back = [*by_plan, step(3, 7, "Owned"), member(4, 8, "left", how="lost")]
    (changed,) = causes_of([(f"t/n/{LOW}", "b", "c")], back)
    assert changed.cause == "their broker was lost"


def test_a_time_without_an_owner_that_is_known_to_within_a_session() -> None:
    """Least and most have one unit, and the longest says how much earlier it may have begun."""
    gaps = [Gap(0, 20_000, 30_000), Gap(3_600_000, 3_649_000, 33_000)]
    text = away_text(Away(0, gaps), 0, 2 * 3_600_000)
    assert (
        "for 69 s to 132 s in all, 2 times, longest 49 s to 82 s from 1970-01-01 01:00:00Z on, "
        "or from up to 33 s before;" in text
    )
    assert span_between(94_600, 130_000) == "1 min 35 s to 2 min 10 s"
    assert span_between(120_000, 130_000) == "2 min to 2 min 10 s"
    assert span_between(800, 31_000) == "0.8 s to 31 s"
    assert span_between(120_000, 5_400_000) == "2 min to 90 min"
    assert span_between(800, 900) == "800 ms to 900 ms"
    assert span_between(30_000, 30_100) == "30 s"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (89.4, "89 s"),
        (94.6, "1 min 35 s"),
        (119.6, "2 min"),
        (300, "5 min"),
        (599.6, "10 min"),
        (601, "10 min"),
        (5_399, "90 min"),
        (5_640, "1 h 34 min"),
        (7_200, "2 h"),
        (36_600, "10 h"),
        (200_000, "2 days"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    """Nothing is rounded away that matters: 94.6 s are not two minutes."""
    assert span(1000 * seconds) == text


async def test_a_story_ends_with_the_time_without_an_owner(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a bundle, over the time that is asked for."""
    now = SystemClock().now_ms() // 1000 * 1000
    then, bundle = now - 60 * MINUTE, f"acme/orders/{LOW}"
    async with serving(values=in_folder(tmp_path)) as served:
        shell = Shell(served, capsys)
        a, b = served.broker_id(0), served.broker_id(1)
        fence = {"before": "Owned", "after": "Releasing", "reason": "", "destination": b}
        free = {**fence, "before": "Releasing", "after": "Free", "pause_ms": 12_400.0}
        owned = OwnershipStep(ts=then, broker=a, bundle=bundle, **TEXTS)
        steps = [
            OwnershipStep(ts=then + MINUTE + offset, broker=a, bundle=bundle, **step)
            for offset, step in ((0, fence), (12_500, free))
        ]
        await written(served, 0, owned, *steps)
        await written(
            served, 1,
            OwnershipStep(ts=then + MINUTE + 12_000, broker=b, bundle=bundle, **TEXTS),
        )  # fmt: skip
        until = ("--until", clock(then + 5 * MINUTE).replace(" ", "T"))
        out = (await shell.run("history", bundle, *until))[1]
        away = f"it had no owner that served it for 12 s in all, once, at {clock(then + MINUTE)}"
        assert f"to {clock(then + 5 * MINUTE)} (5 min) {away}" in out
        assert "Of before, no owner is recorded" in out
        since = ("--since", clock(then + 2 * MINUTE).replace(" ", "T"))
        out = (await shell.run("history", bundle, *since, *until))[1]
        assert "(3 min) it always had an owner that served it" in out
        assert "Of before" not in out


def test_who_was_back_by_a_moment_is_told() -> None:
    """Whoever left shortly before it; not one that was away then, nor one of long before."""

    def at(ts: int, event: str, of: str, **more: Any) -> ArchivedEvent:
        record = {"ts": ts, "broker": "a", "of": of, "event": event, **more}
        return ArchivedEvent(ts, "member", ts, ts, 1, record)

    then = 100 * MINUTE
    events = [
        at(then - 90 * MINUTE, "left", "early", how="lost"),
        at(then - 89 * MINUTE, "starts", "early"),
        at(then - 60_000, "left", "b", how="lost", leftAt=then - 61_000),
        at(then - 50_000, "starts", "b"),
        at(then - 40_000, "left", "away", how="lost"),
        at(then - 30_000, "left", "c", how="stopped"),
        at(then + 1_000, "starts", "c"),
        at(then - 20_000, "starts", "new"),
    ]
    newest_first = sorted(events, key=lambda it: -it.ts)
    assert back_lately(newest_first, then) == [
        f"b: lost at {clock(then - 61_000)}, 61 s before; back at {clock(then - 50_000)}"
    ]


def test_a_broker_that_is_registered_is_not_listed_as_gone() -> None:
    """The leader says so until it has noted that the broker is back."""
    absent = [
        AbsentBroker(broker=name, left_at=1, how="lost", back_at=2 if name == "c" else None)
        for name in "abc"
    ]
    assert [it.broker for it in still_gone(absent, ["b"])] == ["a"]


async def test_what_a_new_owner_has_not_measured_is_not_shown_as_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """For two periods of statistics; a line names it."""
    bundle = "acme/orders/0x00000000_0x40000000"
    async with serving(values=in_folder(tmp_path)) as served:
        shell = Shell(served, capsys)
        await served.own(bundle, at=0)

        async def read() -> str:
            return (await shell.run("bundles", "list", "acme/orders"))[1]

        await eventually(read, lambda text: "not measured whole yet: " + bundle in text)
        row = next(it for it in await shell.json("bundles", "list", "acme/orders") if it["owner"])
        rates = ("msgRateIn", "msgRateOut", "kibPerSecondIn", "kibPerSecondOut")
        assert (row["bundle"], {row[it] for it in rates}) == (bundle, {None})
