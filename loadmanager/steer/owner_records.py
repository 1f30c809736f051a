"""Records which broker owns which bundle, and brokers that come and go, as a daemon sees them.

Pulsar's brokers tell a daemon no transitions, only what each owns when it is read. So a bundle that
is at another broker is recorded when the first of both reports says so: that its owner gave it up,
and who has it now. How long it had no owner is not known. A broker that does not answer records
nothing, and neither does one of ours that crashed: what it owned is lost, and was acquired when
another broker has it. What the brokers owned when a daemon began is told by their loads.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

from loadmanager.engine.bundles.ranges import BundleRange, split_bundle_name
from loadmanager.engine.history.members import MemberChange
from loadmanager.engine.history.records import OwnershipStep
from loadmanager.engine.load.reports import LocalBrokerData
from loadmanager.engine.moves.move import Move, MoveState
from loadmanager.engine.ownership.states import BundleState, LifeCause
from loadmanager.kit.clock import Clock
from loadmanager.steer.own_balancing import SHEDDING
from loadmanager.steer.picture import Picture

FORGOTTEN_MIN = 1_000
LEFT_MAX = 200
"""Brokers that left and are remembered."""
SPLIT = "it was split"
NOT_OURS = "Pulsar, or an operator, unloaded it"
REPORTED = "its broker reports it"


@dataclass(slots=True)
class _LastRead:
    """A broker, as it was last read."""

    bundles: frozenset[str]
    started_ms: int
    """When its process began; 0: it does not say."""
    version: str | None


@dataclass(slots=True)
class _Left:
    """A broker that left the list."""

    at_ms: int
    last: _LastRead
    unowned: set[str]
    """Of its bundles, those that nobody owns yet."""


@dataclass(slots=True, kw_only=True)
class OwnerRecords:
    """Follows the owners in the reports of one cluster. A listener of its picture."""

    cluster: str
    """Who records that brokers come and go."""
    picture: Picture
    clock: Clock
    append: Callable[..., None]
    """Takes records."""
    open_moves: Callable[[], Iterable[Move]]
    """The daemon's own moves, which have not ended."""
    _last_read: dict[str, _LastRead] = field(default_factory=dict)
    _owners: dict[str, str] = field(default_factory=dict)
    """Bundle → the broker that had it last, also of one that is lost."""
    _lost: set[str] = field(default_factory=set)
    """Bundles whose owner is lost, or gave them up: nobody has them."""
    _silent: set[str] = field(default_factory=set)
    """Brokers of the list that did not answer when they were last read."""
    _left: dict[str, _Left] = field(default_factory=dict)

    def looked(self) -> None:
        """All brokers were read: those that did not answer lose what others report."""
        self._silent |= self.picture.registered & (self._last_read.keys() - self.picture.answering)
        present = sum(len(last.bundles) for last in self._last_read.values())
        if len(self._lost) > present + FORGOTTEN_MIN:  # deleted, say
            for bundle in self._lost:
                del self._owners[bundle]
            self._lost.clear()

    def reported(self, broker: str, report: LocalBrokerData | None) -> None:
        """A broker was read, or is not in the list any more."""
        if report is None:
            self._gone(broker)
            return
        before, after = self._last_read.get(broker), frozenset(report.bundles)
        started_ms = int(report.start_timestamp)
        self._last_read[broker] = _LastRead(after, started_ms, report.broker_version_string)
        was_silent = broker in self._silent
        self._silent.discard(broker)
        if before is None:
            self._began(broker, after, started_ms)
            return
        gained, lost = sorted(after - before.bundles), sorted(before.bundles - after)
        if not gained and not lost:
            return
        again = was_silent and (not started_ms or started_ms != before.started_ms)
        parents = _parents(gained, lost)
        for bundle in lost:
            if self._owners.get(bundle) != broker or bundle in self._lost:
                continue  # another broker reported it first
            self._lost.add(bundle)
            if bundle in parents.values():
                self._give_up(broker, bundle, LifeCause.SPLIT, SPLIT)
            elif not again:
                self._give_up(broker, bundle, *self._why(bundle))
        for bundle in gained:
            self._acquired(broker, bundle, parents.get(bundle))

    def ended(self, move: Move) -> None:
        """A move of the daemon has ended."""
        if move.state is not MoveState.DONE or move.destination is None:
            return
        if self._owners.get(move.bundle) == move.destination and move.bundle not in self._lost:
            return  # its destination was read meanwhile
        self._hand_over(move.bundle, move.source, move.destination, LifeCause.LEADER, move.reason)

    def _began(self, broker: str, bundles: Collection[str], started_ms: int) -> None:
        """A broker was read for the first time, or again after it had left the list."""
        left = self._left.pop(broker, None)
        if left is not None:
            same = None if not started_ms else started_ms == left.last.started_ms
            took_ms = self.clock.now_ms() - left.at_ms
            self._member(broker, "back", left.last, took_ms=took_ms, same_process=same)
        for bundle in sorted(bundles):
            if bundle in self._owners:
                self._acquired(broker, bundle, None)
            else:
                self._owners[bundle] = broker

    def _gone(self, broker: str) -> None:
        """A broker left the list. One that answered until then stopped in order."""
        last = self._last_read.pop(broker, None)
        if last is None:
            return
        stopped = broker not in self._silent
        self._silent.discard(broker)
        mine = {name for name in last.bundles if self._owners.get(name) == broker} - self._lost
        for bundle in sorted(mine) if stopped else ():
            self._give_up(broker, bundle, LifeCause.STOP, "its broker left the list of brokers")
        self._lost |= mine
        self._left[broker] = _Left(self.clock.now_ms(), last, set(mine))
        if len(self._left) > LEFT_MAX:
            del self._left[next(iter(self._left))]
        how = "stopped" if stopped else "lost"
        self._member(broker, "left", last, how=how, bundles=len(mine))

    def _acquired(self, broker: str, bundle: str, parent: str | None) -> None:
        before = self._owners.get(bundle)
        if before == broker and bundle not in self._lost:
            return  # a move ended there before it was read
        if before is None or bundle in self._lost:
            cause = LifeCause.LOOKUP if parent is None else LifeCause.SPLIT
            self._own(broker, bundle, cause, REPORTED, parent)
        elif before in self._silent or before not in self._last_read:
            self._own(broker, bundle, LifeCause.LOOKUP, REPORTED, None)
        else:
            self._hand_over(bundle, before, broker, *self._why(bundle))

    def _hand_over(
        self, bundle: str, source: str, destination: str, cause: LifeCause, reason: str
    ) -> None:
        if bundle not in self._lost:
            self._give_up(source, bundle, cause, reason, destination)
        self._own(destination, bundle, cause, reason, None)

    def _why(self, bundle: str) -> tuple[LifeCause, str]:
        """Who moves a bundle, as far as a daemon can know."""
        for move in self.open_moves():
            if move.bundle == bundle:
                return LifeCause.LEADER, move.reason
        sheds = SHEDDING in self.picture.own_balancing()
        return LifeCause.LEADER if sheds else LifeCause.OPERATOR, NOT_OURS

    # Records

    def _give_up(
        self, broker: str, bundle: str, cause: LifeCause, reason: str, to: str | None = None
    ) -> None:
        """It ends at its owner. When it was free is not known but for a split."""
        after = BundleState.FREE if cause is LifeCause.SPLIT else BundleState.RELEASING
        states = BundleState.OWNED, after
        self._step(broker, bundle, states, cause=cause, reason=reason, destination=to)

    def _own(
        self, broker: str, bundle: str, cause: LifeCause, reason: str, parent: str | None
    ) -> None:
        self._owners[bundle] = broker
        self._lost.discard(bundle)
        states = BundleState.FREE, BundleState.OWNED
        self._step(broker, bundle, states, cause=cause, reason=reason, parent=parent)
        for gone, left in self._left.items():
            if bundle in left.unowned:
                left.unowned.discard(bundle)
                if not left.unowned:
                    took_ms = self.clock.now_ms() - left.at_ms
                    self._member(gone, "placed", left.last, took_ms=took_ms)

    def _step(
        self,
        broker: str,
        bundle: str,
        states: tuple[BundleState, BundleState],
        *,
        cause: LifeCause,
        **more: Any,
    ) -> None:
        self.append(
            OwnershipStep(
                ts=self.clock.now_ms(),
                broker=broker,
                bundle=bundle,
                before=states[0].value,
                after=states[1].value,
                cause=cause.value,
                **more,
            )
        )

    def _member(self, broker: str, event: str, last: _LastRead, **more: Any) -> None:
        fields = {"bundles": len(last.bundles), **more}
        self.append(
            MemberChange(
                ts=self.clock.now_ms(),
                broker=self.cluster,
                of=broker,
                event=event,
                version=last.version,
                started_at=last.started_ms or None,
                **fields,
            )
        )


def _parents(gained: Collection[str], lost: Collection[str]) -> dict[str, str]:
    """Bundle → the lost one of which it is a part."""
    by_namespace: dict[str, list[tuple[BundleRange, str]]] = {}
    for bundle in lost:
        namespace, text = split_bundle_name(bundle)
        by_namespace.setdefault(namespace, []).append((BundleRange.parse(text), bundle))
    parents = {}
    for bundle in gained if by_namespace else ():
        namespace, text = split_bundle_name(bundle)
        span = BundleRange.parse(text)
        for whole, name in by_namespace.get(namespace, ()):
            if whole.lower <= span.lower and span.upper <= whole.upper:
                parents[bundle] = name
    return parents
