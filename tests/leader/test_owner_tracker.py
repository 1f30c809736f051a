"""The owner of each bundle by the brokers' reports, which come one after the other."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from loadmanager.engine.load.cluster_view import ClusterView
from loadmanager.engine.load.reports import LocalBrokerData, NamespaceBundleStats
from loadmanager.leader.events import EventHub
from loadmanager.leader.heat_map import TermHeatMap
from loadmanager.leader.owner_tracker import OwnerTracker

BROKERS = ("b1", "b2", "b3")
BUNDLES = ("t/n/0x0_0x1", "t/n/0x1_0x2", "t/n/0x2_0x3")


class Clock:
    """Says the time that it is told."""

    ms = 1_000

    def now_ms(self) -> int:
        return self.ms

    def monotonic_s(self) -> float:
        return self.ms / 1_000


@dataclass
class Reports:
    """The last reports."""

    reports: dict[str, LocalBrokerData] = field(default_factory=dict)
    listeners: list[Callable[[str, LocalBrokerData | None], None]] = field(default_factory=list)

    def take(self, broker: str, bundles: frozenset[str] | None, ms: int) -> None:
        """A broker reports these bundles; None: it is gone."""
        if bundles is None:
            self.reports.pop(broker, None)
        else:
            self.reports[broker] = LocalBrokerData(bundles=sorted(bundles), last_update=ms)
        for listener in self.listeners:
            listener(broker, self.reports.get(broker))


def tracking(reports: Reports, clock: Clock, events: EventHub) -> OwnerTracker:
    """A tracker that has begun."""
    tracker = OwnerTracker(
        brokers=reports,  # type: ignore[arg-type]
        clock=clock,  # type: ignore[arg-type]
        events=events,
        view=ClusterView(),
        stats_interval_s=lambda: 10.0,
    )
    tracker.begin()
    return tracker


async def test_the_heat_is_of_the_bundles_that_have_an_owner() -> None:
    """After a drain, the last report of a bundle's earlier owner has it until the next one comes:
    it counts once.
    """
    reports, clock = Reports(), Clock()
    tracker = tracking(reports, clock, EventHub())
    for broker, bundles, ms in (("b1", BUNDLES, 1_000), ("b2", BUNDLES[:2], 2_000)):
        clock.ms = ms
        reports.take(broker, frozenset(bundles), ms)
        report = reports.reports[broker]
        report.num_bundles = len(bundles)
        report.last_stats = {name: NamespaceBundleStats(msg_rate_in=1) for name in bundles}
        tracker.view.observe(broker, report, ms)
    heat = TermHeatMap(
        view=tracker.view,
        owners=tracker,
        refresh=nothing,
        report_interval_ms=lambda: 5_000.0,
        clock=clock,  # type: ignore[arg-type]
    )
    await heat.step()
    shown = heat.shown(60)
    assert (sorted(it.bundle for it in shown.bundles), shown.total) == (sorted(BUNDLES), 3)


async def nothing() -> None:
    """There is nothing to read."""


def owners(tracker: OwnerTracker) -> Mapping[str, str]:
    """Bundle → its owner."""
    return {bundle: it.broker for bundle, it in tracker.by_bundle.items()}


async def test_a_bundle_that_is_back_before_its_broker_reports() -> None:
    """It went to another one and back: the first one's report has it all the time."""
    reports, clock, events = Reports(), Clock(), EventHub()
    reports.take("b1", frozenset(BUNDLES), 1)
    tracker = tracking(reports, clock, events)
    queue = events.listen(None)
    reports.take("b2", frozenset(BUNDLES[:1]), 2)
    assert owners(tracker)[BUNDLES[0]] == "b2"
    reports.take("b1", frozenset(BUNDLES), 3)
    clock.ms = 4_000
    reports.take("b2", frozenset(), 4)
    assert owners(tracker) == dict.fromkeys(BUNDLES, "b1")
    tracked = tracker.by_bundle[BUNDLES[0]]
    assert (tracked.since_ms, tracked.exact, tracked.reported_ms) == (4_000, True, 3)
    told = [await queue.next() for _ in range(4)]
    changes = [json.loads(it[2]) for it in told if it is not None and it[1] == "ownership"]
    assert [(it["broker"], it["gained"], it["lost"]) for it in changes] == [
        ("b2", [BUNDLES[0]], []),
        ("b1", [BUNDLES[0]], []),
        ("b2", [], [BUNDLES[0]]),
    ]


@given(
    st.lists(
        st.tuples(st.sampled_from(BROKERS), st.none() | st.frozensets(st.sampled_from(BUNDLES))),
        max_size=30,
    )
)
def test_whatever_comes_each_reported_bundle_has_an_owner(
    steps: list[tuple[str, frozenset[str] | None]],
) -> None:
    """One whose report has it; and nothing is remembered of bundles that nobody reports."""
    reports, clock = Reports(), Clock()
    tracker = tracking(reports, clock, EventHub())
    for ms, (broker, bundles) in enumerate(steps, start=1):
        reports.take(broker, bundles, ms)
        has = {name: frozenset(it.bundles) for name, it in reports.reports.items()}
        reported = frozenset().union(*has.values())
        assert owners(tracker).keys() == reported
        assert all(bundle in has[owner] for bundle, owner in owners(tracker).items())
        assert tracker._before.keys() <= reported
        assert all(len(it) < len(BROKERS) for it in tracker._before.values())
