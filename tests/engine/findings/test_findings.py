"""What is found wrong, and what an ordinary day does not show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from loadmanager.engine.findings.backlogs import Backlog, BacklogFindings
from loadmanager.engine.findings.finding import SHOWN_MAX, FindingShown
from loadmanager.engine.findings.held_connections import LimitedConnection
from loadmanager.engine.findings.leaders import LeaderChange
from loadmanager.engine.findings.lost import LostBroker
from loadmanager.engine.findings.throttling import HeldLimit
from loadmanager.engine.findings.uneven import Stay
from loadmanager.engine.findings.unserved import UnservedBundles
from loadmanager.engine.findings.watch import Look, Watch
from loadmanager.engine.load.reports import (
    BrokerLoadData,
    LocalBrokerData,
    NamespaceBundleStats,
    ResourceUsage,
    TopBundle,
    TopBundlesLoadData,
)
from loadmanager.engine.moves.move import Author, Move, MoveState, Outcome
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.engine.strategies.splitting.settings import SplitSettings
from loadmanager.kit.reason import Reason
from loadmanager.kit.units import MIB

MINUTE_MS = 60_000
BUNDLE = "acme/orders/0x00000000_0x40000000"


class Day:
    """Looks once a minute."""

    def __init__(self) -> None:
        self.watch = Watch()
        self.minute = 0

    def look(self, **look: Any) -> list[FindingShown]:
        self.minute += 1
        return self.watch.step(
            Look(
                now_ms=self.minute * MINUTE_MS,
                strategies=StrategySettings(),
                splits=SplitSettings(),
                **look,
            )
        )


def _kinds(findings: Sequence[FindingShown]) -> list[tuple[str, str]]:
    return [(finding.kind, finding.about) for finding in findings]


# SensorFindings


def _load(minute: int, *, cpu: float = 30.0, nic: float = 5.0, traffic: float = MIB) -> Any:
    return LocalBrokerData(
        cpu=ResourceUsage(cpu, 100),
        bandwidth_in=ResourceUsage(nic, 1000),
        bandwidth_out=ResourceUsage(nic + minute / 1000, 1000),
        msg_throughput_in=traffic,
        last_update=minute * MINUTE_MS,
    )


def test_a_sensor_that_stands_still() -> None:
    """One value of the CPU to the last digit is found after an hour, and not before; the first
    value that differs ends it.
    """
    day = Day()
    looks = [day.look(loads={"b1": _load(minute, nic=minute)}) for minute in range(1, 62)]
    assert looks[-2] == []
    (finding,) = looks[-1]
    assert (finding.about, finding.since) == ("b1 cpu", MINUTE_MS)
    assert finding.title == "cpu of b1: one value"
    assert day.look(loads={"b1": _load(62, nic=62, cpu=30.1)}) == []


def test_reports_that_do_not_come() -> None:
    """An old report that is looked at again and again says nothing of its sensors."""
    day = Day()
    for _ in range(120):
        assert day.look(loads={"b1": _load(1)}) == []


@pytest.mark.parametrize(
    ("cpu", "varies"),
    [(100.0, 0.0), (0.0, 0.0)],
)
def test_sensors_that_may_stand_still(cpu: float, varies: float) -> None:
    """A full CPU and one that shows nothing; a NIC whose broker's traffic hardly changes."""
    day = Day()
    for minute in range(1, 90):
        load = _load(minute, cpu=cpu, traffic=MIB * (1 + varies))
        assert day.look(loads={"b1": load}) == []


def test_a_network_card_that_stands_still() -> None:
    """It shows one value while the traffic changes."""
    day = Day()
    for minute in range(1, 62):
        load = _load(minute, cpu=20 + minute / 10, traffic=MIB * (1 + minute % 2))
        findings = day.look(loads={"b1": load})
    assert _kinds(findings) == [("sensor", "b1 bandwidthIn")]
    assert "loadBalancerOverrideBrokerNicSpeedGbps" in findings[0].advice


def test_more_used_than_there_is() -> None:
    """For an hour, with values that differ; in the extensible manager's reports, too."""
    day = Day()
    for minute in range(1, 62):
        load = BrokerLoadData(cpu=ResourceUsage(160 + minute, 100), updated_at=minute)
        findings = day.look(loads={"b1": load})
        assert minute == 61 or not findings
    assert [finding.title for finding in findings] == ["cpu of b1: more used than there is"]


