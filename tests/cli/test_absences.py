"""Brokers that left, in the lines of `loadmanager admin status`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from leader.documents import a_broker_shown, a_cluster_shown
from msgspec import to_builtins
from msgspec.structs import replace

from loadmanager.cli.admin.absences import (
    loss_text,
    news,
    recorded_losses,
    since_down,
)
from loadmanager.cli.admin.downtimes import Downtime, lapse_lines, lapses_of
from loadmanager.cli.admin.status import silent_lines
from loadmanager.cli.admin.times import clock, time_of_day
from loadmanager.engine.history.clients import CLOSED_HERE, ClientStep
from loadmanager.engine.history.lapses import Unproven, unproven_of
from loadmanager.engine.history.members import MemberChange
from loadmanager.engine.history.waits import Interrupted
from loadmanager.kit.history.archive_answers import ArchivedEvent, ArchivedEvents
from loadmanager.leader.documents.members import ANSWERS, LATER, MAYBE_ANSWERS, AbsentBroker
from loadmanager.leader.interruptions import (
    AskedArchives,
    by_records,
    misses_clients,
    with_clients_back,
)

NOW = 1_700_000_000_000
HOUR = 3_600_000


def cut_off(number: int, *, ago_ms: int = 60_000, sign: str = ANSWERS) -> AbsentBroker:
    """A broker that lost its session with two bundles and three clients, and is back."""
    left_at = NOW - ago_ms
    return AbsentBroker(
        broker=f"b{number}:8080",
        left_at=left_at,
        how="lost",
        sign=sign,
        bundles=2,
        placed=2,
        placed_at=left_at + 1_000,
        clients=3,
        clients_back=3,
        clients_waited_ms=1_000.0 * number,
        back_at=left_at + 1_000 * number,
        same_process=True,
    )


def texts(absent: list[AbsentBroker], now_ms: int = NOW) -> list[str]:
    """The lines."""
    return [it.text for it in news(absent, now_ms, HOUR)]


def test_what_is_over_is_told_apart() -> None:
    """It lasts while a broker is gone or clients are awaited, and while a bundle has no owner,
    unless all clients are back: nobody asks for it then.
    """
    back = cut_off(1)
    gone, unserved, awaited, unasked = cut_off(1), cut_off(1), cut_off(1), cut_off(1)
    gone.back_at, unserved.placed, awaited.clients_back, unasked.placed = None, 1, 2, 1
    unserved.clients = None
    for it in (back, unasked):
        assert [each.over_ms for each in news([it], NOW, HOUR)] == [it.back_at]
    for lasts in (gone, unserved, awaited):
        assert [it.over_ms for it in news([lasts], NOW, HOUR)] == [None]
    assert [it.over_ms for it in news([awaited], NOW + HOUR, 2 * HOUR)] == [awaited.back_at]


def test_who_was_lost_with_the_whole_cluster_was_lost_when_it_went_down() -> None:
    """And not when its session was over; who left before, or in order, is told as recorded."""
    it = cut_off(1)
    it.unheard_ms = 6_000
    down = Downtime(it.left_at - 37_000, it.left_at + 5_000)
    (lost,) = since_down([it], [down])
    assert (lost.left_at, lost.unheard_ms) == (down.begin, None)
    assert (lost.clients_waited_ms, lost.clients_waited_mean_ms) == (38_000.0, None)
    (line,) = texts([lost])
    assert f"({clock(down.begin)})" in line
    assert "2 bundles placed after 38 s at most; 3 clients waited 38 s" in line
    assert list(since_down([it], [Downtime(it.left_at + 1, it.left_at + 50_000)])) == [it]
    it.how = "stopped"
    assert list(since_down([it], [down])) == [it]


def test_clients_that_are_back_by_their_own_records_are_not_missing() -> None:
    """The leader counts them once their new brokers have reported; another loss is not this one."""
    it = cut_off(1)
    it.clients_back, it.clients_waited_ms = 0, None

    def waited(name: str, since: int, back_at: int | None, broker: str = "b1:8080") -> Interrupted:
        client = ClientStep(ts=since, broker=broker, event="attached", what="producer", name=name)
        return Interrupted(client, since, lost=True, back_at=back_at)

    waits = [
        waited("p1", it.left_at, it.left_at + 2_000),
        waited("p2", it.left_at + 900, it.left_at + 4_900),
        waited("p3", it.left_at, None),
        waited("p1", it.left_at - HOUR, it.left_at - HOUR + 9_000),
        waited("p4", it.left_at, it.left_at + 9_000, "b2:8080"),
    ]
    (counted,) = by_records([it], waits, [])
    assert (counted.clients, counted.clients_back) == (3, 2)
    assert (counted.clients_waited_ms, counted.clients_waited_mean_ms) == (4_000.0, 3_000.0)
    assert misses_clients(it)
    it.clients_back = 3
    assert [*by_records([it], waits, [])] == [it]
    assert not misses_clients(it)


@pytest.mark.parametrize(
    ("reason", "left_ago_ms", "attached_ms", "clients"),
    [
        ("its client ended the connection", 5_000, HOUR, 2),
        ("its client closed it", 5_000, HOUR, 2),
        ("its client closed it", 5_000, 1_000, 3),
        ("its client closed it", 30_000, HOUR, 3),
        (CLOSED_HERE, 5_000, HOUR, 3),
    ],
    ids=["killed", "closed", "came later", "before it published", "by its broker"],
)
def test_clients_that_had_ended_before_are_not_missing(
    reason: str, left_ago_ms: int, attached_ms: int, clients: int
) -> None:
    """If their broker had published them, and lost them by themselves since; the line says which
    command names those that are missing.
    """
    it = cut_off(1)
    it.clients_back, it.clients_at = 2, it.left_at - 20_000
    (line,) = texts([it])
    since = clock(it.left_at).replace(" ", "T")
    assert "ONLY 2 of 3 clients back" in line
    assert f"(`loadmanager admin interrupted b1:8080 --since {since}` names those mis" in line
    step = ClientStep(
        ts=it.left_at - left_ago_ms, broker=it.broker, event="left", what="consumer", name="c1",
        reason=reason, attached_ms=attached_ms,
    )  # fmt: skip
    (counted,) = by_records([it], [], [step])
    assert (counted.clients, counted.clients_back) == (clients, 2)
    (line,) = texts([counted])
    assert ("ONLY" in line) is (clients == 3)
    other = replace(step, broker="b2:8080")
    assert [*by_records([it], [], [other])] == [it]


class Recorded:
    """Implements `Archives`: records of clients and of members, as one broker has them."""

    def __init__(self, *records: ClientStep | MemberChange) -> None:
        self.records, self.asked = records, 0

    async def events(
        self, kinds: Sequence[str], since_ms: int, until_ms: int, limit: int
    ) -> AskedArchives:
        """Those of some kinds."""
        self.asked += 1
        events = [
            ArchivedEvent(number, kind, it.ts, it.ts, 1, to_builtins(it))
            for number, it in enumerate(self.records)
            for kind in [f"client.{it.event}" if isinstance(it, ClientStep) else "member"]
            if kind in kinds and since_ms <= it.ts <= until_ms
        ]
        return AskedArchives(
            {"b2:8080": ArchivedEvents(part="b2:8080", recorded=[], events=events)}
        )


async def test_members_have_the_clients_that_are_back_by_their_own_records() -> None:
    """Also after the leader has stopped counting; nobody is asked where none is missing."""
    it = cut_off(1, ago_ms=HOUR)
    it.clients_back = 1

    def step(ts: int, broker: str, name: str) -> ClientStep:
        return ClientStep(
            ts=ts, broker=broker, event="attached", client="10.0.0.1:1", what="producer",
            name=name, topic="persistent://t/n/a", bundle="t/n/0x0",
        )  # fmt: skip

    archives = Recorded(
        *(step(it.left_at - HOUR, it.broker, name) for name in ("p1", "p2", "p3")),
        MemberChange(
            ts=it.left_at, broker="b2:8080", of=it.broker, event="left", how="lost",
            left_at=it.left_at,
        ),
        step(it.left_at + 2_000, "b2:8080", "p1"),
        step(it.left_at + 900_000, "b2:8080", "p2"),
    )  # fmt: skip
    (counted,) = await with_clients_back(archives, [it], NOW)
    assert (counted.clients, counted.clients_back, counted.clients_waited_ms) == (3, 2, 900_000)
    asked = archives.asked
    it.clients_back = 3
    assert await with_clients_back(archives, [it], NOW) == [it]
    assert archives.asked == asked


def test_brokers_of_one_partition_are_one_line() -> None:
    """With what came of all of them; one that was lost before, or otherwise, has its own."""
    six = [cut_off(number, ago_ms=60_000 + 1_000 * number) for number in range(1, 7)]
    before = cut_off(7, ago_ms=HOUR // 2)
    frozen = cut_off(8, sign="did not answer within 5 s")
    told = list(news([*six, before, frozen], NOW, HOUR))
    lines = [it.text for it in told]
    assert {it.over_ms for it in told} == {NOW - 60_000, NOW - HOUR // 2 + 7_000, NOW - 52_000}
    assert len(lines) == 3
    (together,) = [line for line in lines if "b1:8080" in line]
    names, _, _ = together.partition(" and 3 more lost ")
    times = [time_of_day(NOW - 60_000 - 1_000 * number) for number in (1, 2, 3)]
    assert names == ", ".join(f"b{n}:8080 ({at})" for n, at in zip((1, 2, 3), times, strict=True))
    assert together.count("asked then, they answer, without sessions; ") == 1
    assert "their sessions ended without a word; " in together
    assert "12 bundles in all; 18 of 18 clients back, who waited 6.0 s at most" in together
    assert together.endswith("; the brokers are back after 6.0 s at most, the same processes")
    assert sum(line.startswith(("b7:8080 lost", "b8:8080 lost")) for line in lines) == 2


def test_losses_by_an_outage_of_the_store_name_it() -> None:
    """Of one broker and of several; so does one that stood still. A loss of before does not."""

    def proven(of: str, until_ms: int) -> MemberChange:
        answers = {"took_ms": 57_000, "unheard_ms": 5_000}
        return MemberChange(ts=until_ms, broker=of, of=of, event="proven", **answers)

    end_ms = NOW - 59_000
    lapses = lapses_of(unproven_of([proven(f"b{it}:8080", end_ms) for it in (1, 2, 3)]))
    outage = (
        f"the metadata store did not answer 3 brokers from {clock(end_ms - 62_000)} to "
        f"{time_of_day(end_ms)}; asked then, "
    )
    lost = [cut_off(1), cut_off(2)]
    (line,) = [it.text for it in news(lost, NOW, HOUR, lapses)]
    head = f"lost 60 s ago ({clock(NOW - 60_000)}): "
    assert line.startswith(f"b1:8080, b2:8080 {head}{outage}they answer, without sessions; 4 bun")
    (line,) = [it.text for it in news(lost[:1], NOW, HOUR, lapses)]
    assert line.startswith(f"b1:8080 {head}{outage}it answers, without a session; 2 bundles placed")
    assert loss_text(lost[0], NOW, lapses).startswith(f"b1:8080 {head}{outage}it answers, without")
    (line,) = [it.text for it in news([cut_off(1, ago_ms=HOUR // 2)], NOW, HOUR, lapses)]
    assert ", its session ended without a word; asked then, " in line
    still = MemberChange(ts=end_ms, broker="b1:8080", of="b1:8080", event="stood", took_ms=60_000)
    (line,) = [it.text for it in news(lost[:1], NOW, HOUR, lapses_of(unproven_of([still])))]
    stood = f"it stood still from {clock(end_ms - 60_000)} to {time_of_day(end_ms)}; asked"
    assert line.startswith(f"b1:8080 {head}{stood}")


def test_losses_some_seconds_apart_are_told_apart() -> None:
    """Two brokers that were killed one after the other, each with its time and its bundles."""
    two = [cut_off(1), cut_off(2, ago_ms=65_000)]
    lines = texts(two)
    assert [line.partition(" lost ")[0] for line in lines] == ["b1:8080", "b2:8080"]
    assert all("2 bundles placed" in line for line in lines)
    (together,) = texts([cut_off(1), cut_off(2, ago_ms=60_500)])
    assert together.startswith("b1:8080, b2:8080 lost ")


def test_freezes_some_seconds_apart_are_no_outage_of_the_store() -> None:
    """Though both end at once."""
    first, second = Unproven("b1", NOW, 22_000), Unproven("b2", NOW, 13_000)
    assert len(lapses_of([first, second])) == 2
    assert len(lapses_of([first, Unproven("b2", NOW + 5_000, 25_000)])) == 1


def test_an_outage_of_the_store_begins_with_its_last_answer() -> None:
    """The last one that any broker had: not when the first session could not be proven any more. It
    is no outage of the store if a broker stood still.
    """

    def proven(of: str, at_ms: int, took_ms: int) -> MemberChange:
        answers = {"took_ms": took_ms, "unheard_ms": 22_000}
        return MemberChange(ts=NOW + at_ms, broker=of, of=of, event="proven", **answers)

    changes = [proven("b1", 0, 40_000), proven("b2", 500, 38_000)]
    (lapse,) = lapses_of(unproven_of(changes))
    assert (lapse.since, lapse.begin, lapse.end) == (NOW - 59_500, NOW - 40_000, NOW + 500)
    text = (
        f"from {clock(NOW - 59_500)} to {clock(NOW + 500)} (60 s) at most b1, b2 had no answer of "
        "the metadata store: they could not prove their sessions from "
        f"{time_of_day(NOW - 40_000)} on"
    )
    assert (str(lapse), lapse.then) == (
        text, f"THE METADATA STORE DID NOT ANSWER 2 BROKERS THEN: {text}"
    )  # fmt: skip
    (alone,) = lapses_of(unproven_of(changes[:1]))
    assert "(62 s) at most b1 had no answer of the metadata store: its session was" in alone.then
    still = MemberChange(ts=NOW, broker="b1", of="b1", event="stood", took_ms=60_000)
    (froze,) = lapses_of(unproven_of([changes[0], still]))
    assert str(froze).endswith("(60 s) b1 stood still: frozen, or without a CPU")


def test_an_outage_whose_end_nobody_recorded_lasted_at_least_until_the_last_sign() -> None:
    """Of a broker that ended meanwhile, by its next start at the latest; together with those that
    lived, of which the end is recorded.
    """

    def change(event: str, at_ms: int, of: str = "b1", **more: Any) -> MemberChange:
        return MemberChange(ts=NOW + at_ms, broker=of, of=of, event=event, **more)

    began = change("unanswered", 4_000, unheard_ms=4_000)

    def sign(_broker: str, _at_ms: int) -> int:
        return NOW + 20_000

    (open_,) = unproven_of([began], sign)
    assert (open_.answered, open_.until, open_.is_open) == (NOW, NOW + 20_000, True)
    (again,) = unproven_of([change("starts", 9_000), began], sign)
    assert (again.answered, again.until, again.is_open) == (NOW, NOW + 9_000, True)
    (lapse,) = lapses_of([open_])
    assert lapse.is_of_store
    assert (lapse.since, lapse.end) == (NOW, NOW + 20_000)
    assert str(lapse) == (
        f"from {clock(NOW)} until {clock(NOW + 20_000)} at least b1 had no answer of the metadata "
        "store: no record tells how that ended"
    )
    lived = change("proven", 60_000, "b2", took_ms=35_000, unheard_ms=25_000)
    (lapse,) = lapses_of(unproven_of([lived, began], sign))
    assert (lapse.since, lapse.begin, lapse.end) == (NOW, NOW + 25_000, NOW + 60_000)
    assert lapse.brokers == {"b1", "b2"}
    assert not lapse.is_open
    ended = change("proven", 60_000, took_ms=35_000, unheard_ms=25_000)
    (lapse,) = lapses_of(unproven_of([ended, began], sign))
    assert not lapse.is_open
    later = change("unanswered", 30_000, "b3", unheard_ms=4_000)
    assert len(lapses_of(unproven_of([began, later], sign))) == 2


def test_an_outage_that_was_shorter_than_the_lease_is_told() -> None:
    """Nobody's session was unproven."""

    def change(event: str, at_ms: int, of: str, **more: Any) -> MemberChange:
        return MemberChange(ts=NOW + at_ms, broker=of, of=of, event=event, **more)

    changes = [
        change("unanswered", 4_000, "b1", unheard_ms=4_000),
        change("unanswered", 5_000, "b2", unheard_ms=4_000),
        change("proven", 12_000, "b1", took_ms=0, unheard_ms=12_000),
        change("proven", 14_000, "b2", took_ms=0, unheard_ms=13_000),
    ]
    (lapse,) = lapses_of(unproven_of(changes))
    assert str(lapse) == (
        f"from {clock(NOW + 1_000)} to {clock(NOW + 14_000)} (13 s) at most b1, b2 had no answer "
        "of the metadata store: their sessions stayed proven"
    )
    assert lapse.then.startswith("THE METADATA STORE DID NOT ANSWER 2 BROKERS THEN: ")


