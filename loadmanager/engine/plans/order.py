"""An order to reach a goal, as it is stored: what was promised, and what has come of it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Literal

import msgspec
from msgspec.structs import replace

from loadmanager.engine.plans.goals import Emptied, Goal, PlanLimits
from loadmanager.engine.plans.planner import GoalPlan, Point
from loadmanager.kit.reason import Reason

ORDERS_MAX = 50
"""Orders that are kept; those that ended first give way, then the oldest proposals."""
CURVE_MAX = 25
"""Points of a curve that are kept."""
MARK_BYTES = 4
"""Of a move that was shown: the bundles and brokers of `MOVES_MAX` moves would be too large."""
OTHERS_MAX = 20
"""Moves that are named of those that were made and had not been shown."""


class CurvePoint(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What some moves come to. Usages are fractions."""

    moves: int
    traffic: float
    """Bytes/s in and out of the moved bundles, averaged over some reports."""
    clients: float
    """Producers and consumers that are paused."""
    client_seconds: float = 0.0
    """The sum of their pauses, by what such moves took here when it was planned."""
    spread: float
    """Standard deviation of the usage of the brokers that `farthest` counts: not of cordoned ones,
    nor of one that is to be emptied.
    """
    farthest: float
    """How far the usage of the broker that is farthest from the mean is from it."""

    @classmethod
    def of(cls, point: Point, pause_s: float) -> CurvePoint:
        """A point of a plan, rounded; `pause_s`: what each of its clients waits."""
        return cls(
            moves=point.moves,
            traffic=round(point.traffic),
            clients=round(point.clients, 1),
            client_seconds=round(point.clients * pause_s, 3),
            spread=round(point.spread, 4),
            farthest=round(point.farthest, 4),
        )