def test_a_sensor_that_contradicts_its_traffic() -> None:
    """At once, since the cycle that mistrusted it; a broker without one after a minute, since one
    that starts has measured nothing yet.
    """
    day = Day()
    doubts = {
        "b1": Reason("SensorMistrusted", "its CPU sensor shows 3%"),
        "b2": Reason("NoSensor", "it has no CPU sensor"),
    }
    since = {"b1": MINUTE_MS - 20_000, "b2": MINUTE_MS - 20_000}
    (finding,) = day.look(doubts=doubts, doubted_since=since)
    assert (finding.about, finding.since) == ("b1", MINUTE_MS - 20_000)
    assert finding.text == "Its CPU sensor shows 3%."
    _, other = day.look(doubts=doubts, doubted_since=since)
    assert other.title == "cpu of b2: no sensor that can be trusted"
    assert day.look() == []
    doubts = {"b3": Reason("NetworkCardMistrusted", "its network card shows 3%")}
    shown = day.look(doubts=doubts)
    assert [finding.title for finding in shown] == ["bandwidth of b3: contradicts its traffic"]


# Throttling

LIMIT = HeldLimit("acme/orders", "topic", 100.0, -1.0, 3)


def test_a_tenant_that_is_held_for_an_hour() -> None:
    """A limit that holds clients in half of an hour, as the nightly report says it; it ends when
    less is held.
    """
    day = Day()
    looks = [day.look(holding={"b1": [LIMIT], "b2": []}) for _ in range(61)]
    assert looks[29] == []
    (finding,) = looks[-1]
    assert finding.title == "acme/orders held clients back in 100% of the last hour"
    assert finding.text == (
        "The topic limit is 100 messages/s on b1; at the last look it held 3 clients."
    )
    assert finding.since == MINUTE_MS
    later = [day.look(holding={"b1": [], "b2": []}) for _ in range(40)]
    assert later[0]
    assert later[-1] == []


def test_a_limit_of_several_brokers_is_one_finding() -> None:
    """The worst broker's share, and the clients of all."""
    day = Day()
    for _ in range(61):
        findings = day.look(holding={"b1": [LIMIT], "b2": [LIMIT]})
    assert [finding.about for finding in findings] == ["acme/orders"]
    assert "on each of 2 brokers; at the last look it held 6 clients" in findings[0].text


def test_a_limit_that_holds_somebody_for_a_minute() -> None:
    """Now and then, all day: no finding. Nor what a broker that answered after hours holds."""
    day = Day()
    for minute in range(300):
        assert day.look(holding={"b1": [LIMIT] if minute % 3 == 0 else []}) == []
    assert day.look(holding={"b1": [LIMIT], "b2": [LIMIT]}) == []


def test_a_connection_that_is_held_for_minutes() -> None:
    """Only when other topics use it, once for each limit, and while it lasts."""
    day = Day()
    held = [
        LimitedConnection(
            f"10.0.0.{end}:5000", MINUTE_MS, {"big publish": MINUTE_MS}, ["big"], others
        )
        for end, others in ((1, 3), (2, 1), (3, 0))
    ]
    looks = [day.look(connections={"b1": held}) for _ in range(3)]
    assert looks[1] == []
    (finding,) = looks[2]
    assert finding.title == (
        "2 connections are held for minutes by big publish; 4 other topics wait"
    )
    assert (finding.since, finding.command) == (MINUTE_MS, "loadmanager admin limits why big")
    assert "Held longest: 10.0.0.1:5000." in finding.text
    assert day.look(connections={"b1": held[2:]}) == []


def test_a_connection_that_several_limits_hold() -> None:
    """Each limit that has held it for minutes is named, with its own time if that is a later one;
    and one that came just now is not.
    """
    day = Day()
    limits = {"a": 3 * MINUTE_MS, "b": MINUTE_MS, "c": 5 * MINUTE_MS}
    held = [LimitedConnection("10.0.0.1:5000", MINUTE_MS, limits, ["t"], 1)]
    looks = [day.look(connections={"b1": held}) for _ in range(5)]
    (finding,) = looks[-1]
    assert finding.title == "1 connection is held for minutes by a and b; 1 other topic waits"
    assert finding.since == MINUTE_MS
    assert "10.0.0.1:5000. a only since 1970-01-01T00:03:00Z. A publish" in finding.text


# Flapping

WAYS = [("b1", "b2"), ("b2", "b1"), ("b1", "b2"), ("b2", "b1")]


def _move(
    minute: int,
    source: str,
    destination: str,
    *,
    author: Author = Author.CYCLE,
    bundle: str = BUNDLE,
) -> Move:
    return Move(
        id="1-1",
        bundle=bundle,
        source=source,
        destination=destination,
        reason="",
        why={},
        author=author,
        swap=None,
        state=MoveState.DONE,
        created_at=0,
        started_at=0,
        ended_at=minute * MINUTE_MS,
        outcome=Outcome("", owner=destination),
    )


def _moved(*moves: Move) -> list[FindingShown]:
    day = Day()
    for move in moves:
        day.watch.flapping.moved(move)
    day.minute = moves[-1].ended_at // MINUTE_MS if moves[-1].ended_at else 0
    return day.look()


