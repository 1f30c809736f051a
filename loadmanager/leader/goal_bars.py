"""What keeps moves towards a goal from being made for a while, and until when to wait for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from loadmanager.engine.load.snapshot import ClusterSnapshot
from loadmanager.engine.plans.goals import Emptied, Goal
from loadmanager.engine.plans.planner import GoalPlan
from loadmanager.engine.strategies.filters import REFUSES
from loadmanager.engine.strategies.guards import together
from loadmanager.engine.strategies.plan import Skip, Unload
from loadmanager.kit.reason import Reason
from loadmanager.kit.text import moment

SOON_MS, LATEST_MS = 5_000, 60_000
"""After so long the leader looks again where it is not known when a bar ends, and in any case: the
load changes, too.
"""
PASSING = frozenset(
    {
        "GracePeriod",
        "MovesWait",
        "UnderWay",
        "StaleReport",
        "DeadBroker",
        "NotOwned",
        REFUSES.code,
    }
)
"""Codes of guards that refuse a move of now alone."""
PARTNER = "Swap"
"""The code of guards for a move that is refused because another one of its swap is."""


def refused_by(skips: Iterable[Skip]) -> tuple[dict[str, Reason], dict[str, str]]:
    """Bundle → why guards refuse its move of now alone, and for good. The other bundle of a swap is
    not refused: without this one, the next plan finds something else for it.
    """
    passing, for_good = dict[str, Reason](), dict[str, str]()
    for skip in skips:
        if skip.code in PASSING:
            passing[skip.what] = Reason(skip.code, skip.text)
        elif skip.code != PARTNER:
            for_good[skip.what] = skip.reason
    return passing, for_good


@dataclass(frozen=True, slots=True)
class Bar:
    """Why moves that would help cannot be made yet, and when to look again (ms since the epoch)."""

    why: Reason
    again_ms: int
    first_ms: int = 0
    last_ms: int = 0
    """When the first, and the last, of these moves may be made, if that is known."""


@dataclass(slots=True)
class GoalWait:
    """What an order waits for."""

    bar: Bar | None = None
    refused: dict[str, Reason] = field(default_factory=dict)
    """Bundle → why a guard did not let it go when it was last tried; it is tried again later."""
    arriving: frozenset[str] | None = None
    """The bundles that were on their way when no move helped any more; later ones do not count."""
    arriving_since_ms: int = 0

    def why(self, now_ms: int) -> Reason | None:
        """What bars it, until it is time to look again."""
        return self.bar.why if self.bar is not None and now_ms < self.bar.again_ms else None

    def end(self) -> None:
        """It looks again."""
        if self.bar is not None:
            self.bar = None
            self.refused.clear()

    def for_arrivals(self, snapshot: ClusterSnapshot, goal: Goal) -> Bar | None:
        """The wait for bundles that are on their way; to the broker that is to be emptied, or to
        any. After a minute they count as they are expected to arrive: a broker to which little
        happens reports rarely.
        """
        under_way = snapshot.under_way
        emptied = under_way.get(goal.broker, ()) if isinstance(goal, Emptied) else None
        coming = frozenset(under_way.bundles if emptied is None else emptied)
        if self.arriving is None:
            self.arriving, self.arriving_since_ms = coming, snapshot.now_ms
        waits = snapshot.now_ms - self.arriving_since_ms < LATEST_MS
        count = len(coming & self.arriving) if waits else 0
        text = f"{count} bundles are on their way to brokers whose reports do not have them yet"
        if count == 1:
            text = "1 bundle is on its way to a broker whose reports do not have it yet"
        return Bar(Reason("UnderWay", text), snapshot.now_ms + SOON_MS) if count else None


def grace_of(snapshot: ClusterSnapshot, moves: Sequence[Unload], grace_ms: float) -> Bar | None:
    """The wait for those of these moves whose bundles were moved lately; None if none was."""
    now_ms, recent = snapshot.now_ms, snapshot.recently_unloaded_ms
    since_ms = [recent[move.bundle] for move in moves if move.bundle in recent]
    if not since_ms:
        return None
    ends_ms, last_ms = (round(at(since_ms) + grace_ms) for at in (min, max))
    first_ms = ends_ms if len(since_ms) == len(moves) else 0
    lately = "that would have to move {} moved lately"
    if len(since_ms) == 1:
        text = f"1 bundle {lately.format('was')}; it waits for its grace period until "
    else:
        text = f"{len(since_ms)} bundles {lately.format('were')}; they wait for their grace "
        text += "periods, the first until "
    again_ms = min(max(ends_ms, now_ms + SOON_MS), now_ms + LATEST_MS)
    return Bar(Reason("GracePeriod", text + moment(ends_ms)), again_ms, first_ms, last_ms)


def without_recent(snapshot: ClusterSnapshot, plan: GoalPlan) -> GoalPlan:
    """The moves of a plan that may be made now: of bundles that were not moved lately. What the
    brokers use after some of the moves is not known: the points say what they use before.
    """
    recent, moves, curve = snapshot.recently_unloaded_ms, list[Unload](), [plan.curve[0]]
    costs = {
        move.bundle: (after.traffic - before.traffic, after.clients - before.clients)
        for move, before, after in zip(plan.moves, plan.curve, plan.curve[1:], strict=False)
    }
    for group in together(plan.moves):
        if recent.keys().isdisjoint(move.bundle for move in group):
            moves += group
    for move in moves:
        last, (traffic, clients) = curve[-1], costs[move.bundle]
        point = replace(last, traffic=last.traffic + traffic, clients=last.clients + clients)
        curve.append(replace(point, moves=len(curve)))
    return replace(plan, moves=tuple(moves), curve=tuple(curve))


def bar_of(
    snapshot: ClusterSnapshot, patient: GoalPlan, grace_ms: float, refused: Mapping[str, Reason]
) -> Bar | None:
    """What bars the moves of a plan that no bar counts for; None if nothing does. `refused`: bundle
    → what a guard said a moment ago.
    """
    if grace := grace_of(snapshot, patient.moves, grace_ms):
        return grace
    now_ms, moves = snapshot.now_ms, patient.moves
    soon_ms, leaving = now_ms + SOON_MS, set(snapshot.leaving.values())
    for move in moves:
        if move.source in leaving:
            text = f"earlier moves from {move.source} have not ended"
            return Bar(Reason("MovesWait", text), soon_ms)
        if move.bundle in refused:
            return Bar(refused[move.bundle], soon_ms)
        if snapshot.wishes.refuses(move.destination or "", move.bundle):
            text = f"{move.destination} could not open bundles a moment ago"
            return Bar(Reason(REFUSES.code, text), soon_ms)
        if how := patient.losing.get(move.destination or ""):
            return Bar(Reason(how.code, f"{move.destination}: {how.text}"), soon_ms)
    return None
