"""The model of usage is kept whatever the shedder is, and says which sensors do not count."""

from __future__ import annotations

import asyncio

import pytest
from clusters.led import Led, led_fleet
from clusters.members import NS

from loadmanager.cli.admin.what_if import losses_text
from loadmanager.engine.load.headroom import Headroom
from loadmanager.engine.load.reports import NamespaceBundleStats
from loadmanager.engine.load.wishes import Cordon
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.leader.usage import HEADROOM_MS, HeadroomLately

CYCLES = 30


async def shown(
    led: Led, *, stuck_after: int, then: StrategySettings | None = None
) -> list[tuple[float | None, str | None]]:
    """The modelled usage of broker 1 and the doubt in its sensor, cycle by cycle: all brokers have
    30 to 60 % of CPU by their traffic; broker 1's sensor shows 10 % from some cycle on, when other
    settings come into force.
    """
    lines: list[tuple[float | None, str | None]] = []
    began_ms = 1000 if led.view.knows_owners else led.load_manager.term.clock.now_ms()
    for cycle in range(CYCLES):
        if cycle == stuck_after and then is not None:
            led.strategies.set(then)
        for index in range(4):
            load = 0.3 + 0.1 * index
            stats = {
                f"{NS}/0x{index:x}0000000_0x{index + 1:x}0000000": NamespaceBundleStats(
                    msg_throughput_in=1e8 * load * (1 + 0.05 * (cycle % 2)), msg_rate_in=100
                )
            }
            cpu = 100 * load * (1 + 0.05 * (cycle % 2))
            cpu = 10 + cycle % 2 if index == 1 and cycle >= stuck_after else cpu
            if not led.view.knows_owners:
                await led.report(index, stats, cpu=cpu, at_ms=began_ms + cycle)
                continue
            if cycle == 0:
                await led.fleet.brokers[index].acquire(*stats)
                await led.until(lambda bundles=set(stats): bundles <= led.view.owners.keys())
            await led.publish(index, stats, cpu=cpu, at_ms=began_ms + cycle)
        await led.shed()
        broker = next(one for one in led.overview.cluster(9).brokers if one.broker == "b1:8080")
        lines.append((broker.modelled, broker.sensor and broker.sensor.code))
    return lines


@pytest.mark.parametrize("shedder", ["ThresholdShedder", "BalancedShedder", "TransferShedder"])
async def test_a_sensor_that_lies_is_told_within_minutes(shedder: str) -> None:
    """On the page and among the decisions; the model's usage stays what the traffic says."""
    settings, extensible = StrategySettings(shedder=shedder), shedder == "TransferShedder"
    async with led_fleet(4, bundles=16, strategies=settings, extensible=extensible) as led:
        lines = await shown(led, stuck_after=15)
        assert {code for _, code in lines[:15]} == {None}
        modelled, code = lines[-1]
        assert code == "SensorMistrusted"
        assert modelled is not None
        assert 0.3 < modelled < 0.5
        first = next(at for at, (_, code) in enumerate(lines) if code)
        assert first - 15 <= 6
        skips = [skip for plan in led.observed for skip in plan.skipped]
        assert "SensorMistrusted" in {skip.code for skip in skips if skip.what == "b1:8080"}


@pytest.mark.parametrize(
    "then",
    [
        StrategySettings(shedder="BalancedShedder", shedding_enabled=False),
        StrategySettings(shedder="ThresholdShedder"),
    ],
)
async def test_what_balanced_shedder_learned_is_learned_on_without_it(
    then: StrategySettings,
) -> None:
    """Balancing is switched off, or another shedder configured: goals and the page go by the model
    of now.
    """
    settings = StrategySettings(shedder="BalancedShedder")
    async with led_fleet(4, bundles=16, strategies=settings) as led:
        lines = await shown(led, stuck_after=15, then=then)
        assert {code for _, code in lines[:15]} == {None}
        modelled, code = lines[-1]
        assert code == "SensorMistrusted"
        assert modelled is not None
        assert 0.3 < modelled < 0.5
        led.strategies.set(settings)
        await led.shed()  # it goes on with what was learned meanwhile
        skips = [skip for skip in led.observed[-1].skipped if skip.what == "b1:8080"]
        assert [skip.code for skip in skips] == ["SensorMistrusted"]


async def test_sensors_that_agree_are_not_doubted() -> None:
    """And the model is near what they show."""
    async with led_fleet(4, strategies=StrategySettings(shedder="ThresholdShedder")) as led:
        lines = await shown(led, stuck_after=CYCLES)
        assert {code for _, code in lines} == {None}
        assert lines[-1][0] == pytest.approx(0.42, abs=0.05)