def test_a_bundle_that_moves_back_and_forth() -> None:
    """To the other broker, back, and there again, as soon as the grace period lets it."""
    moves = [_move(0, "b1", "b2"), _move(31, "b2", "b1"), _move(62, "b1", "b2")]
    (finding,) = _moved(*moves)
    assert (finding.kind, finding.about) == ("flapping", BUNDLE)
    assert finding.since == 31 * MINUTE_MS
    assert "came back 2 times to a broker that had given it up, with 3 moves" in finding.text
    assert finding.command == f"loadmanager admin decisions --bundle {BUNDLE}"


def test_a_bundle_that_goes_round_three_brokers() -> None:
    """Each hands it on as soon as the grace period lets it, and a round takes three of them."""
    ways = [("b1", "b2"), ("b2", "b3"), ("b3", "b1"), ("b1", "b2")]
    moves = [_move(35 * at, *way) for at, way in enumerate(ways)]
    assert _moved(*moves[:3]) == []
    (finding,) = _moved(*moves)
    assert (finding.kind, finding.since) == ("flapping", 70 * MINUTE_MS)
    assert finding.title == f"{BUNDLE} moved round 3 brokers"
    assert "4 moves among b1, b2, b3; no broker kept it for 60 minutes" in finding.text


def test_it_ends_when_it_stays() -> None:
    """Four grace periods after the last return but one."""
    day = Day()
    for move in (_move(0, "b1", "b2"), _move(31, "b2", "b1"), _move(62, "b1", "b2")):
        day.watch.flapping.moved(move)
    day.minute = 150
    assert day.look()
    day.minute = 152
    assert day.look() == []


@pytest.mark.parametrize(
    "moves",
    [
        [_move(0, "b1", "b2"), _move(31, "b2", "b1")],
        [_move(0, "b1", "b2"), _move(31, "b2", "b3"), _move(62, "b3", "b4")],
        [_move(0, "b1", "b2"), _move(70, "b2", "b1"), _move(140, "b1", "b2")],
        [_move(at, *it, author=Author.DRAIN) for at, it in enumerate(WAYS)],
        [_move(at, *it, author=Author.OPERATOR) for at, it in enumerate(WAYS)],
    ],
    ids=["one move back", "onwards", "hours later", "rolling restart", "an operator"],
)
def test_moves_of_an_ordinary_day(moves: list[Move]) -> None:
    """They are no flapping."""
    assert _moved(*moves) == []


def test_a_broker_that_is_drained_and_filled_again() -> None:
    """The balancer fills brokers that were restarted one after the other: no bundle flaps, though
    it comes back to where it was.
    """
    moves = [
        _move(0, "b1", "b2", author=Author.DRAIN),
        _move(8, "b2", "b1"),
        _move(9, "b2", "b3", author=Author.DRAIN, bundle="t/n/0x00000000_0x00000001"),
        _move(17, "b1", "b2"),
        _move(18, "b1", "b3", author=Author.DRAIN, bundle="t/n/0x00000000_0x00000001"),
        _move(26, "b2", "b1"),
    ]
    assert _moved(*moves) == []


def test_a_broker_that_was_away_and_is_filled_again() -> None:
    """The same of brokers that nobody drained before."""
    day = Day()
    moves = (_move(0, "b1", "b2"), _move(31, "b2", "b1"), _move(62, "b1", "b2"))
    for move, away in zip(moves, (None, "b1", "b2"), strict=True):
        minute = (move.ended_at or 0) // MINUTE_MS
        for at, missing in ((minute - 20, None), (minute - 10, away), (minute, None)):
            there = {broker: _load(at) for broker in ("b1", "b2", "b3") if broker != missing}
            day.minute = at
            if at >= 0:
                day.look(loads=there)
        day.watch.flapping.moved(move)
    assert day.look() == []


# Leaders


def _terms(*brokers: str, orderly: bool = False, by_store: bool = False) -> list[LeaderChange]:
    return [
        LeaderChange(minute * MINUTE_MS, before, orderly=orderly, by_store=by_store)
        for minute, before in enumerate(brokers, 1)
    ]


def test_a_leader_that_changes_often() -> None:
    """Three times in an hour; an hour after the first of them it is over."""
    day = Day()
    changes = _terms("b1", "b2", "b1")
    day.minute = 5
    (finding,) = day.look(leaders=changes)
    assert finding.title == "The leader changed 3 times in the last hour"
    assert finding.text.startswith("These led no longer: b1 2 ×, b2 1 ×; leaders")
    assert finding.since == MINUTE_MS
    day.minute = 60
    assert day.look(leaders=changes) == []


