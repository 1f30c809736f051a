"""`loadmanager admin plans …`: the sealed plans of dry runs."""

from __future__ import annotations

from urllib.parse import quote

import click

from loadmanager.cli.admin.asking import OWN, query
from loadmanager.cli.admin.client import AdminClient, AnsweredError
from loadmanager.cli.admin.command import AdminGroup, Output, listed
from loadmanager.cli.admin.leader import plan_text
from loadmanager.cli.admin.past_plans import HEADERS, plan_at, plans_at, settings_text
from loadmanager.cli.admin.times import at_option, clock
from loadmanager.kit.errors import OperationalError
from loadmanager.leader.documents.plans import SealedPlan, SealedPlans

PLANS = f"{OWN}/plans"
NO_PLAN = 404

group = AdminGroup("plans", help="The plans of dry runs and of the daemon: list, show, execute.")


@group.command("list")
@at_option
@click.option(
    "--limit", type=click.IntRange(1, 1_000), default=50, metavar="N", help="at most N plans"
)
def plans_list(admin: AdminClient, at: int | None, limit: int) -> Output:
    """List the plans of this leader's term, the newest first; with --at, those that had been made
    by then, also under earlier leaders.
    """
    if at is not None:
        return plans_at(admin, at, limit)
    answer, raw = admin.ask("GET", PLANS + query(limit=limit), None, SealedPlans)
    rows = [
        (
            plan.id,
            plan.state,
            clock(plan.created_at),
            plan.shedder,
            plan.placement,
            settings_text(plan.settings),
            plan.unload_count,
        )
        for plan in answer.plans
    ]
    return listed(raw, HEADERS, rows, "no plan of a dry run in this term")


@group.command("show")
@click.argument("plan")
@at_option
def plans_show(admin: AdminClient, plan: str, at: int | None) -> Output:
    """Show a plan with its reasons; once it is carried out, with what became of its moves; with
    --at, as it stood then, also one of an earlier leader.
    """
    if at is not None:
        return plan_at(admin, plan, at)
    try:
        answer, raw = admin.ask("GET", f"{PLANS}/{quote(plan, safe='')}", None, SealedPlan)
    except AnsweredError as error:
        if error.status != NO_PLAN:
            raise
        hint = f"`loadmanager admin plans show {plan} --at now` tells of one of an earlier leader"
        raise OperationalError(f"{error}; {hint}") from None
    return Output(raw, plan_text(answer))


@group.command("execute")
@click.argument("plan")
def plans_execute(admin: AdminClient, plan: str) -> Output:
    """Queue exactly the moves of a plan; if anything has drifted since, move nothing and say what.

    A plan without moves, and one that was carried out already, are refused, too.
    """
    return _executed(admin, plan)


@group.command("approve")
@click.argument("plan")
def plans_approve(admin: AdminClient, plan: str) -> Output:
    """The same as execute, for the plans of `loadmanager fleet --mode approve`."""
    return _executed(admin, plan)


def _executed(admin: AdminClient, plan: str) -> Output:
    path = f"{PLANS}/{quote(plan, safe='')}/execute"
    answer, raw = admin.ask("POST", path, None, SealedPlan)
    if answer.plan.splits:
        return Output(raw, "the bundle was split")
    count = len(answer.moves)
    queued = "1 move is" if count == 1 else f"{count} moves are"
    text = f"{queued} queued; `loadmanager admin plans show {plan}` tells their outcome"
    return Output(raw, text)
