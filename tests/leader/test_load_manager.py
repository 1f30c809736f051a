"""The leader's load manager over real parts: placing by policies, and splitting what is too big."""

from __future__ import annotations

import pytest
from clusters.led import led_fleet
from clusters.members import NS

from loadmanager.engine.load.cluster_view import ClusterView
from loadmanager.engine.load.reports import NamespaceBundleStats
from loadmanager.engine.moves.move import PartialOutcome
from loadmanager.engine.strategies import registry
from loadmanager.engine.strategies.plan import Skip
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.engine.strategies.splitting.settings import SplitSettings
from loadmanager.engine.strategies.strategy import PlacementRule, Shed, Shedder
from loadmanager.kit.errors import BadInputError, ConflictError, NotFoundError, OperationalError
from loadmanager.kit.metadata import paths
from loadmanager.kit.metadata.documents import Corrupt
from loadmanager.kit.metadata.election import StoreElection
from loadmanager.kit.metadata.store import Change, ChangeKind, VersionConflictError
from loadmanager.kit.names import NamespaceName
from loadmanager.kit.tasks import Steps
from loadmanager.leader.documents.decisions import DecisionShown
from loadmanager.leader.load_feed import LoadFeed
from loadmanager.testing.cluster import LoopTime

GOLD = {
    "namespaces": ["gold/.*"],
    "primary": ["b1"],
    "secondary": ["b2"],
    "auto_failover_policy": {"parameters": {"min_limit": "1"}},
}


async def test_isolation_acts_on_the_next_placement() -> None:
    """A namespace goes to its primaries while the policy exists; other namespaces do not."""
    async with led_fleet(3) as led:
        assert (
            await led.policies.set_isolation_policy("gold", {**GOLD, "unload_scope": "none"}) == []
        )
        assert {
            await led.load_manager.place(f"gold/a/0x{n:08x}_0x{n + 1:08x}") for n in range(8)
        } == {"b1:8080"}
        assert {
            await led.load_manager.place(f"iron/a/0x{n:08x}_0x{n + 1:08x}") for n in range(16)
        } == {
            "b0:8080",
            "b2:8080",
        }
        await led.policies.set_isolation_policy("gold", None)
        assert (
            len(
                {await led.load_manager.place(f"gold/b/0x{n:08x}_0x{n + 1:08x}") for n in range(32)}
            )
            == 3
        )


async def test_which_namespaces_a_policy_unloads() -> None:
    """The namespaces in the symmetric difference of the expressions; all if the primaries changed;
    none with `none`.
    """
    async with led_fleet(1) as led:
        names = led.fleet.brokers[0].namespaces
        await names.create_tenant("gold", {})
        for name in ("a", "b"):
            await names.create_namespace(NamespaceName("gold", name), {})
        a, b = NamespaceName("gold", "a"), NamespaceName("gold", "b")
        assert await led.policies.set_isolation_policy(
            "gold", {**GOLD, "namespaces": ["gold/a"]}
        ) == [a]
        assert await led.policies.set_isolation_policy(
            "gold", {**GOLD, "namespaces": ["gold/a", "gold/b"]}
        ) == [b]
        assert await led.policies.set_isolation_policy(
            "gold", {**GOLD, "namespaces": ["gold/a", "gold/b"], "primary": ["b9"]}
        ) == [a, b]
        assert (
            await led.policies.set_isolation_policy("gold", {**GOLD, "unload_scope": "none"}) == []
        )
        assert await led.policies.set_isolation_policy("gold", None) == [a, b]


@pytest.mark.parametrize(
    "policy",
    [
        {},
        {"namespaces": ["a"], "primary": []},
        {**GOLD, "primary": ["("]},
        {**GOLD, "unload_scope": "some"},
        {**GOLD, "auto_failover_policy": {"policy_type": "max"}},
        {**GOLD, "auto_failover_policy": {"parameters": {"min_limit": "many"}}},
    ],
)
async def test_policies_that_cannot_be_used_are_refused(policy: dict[str, object]) -> None:
    """And change nothing."""
    async with led_fleet(1) as led:
        with pytest.raises(BadInputError):
            await led.policies.set_isolation_policy("gold", policy)
        assert await led.policies.isolation_policies() == {}


