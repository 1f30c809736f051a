"""Placement rules: what each scores, and what it remembers."""

from __future__ import annotations

import pytest

from loadmanager.engine.load.reports import (
    BrokerLoadData,
    BundleData,
    LocalBrokerData,
    ResourceUsage,
    TimeAverageBrokerData,
    TimeAverageMessageData,
)
from loadmanager.engine.load.snapshot import ClusterSnapshot
from loadmanager.engine.strategies.placement import (
    least_long_term_message_rate,
    least_resource_usage,
    round_robin,
)
from loadmanager.engine.strategies.placement.least_resource_usage import LeastResourceUsageSettings
from loadmanager.engine.strategies.settings import StrategySettings

SETTINGS = StrategySettings()


def a_report(cpu: float, rate_in: float = 0, rate_out: float = 0) -> LocalBrokerData:
    """A broker with one bundle."""
    return LocalBrokerData(
        cpu=ResourceUsage(usage=cpu, limit=100),
        bundles=["t/n/0x00000000_0xffffffff"],
        msg_rate_in=rate_in,
        msg_rate_out=rate_out,
    )


def under_way(throughput: float = 0, rate: float = 0) -> BundleData:
    """A bundle that was placed: bytes/s short-term, messages/s long-term."""
    return BundleData(
        short_term_data=TimeAverageMessageData(msg_throughput_in=throughput),
        long_term_data=TimeAverageMessageData(msg_rate_in=rate),
    )


def test_usage_averages_advance_with_reports() -> None:
    """History weighs a quarter; idle and new brokers start at the sample; gone ones are
    forgotten.
    """
    reports = {
        "in": a_report(80, rate_in=1),
        "out": a_report(80, rate_out=1),
        "idle": a_report(80),
        "empty": LocalBrokerData(cpu=ResourceUsage(usage=80, limit=100), msg_rate_in=1),
        "new": a_report(80, rate_in=1),
    }
    before = dict.fromkeys(("in", "out", "idle", "empty", "gone"), 0.4)
    after = least_resource_usage.advance(
        ClusterSnapshot(now_ms=0, reports=reports), StrategySettings(history_weight=0.25), before
    )
    assert {name: round(usage, 9) for name, usage in after.items()} == {
        "in": 0.7,
        "out": 0.7,
        "idle": 0.8,
        "empty": 0.8,
        "new": 0.8,
    }


@pytest.mark.parametrize(
    ("averages", "difference", "expected"),
    [
        ({"a": 0.2, "b": 0.4, "c": 0.6}, 20, ["a"]),
        ({"a": 0.2, "b": 0.4, "c": 0.6}, 21, ["a", "b", "c"]),
        ({"a": 0.2, "b": 0.4, "c": 0.6}, 0, ["a", "b"]),
        ({"b": 0.4, "c": 0.6}, 10, ["b"]),
        ({}, 10, ["a", "b", "c"]),
    ],
)
def test_brokers_below_the_average_usage(
    averages: dict[str, float], difference: float, expected: list[str]
) -> None:
    """At least the difference below; a broker without an average is a candidate only if no broker
    has one.
    """
    settings = StrategySettings(
        own={
            LeastResourceUsageSettings: LeastResourceUsageSettings(
                usage_difference_percent=difference
            )
        }
    )
    reports = {name: LocalBrokerData() for name in "abc"}
    chosen, remembered = least_resource_usage.candidates(
        ClusterSnapshot(now_ms=0, reports=reports), ["a", "b", "c"], settings, averages
    )
    assert (chosen, remembered) == (expected, averages)


def test_usage_of_the_extensible_manager_counts_what_is_under_way() -> None:
    """Usage 0.2 and 0.4 at 60 bytes/s: each byte/s is 0.01, so 30 bytes/s under way lift a to 0.5
    and b, 0.05 + 0.05 below the average of 0.45, is the only candidate.
    """
    load = {
        "a": BrokerLoadData(weighted_max_ema=0.2, msg_throughput_in=10, msg_throughput_out=10),
        "b": BrokerLoadData(weighted_max_ema=0.4, msg_throughput_in=30, msg_throughput_out=10),
    }
    settings = StrategySettings(
        own={LeastResourceUsageSettings: LeastResourceUsageSettings(usage_difference_percent=4)}
    )
    free = ClusterSnapshot(now_ms=0, extensible=True, reports={}, load_data=load)
    busy = ClusterSnapshot(
        now_ms=0,
        extensible=True,
        reports={},
        load_data=load,
        pending={"a": {"x": under_way(throughput=30)}},
    )
    assert least_resource_usage.candidates(free, ["a", "b"], settings, {}) == (["a"], {})
    assert least_resource_usage.candidates(busy, ["a", "b"], settings, {}) == (["b"], {})
    for throughput in (0, 1e-308):
        report = BrokerLoadData(weighted_max_ema=0.2, msg_throughput_in=throughput)
        silent = ClusterSnapshot(
            now_ms=0,
            extensible=True,
            reports={},
            load_data={"a": report, "b": report},
            pending={"a": {"x": under_way(throughput=30)}},
        )
        chosen, _ = least_resource_usage.candidates(silent, ["a", "b"], settings, {})
        assert chosen == ["a", "b"], "without traffic, nothing is known of its cost"


@pytest.mark.parametrize(
    ("cpu_of_a", "pending_rate", "expected"),
    [
        (85, 0, ["a"]),
        (86, 0, ["b"]),
        (10, 2, ["a", "b"]),
        (10, 3, ["b"]),
    ],
)
def test_the_lowest_message_rate(cpu_of_a: float, pending_rate: float, expected: list[str]) -> None:
    """Reported and under way, in and out; a broker above 85 % only if all are."""
    snapshot = ClusterSnapshot(
        now_ms=0,
        reports={"a": a_report(cpu_of_a), "b": a_report(10), "c": a_report(99)},
        time_averages={
            "a": TimeAverageBrokerData(long_term_msg_rate_in=3, long_term_msg_rate_out=5),
            "b": TimeAverageBrokerData(long_term_msg_rate_in=6, long_term_msg_rate_out=4),
        },
        pending={"a": {"x": under_way(rate=pending_rate)}},
    )
    assert least_long_term_message_rate.candidates(snapshot, ["a", "b", "c"], SETTINGS, None) == (
        expected,
        None,
    )
    hot = ClusterSnapshot(now_ms=0, reports={"c": a_report(99), "d": a_report(90)})
    assert least_long_term_message_rate.candidates(hot, ["c", "d"], SETTINGS, None)[0] == ["c", "d"]


def test_one_broker_after_the_other() -> None:
    """The memory counts the placed bundles and keeps the brokers; without candidates it stays.

    As in Pulsar, other candidates are passed over while they are as many and one that is kept has
    its turn.
    """
    snapshot = ClusterSnapshot(now_ms=0, reports={})
    turns = round_robin.PLACEMENT.memory()
    chosen = []
    for brokers in ("abc", "abc", "abc", "abc", "bc", "ac", "ab"):
        (broker,), turns = round_robin.candidates(snapshot, list(brokers), SETTINGS, turns)
        chosen.append(broker)
    assert ("".join(chosen), turns) == ("abcabcb", (7, ["b", "c"]))
    assert round_robin.candidates(snapshot, [], SETTINGS, turns) == ([], turns)
