"""Sentences of single cards, from rows that are made by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest

from loadmanager.engine.history.tenures import Tenure
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.nightly.day import Day
from loadmanager.nightly.facts import Facts, PlotSteps
from loadmanager.nightly.hurt import OnBrokers, in_words
from loadmanager.nightly.ingest import Ingest
from loadmanager.nightly.questions import (
    broker_usage,
    capacity,
    clocks,
    flapping,
    forecasts,
    headroom,
    hot_bundles,
    hot_topics,
    imbalance,
    leaders,
    moves,
    namespaces,
    outages,
    throttling,
)
from loadmanager.nightly.report.plots import gather
from loadmanager.nightly.schema import RESOURCES

DAY: Any = SimpleNamespace(
    settings=StrategySettings(),
    end_ms=86_400_000,
    until_ms=86_400_000,
    now_ms=None,
    corrections={},
    facts=SimpleNamespace(brokers=[], members=[]),
)


@pytest.mark.parametrize(
    ("used", "naive_error", "said"),
    [
        ("naive", 0.07, "; this forecast erred by 7% on the last day."),
        ("pattern", 0.07, "; this forecast erred by 100% on the last day."),
        ("naive", None, "by 8 days of history."),
    ],
)
def test_a_forecast_names_its_own_error(used: str, naive_error: float | None, said: str) -> None:
    """The error is that of the forecast that was used, and none is made up."""
    row = SimpleNamespace(
        kind="broker",
        name="b0",
        days=8,
        peak_tomorrow=0.95,
        peak_hour_ts=0,
        error=1.0,
        naive_error=naive_error,
        used=used,
    )
    (card,) = forecasts.findings([row], DAY)
    assert card.text.endswith(said)
    assert card.plot == "usage"


@pytest.mark.parametrize(
    ("least", "most", "said"),
    [
        (7.0, 7.2, "2 bundles of t/n had no owner for 7 s, longest t/n/x."),
        (7.0, 90.0, "2 bundles of t/n had no owner for 7 s to 2 minutes, longest t/n/x."),
        (0.0, 0.0, "2 bundles of t/n had no owner for a while that no record tells."),
        (None, None, "2 bundles of t/n had no owner. It did not come back."),
    ],
)
def test_how_long_bundles_had_no_owner(least: float | None, most: float | None, said: str) -> None:
    """No time is named twice, and none that nobody knows."""
    row = SimpleNamespace(
        ts=0,
        broker="b0",
        how="crash",
        late_s=None,
        back_ts=None,
        bundles=2,
        unowned_s_min=least,
        unowned_s_max=most,
        bundle_minutes=1.0,
        clients=None,
        client_minutes=None,
        never_owned=0,
        namespaces=["t/n"],
        worst_bundle="t/n/x",
    )
    (card,) = outages.findings([row], DAY)
    assert card.text.startswith(said)


@pytest.mark.parametrize(("unheard_ms", "lasted_s"), [(None, 40.0), (5_500, 6.0)])
def test_a_crash_begins_after_the_last_proof_of_the_session(
    unheard_ms: int | None, lasted_s: float
) -> None:
    """The last sample is 40 s older than the new owner; the leader saw the session end 0.5 s before
    that, on a clock that is 7 s ahead.
    """
    step = {"broker": "b0", "first_ts": 0, "samples": 6, "interval_ms": 360_000, "begun": None}
    step |= {"pauses": [], "longest": {"begun": 0, "ts": 0}}
    facts = SimpleNamespace(
        brokers=[
            {**step, "last_ts": 300_000},
            {**step, "broker": "b1", "last_ts": 600_000},
        ],
        bundles=pa.table({"connection_hours": pa.array([], pa.float64())}),
        steps=[],
        terms=[],
        members=[
            {"event": "left", "how": "lost", "of": "b0", "broker": "b1"}
            | {"ts": 346_500, "unheard_ms": unheard_ms, "left_at": None}
        ],
    )
    owners = [
        Tenure(bundle="t/n/x", broker="b0", since_ms=0),
        Tenure(bundle="t/n/x", broker="b1", since_ms=347_000),
    ]
    day: Any = SimpleNamespace(
        facts=facts, owners={"t/n/x": owners}, corrections={"b1": 7_000.0}, start_ms=0
    )
    (row,) = outages.table(day)
    assert (row["how"], row["unowned_s_max"]) == ("crash", lasted_s)


@pytest.mark.parametrize(
    ("lasted_ms", "said"),
    [(2_000, "for 2 s)"), (240_000, "for 4 minutes)"), (9e6, "for 2.5 hours)")],
)
def test_whoever_was_hurt_for_seconds_is_said_to_be_so_in_seconds(
    lasted_ms: float, said: str
) -> None:
    """Not for 0.0 hours."""
    bundle = {"bundle": "t/n/x", "broker": "b0", "bytes": 9.0, "samples": 1_000}
    bundle |= {"first_ts": 60_000, "last_ts": 10_000_000}
    step = {"broker": "b0", "samples": 1_000, "interval_ms": 60_000_000}
    facts: Any = SimpleNamespace(bundles=pa.Table.from_pylist([bundle]), brokers=[step])
    day = Day("c", "1970-01-01", facts, StrategySettings(), answers={"hot_bundles": []})
    text = in_words(OnBrokers(["b0"], "they waited", 100_000, 100_000 + lasted_ms), day)
    assert said in text


@pytest.mark.parametrize(
    ("waited_s", "said"),
    [
        (2.5, "waited 2.5 client-seconds in sum, 500 ms each"),
        (150.0, "waited 2.5 client-minutes in sum, 30.0 s each"),
        (9_000.0, "waited 2.5 client-hours in sum, 1,800.0 s each"),
    ],
)
def test_waits_are_told_in_the_unit_that_shows_them(waited_s: float, said: str) -> None:
    """Not as 0.0 client-hours."""
    row = SimpleNamespace(
        limit="persistent://t/n/a publish",
        level="topic",
        broker=None,
        configured_messages_per_s=20.0,
        configured_bytes_per_s=-1.0,
        delivered_over_configured=None,
        hours_held=0.1,
        held_share=0.9,
        mostly_held_hours=0.0,
        times_held=5,
        waited_s=waited_s,
        wanted_more_s=waited_s,
        queue_length_max=1,
        held_first_ts=60_000,
        held_last_ts=120_000,
    )
    (card,) = throttling.findings([row], DAY)
    assert said in card.text
    assert card.text.endswith(", from 00:01 to 00:02.")
    row.held_first_ts, row.held_last_ts = 61_000, 90_000
    (card,) = throttling.findings([row], DAY)
    assert card.text.endswith(", at 00:01.")


@pytest.mark.parametrize("last_ts", [60_000, 61_180])
def test_a_bundle_that_was_just_split_is_no_bundle_to_split(last_ts: int) -> None:
    """The commands of the namespace advisor name bundles that are there, although a record of the
    parent is only some minutes old; brokers write the last one a moment after the split.
    """
    whole, low, high = (f"t/n/{part}" for part in ("0x0_0xffffffff", "0x0_0x8", "0x8_0xffffffff"))
    answers: dict[str, Any] = {
        "hot_bundles": [
            {"bundle": whole, "bytes": 900.0, "last_ts": last_ts},
            {"bundle": low, "bytes": 50.0, "last_ts": 180_000},
            {"bundle": high, "bytes": 50.0, "last_ts": 180_000},
        ],
        "splits": [{"parent": whole, "ts": 61_000}],
        "hot_topics": [{"topic": f"persistent://t/n/{name}", "bytes": 10.0} for name in "abc"],
    }
    facts = SimpleNamespace(brokers=[{"broker": "b0"}])
    day: Any = SimpleNamespace(answers=answers, answer=answers.__getitem__, facts=facts)
    (row,) = namespaces.table(day)
    assert row["bundles"] == 2
    assert row["commands"]
    assert all(f" {high} " in command for command in row["commands"])


def test_a_bundle_that_came_back_did_so_by_a_corrected_clock() -> None:
    """b1's clock is 90 s ahead."""
    owners = [
        Tenure(bundle="t/n/x", broker="b0", since_ms=0, freed_ms=60_000),
        Tenure(bundle="t/n/x", broker="b1", since_ms=150_000),
    ]
    day: Any = SimpleNamespace(
        owners={"t/n/x": owners},
        corrections={"b1": 90_000.0},
        settings=StrategySettings(),
        start_ms=0,
        facts=SimpleNamespace(leader_moves=[]),
        answers={},
    )
    (row,) = flapping.table(day)
    assert (row["first_ts"], row["last_ts"]) == (0, 60_000)


