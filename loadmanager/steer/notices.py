"""What people are told of a daemon's work: that it may not move anything, that plans wait for
them, that a goal has ended, what mode act would have gained, that the canary cannot measure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from loadmanager.engine.plans.order import GoalOrder
from loadmanager.kit.reason import Reason

HOLD, PLAN, GOAL, GAINED, CANARY = "hold", "plan", "goal", "gained", "canary"


@dataclass(slots=True)
class Notices:
    """Tells each change once. `tell`: takes the kind and the text of a notice."""

    tell: Callable[[str, str], None]
    _hold: Reason | None = None
    _plan: str | None = None
    _open_goals: set[str] = field(default_factory=set)

    def look(
        self,
        hold: Reason | None,
        plan: tuple[str, int] | None,
        goals: Mapping[str, GoalOrder],
        command: str,
    ) -> None:
        """Tell what is different since the last look; `plan`: the id of the plan that waits, and
        its moves; `command`: how the admin command is called here.
        """
        code = None if hold is None else hold.code
        if code != (None if self._hold is None else self._hold.code):
            self.tell(HOLD, "moves go on" if hold is None else f"nothing is moved: {hold}")
        self._hold = hold
        if plan is not None and self._plan is None:  # the load changes, and with it the plan
            self.tell(
                PLAN,
                f"a plan of {plan[1]} moves waits for approval: {command} plans list",
            )
        self._plan = None if plan is None else plan[0]
        for order_id in sorted(self._open_goals):
            order = goals.get(order_id)
            if order is not None and order.state == "ended":
                progress = order.progress
                self.tell(
                    GOAL,
                    f"goal {order_id} has ended: {order.ended}; {progress.arrived} moves made, "
                    f"{order.promise.moves} promised, {progress.failed} failed",
                )
        self._open_goals = {
            name for name, order in goals.items() if order.state != "ended" and not order.drain
        }
