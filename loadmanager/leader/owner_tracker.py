"""Since when each broker has each bundle, as far as the leader has seen; and events of that.

The reports of the modular manager's brokers say it a report later than the locks; the state records
of the extensible manager say it at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Literal

from loadmanager.engine.load.cluster_view import ClusterView
from loadmanager.engine.load.reports import LocalBrokerData
from loadmanager.engine.ownership.state_records import StateRecord
from loadmanager.kit.clock import Clock
from loadmanager.leader.documents.events import BrokerChange, OwnershipChange
from loadmanager.leader.events import EventHub
from loadmanager.leader.ports.fleet import Reporting

NAMED_MAX = 500
"""Bundles that an event names at most."""
TAKEN_MAX = 10_000
"""Bundles of which it is remembered that they were taken from a broker."""


@dataclass(frozen=True, slots=True)
class TrackedOwner:
    """A bundle at its owner."""

    broker: str
    since_ms: int
    exact: bool
    """Whether the leader saw it come; else it was there when the term began."""
    reported_ms: float = 0
    """When the owner made the report that had it first; the extensible manager: when it came."""


@dataclass(slots=True, kw_only=True)
class OwnerTracker:
    """Follows the owners of all bundles during one term."""

    brokers: Reporting
    clock: Clock
    events: EventHub
    view: ClusterView
    stats_interval_s: Callable[[], float]
    """Over how long brokers measure traffic."""
    records: list[Callable[[str, StateRecord | None], None]] | None = None
    """Where to listen for changes of state records; None: reports tell of owners."""
    by_bundle: dict[str, TrackedOwner] = field(default_factory=dict)
    """Bundle → its owner."""
    _of_broker: dict[str, frozenset[str]] = field(default_factory=dict)
    _before: dict[str, list[str]] = field(default_factory=dict)
    """Bundle → the owners before, the last one last, whose reports had it when the next one came:
    a bundle may be back before its broker has reported that it left.
    """
    _taken: deque[tuple[int, str, str]] = field(default_factory=lambda: deque(maxlen=TAKEN_MAX))
    """When, from which broker, which bundle: of the state records."""

    def __enter__(self) -> OwnerTracker:
        self.begin()
        return self

    def begin(self) -> None:
        """Listen from now on: the owners of the reports that are there came before."""
        if self.records is None:
            for broker, report in self.brokers.reports.items():
                self._reported(broker, report, exact=False)
        else:
            now_ms = self.clock.now_ms()
            for bundle, broker in self.view.owners.items():
                self.by_bundle[bundle] = TrackedOwner(broker, now_ms, exact=False)
            self.records.append(self.on_record)
        self._of_broker = {
            broker: self._of_broker.get(broker, frozenset()) for broker in self.brokers.reports
        }
        self.brokers.listeners.append(self.on_report)

    def __exit__(self, *_: object) -> None:
        self.brokers.listeners.remove(self.on_report)
        if self.records is not None:
            self.records.remove(self.on_record)

    def on_the_way(self) -> set[str]:
        """The bundles that go to a broker and that no broker reports meanwhile."""
        return {bundle for bundle in self.view.coming() if bundle not in self.by_bundle}

    def since(self, bundle: str, broker: str) -> int | None:
        """Since when a broker has a bundle; None: it does not, or nobody has seen it come."""
        it = self.by_bundle.get(bundle)
        return it.since_ms if it is not None and it.broker == broker and it.exact else None

    def taken(self, broker: str, since_ms: int) -> set[str]:
        """The bundles whose state records gave them to another owner, or to none, since then."""
        return {name for at_ms, of, name in self._taken if of == broker and at_ms >= since_ms}

    def measured(self, bundle: str, broker: str) -> bool:
        """True if the broker's last report is so much later than its first one with the bundle that
        it has measured the bundle's traffic. Until then, zeros say nothing.
        """
        tracked = self.by_bundle.get(bundle)
        if tracked is None or tracked.broker != broker:
            return False
        report = self.brokers.reports.get(broker)
        load = self.view.load_data.get(broker)
        made_ms = load.updated_at if load is not None else report.last_update if report else 0
        return not tracked.exact or made_ms - tracked.reported_ms >= 1000 * self.stats_interval_s()

    def on_report(self, broker: str, report: LocalBrokerData | None) -> None:
        """A broker reported, or is gone."""
        if report is None:
            lost = self._of_broker.pop(broker, frozenset())
            self._forget(broker, lost)
            self._tell_broker(broker, "gone", len(lost))
            return
        if broker not in self._of_broker:
            self._of_broker[broker] = frozenset()
            self._tell_broker(broker, "active", 0)
        if self.records is None:
            gained, lost = self._reported(broker, report, exact=True)
            if gained or lost:
                self._tell_ownership(broker, gained, lost)

    def on_record(self, bundle: str, record: StateRecord | None) -> None:
        """The state record of a bundle changed."""
        owner = None if record is None or record.owner is None else record.owner[0]
        before = self.by_bundle.get(bundle)
        if before is not None and before.broker != owner:
            self._taken.append((self.clock.now_ms(), before.broker, bundle))
        if owner is None:
            if before is not None:
                del self.by_bundle[bundle]
                self._tell_ownership(before.broker, (), (bundle,))
        elif before is None or before.broker != owner:
            now_ms = self.clock.now_ms()
            self.by_bundle[bundle] = TrackedOwner(owner, now_ms, exact=True, reported_ms=now_ms)
            self._tell_ownership(owner, (bundle,), ())

    def _reported(
        self, broker: str, report: LocalBrokerData, *, exact: bool
    ) -> tuple[frozenset[str], frozenset[str]]:
        before, after = self._of_broker.get(broker, frozenset()), frozenset(report.bundles)
        if before == after:
            return frozenset(), frozenset()
        self._of_broker[broker] = after
        gained, lost = after - before, before - after
        for bundle in gained & self.by_bundle.keys():
            self._before.setdefault(bundle, []).append(self.by_bundle[bundle].broker)
        tracked = TrackedOwner(broker, self.clock.now_ms(), exact, report.last_update)
        self.by_bundle.update(dict.fromkeys(gained, tracked))
        self._forget(broker, lost)
        return gained, lost

    def _forget(self, broker: str, bundles: Collection[str]) -> None:
        """A broker does not report bundles any more: those that another one still reports are its
        again.
        """
        for bundle in bundles:
            tracked = self.by_bundle.get(bundle)
            owners = [it for it in self._before.pop(bundle, ()) if it != broker]
            if tracked is not None and tracked.broker == broker:
                del self.by_bundle[bundle]
                if owners:
                    self._is_back(bundle, owners.pop())
            if owners:
                self._before[bundle] = owners

    def _is_back(self, bundle: str, owner: str) -> None:
        now_ms, reported_ms = self.clock.now_ms(), self.brokers.reports[owner].last_update
        self.by_bundle[bundle] = TrackedOwner(owner, now_ms, exact=True, reported_ms=reported_ms)
        self._tell_ownership(owner, (bundle,), ())

    def _tell_ownership(self, broker: str, gained: Collection[str], lost: Collection[str]) -> None:
        change = OwnershipChange(
            at=self.clock.now_ms(),
            broker=broker,
            gained=sorted(gained)[:NAMED_MAX],
            lost=sorted(lost)[:NAMED_MAX],
            gained_count=len(gained),
            lost_count=len(lost),
        )
        self.events.publish("ownership", lambda: change)

    def _tell_broker(self, broker: str, state: Literal["active", "gone"], bundles: int) -> None:
        at_ms = self.clock.now_ms()
        change = BrokerChange(at=at_ms, broker=broker, state=state, bundles=bundles)
        self.events.publish("broker", lambda: change)