def test_what_is_not_served_again_is_told_of_all() -> None:
    """Bundles without an owner, and clients that are not back."""
    two = [cut_off(1), cut_off(2)]
    for each in two:
        each.back_at, each.same_process, each.placed, each.clients_back = None, False, 1, 0
    (line,) = texts(two)
    assert "4 bundles in all, 2 without an owner until the next lookup" in line
    assert "NONE of 6 clients back" in line
    assert "within" not in line
    for each in two:
        each.placed, each.placed_at = 2, each.left_at
    (line,) = texts(two, NOW + HOUR)
    assert "NONE of 6 clients back within 10 min" in line
    (line,) = texts(two[:1], NOW + HOUR)
    assert "NONE of 3 clients back within 10 min" in line
    (line,) = texts(two[:1])
    assert "NONE of 3 clients back, who" in line


def test_a_freeze_is_told_as_long_as_it_was() -> None:
    """And not as long as the session was not proven after it; what another broker did, or was long
    before, is something else.
    """

    def change(event: str, at_ms: int, took_ms: int, of: str = "b1") -> MemberChange:
        return MemberChange(ts=NOW + at_ms, broker=of, of=of, event=event, took_ms=took_ms)

    freeze = change("stood", 0, 5_000), change("proven", 200, 100)
    (time,) = unproven_of(freeze)
    assert (time.begin, time.until, time.stood_ms) == (NOW - 5_000, NOW + 200, 5_000)
    (line,) = lapse_lines(lapses_of([time]))
    assert line.endswith("(5.2 s) b1 stood still: frozen, or without a CPU")
    times = unproven_of([*freeze, change("proven", 0, 5_000, "b2"), change("proven", -90_000, 9)])
    assert [(it.broker, it.until - NOW, it.stood_ms) for it in times] == [
        ("b1", -90_000, 0), ("b2", 0, 0), ("b1", 200, 5_000),
    ]  # fmt: skip
    (line,) = lapse_lines(
        lapses_of(unproven_of([change("stood", 0, 40_000), change("proven", 9_000, 9_000)]))
    )
    assert line.endswith(
        "b1 could not prove its session: it stood still for 40 s, frozen, or without a CPU"
    )
    both = unproven_of([change("stood", 0, 5_000), change("stood", 300, 5_100, "b2")])
    (line,) = lapse_lines(lapses_of(both))
    assert line.endswith("b1, b2 stood still: frozen, or without a CPU")