class Promise(msgspec.Struct, frozen=True, rename="camel"):
    """What a plan promised when it was made."""

    curve: tuple[CurvePoint, ...]
    """From before the first move to after the last one; some of those between are left out."""
    reached: bool
    ends: Reason
    """Why the plan has no further move."""
    error: float
    """The mean error of the model's usages, by what sensors showed then, too."""
    later: Reason | None = None
    """Why some of the moves have to wait, and until when."""
    later_ms: int | None = None
    """When the last of these may be made, if that is known (ms since the epoch)."""

    @classmethod
    def of(cls, plan: GoalPlan, pause_s: float) -> Promise:
        """What a plan comes to; `pause_s`: what each client of a bundle that moves waits."""
        last = len(plan.curve) - 1
        step = max(1, -(-last // (CURVE_MAX - 1)))
        points = [plan.curve[at] for at in (*range(0, last, step), last)]
        curve = tuple(CurvePoint.of(point, pause_s) for point in points)
        return cls(curve, plan.reached, plan.ends, round(plan.error, 4))

    @classmethod
    def nothing(cls, why: Reason) -> Promise:
        """Where no plan could be made beforehand."""
        nothing = CurvePoint(moves=0, traffic=0, clients=0, spread=0, farthest=0)
        return cls((nothing,), False, why, 0.0)

    @property
    def moves(self) -> int:
        return self.curve[-1].moves

    @property
    def pause_s(self) -> float | None:
        """The pause of a client by which it was made; None: no client was to wait."""
        last = self.curve[-1]
        return last.client_seconds / last.clients if last.clients else None


class OrderedMove(msgspec.Struct, frozen=True, rename="camel"):
    """A move that was ordered, and what it is expected to cost."""

    bundle: str
    source: str
    destination: str
    traffic: float = 0.0
    clients: float = 0.0
    client_seconds: float = 0.0


class Progress(msgspec.Struct, frozen=True, rename="camel"):
    """What has come of an order. Limits count what has moved; what is under way counts, too."""

    ordered: int = 0
    """Moves that were ordered: those that arrived or failed, and those under way."""
    arrived: int = 0
    failed: int = 0
    """Moves that failed, were cancelled, or ended with the leader that ordered them."""
    moved: int = 0
    """Moves that arrived, and those that failed after the bundle had left its broker."""
    traffic: float = 0.0
    """Bytes/s of the bundles that have moved."""
    clients: float = 0.0
    """The producers and consumers of these bundles."""
    client_seconds: float = 0.0
    """The sum of their pauses: as measured, or else as expected by the mean of other moves."""
    spread: float | None = None
    farthest: float | None = None
    """The brokers' usage when it was looked at last; by the model, with what has arrived since. See
    `CurvePoint`.
    """
    before: float | None = None
    """`farthest` when its first moves were planned; None: that has not come, it is a drain, or a
    leader of an earlier version began it.
    """

    look_s: float | None = None
    """What the waits for fresh reports took that its leader had measured when it made the last
    moves; None: none was measured. The next leader goes by that.
    """
    error: float | None = None
    """The mean error of the usages when it was looked at last; None: no look has said it."""

    @property
    def pause_s(self) -> float | None:
        """What a client of its bundles waited, on the mean; None: none has moved."""
        return self.client_seconds / self.clients if self.clients else None

    def at(self, point: Point) -> Progress:
        """With the usage of a plan's point."""
        return replace(self, spread=round(point.spread, 4), farthest=round(point.farthest, 4))

    def looked_at(self, plan: GoalPlan) -> Progress:
        """With the usage of now, which is that of before as long as no move is ordered."""
        now = replace(self.at(plan.curve[0]), error=round(plan.error, 4))
        return now if self.ordered else replace(now, before=now.farthest)

    def and_moved(self, move: OrderedMove, client_seconds: float) -> Progress:
        """With one more move that has moved its bundle."""
        return replace(
            self,
            moved=self.moved + 1,
            traffic=self.traffic + move.traffic,
            clients=round(self.clients + move.clients, 3),
            client_seconds=round(self.client_seconds + client_seconds, 3),
        )


class Afterwards(msgspec.Struct, frozen=True, rename="camel"):
    """The brokers' usage some minutes after an order has ended: sensors that lag have settled."""

    at_ms: int
    spread: float
    farthest: float
    reached: bool | None = None
    """Whether the goal was reached then; None: that was not known. One that was not, goes on within
    its limits, if no other goal was approved after it: then its state is `approved`.
    """
    error: float | None = None
    """The mean error of these usages; None: a leader of an earlier version looked."""


class MadeAsShown(msgspec.Struct, frozen=True, rename="camel"):
    """The moves that were shown when a goal was proposed, beside those that were made: these are
    planned anew on fresh figures.
    """

    shown: bytes
    """A mark of each: which bundle was to go where."""
    made: int = 0
    as_shown: int = 0
    """Those of `made` that were shown."""
    others: tuple[str, ...] = ()
    """The first of the other ones: bundle `to` broker."""

    @classmethod
    def of(cls, plan: GoalPlan) -> MadeAsShown:
        """Nothing is made yet."""
        marks = (_mark(move.bundle, move.destination or "") for move in plan.moves)
        return cls(b"".join(marks))

    def and_made(self, moves: Iterable[tuple[str, str]]) -> MadeAsShown:
        """With bundles that have arrived, and where."""
        made = list(moves)
        marks = {self.shown[at : at + MARK_BYTES] for at in range(0, len(self.shown), MARK_BYTES)}
        others = [move for move in made if _mark(*move) not in marks]
        texts = (*self.others, *(f"{bundle} to {there}" for bundle, there in others))
        return replace(
            self,
            made=self.made + len(made),
            as_shown=self.as_shown + len(made) - len(others),
            others=texts[:OTHERS_MAX],
        )


def _mark(bundle: str, destination: str) -> bytes:
    text = f"{bundle} {destination}".encode()
    return hashlib.blake2b(text, digest_size=MARK_BYTES).digest()


PROPOSAL_MS = 3_600_000
"""So long a proposal may be approved: later, the cluster is another one than that which it shows.
"""


class GoalOrder(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An order to reach a goal. Times are milliseconds since the epoch."""

    id: str
    goal: Goal
    limits: PlanLimits
    state: Literal["proposed", "approved", "ended"] = "proposed"
    made_ms: int
    approved_ms: int | None = None
    ended_ms: int | None = None
    ended: Reason | None = None
    """Why it ended."""
    note: str = ""
    drain: bool = False
    """Whether it goes with the drain of a cordoned broker: it is carried out at once, beside
    others, without limits, until the cordon is over.
    """
    promise: Promise
    progress: Progress = Progress()
    afterwards: Afterwards | None = None
    """None: it has not ended so long ago, or it was not looked at then."""
    under_way: tuple[OrderedMove, ...] = ()
    """The moves that were ordered last, until it is known what came of them: the next leader looks
    where their bundles are.
    """
    compared: MadeAsShown | None = None
    """None: it is a drain, or a leader of an earlier version planned it."""

    @property
    def lapses_ms(self) -> int | None:
        """From when on it cannot be approved any more; None: it is no proposal."""
        return self.made_ms + PROPOSAL_MS if self.state == "proposed" else None

    @property
    def empties(self) -> str:
        """The broker that is to be emptied; empty for another goal."""
        return self.goal.broker if isinstance(self.goal, Emptied) else ""

    @property
    def drains(self) -> str:
        """The broker that it drains now; empty if it drains none."""
        return self.empties if self.drain and self.state == "approved" else ""