@pytest.mark.parametrize(
    "changes",
    [
        _terms("b1", "b2", "b3", "b4", orderly=True),
        _terms("b1", "b1", "b2", "b2", by_store=True),
        _terms("b1", "b2"),
    ],
    ids=["rolling restart", "outages of the store", "two that were lost"],
)
def test_leaders_of_an_ordinary_day(changes: list[LeaderChange]) -> None:
    """Leaders that stop in order are no finding, nor are one or two that do not."""
    day = Day()
    day.minute = 5
    assert day.look(leaders=changes) == []


def test_bundles_that_nobody_serves() -> None:
    """Of a broker that left a minute ago: not before, and not those that had no clients."""
    day = Day()
    lost = UnservedBundles("b1", MINUTE_MS, "lost", ["acme/a/0x0_0x1"], 2, 7)
    unknown = UnservedBundles("b2", 0, "stopped", ["acme/a/0x1_0x2"], 1, None)
    idle = UnservedBundles("b3", 0, "lost", ["acme/a/0x2_0x3"], 1, 0)
    again = UnservedBundles("b4", 0, "lost", [], 0, None)
    (finding,) = day.look(unserved=[lost, unknown, idle, again])
    assert finding.title == "1 bundle has no owner since b2 stopped"
    assert finding.text.endswith("acme/a/0x1_0x2. Whether they had clients is not known.")
    finding, _ = day.look(unserved=[lost, unknown, idle])
    assert finding.title == "2 bundles have no owner since b1 was lost"
    assert finding.text.endswith("acme/a/0x0_0x1 and 1 more. They had 7 clients.")
    assert (finding.kind, finding.about, finding.since) == ("unserved", "b1", MINUTE_MS)
    assert day.look() == []


def test_brokers_that_are_lost() -> None:
    """At once, before everything else; with what its bundles came to."""
    day = Day()
    first, second = (
        LostBroker("b1", 5, "did not answer within 5 s", 3, 2),
        LostBroker("b0", 7, "", 0, 0),
    )
    idle, finding = day.look(lost=[first, second])
    assert (finding.kind, finding.about, finding.since) == ("lost", "b1", 5)
    assert finding.title == "b1 was lost, and is not back"
    assert finding.text == (
        "Its session ended without a word. Asked then, it did not answer within 5 s. "
        "It owned 3 bundles: no owner of 2 of them is known yet."
    )
    assert finding.command == "loadmanager admin history b1"
    assert (idle.about, idle.text.endswith("word. It owned no bundle.")) == ("b0", True)
    again = LostBroker("b0", 70_000, "", 0, 0, lost_before=[1_000, 40_000])
    (finding,) = day.look(lost=[again])
    assert finding.text.endswith("bundle. It was lost 3 times within 69 s: its log says why.")
    assert day.look() == []


def test_a_broker_that_is_lost_often_and_is_back() -> None:
    """From the look after its return on, until it has been there for an hour; not one that was lost
    once or twice, or that is away: this is a finding already.
    """
    day = Day()
    back_ms = 5 * MINUTE_MS
    often, twice = (
        LostBroker(name, 4 * MINUTE_MS, "", 0, 0, lost_before=before, back_ms=back_ms)
        for name, before in (("b1", [0, MINUTE_MS]), ("b2", [0]))
    )
    assert _kinds(day.look(lost=[replace(often, back_ms=None)])) == [("lost", "b1")]
    day.minute = 5
    (finding,) = day.look(lost=[often, twice])
    assert (finding.kind, finding.about, finding.since) == ("lost often", "b1", 0)
    assert finding.title == "b1 was lost 3 times within 4 min, and is back"
    assert finding.text.startswith(
        "It was lost last at 1970-01-01T00:04:00Z, and is back since 1970-01-01T00:05:00Z."
    )
    assert finding.command == "loadmanager admin history b1"
    day.minute = 63
    assert _kinds(day.look(lost=[often, twice])) == [("lost often", "b1")]
    assert day.look(lost=[often, twice]) == []


def test_losses_for_which_the_store_gave_no_answer_are_not_the_brokers() -> None:
    """It is not lost often if its own losses are few; one that is gone is told with why."""
    day = Day()
    by_store = LostBroker("b1", 4 * MINUTE_MS, "", 0, 0, [0], 5 * MINUTE_MS, store_silent=True)
    assert day.look(lost=[by_store]) == []
    (finding,) = Day().look(lost=[replace(by_store, back_ms=None)])
    text = "Its session ended while the metadata store gave no answer. It owned no bundle."
    assert finding.text == text
    own = replace(by_store, lost_before=[0, MINUTE_MS, 2 * MINUTE_MS])
    (finding,) = day.look(lost=[own])
    assert finding.title == "b1 was lost 3 times within 2 min, and is back"
    assert finding.text.startswith("It was lost last at 1970-01-01T00:02:00Z")