def test_a_process_that_ended_does_not_answer() -> None:
    """Whoever answered in its place is another one."""
    absence = cut_off(1)
    absence.same_process = False
    (line,) = texts([absence])
    assert "asked then, it had ended: another process answered in its place" in line
    absence.sign = f"did not answer within 5 s{LATER}{ANSWERS}"
    (line,) = texts([absence])
    assert "; later it had ended: another process answered in its place; " in line


def test_nobody_knows_yet_which_process_answered() -> None:
    """As long as the broker is not back: it may be one that was started in its place."""
    absence = cut_off(1)
    absence.back_at = None
    (line,) = texts([absence])
    assert f"asked then, it {MAYBE_ANSWERS}; " in line
    assert ANSWERS not in line
    both = [cut_off(number) for number in (1, 2)]
    for it in both:
        it.back_at = None
    (line,) = texts(both)
    assert "; asked then, they answered without sessions, or other processes did in their " in line


def test_each_loss_that_is_recorded_is_told() -> None:
    """With what came of it before the next one of that broker; not that it stopped in order."""

    def change(event: str, at_ms: int, of: str = "b1", **more: Any) -> MemberChange:
        return MemberChange(ts=NOW + at_ms, broker="b0", of=of, event=event, **more)

    changes = [
        change("left", 0, how="lost", bundles=2, unheard_ms=6_000),
        change("sign", 500, how="did not answer within 5 s"),
        change("later", 900, how="cannot be reached"),
        change("left", 1_000, "b2", how="stopped", bundles=1),
        change("placed", 2_000, took_ms=1_500),
        change(
            "clients", 3_000, clients=3, clients_back=3, clients_waited_ms=2_000, unheard_ms=6_000
        ),
        change("back", 9_000, took_ms=8_000, same_process=True),
        change("back", 9_500, "b2", took_ms=8_500),
        change("left", 60_000, how="lost", bundles=1),
    ]
    first, second = recorded_losses(changes)
    assert loss_text(first, NOW + HOUR) == (
        f"b1 lost 60 min ago ({clock(NOW)}), its session ended without a word up to 6.0 s after "
        "its last sign; asked then, it did not answer within 5 s (frozen, or cut off); later it "
        "cannot be reached (its process has ended, or its host is away); 2 bundles placed after "
        "1.5 s at most; 3 clients waited up to 8.0 s: 2.0 s since it was lost, and up to 6.0 s "
        "before; the broker is back after 8.0 s, the same process"
    )
    assert loss_text(second, NOW + HOUR) == (
        f"b1 lost 59 min ago ({clock(NOW + 60_000)}), 2 times since {clock(NOW)}, "
        "its session ended without a word; it owned 1 bundle"
    )


def test_brokers_that_do_not_answer_now() -> None:
    """Those whose session lasts, the one whose session ended meanwhile, and the one that is gone
    and of which the leader has not recorded how: not one that has been gone for long.
    """
    rows = [a_broker_shown(name) for name in ("b1", "b2", "b3")]
    for row, age_ms in zip(rows[1:], (5_000, 500_000), strict=True):
        row.state, row.report_age_ms = "gone", age_ms
    silent = {"b8": "b8 is not active", "b1": "b1 cannot be reached: connection refused\nor so"}
    assert list(silent_lines(a_cluster_shown(rows), silent)) == [
        (
            "b1 does not answer now (cannot be reached: connection refused); its session had not "
            "ended when asked"
        ),
        "b8 is gone: its session has ended just now",
        "b2 is gone: its session has ended, the leader has not recorded how yet",
    ]
