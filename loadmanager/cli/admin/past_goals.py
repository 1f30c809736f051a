"""The goals of a moment: by the times of those that are still kept, and by the recorded orders."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import Any

import msgspec

from loadmanager.cli.admin.asking import OWN
from loadmanager.cli.admin.client import AdminClient
from loadmanager.cli.admin.past_wishes import DocumentThen, documents_then
from loadmanager.cli.admin.times import clock
from loadmanager.engine.plans.goals import Goal
from loadmanager.kit.conversion import converted
from loadmanager.kit.metadata import paths
from loadmanager.leader.documents.goals import GoalShown, GoalsShown

GOALS = f"{OWN}/goals"
OF_CORDON = "a drain: it is approved, done or not, until its cordon ends"
FORGOTTEN = "by its recorded orders; what came of it by itself is not among them"


class _Ordered(msgspec.Struct):
    """The part of a recorded order that says what is wanted."""

    goal: Goal


class GoalThen(msgspec.Struct, frozen=True, rename="camel"):
    """A goal at a moment; its fields have the names of those of a goal of now."""

    id: str
    goal: Goal | None
    """None: its record was cut off."""
    state: str
    """`proposed`, `approved` or `ended`."""
    made_ms: int
    approved_ms: int | None
    ended_ms: int | None
    promised: int | None
    """Moves."""
    changed: str
    """When and by whom it was ordered, approved or stopped last before."""
    note: str = ""

    def document(self) -> dict[str, Any]:
        """For programs."""
        fields: dict[str, Any] = msgspec.to_builtins(self)
        return fields


@dataclass(slots=True)
class GoalsThen:
    """Those of a moment, the newest first."""

    goals: list[GoalThen]
    notes: list[str]
    missing: dict[str, str] = field(default_factory=dict)


def goals_at(admin: AdminClient, at_ms: int, goal: str = "") -> GoalsThen:
    """What was ordered by then, or one goal of it. Raises `OperationalError` for a daemon, which
    records no orders.
    """
    orders = admin.get(GOALS, GoalsShown).goals
    present = {order.id: order for order in orders if goal in ("", order.id)}
    then = documents_then(admin, paths.goal(goal) if goal else paths.GOALS, {}, at_ms)
    goals = [_of_present(order, then.documents.get(id_), at_ms) for id_, order in present.items()]
    goals += [of_record(id_, it) for id_, it in then.documents.items() if id_ not in present]
    there = [goal for goal in goals if goal.made_ms <= at_ms]
    there.sort(key=lambda goal: (-goal.made_ms, goal.id))
    return GoalsThen(there, then.notes, then.missing)


def _of_present(order: GoalShown, record: DocumentThen | None, at_ms: int) -> GoalThen:
    approved_ms = _by(order.approved_ms, at_ms)
    ended_ms = _by(order.ended_ms, at_ms)
    note = "" if ended_ms is None else str(order.ended or "")
    if order.drain and approved_ms and not ended_ms:
        note = OF_CORDON
    return GoalThen(
        id=order.id,
        goal=order.goal,
        state="ended" if ended_ms else ("approved" if approved_ms else "proposed"),
        made_ms=order.made_ms,
        approved_ms=approved_ms,
        ended_ms=ended_ms,
        promised=order.promise.moves,
        changed="" if record is None else record.changed,
        note=note,
    )


def _by(time_ms: int | None, at_ms: int) -> int | None:
    return time_ms if time_ms is not None and time_ms <= at_ms else None


def of_record(id_: str, record: DocumentThen) -> GoalThen:
    """By its orders alone."""
    fields = record.fields
    goal: Goal | None = None
    with contextlib.suppress(msgspec.ValidationError):
        goal = converted({"goal": fields.get("goal")}, _Ordered).goal
    curve = (fields.get("promise") or {}).get("curve") or []
    moves = curve[-1].get("moves") if curve and isinstance(curve[-1], dict) else None
    return GoalThen(
        id=id_,
        goal=goal,
        state=str(fields.get("state", "")),
        made_ms=fields.get("madeMs") or 0,
        approved_ms=fields.get("approvedMs"),
        ended_ms=fields.get("endedMs"),
        promised=moves,
        changed=record.changed,
        note=FORGOTTEN,
    )


def times_text(goal: GoalThen) -> str:
    """When it was made, approved and ended, as far as that was by then."""
    times = {"made": goal.made_ms, "approved": goal.approved_ms, "ended": goal.ended_ms}
    return ", ".join(f"{what} {clock(at)}" for what, at in times.items() if at)
