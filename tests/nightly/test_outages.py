"""One outage for each time that a broker went: how it went, when, and for how long its bundles had
no owner, on made days of three brokers.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from nightly.nightly import analyze, job_of, report

from bench import _history as history
from bench._made_days import Behaviour, Cluster, bundle_of
from loadmanager.kit.history.source import HistorySource
from loadmanager.nightly.in_process import InProcess

LEFT = {"event": "left", "how": "lost", "unheardMs": 6_000}

HALVES = [(space, half) for space in range(6) for half in (0, 1)]


def at(hour: int, minute: int, second: float = 0) -> float:
    """A time of day, in minutes."""
    return 60 * hour + minute + second / 60


def ms(minute: float) -> int:
    """The time of a record at this minute."""
    return history.START_MS + int(minute * 60_000)


def told(folder: Path, fill: Callable[[Cluster], None], **how: Any) -> dict[str, Any]:
    """The report of an hour from nine on, with a sample a minute."""
    cluster = Cluster(folder / "history", brokers=3, spaces=6, every=1)
    cluster.loads(0, Behaviour(begin=540, end=600, **how))
    fill(cluster)
    cluster.write()
    assert analyze(folder) == 0
    return report(folder)


def of_broker(cluster: Cluster, broker: int) -> list[str]:
    """Its bundles."""
    return [bundle_of(*each) for each in HALVES if cluster.usual_owner(*each) == broker]


def member(cluster: Cluster, by: int, minute: float, of: int, **fields: Any) -> None:
    """A record of a broker."""
    cluster.add(0, "member", by, minute, {"of": f"b{of}", **fields})


def outages(told: dict[str, Any]) -> list[tuple[str, str, int, int | None, int]]:
    """Broker, how, when, when it was back, bundles."""
    names = ("broker", "how", "ts", "back_ts", "bundles")
    rows = told["tables"]["outages"]["rows"]
    return sorted((tuple(row[name] for name in names) for row in rows), key=lambda row: row[2])


def cards(told: dict[str, Any]) -> list[str]:
    """The titles of outages, the worst first."""
    return [card["title"] for card in told["findings"] if card["question"] == "outages"]


STOP, START, KILL, TAKEN = at(9, 21, 12), at(9, 22, 40), at(9, 23, 23), at(9, 23, 29)


def stopped_and_killed(cluster: Cluster) -> None:
    """Ctrl-C of all, another start, and SIGKILL of the leader and of one more."""
    for broker in range(3):
        for bundle in of_broker(cluster, broker):
            cluster.acquired(0, broker, 540, bundle)
            cluster.released(0, broker, STOP, bundle, "stop")
            cluster.acquired(0, broker, START + 0.1, bundle)
        member(cluster, broker, START, broker, event="starts")
    for broker in (0, 1):
        for bundle in of_broker(cluster, broker):
            cluster.acquired(0, 2, TAKEN, bundle)
        member(cluster, 2, TAKEN, broker, **LEFT)
    for epoch, (minute, leader, before) in enumerate(
        [(540, 0, None), (START, 0, "b0"), (TAKEN, 2, "b0")]
    ):
        fields = {"event": "leads", "epoch": epoch + 1, "before": before}
        member(cluster, leader, minute, leader, **fields)


def test_a_crash_right_after_a_restart_is_no_stop(tmp_path: Path) -> None:
    """Each process that went has its outage, with its own bundles; the leader crashed."""
    answer = told(
        tmp_path,
        stopped_and_killed,
        away=lambda broker, minute: 561 <= minute < 563 or (broker < 2 and minute >= 563),
    )
    stops = [("stop", f"b{broker}", ms(START), 4) for broker in range(3)]
    rows = [(how, name, back, count) for name, how, _, back, count in outages(answer)]
    assert sorted(rows[:3]) == sorted(stops)
    assert sorted(rows[3:]) == [("crash", "b0", None, 4), ("crash", "b1", None, 4)]
    assert {ts for _, how, ts, _, _ in outages(answer) if how == "crash"} == {ms(TAKEN) - 6_000}
    assert cards(answer) == [
        "The whole cluster was down at 09:21 for 88 s",
        "2 brokers crashed at 09:23: 8 bundles without an owner",
    ]
    orderly = [row["orderly"] for row in answer["tables"]["leaders"]["rows"]]
    assert orderly == [False, True, False]


DOWN, UP = at(9, 20, 55), at(9, 40, 55)


def all_stopped(cluster: Cluster) -> None:
    """Ctrl-C of all, and another start twenty minutes later. The leader has no bundles; the last
    load of each is of up to a minute before.
    """
    for broker in range(3):
        for bundle in of_broker(cluster, broker) if broker else ():
            cluster.acquired(0, broker, 540, bundle)
            cluster.released(0, broker, DOWN, bundle, "stop")
            cluster.acquired(0, broker, UP + 0.1, bundle)
        member(cluster, broker, DOWN, broker, event="stops")
        member(cluster, broker, UP, broker, event="starts")
    for epoch, minute, leader, before in [(1, 540, 0, None), (2, UP, 1, "b0")]:
        fields = {"event": "leads", "epoch": epoch, "before": before}
        member(cluster, leader, minute, leader, **fields)


def test_a_stop_without_bundles_that_no_leader_sees_is_in_order(tmp_path: Path) -> None:
    """That of the leader, when the whole cluster is stopped."""
    answer = told(tmp_path, all_stopped, away=lambda _, minute: 561 <= minute < 581)
    rows = [(name, how, ts // 1000) for name, how, ts, _, _ in outages(answer)]
    assert sorted(rows) == [(f"b{broker}", "stop", ms(DOWN) // 1000) for broker in range(3)]
    (card,) = [card for card in answer["findings"] if card["question"] == "outages"]
    assert card["title"] == "The whole cluster was down at 09:20 for 20 minutes"
    assert "All 3 brokers were away: 3 stopped in order." in card["text"]
    assert card["advice"].startswith("Nothing, if that was meant")
    rows = answer["tables"]["leaders"]["rows"]
    assert [(row["before"], row["orderly"]) for row in rows] == [(None, False), ("b0", True)]


def test_brokers_that_crashed_before_the_last_one_stopped_have_their_card(tmp_path: Path) -> None:
    """b0 and b1 are killed for good, nobody asks for their bundles, and b2 is stopped 70 s later,
    with the end of the records: too soon for a silence.
    """

    def killed(cluster: Cluster) -> None:
        for broker in range(3):
            for bundle in of_broker(cluster, broker):
                cluster.acquired(0, broker, 541, bundle)
        for broker in (0, 1):
            member(cluster, 2, at(9, 58, 36), broker, **LEFT)
        for bundle in of_broker(cluster, 2):
            cluster.released(0, 2, at(9, 59, 46), bundle, "stop")

    answer = told(tmp_path, killed, away=lambda broker, minute: broker < 2 and minute >= 598)
    rows = answer["tables"]["outages"]["rows"]
    assert sorted((row["broker"], row["how"], row["never_owned"]) for row in rows) == [
        ("b0", "crash", 4),
        ("b1", "crash", 4),
        ("b2", "stop", 4),
    ]
    assert [title.partition(" for ")[0] for title in cards(answer)] == [
        "The whole cluster was down at 09:59",
        "2 brokers crashed at 09:58: 8 bundles without an owner",
    ]


STOPPED, CRASHED = at(9, 30, 30), at(9, 2, 35)


def crashed_and_stopped(cluster: Cluster, unowned_s: float) -> None:
    """b1 crashed at 09:02:35, so that four bundles had no owner for a time; Ctrl-C of all at
    09:30:30, for three minutes.
    """
    taken, started = CRASHED + unowned_s / 60, STOPPED + 3
    for bundle in of_broker(cluster, 1):
        cluster.acquired(0, 1, 540, bundle, life=1)
        cluster.acquired(0, 2, taken, bundle, life=2)
        cluster.released(0, 2, STOPPED, bundle, "stop", life=2)
        cluster.acquired(0, 2, started, bundle, life=3)
    member(cluster, 2, CRASHED + 0.1, 1, **LEFT)
    member(cluster, 1, taken + 0.1, 1, event="starts")
    for broker in (0, 2):
        for bundle in of_broker(cluster, broker):
            cluster.acquired(0, broker, 540, bundle, life=1)
            cluster.released(0, broker, STOPPED, bundle, "stop", life=1)
            cluster.acquired(0, broker, started, bundle, life=2)
    for broker in range(3):
        member(cluster, broker, STOPPED, broker, event="stops")
        member(cluster, broker, started, broker, event="starts")


@pytest.mark.parametrize("unowned_s", [24, 1_620])
def test_an_outage_of_all_is_before_one_of_a_broker_that_hurt_no_more(
    tmp_path: Path, unowned_s: float
) -> None:
    """Though all stopped in order, unless the other hurt more than twice as much; its card says for
    how long clients had no service.
    """

    def away(broker: int, minute: int) -> bool:
        crashed = broker == 1 and CRASHED < minute <= CRASHED + unowned_s / 60
        return crashed or 570 <= minute < 573.5

    answer = told(tmp_path, lambda cluster: crashed_and_stopped(cluster, unowned_s), away=away)
    titles = [
        "The whole cluster was down at 09:30 for 3 minutes",
        "b1 crashed at 09:02: 4 bundles without an owner",
    ]
    assert cards(answer) == (titles if unowned_s < 60 else titles[::-1])
    assert answer["headline"].startswith(f"Not a good day: {cards(answer)[0]}")
    (card,) = [card for card in answer["findings"] if card["title"] == titles[0]]
    rows = [row for row in answer["tables"]["outages"]["rows"] if row["how"] == "stop"]
    waited = sum(row["client_minutes"] for row in rows)
    assert waited == pytest.approx(12 * 4 * 3, rel=0.01)
    assert f", for about {waited:,.1f} client-minutes" in card["hurt"]


def test_an_outage_that_is_not_over_lasts_until_now(tmp_path: Path) -> None:
    """A day that is analysed at 10:05, whose brokers were stopped at 09:57."""
    cluster = Cluster(tmp_path / "history", brokers=3, spaces=6, every=1)
    cluster.loads(0, Behaviour(begin=540, end=597))
    for broker in range(3):
        for bundle in of_broker(cluster, broker):
            cluster.acquired(0, broker, 540, bundle)
            cluster.released(0, broker, at(9, 57), bundle, "stop")
        member(cluster, broker, at(9, 57), broker, event="stops")
    cluster.write()
    source = HistorySource(str(tmp_path / "history"))
    engine = InProcess()
    try:
        job_of(engine, source, tmp_path).run(history.DATE, now_ms=ms(at(10, 5)))
    finally:
        engine.close()
    (card,) = [card for card in report(tmp_path)["findings"] if card["question"] == "outages"]
    down = "The whole cluster was down at 09:57 for 8 minutes, until now, at 10:05"
    assert card["title"] == down
    assert "None was back by 10:05, when this was written." in card["text"]
    assert card["until_ms"] == ms(at(10, 5))
    # 12 bundles with 4 producers each, for eight minutes
    assert card["numbers"]["clientMinutes"] == pytest.approx(12 * 4 * 8, rel=0.01)


@pytest.mark.parametrize(("apart_s", "number"), [(59, 2), (4, 1)])
def test_brokers_that_were_lost_within_seconds_have_one_card(
    tmp_path: Path, apart_s: int, number: int
) -> None:
    """Two that were killed one after the other, a minute apart, have nothing to do with each other:
    each has its card, and its time of being back.
    """

    def killed(cluster: Cluster) -> None:
        for broker in (0, 1):
            taken = at(9, 48, 1 + apart_s * broker)
            for bundle in of_broker(cluster, broker):
                cluster.acquired(0, broker, 541, bundle, life=1)
                cluster.acquired(0, 2, taken, bundle, life=2)
            member(cluster, 2, taken, broker, **LEFT)
            member(cluster, broker, taken + 20 / 60 + broker, broker, event="starts")

    answer = told(tmp_path, killed)
    found = [card for card in answer["findings"] if card["question"] == "outages"]
    assert len(found) == number
    shared = [card for card in found if "Look at what they share" in card["advice"]]
    assert len(shared) == (number == 1)
    assert ["within 4 s" in card["text"] for card in shared] == [True] * len(shared)


def test_what_brokers_lost_is_no_move(tmp_path: Path) -> None:
    """The figure of moves counts those that somebody wanted."""

    def moved(cluster: Cluster) -> None:
        for number, bundle in enumerate(of_broker(cluster, 0)):
            cluster.acquired(0, 0, 541, bundle, life=1)
            if number:
                cluster.acquired(0, 2, at(9, 20), bundle, life=2)
            else:
                to = {"life": 1, "destination": "b2"}
                cluster.released(0, 0, at(9, 10), bundle, "operator", **to)
                cluster.acquired(0, 2, at(9, 10, 0.1), bundle, life=2)
        member(cluster, 2, at(9, 20), 0, **LEFT)
        member(cluster, 0, at(9, 21), 0, event="starts")

    answer = told(tmp_path, moved)
    assert (answer["totals"]["moves"], answer["totals"]["takenOver"]) == (1, 3)
    assert answer["tables"]["moves"]["total"] == 4


FREEZES = ((at(9, 13, 24), 60), (at(9, 14, 51), 73))


def frozen_twice(cluster: Cluster, *, stood: bool = True) -> None:
    """SIGSTOP of b1, twice: each time others have its bundles 10 s later, and b1 loses them as it
    wakes up.
    """
    for number, (minute, seconds) in enumerate(FREEZES):
        woke, taken = minute + seconds / 60, minute + 10 / 60
        for life, bundle in enumerate(of_broker(cluster, 1), 100 * number):
            cluster.acquired(0, 1, minute - 0.3, bundle, life=2 * life + 1)
            cluster.acquired(0, 2, taken, bundle, life=2 * life + 2)
            lost = {"reason": "the session is lost", "cause": "loss", "life": 2 * life + 1}
            cluster.step(0, 1, woke + 0.01, bundle, ("Owned", "Free"), **lost)
            if not number:
                to = {"life": 2 * life + 2, "destination": "b1"}
                cluster.released(0, 2, FREEZES[1][0] - 0.3, bundle, "operator", **to)
        member(cluster, 0, taken, 1, **LEFT)
        if stood:
            member(cluster, 1, woke, 1, event="stood", tookMs=seconds * 1_000)


def asleep(broker: int, minute: int) -> bool:
    """The samples that b1 did not take."""
    return broker == 1 and minute in (553, 555)


def test_two_freezes_are_two_outages(tmp_path: Path) -> None:
    """Each from the signal on, as the broker recorded that it stood still."""
    answer = told(tmp_path, frozen_twice, away=asleep)
    ends = [ms(minute) + seconds * 1_000 for minute, seconds in FREEZES]
    assert [row[:3] for row in outages(answer)] == [
        ("b1", "session lost", ms(minute)) for minute, _ in FREEZES
    ]
    for (*_, back_ms, bundles), end_ms in zip(outages(answer), ends, strict=True):
        assert bundles == 4
        assert back_ms is not None
        assert 0 <= back_ms - end_ms <= 1_000
    rows = answer["tables"]["outages"]["rows"]
    assert [round(row["unowned_s_max"], 2) for row in rows] == [10.0, 10.0]
    assert [row["late_s"] for row in rows] == [0.0, 0.0]
    assert sorted(cards(answer)) == [
        "b1 lost its session at 09:13: 4 bundles without an owner",
        "b1 lost its session at 09:14: 4 bundles without an owner",
    ]
    (first, _) = [card for card in answer["findings"] if card["question"] == "outages"]
    assert "had no owner for 10 s, longest" in first["text"]
    assert "may have been" not in first["text"]
    assert first["text"].startswith(("It stood still for 60 s.", "It stood still for 73 s."))
    assert first["advice"].startswith("Find out what stopped its process")


def test_a_freeze_that_nobody_timed_is_told_from_the_last_sign_on(tmp_path: Path) -> None:
    """With how much less it may have been: until the session was over."""
    answer = told(tmp_path, lambda cluster: frozen_twice(cluster, stood=False), away=asleep)
    rows = answer["tables"]["outages"]["rows"]
    assert [(row["how"], round(row["unowned_s_max"]), row["late_s"]) for row in rows] == [
        ("session lost", 6, 6.0)
    ] * 2
    texts = [card["text"] for card in answer["findings"] if card["question"] == "outages"]
    said = "That is from its last sign on, so it may have been up to 6 s less."
    assert all(said in text for text in texts)
    assert not any("It stood still" in text for text in texts)


def test_a_crash_without_bundles_is_in_the_table(tmp_path: Path) -> None:
    """b2 has none, is killed, and is back after 20 s, before its next sample."""

    def killed(cluster: Cluster) -> None:
        member(cluster, 0, at(9, 30, 6), 2, **LEFT)
        member(cluster, 2, at(9, 30, 20), 2, event="starts")

    answer = told(tmp_path, killed, owner=lambda space, _half, _minute: space % 2)
    assert outages(answer) == [("b2", "crash", ms(at(9, 30)), ms(at(9, 30, 20)), 0)]
    (card,) = [card for card in answer["findings"] if card["question"] == "outages"]
    assert (card["title"], card["hurt"][:6]) == ("b2 crashed at 09:30", "nobody")
    assert card["importance"] < 60


def test_a_freeze_without_bundles_is_timed_by_the_broker(tmp_path: Path) -> None:
    """From the signal until it went on, and not from its last heartbeat."""
    begin = at(9, 12, 6)

    def frozen(cluster: Cluster) -> None:
        member(cluster, 0, begin + 0.1, 2, **LEFT)
        member(cluster, 2, begin + 73 / 60, 2, event="stood", tookMs=73_000)

    answer = told(tmp_path, frozen, owner=lambda space, _half, _minute: space % 2)
    end_ms = ms(begin + 73 / 60)
    assert outages(answer) == [("b2", "session lost", end_ms - 73_000, end_ms, 0)]
    assert [row["late_s"] for row in answer["tables"]["outages"]["rows"]] == [0.0]


def test_an_outage_ranks_by_how_long_bundles_had_no_owner(tmp_path: Path) -> None:
    """A crash of 6 s with two bundles is less than a lost session of 80 s with five."""

    def both(cluster: Cluster) -> None:
        for bundle in of_broker(cluster, 0)[:2]:
            cluster.acquired(0, 0, 541, bundle, life=1)
            cluster.acquired(0, 1, at(9, 20, 6), bundle, life=2)
        member(cluster, 1, at(9, 20, 6), 0, **LEFT)
        member(cluster, 0, at(9, 20, 10), 0, event="starts")
        for bundle in of_broker(cluster, 2):
            cluster.acquired(0, 2, 541, bundle, life=1)
            lost = {"cause": "loss", "life": 1}
            cluster.step(0, 2, at(9, 40), bundle, ("Owned", "Free"), **lost)
            cluster.acquired(0, 1, at(9, 41, 20), bundle, life=2)

    answer = told(tmp_path, both)
    assert cards(answer) == [
        "b2 lost its session at 09:40: 4 bundles without an owner",
        "b0 crashed at 09:20: 2 bundles without an owner",
    ]
    assert answer["headline"].startswith("Not a good day: b2 lost its session at 09:40")


def store_away(cluster: Cluster) -> None:
    """The metadata store gives no answer from 09:30:00 to 09:30:43."""
    for broker in range(3):
        proven = {"event": "proven", "tookMs": 18_000 + broker, "unheardMs": 25_000 + broker}
        member(cluster, broker, at(9, 30, 43), broker, **proven)


def test_an_outage_that_many_felt_is_worse_than_one_that_nobody_felt(tmp_path: Path) -> None:
    """b0's bundles have no client, and no owner for 40 s; those of b1 and b2 for 6 s: of b1 one
    has a hundred producers, the others of both have one.
    """

    def crashed(cluster: Cluster) -> None:
        crashes = (0, at(9, 15, 17), 40), (1, at(9, 30, 32), 6), (2, at(9, 45, 47), 6)
        for broker, begun, lasted_s in crashes:
            for bundle in of_broker(cluster, broker):
                cluster.acquired(0, broker, 541, bundle, life=1)
                cluster.acquired(0, (broker + 1) % 3, begun + lasted_s / 60, bundle, life=2)
            left = {**LEFT, "unheardMs": 1000 * lasted_s}
            member(cluster, (broker + 1) % 3, begun + lasted_s / 60, broker, **left)
            member(cluster, broker, begun + (lasted_s + 4) / 60, broker, event="starts")

    def producers(bundle: str) -> int:
        if bundle in of_broker(made, 0):
            return 0
        return 100 if bundle == of_broker(made, 1)[0] else 1

    made = Cluster(tmp_path / "unused", brokers=3, spaces=6, every=1)
    answer = told(tmp_path, crashed, producers=producers)
    found = [card for card in answer["findings"] if card["question"] == "outages"]
    assert [card["where"] for card in found] == ["b1", "b2", "b0"]
    assert [card["importance"] >= 80 for card in found] == [True, True, False]
    assert "client-minutes" in found[0]["hurt"]
    assert found[2]["hurt"].startswith("nobody")
    rows = {row["broker"]: row for row in answer["tables"]["outages"]["rows"]}
    assert [round(rows[name]["clients"]) for name in ("b0", "b1", "b2")] == [0, 103, 4]
    assert rows["b0"]["client_minutes"] == 0 < rows["b2"]["client_minutes"]
    assert rows["b1"]["client_minutes"] > 20 * rows["b2"]["client_minutes"]


def test_an_outage_of_the_metadata_store_has_a_card(tmp_path: Path) -> None:
    """Whom it did not answer, when, for how long, and whom that hurt."""
    answer = told(tmp_path / "all", store_away)
    (row,) = answer["tables"]["lapses"]["rows"]
    assert (row["ts"], row["until_ts"]) == (ms(at(9, 30)), ms(at(9, 30, 43)))
    assert (row["what"], row["brokers"]) == ("metadata store", ["b0", "b1", "b2"])
    (card,) = [card for card in answer["findings"] if card["question"] == "lapses"]
    assert card["title"] == "The metadata store did not answer at 09:30 for 43 s"
    assert "For 18 s of it they could not prove their sessions" in card["text"]
    assert "only stored topics that were open went on" in card["hurt"]


def test_an_outage_of_the_metadata_store_that_nobody_survived_has_a_card(tmp_path: Path) -> None:
    """Its brokers recorded that it began, and started anew."""

    def crashed(cluster: Cluster) -> None:
        for broker in range(3):
            silent = {"event": "unanswered", "unheardMs": 4_000}
            member(cluster, broker, at(9, 30, 4), broker, **silent)
            member(cluster, broker, at(9, 30, 40), broker, event="starts")

    answer = told(tmp_path, crashed)
    (row,) = answer["tables"]["lapses"]["rows"]
    assert (row["ts"], row["until_ts"]) == (ms(at(9, 30)), ms(at(9, 30, 40)))
    assert (row["what"], row["at_least"], row["unproven_s"]) == ("metadata store", True, 0)
    (card,) = [card for card in answer["findings"] if card["question"] == "lapses"]
    assert card["title"] == "The metadata store did not answer at 09:30 for at least 40 s"
    assert "No record tells how it ended." in card["text"]


def test_sessions_that_were_lost_by_it_are_its_effect(tmp_path: Path) -> None:
    """One card, as important as the worst of them."""

    def lost(cluster: Cluster) -> None:
        store_away(cluster)
        for bundle in of_broker(cluster, 1):
            cluster.acquired(0, 1, 541, bundle, life=1)
            gone = {"cause": "loss", "life": 1}
            cluster.step(0, 1, at(9, 30, 25), bundle, ("Owned", "Free"), **gone)
            cluster.acquired(0, 1, at(9, 30, 50), bundle, life=2)

    (card,) = [
        card
        for card in told(tmp_path, lost)["findings"]
        if card["question"] in ("lapses", "outages")
    ]
    assert card["title"] == "The metadata store did not answer at 09:30 for 43 s"
    assert card["effects"] == [
        "b1 lost its session at 09:30: 4 bundles without an owner (from 09:30)."
    ]
    assert card["importance"] > 80


KILLED, AGAIN = at(9, 59, 50), at(10, 0, 20)


def killed_after_the_last_load(cluster: Cluster) -> None:
    """SIGKILL of all, another start, and nothing more than that they take bundles."""
    for broker in range(3):
        for bundle in of_broker(cluster, broker):
            cluster.acquired(0, broker, 540, bundle)
            cluster.acquired(0, broker, AGAIN + 0.1, bundle)
        member(cluster, broker, AGAIN, broker, event="starts")


def test_a_crash_after_the_last_load_of_the_day_has_a_card(tmp_path: Path) -> None:
    """The next start tells of it, though no load was recorded after that."""
    answer = told(tmp_path, killed_after_the_last_load)
    rows = [(name, how, back, bundles) for name, how, _, back, bundles in outages(answer)]
    assert sorted(rows) == [(f"b{broker}", "crash", ms(AGAIN), 4) for broker in range(3)]
    assert all(ms(at(9, 58)) < ts <= ms(KILLED) for _, _, ts, _, _ in outages(answer))
    (title,) = cards(answer)
    assert title.startswith("The whole cluster was down at 09:59 for ")


def test_a_crash_that_its_leader_saw_on_the_next_day_is_of_that_day(tmp_path: Path) -> None:
    """Its last sign was before midnight: no record of that day tells that the broker went."""

    def killed(cluster: Cluster) -> None:
        member(cluster, 0, 0.05, 2, **LEFT)
        member(cluster, 2, 0.4, 2, event="starts")

    cluster = Cluster(tmp_path / "history", brokers=3, spaces=6, every=1)
    cluster.loads(0, Behaviour(begin=1, end=60, owner=lambda space, _half, _minute: space % 2))
    killed(cluster)
    cluster.write()
    assert analyze(tmp_path) == 0
    assert outages(report(tmp_path)) == [("b2", "crash", ms(0.05) - 6_000, ms(0.4), 0)]
