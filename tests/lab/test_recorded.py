"""A recorded day is lived again as it was recorded."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from msgspec.structs import replace

from loadmanager.engine.history.records import BrokerLoad, BundleLoad
from loadmanager.engine.load.reports import ResourceUsage
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.kit.errors import BadInputError
from loadmanager.kit.units import MINUTE_MS
from loadmanager.lab.closed_loop import run
from loadmanager.lab.day_files import dump
from loadmanager.lab.days import DaySize, Kind, make_day, traffic
from loadmanager.lab.measures import measure, settling
from loadmanager.lab.recorded import MESSAGE_BYTES, Recording, record

MINUTES = 60
START = 28_000_000
"""A minute since the epoch."""
DAY = make_day(5, DaySize(brokers=4, bundles=40, minutes=MINUTES, events=False))
BESIDE = 0.1
NONE = ResourceUsage()


def samples(
    *, interval_ms: int = MINUTE_MS, silent: range = range(0), lies: float = 0.0
) -> Iterator[BrokerLoad | BundleLoad]:
    """The brokers' records while bundle i stays at broker i mod 4; broker 0 is silent for a while,
    and broker 1 has a sensor that is known to lie.
    """
    bundles, per_minute = traffic(DAY), max(MINUTE_MS // interval_ms, 1)
    for minute in range(MINUTES):
        carried = bundles.minute(minute)
        if interval_ms > MINUTE_MS and (minute + 1) * MINUTE_MS % interval_ms:
            continue
        for part in range(1, per_minute + 1):
            ts = (START + minute) * MINUTE_MS + part * min(interval_ms, MINUTE_MS)
            for number, name in enumerate(DAY.brokers):
                if number == 0 and minute in silent:
                    continue
                own = carried[number::4]
                usage = BESIDE + float(own.sum()) * 1e-9
                yield BrokerLoad(
                    ts=ts,
                    broker=name,
                    interval_ms=interval_ms,
                    usage=usage + lies * (number == 1),
                    cpu=ResourceUsage(usage=usage * 800, limit=800),
                    memory=NONE,
                    direct_memory=NONE,
                    bandwidth_in=NONE,
                    bandwidth_out=NONE,
                    faults=["cpu"] if lies and number == 1 else [],
                )
                for bundle, bytes_s in zip(DAY.bundles[number::4], own.tolist(), strict=True):
                    yield BundleLoad(
                        ts=ts,
                        broker=name,
                        interval_ms=interval_ms,
                        bundle=bundle,
                        msg_throughput_in=bytes_s / 4,
                        msg_throughput_out=bytes_s * 3 / 4,
                        msg_rate_in=bytes_s / 2000,
                        producers=2,
                        consumers=3,
                    )


def carried(recording: Recording) -> np.ndarray:
    """The traffic of the bundles, in the order of the synthetic day's bundles."""
    order = [recording.day.bundles.index(bundle) for bundle in DAY.bundles]
    assert isinstance(recording.day.carried, np.ndarray)
    return recording.day.carried[:, order]


@pytest.mark.parametrize("interval_ms", [MINUTE_MS, 15_000])
def test_what_bundles_carried(interval_ms: int) -> None:
    """Every minute of every bundle, whatever the interval of the samples."""
    recording = record(samples(interval_ms=interval_ms))
    bundles = traffic(DAY)
    expected = np.array([bundles.minute(minute) for minute in range(MINUTES)])
    assert carried(recording) == pytest.approx(expected, rel=1e-5)
    assert recording.start_ms == START * MINUTE_MS


def test_a_long_sample_stands_for_its_minutes() -> None:
    """Samples of five minutes: each minute has its sample's value."""
    minutes = carried(record(samples(interval_ms=5 * MINUTE_MS)))
    assert (minutes[:5] == minutes[4]).all()
    assert (minutes > 0).all()


def test_costs_are_fitted() -> None:
    """What a byte costs, and what brokers use beside; a sensor that lies does not count."""
    for lies in (0.0, 0.4):
        recording = record(samples(lies=lies))
        assert recording.day.beside == pytest.approx(BESIDE, rel=1e-3)
        assert recording.day.cost[0] == pytest.approx(1e-9 * 800, rel=1e-3)
        assert recording.fit.explained == pytest.approx(1, abs=1e-3)


def test_the_first_minute_is_as_recorded() -> None:
    """With the owners, capacities and clients of the recording, usage is as it was."""
    recording = record(samples())
    (minute, *_) = run(recording.day, StrategySettings(shedding_enabled=False))
    first = traffic(DAY).minute(0)
    usage = [BESIDE + first[number::4].sum() * 1e-9 for number in range(4)]
    assert minute.usage.tolist() == pytest.approx(usage, rel=1e-3)
    assert recording.day.clients.tolist() == [5] * 40
    assert recording.day.message_bytes == pytest.approx(2000)


def test_a_silent_broker_was_gone() -> None:
    """It dies in the minute after its last sample, and comes back with its next one."""
    day = record(samples(silent=range(20, 30))).day
    events = [(event.minute, event.kind, event.broker) for event in day.events]
    name = DAY.brokers[0]
    assert events == [(20, Kind.DIES, name), (30, Kind.JOINS, name)]
    late = record(samples(silent=range(10))).day
    assert [(event.minute, event.kind) for event in late.events] == [(10, Kind.JOINS)]
    assert name not in late.brokers
    assert set(late.owners) == set(DAY.brokers) - {name}