async def test_anti_affinity_over_failure_domains() -> None:
    """Namespaces of a group are spread over the domains first; a broker cannot be in
    two of them.
    """
    async with led_fleet(4) as led:
        await led.policies.set_failure_domain("left", ["b0:8080", "b1:8080"])
        await led.policies.set_failure_domain("right", ["b2:8080", "b3:8080"])
        with pytest.raises(ConflictError):
            await led.policies.set_failure_domain("other", ["b3:8080"])
        with pytest.raises(NotFoundError):
            await led.policies.set_failure_domain("other", None)
        names = led.fleet.brokers[0].namespaces
        for index in range(4):
            await names.create_namespace(
                NamespaceName(NS.tenant, f"n{index}"), {"bundles": {"numBundles": 1}}
            )
            await led.policies.set_anti_affinity_group(NamespaceName(NS.tenant, f"n{index}"), "G")
        await led.until(lambda: len(led.policies.groups) == 4 and len(led.policies.domains) == 2)
        assert len(await led.policies.namespaces_of_group("g")) == 4
        placed = [
            await led.load_manager.place(f"{NS.tenant}/n{index}/0x00000000_0xffffffff")
            for index in range(4)
        ]
        assert len(set(placed)) == 4
        assert len({broker in ("b0:8080", "b1:8080") for broker in placed[:2]}) == 2


async def test_unreadable_policies_leave_the_known_ones_in_force() -> None:
    """A broken node does not open a namespace to everybody."""
    async with led_fleet(2) as led:
        await led.policies.set_isolation_policy("gold", {**GOLD, "unload_scope": "none"})
        await led.store.put("/admin/clusters/standalone/namespaceIsolationPolicies", b"{")
        await led.policies.on_change(Change(ChangeKind.RESYNC, paths.ADMIN))
        assert await led.load_manager.place("gold/a/0x00000000_0xffffffff") == "b1:8080"


async def test_what_is_too_big_is_split_by_its_owner_once() -> None:
    """The owner gets the order; if it does not split the bundle, it gets no other in the grace
    period.
    """
    async with led_fleet(2) as led:
        bundle = f"{NS}/0x00000000_0x40000000"
        await led.fleet.brokers[1].ownership.acquire(bundle, "test")
        await led.report(1, {bundle: NamespaceBundleStats(topics=11)})
        told: list[DecisionShown] = []
        led.load_manager.records.decisions.listener = lambda decision: told.append(decision.shown())
        await led.load_manager.split()
        boundaries = (await led.fleet.brokers[1].namespaces.bundles(NS)).boundaries
        assert 0x20000000 in boundaries
        await led.load_manager.split()
        (split,) = [
            decision
            for decision in led.load_manager.records.decisions.last(10)
            if decision.kind == "split"
        ]
        assert (split.bundle, split.broker, split.reason, split.why) == (
            bundle,
            "b1:8080",
            "Topics",
            {"topics": 11, "limit": 10},
        )
        halves = ["0x00000000_0x20000000", "0x20000000_0x40000000"]
        assert (split.state, split.outcome) == (
            "done",
            PartialOutcome(
                f"split into {', '.join(halves)}", children=[f"{NS}/{half}" for half in halves]
            ),
        )
        assert [(each.state, each.outcome) for each in told] == [
            ("running", None),
            ("done", split.outcome),
        ]
        recorded = [each.end is not None for plan in led.observed for each in plan.splits]
        assert recorded == [False, True]


