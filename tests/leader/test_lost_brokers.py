"""What a leader learns of a broker after its session was lost."""

from __future__ import annotations

from clusters.running import Cluster, a_cluster, until

from loadmanager.cli.admin.absences import absence_text
from loadmanager.engine.history.members import MemberChange
from loadmanager.leader.documents.members import AbsentBroker

FROZEN = "did not answer within 5 s"


async def lost(cluster: Cluster, sign: str) -> AbsentBroker:
    """What the leader says of a broker that gave this sign when it was lost."""
    leader, broker = cluster.brokers
    name = broker.address.broker_id
    await until(lambda: name in leader.use.brokers.reports)
    cluster.signs[name] = sign
    broker.store.suspend()
    broker.store.expire()
    members = leader.use.leading.members
    assert members is not None
    await until(lambda: any(it.sign == sign for it in members.shown().absent))
    (absence,) = members.shown().absent
    return absence


def told(cluster: Cluster) -> list[tuple[str, str]]:
    """What the leader recorded of the other broker."""
    records = cluster.brokers[0].history.records
    changes = [it for it in records if isinstance(it, MemberChange)]
    name = cluster.brokers[1].address.broker_id
    return [(it.event, it.how) for it in changes if it.of == name and it.how]


async def test_a_frozen_broker_that_is_killed_later() -> None:
    """Both are told: that it gave no sign when it was lost, and that its process has ended since,
    which nobody else notices.
    """
    async with a_cluster(brokers=2) as cluster:
        absence = await lost(cluster, FROZEN)
        first = [("left", "lost"), ("sign", FROZEN)]
        assert told(cluster) == first
        cluster.signs[absence.broker] = "cannot be reached: connection refused"
        await until(lambda: absence.sign != FROZEN)
        assert told(cluster) == [*first, ("later", "cannot be reached")]
        text = absence_text(absence, absence.left_at + 60_000)
        assert "up to 60 s after its last sign; asked then, it did not answer within 5 s" in text
        assert "(frozen, or cut off); later it cannot be reached (its process has ended," in text


async def test_a_broker_whose_process_had_ended_at_once() -> None:
    """It is not asked again: nothing else can become of it."""
    async with a_cluster(brokers=2) as cluster:
        absence = await lost(cluster, "cannot be reached")
        cluster.signs[absence.broker] = FROZEN
        leader = cluster.brokers[0]
        before_s = leader.clock.monotonic_s()
        await until(lambda: leader.clock.monotonic_s() > before_s + 30, within_s=60)
        assert absence.sign == "cannot be reached"
        assert told(cluster) == [("left", "lost"), ("sign", "cannot be reached")]
