"""When a goal may end by what a plan says: by a steady picture alone. And when it may move more.

While moves are under way, or a broker has just left or come, some bundles count nowhere, and
figures are those of before: two brokers may look even because the third one died. What is moved
then is moved again when the third one's bundles have come; and these carry for a while what their
clients could not send before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from loadmanager.engine.load.snapshot import ClusterSnapshot
from loadmanager.engine.plans.order import GoalOrder
from loadmanager.kit.reason import Reason
from loadmanager.kit.text import moment
from loadmanager.leader.base import LedCluster
from loadmanager.leader.moves import Moves

FRESH_MAX_S = 30.0
"""Nobody waits longer for reports that are newer than the last moves: a broker that has not
reported by then has nothing new to say.
"""
NAMED_MAX = 5
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
    """Knows since when the brokers are the same, in one term."""

    moves: Moves
    _brokers: dict[str, float] = field(default_factory=dict)
    """brokerId → when it started."""
    _changed_ms: int = 0
    _change: str = BEGAN
    _lost_ms: int = 0
    """When a broker was last lost that was not cordoned, or bundles of it were without an owner."""

    def look(self) -> None:
        """Take up the brokers that are there; often."""
        reports = self.moves.cluster.brokers.reports
        present = {
            name: reports[name].start_timestamp if name in reports else 0
            for name in self.moves.cluster.brokers.registered
        }
        if present != self._brokers:
            self._change = _difference(self._brokers, present) if self._brokers else BEGAN
            if _ended(self._brokers, present) - self.moves.cluster.wishes.cordons.keys():
                self._lost_ms = self._now_ms()
            self._brokers, self._changed_ms = present, self._now_ms()

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
            yield f"{under_way} moves that wait or are under way have ended"
        if unknown := sum(len(order.under_way) for order in orders if not order.drain):
            yield f"it is known what came of {unknown} moves"
        if lost := self._without_owner(snapshot):
            yield f"{lost} bundles of brokers that left have an owner"
        settled_ms = self._changed_ms + round(self.moves.settings.value.warm_up_s * 1000)
        last_ms = max((move.ended_at or 0 for move in list(self.moves.queue.ended)[:1]), default=0)
        if since_ms is not None:
            if self._now_ms() < settled_ms:
                yield f"{moment(settled_ms)}, if the brokers stay the same: {self._change}"
            last_ms = max(since_ms, last_ms, 0 if self._change == BEGAN else self._changed_ms)
        if self._now_ms() - last_ms < FRESH_MAX_S * 1000:
            reported = reported_ms(self.moves.cluster)
            late = [name for name in self._brokers if reported.get(name, 0) < last_ms]
            if late:
                yield f"{_named(late)} reported since the last change"

    def after_loss(self, snapshot: ClusterSnapshot) -> str | None:
        """What no move is made before, after brokers were lost; None: nothing."""
        self.look()
        if lost := self._without_owner(snapshot):
            self._lost_ms = self._now_ms()
            return f"{lost} bundles of brokers that left have an owner"
        settled_ms = self._lost_ms + round(self.moves.settings.value.warm_up_s * 1000)
        if not self._lost_ms or self._now_ms() >= settled_ms:
            return None
        return f"{moment(settled_ms)}: clients of a broker that left come back"

    def _without_owner(self, snapshot: ClusterSnapshot) -> int:
        """How many bundles with traffic have nobody who serves them, or who says so. One that no
        lookup asks for, as its clients are gone, counts for `UNREPORTED_MS_MAX`.
        """
        view, there = self.moves.cluster.view, self.moves.cluster.brokers.registered
        lost = (*snapshot.to_place, *view.placed_again)
        waiting = {name for name in lost if snapshot.averages.quick_of(name) > 0}
        waiting |= {bundle for bundle, owner in view.owners.items() if owner not in there}
        return len(waiting)

    def again(self, look: EndLook) -> str | None:
        """What a second look waits for after a first one; None: it is time for it."""
        before = look.reported_ms
        if before is None or self._now_ms() - look.at_ms >= FRESH_MAX_S * 1000:
            return None
        now = reported_ms(self.moves.cluster)
        late = [name for name in before if now.get(name, 0) <= before[name]]
        return f"{_named(late)} reported once more, and it looks so again" if late else None

    def reached_by(self, text: str) -> EndLook:
        """A first look at a steady picture: a second one has to say the same."""
        return EndLook(self._now_ms(), text, reported_ms(self.moves.cluster))

    def _now_ms(self) -> int:
        return self.moves.term.clock.now_ms()


def waits(look: EndLook, until: str) -> Reason:
    """Why an order that would end waits."""
    return Reason("Unsteady", f"{look.text}; it waits until {until}")


def _named(brokers: Iterable[str]) -> str:
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
    return "; ".join(f"{_named(names)} {what}" for names, what in changes if names)