def test_moves_again_are_those_that_happened() -> None:
    """A bundle is elsewhere for ten minutes: two moves, and the second one is one again."""
    bundle, other = DAY.bundles[0], DAY.brokers[1]
    away = range((START + 10) * MINUTE_MS, (START + 20) * MINUTE_MS)
    loads = [
        replace(load, broker=other)
        if isinstance(load, BundleLoad) and load.bundle == bundle and load.ts in away
        else load
        for load in samples()
    ]
    happened = record(loads).happened
    assert sum(minute.moves for minute in happened) == 2
    assert [minute.again for minute in happened if minute.moves] == [0, 1]


def test_the_same_records_make_the_same_minutes() -> None:
    """Also in another order."""
    forth, back = record(samples()).day, record(reversed(list(samples()))).day
    settings = StrategySettings(shedder="BalancedShedder", placement="BalancedPlacement")
    for one, other in zip(run(forth, settings), run(back, settings), strict=True):
        assert one.usage.tolist() == pytest.approx(other.usage.tolist(), rel=1e-6)
        assert one.moves == other.moves


def test_impossible_samples_are_left_out() -> None:
    """Times of another day, and figures that no broker has, change nothing else."""
    good = list(samples())
    broker = next(load for load in good if isinstance(load, BrokerLoad))
    bundle = next(load for load in good if isinstance(load, BundleLoad))
    bad = [
        *(replace(load, ts=ts) for load in (broker, bundle) for ts in (0, -(1 << 62), 1 << 62)),
        *(replace(load, interval_ms=ms) for load in (broker, bundle) for ms in (0, -1, 1 << 62)),
        *(replace(broker, usage=usage) for usage in (-1.0, 1e300)),
        *(replace(bundle, msg_throughput_in=bytes_s) for bytes_s in (-1e9, 1e300)),
        *(replace(bundle, producers=clients) for clients in (-1, 1 << 62)),
    ]
    day = range(START * MINUTE_MS, (START + MINUTES + 1) * MINUTE_MS)
    with_bad, without = record([*good, *bad], times_ms=day), record(good, times_ms=day)
    assert (without.left_out, with_bad.left_out) == (0, len(bad))
    assert dump(with_bad.day) == dump(without.day)
    assert with_bad.left_out_text == f"; {len(bad)} impossible samples are left out"


def test_more_than_there_is_costs_nothing() -> None:
    """A sensor that shows it once, and a number of cores that was recorded once."""
    good = list(samples())
    at = next(number for number, load in enumerate(good) if isinstance(load, BrokerLoad))
    broker = good[at]
    assert isinstance(broker, BrokerLoad)
    for bad in (
        replace(broker, usage=1e12),
        replace(broker, usage=0.9, bandwidth_in=ResourceUsage(usage=9e7, limit=1e7)),
        replace(broker, cpu=ResourceUsage(usage=0, limit=1e12)),
    ):
        recording = record([*good[:at], bad, *good[at + 1 :]])
        assert recording.day.beside == pytest.approx(BESIDE, rel=1e-3)
        assert recording.fit.explained == pytest.approx(1, abs=1e-3)
        assert set(recording.day.cores.values()) == {8.0}
        assert recording.left_out == (bad.cpu.limit == 800)


def test_samples_that_are_there_twice_count_once() -> None:
    """The same bytes cost what they cost without the copies."""
    once, twice = record(samples()).day, record([*samples(), *samples()]).day
    assert twice.cost == pytest.approx(once.cost)
    assert twice.beside == pytest.approx(once.beside)
    assert twice.carried == pytest.approx(once.carried)


def test_minutes_without_brokers() -> None:
    """Every broker is silent for a while; such minutes are not measured."""
    all_silent = range((START + 30) * MINUTE_MS + 1, (START + 40) * MINUTE_MS + 1)
    recording = record(load for load in samples() if load.ts not in all_silent)
    minutes = run(recording.day, StrategySettings(shedding_enabled=False))
    assert [len(minute.usage) for minute in minutes] == [4] * 30 + [0] * 10 + [4] * 20
    measures = measure(minutes)
    assert measures.broker_minutes == 4 * (MINUTES - 20 - 10)
    assert measures.spread == pytest.approx(
        np.mean([minute.spread for minute in minutes[20:30] + minutes[40:]])
    )
    assert settling(minutes)[30] >= 10


def test_messages_without_bytes() -> None:
    """A bundle whose messages are empty has a message rate of 0, not one that is no number."""
    empty = [
        replace(load, msg_throughput_in=0.0, msg_throughput_out=0.0)
        if isinstance(load, BundleLoad)
        else load
        for load in samples()
    ]
    day = record(empty).day
    assert (day.message_bytes == MESSAGE_BYTES).all()
    assert measure(run(day, StrategySettings())).spread == pytest.approx(0, abs=5)


def test_too_little_is_refused() -> None:
    """A recording without samples, or a short one, is no day."""
    with pytest.raises(BadInputError, match="no samples"):
        record([])
    with pytest.raises(BadInputError, match="10 minutes"):
        record(sample for sample in samples() if sample.ts <= (START + 10) * MINUTE_MS)
