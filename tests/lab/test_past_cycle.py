"""A cycle over recorded loads decides as the leader's functions do, and by the rules of then."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from loadmanager.engine.history.records import BrokerLoad, BundleLoad
from loadmanager.engine.load.reports import LocalBrokerData, ResourceUsage
from loadmanager.engine.load.wishes import Cordon, Pin, Wishes
from loadmanager.engine.policies.isolation import IsolationPolicies, IsolationPolicy
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.lab.past_cycle import PastReports, RulesThen, plan_then, reports_of

MINUTE = 60_000
NOW = 1_800_000_000_000
BUNDLES = [f"acme/orders/0x{n}0000000_0x{n + 1}0000000" for n in range(8)]
OVERLOADED = replace(StrategySettings(), shedder="OverloadShedder")
UNUSED = ResourceUsage()


def records(
    ts: int, percents: Mapping[str, float], owner: str = "b1:1"
) -> list[BrokerLoad | BundleLoad]:
    """Brokers of such CPU, one of which has all bundles."""
    made: list[BrokerLoad | BundleLoad] = [
        BrokerLoad(
            ts=ts, broker=broker, interval_ms=MINUTE, usage=percent / 100,
            cpu=ResourceUsage(percent, 100.0), memory=UNUSED, direct_memory=UNUSED,
            bandwidth_in=UNUSED, bandwidth_out=UNUSED,
            msg_throughput_in=4e7 * (broker == owner), msg_rate_in=4e3 * (broker == owner),
        )
        for broker, percent in percents.items()
    ]  # fmt: skip
    made += [
        BundleLoad(
            ts=ts, broker=owner, interval_ms=MINUTE, bundle=bundle, msg_throughput_in=5e6,
            msg_rate_in=5e2, topics=1, producers=2, consumers=3,
        )
        for bundle in BUNDLES
    ]  # fmt: skip
    return made


def reports(ts: int = NOW, **percents: float) -> dict[str, LocalBrokerData]:
    """The same as reports; `b1=95` is a broker's CPU."""
    return reports_of(records(ts, {f"{name}:1": it for name, it in percents.items()}), {})


def test_reports_have_what_was_recorded() -> None:
    """A bundle is where its owner is by then, and nowhere if nobody had it; one without a recorded
    load counts, too.
    """
    owners = {BUNDLES[0]: "b2:1", BUNDLES[1]: None, "acme/orders/0xf0000000_0xffffffff": "b2:1"}
    made = reports_of(records(NOW, {"b1:1": 95, "b2:1": 5}), owners)
    assert made["b1:1"].bundles == BUNDLES[2:]
    assert made["b2:1"].bundles == [BUNDLES[0], "acme/orders/0xf0000000_0xffffffff"]
    stats = made["b2:1"].last_stats[BUNDLES[0]]
    assert (stats.msg_rate_in, stats.topics, stats.producer_count, stats.consumer_count) == (
        *(5e2, 1, 2, 3),
    )
    assert (made["b1:1"].cpu.percent, made["b1:1"].last_update, made["b1:1"].num_bundles) == (
        *(95.0, NOW, 6),
    )


def test_an_overloaded_broker_gives_bundles_away() -> None:
    """To the other one, as the shedder and the placement say; the same again."""
    looks = [PastReports(NOW, reports(b1=95, b2=5))]
    plan = plan_then(looks, OVERLOADED, RulesThen()).plan
    assert {(it.source, it.destination) for it in plan.unloads} == {("b1:1", "b2:1")}
    assert plan == plan_then(looks, OVERLOADED, RulesThen()).plan


@pytest.mark.parametrize(
    "rules",
    [
        RulesThen(
            wishes=Wishes(pins={it: Pin("b1:1", NOW + MINUTE) for it in BUNDLES}),
        ),
        RulesThen(wishes=Wishes(cordons={"b2:1": Cordon(NOW - MINUTE)})),
        RulesThen(moved=dict.fromkeys(BUNDLES, NOW - MINUTE)),
        RulesThen(
            isolation=IsolationPolicies(
                {"own": IsolationPolicy(namespaces=("acme/.*",), primary=("b1:.*",))}
            )
        ),
    ],
    ids=["pinned", "cordoned", "moved a moment ago", "isolated"],
)
def test_what_was_ordered_then_counts(rules: RulesThen) -> None:
    """Nothing moves, although a broker is overloaded."""
    looks = [PastReports(NOW, reports(b1=95, b2=5))]
    assert plan_then(looks, OVERLOADED, rules).plan.unloads == ()


def test_what_strategies_learn_before_counts() -> None:
    """AvgShedder waits for two cycles in a row: the looks before are these. It begins to count anew
    where it would have moved something.
    """
    settings = replace(StrategySettings(), shedder="AvgShedder", placement="AvgShedder")
    looks = [
        PastReports(NOW + minute * MINUTE, reports(NOW + minute * MINUTE, b1=95, b2=5))
        for minute in range(3)
    ]
    plans = [plan_then(looks[:count], settings, RulesThen()) for count in (1, 2, 3)]
    assert [bool(it.plan.unloads) for it in plans] == [False, True, False]
    assert [it.moved_ms for it in plans] == [[], [], [NOW + MINUTE]]


def test_a_broker_that_is_gone_gets_nothing() -> None:
    """At the last look only one is left."""
    looks = [PastReports(NOW - MINUTE, reports(b1=95, b2=5)), PastReports(NOW, reports(b1=95))]
    plan = plan_then(looks, OVERLOADED, RulesThen()).plan
    assert [(skip.what, skip.code) for skip in plan.skipped] == [("cluster", "NoOtherBroker")]
