"""What the daemon records of owners, and of brokers that come and go."""

from __future__ import annotations

from pathlib import Path

from steer.fake_pulsar import RANGES, failed
from steer.watched import ACT, Watching, watching

from loadmanager.engine.history.members import MemberChange
from loadmanager.engine.history.records import OwnershipStep
from loadmanager.engine.history.tenures import Step, Tenure, tenures_of

BUNDLE = f"acme/shop/{RANGES[0]}"
OBSERVE = {"mode": "observe"}


def steps(daemon: Watching) -> list[OwnershipStep]:
    """All recorded ones."""
    return [record for record in daemon.history.records if isinstance(record, OwnershipStep)]


def told(daemon: Watching) -> list[tuple[str, str, str | None]]:
    """Where each ended, and why."""
    return [(step.broker, step.after, step.cause) for step in steps(daemon)]


def tenures(daemon: Watching) -> list[Tenure]:
    """As the analysis makes them."""
    return tenures_of(
        Step(
            *(step.ts, step.broker, step.bundle, step.before, step.after),
            *(step.reason, step.cause, step.parent, step.destination, step.pause_ms, step.life),
        )
        for step in steps(daemon)
    )


async def look(daemon: Watching) -> None:
    """Some seconds later."""
    daemon.clock.pass_s(15)
    await daemon.work.read()


def members(daemon: Watching) -> list[tuple[str, str, str, int]]:
    """What became of brokers."""
    return [
        (record.of, record.event, record.how, record.bundles)
        for record in daemon.history.records
        if isinstance(record, MemberChange)
    ]


async def test_own_moves_are_recorded_once(tmp_path: Path) -> None:
    """At their ends, and not again when their brokers are read."""
    async with watching(tmp_path, settings=ACT) as daemon:
        daemon.pulsar.switch_off()
        await daemon.cycle()
        await look(daemon)
        moved = daemon.pulsar.moved
        assert len(moved) > 1
        own = [step for step in steps(daemon) if step.after == "Owned"]
        assert sorted((step.bundle, step.broker) for step in own) == sorted(moved)
        ends = [tenure for tenure in tenures(daemon) if tenure.until_ms is not None]
        assert {tenure.broker for tenure in ends} == {daemon.pulsar.brokers[0]}
        assert {(tenure.cause, tenure.freed_ms) for tenure in ends} == {("leader", None)}
        assert len(ends) == len(moved)


async def test_a_bundle_that_somebody_else_moved(tmp_path: Path) -> None:
    """Whichever report says so first: an operator's, or Pulsar's own while that balances."""
    for off, cause in ((True, "operator"), (False, "leader")):
        async with watching(tmp_path, settings={**OBSERVE, "readAtOnceMax": "1"}) as daemon:
            first, second, _ = daemon.pulsar.brokers
            if off:
                daemon.pulsar.switch_off()
            await daemon.work.read()
            assert told(daemon) == []
            for owner in (second, first):
                daemon.pulsar.owners[BUNDLE] = owner
                await look(daemon)
                await look(daemon)
            assert told(daemon) == [
                *((first, "Releasing", cause), (second, "Owned", "lookup")),
                *((second, "Releasing", cause), (first, "Owned", cause)),
            ]


async def test_a_killed_broker_and_its_return(tmp_path: Path) -> None:
    """Like one of ours it records no end; what others acquire tells it. It comes back empty."""
    async with watching(tmp_path, settings=OBSERVE) as daemon:
        pulsar = daemon.pulsar
        pulsar.switch_off()
        first, second, third = pulsar.brokers
        await daemon.work.read()
        pulsar.nonsense["/load-report"] = failed
        await look(daemon)
        pulsar.nonsense.clear()
        assert told(daemon) == []  # nobody took anything
        await look(daemon)
        assert told(daemon) == []
        await pulsar.stop(third)
        await look(daemon)
        for bundle in pulsar.owned(third):
            pulsar.owners[bundle] = second
        await look(daemon)
        assert told(daemon) == [(second, "Owned", "lookup")] * 2
        pulsar.brokers = [first, second]
        await look(daemon)
        assert members(daemon) == [(third, "left", "lost", 0)]


async def test_a_broker_that_stops_in_order(tmp_path: Path) -> None:
    """It leaves the list while it answers: its bundles wait for their lookups."""
    async with watching(tmp_path, settings=OBSERVE) as daemon:
        pulsar = daemon.pulsar
        pulsar.switch_off()
        first, second, third = pulsar.brokers
        await daemon.work.read()
        pulsar.brokers = [first, second]
        for bundle in pulsar.owned(third):
            pulsar.owners[bundle] = None
        await look(daemon)
        assert told(daemon) == [(third, "Releasing", "stop")] * 2
        for bundle, owner in pulsar.owners.items():
            pulsar.owners[bundle] = owner or first
        await look(daemon)
        assert told(daemon)[2:] == [(first, "Owned", "lookup")] * 2
        pulsar.brokers = [first, second, third]
        await look(daemon)
        assert members(daemon) == [
            (third, "left", "stopped", 2),
            (third, "placed", "", 2),
            (third, "back", "", 2),
        ]


async def test_a_split_is_no_loss(tmp_path: Path) -> None:
    """Its parts come from the bundle that is gone."""
    async with watching(tmp_path, settings=OBSERVE) as daemon:
        pulsar = daemon.pulsar
        first = pulsar.brokers[0]
        await daemon.work.read()
        low, high = RANGES[0].split("_")
        middle = f"0x{(int(low, 16) + int(high, 16)) // 2:08x}"
        del pulsar.owners[BUNDLE]
        rate = pulsar.rates.pop(BUNDLE)
        for part in (f"acme/shop/{low}_{middle}", f"acme/shop/{middle}_{high}"):
            pulsar.owners[part], pulsar.rates[part] = first, rate / 2
        await look(daemon)
        assert told(daemon) == [
            (first, "Free", "split"),
            (first, "Owned", "split"),
            (first, "Owned", "split"),
        ]
        assert {step.parent for step in steps(daemon)[1:]} == {BUNDLE}
