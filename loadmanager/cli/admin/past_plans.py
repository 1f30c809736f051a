"""The sealed plans of a moment, from the records that archives have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import to_builtins

from loadmanager.cli.admin.archives import events_of, incomplete
from loadmanager.cli.admin.asking import count_of
from loadmanager.cli.admin.client import AdminClient
from loadmanager.cli.admin.command import Output
from loadmanager.cli.admin.leaders import leader_then
from loadmanager.cli.admin.times import clock
from loadmanager.cli.terminal import Shown, table
from loadmanager.engine.history.plans import MOVES_MAX, PlanStep
from loadmanager.engine.history.records import Decision, decided_ms, recorded_move

HEADERS = ("id", "state", "made", "strategy", "placement", "settings", "moves")
NOTHING = "no plan had been made by then, as far as it is recorded"
STEPS_A_PLAN = 2
ENDED_MAX = 2_000
"""Moves among which those of a plan are looked for."""


def settings_text(settings: dict[str, str]) -> str:
    """The settings of a dry run, in a line."""
    return " ".join(f"{name}={value}" for name, value in settings.items())


def plans_at(admin: AdminClient, at_ms: int, limit: int) -> Output:
    """The plans that had been made by a moment, the newest first, each in its state of then."""
    events = events_of(
        admin, (PlanStep.kind,), until_ms=at_ms, limit=min(STEPS_A_PLAN * limit, ENDED_MAX)
    )
    steps = [event.record_as(PlanStep) for event in events.events]
    made = [step for step in steps if step.event == "made"][:limit]
    led = leader_then(admin, at_ms).led if made else None
    term = None if led is None else led.epoch
    data = [_document(step, steps, at_ms, term) for step in made]
    rows = [
        (
            step.plan,
            document["state"],
            clock(step.ts),
            step.shedder,
            step.placement,
            settings_text(step.settings),
            step.unload_count,
        )
        for step, document in zip(made, data, strict=True)
    ]
    shown: Shown = table(HEADERS, rows) if rows else NOTHING
    return Output(data, (shown, *incomplete(events.notes)), missing=events.missing)


def plan_at(admin: AdminClient, plan: str, at_ms: int) -> Output:
    """One plan as it stood at a moment, with what had become of its moves."""
    events = events_of(admin, (PlanStep.kind,), plan, until_ms=at_ms)
    steps = [event.record_as(PlanStep) for event in events.events]
    made = next((step for step in steps if step.event == "made" and step.plan == plan), None)
    if made is None:
        text = f"no plan {plan} had been made at {clock(at_ms)}, as far as it is recorded"
        return Output(None, (text, *incomplete(events.notes)), status=1, missing=events.missing)
    led = leader_then(admin, at_ms).led
    document = _document(made, steps, at_ms, None if led is None else led.epoch)
    count, state = count_of(made.unload_count, "bundle"), document["state"]
    executed = _executed(made, steps)
    verb = "would move" if executed is None else "to be moved"
    lines = [f"plan {plan}  {state}  {made.shedder}: {count} {verb}", *made.lines]
    if made.unload_count > MOVES_MAX:
        lines.append(f"  the first {MOVES_MAX} are recorded")
    if executed is not None:
        outcomes, missing = _outcomes(admin, executed, at_ms)
        events.missing |= missing
        lines += [f"carried out at {clock(executed.ts)}:", *outcomes]
        document["outcomes"] = outcomes
    return Output(document, (lines, *incomplete(events.notes)), missing=events.missing)


def _executed(made: PlanStep, steps: Sequence[PlanStep]) -> PlanStep | None:
    """That a plan was carried out, if it had been."""
    own = (step for step in steps if step.plan == made.plan and step.event == "executed")
    return next(own, None)


def _document(
    made: PlanStep, steps: Sequence[PlanStep], at_ms: int, term: int | None
) -> dict[str, Any]:
    """For programs; `term`: that in force at the moment, with which plans of others had ended."""
    executed = _executed(made, steps)
    ready = at_ms <= made.expires_at and term in (None, made.epoch)
    state = "ready" if ready else "expired"
    return {
        **to_builtins(made),
        "state": state if executed is None else "executed",
        "executedAt": None if executed is None else executed.ts,
        "orders": [] if executed is None else executed.orders,
    }


def _outcomes(
    admin: AdminClient, executed: PlanStep, at_ms: int
) -> tuple[list[str], dict[str, str]]:
    """What had become of a plan's moves, in lines, and who did not answer."""
    kind = f"{Decision.kind}.move"
    events = events_of(admin, (kind,), since_ms=executed.ts, until_ms=at_ms, limit=ENDED_MAX)
    records = {it.move: it for it in (event.record_as(Decision) for event in events.events)}
    lines = []
    for order in executed.orders:
        record = records.get(order)
        if record is None or decided_ms(record) > at_ms:
            lines.append(f"  {order}  had not ended, or is not recorded")
            continue
        move = recorded_move(record)
        text = "" if move.outcome is None else move.outcome.text
        lines.append(f"  {order}  {move.state.value:<9} {move.bundle}  {text}".rstrip())
    return lines, events.missing


def plan_sentence(step: PlanStep) -> str:
    """That a plan was made or carried out."""
    count = count_of(step.unload_count, "move")
    if step.event == "made":
        return f"plan {step.plan} of {step.shedder} is made: {count}"
    return f"plan {step.plan} is carried out: {count_of(len(step.orders), 'move')} queued"
