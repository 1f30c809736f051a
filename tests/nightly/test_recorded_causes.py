"""The history contains the cause of each step of a bundle, whichever broker took the step."""

from __future__ import annotations

from clusters.running import NS, Running, a_cluster

from loadmanager.engine.history.records import OwnershipStep

RANGE, LOWER, UPPER = (
    "0x00000000_0x40000000",
    "0x00000000_0x20000000",
    "0x20000000_0x40000000",
)
BUNDLE = f"{NS}/{RANGE}"


def causes(broker: Running, after: str) -> list[str | None]:
    """Causes of the steps that lead to a state."""
    steps = [record for record in broker.history.records if isinstance(record, OwnershipStep)]
    return [step.cause for step in steps if step.bundle == BUNDLE and step.after == after]


async def test_an_unload_is_recorded_as_the_operators_or_the_leaders() -> None:
    """An operator names a destination: the leader forwards the request to the owner."""
    async with a_cluster(brokers=2, bundles=4) as cluster:
        leader, owner = cluster.brokers
        await owner.use.orders.acquire(BUNDLE)
        destination = leader.address.broker_id
        assert await leader.use.unloading.bundle(NS, RANGE, destination=destination) is None
        assert causes(owner, "Releasing") == ["operator"]
        assert causes(leader, "Owned") == ["operator"]
        term = leader.use.leading.leader
        assert term is not None
        assert await leader.use.orders.release(BUNDLE, owner.address, epoch=term.epoch)
        assert causes(leader, "Releasing") == ["leader"]
        assert causes(owner, "Owned") == ["operator", "leader"]
        owner.use.ownership.lose_all("the session is lost")
        assert causes(owner, "Free")[-1] == "loss"


async def test_a_split_is_recorded_as_the_operators_or_the_leaders() -> None:
    """The leader orders one; an operator's request comes by the admin API."""
    async with a_cluster(bundles=4) as cluster:
        (broker,) = cluster.brokers
        await broker.use.orders.acquire(BUNDLE)
        term = broker.use.leading.leader
        assert term is not None
        await broker.use.orders.split(NS, RANGE, unload=False, epoch=term.epoch)
        await broker.use.splitting.split(NS, LOWER, unload=False)
        assert [
            (record.bundle, record.reason)
            for record in broker.history.records
            if isinstance(record, OwnershipStep) and record.after == "Splitting"
        ] == [(BUNDLE, "leader"), (f"{NS}/{LOWER}", "an operator's order")]


async def test_children_are_recorded_with_their_parent() -> None:
    """In the step that begins the life of each child."""
    async with a_cluster(bundles=4) as cluster:
        (broker,) = cluster.brokers
        await broker.use.orders.acquire(BUNDLE)
        await broker.use.ownership.split(BUNDLE, [0x20000000], "admin")
        parents = {
            record.bundle: record.parent
            for record in broker.history.records
            if isinstance(record, OwnershipStep) and record.before == "Free"
        }
        assert parents == {BUNDLE: None, f"{NS}/{LOWER}": BUNDLE, f"{NS}/{UPPER}": BUNDLE}