@pytest.mark.parametrize(
    ("authors", "outages_", "forced"),
    [
        (("cycle", "cycle"), [], 0),
        (("drain", "operator"), [], 1),
        (("cycle", "plan"), [], 1),
        (("cycle", "cycle"), [{"broker": "b0", "how": "stop", "ts": 90_000, "back_ts": 95_000}], 1),
        (("cycle", "cycle"), [{"broker": "b1", "how": "stop", "ts": 90_000, "back_ts": 95_000}], 0),
    ],
)
def test_a_bundle_flaps_by_moves_of_the_balancer_only(
    authors: tuple[str, str], outages_: list[dict[str, Any]], forced: int
) -> None:
    """Not by moves that others wanted, nor back to a broker that was restarted."""
    times = {"b0": (0, 60_000), "b1": (61_000, 120_000)}
    owners = [
        Tenure(bundle="t/n/x", broker=broker, since_ms=since, until_ms=until, freed_ms=until)
        for broker, (since, until) in times.items()
    ]
    owners.append(Tenure(bundle="t/n/x", broker="b0", since_ms=121_000))
    move = {"bundle": "t/n/x", "life": None, "state": "done", "broker": "b2", "why": {}, "ts": 0}
    moves = [
        move | {"source": source, "destination": destination, "author": author}
        for (source, destination), author in zip((("b0", "b1"), ("b1", "b0")), authors, strict=True)
    ]
    day: Any = SimpleNamespace(
        owners={"t/n/x": owners},
        corrections={},
        settings=StrategySettings(),
        start_ms=0,
        facts=SimpleNamespace(leader_moves=moves),
        answers={"outages": outages_},
    )
    (row,) = flapping.table(day)
    assert (row["moves"], row["returns"], row["operator"]) == (2, 1, forced)


