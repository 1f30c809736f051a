"""`loadmanager admin undo`: shows what undoing would do, and does exactly that."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, NamedTuple
from urllib.parse import quote

import click

from loadmanager.cli.admin.archives import events_of, has_archives, incomplete
from loadmanager.cli.admin.asking import OWN, count_of, query
from loadmanager.cli.admin.audit import CHANGES_MAX, KnownChanges, by_operator, changes_of
from loadmanager.cli.admin.client import AdminClient
from loadmanager.cli.admin.command import AdminCommand, Output
from loadmanager.cli.admin.sentences import paused_text
from loadmanager.cli.admin.times import clock, since_option
from loadmanager.cli.terminal import Shown
from loadmanager.engine.history.records import Decision
from loadmanager.engine.moves.move import MoveState
from loadmanager.engine.policies.permissions import FIELD, Grants
from loadmanager.kit.audit import ChangeShown
from loadmanager.kit.errors import LoadManagerError, OperationalError
from loadmanager.leader.change_words import wish_words
from loadmanager.leader.documents.decisions import BundleStory
from loadmanager.leader.documents.members import AbsentBroker, MembersShown, first_lost_after
from loadmanager.leader.documents.moves import MovesShown
from loadmanager.leader.documents.undo import IDS_MAX, NotUndone, Undone, UndoPlan, UndoStep

UNDO = f"{OWN}/undo"
ENDED_MAX = 1_000
BALANCED = (
    "what the balancer moved is not in it: `undo --moves --since …` moves all of "
    "that back, `undo ID` what one cycle of `admin decisions` or one move of `moves list` moved"
)
MOVES = f"{OWN}/moves"
PAUSED = (
    "that holds the balancer, and not this undo, which an operator orders; "
    "`loadmanager admin moves resume` ends it"
)
THERE = "nothing is left to undo: what these steps come to is there already"
STORIES_MAX = 50
"""So many bundles whose moves cancel out are asked for their owners."""
AGAIN = "the balancer may move them again: `loadmanager admin moves pause` holds it"
EXAMPLES = """examples:
  loadmanager admin audit --since 1h              # changes with their ids
  loadmanager admin undo c-mjh2k3x1-17k           # what undoing one would do
  loadmanager admin undo c-mjh2k3x1-17k --yes     # undo it
  loadmanager admin undo 7-12                     # a decision of `admin decisions`: moves back
  loadmanager admin undo 7-m3                     # a move of `admin moves list`
  loadmanager admin undo --since 1h --role deploy # all that deploy changed, the newest first
  loadmanager admin undo --since 1h --role deploy --plan 3f0c21d7a9be
  loadmanager admin undo --moves --since 1h       # all moves of the last hour, and nothing else
