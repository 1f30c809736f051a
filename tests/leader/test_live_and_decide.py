"""The live leader and `decide` see one cluster: the same events, the same plans."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest
from clusters.led import Led, led_fleet
from clusters.members import NS

from loadmanager.engine.load.reports import NamespaceBundleStats
from loadmanager.engine.strategies import registry
from loadmanager.engine.strategies.plan import Plan
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.engine.strategies.shedding.avg import AvgSettings
from loadmanager.engine.strategies.shedding.threshold import ThresholdSettings
from loadmanager.engine.strategies.shedding.transfer import TransferSettings
from loadmanager.engine.strategies.splitting.settings import SplitSettings
from loadmanager.kit.metadata import paths
from loadmanager.lab.deciding import Deciding
from loadmanager.lab.lines import decode_line
from loadmanager.testing.cluster import LoopTime

BROKERS, BUNDLES, CYCLES, CYCLE_MS = 4, 32, 24, 20_000


class SetClock(LoopTime):
    """Wall time as a test sets it; what it proves its session by goes on."""

    def __init__(self) -> None:
        self.ms = 1_700_000_000_000

    def now_ms(self) -> int:
        return self.ms


class Recording:
    """A live leader over moving bundles, and the lines for `decide` with the same reports."""

    def __init__(self, led: Led, clock: SetClock, rng: random.Random, lag: int) -> None:
        self.led, self.clock, self.rng, self.lag = led, clock, rng, lag
        self.spans = [
            f"{NS}/0x{n << 27:08x}_0x{min((n + 1) << 27, 0xFFFFFFFF):08x}" for n in range(BUNDLES)
        ]
        self.weights = {bundle: rng.uniform(1, 9) for bundle in self.spans}
        self.owned: list[list[list[str]]] = []
        """Cycle → broker → its bundles at the end of the cycle before."""
        self.lines: list[bytes] = []
        self.plans: list[Plan] = []

    async def cycle(self, number: int) -> None:
        """Brokers report, one of them is away for some cycles, and the leader decides: in turns it
        sheds and places.
        """
        line, brokers = await self._reports(number), self.led.fleet.brokers
        if number % 2 == 0:
            await self._shed(line)
            return
        bundle = self._new_bundle(number)
        broker_id = await self.led.load_manager.place(bundle)
        if number % 4 == 1:  # every second placed bundle is never looked up, and so never owned
            await brokers[int(broker_id[1])].ownership.acquire(bundle, "test")
        self._keep({**line, "do": ["place"], "place": [bundle]})

    async def extensible_cycle(self, number: int) -> None:
        """The same in the extensible manager, whose leader sheds only: in turns a broker places a
        bundle on itself before.
        """
        led, brokers = self.led, self.led.fleet.brokers
        if number % 2 == 1:
            await brokers[number % 3].ownership.acquire(self._new_bundle(number), "test")
        line = await self._reports(number)
        owners = {
            bundle: broker.address.broker_id
            for broker in brokers
            for bundle in broker.ownership.owned()
        }
        await led.until(lambda: led.view.owners == owners)
        await self._shed({**line, "owners": owners})

    async def _reports(self, number: int) -> dict[str, Any]:
        """A line with what the brokers report now."""
        led, brokers = self.led, self.led.fleet.brokers
        self.clock.ms += CYCLE_MS
        self.owned.append([broker.ownership.owned() for broker in brokers])
        reported = self.owned[max(number - self.lag, 0)]
        alive = [index for index in range(BROKERS) if index != BROKERS - 1 or not 8 <= number < 12]
        if number == 8:
            await self._leave()
        texts: dict[str, msgspec.Raw] = {}
        tops: dict[str, msgspec.Raw] = {}
        for index in alive:
            stats = {bundle: self.stats(bundle) for bundle in reported[index]}
            cpu = min(sum(self.weights[bundle] for bundle in stats), 100)
            name = brokers[index].address.broker_id
            if not led.view.knows_owners:
                texts[name] = msgspec.Raw(await led.report(index, stats, cpu=cpu))
            else:
                published = await led.publish(index, stats, cpu=cpu, at_ms=self.clock.ms)
                texts[name], tops[name] = map(msgspec.Raw, published)
        return {"now": self.clock.ms, "brokers": texts, "topBundles": tops}

    async def _leave(self) -> None:
        """The last broker's report is gone."""
        led, last = self.led, self.led.fleet.brokers[-1]
        gone = last.address.broker_id
        if not led.view.knows_owners:
            await last.store.delete(paths.broker(gone))
        else:
            await last.store.delete(f"{paths.LOAD_DATA}/{gone}")
            await last.store.delete(f"{paths.TOP_BUNDLES}/{gone}")
        await led.until(lambda: gone not in led.view.reports.keys() | led.view.load_data.keys())

    async def _shed(self, line: dict[str, Any]) -> None:
        await self.led.shed()
        self._keep({**line, "do": ["shed"]})

    def _keep(self, line: dict[str, Any]) -> None:
        self.lines.append(msgspec.json.encode(line))
        self.plans.append(self.led.observed[-1])

    def _new_bundle(self, number: int) -> str:
        """A bundle that nobody has owned before this cycle."""
        return self.spans[BUNDLES // 2 + number // 2]

    def stats(self, bundle: str) -> NamespaceBundleStats:
        """A bundle's traffic now."""
        load = self.weights[bundle] * self.rng.uniform(0.8, 1.2)
        return NamespaceBundleStats(msg_rate_in=load * 1000, msg_throughput_in=load * 1e6, topics=3)


FOLLOWING = {"AvgShedder": "AvgShedder", "BalancedShedder": "BalancedPlacement"}
"""Shedder → the placement rule that goes with it, where that is not the default."""
NAMING_DESTINATIONS = ("AvgShedder", "BalancedShedder", "TransferShedder")
"""They name the destination of every move."""
OWN = {
    AvgSettings: AvgSettings(low=5, high=20, low_hits=1, high_hits=1),
    ThresholdSettings: ThresholdSettings(min_throughput_mib=0),
    TransferSettings: TransferSettings(hits_min=0, delay_s=30, target_std=0.03),
}


@pytest.mark.parametrize(
    ("shedder", "lag", "extensible"),
    [
        *((shedder, 0, False) for shedder in sorted(registry.SHEDDERS)),
        *((shedder, 1, False) for shedder in NAMING_DESTINATIONS),
        ("TransferShedder", 0, True),
        ("TransferShedder", 1, True),
    ],
)
async def test_one_sequence_gives_the_same_plans(shedder: str, lag: int, extensible: bool) -> None:
    """Averages, placements under way, recent moves, a broker that goes and comes back: both count
    them alike.

    A destination that the shedder does not name is None in the plan of `decide`; the live leader
    asks the placement rule for it in the same cycle. So destinations are compared where the shedder
    names them, which some shedders must. With a lag, moves are under way during the next cycles;
    `decide` knows only of those whose destination is named.
    """
    clock = SetClock()
    settings = StrategySettings(
        shedder=shedder,
        placement=FOLLOWING.get(shedder, StrategySettings.placement),
        grace_period_minutes=2 * CYCLE_MS / 60_000,
        own=OWN,
        unload_rate_min=0,
        unload_throughput_min=0,
        overloaded_percent=40,
        bundles_in_report_max=-1,
    )
    async with led_fleet(
        BROKERS, bundles=BUNDLES, clock=clock, strategies=settings, extensible=extensible
    ) as led:
        recording = Recording(led, clock, random.Random(3), lag)
        for number, bundle in enumerate(recording.spans[: BUNDLES // 2]):
            await led.fleet.brokers[0 if number < 10 else number % 3].ownership.acquire(
                bundle, "test"
            )
        for number in range(CYCLES):
            await (recording.extensible_cycle if extensible else recording.cycle)(number)
    deciding = Deciding(random.Random(1))
    assert sum(bool(plan.unloads) for plan in recording.plans) > 1
    for number, (raw, live) in enumerate(zip(recording.lines, recording.plans, strict=True)):
        plan = deciding.decide(decode_line(raw), settings, SplitSettings())
        assert (number, plan.placements, plan.skipped) == (number, live.placements, live.skipped)
        named = [unload.destination is not None for unload in plan.unloads]
        assert all(named) or shedder not in NAMING_DESTINATIONS
        assert (number, list(plan.unloads)) == (
            number,
            [
                unload if keep else msgspec.structs.replace(unload, destination=None)
                for unload, keep in zip(live.unloads, named, strict=True)
            ],
        )