def test_the_first_change_of_the_leader_counts() -> None:
    """The first term of the day says who led before; one without such a record does not."""
    hour = 3_600_000
    terms = [
        {"epoch": number, "ts": ts, "last_ts": ts, "broker": broker}
        for number, (ts, broker) in enumerate([(hour, "b1"), (hour + 9, "b0"), (hour + 99, "b1")])
    ]
    terms[0]["before"] = "b0"
    facts = SimpleNamespace(terms=terms, members=[])
    day: Any = SimpleNamespace(facts=facts, answers={}, corrections={})
    (card,) = leaders.findings([SimpleNamespace(**row) for row in leaders.table(day)], day)
    assert card.title == "The leader changed 3 times between 01:00 and 01:00"
    del terms[0]["before"]
    assert [row["before"] for row in leaders.table(day)] == [None, "b1", "b0"]
    assert leaders.findings([SimpleNamespace(**row) for row in leaders.table(day)], day) == []


@pytest.mark.parametrize("shedder", ["BalancedShedder", "ThresholdShedder"])
def test_nobody_is_advised_to_use_the_strategy_in_use(shedder: str) -> None:
    """One strategy for shedding and placement is advice for those that have two."""
    facts = SimpleNamespace(shedder=shedder)
    day: Any = SimpleNamespace(settings=StrategySettings(), facts=facts)
    row = {"bundle": "t/n/x", "moves": 9, "returns": 8, "operator": 0, "first_ts": 0, "last_ts": 1}
    (card,) = flapping.findings([SimpleNamespace(**row)], day)
    assert ("BalancedPlacement" in card.advice) == (shedder == "ThresholdShedder")