async def test_a_pause_holds_splits() -> None:
    """They are made once it is over."""
    async with led_fleet(2) as led:
        bundle = f"{NS}/0x00000000_0x40000000"
        await led.fleet.brokers[1].ownership.acquire(bundle, "test")
        await led.report(1, {bundle: NamespaceBundleStats(topics=11)})
        await led.operations.pause(60)
        await led.until(lambda: led.wishes.pause() is not None)
        await led.load_manager.split()
        assert (await led.fleet.brokers[1].namespaces.bundles(NS)).boundaries[1] == 0x40000000
        await led.operations.pause(None)
        await led.until(lambda: led.wishes.pause() is None)
        await led.load_manager.split()
        assert (await led.fleet.brokers[1].namespaces.bundles(NS)).boundaries[1] == 0x20000000


async def test_a_split_that_fails_says_so() -> None:
    """Its decision has the error as the outcome."""
    async with led_fleet(2) as led:
        bundle = f"{NS}/0x00000000_0x40000000"
        await led.report(1, {bundle: NamespaceBundleStats(topics=11)})
        led.fleet.unreachable.add("b1:8080")
        await led.load_manager.split()
        (split,) = led.load_manager.records.decisions.last(10)
        assert (split.state, split.outcome.children) == ("failed", [])
        assert "b1:8080" in split.outcome.text


async def test_what_is_too_big_and_cannot_be_split_is_said_once() -> None:
    """One topic that no cut divides: the reason is recorded, once in a grace period; a cluster of
    one broker is no reason against a bundle.
    """
    async with led_fleet(2) as led:
        bundle = f"{NS}/0x00000000_0x40000000"
        await led.report(1, {bundle: NamespaceBundleStats(topics=1, producer_count=5000)})
        await led.load_manager.split()
        await led.load_manager.split()
        (skip,) = [skip for plan in led.observed for skip in plan.skipped]
        assert (skip.what, "partition the topic" in skip.reason) == (bundle, True)
    async with led_fleet(1) as alone:
        await alone.report(0, {bundle: NamespaceBundleStats(topics=11)})
        await alone.load_manager.split()
        assert alone.observed == []


async def test_a_release_that_fails_leaves_nothing_under_way() -> None:
    """A bundle whose broker cannot be reached is tried again in the next cycle, and does not count
    at the destination.
    """
    async with led_fleet(2) as led:
        bundle = f"{NS}/0x00000000_0x40000000"
        led.strategies.set(
            StrategySettings(
                shedder="UniformLoadShedder", unload_rate_min=0, distribute_evenly=False
            )
        )
        loads = {
            bundle: NamespaceBundleStats(msg_rate_in=900),
            f"{NS}/0x40000000_0x80000000": NamespaceBundleStats(msg_rate_in=800),
        }
        await led.report(1, loads)
        led.fleet.unreachable.add("b1:8080")
        for _ in range(2):
            await led.shed()
            planned = {unload.bundle for unload in led.observed[-1].unloads}
            assert planned, led.observed[-1].skipped


async def test_splits_can_be_switched_off() -> None:
    """loadBalancerAutoBundleSplitEnabled=false."""
    async with led_fleet(1) as led:
        led.splits.set(SplitSettings(topics_max=10, enabled=False))
        await led.report(0, {f"{NS}/0x00000000_0x40000000": NamespaceBundleStats(topics=11)})
        await led.load_manager.split()
        assert led.load_manager.records.decisions.last(10) == []


async def test_a_placement_strategy_that_fails_leaves_no_bundle_without_a_broker() -> None:
    """Another rule places the bundle; the failure is counted, and listed among the decisions."""

    def broken(*_: object) -> tuple[list[str], object]:
        raise RuntimeError("a bug in a plug-in")

    registry.PLACEMENTS["Broken"] = PlacementRule(name="Broken", candidates=broken)
    try:
        async with led_fleet(2) as led:
            led.strategies.set(StrategySettings(placement="Broken"))
            assert await led.load_manager.place("gold/a/0x00000000_0xffffffff") in (
                "b0:8080",
                "b1:8080",
            )
            assert led.steps.failures == {"place": 1}
            led.load_manager.failed("place", RuntimeError("a bug in a plug-in"))
            newest = led.load_manager.records.decisions.last(1)[0]
            assert (newest.kind, newest.step, newest.error) == (
                "failure",
                "place",
                "RuntimeError: a bug in a plug-in",
            )
    finally:
        del registry.PLACEMENTS["Broken"]