def test_one_moment_does_not_change_headroom() -> None:
    """It is the median of the cycles of five minutes, until the brokers are others."""
    lately = HeadroomLately()

    def look(minute: int, times: float, brokers: str = "abc", resource: str = "cpu") -> float:
        room = Headroom(times, times - 1, 0.5 / times, times / 2, times / 3)
        steady = lately.steady(60_000 * minute, brokers, (resource, room))
        assert steady is not None
        return steady.room.times

    assert [look(minute, times) for minute, times in enumerate((4.0, 4.0, 9.0, 4.2))] == [
        4.0,
        4.0,
        4.0,
        4.1,
    ]
    assert look(4, 1.0) == 4.0
    steady = lately.steady(5 * 60_000, "abc", ("cpu", Headroom(4.4, 3.4, 0.1, 2.0, 1.0)))
    assert steady is not None
    assert (steady.looks, steady.since_ms, steady.last_ms) == (5, 60_000, 300_000)
    assert look(6, 2.0, brokers="ab") == 2.0
    assert look(7, 3.0, brokers="ab", resource="bandwidthOut") == 3.0
    assert lately.steady(8 * 60_000, "ab", None) is None
    assert look(9, 5.0, brokers="ab") == 5.0


async def test_what_the_others_would_use_without_a_broker() -> None:
    """By the model: the one that takes the bundle of 60 % besides its own is overloaded then, and
    the others use what they did.
    """
    async with led_fleet(4, strategies=StrategySettings(shedder="ThresholdShedder")) as led:
        await shown(led, stuck_after=CYCLES)
        loss = await led.overview.loss(["b3:8080"], 10)
        (there,) = loss.destinations
        assert [it.broker for it in loss.remaining] == ["b0:8080", "b1:8080", "b2:8080"]
        for index, it in enumerate(loss.remaining):
            assert it.usage == pytest.approx(0.3 + 0.1 * index, abs=0.05)
            more = 0.6 if it.broker == there.broker else 0.0
            assert it.usage_after == pytest.approx(it.usage + more, abs=0.1)
        text = list(losses_text(loss))
        assert "OVERLOADED THEN, above 85%: 1 broker" in text
        named = [line for line in text if " by the model, and these bundles add " in line]
        assert named[0].startswith(f"  {there.broker}: ")
        of = next(it for it in loss.remaining if it.broker == there.broker)
        then = 0.2 + of.usage_after - of.usage
        told = [*losses_text(loss, dict.fromkeys((it.broker for it in loss.remaining), 0.2))]
        assert "of 3 other brokers, none would be above 85%:" in told
        assert any(
            line.startswith(f"  {there.broker}: {then:.0%} then: 20.0% now, and these bundles add ")
            for line in told
        ), told
        await led.report(2, {}, cpu=5, at_ms=9_000)
        nothing = await led.overview.loss(["b2:8080"], 10)
        assert all(it.usage_after == it.usage for it in nothing.remaining)


async def test_bundles_cost_elsewhere_what_they_cost_here() -> None:
    """A byte of three brokers costs eight times as much CPU as one of the fourth: whichever takes
    what that has uses about as much more as that did, and not eight times as much.
    """
    async with led_fleet(4, strategies=StrategySettings(shedder="BalancedShedder")) as led:
        for cycle in range(4 * CYCLES):
            for index in range(4):
                of, dear = ("acme/bulk", 1) if index == 3 else (NS, 8)
                cpu = (10 + 5 * index if index < 3 else 12.5) * (1 + 0.05 * (cycle % 2))
                stats = {
                    f"{of}/0x{index:x}0000000_0x{index + 1:x}0000000": NamespaceBundleStats(
                        msg_throughput_in=1e7 * cpu / dear, msg_rate_in=100
                    )
                }
                await led.report(index, stats, cpu=cpu, at_ms=1000 + cycle)
            await led.shed()
        loss = await led.overview.loss(["b3:8080"], 10)
        (there,) = loss.destinations
        (it,) = [it for it in loss.remaining if it.broker == there.broker]
        assert 0.08 < it.usage_after - it.usage < 0.17


async def test_headroom_is_shown() -> None:
    """Four brokers at 30 to 60 % carry 85 / 45 times as much, and three of them 64 / 45 times; as
    a cordoned one takes nothing, so is it with a cordon.
    """
    async with led_fleet(4, strategies=StrategySettings(shedder="ThresholdShedder")) as led:
        assert led.overview.cluster(9).headroom is None
        await shown(led, stuck_after=CYCLES)
        room = led.overview.cluster(9).headroom
        assert room is not None
        assert (room.resource, room.below_percent) == ("cpu", 85.0)
        assert room.measurable
        assert room.times == pytest.approx(85 / 45, rel=0.1)
        assert room.times_without_one == pytest.approx(64 / 45, rel=0.1)
        assert room.at_least == pytest.approx(85 / 45, rel=0.1)
        assert room.at_least <= room.times
        assert room.cordoned == 0
        assert room.looks > 1
        await asyncio.sleep(HEADROOM_MS / 1000)  # then it goes by the last reports alone
        await led.shed()
        room = led.overview.cluster(9).headroom
        assert room is not None
        assert room.looks == 1
        await led.wishes.cordon("b3:8080", Cordon(1), ())
        await led.shed()
        fewer = led.overview.cluster(9).headroom
        assert fewer is not None
        assert fewer.times == pytest.approx(room.times_without_one, rel=0.02)
        assert fewer.at_least == pytest.approx(room.at_least_without_one, rel=0.02)
        assert fewer.cordoned == 1