"""


@click.command(cls=AdminCommand, epilog=EXAMPLES)
@click.argument("ids", nargs=-1, metavar="[ID]...")
@since_option
@click.option(
    "--role",
    metavar="ROLE",
    help="with --since: only what this role changed, or, of changes without one, this address",
)
@click.option("--moves", "moves_only", is_flag=True, help="with --since: all moves, and only these")
@click.option("--yes", is_flag=True, help="carry out the plan that is shown")
@click.option("--plan", "seal", metavar="SEAL", help="carry out the plan with this seal, no other")
def undo(admin: AdminClient, ids: tuple[str, ...], **given: Any) -> Output:
    """Undo changes of `admin audit` and moves of `admin decisions`; without --yes or --plan, show
    what that would do, and what cannot be undone.

    Limits, settings, policies, resource groups, pins, cordons and pauses are put back as they were,
    if nobody changed them since; bundles are moved back, if they are still where they were moved
    to. --since means what operators changed, and not what the balancer moved; with --moves, all
    moves that ended since then, whoever wanted them. An undo is a change with an id of its own.
    Exit status: 0 all can be, or was, undone; 1 something cannot, or was not.
    """
    since, role, yes, seal = (given[name] for name in ("since", "role", "yes", "seal"))
    moves_only: bool = given["moves_only"]
    if bool(ids) == (since is not None):
        raise click.UsageError("name ids, or say --since")
    if role is not None and since is None:
        raise click.UsageError("--role needs --since")
    if moves_only and (since is None or role is not None):
        raise click.UsageError("--moves needs --since, and goes with no --role")
    if yes and seal is not None:
        raise click.UsageError("--yes and --plan say the same: give one of them")
    changes, cancelled = KnownChanges([], [], {}), dict[str, _Cancelled]()
    if moves_only:
        ids, changes, cancelled = _moves_since(admin, since)
    elif since is not None:
        changes = changes_of(admin, role, since, None, limit=CHANGES_MAX)
        ids = _ids_of(changes.changes)
    reach, left_out = incomplete(changes.notes), _without_id(changes.changes)
    plan, raw = admin.ask("GET", f"{UNDO}?ids={quote(','.join(ids), safe=',')}", None, UndoPlan)
    left_out += incomplete(plan.notes)
    ids_of = {bundle: of.ids for bundle, of in cancelled.items()}
    raw = {**raw, "cancelOut": ids_of} if moves_only else raw
    status = 1 if plan.cannot or not plan.steps or left_out else 0
    paused = _paused(admin, plan.steps)
    again: list[Shown] = [] if paused or not (moves_only and plan.steps) else [AGAIN]
    balanced: list[Shown] = [BALANCED] if since is not None and not moves_only else []
    steps = [*_steps(plan.steps), *_cannot(plan.cannot), *_cancelled(admin, cancelled)]
    parts: list[Shown] = [steps, *reach, *left_out, *balanced, *paused, *again]
    if not plan.steps or plan.needless:
        said = THERE if plan.needless else "nothing was undone"
        return Output(raw, (*parts, said), status=1, missing=changes.missing)
    if not yes and seal is None:
        only = " --moves" if moves_only else ""
        same = f"{_said_again(ids, since, role)}{only} --plan {plan.seal}"
        parts.append(f"nothing is done yet: `loadmanager admin undo {same}` does exactly this")
        return Output(raw, tuple(parts), status=status, missing=changes.missing)
    if seal not in (None, plan.seal):
        raise OperationalError(
            f"nothing was undone: the plan is {plan.seal} now, and not {seal} any more"
        )
    done, raw = admin.ask("POST", UNDO, {"ids": list(ids), "seal": plan.seal}, Undone)
    parts.append(_done(done))
    status = 1 if done.not_queued else status
    return Output(raw, tuple(parts), status=status, missing=changes.missing)


def _said_again(ids: Sequence[str], since: int | None, role: str | None) -> str:
    """What was named, for another command: an hour ago is another time then."""
    if since is None:
        return " ".join(ids)
    moment = datetime.fromtimestamp(since / 1000, UTC).isoformat(timespec="milliseconds")
    of_role = "" if role is None else f" --role {shlex.quote(role)}"
    return f"--since {moment.removesuffix('+00:00')}Z{of_role}"


def _ids_of(changes: Sequence[ChangeShown]) -> tuple[str, ...]:
    """The ids of what operators changed. Raises `OperationalError` if there are too many."""
    if len(changes) >= CHANGES_MAX:
        raise OperationalError(
            f"there are more than {CHANGES_MAX} changes since then, those of clients with them: "
            "--role or a later --since says which to undo"
        )
    ids = tuple(change.id for change in changes if change.id and _may_be_undone(change))
    if not ids:
        raise OperationalError(
            f"no change of an operator since then is known: nothing to undo; {BALANCED}"
        )
    if len(ids) > IDS_MAX:
        raise OperationalError(
            f"there are {len(ids)} changes since then, and {IDS_MAX} are undone at once: --role or "
            "a later --since says which"
        )
    return ids


def _may_be_undone(change: ChangeShown) -> bool:
    return by_operator(change) and not change.failed


def _paused(admin: AdminClient, steps: Sequence[UndoStep]) -> list[Shown]:
    """That moves are paused, if the plan moves something."""
    if all(step.of.startswith("/") for step in steps):
        return []
    pause = admin.get(f"{MOVES}?limit=1", MovesShown).paused
    return [] if pause is None else [f"{paused_text(pause)}: {PAUSED}"]


class _Cancelled(NamedTuple):
    """The moves of a bundle that cancel out."""

    ids: list[str]
    at: str
    """Where the last of them brought it."""
    ended: int
    """When that was."""


def _cancelled(admin: AdminClient, cancelled: Mapping[str, _Cancelled]) -> Iterator[str]:
    """The moves that cancel out, by bundle, and where a bundle is that is elsewhere by now."""
    elsewhere = _elsewhere(admin, cancelled)
    for bundle, of in sorted(cancelled.items()):
        yield f"{' and '.join(of.ids)}  {count_of(len(of.ids), 'move')}"
        yield f"    {bundle} was moved back to where it was: no move is left to undo"
        if bundle in elsewhere:
            yield f"    {elsewhere[bundle]}"


def _elsewhere(admin: AdminClient, cancelled: Mapping[str, _Cancelled]) -> dict[str, str]:
    """Bundle → where it is, of those that the last of their moves did not bring there: its broker
    was lost since, say, which is no move.
    """
    lost: Sequence[AbsentBroker] = ()
    with suppress(LoadManagerError):  # of a daemon
        lost = admin.get(f"{OWN}/members", MembersShown).absent if cancelled else ()
    texts = dict[str, str]()
    for bundle, of in sorted(cancelled.items())[:STORIES_MAX]:
        story = admin.get(f"{OWN}/bundles/{bundle}{query(limit=1)}", BundleStory)
        if story.owner == of.at or story.replaced_by:
            continue
        lost_ms = first_lost_after(lost, of.at, of.ended)
        why = "" if lost_ms is None else f", which was lost at {clock(lost_ms)}"
        seen_ms = story.owned_since if story.owned_since_exact else None
        since = "" if seen_ms is None else f", since {clock(seen_ms)}"
        now = "has no owner now" if story.owner is None else f"is at {story.owner} now{since}"
        texts[bundle] = f"{bundle} {now}, and not at {of.at} any more{why}: it stays there"
    return texts


def _moves_since(
    admin: AdminClient, since_ms: int
) -> tuple[tuple[str, ...], KnownChanges, dict[str, _Cancelled]]:
    """The ids of the moves that were made since then, the newest first, from the archives and, of
    those that wait for their clients, from the leader; what is missing; and bundle → the moves that
    cancel out, which are not among the ids.
    """
    made: dict[str, _Made] = {}
    answer = admin.get(f"{MOVES}?limit={ENDED_MAX}", MovesShown)
    for move in answer.moves:
        own = move.id not in answer.taken_up  # the others are undone from the archives
        if own and move.state is MoveState.DONE and move.ended_at is not None:
            made[move.id] = _Made(move.ended_at, move.bundle, move.source, move.destination)
    past_changes = KnownChanges([], [], {})
    if has_archives(admin):
        past = events_of(admin, ("decision.move",), since_ms=since_ms, limit=ENDED_MAX)
        past_changes = KnownChanges([], past.notes, past.missing)
        for event in past.events:
            record = event.record_as(Decision)
            if record.state == MoveState.DONE.value and record.move:
                between = record.source, record.destination
                made.setdefault(record.move, _Made(event.ts, record.bundle, *between))
    later = {it: move for it, move in made.items() if move.ended >= since_ms}
    if not later:
        raise OperationalError("no move since then is known: nothing to undo")
    back = _back_again(later.values())
    newest = sorted(later, key=lambda it: -later[it].ended)
    ids = [it for it in newest if later[it].bundle not in back]
    cancelled = dict[str, _Cancelled]()
    for bundle in filter(None, back):
        of = [it for it in newest if later[it].bundle == bundle]
        cancelled[bundle] = _Cancelled(of, later[of[0]].destination or "", later[of[0]].ended)
    if not ids:
        nothing = f"what was moved since then is back where it was, {count_of(len(back), 'bundle')}"
        more = _elsewhere(admin, cancelled).values()
        raise OperationalError("; ".join((f"{nothing}: nothing to undo", *more)))
    if len(ids) > IDS_MAX:
        raise OperationalError(
            f"there are {len(ids)} moves since then, and {IDS_MAX} are undone at once: a later "
            "--since says which"
        )
    return tuple(ids), past_changes, cancelled


class _Made(NamedTuple):
    """A move that was made."""

    ended: int
    bundle: str | None
    source: str | None
    destination: str | None


def _back_again(moves: Iterable[_Made]) -> set[str | None]:
    """The bundles that the last of their moves brought to where the first one took them from."""
    of: dict[str | None, list[_Made]] = {}
    for move in sorted(moves, key=lambda move: move.ended):
        of.setdefault(move.bundle, []).append(move)
    return {bundle for bundle, made in of.items() if made[0].source == made[-1].destination}


def _without_id(changes: Sequence[ChangeShown]) -> list[Shown]:
    count = sum(by_operator(change) and not change.id for change in changes)
    return [f"{count_of(count, 'change')} of an earlier version cannot be undone"] if count else []


def _steps(steps: Sequence[UndoStep]) -> Iterator[str]:
    id_ = None
    for step in steps:
        if step.id != id_:
            id_ = step.id
            yield f"{step.id}  {step.what}"
        if said := wish_words(step.of, step.now, step.then):
            yield f"    back: {said}"
        elif step.of.startswith("/"):
            yield f"    {step.of}"
            yield from (f"        {line}" for line in fields_of(step))
        else:
            yield f"    {step.of} moves from {step.now} back to {step.then}"
    yield from _in_all(steps)


def _in_all(steps: Sequence[UndoStep]) -> Iterator[str]:
    """What becomes of each wish and each bundle that several steps are about."""
    of = dict[str, list[UndoStep]]()
    for step in steps:
        of.setdefault(step.of, []).append(step)
    for name, its in of.items():
        first, last = its[0].now, its[-1].then
        if len(its) < 2:
            continue
        if first == last:
            yield f"after these {len(its)} steps, {name} is as it is now"
        elif said := wish_words(name, first, last):
            yield f"these {len(its)} steps together: {said}"
        elif not name.startswith("/"):
            yield f"these {len(its)} steps together: {name} moves from {first} to {last}"


def fields_of(step: UndoStep) -> Iterator[str]:
    """What becomes of each field."""
    now, then = (_read(text) for text in (step.now, step.then))
    if then is None:
        yield "it is deleted"
    if then is None:
        return
    for name in sorted({*(now or ()), *(then or ())}):
        if name == FIELD:
            yield from _grants(Grants.of(now or {}), Grants.of(then))
        else:
            yield f"{name}: {_text(now, name)} → {_text(then, name)}"


def _grants(now: Grants, then: Grants) -> Iterator[str]:
    """What becomes of grants, in words."""
    of_now, of_then = _by_place(now), _by_place(then)
    for place, role in sorted({*of_now, *of_then}):
        before, after = (of.get((place, role), frozenset()) for of in (of_now, of_then))
        where = f"on {place}" if place else "in the namespace"
        if gone := sorted(before - after):
            yield f"{role} may no longer {' or '.join(gone)} {where}"
        if back := sorted(after - before):
            yield f"{role} may {' and '.join(back)} {where} again"
    for name in sorted({*now.subscriptions, *then.subscriptions}):
        roles = then.subscriptions.get(name)
        if roles != now.subscriptions.get(name):
            who = (
                "any role that may consume" if roles is None else f"only {', '.join(sorted(roles))}"
            )
            yield f"{who} may use subscription {name}"


def _by_place(grants: Grants) -> dict[tuple[str, str], frozenset[str]]:
    """The topic, or empty for all of the namespace, and the role → what that may do."""
    places = {"": grants.namespace, **grants.topics}
    return {(place, role): may for place, roles in places.items() for role, may in roles.items()}


def _read(text: str | None) -> dict[str, Any] | None:
    if text is None:
        return None
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return fields if isinstance(fields, dict) else {}


def _text(fields: dict[str, Any] | None, name: str) -> str:
    return json.dumps(fields[name]) if fields and name in fields else "not set"


def _cannot(cannot: Sequence[NotUndone]) -> Iterator[str]:
    for each in cannot:
        of = f" ({each.of})" if each.of else ""
        what = f"  {each.what}{of}" if each.what else ""
        yield f"{each.id}{what}"
        yield f"    cannot be undone: {each.why}"


def _done(done: Undone) -> list[str]:
    documents = sum(step.of.startswith("/") for step in done.steps)
    texts = [f"{count_of(documents, 'change')} undone"] if documents else []
    if done.moves:
        moves = count_of(len(done.moves), "move")
        texts.append(f"{moves} queued; `loadmanager admin moves list` tells the outcome")
    lines = ["; ".join(texts)] if texts else []
    return lines + [f"{bundle} stays: {why}" for bundle, why in sorted(done.not_queued.items())]
