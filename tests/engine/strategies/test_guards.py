"""The guards hold for every shedder and every answer."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadmanager.engine.load.reports import (
    BrokerLoadData,
    LocalBrokerData,
    NamespaceBundleStats,
    TopBundle,
    TopBundlesLoadData,
    default_bundle_data,
)
from loadmanager.engine.load.snapshot import ClusterSnapshot
from loadmanager.engine.load.wishes import Cordon, Wishes
from loadmanager.engine.policies.isolation import decode_policies
from loadmanager.engine.strategies import filters
from loadmanager.engine.strategies.guards import Guards, usable
from loadmanager.engine.strategies.plan import Unload
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.kit.reason import Reason

A, B, C, HEARTBEAT = (
    f"{namespace}/0x00000000_0xffffffff" for namespace in ("t/a", "t/b", "t/c", "pulsar/b1:8080")
)
NOW_MS = 10_000_000
SNAPSHOT = ClusterSnapshot(
    now_ms=NOW_MS,
    reports={
        "b1": LocalBrokerData(
            bundles=[A, B, HEARTBEAT],
            last_stats={A: NamespaceBundleStats(), B: NamespaceBundleStats()},
        ),
        "b2": LocalBrokerData(bundles=[C], last_update=NOW_MS),
        "b3": LocalBrokerData(num_topics=60_000),
        "b4": LocalBrokerData(load_manager_class_name="x.ExtensibleLoadManagerImpl", last_update=1),
    },
)


def move(
    bundle: str = A, source: str = "b1", destination: str | None = "b2", swap: str | None = None
) -> Unload:
    """One move of a shedder's answer."""
    return Unload(bundle, source, destination, "x", swap=swap)


@pytest.mark.parametrize(
    ("unload", "changed", "reason"),
    [
        (move("t/x/0x00000000_0xffffffff"), {}, "NotOwned"),
        (move(HEARTBEAT), {}, "MonitoringNamespace"),
        (move(destination="b1"), {}, "SameBroker"),
        (move(destination="b9"), {}, "DeadBroker"),
        (move(source="b9"), {}, "DeadBroker"),
        (move(), {"recently_unloaded_ms": {A: NOW_MS}}, "GracePeriod"),
        (move(), {"pending": {"b2": {A: default_bundle_data()}}}, "UnderWay"),
        (move(), {"owners": {A: "b2"}}, "NotOwned"),
        (
            move(),
            {
                "reports": {"b1": SNAPSHOT.reports["b1"]},
                "unusable": {"b2": Reason("StaleReport", "old")},
            },
            "StaleReport",
        ),
    ],
)
def test_refused(unload: Unload, changed: dict[str, object], reason: str) -> None:
    """A refused move has its reason; the move beside it is allowed."""
    allowed, refused = Guards(replace(SNAPSHOT, **changed), StrategySettings()).admit(
        [unload, move(B, destination=None)]
    )  # type: ignore[arg-type]
    assert [unload.bundle for unload in allowed] == [B]
    assert [skip.what for skip in refused] == [unload.bundle]
    assert refused[0].code == reason


@pytest.mark.parametrize(
    ("destination", "changed", "reason"),
    [
        ("b3", {}, "MaxTopics"),
        ("b4", {}, "LoadManagerClass"),
        ("b5", {}, "PersistentTopicsDisabled"),
        (
            "b6",
            {
                "isolation_policies": decode_policies(
                    b'{"p": {"namespaces": ["gold/.*"], "primary": ["b6"]}}'
                )
            },
            "Isolation",
        ),
        ("b2", {"anti_affinity_groups": {"t/a": "g", "t/c": "g"}}, "AntiAffinity"),
    ],
)
def test_a_destination_that_placement_would_refuse_is_dropped(
    destination: str, changed: dict[str, object], reason: str
) -> None:
    """The bundle moves to where placement says; a swap with such a move is refused."""
    others = {"b5": LocalBrokerData(persistent_topics_enabled=False), "b6": LocalBrokerData()}
    snapshot = replace(SNAPSHOT, reports={**SNAPSHOT.reports, **others}, **changed)  # type: ignore[arg-type]
    (allowed,), refused = Guards(snapshot, StrategySettings()).admit(
        [move(destination=destination)]
    )
    assert (allowed.destination, refused) == (None, ())
    assert reason in str(allowed.why["notTo"])
    (), refused = Guards(snapshot, StrategySettings()).admit(
        [move(C, "b2", destination, swap=A), move(destination=destination, swap=A)]
    )
    assert len(refused) == 2


def test_extensible_destinations_are_filtered_too() -> None:
    """Also those of third parties' shedders: the filters and the rule for bundles
    under policies.
    """
    top = TopBundlesLoadData(
        top_bundles_load_data=[TopBundle(bundle_name=A), TopBundle(bundle_name=B)]
    )
    load = {"b1": BrokerLoadData(), "b2": BrokerLoadData(topics=60_000), "b3": BrokerLoadData()}
    snapshot = ClusterSnapshot(
        now_ms=0,
        extensible=True,
        reports={},
        load_data=load,
        top_bundles={"b1": top},
        anti_affinity_groups={"t/b": "g"},
    )
    allowed, refused = Guards(snapshot, StrategySettings()).admit(
        [move(A), move(B, destination="b3")]
    )
    assert (allowed, [skip.code for skip in refused]) == ((), ["MaxTopics", "PolicyBundle"])
    assert refused[0].reason.startswith("MaxTopics: b2: ")
    assert len(Guards(snapshot, StrategySettings()).admit([move(A, destination="b3")])[0]) == 1


