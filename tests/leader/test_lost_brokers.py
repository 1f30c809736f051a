"""What a leader learns of a broker after its session was lost."""

from __future__ import annotations

import asyncio

from clusters.members import NS
from clusters.running import Cluster, Running, a_cluster, until

from loadmanager.cli.admin.absences import absence_text
from loadmanager.engine.history.findings import FindingStep
from loadmanager.engine.history.members import MemberChange
from loadmanager.leader.documents.members import AbsentBroker
from loadmanager.leader.members import TermMembers

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


async def test_bundles_with_another_owner_while_the_broker_is_still_asked() -> None:
    """They are not said to have none: one that is frozen lets the leader wait for seconds. What is
    found says the same, at once.
    """
    async with a_cluster(brokers=2) as cluster:
        leader, broker = cluster.brokers
        name, bundle = broker.address.broker_id, f"{NS}/0x00000000_0x10000000"
        await broker.use.orders.acquire(bundle, epoch=None)
        await until(lambda: leader.use.brokers.reports[name].bundles == [bundle])
        cluster.signs[name], cluster.say = FROZEN, asyncio.Event()
        broker.store.suspend()
        broker.store.expire()
        members, findings = leader.use.leading.members, leader.use.leading.findings
        assert isinstance(members, TermMembers)
        assert findings is not None
        await until(lambda: any(it.unserved == 1 for it in members.lost()))
        await leader.use.orders.acquire(bundle, epoch=None)
        await until(lambda: all(it.unserved == 0 for it in members.lost()))
        (absence,) = members.shown().absent
        assert (absence.sign, absence.placed, absence.waiting) == ("", 1, [])
        (finding,) = (it for it in findings.shown().findings if it.kind == "lost")
        assert finding.text.endswith("It owned 1 bundle: all are served.")
        cluster.say.set()
        await until(lambda: members.shown().absent[0].sign == FROZEN)

        def recorded() -> list[str]:
            records = leader.history.records
            return [it.text for it in records if isinstance(it, FindingStep) and it.what == "lost"]

        await until(lambda: bool(recorded()))
        assert "all are served" in recorded()[-1]


async def test_the_last_sign_may_have_been_before_an_outage_of_the_store() -> None:
    """No session ends while the store gives no answer: whoever died then is lost when it is back,
    and its clients may have waited since before the outage. A later loss has nothing to do with it.
    """
    async with a_cluster(brokers=3) as cluster:
        leader, during, later = cluster.brokers
        first, second = during.address.broker_id, later.address.broker_id
        await until(lambda: {first, second} <= leader.use.brokers.reports.keys())
        timeout_s = leader.store.session_timeout_s

        async def passed(seconds: float) -> None:
            begun_s = leader.clock.monotonic_s()
            await until(lambda: leader.clock.monotonic_s() > begun_s + seconds, within_s=300)

        async def unheard_ms(name: str, *, by_store: bool) -> int:
            def shown() -> AbsentBroker | None:
                members = leader.use.leading.members  # of the present term
                absent = [] if members is None else members.shown().absent
                return next((it for it in absent if it.broker == name), None)

            await until(lambda: shown() is not None, within_s=90)
            absence = shown()
            assert absence is not None
            assert absence.store_silent is by_store
            return absence.unheard_ms or 0

        for broker in cluster.brokers:
            broker.store.suspend()
        await passed(timeout_s / 2)
        for broker in (leader, later):
            broker.store.resume()
        during.store.expire()
        assert await unheard_ms(first, by_store=True) >= 1500 * timeout_s
        await passed(3 * timeout_s)
        later.store.suspend()
        later.store.expire()
        assert await unheard_ms(second, by_store=False) == 1000 * timeout_s


async def test_a_leader_that_went_in_an_outage_of_the_store_says_so() -> None:
    """It is no leader that changes often, of which nobody knows why; one that is lost later is."""
    async with a_cluster(brokers=2) as cluster:
        first, second = cluster.brokers
        await until(lambda: first.use.leading.members is not None)
        timeout_s = first.store.session_timeout_s

        async def passed(seconds: float) -> None:
            begun_s = second.clock.monotonic_s()
            await until(lambda: second.clock.monotonic_s() > begun_s + seconds, within_s=300)

        def changes(broker: Running) -> list[tuple[str, bool]]:
            members = broker.use.leading.members
            assert isinstance(members, TermMembers)
            return [(it.before, it.by_store) for it in members.leader_changes()]

        for broker in cluster.brokers:
            broker.store.suspend()
        await passed(timeout_s / 2)
        first.store.expire()
        second.store.resume()
        await until(lambda: second.use.leading.members is not None, within_s=90)
        by_store = (first.address.broker_id, True)
        assert changes(second) == [by_store]
        first.store.resume()
        await passed(4 * timeout_s)
        second.store.suspend()
        second.store.expire()
        await until(lambda: first.use.leading.members is not None, within_s=90)
        assert changes(first) == [by_store, (second.address.broker_id, False)]