def test_load_that_pins_and_grace_periods_keep_uneven() -> None:
    """For ten minutes, in the words of the decisions; not where nothing else would move, or where
    the load is even.
    """
    usages = {"b1": 0.6, "b2": 0.2, "b3": 0.1}
    pin = Stay("t/a/0x0_0x1", "Pinned", "Pinned: to b1 until noon, by bob")
    grace = Stay("t/a/0x1_0x2", "GracePeriod", "GracePeriod: moved at ten")
    other = Stay("cluster", "NoBundles", "NoBundles: none")
    day = Day()
    for _ in range(10):
        assert day.look(usages=usages, stays=[other, pin, grace]) == []
    (finding,) = day.look(usages=usages, stays=[other, pin, grace])
    assert (finding.kind, finding.about, finding.since) == ("uneven", "b1", MINUTE_MS)
    assert finding.title == (
        "b1 is used at 60%, 30 points above the mean, and pins or grace periods keep bundles where "
        "they are"
    )
    assert finding.text == (
        "The last cycle moved nothing: t/a/0x0_0x1: Pinned: to b1 until noon, by bob; "
        "t/a/0x1_0x2: GracePeriod: moved at ten."
    )
    assert day.look(usages=usages, stays=[other]) == []
    for look in (
        {"usages": {"b1": 0.25, "b2": 0.2}, "stays": [pin]},
        {"usages": usages, "stays": [other]},
        {"stays": [pin]},
    ):
        day = Day()
        assert [finding for _ in range(12) for finding in day.look(**look)] == []


# Clocks


def _looked(delays: Mapping[str, Sequence[int]], minutes: int = 6) -> list[FindingShown]:
    day = Day()
    for _ in range(minutes):
        findings = day.look(delays=delays)
    return findings


def test_a_clock_that_is_off() -> None:
    """Ahead and behind, compared with the one in the middle, once it has lasted five minutes."""
    delays = {
        "b1": [5, 20, 9],
        "b2": [8, 7, 9],
        "b3": [-7000, -6990, 0],
        "b4": [90_000, 4010, 5000],
    }
    assert _looked(delays, 5) == []
    findings = _looked(delays)
    assert [finding.title for finding in findings] == [
        "The clock of b3 is 7.0 s ahead",
        "The clock of b4 is 4.0 s behind",
    ]


def test_the_leaders_own_clock() -> None:
    """If all others differ from the leader's, it is the leader's that is off."""
    (finding,) = _looked({"leader": [3, 3, 3], "b2": [9003] * 3, "b3": [9010] * 3})
    assert finding.title == "The clock of leader is 9.0 s ahead"


@pytest.mark.parametrize(
    "delays",
    [
        {"b1": [5, 5, 5], "b2": [900_000, 30, 700_000], "b3": [4, 4, 4]},
        {"b1": [5, 5, 5], "b2": [900_000], "b3": [800_000, 3000]},
        {"b1": [2500] * 3, "b2": [2900] * 3, "b3": [1500] * 3},
        {"b1": [5, 5, 5]},
        {},
    ],
    ids=["late once", "restarted", "a slow store", "alone", "nobody"],
)
def test_reports_of_an_ordinary_day(delays: dict[str, list[int]]) -> None:
    """Reports that were read late say nothing of a clock."""
    assert _looked(delays) == []


# Hot topics


def _busy(topics: int, rate: float) -> LocalBrokerData:
    stats = NamespaceBundleStats(msg_rate_in=rate, msg_throughput_in=1000 * rate, topics=topics)
    return LocalBrokerData(
        msg_rate_in=rate, msg_throughput_in=1000 * rate, last_stats={BUNDLE: stats}
    )


def _for_minutes(minutes: int, loads: Mapping[str, Any], **more: Any) -> list[FindingShown]:
    day = Day()
    for _ in range(minutes):
        findings = day.look(loads=loads, **{"published": loads, **more})
    return findings


def test_a_hot_topic_that_no_split_helps() -> None:
    """A bundle of one topic that exceeds what a bundle may have, and carries as much as a broker,
    for ten minutes.
    """
    loads = {"b1": _busy(1, 60_000), "b2": _busy(8, 40_000)}
    assert _for_minutes(10, loads) == []
    (finding,) = _for_minutes(11, loads)
    assert finding.title == f"The only topic of {BUNDLE} carries 60% of all traffic"
    assert "an even share of a broker is 50%" in finding.text


def test_a_hot_topic_in_the_extensible_manager() -> None:
    """As the broker published the bundle."""
    loads = {
        "b1": BrokerLoadData(msg_rate_in=60_000, msg_throughput_in=6e7),
        "b2": BrokerLoadData(msg_rate_in=10, msg_throughput_in=10),
    }
    stats = NamespaceBundleStats(msg_rate_in=60_000, msg_throughput_in=6e7, topics=1)
    published = {"b1": TopBundlesLoadData([TopBundle(BUNDLE, stats)])}
    assert _kinds(_for_minutes(11, loads, published=published)) == [("hot topic", BUNDLE)]