def test_the_longest_overload_comes_first() -> None:
    """However long they are; and no usage is said to be above all that there is."""
    rows = [
        SimpleNamespace(
            broker=broker,
            hours_over=over,
            hours=24.0,
            p50=1.0,
            p95=1.0,
            max=1.0,
            over_from_ts=0,
            over_until_ts=1,
            unexplained=1.0,
        )
        for broker, over in (("b0", 7.0), ("b1", 24.0), ("b2", 12.0))
    ]
    cards = sorted(broker_usage.findings(rows, DAY), key=lambda card: -card.importance)
    assert [card.where for card in cards] == ["b1", "b2", "b0"]
    assert all(60 < card.importance < 80 for card in cards)
    assert "half of the time it was at least 100%" in cards[0].text


def test_no_command_makes_a_bundle_without_topics() -> None:
    """The boundary in the middle divides the topics where another one was proposed, a little beside
    it: that one would only cut an empty bundle off.
    """
    topics = [(0x10000000, "a", 1.0), (0x40000000, "b", 1.0), (0xA0000000, "c", 1.0)]
    cuts, _ = namespaces.boundaries(topics, 3)
    assert cuts == [0x28000001, 0x70000001]
    halves = ["t/n/0x00000000_0x60000000", "t/n/0x60000000_0xffffffff"]
    (command,) = namespaces.commands(halves, cuts, topics)
    assert halves[0] in command
    assert command.endswith("--at 0x28000001")


def test_a_late_crash_is_on_a_full_timeline() -> None:
    """More brokers were silent earlier than the timeline shows events."""
    gone = [
        {"ts": ts, "broker": f"b{ts}", "how": how, "back_ts": None, "bundles": 1}
        for ts, how in [*((ts, "silent") for ts in range(1_000)), (1_000, "crash")]
    ]
    day: Any = SimpleNamespace(
        start_ms=0, answers={"outages": gone}, facts=SimpleNamespace(terms=[]), corrections={}
    )
    drawn = gather(day, str)
    assert drawn.events_total == 1_001 > len(drawn.events)
    assert [mark.ts for mark in drawn.events if mark.kind == "bad"] == [1_000]


def test_a_clock_is_judged_by_what_the_timeline_shows() -> None:
    """Bundles were handed over, or nothing would be known of it."""
    row = SimpleNamespace(broker="b1", ahead_ms=3_000.0, uncertain_ms=100.0, differs=True)
    (card,) = clocks.findings([row], DAY)
    assert (card.title, card.plot) == ("The clock of b1 is 3.0 s ahead", "timeline")


@pytest.mark.parametrize("busy", [1.0, 9.0])
def test_the_busiest_hour_is_told_if_one_stands_out(busy: float) -> None:
    """Of a bundle, a topic and a namespace, in two hours, the second of which may be busy."""
    facts = Facts(cast("Ingest", None), StrategySettings(), 0)
    facts.brokers = [{"broker": "b0", "first_ts": 7_200_000, "last_ts": 14_000_000}]
    facts.plot_steps = PlotSteps(7_200_000, 900_000, 8)
    carried = [(step, busy if step >= 4 else 1.0) for step in range(8)]
    whole = {"step": None, "quantiles": [1.0, 1.0]}
    facts.busiest_bundles = [{"bundle": "b", "step": at, "mean": mean} for at, mean in carried]
    facts.busiest_topics = [{"topic": "t", "step": at, "mean": mean} for at, mean in carried]
    facts.busiest_bundles.append({"bundle": "b", **whole})
    facts.namespaces_by_hour = [
        {"namespace": "t/n", "hour": 7_200_000, "bytes": 1.0},
        {"namespace": "t/n", "hour": 10_800_000, "bytes": busy},
        {"namespace": "t/m", "hour": 0, "bytes": 99.0},
    ]
    day = Day("c", "2026-11-20", facts, StrategySettings())
    hot = {"share": 1.0, "bytes": 9.0, "throughput_mean": 1.0, "throughput_max": 1.0}
    hot |= {"throughput_p95": 1.0, "topics_max": 1}
    none = SimpleNamespace(share=0.0)
    of_namespace = {"share": 1.0, "bundles": 1, "cut_into": 1, "wanted": 4, "topics": 9}
    of_namespace |= {"cuts": [], "largest_share": 1.0, "largest_share_then": 1.0}
    cards = [
        *hot_bundles.findings([SimpleNamespace(bundle="b", **hot), none], day),
        *hot_topics.findings([SimpleNamespace(topic="t", bundle="b", **hot), none], day),
        *namespaces.findings([SimpleNamespace(namespace="t/n", **of_namespace)], day),
    ]
    said = [card.text.endswith(" Its busiest hour began at 03:00.") for card in cards]
    assert said == [busy > 1] * 3
    assert all(card.plot == "bundles" for card in cards)


