"""The live leader and `decide` see one cluster: the same events, the same plans."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest
from runtime.fleet import NS
from runtime.led import Led, led_fleet

from loadmanager.core.load.reports import NamespaceBundleStats
from loadmanager.core.strategies.plan import Plan
from loadmanager.core.strategies.settings import StrategySettings
from loadmanager.core.strategies.shedding.threshold import ThresholdSettings
from loadmanager.core.strategies.shedding.transfer import TransferSettings
from loadmanager.core.strategies.splitting.settings import SplitSettings
from loadmanager.runtime.shared import paths
from loadmanager.simulator.deciding import Deciding
from loadmanager.simulator.lines import decode_line

BROKERS, BUNDLES, CYCLES, CYCLE_MS = 4, 32, 24, 20_000


class SetClock:
    """The time that a test sets."""

    def __init__(self) -> None:
        self.ms = 1_700_000_000_000

    def now_ms(self) -> int:
        return self.ms

    def monotonic_s(self) -> float:
        return self.ms / 1000

    def monotonic_ns(self) -> int:
        return self.ms * 1_000_000


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
        led, brokers, shedding = self.led, self.led.fleet.brokers, number % 2 == 0
        self.clock.ms += CYCLE_MS
        self.owned.append([broker.ownership.owned() for broker in brokers])
        reported = self.owned[max(number - self.lag, 0)]
        alive = [index for index in range(BROKERS) if index != BROKERS - 1 or not 8 <= number < 12]
        if len(alive) < BROKERS:
            gone = brokers[-1].address.broker_id
            await brokers[-1].store.delete(paths.broker(gone))
            await led.until(lambda: gone not in brokers[0].brokers.reports)
        texts: dict[str, Any] = {}
        for index in alive:
            stats = {bundle: self.stats(bundle) for bundle in reported[index]}
            cpu = min(sum(self.weights[bundle] for bundle in stats), 100)
            texts[brokers[index].address.broker_id] = msgspec.Raw(
                await led.report(index, stats, cpu=cpu)
            )
        line: dict[str, Any] = {"now": self.clock.ms, "brokers": texts}
        if shedding:
            line["do"] = ["shed"]
            await led.shed()
        else:
            bundle = self.spans[BUNDLES // 2 + number // 2]
            line.update(do=["place"], place=[bundle])
            broker_id = await led.load_manager.place(bundle)
            if number % 4 == 1:  # every second placed bundle is never looked up, and so never owned
                await brokers[int(broker_id[1])].ownership.acquire(bundle, "test")
        self.lines.append(msgspec.json.encode(line))
        self.plans.append(led.observed[-1])

    def stats(self, bundle: str) -> NamespaceBundleStats:
        """A bundle's traffic now."""
        load = self.weights[bundle] * self.rng.uniform(0.8, 1.2)
        return NamespaceBundleStats(msg_rate_in=load * 1000, msg_throughput_in=load * 1e6, topics=3)


@pytest.mark.parametrize(
    ("shedder", "lag"),
    [
        ("TransferShedder", 1),
        ("TransferShedder", 0),
        ("ThresholdShedder", 0),
        ("OverloadShedder", 0),
        ("UniformLoadShedder", 0),
    ],
)
async def test_one_sequence_gives_the_same_plans(shedder: str, lag: int) -> None:
    """Averages, placements under way, recent moves, a broker that goes and comes back: both count
    them alike.

    With a lag, moves are under way during the next cycles. `decide` knows of those whose
    destination the shedder names.
    """
    clock = SetClock()
    settings = StrategySettings(
        shedder=shedder,
        grace_period_minutes=2 * CYCLE_MS / 60_000,
        own={
            ThresholdSettings: ThresholdSettings(min_throughput_mib=0),
            TransferSettings: TransferSettings(hits_min=0),
        },
        unload_rate_min=0,
        overloaded_percent=40,
    )
    async with led_fleet(BROKERS, bundles=BUNDLES, clock=clock) as led:
        led.strategies.set(settings)
        recording = Recording(led, clock, random.Random(3), lag)
        for number, bundle in enumerate(recording.spans[: BUNDLES // 2]):
            await led.fleet.brokers[0 if number < 10 else number % 3].ownership.acquire(
                bundle, "test"
            )
        for number in range(CYCLES):
            await recording.cycle(number)
    deciding = Deciding(random.Random(1))
    assert any(plan.unloads for plan in recording.plans)
    for number, (raw, live) in enumerate(zip(recording.lines, recording.plans, strict=True)):
        plan = deciding.decide(decode_line(raw), settings, SplitSettings())
        assert (number, plan.placements, plan.skipped) == (number, live.placements, live.skipped)
        assert [
            (unload.bundle, unload.source, unload.reason, unload.why) for unload in plan.unloads
        ] == [(unload.bundle, unload.source, unload.reason, unload.why) for unload in live.unloads]
        assert all(
            mine.destination in (None, its.destination)
            for mine, its in zip(plan.unloads, live.unloads, strict=True)
        )