@pytest.mark.parametrize(
    "loads",
    [
        {"b1": _busy(1, 20_000), "b2": _busy(2, 10)},
        {"b1": _busy(2, 60_000), "b2": _busy(2, 10)},
        {"b1": _busy(1, 40_000), "b2": _busy(4, 60_000)},
        {"b1": _busy(1, 60_000)},
    ],
    ids=["not too big", "two topics", "less than a broker", "one broker"],
)
def test_traffic_of_an_ordinary_day(loads: dict[str, LocalBrokerData]) -> None:
    """It is no hot topic."""
    assert _for_minutes(15, loads) == []


# BacklogFindings


def _backlog(size: int, subscription: str = "billing", consumers: int = 1) -> Backlog:
    return Backlog(
        topic="persistent://acme/orders/in",
        subscription=subscription,
        bundle=BUNDLE,
        messages=size,
        rate_in=20.0,
        rate_out=5.0,
        consumers=consumers,
    )


def _backlogs(day: Day, sizes: Sequence[int], consumers: int = 1) -> list[FindingShown]:
    """What is found at the last of these looks."""
    findings = []
    for size in sizes:
        findings = day.look(backlogs={"b1": [_backlog(size, consumers=consumers)]})
    return findings


def test_a_backlog_that_grows() -> None:
    """For ten minutes, whatever it does from look to look; until it shrinks, or the topic is gone;
    a move to another broker changes nothing.
    """
    day, sizes = Day(), [1_000 + 900 * minute - 500 * (minute % 2) for minute in range(30)]
    assert _backlogs(day, sizes[:9]) == []
    (finding,) = _backlogs(day, sizes[9:10], consumers=0)
    topic = "persistent://acme/orders/in"
    assert (finding.kind, finding.about, finding.since) == ("backlog", topic, MINUTE_MS)
    assert finding.title == f"The backlog of billing at {topic} grows by 733 messages a minute"
    assert (
        "8,600 messages wait for this subscription, 7,600 more than 9 minutes ago" in finding.text
    )
    assert finding.text.endswith(" No consumer is connected to the topic.")
    assert finding.command == f"loadmanager admin topics stats {topic}"
    (finding,) = _backlogs(day, sizes[10:])
    assert finding.since == MINUTE_MS
    assert "is connected" not in finding.text
    assert _backlogs(day, [27_000] * 11) == []


def _untaken(minute: float, oldest: float | None, own_consumers: int = 0) -> Backlog:
    """1,200 messages a minute come; a consumer of another subscription is there."""
    backlog = _backlog(1_000 + round(1_200 * minute))
    oldest_ms = None if oldest is None else round(oldest * MINUTE_MS)
    return msgspec.structs.replace(backlog, own_consumers=own_consumers, oldest_ms=oldest_ms)


def test_a_backlog_that_nobody_takes_is_found_at_the_second_look_of_a_leader() -> None:
    """Its leader is new, and it lasts for longer: since the oldest message came. Clients that come
    back after a crash end it.
    """
    first_ms = 20 * MINUTE_MS
    findings = BacklogFindings()

    def found(minute: int, backlog: Backlog) -> list[FindingShown]:
        return findings.step({"b1": [backlog]}, first_ms + minute * MINUTE_MS)

    assert found(0, _untaken(0, oldest=5)) == []
    (finding,) = found(1, _untaken(1, oldest=5))
    assert finding.since == 5 * MINUTE_MS
    assert finding.title.endswith("grows by 1,200 messages a minute")
    assert "1,200 more than a minute ago" in finding.text
    assert "No consumer is connected to the subscription." in finding.text
    assert finding.text.endswith(" The oldest message was published at 1970-01-01T00:05:00Z.")
    (finding,) = found(2, _untaken(2, oldest=5))
    assert finding.since == 5 * MINUTE_MS
    assert found(3, _untaken(3, oldest=None, own_consumers=1)) == []
    assert found(4, _untaken(4, oldest=23)) == []
    assert found(5, _untaken(5, oldest=23)) == []  # it has been so for two minutes
    assert found(6, _untaken(6, oldest=23))
    (finding,) = found(7, _untaken(6, oldest=23))  # the topic is quiet
    assert finding.title.endswith("in stands at 8,200 messages since 1970-01-01T00:26:00Z")
    (finding,) = found(9, _untaken(6, oldest=23))
    assert finding.title.endswith("in stands at 8,200 messages since 1970-01-01T00:26:00Z")
    (finding,) = found(10, _untaken(6.5, oldest=23))
    assert finding.title.endswith("grows by 600 messages a minute")
    quiet = msgspec.structs.replace(_untaken(6.7, oldest=23), rate_in=0.0)
    (finding,) = found(11, quiet)  # it grew since the look before, and no message comes any more
    assert finding.title.endswith("in stands at 9,040 messages since 1970-01-01T00:31:00Z")
    assert found(12, _untaken(-0.99, oldest=None, own_consumers=1)) == []