def step(broker: str, bucket: int, *, cores: int, usage: float, traffic: float) -> dict[str, Any]:
    """Five minutes of a broker."""
    resources = {
        f"{resource}_{figure}": 0.0
        for resource in RESOURCES
        for figure in ("mean", "least", "most", "impossible")
    }
    return {
        "broker": broker,
        "bucket": bucket,
        "first_ts": bucket,
        "last_ts": bucket,
        "interval_ms": 60_000,
        "samples": 1,
        "usage_sum": usage,
        "usage_max": usage,
        "cpu_limit": cores * 100.0,
        "throughput_sum": traffic,
        **resources,
    }


def day_of(steps: list[dict[str, Any]]) -> Any:
    """A day with these steps of brokers."""
    facts = SimpleNamespace(brokers=steps)
    return SimpleNamespace(facts=facts, settings=StrategySettings())


def test_the_largest_broker_may_be_lost() -> None:
    """Brokers of 16, 8 and 8 cores: half of all is everything without the largest."""
    steps = [
        step(broker, 0, cores=cores, usage=usage, traffic=1e6)
        for broker, cores, usage in (("b0", 16, 0.5), ("b1", 8, 0.6), ("b2", 8, 0.4))
    ]
    whole, fewer = headroom.table(day_of(steps))
    assert (whole["brokers"], whole["usage_at_peak"], whole["enough"]) == (3, 0.5, True)
    assert (fewer["brokers"], fewer["usage_at_peak"], fewer["enough"]) == (2, 1.0, False)


def test_the_idle_part_of_a_lost_broker_is_lost_with_it() -> None:
    """Three brokers use 30 % without traffic, which is a third of what they have at the peak: two
    carry it at 60 %, and not at 67.
    """
    steps = [
        step(broker, bucket, cores=8, usage=0.3 + traffic, traffic=traffic * 1e6)
        for bucket, traffic in enumerate((0.05, 0.2, 0.1))
        for broker in ("b0", "b1", "b2")
    ]
    whole, fewer = headroom.table(day_of(steps))
    assert whole["usage_at_peak"] == pytest.approx(0.5)
    assert fewer["usage_at_peak"] == pytest.approx(0.6)


