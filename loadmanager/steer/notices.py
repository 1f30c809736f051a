"""What people are told of a daemon's work: that it may not move anything, that plans wait for
them, that a goal has ended, what mode act would have gained, that the canary cannot measure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from loadmanager.engine.plans.order import GoalOrder
from loadmanager.kit.reason import Reason
from loadmanager.kit.text import count_of
from loadmanager.leader.goals import LAPSED

HOLD, PLAN, GOAL, GAINED, CANARY = "hold", "plan", "goal", "gained", "canary"
AT_ONCE = frozenset({"CircuitBreaker"})
"""Holds that are told when they are first seen. Others are told if they still stand at the next
look: many last for one reading, as when the daemon starts.
"""
EXPECTED = frozenset({"QuietHours", "HourlyBudget", "BrokersLeft"})
"""Holds of which nobody is told: they are configured, or belong to an ordinary restart, and end by
themselves.
"""
PLAN_MS = 3_600_000
"""Plans that wait are told once in so long: they expire, and follow each other."""


@dataclass(slots=True)
class Notices:
    """Tells each change once. `tell`: takes the kind and the text of a notice."""

    tell: Callable[[str, str], None]
    _hold: str | None = None
    """The code of the hold that was told last; None: it is over."""
    _looked: str | None = None
    """The code of the hold at the last look."""
    _plan_ms: int | None = None
    """When a plan that waits was told last."""
    _open_goals: set[str] = field(default_factory=set)
    _ended_goals: set[str] = field(default_factory=set)
    """Those whose end was told."""

    def look(
        self,
        hold: Reason | None,
        plan_moves: int,
        goals: Mapping[str, GoalOrder],
        command: str,
        *,
        now_ms: int,
    ) -> None:
        """Tell what is different since the last look; `plan_moves`: of the plan that waits, if
        any; `command`: how the admin command is called here. Nobody waits for a proposal that has
        lapsed.
        """
        self._look_at_hold(hold)
        told_ms = self._plan_ms
        may = plan_moves and hold is None  # else nobody could approve it, and it would not be told
        waits = f"a plan of {count_of(plan_moves, 'move')} waits for approval"
        if may and (told_ms is None or not told_ms <= now_ms < told_ms + PLAN_MS):
            self._plan_ms = now_ms
            self.tell(PLAN, f"{waits}: {command} plans list")
        for order_id in sorted(self._open_goals):
            order = goals.get(order_id)
            if order is not None and order.state == "ended" and order.ended != LAPSED:
                progress = order.progress
                self._ended_goals.add(order_id)
                self.tell(
                    GOAL,
                    f"goal {order_id} has ended: {order.ended}; "
                    f"{count_of(progress.arrived, 'move')} made, "
                    f"{order.promise.moves} promised, {progress.failed} failed{_evenness(order)}",
                )
        for order_id in sorted(self._ended_goals):
            if order_id not in goals or goals[order_id].state != "ended":
                self._ended_goals.discard(order_id)
                if order_id in goals:
                    self.tell(GOAL, f"goal {order_id} goes on: it is not reached any more")
        self._open_goals = {
            name for name, order in goals.items() if order.state != "ended" and not order.drain
        }

    def _look_at_hold(self, hold: Reason | None) -> None:
        code = None if hold is None or hold.code in EXPECTED else hold.code
        before, self._looked = self._looked, code
        if code == self._hold or (code is not None and code not in AT_ONCE and code != before):
            return
        self._hold = code
        if hold is None:
            self.tell(HOLD, "moves go on")
        elif code is None:
            self.tell(HOLD, f"that is over; moves wait for something ordinary: {hold}")
        else:
            self.tell(HOLD, f"nothing is moved: {hold}")


def _evenness(order: GoalOrder) -> str:
    """How far the farthest broker is from the mean, where that is known."""
    if order.progress.farthest is None:
        return ""
    promised = order.promise.curve[-1].farthest
    points = f"{100 * order.progress.farthest:.1f} points"
    return f"; farthest from the mean: {points}, {100 * promised:.1f} promised"