def test_a_backlog_that_nobody_takes_and_whose_oldest_message_is_not_known() -> None:
    """It is found after three minutes; one that does not grow is not."""
    findings, still = BacklogFindings(), BacklogFindings()
    looks = [
        findings.step({"b1": [_untaken(minute, oldest=None)]}, minute * MINUTE_MS)
        for minute in range(1, 5)
    ]
    assert [len(each) for each in looks] == [0, 0, 0, 1]
    assert looks[-1][0].since == MINUTE_MS
    for minute in range(1, 20):
        assert still.step({"b1": [_untaken(0, oldest=0)]}, minute * MINUTE_MS) == []


def test_a_backlog_that_a_limit_makes() -> None:
    """Named, with the command that tells more of it; not a limit of another subscription."""
    day, topic = Day(), "persistent://acme/orders/in"
    holders = {(topic, "audit"): ["other"], (topic, "billing"): [f"{topic} dispatch", "b publish"]}
    for minute in range(11):
        look = {"b1": [_backlog(1_000 + 600 * minute)]}
        findings = day.look(backlogs=look, holders=holders)
    (finding,) = findings
    assert finding.text.endswith(f" Its consumers are held by {topic} dispatch and b publish.")
    assert finding.advice.startswith("Raise that limit")
    assert finding.command == f"loadmanager admin limits why {topic}"
    (finding,) = day.look(backlogs={"b1": [_backlog(9_000)]})
    assert "held by" not in finding.text
    assert finding.command == f"loadmanager admin topics stats {topic}"


def test_backlogs_of_two_subscriptions_of_a_topic() -> None:
    """One finding, of the one that grows most, with its own figures and never their sum; it lasts
    while either grows.
    """
    day = Day()
    for minute in range(12):
        slow, slower = _backlog(1_000 + 200 * minute, "audit"), _backlog(1_000 + 600 * minute)
        findings = day.look(backlogs={"b1": [slow, slower]})
    (finding,) = findings
    assert finding.about == slow.topic
    assert finding.title == f"The backlog of billing at {slow.topic} grows by 600 messages a minute"
    assert finding.text.startswith("7,600 messages wait for this subscription, 6,000 more than 10")
    assert "The backlog of 1 other subscription of the topic grew, too." in finding.text
    for minute in range(12, 24):
        slow, still = _backlog(1_000 + 200 * minute, "audit"), _backlog(7_600)
        findings = day.look(backlogs={"b1": [slow, still]})
    (finding,) = findings
    assert "backlog of audit" in finding.title
    assert "other" not in finding.text


def test_a_backlog_that_is_taken_no_longer_grows() -> None:
    """It grew over ten minutes, shrinks for three, and stands: nothing says that it grows."""
    day, sizes = Day(), [1_000 + 900 * minute for minute in range(14)]
    _backlogs(day, sizes)
    (finding,) = _backlogs(day, [12_500, 12_400, 12_300])
    assert finding.title.endswith("in grew to 12,300 messages, and does not grow now")
    (finding,) = _backlogs(day, [12_300])
    assert finding.title.endswith("in stands at 12,300 messages since 1970-01-01T00:17:00Z")


def test_figures_that_are_old_say_so() -> None:
    """No broker lists the subscription at this look."""
    day = Day()
    (finding,) = _backlogs(day, [1_000 * minute for minute in range(1, 14)])
    assert "listed" not in finding.title
    (finding,) = day.look(backlogs={"b2": []})
    then = "1970-01-01T00:13:00Z"
    assert finding.title.endswith(f"in was 13,000 messages at {then}, when it was listed last")
    assert finding.text.startswith(f"No broker that answers lists it since {then}: ")


def _at_times(times_s: Sequence[float]) -> list[list[str]]:
    """What is found at looks at these times, while a backlog grows by ten messages a second."""
    findings = BacklogFindings()
    looks = [
        findings.step({"b1": [_backlog(1_000 + round(10 * at_s))]}, round(1000 * at_s))
        for at_s in times_s
    ]
    return [[it.about for it in each] for each in looks]


JITTERED = [minute * 60.0001 + 0.081 * (minute % 10 == 1) for minute in range(45)]