@pytest.mark.parametrize(
    "shedder", ["BalancedShedder", "ThresholdShedder", "TransferShedder", None]
)
def test_advice_names_keys_of_the_shedder_that_ran(shedder: str | None) -> None:
    """A day without decisions is taken for one of ThresholdShedder, Pulsar's default."""
    facts = SimpleNamespace(
        shedder=shedder,
        ingest=SimpleNamespace(history_url="history"),
        leader_moves=[],
        breaker_stops=[],
    )
    day: Any = SimpleNamespace(
        settings=StrategySettings(),
        facts=facts,
        date="2026-11-20",
        cluster="c",
        configured="",
        answers={},
    )
    moved: dict[str, Any] = {
        "bundle": "t/n/x",
        "source": "b0",
        "destination": "b1",
        "reason": "leader",
        "ts": 0,
    }
    moved |= {"author": "cycle", "took": None, "expected": None}
    judged = {"gain": 0.0, "gap_before": 0.1, "gap_after": 0.1, "worth_it": False, "pause_ms": 1.0}
    (useless,) = moves.findings([SimpleNamespace(**moved, **judged, cause="leader")], day)
    step = {"bucket": 0, "min": 0.1, "max": 0.9, "mean": 0.5, "std": 0.4, "gini": 0.4}
    (uneven,) = imbalance.findings([SimpleNamespace(**step)], day)
    assert useless.title == "1 of 1 move did not help"
    assert useless.commands == ["loadmanager admin decisions --bundle t/n/x"]
    price = "loadManagerBalancedDifferencePercent"
    assert (price in useless.advice, price in uneven.advice) == (shedder == "BalancedShedder",) * 2
    threshold = "loadBalancerBrokerThresholdShedderPercentage" in uneven.advice
    assert threshold == (shedder in ("ThresholdShedder", None))


@pytest.mark.parametrize(("days", "said"), [(7, []), (8, ["Full in 4 days at peak"])])
def test_the_days_from_a_weekend_on_are_no_growth(days: int, said: list[str]) -> None:
    """A week must be whole before a trend is a card."""
    row = {"days": days, "brokers": 4, "peak": 3.0, "full_in_days": 4, "full_at_ts": 1}
    rows = [SimpleNamespace(**row, growth_per_day=0.1, brokers_needed=6)]
    assert [card.title for card in capacity.findings(rows, DAY)] == said


@pytest.mark.parametrize(
    ("growth", "said"),
    [
        (0.0, "it has no clear trend, by 1 day of"),
        (0.5, "it grows by 0.50 brokers a day, by 1 day of"),
        (-0.25, "it falls by 0.25 brokers a day, by 1 day of"),
    ],
)
def test_a_cluster_that_is_full_does_not_always_grow(growth: float, said: str) -> None:
    """The trend is told as it is, and what the advice plans for."""
    row = {"days": 1, "brokers": 4, "peak": 3.6, "full_in_days": 0, "full_at_ts": 1}
    rows = [SimpleNamespace(**row, growth_per_day=growth, brokers_needed=6)]
    (card,) = capacity.findings(rows, DAY)
    assert said in card.text
    assert card.advice.startswith("Plan for 6 brokers within 30 days: with them, a fifth below")


def _judged_move(**more: Any) -> Any:
    row = {"bundle": "t/n/x", "source": "b0", "destination": "b1", "reason": "Gain", "ts": 0}
    row |= {"cause": "leader", "author": "cycle", "pause_ms": None, "took": None, "expected": None}
    row |= {"gain": 0.1, "gap_before": 0.3, "gap_after": 0.1, "worth_it": True}
    return SimpleNamespace(**row | more)


def _day_of_moves(**facts: Any) -> Any:
    none = {"shedder": "BalancedShedder", "leader_moves": [], "breaker_stops": []}
    return SimpleNamespace(facts=SimpleNamespace(**none | facts), answers={})


def test_a_drain_is_nobodys_bad_move() -> None:
    """Only moves that even the load out are judged."""
    bad = {"worth_it": False, "gain": -0.1}
    day = _day_of_moves()
    assert moves.findings([_judged_move(author="drain", **bad)], day) == []
    (useless,) = moves.findings([_judged_move(author=None, **bad)], day)
    assert useless.title == "1 of 1 move did not help"


def test_a_few_useless_moves_are_chance() -> None:
    """Traffic changes while usage is compared: less than a fifth is no news."""
    rows = [_judged_move() for _ in range(4)]
    useless = _judged_move(worth_it=False, gain=-0.1)
    assert [card.title for card in moves.findings([*rows, useless], _day_of_moves())] == [
        "1 of 5 moves did not help"
    ]
    assert moves.findings([*rows, _judged_move(), useless], _day_of_moves()) == []