async def test_averages_of_a_deposed_leader_are_not_stored() -> None:
    """They are written in transactions with the term's checks; the next leader can read them."""
    async with led_fleet(1) as led:
        bundle = f"{NS}/0x00000000_0x40000000"
        await led.report(0, {bundle: NamespaceBundleStats(msg_rate_in=900)})
        election = StoreElection(led.store, LoopTime(), broker_id="b0:8080", web_url="")
        term = await election.campaign()
        for _ in range(2):  # created, then overwritten
            await led.feed.save(led.store, -1, term.checks)
        view = ClusterView()
        brokers, unheard = led.fleet.brokers[0].brokers, led.load_manager.observe
        feed = LoadFeed(
            view,
            observe=unheard,
            brokers=brokers,
            clock=LoopTime(),
            corrupt=Corrupt(),
            steps=Steps(),
        )
        await feed.restore(led.store)
        assert view.bundle_data[bundle] == led.view.bundle_data[bundle]
        await election.resign()
        with pytest.raises(VersionConflictError):
            await led.feed.save(led.store, -1, term.checks)


async def test_a_shedder_sees_every_report() -> None:
    """The shedder gets the reports that exist when the term begins, and every later one, long
    before the first cycle.
    """
    seen = Shedder(
        name="SeeingShedder",
        shed=lambda _snapshot, _settings, memory: Shed(
            (), (Skip("cluster", " ".join(memory)),), memory
        ),
        memory=tuple,
        observe=lambda broker, report, _settings, memory: (
            *memory,
            f"{broker}={len(report.bundles)}",
        ),  # type: ignore[union-attr]
    )
    registry.SHEDDERS[seen.name] = seen  # as an entry point does
    try:
        async with led_fleet(2, strategies=StrategySettings(shedder=seen.name)) as led:
            await led.report(1, {f"{NS}/0x00000000_0x40000000": NamespaceBundleStats()})
            await led.report(1, {f"{NS}/0x40000000_0x80000000": NamespaceBundleStats(topics=2)})
            await led.shed()
            assert [skip.reason for skip in led.observed[-1].skipped] == [
                "b0:8080=0 b1:8080=0 b1:8080=1 b1:8080=1"
            ]
    finally:
        del registry.SHEDDERS[seen.name]


async def test_the_extensible_manager_before_any_load_data() -> None:
    """Its leader decides by that manager's rules: TransferShedder sheds, whatever is configured
    that cannot read its reports, and there is no broker for a bundle yet.
    """
    settings = StrategySettings(shedder="ThresholdShedder", placement="RoundRobinBrokerSelector")
    async with led_fleet(2, strategies=settings, extensible=True) as led:
        snapshot, plan = led.load_manager.try_out(settings)
        assert (snapshot.available, snapshot.extensible) == (frozenset(), True)
        assert plan.strategy == "TransferShedder"
        await led.shed()
        assert led.observed[-1] == plan
        with pytest.raises(OperationalError, match="no broker qualifies"):
            await led.load_manager.place("t/n/0x00000000_0xffffffff")
        assert led.steps.failures == {}


async def test_a_slow_strategy_counts_as_a_failure() -> None:
    """Its plan is dropped, because the lease may have run out meanwhile; placements stand."""
    async with led_fleet(2) as led:
        led.load_manager.slow_s = -1.0  # every strategy takes longer
        with pytest.raises(OperationalError, match="ThresholdShedder took"):
            await led.shed()
        assert led.load_manager.records.decisions.last(10) == []
        assert await led.load_manager.place("t/n/0x00000000_0xffffffff") in ("b0:8080", "b1:8080")
        assert led.steps.in_a_row["place"] == 1
        led.load_manager.slow_s = 1e9
        await led.load_manager.place("t/n/0x00000000_0x80000000")
        assert led.steps.in_a_row["place"] == 0
