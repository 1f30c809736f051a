"""Isolation, cordons and pins of a recorded day bind its replays."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from loadmanager.engine.history.cycles import Cycle
from loadmanager.engine.load.wishes import Cordon, Pin
from loadmanager.engine.policies.isolation import IsolationPolicy
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.kit.units import MINUTE_MS
from loadmanager.lab import day_files
from loadmanager.lab.closed_loop import run
from loadmanager.lab.day_rules import DayRules, in_force, rules_of
from loadmanager.lab.days import DayEvent, DayOfLoad, DaySize, Kind, make_day, traffic

BALANCED = StrategySettings(shedder="BalancedShedder", placement="BalancedPlacement")
IDLE = StrategySettings(shedding_enabled=False)
SHAPE = DaySize(brokers=4, bundles=40, minutes=40, events=False)
NEWCOMER = "broker-0004:8080"
OLD = IsolationPolicy(namespaces=["tenant-.*"], primary=["broker-000[0-3]"])


def a_day(*rules: DayRules, events: tuple[DayEvent, ...] = ()) -> DayOfLoad:
    """Four brokers; what follows happens."""
    return replace(make_day(3, SHAPE), events=events, rules=rules)


def of_last(day: DayOfLoad, settings: StrategySettings, broker: str) -> float:
    """The usage of a broker in the last minute."""
    last = run(day, settings)[-1]
    return float(last.usage[last.live.index(broker)])


def test_isolation_keeps_a_newcomer_empty() -> None:
    """Neither shedding nor placement gives it what a policy keeps away from it."""
    events = (DayEvent(10, Kind.JOINS, NEWCOMER), DayEvent(20, Kind.DIES, "broker-0000:8080"))
    free, isolated = a_day(events=events), a_day(DayRules(minute=0, isolation={"p": OLD}))
    isolated = replace(isolated, events=events)
    assert of_last(free, BALANCED, NEWCOMER) > 0.2
    assert of_last(isolated, BALANCED, NEWCOMER) == 0


def test_a_cordoned_broker_takes_nothing() -> None:
    """Until the cordon ends."""
    joins = (DayEvent(5, Kind.JOINS, NEWCOMER),)
    cordoned = DayRules(minute=0, cordons={NEWCOMER: Cordon(1)})
    assert of_last(a_day(cordoned, events=joins), BALANCED, NEWCOMER) == 0
    ended = a_day(cordoned, DayRules(minute=20), events=joins)
    assert of_last(ended, BALANCED, NEWCOMER) > 0.2


def test_a_drained_broker_is_emptied() -> None:
    """Its bundles count as moved, as they did in life, and not as those of a dead broker."""
    drained = DayRules(minute=10, cordons={"broker-0001:8080": Cordon(1, drain=True)})
    minutes = run(a_day(drained), IDLE)
    assert [minute.moves for minute in minutes[9:12]] == [0, 10, 0]
    assert not any(minute.placed for minute in minutes)
    row = minutes[10].live.index("broker-0001:8080")
    assert minutes[9].usage[row] > 0.1
    assert [minute.usage[row] for minute in minutes[10:]] == [0] * 30


def test_a_pinned_bundle_goes_to_its_broker_and_stays() -> None:
    """Whatever the shedder would do with it."""
    day = make_day(3, SHAPE)
    busiest = int(np.argmax(traffic(day).minute(0) * day.cost))
    pin = Pin("broker-0002:8080", until_ms=1)
    rules = DayRules(minute=15, pins={day.bundles[busiest]: pin})
    for broker in ("broker-0002:8080", "broker-0003:8080"):
        owners = tuple(broker if at == busiest else day.brokers[at % 2] for at in range(40))
        minutes = run(replace(day, events=(), owners=owners, rules=(rules,)), IDLE)
        moves = [minute.moves for minute in minutes]
        assert sum(moves) == moves[15] == (broker != pin.broker)
        row = minutes[15].live.index(pin.broker)
        assert all(minute.usage[row] > 0 for minute in minutes[15:])


def cycle(minute: int, *, broker: str = "b0", epoch: int = 1, **fields: Any) -> Cycle:
    """A recorded cycle."""
    ts = 1000 * MINUTE_MS + minute * MINUTE_MS + 1
    return Cycle(ts=ts, broker=broker, epoch=epoch, cycle=minute, strategy="", **fields)


def test_rules_of_recorded_cycles() -> None:
    """What the first ones say counts from the beginning; what is said again changes nothing; a term
    of which the history lacks the beginning says nothing until it names everything again.
    """
    everything = {"isolation": {"p": OLD}, "groups": {}, "failure_domains": {}}
    cordon = Cordon(1, note="disk")
    cycles = [
        cycle(2, **everything),
        cycle(3),
        cycle(4, cordons={"b1": cordon}),
        cycle(5, cordons={"b1": cordon}),
        cycle(60, **everything, cordons={"b1": cordon}),
        cycle(70, broker="b2", epoch=2, pins={}),
        cycle(71, broker="b2", epoch=2, **everything),
        cycle(72, broker="b2", epoch=2, isolation={}),
    ]
    rules = rules_of(cycles, 1000 * MINUTE_MS)
    assert [each.minute for each in rules] == [0, 4, 71, 72]
    assert [bool(each.cordons) for each in rules] == [False, True, False, False]
    assert [bool(each.isolation) for each in rules] == [True, True, True, False]
    assert [in_force(rules, minute).minute for minute in (0, 3, 4, 70, 71, 90)] == [
        *(0, 0, 4, 4, 71, 72)
    ]
    assert in_force((), 7).wishes == in_force(rules, 0).wishes


def test_tasks_on_other_machines_have_them() -> None:
    """A day as bytes has its rules."""
    rules = DayRules(
        minute=3,
        isolation={"p": OLD},
        groups={"t/n": "g"},
        failure_domains={"d": ["b0"]},
        pins={"t/n/0x00000000_0xffffffff": Pin("b0", 1)},
        cordons={"b1": Cordon(1)},
        refusals={"b2": frozenset({"*"})},
    )
    day = a_day(rules)
    carried = np.zeros((day.minutes, len(day.bundles)), np.float32)
    assert day_files.load(day_files.dump(replace(day, carried=carried))).rules == (rules,)
