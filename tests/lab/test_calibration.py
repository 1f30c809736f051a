"""Replays know how far they are from what happened."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from statistics import fmean

import numpy as np
import pytest
from msgspec import structs

from loadmanager.engine.history.records import BrokerLoad, BundleLoad
from loadmanager.engine.load.bundle_traffic import cost_class_of
from loadmanager.engine.load.reports import ResourceUsage
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.kit.errors import BadInputError
from loadmanager.kit.units import MINUTE_MS
from loadmanager.lab.calibration import Calibration, believed, calibration
from loadmanager.lab.closed_loop import ClosedLoop, Costs, changed, run
from loadmanager.lab.days import CPU_OF_A_CORE, DayOfLoad, DaySize, make_day, traffic
from loadmanager.lab.measures import measure
from loadmanager.lab.recorded import Recording, record

START = 28_000_000
A_DAY = DaySize(brokers=8, bundles=160, minutes=180, events=False)
NONE = ResourceUsage()
COSTS = Costs()


def a_day(seed: int) -> DayOfLoad:
    """Brokers that use a tenth beside their traffic, two of them slow, and tenants whose bytes are
    dear.
    """
    day = make_day(seed, A_DAY)
    dear = np.array([1.0 + 1.5 * (cost_class_of(name) % 3 == 0) for name in day.bundles])
    return replace(
        day,
        beside=0.1,
        cost=day.cost * dear * 0.6,
        slow={day.brokers[0]: 1.6, day.brokers[3]: 1.6},
    )


def history(day: DayOfLoad, settings: StrategySettings) -> Iterator[BrokerLoad | BundleLoad]:
    """The records of a day that was lived under some settings, with the noise of sensors."""
    loop, bundles = ClosedLoop(day, settings, COSTS), traffic(day)
    noise = np.random.default_rng(day.seed)
    for number in range(day.minutes):
        minute = loop.minute(number)
        carried = changed(day, bundles.minute(number), number)
        ts = (START + number + 1) * MINUTE_MS
        owner, names = loop._fleet.owner, loop._fleet.names
        for name, used in zip(minute.live, minute.usage.tolist(), strict=True):
            usage = min(used * (1 + noise.normal(0, COSTS.cpu_noise)), 1.0)
            limit = day.cores[name] * CPU_OF_A_CORE
            yield BrokerLoad(
                ts=ts,
                broker=name,
                interval_ms=MINUTE_MS,
                usage=usage,
                cpu=ResourceUsage(usage=usage * limit, limit=limit),
                memory=NONE,
                direct_memory=NONE,
                bandwidth_in=NONE,
                bandwidth_out=NONE,
                faults=[],
            )
        for at, (bundle, bytes_s) in enumerate(zip(day.bundles, carried.tolist(), strict=True)):
            yield BundleLoad(
                ts=ts,
                broker=names[owner[at]],
                interval_ms=MINUTE_MS,
                bundle=bundle,
                msg_throughput_in=bytes_s / 2,
                msg_throughput_out=bytes_s / 2,
                msg_rate_in=bytes_s / float(day.message_bytes[at]),
                producers=1,
                consumers=int(day.clients[at]),
            )


def calibrated(seed: int, settings: StrategySettings) -> tuple[Recording, Calibration]:
    """A recorded day, and how far its replay is off."""
    recording = record(history(a_day(seed), settings))
    return recording, calibration_of(recording, settings)


def calibration_of(recording: Recording, settings: StrategySettings) -> Calibration:
    """How far its replay is off."""
    replayed = measure(run(recording.day, settings, COSTS))
    return calibration(recording, replayed)


BALANCED = StrategySettings(shedder="BalancedShedder", placement="BalancedPlacement")
THRESHOLD = StrategySettings(shedder="ThresholdShedder")


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_replay_with_the_settings_in_force_is_near_what_happened(seed: int) -> None:
    """The idle part, machines at another speed and dear tenants are in its model."""
    _, calibration = calibrated(seed, BALANCED)
    assert not calibration.far_off, calibration.text()
    was, came = calibration.happened, calibration.replayed
    assert came.spread == pytest.approx(was.spread, rel=0.25)
    assert came.moves == pytest.approx(was.moves, rel=0.75)


@pytest.mark.parametrize("part", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("seed", [2, 3])
def test_what_goes_by_messages_is_told_from_what_goes_by_bytes(seed: int, part: float) -> None:
    """The bytes of small messages are dearer by the part of the cost that goes by messages."""
    day = replace(a_day(seed), cost=make_day(seed, A_DAY).cost)
    bytes_s = np.mean([traffic(day).minute(minute) for minute in range(day.minutes)], axis=0)
    usual = bytes_s.sum() / (bytes_s / day.message_bytes).sum()
    by_size = 1 - part + part * usual / day.message_bytes
    cost = 0.6 * (day.cost * bytes_s).sum() / bytes_s.sum() * by_size
    recording = record(history(replace(day, cost=cost), THRESHOLD))
    assert recording.fit.costs.by_messages == pytest.approx(part, abs=0.1)
    learned = dict(zip(recording.day.bundles, recording.day.cost.tolist(), strict=True))
    shares = bytes_s * [learned[name] for name in day.bundles]
    true = bytes_s * cost
    assert np.abs(shares / shares.sum() - true / true.sum()).sum() / 2 < 0.03


@pytest.mark.parametrize("settings", [BALANCED, THRESHOLD], ids=["balanced", "threshold"])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_usage_is_taken_apart(seed: int, settings: StrategySettings) -> None:
    """Although the shedder makes brokers alike whatever their traffic is."""
    recording, day = record(history(a_day(seed), settings)), a_day(seed)
    assert recording.fit.beside == pytest.approx(0.1, abs=0.1)
    assert recording.fit.error < 0.035
    slow = {name for name, factor in recording.fit.slow.items() if factor > 1.25}
    assert slow == set(day.slow)
    dear = [recording.fit.costs.of(n, 1024) for n in day.bundles if cost_class_of(n) % 3 == 0]
    cheap = [recording.fit.costs.of(n, 1024) for n in day.bundles if cost_class_of(n) % 3]
    if dear and cheap:
        assert np.mean(dear) > 1.25 * np.mean(cheap)


def test_what_is_far_off_is_said() -> None:
    """With both figures."""
    happened = measure(run(a_day(1), BALANCED, COSTS))
    near = Calibration(happened, happened, 0.02)
    assert (near.off, near.far_off) == (0, False)
    assert "not to be believed" not in near.text()
    two = Calibration(happened, replace(happened, spread=99.0, moves=9 * happened.moves + 99), 0.02)
    assert two.text().endswith(": spread and moves are not to be believed")
    far = Calibration(happened, replace(happened, spread=2 * happened.spread), 0.02)
    assert far.off == pytest.approx(-1)
    assert far.refused == ("spread", "moves")
    assert far.text().endswith(": spread and moves are not to be believed")
    little = Calibration(happened, happened, 0.02, explained=0.3)
    assert "No verdict comes from this day: the model explains 30%" in little.text()
    assert not Calibration(happened, happened, 0.009, explained=0.3).says_little


def test_figures_that_are_far_off_are_told_as_multiples() -> None:
    """Each by itself: the spread may be right where the moves are not."""
    happened = measure(run(a_day(1), BALANCED, COSTS))
    moved = Calibration(happened, replace(happened, moves=3 * happened.moves + 10), 0.02)
    assert moved.refused == ("moves",)
    figures = {"spread": happened.spread, "moves": 0.5 * moved.replayed.moves}
    assert believed(figures, {"day": moved}) == {"spread": happened.spread, "moves": "x 0.50"}
    hot = Calibration(happened, replace(happened, hot_minutes=happened.hot_minutes + 500), 0.02)
    assert hot.refused == ("hot_minutes",)
    nothing = replace(happened, moves=0)
    assert Calibration(nothing, replace(nothing, moves=5), 0.02).refused == ()
    assert Calibration(replace(happened, moves=20), nothing, 0.02).refused == ("moves",)
    none = {"day": Calibration(replace(happened, moves=20), nothing, 0.02)}
    assert believed({"moves": 0.0}, none) == {"moves": "x 1"}
    assert believed({"moves": 2.0}, none) == {"moves": "more"}


def test_a_broker_whose_sensor_lies_is_on_both_sides() -> None:
    """The replay has it: so has what it is compared with."""
    without, with_lies = [], []
    for seed in range(1, 4):
        day = a_day(seed)
        loads = list(history(day, BALANCED))
        calm = calibration_of(record(loads), BALANCED).happened
        lies = [
            structs.replace(load, faults=["cpu"])
            if isinstance(load, BrokerLoad) and load.broker == day.brokers[1]
            else load
            for load in loads
        ]
        happened = calibration_of(record(lies), BALANCED).happened
        assert happened.broker_minutes == calm.broker_minutes
        without.append(calm.spread)
        with_lies.append(happened.spread)
    assert fmean(with_lies) == pytest.approx(fmean(without), rel=0.1)


@pytest.mark.parametrize("trusted_minutes", [0, 15])
def test_a_day_without_trusted_sensors_is_left_out(trusted_minutes: int) -> None:
    """Instead of figures that are none: the first 20 minutes are not measured."""
    until_ms = (START + trusted_minutes) * MINUTE_MS
    loads = [
        structs.replace(load, faults=["nicSpeed"])
        if isinstance(load, BrokerLoad) and load.ts > until_ms
        else load
        for load in history(a_day(1), BALANCED)
    ]
    with pytest.raises(BadInputError, match="no sensor of a broker could be trusted"):
        record(loads)
