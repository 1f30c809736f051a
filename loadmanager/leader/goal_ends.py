"""When a goal may end by what a plan says: by a steady picture alone. And when it may move more.

While moves are under way, or a broker has just left or come, some bundles count nowhere, and
figures are those of before: two brokers may look even because the third one died. What is moved
then is moved again when the third one's bundles have come; and these carry for a while what their
clients could not send before.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from loadmanager.engine.findings.unserved import UnservedBundles
from loadmanager.engine.load.cluster_view import UNREPORTED_MS_MAX
from loadmanager.engine.load.reports import LocalBrokerData
from loadmanager.engine.load.snapshot import ClusterSnapshot
from loadmanager.engine.plans.order import GoalOrder
from loadmanager.kit.reason import Reason
from loadmanager.kit.text import count_of, moment
from loadmanager.leader.base import LedCluster
from loadmanager.leader.brokers import Departure
from loadmanager.leader.moves import Moves

FRESH_MAX_S = 30.0
"""Nobody waits longer for reports that are newer than the last moves: a broker that has not
reported by then has nothing new to say.
"""
NAMED_MAX = 5
CHANGES_MAX = 10
BEGAN = "this leader began"


@dataclass(frozen=True, slots=True)
class EndLook:
    """A look by which an order would end."""

    at_ms: int
    text: str
    """What it says: that the goal is reached, say."""
    reported_ms: dict[str, float] | None = None
    """brokerId → when it had reported last; None: one look is enough, or the picture was not
    steady.
    """


def reported_ms(cluster: LedCluster) -> dict[str, float]:
    """brokerId → when it reported last, in either manager."""
    if cluster.view.load_data:
        return {name: load.updated_at for name, load in cluster.view.load_data.items()}
    return {name: each.last_update for name, each in cluster.brokers.reports.items()}


@dataclass(slots=True)
class SteadyPicture:
    """Knows since when the brokers are the same, in one term; and who had left before it: the
    leader of before, say, whose bundles the view of a new one does not have.
    """

    moves: Moves
    departures: Callable[[], Sequence[Departure]] = field(init=False, default=tuple)
    """Who left, as far as this broker saw it."""
    unserved: Callable[[], Sequence[UnservedBundles]] = field(init=False, default=tuple)
    """Who left by the book of earlier leaders, and what of it nobody serves."""
    _brokers: dict[str, float] = field(default_factory=dict)
    """brokerId → when it started."""
    _changed_ms: int = 0
    _change: str = BEGAN
    _changes: deque[tuple[int, str]] = field(default_factory=lambda: deque(maxlen=CHANGES_MAX))
    """Which brokers came or left, and when."""
    _lost_ms: int = 0
    """When a broker with bundles was last lost that was not cordoned, or bundles of it were without
    an owner.
    """
    _began_ms: int = field(init=False)
    _looked: bool = False
    """Whether it knows who had left before."""
    _left_before: dict[str, int] = field(default_factory=dict)
    """Bundle of a broker that left before that, and that nobody reports since → when it left."""

    def __post_init__(self) -> None:
        """The term begins."""
        self._began_ms = self._now_ms()

    def look(self) -> None:
        """Take up the brokers that are there; often."""
        if not self._looked:
            self._look_back()
        reports = self.moves.cluster.brokers.reports
        present = {
            name: reports[name].start_timestamp if name in reports else 0
            for name in self.moves.cluster.brokers.registered
        }
        if present != self._brokers:
            self._change = _difference(self._brokers, present) if self._brokers else BEGAN
            if self._brokers:
                self._changes.append((self._now_ms(), self._change))
            left = _ended(self._brokers, present) - self.moves.cluster.wishes.cordons.keys()
            if left - self._empty_ones():
                self._lost_ms = self._now_ms()
            self._brokers, self._changed_ms = present, self._now_ms()

    def changes_since(self, since_ms: int) -> str:
        """Which brokers came or left after a time; empty: none did, as far as is known."""
        texts = dict.fromkeys(text for at_ms, text in self._changes if at_ms >= since_ms)
        return "; ".join(texts)

    def _empty_ones(self) -> set[str]:
        """The brokers that had no bundle when they left, since the last change: nobody has to come
        back from them.
        """
        left = [it for it in self.departures() if it.at_ms >= self._changed_ms]
        return {it.broker for it in left if self._had_none(it)}

    def _had_none(self, left: Departure) -> bool:
        """Whether others had reported all bundles of its last report before it left."""
        if left.report is None:
            return False
        reports = self.moves.cluster.brokers.reports.items()
        others = [it for name, it in reports if name != left.broker and it.last_update < left.at_ms]
        bundles = {*left.report.bundles, *left.report.last_stats}
        return not bundles.difference(*(it.last_stats for it in others))

    def _look_back(self) -> None:
        """Take up who left before this term: what they had was placed, or is to be placed, without
        this leader.
        """
        self._looked = True
        left = [
            (it.broker, it.at_ms, _busy(it.report))
            for it in self.departures()
            if not self._had_none(it)
        ]
        left += [
            (it.broker, it.since_ms, it.bundles if it.clients else ()) for it in self.unserved()
        ]
        for broker, at_ms, bundles in sorted(left, key=lambda it: it[1]):
            self._changes.append((at_ms, f"{broker} has left"))
            if broker not in self.moves.cluster.wishes.cordons:
                self._lost_ms = max(self._lost_ms, at_ms)
            self._left_before |= dict.fromkeys(bundles, at_ms)

    def _not_reported_since(self) -> set[str]:
        """The bundles of brokers that left before this term which nobody reports; as long as
        averages of such bundles are kept.
        """
        if self._left_before:
            oldest_ms = self._now_ms() - UNREPORTED_MS_MAX
            view = self.moves.cluster.view
            reported = set(view.owners).union(*(it.last_stats for it in view.reports.values()))
            self._left_before = {
                bundle: at_ms
                for bundle, at_ms in self._left_before.items()
                if at_ms > oldest_ms and bundle not in reported
            }
        return set(self._left_before)

    def unsteady(
        self, snapshot: ClusterSnapshot, orders: Iterable[GoalOrder], since_ms: int | None
    ) -> str | None:
        """What the picture is not steady until; None: it is. `orders`: whose moves must have
        ended; `since_ms`: after this time all must have reported; None: it is for a new order,
        for which it does not count how long the brokers are the same.
        """
        self.look()
        return next(self._obstacles(snapshot, orders, since_ms), None)

    def _obstacles(
        self, snapshot: ClusterSnapshot, orders: Iterable[GoalOrder], since_ms: int | None
    ) -> Iterator[str]:
        if under_way := sum(1 for _ in self.moves.queue.open_moves()):
            ends = (
                "that waits or is under way has"
                if under_way == 1
                else ("that wait or are under way have")
            )
            yield f"{count_of(under_way, 'move')} {ends} ended"
        if unknown := sum(len(order.under_way) for order in orders if not order.drain):
            yield f"it is known what came of {count_of(unknown, 'move')}"
        if lost := self._without_owner(snapshot):
            yield _owned(lost)
        settled_ms = self._changed_ms + self._warm_up_ms
        last_ms = max((move.ended_at or 0 for move in list(self.moves.queue.ended)[:1]), default=0)
        if since_ms is not None:
            if self._now_ms() < settled_ms:
                yield f"{moment(settled_ms)}, if the brokers stay the same: {self._change}"
            last_ms = max(since_ms, last_ms, 0 if self._change == BEGAN else self._changed_ms)
        if self._now_ms() - last_ms < FRESH_MAX_S * 1000:
            reported = reported_ms(self.moves.cluster)
            late = [name for name in self._brokers if reported.get(name, 0) < last_ms]
            if late:
                yield f"{named(late)} reported since the last change"

    @property
    def settled_ms(self) -> int:
        """When the clients of brokers that were lost count as back; 0: none was lost."""
        return self._lost_ms + self._warm_up_ms if self._lost_ms else 0

    @property
    def _warm_up_ms(self) -> int:
        return round(self.moves.settings.value.warm_up_s * 1000)

    def after_loss(self, snapshot: ClusterSnapshot) -> str | None:
        """What no move is made before, after brokers were lost or a term began; None: nothing."""
        self.look()
        if lost := self._without_owner(snapshot):
            self._lost_ms = self._now_ms()
            return _owned(lost)
        settled_ms, now_ms = self.settled_ms, self._now_ms()
        if now_ms < settled_ms:
            return f"{moment(settled_ms)}: clients of a broker that left come back"
        known_ms, reported = self._began_ms + self._warm_up_ms, reported_ms(self.moves.cluster)
        late = [name for name in self._brokers if reported.get(name, 0) < self._began_ms]
        if not late or now_ms >= known_ms:
            return None
        return f"{named(late)} reported to this leader, or {moment(known_ms)}"

    def _without_owner(self, snapshot: ClusterSnapshot) -> int:
        """How many bundles with traffic have nobody who serves them, or who says so. One that no
        lookup asks for, as its clients are gone, counts for `UNREPORTED_MS_MAX`.
        """
        view, there = self.moves.cluster.view, self.moves.cluster.brokers.registered
        lost = (*snapshot.to_place, *view.placed_again)
        waiting = {name for name in lost if snapshot.averages.quick_of(name) > 0}
        waiting |= {bundle for bundle, owner in view.owners.items() if owner not in there}
        waiting |= self._not_reported_since()
        return len(waiting)

    def again(self, look: EndLook) -> str | None:
        """What a second look waits for after a first one; None: it is time for it."""
        before = look.reported_ms
        if before is None or self._now_ms() - look.at_ms >= FRESH_MAX_S * 1000:
            return None
        now = reported_ms(self.moves.cluster)
        late = [name for name in before if now.get(name, 0) <= before[name]]
        return f"{named(late)} reported once more, and it looks so again" if late else None

    def reached_by(self, text: str) -> EndLook:
        """A first look at a steady picture: a second one has to say the same."""
        return EndLook(self._now_ms(), text, reported_ms(self.moves.cluster))

    def _now_ms(self) -> int:
        return self.moves.term.clock.now_ms()


def _owned(lost: int) -> str:
    has = "has" if lost == 1 else "have"
    return f"{count_of(lost, 'bundle')} of brokers that left {has} an owner"


def waits(look: EndLook, until: str) -> Reason:
    """Why an order that would end waits."""
    return Reason("Unsteady", f"{look.text}; it waits until {until}")


def _busy(report: LocalBrokerData | None) -> Sequence[str]:
    """The bundles of a report that had traffic."""
    stats = {} if report is None else report.last_stats
    return [name for name, it in stats.items() if it.msg_throughput_in + it.msg_throughput_out > 0]


def named(brokers: Iterable[str]) -> str:
    """Brokers, with the verb for what they have done."""
    names = sorted(brokers)
    more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
    return f"{', '.join(names[:NAMED_MAX])}{more} {'has' if len(names) == 1 else 'have'}"


def _ended(before: Mapping[str, float], now: Mapping[str, float]) -> set[str]:
    """Brokers that left, or started anew."""
    return {name for name, started in before.items() if now.get(name) != started}


def _difference(before: Mapping[str, float], now: Mapping[str, float]) -> str:
    left, joined = before.keys() - now.keys(), now.keys() - before.keys()
    again = _ended(before, now) - left
    changes = ((left, "left"), (joined, "joined"), (again, "started anew"))
    return "; ".join(f"{named(names)} {what}" for names, what in changes if names)
