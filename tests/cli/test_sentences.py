"""What people read of decisions, made from their figures."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from loadmanager.cli.admin.absences import bundles_text
from loadmanager.cli.admin.bundles import old_traffic
from loadmanager.cli.admin.findings import summary
from loadmanager.cli.admin.moves import unrecorded
from loadmanager.cli.admin.sentences import because, clients, lines_of, so_far_text
from loadmanager.cli.admin.under_way import slow_moves
from loadmanager.engine.history.records import move_record, recorded_move
from loadmanager.engine.moves.move import Author, Move, MoveState, Outcome
from loadmanager.engine.strategies.plan_document import SkipShown, UnloadShown
from loadmanager.leader.documents.decisions import DecisionShown, of_move
from loadmanager.leader.documents.findings import FindingsShown
from loadmanager.leader.documents.members import AbsentBroker

MOVE: dict[str, Any] = {
    "bundle": "t/a/0x0_0x1",
    "source": "b1",
    "destination": "b2",
    "reason": "Even",
    "why": {},
}
EVENED = {
    "gain": 0.25,
    "price": 0.05,
    "usage": 0.312,
    "usageMeasured": 0.3,
    "usageError": 0.021,
    "usageAfter": 0.174,
    "destinationUsage": 0.09,
    "destinationMeasured": 0.07,
    "destinationError": 0.012,
    "destinationUsageAfter": 0.226,
}
WORDS = (
    "Gain: it brings 31.2% and 9.0% to 17.4% and 22.6%, 5.0 times what it costs clients "
    "(sensors: 30.0% and 7.0%; the model may be 2.1 points off)"
)


def test_a_move_that_evens_out_is_told_in_percent() -> None:
    """Also from the texts that the history has; without a price, nothing is said of its worth."""
    assert because("Gain", EVENED) == WORDS
    assert because("Gain", {name: str(value) for name, value in EVENED.items()}) == WORDS
    assert ", 5.0 times" not in because("Even", {**EVENED, "price": 0})
    measured = because("Gain", {**EVENED, "pauseSeconds": 0.3142})
    assert because("Drained", {**EVENED, "cordonNote": "new disk"}).endswith("; new disk")
    assert because("Drained", {"cordonNote": "new disk"}) == "Drained: cordon note new disk"
    assert "5.0 times what it costs clients, who wait 0.31 s each (sensors" in measured


RATES = {"maxRate": 779.3, "minRate": 79.6, "differencePercent": 879.2, "leastLoaded": "b2:8080"}
SIZES = {"maxThroughput": 3 * 2**20, "minThroughput": 2**20, "ratio": 3.0, "leastLoaded": ""}
LOADS = {"load": "0.8", "destinationLoad": "0.2", "std": "0.3"}
USAGES = {"usage": 0.9, "threshold": 0.1, "average": 0.5}


@pytest.mark.parametrize(
    ("reason", "why", "words"),
    [
        ("MsgRate", RATES, "has 779 messages/s, b2:8080 80 messages/s, a difference of 879.2%"),
        ("Throughput", SIZES, "has 3.0 MiB/s, another one 1.0 MiB/s, a factor of 3"),
        (
            "MsgRate",
            {"score": 80.0, "destinationScore": 20.0},
            "has a score of 80, the other one 20",
        ),
        ("Overloaded", LOADS, "has a load of 0.8, the other one 0.2"),
        ("Overloaded", USAGES, "uses 90.0%, more than 10.0 points above the mean of 50.0%"),
        ("Overloaded", {"usage": 0.9, "threshold": 0.85}, "uses 90.0%, the limit is 85.0%"),
    ],
)
def test_why_pulsars_shedders_shed(reason: str, why: dict[str, Any], words: str) -> None:
    """In a sentence, with the figures in their units; also from the texts that the history has."""
    goal = "139 messages/s" if reason == "MsgRate" else "1.0 MiB/s"
    goals = {"goal": 139.0} if reason == "MsgRate" else {"goalBytesPerSecond": 2**20}
    sentence = f"{reason}: its broker {words}; bundles of {goal} in all are to leave"
    assert because(reason, {**why, **goals}) == sentence
    assert because(reason, {name: str(it) for name, it in {**why, **goals}.items()}) == sentence


def test_a_broker_sheds_because_another_one_has_little() -> None:
    """The second pass of ThresholdShedder; a figure that is none is shown as it is."""
    why = {**USAGES, "pass": "lowerBoundary", "goalBytesPerSecond": 2**20}
    assert "another one is more than 10.0 points below the mean" in because("Overloaded", why)
    assert because("Overloaded", {**why, "usage": "?"}).startswith("Overloaded: usage ?")


def test_moves_that_wait_for_a_pause() -> None:
    """The headline of a cycle says so, and its details why."""
    skip = SkipShown(what="cluster", code="Paused", reason="Paused: what is decided waits")
    decision = DecisionShown(
        id="3-1", ts=0, kind="shed", epoch=3, cycle=1, strategy="S",
        unloads=[UnloadShown(**MOVE)], unloads_count=1, skipped=[skip],
    )  # fmt: skip
    head, *_, last = lines_of(decision)
    assert head.endswith("S moves 1 bundle once moves are no longer paused")
    assert "Paused: what is decided waits" in last


@pytest.mark.parametrize(
    ("count", "here", "head"),
    [
        (4, 4, "S moves 4 bundles"),
        (4, 1, "S moves 4 bundles, 1 of them here"),
        (1, 0, "S moves 1 bundle, none of them here"),
        (0, 0, "S moved nothing"),
        (UNSET, 1, "S moves 1 bundle, perhaps others, too"),
        (UNSET, 0, "S decided"),
    ],
)
def test_the_headline_is_of_the_whole_cycle(count: int | UnsetType, here: int, head: str) -> None:
    """Although only what concerns a bundle or a broker is shown of it."""
    unloads = [UnloadShown(**MOVE) for _ in range(here)]
    shown: dict[str, Any] = {"unloads": unloads, "unloads_count": count, "strategy": "S"}
    decision = DecisionShown(id="3-1", ts=0, kind="shed", epoch=3, cycle=1, **shown)
    assert lines_of(decision)[0].endswith(f"3-1  {head}")


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, "waits since 1970-01-01 00:00:10Z (2 min)"),
        (
            {"state": MoveState.RUNNING, "started_at": 100_000, "why": {"note": "look"}},
            "runs since 1970-01-01 00:01:40Z (30 s): look",
        ),
        (
            {"state": MoveState.RUNNING, "started_at": 129_600, "why": {"cordonNote": "disk"}},
            "runs since 1970-01-01 00:02:09Z (400 ms): disk",
        ),
    ],
)
def test_a_move_that_has_not_ended(changed: dict[str, Any], expected: str) -> None:
    """Since when it waits or runs, and the note of its order."""
    move = Move(
        **{**MOVE, "reason": "Operator"},
        id="1-m1",
        author=Author.OPERATOR,
        swap=None,
        state=MoveState.QUEUED,
        created_at=10_000,
        started_at=None,
        ended_at=None,
        outcome=None,
    )
    assert so_far_text(replace(move, **changed), 130_000) == expected


@pytest.mark.parametrize("why", [{"gain": 0.25}, {**EVENED, "usage": "?"}, {}, None, ["usage"]])
def test_figures_of_another_kind_stand_as_they_are(why: object) -> None:
    """Whatever a broker of another version sends."""
    told = because("Gain", why)
    assert told.startswith("Gain")
    assert "it brings" not in told


def test_a_placement_says_what_its_broker_uses() -> None:
    """By the model and its sensors; figures of another kind are left out."""
    why: dict[str, float | str] = {
        "usage": 0.312,
        "usageMeasured": 0.3,
        "usageError": 0.021,
        "usageAfter": 0.35,
    }
    used = (
        "it uses 31.2%, and 35.0% while the bundle's clients connect (sensors: 30.0%; the model "
        "may be 2.1 points off)"
    )
    placed = DecisionShown(
        id="1-1",
        ts=1,
        kind="place",
        epoch=1,
        cycle=0,
        bundle="a/b/0x0_0x1",
        broker="b1",
        reason="the only broker",
    )
    assert lines_of(replace(placed, why=why)) == [
        "1970-01-01 00:00:00Z  1-1  a/b/0x0_0x1 placed on b1",
        "    the only broker",
        f"    {used}",
    ]
    assert lines_of(replace(placed, why={"usage": 0.3})) == lines_of(placed)


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        (Outcome("moved"), ""),
        (Outcome("moved", clients_closed=0), "no clients"),
        (Outcome("moved", clients_closed=1), "1 client disconnected"),
        (Outcome("moved", clients_closed=9, clients_back=0), "NONE of 9 clients back"),
        (Outcome("moved", clients_closed=4, clients_back=3), "ONLY 3 of 4 clients back"),
        (
            Outcome("moved", clients_closed=2, clients_back=0, clients_within_ms=63_500),
            "NONE of 2 clients back within 64 s",
        ),
        (
            Outcome("moved", clients_closed=4, clients_back=3, clients_unserved=1),
            "ONLY 3 of 4 clients back; 1 more connected and got nothing",
        ),
        (Outcome("moved", clients_closed=4, clients_back=4), "4 of 4 clients back"),
        (
            Outcome(
                "moved",
                clients_closed=4,
                clients_back=5,
                clients_waited_ms=310.0,
                clients_waited_mean_ms=300.0,
            ),
            "4 clients waited 300 ms on the mean, 310 ms at most",
        ),
        (
            Outcome(
                "moved",
                clients_closed=12,
                clients_back=12,
                clients_waited_ms=44_000.0,
                clients_waited_mean_ms=4_100.0,
            ),
            "12 clients waited 4.1 s on the mean, 44 s at most",
        ),
    ],
)
def test_how_long_clients_waited(outcome: Outcome, expected: str) -> None:
    """Those that are missing come first."""
    assert clients(outcome) == expected


def test_bundles_that_are_not_named_are_counted() -> None:
    """Three of those without an owner are named."""
    names = ["a", "b", "c", "d"]
    lost = AbsentBroker(broker="b", left_at=1, how="lost", bundles=4, waiting=names)
    assert bundles_text(lost).endswith(" until the next lookup: a, b, c and 1 more")
    lost = AbsentBroker(broker="b", left_at=1, how="lost", bundles=3, waiting=names[:3])
    assert bundles_text(lost).endswith(" until the next lookup: a, b, c")


SILENT = Move(
    id="1-m1", bundle="b", source="b1:8080", destination="b2:8080", reason="r", why={},
    author=Author.CYCLE, swap=None, state=MoveState.RUNNING, created_at=0, started_at=1_000,
    ended_at=None, outcome=None, clients=4,
)  # fmt: skip


def test_a_move_off_a_broker_that_does_not_answer() -> None:
    """Since when nobody may be served, and who waits: while it is under way, when it has failed,
    and when the destination got it after all.
    """
    (line,) = slow_moves([SILENT, replace(SILENT, started_at=40_000)], 41_000)
    assert line == (
        "b is under way from b1:8080 to b2:8080 since 1970-01-01 00:00:01Z (40 s): b1:8080 has not "
        "answered, which waits in turn until b2:8080 has it; 4 clients of it may wait"
    )
    outcome = Outcome("b1:8080 did not finish within 30 s", unanswered_since=1_000)
    for state, until in (
        (MoveState.FAILED, "from then on"),
        (MoveState.DONE, "until 1970-01-01 00:00:31Z"),
    ):
        ended = replace(SILENT, state=state, ended_at=31_000, outcome=outcome)
        record = move_record(31_000, "b0", ended, epoch=1, cycle=1, life=None)
        recorded = recorded_move(record)
        lines = lines_of(of_move(recorded, id="1-m1", ts=31_000, kind="move", epoch=1, cycle=1))
        assert lines[-1].strip() == (
            "b1:8080 gave no answer since 1970-01-01 00:00:01Z: nobody may have been served "
            f"{until}; 4 clients of it may have waited"
        )


def test_moves_whose_clients_are_still_counted_are_listed() -> None:
    """A list of a time has them before there is a record; not those that have not ended."""
    done = replace(SILENT, state=MoveState.DONE, ended_at=31_000, outcome=Outcome("moved"))
    ((ended_ms, move, record),) = unrecorded([done, SILENT], 30_000, 40_000)
    assert (ended_ms, move, record["move"], record["endedAt"]) == (31_000, done, "1-m1", 31_000)
    assert not {"broker", "cycle"} & record.keys()
    assert not unrecorded([done], 32_000, None)
    assert not unrecorded([done], None, 30_000)


def test_traffic_of_late_reports_says_from_when_it_is() -> None:
    """And that of others is of now."""
    ages_ms = {"b2:8080": 120_000, "b1:8080": 21_000}
    assert old_traffic(ages_ms, 121_000, 60_000) == [
        "traffic of b2:8080: as of 1970-01-01 00:00:01Z, 2 min ago"
    ]


def test_nothing_wrong_is_as_of_the_last_look() -> None:
    """A broker that died after it is not known to be lost until its session is over."""
    now = 1_700_000_000_000
    text = summary(FindingsShown(at=now, looked_at=now - 23_000, findings=[]))
    assert text == (
        "the leader found nothing wrong at its last look, 23 s ago; it knows of a broker that "
        "dies once its session is over"
    )
    assert "has not looked yet" in summary(FindingsShown(at=now, looked_at=None, findings=[]))