@pytest.mark.parametrize(
    "times_s",
    [
        JITTERED,
        [at_s for minute, at_s in enumerate(JITTERED) if minute not in (17, 18, 19, 31)],
        [75.01 * look for look in range(40)],
        [100.01 * look for look in range(30)],
    ],
    ids=["jitter", "missed looks", "slow", "slower"],
)
def test_looks_that_are_late_or_missed_end_no_backlog(times_s: Sequence[float]) -> None:
    """Once found, one that goes on growing is found at each later look."""
    looks = _at_times(times_s)
    first = next(number for number, about in enumerate(looks) if about)
    assert times_s[first] <= 700
    assert all(looks[first:])


def test_a_backlog_that_is_not_heard_of() -> None:
    """It lasts while its broker does not answer, for ten minutes; it is over in three looks if its
    broker answers without it, and at once if it falls.
    """
    day, sizes = Day(), [1_000 * minute for minute in range(1, 14)]
    assert _backlogs(day, sizes)
    silent = [bool(day.look(backlogs={"b2": []})) for _ in range(12)]
    assert silent == [True] * 10 + [False] * 2
    day = Day()
    assert _backlogs(day, sizes)
    assert [bool(day.look(backlogs={"b1": []})) for _ in range(3)] == [True, True, False]
    day = Day()
    assert _backlogs(day, sizes)
    assert _backlogs(day, [10]) == []


@pytest.mark.parametrize(
    "sizes",
    [
        [50_000] * 15,
        [1_000 + 50 * minute for minute in range(15)],
        [1_000 * (1 + minute % 5) for minute in range(20)],
        [900] * 15,
        [90_000 - 1_000 * minute for minute in range(20)],
    ],
    ids=["stands", "hardly grows", "is taken now and then", "small", "shrinks"],
)
def test_backlogs_of_an_ordinary_day(sizes: Sequence[int]) -> None:
    """They are not found."""
    assert _backlogs(Day(), sizes) == []


# All


def test_findings_are_bounded_and_in_order() -> None:
    """Of one kind, those of the first names."""
    day = Day()
    doubts = {f"b{number:03}": Reason("SensorMistrusted", "x") for number in range(200)}
    for _ in range(6):
        findings = day.look(doubts=doubts, leaders=_terms("b1", "b2", "b1"))
    assert findings[0].kind == "leader"
    assert [it.about for it in findings[1:]] == sorted(doubts)[:SHOWN_MAX]


def test_names_that_would_drive_a_terminal_have_no_command() -> None:
    """Whoever named it."""
    ways = (0, "x", "y"), (31, "y", "x"), (62, "x", "y")
    moves = [_move(*each, bundle="a/b\x03/0x0_0x1") for each in ways]
    (finding,) = _moved(*moves)
    assert finding.command is None


# DiskFindings

DISK = "b1 history, topics"
GIB_IN_MIB = 1024.0


def _disk(used_gib: float) -> Any:
    return {"b1": {"history, topics": ResourceUsage(used_gib * GIB_IN_MIB, 100 * GIB_IN_MIB)}}


def test_a_disk_that_is_nearly_full() -> None:
    """Above 90 %, until it is below 88 %."""
    day = Day()
    fills = (90, 91, 89, 87)
    assert [_kinds(day.look(disks=_disk(fill))) for fill in fills] == [
        [],
        [("disk", DISK)],
        [("disk", DISK)],
        [],
    ]
    (finding,) = day.look(disks=_disk(93.25))
    assert finding.title == "The disk of b1 with its history, topics is 93% full"
    assert finding.text == (
        "6.8 of 100.0 GiB are free. Once it is full, producers are refused and records of the "
        "history are dropped."
    )
    assert finding.command == "loadmanager admin brokers report b1"


def test_a_disk_that_is_full_within_a_day() -> None:
    """By the rate of the last hour, once 20 minutes of it were seen; what was written at once does
    not count, nor does a disk that is full in two days.
    """
    day = Day()
    looks = [day.look(disks=_disk(40 + minute / 10)) for minute in range(60)]
    begun = next(minute for minute, found in enumerate(looks) if found)
    assert begun == 20
    (finding,) = looks[-1]
    assert finding.title == (
        "The disk of b1 with its history, topics is 46% full, and full in 9 h at the rate of the "
        "last hour"
    )
    assert finding.since == (begun + 1) * MINUTE_MS
    once, slow = Day(), Day()
    assert not any(once.look(disks=_disk(40 + 9 * (minute > 10))) for minute in range(60))
    assert not any(slow.look(disks=_disk(40 + minute / 50)) for minute in range(60))


def test_disks_that_say_nothing() -> None:
    """A size of nothing, a broker that tells no disk, and one that left."""
    day = Day()
    assert day.look(disks={"b1": {"topics": ResourceUsage(5, 0)}, "b2": {}}) == []
    assert _kinds(day.look(disks=_disk(95))) == [("disk", DISK)]
    assert day.look(disks={}) == []