def test_each_bundle_once() -> None:
    """The same bundle is not moved twice in a cycle."""
    allowed, refused = Guards(SNAPSHOT, StrategySettings()).admit([move(), move()])
    assert (len(allowed), refused[0].code) == (1, "AlreadyPlanned")


@pytest.mark.parametrize(
    ("settings", "reason"),
    [({"moves_per_cycle_max": 2}, "CycleLimit"), ({"excluded_namespaces": ("t/c",)}, "Excluded")],
)
def test_a_swap_is_made_whole_or_not_at_all(settings: dict[str, object], reason: str) -> None:
    """The bundles of a swap move in both directions or not at all."""
    swap = [move(C, "b2", "b1", swap=A), move(A, "b1", "b2", swap=A)]
    assert len(Guards(SNAPSHOT, StrategySettings()).admit([move(B), *swap])[0]) == 3
    allowed, refused = Guards(SNAPSHOT, StrategySettings(**settings)).admit([move(B), *swap])  # type: ignore[arg-type]
    assert [unload.bundle for unload in allowed] == [B]
    assert [skip.what for skip in refused] == [C, A]
    assert reason in refused[0].reason


def test_stale_reports() -> None:
    """A broker whose report is older than the TTL does not count; one whose report does not say its
    age does.
    """
    found = usable(SNAPSHOT, StrategySettings(report_ttl_s=1800))
    assert (sorted(found.reports), list(found.unusable)) == (["b1", "b2", "b3"], ["b4"])


@given(
    source=st.sampled_from(["b1", "b2", "b9"]),
    bundle=st.sampled_from([A, B, C, HEARTBEAT]),
    destination=st.sampled_from([None, "b2"]),
    changed=st.fixed_dictionaries(
        {},
        optional={
            "recently_unloaded_ms": st.just({A: NOW_MS}),
            "pending": st.just({"b2": {B: default_bundle_data()}}),
            "owners": st.sampled_from([{A: "b2"}, {B: "b1"}]),
            "anti_affinity_groups": st.just({"t/a": "g", "t/c": "g"}),
            "isolation_policies": st.just(
                decode_policies(b'{"p": {"namespaces": ["t/b"], "primary": ["b1"]}}')
            ),
        },
    ),
    excluded=st.sampled_from([(), ("t/a",)]),
    cap=st.sampled_from([-1, 0, 1]),
)
def test_the_fast_path_refuses_nothing_less(
    source: str,
    bundle: str,
    destination: str | None,
    changed: dict[str, object],
    excluded: tuple[str, ...],
    cap: int,
) -> None:
    """A move that skips the guards alone is one that they would allow: as part of a swap, which
    never skips them, it has the same fate.
    """
    settings = StrategySettings(excluded_namespaces=excluded, moves_per_cycle_max=cap)
    snapshot = replace(SNAPSHOT, **changed)  # type: ignore[arg-type]
    alone = move(bundle, source, destination)
    in_swap = move(bundle, source, destination, swap="itself")
    allowed, refused = Guards(snapshot, settings).admit([alone])
    allowed_in_swap, refused_in_swap = Guards(snapshot, settings).admit([in_swap])
    assert [unload.bundle for unload in allowed] == [unload.bundle for unload in allowed_in_swap]
    assert refused == refused_in_swap


@given(
    brokers=st.lists(
        st.builds(
            LocalBrokerData,
            broker_version_string=st.sampled_from(["4.0.4", "4.0.5", "latest"]),
            load_manager_class_name=st.sampled_from([None, "x.ModularLoadManagerImpl", "x.Other"]),
            num_topics=st.sampled_from([1, 60_000]),
            persistent_topics_enabled=st.booleans(),
        ),
        min_size=2,
        max_size=4,
    ),
    later=st.booleans(),
    cordoned=st.sets(st.sampled_from(["b0", "b1", "b2"])),
    namespace=st.sampled_from(["t/a", "gold/a", "pulsar/system"]),
    isolated=st.booleans(),
)
def test_a_destination_is_kept_where_placement_may_choose_it(
    brokers: list[LocalBrokerData],
    later: bool,
    cordoned: set[str],
    namespace: str,
    isolated: bool,
) -> None:
    """Whatever the filters look at, and though the source does not count. No move goes to a
    cordoned broker, where placement would take one if every broker was cordoned.
    """
    bundle = f"{namespace}/0x00000000_0xffffffff"
    reports = {f"b{number}": report for number, report in enumerate(brokers)}
    reports["b0"].bundles = [bundle]
    policies = b'{"p": {"namespaces": ["gold/.*"], "primary": ["b[12]"]}}'
    snapshot = ClusterSnapshot(
        now_ms=NOW_MS,
        reports=reports,
        isolation_policies=decode_policies(policies if isolated else b"{}"),
        wishes=Wishes(cordons={broker: Cordon(1) for broker in cordoned}),
    )
    settings = StrategySettings(prefer_later_versions=later, distribute_evenly=False)
    allowed, _ = filters.open_to(snapshot, namespace, leaving="b0")
    left, _ = filters.modular(snapshot, allowed, namespace, settings, leaving="b0", evenness=False)
    for destination in reports.keys() - {"b0"}:
        allowed, _ = Guards(snapshot, settings).admit([move(bundle, "b0", destination)])
        kept = [unload.destination == destination for unload in allowed]
        assert kept in ([], [destination in left and destination not in cordoned])