def test_moves_tell_what_bundles_cost() -> None:
    """Where they have their brokers to themselves; about as expected is not worth a word."""
    day = _day_of_moves()
    assert moves.findings([_judged_move(took=0.08, expected=0.1)] * 5, day) == []
    rows = [_judged_move(took=0.02, expected=0.1)] * 5
    (learned,) = moves.findings(rows, day)
    assert learned.title == "moved bundles took 0.2 times what was expected of them"
    assert moves.findings(rows[1:], day) == []


def test_failed_moves_and_an_open_breaker_have_cards() -> None:
    """However many moves were made."""
    ended = {"ts": 60_000, "bundle": "t/n/x", "source": "b0", "destination": "b1"}
    made = [ended | {"state": "done", "outcome": "moved"}] * 3
    failed = [ended | {"state": "failed", "outcome": "b1 did not take it"}]
    stops = [{"ts": 60_000, "broker": "c", "reason": "a move failed"}]
    told = moves.findings([], _day_of_moves(leader_moves=made + failed, breaker_stops=stops))
    assert [finding.title for finding in told] == [
        "1 of 4 moves failed",
        "the circuit breaker stopped moves 1 time",
    ]
    assert "b1 did not take it" in told[0].text
    assert "at 00:01, a move failed" in told[1].text


def test_a_pause_that_only_the_leader_recorded() -> None:
    """Owners of a cluster that is seen from beside record none; the leader's stands for it, beside
    how long clients waited. That of a lost broker is not a move's.
    """
    order = {"pauseMs": 240.0, "clientsWaitedMeanMs": 310.0, "state": "done", "life": 7}
    order |= {"bundle": "t/n/x", "source": "b0", "destination": "b1"}
    owners = {
        "t/n/x": [
            Tenure(bundle="t/n/x", broker="b0", since_ms=0, until_ms=500, life=7),
            Tenure(bundle="t/n/x", broker="b1", since_ms=1000),
        ]
    }
    facts = SimpleNamespace(brokers=[], leader_moves=[order], shedder=None)
    day: Any = SimpleNamespace(facts=facts, owners=owners, corrections={}, start_ms=0, answers={})
    day.settings = StrategySettings()
    (row,) = moves.table(day)
    assert (row["pause_ms"], row["clients_waited_ms"]) == (240.0, 310.0)
    owners["t/n/x"][0].until_ms = None
    (lost,) = moves.table(day)
    assert lost["pause_ms"] is None


@pytest.mark.parametrize(
    ("author", "why", "cause", "reason"),
    [
        (
            "drain",
            {"orderedBy": "ops", "cordonNote": "new disk"},
            "drain",
            "drain by ops: new disk",
        ),
        ("drain", {}, "drain", "drain"),
        ("plan", {"orderedBy": "ops"}, "plan", "plan by ops"),
        ("cycle", {}, "leader", "by leader"),
    ],
)
def test_a_move_says_who_wanted_it(
    author: str, why: dict[str, str], cause: str, reason: str
) -> None:
    """Its owner only knows that the leader ordered it: a drain is the operator's. So does the
    timeline.
    """
    order = {"author": author, "why": list(why.items()), "state": "done", "life": 7, "ts": 900}
    order |= {"bundle": "t/n/x", "source": "b0", "destination": "b1", "broker": "b1"}
    before = Tenure(bundle="t/n/x", broker="b0", since_ms=0, until_ms=500, life=7)
    before.cause, before.reason = "leader", "by leader"
    owners = {"t/n/x": [before, Tenure(bundle="t/n/x", broker="b1", since_ms=1000)]}
    facts = SimpleNamespace(brokers=[], leader_moves=[order], shedder=None, terms=[])
    day: Any = SimpleNamespace(facts=facts, owners=owners, corrections={}, start_ms=0, answers={})
    day.settings = StrategySettings()
    (row,) = moves.table(day)
    assert (row["cause"], row["reason"], row["author"]) == (cause, reason, author)
    day.answers["moves"] = [row]
    (mark,) = gather(day, str).events
    assert mark.text == f"t/n/x b0 → b1: {reason}"
