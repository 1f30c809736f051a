"""What a daemon finds wrong beside a Pulsar cluster."""

from __future__ import annotations

from pathlib import Path

from leader.documents import a_move_shown
from msgspec import UNSET
from steer.watched import Watching, watching

from loadmanager.cli.admin.brokers import modelled_text
from loadmanager.cli.admin.status import modelled_count
from loadmanager.cli.admin.what_if import without_sensors
from loadmanager.engine.load.wishes import Pin
from loadmanager.leader.findings import samples
from loadmanager.steer.clusters import ClusterStanding
from loadmanager.steer.settings_file import parse

GRACE_MS = 30 * 60_000


async def looks(daemon: Watching, minutes: int) -> None:
    """One a minute, each after a reading."""
    for _ in range(minutes):
        daemon.clock.pass_s(60)
        await daemon.work.read()
        await daemon.work.findings.step()


def kinds(daemon: Watching) -> list[tuple[str, str]]:
    """What was found at the last look."""
    return [(it.kind, it.about) for it in daemon.work.findings.shown().findings]


async def test_a_daemon_finds_its_own_moves_back_and_forth(tmp_path: Path) -> None:
    """As a leader does; and it counts what it found."""
    async with watching(tmp_path) as daemon:
        await looks(daemon, 1)
        assert daemon.work.findings.shown().looked_at == daemon.clock.at_ms
        for way in (("b1", "b2"), ("b2", "b1"), ("b1", "b2")):
            daemon.clock.pass_s(1_800)
            move = a_move_shown(source=way[0], destination=way[1], outcome=None)
            move.ended_at = daemon.clock.at_ms
            for listener in daemon.work.moves.on_end:
                listener(move)
        await looks(daemon, 1)
        assert [kind for kind, _ in kinds(daemon)] == ["flapping"]
        counted = {sample.labels: sample.value for sample in samples(daemon.work.findings)}
        assert sum(counted.values()) == 1


async def test_a_broker_without_a_sensor_uses_what_the_model_says(tmp_path: Path) -> None:
    """In its row, in the list of clusters, and as a finding within minutes."""
    settings = {"loadBalancerLoadSheddingStrategy": "BalancedShedder"}
    placement = {"loadBalancerLoadPlacementStrategy": "BalancedPlacement"}
    async with watching(tmp_path, (6, 5, 5), settings={**settings, **placement}) as daemon:
        daemon.pulsar.switch_off()
        blind = daemon.pulsar.brokers[2]
        daemon.pulsar.no_cpu.add(blind)
        for _ in range(4):
            daemon.clock.pass_s(30)
            await daemon.work.read()
            await daemon.work.shed()
        await daemon.work.findings.step()
        rows = daemon.work.operations.overview.cluster(10).brokers
        (row,) = [it for it in rows if it.broker == blind]
        assert row.sensor is not None
        assert row.sensor.code == "NoSensor"
        assert row.usage == row.modelled
        assert (row.usage or 0) > 0.2
        assert modelled_text(row).endswith(": NoSensor")
        assert modelled_count(rows) == " (1 by the model: `brokers list` says why)"
        last = next(daemon.work.load_manager.records.decisions.newest_first()).shown()
        assert last.kind == "shed"
        assert last.inputs is not UNSET
        assert last.inputs.loads[blind].usage > 0.2
        (line,) = without_sensors(daemon.work.operations.overview.cluster(10))
        assert line.startswith(f"what was recorded of {blind} is what sensors showed")
        standing = ClusterStanding(settings=parse("test", {"pulsar": daemon.pulsar.url()}))
        standing.leads(daemon.work, None)
        cluster = standing.summary()
        assert cluster.modelled == 1
        assert (cluster.lowest_usage or 0) > 0.2
        assert kinds(daemon) == [("sensor", blind)]


async def test_a_daemon_finds_a_leader_that_changes(tmp_path: Path) -> None:
    """Unless the leader of before is gone, which may have been a restart."""
    async with watching(tmp_path) as daemon:
        await looks(daemon, 1)
        picture, brokers = daemon.work.picture, sorted(daemon.work.picture.registered)
        assert picture.leader == brokers[0]
        for leader in (brokers[1], "stopped:1", brokers[0]):
            picture.leader = leader
            await daemon.work.findings.step()
        assert kinds(daemon) == []
        picture.leader = brokers[2]
        await daemon.work.findings.step()
        assert kinds(daemon) == [("leader", "the cluster")]


async def test_a_report_that_is_read_again_is_one_report(tmp_path: Path) -> None:
    """Pulsar writes it to ZooKeeper each 15 minutes: a CPU of one value in it is not stuck."""
    async with watching(tmp_path) as daemon:
        await looks(daemon, 1)
        at_ms = daemon.clock.at_ms
        await looks(daemon, 90)
        assert kinds(daemon) == []
        loads = daemon.work.findings._loads(daemon.clock.at_ms)
        assert {load.last_update for load in loads.values()} == {at_ms}


async def test_a_broker_that_died_is_lost_until_it_is_back(tmp_path: Path) -> None:
    """It was listed and did not answer before it was gone from the list; one that stops in order is
    gone from it first.
    """
    async with watching(tmp_path, (8, 4, 4)) as daemon:
        await looks(daemon, 1)
        brokers, pulsar = sorted(daemon.work.picture.registered), daemon.pulsar
        dead, stopped = brokers[2], brokers[1]
        await pulsar.stop(dead)
        await looks(daemon, 1)
        assert kinds(daemon) == []
        listed = list(pulsar.brokers)
        pulsar.brokers.remove(dead)
        await daemon.work.read()
        (lost,) = daemon.work.findings.shown().findings
        assert (lost.kind, lost.about, lost.since) == ("lost", dead, daemon.clock.at_ms)
        assert "It owned 4 bundles: no owner of 4 of them is known yet." in lost.text
        pulsar.brokers.remove(stopped)
        await looks(daemon, 1)
        assert kinds(daemon) == [("lost", dead)]
        pulsar.brokers[:] = listed
        await looks(daemon, 1)
        assert kinds(daemon) == []
        pulsar.brokers.remove(dead)
        await looks(daemon, 1)
        daemon.clock.pass_s(86_400)
        await looks(daemon, 1)
        assert kinds(daemon) == []


async def test_load_that_pins_keep_uneven_is_found(tmp_path: Path) -> None:
    """As by a leader of our own brokers: the last cycle moved nothing, because of pins."""
    async with watching(tmp_path, (12, 2, 2)) as daemon:
        await looks(daemon, 1)
        hot = min(daemon.work.picture.registered)
        for bundle in daemon.pulsar.owned(hot):
            pin = Pin(hot, daemon.clock.at_ms + 10**9)
            await daemon.work.moves.cluster.wishes.pin(bundle, pin, ())
        for _ in range(12):
            await daemon.work.shed()
            await looks(daemon, 1)
        assert kinds(daemon) == [("uneven", hot)]
