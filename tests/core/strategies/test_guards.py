"""The guards that hold for every shedder, whatever it answers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from loadmanager.core.load.reports import LocalBrokerData, NamespaceBundleStats, default_bundle_data
from loadmanager.core.load.snapshot import ClusterSnapshot
from loadmanager.core.strategies.decision import Unload
from loadmanager.core.strategies.guards import Guards, usable
from loadmanager.core.strategies.settings import StrategySettings

A, B, C, SYSTEM = (f"{namespace}/0x00000000_0xffffffff" for namespace in ("t/a", "t/b", "t/c", "pulsar/system"))
NOW_MS = 10_000_000
SNAPSHOT = ClusterSnapshot(
    now_ms=NOW_MS,
    reports={
        "b1": LocalBrokerData(bundles=[A, B, SYSTEM], last_stats={A: NamespaceBundleStats(), B: NamespaceBundleStats()}),
        "b2": LocalBrokerData(bundles=[C], last_update=NOW_MS),
        "b3": LocalBrokerData(num_topics=60_000),
        "b4": LocalBrokerData(load_manager_class_name="x.ExtensibleLoadManagerImpl", last_update=1),
    },
)


def move(bundle: str = A, source: str = "b1", destination: str | None = "b2", swap: str | None = None) -> Unload:
    """What a shedder may answer."""
    return Unload(bundle, source, destination, "x", swap=swap)


@pytest.mark.parametrize(
    ("unload", "changed", "reason"),
    [
        (move("t/x/0x00000000_0xffffffff"), {}, "NotOwned"),
        (move(SYSTEM), {}, "SystemNamespace"),
        (move(destination="b1"), {}, "SameBroker"),
        (move(destination="b9"), {}, "DeadBroker"),
        (move(source="b9"), {}, "DeadBroker"),
        (move(destination="b3"), {}, "MaxTopics"),
        (move(destination="b4"), {}, "LoadManagerClass"),
        (move(), {"recently_unloaded_ms": {A: NOW_MS}}, "GracePeriod"),
        (move(), {"pending": {"b2": {A: default_bundle_data()}}}, "UnderWay"),
        (move(), {"owners": {A: "b2"}}, "NotOwned"),
        (move(), {"reports": {"b1": SNAPSHOT.reports["b1"]}, "unusable": {"b2": "StaleReport: old"}}, "StaleReport"),
    ],
)
def test_refused(unload: Unload, changed: dict[str, object], reason: str) -> None:
    """A move that must not be has its reason, and what is right beside it goes on."""
    allowed, refused = Guards(replace(SNAPSHOT, **changed), StrategySettings()).admit([unload, move(B, destination=None)])  # type: ignore[arg-type]
    assert [item.bundle for item in allowed] == [B]
    assert [item.what for item in refused] == [unload.bundle]
    assert reason in refused[0].reason


def test_each_bundle_once() -> None:
    """The same bundle is not moved twice in a cycle."""
    allowed, refused = Guards(SNAPSHOT, StrategySettings()).admit([move(), move()])
    assert (len(allowed), refused[0].reason.partition(":")[0]) == (1, "AlreadyPlanned")


@pytest.mark.parametrize(
    ("settings", "reason"), [({"moves_per_cycle_max": 2}, "CycleLimit"), ({"excluded_namespaces": ("t/c",)}, "Excluded")]
)
def test_a_swap_is_made_whole_or_not_at_all(settings: dict[str, object], reason: str) -> None:
    """What a swap brings back is not moved without what it sends out, nor the other way round."""
    swap = [move(C, "b2", "b1", swap=A), move(A, "b1", "b2", swap=A)]
    assert len(Guards(SNAPSHOT, StrategySettings()).admit([move(B), *swap])[0]) == 3
    allowed, refused = Guards(SNAPSHOT, StrategySettings(**settings)).admit([move(B), *swap])  # type: ignore[arg-type]
    assert [item.bundle for item in allowed] == [B]
    assert [item.what for item in refused] == [C, A]
    assert reason in refused[0].reason


def test_stale_reports() -> None:
    """A broker whose report is older than the TTL does not count; one whose report does not say its age does."""
    found = usable(SNAPSHOT, StrategySettings(report_ttl_s=1800))
    assert (sorted(found.reports), list(found.unusable)) == (["b1", "b2", "b3"], ["b4"])
