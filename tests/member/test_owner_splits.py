"""The extensible manager's splits: each broker decides about its own bundles."""

from __future__ import annotations

from clusters.members import NS, a_fleet

from loadmanager.engine.load.reports import NamespaceBundleStats
from loadmanager.engine.load.wishes import Pause
from loadmanager.engine.strategies.plan import Plan
from loadmanager.engine.strategies.splitting.settings import OF_OWNERS, SplitSettings
from loadmanager.leader.decisions import Decisions
from loadmanager.member.owner_splits import OwnerSplits
from loadmanager.testing.cluster import LoopTime


async def test_a_split_has_its_figures_and_its_outcome() -> None:
    """Its decision has both, and so have the two plans that are recorded. A pause holds it."""
    async with a_fleet(1, 4) as fleet:
        broker = fleet.brokers[0]
        bundle = f"{NS}/0x00000000_0x40000000"
        await broker.acquire(bundle)
        broker.tenant.stats[bundle] = NamespaceBundleStats(topics=2, msg_rate_in=50.0)
        observed: list[Plan] = []
        splits = OwnerSplits(
            base=broker.with_settings(SplitSettings(msg_rate_max=40, hits_min=0)),
            cluster=broker.cluster,
            ownership=broker.ownership,
            hosting=broker.tenant,
            decisions=Decisions(LoopTime()),
            observe=lambda _epoch, _cycle, plan, _ids: observed.append(plan),
        )
        wishes = broker.cluster.wishes
        await wishes.set_pause(Pause(broker.base.clock.now_ms() + 60_000), ())
        await splits.tick()
        assert (splits.decisions.last(10), observed) == ([], [])
        await wishes.set_pause(None, ())
        await splits.tick()
        halves = ["0x00000000_0x20000000", "0x20000000_0x40000000"]
        (decision,) = splits.decisions.last(10)
        assert {
            name: getattr(decision, name) for name in ("kind", "reason", "why", "broker", "state")
        } == {
            "kind": "split",
            "reason": "MsgRate",
            "why": {"msgRate": 50.0, "limit": 40},
            "broker": broker.address.broker_id,
            "state": "done",
        }
        assert decision.outcome.children == [f"{NS}/{half}" for half in halves]
        assert [(plan.strategy, plan.splits[0].end is not None) for plan in observed] == [
            (OF_OWNERS, False),
            (OF_OWNERS, True),
        ]
