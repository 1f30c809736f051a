"""`loadmanager admin goals …`: plans of many moves towards a goal."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

import click
from msgspec import to_builtins

from loadmanager.cli.admin.archives import incomplete
from loadmanager.cli.admin.asking import count_of
from loadmanager.cli.admin.client import AdminClient
from loadmanager.cli.admin.command import AdminGroup, Output, listed
from loadmanager.cli.admin.goal_waits import waited_for
from loadmanager.cli.admin.past_goals import GOALS, GoalThen, goals_at, times_text
from loadmanager.cli.admin.times import UNITS_S, Duration, at_option, clock
from loadmanager.cli.options import Finite
from loadmanager.cli.terminal import table
from loadmanager.engine.plans.goals import (
    Apart,
    Emptied,
    Even,
    Filled,
    Goal,
    PlanLimits,
    Spare,
    hours_of,
    windows_of,
)
from loadmanager.engine.plans.order import CurvePoint
from loadmanager.engine.plans.planner import REACHED
from loadmanager.kit.errors import OperationalError
from loadmanager.kit.reason import joined
from loadmanager.kit.units import MINUTE_MS
from loadmanager.leader.documents.goals import GoalShown, GoalsShown
from loadmanager.leader.pauses import PAUSE_SOURCES

GOAL_WIDTH = 60
"""Of a goal in a list; names may be long."""
EXAMPLES = """examples:
  loadmanager admin goals propose --even 5 --by 06:00 --max-moves 40 --stay acme
  loadmanager admin goals propose --fill 10.0.0.9:8080 --window 'Mon-Fri 22:00-06:00 Europe/Berlin'
  loadmanager admin goals propose --empty 10.0.0.9:8080 --approve
  loadmanager admin goals approve 7-g1 --at 22:00
  loadmanager admin goals show 7-g1
"""
WINDOW = "'Mon-Fri 22:00-06:00 Europe/Paris', and days to leave out: ... except 2026-12-24"
AT_WORK = frozenset({"OwnMoves", "Clients", "Reports"})
"""Codes of what a goal waits for between its moves: its figures are those of now."""
ENDS = {
    "Reached": "reaches the goal",
    "Limits": "ends at its limits, before the goal",
    "NotEnoughBrokers": "cannot reach the goal: there are too few brokers to lose one",
}

group = AdminGroup(
    "goals",
    help="Plans of many moves towards a goal: propose, approve, show, stop.",
    epilog=EXAMPLES,
)


class Coming(click.ParamType[int]):
    """A time to come in milliseconds since the epoch: `06:00` (the next one, UTC), `2h`, or
    `2026-11-28T06:00+01:00`.
    """

    name = "TIME"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Milliseconds since the epoch. A time without a zone is UTC."""
        if isinstance(value, int):
            return value
        now = datetime.now(UTC)
        if value[-1:] in UNITS_S:
            return round((now.timestamp() + Duration().convert(value, param, ctx)) * 1000)
        try:
            if len(value) == len("06:00"):
                hours = datetime.strptime(value, "%H:%M").time()  # noqa: DTZ007 - a time of day
                moment = datetime.combine(now.date(), hours, UTC)
                moment += timedelta(days=moment <= now)
            else:
                moment = datetime.fromisoformat(value)
        except ValueError:
            text = f"{value}: a time such as 06:00, 2h or 2026-11-28T06:00+01:00 is expected"
            self.fail(text, param, ctx)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return round(moment.timestamp() * 1000)


@group.command("propose")
@click.option(
    "--even",
    type=Finite(0, 100, min_open=True),
    metavar="POINTS",
    help="all within so many points of the mean",
)
@click.option("--fill", metavar="BROKER", help="give a broker, a new one say, its share")
@click.option("--empty", metavar="BROKER", help="move everything away from a broker")
@click.option("--spare", is_flag=True, help="any one broker can be lost without an overload")
@click.option("--apart", multiple=True, metavar="NAME", help="no broker serves two of these")
@click.option("--max-moves", type=int, metavar="N", help="at most N moves")
@click.option(
    "--max-traffic",
    type=Finite(0),
    metavar="MB/S",
    help="traffic of all that moves: bytes in and out, averaged over some reports",
)
@click.option("--max-clients", type=Finite(0), metavar="N", help="clients that are paused")
@click.option("--max-client-seconds", type=Finite(0), metavar="S", help="the sum of their pauses")
@click.option("--stay", multiple=True, metavar="NAME", help="a tenant, namespace or bundle stays")
@click.option("--from", "begins", type=Coming(), help="no move before: 22:00 (UTC), 2h, a date")
@click.option("--by", type=Coming(), help="no move after; without it, a day after it may begin")
@click.option("--window", multiple=True, metavar="HOURS", help=WINDOW)
@click.option("--note", default="", help="why, for others")
@click.option("--approve", is_flag=True, help="carry it out at once")
def goals_propose(admin: AdminClient, **options: Any) -> Output:
    """Plan all moves to one goal, and show what they would come to. Nothing moves before the plan
    is approved. It is made anew after every few moves.
    """
    body = {
        "goal": to_builtins(_goal(options)),
        "limits": to_builtins(_limits(options)),
        "note": options["note"],
        "approve": options["approve"],
    }
    order, raw = admin.ask("POST", GOALS, body, GoalShown)
    parts: list[Any] = [
        headline(order),
        *_bounds(order),
        *_waits(order),
        *_later(order),
        *_duration(order),
        _curve(order.promise.curve),
        _error(order),
        _pause(order),
        *_replay(order),
    ]
    if order.moves:
        rows = [(move.bundle, move.source, move.destination) for move in order.moves[:10]]
        parts.append(table(("first moves", "from", "to"), rows))
    if order.state == "proposed" and order.promise.moves:
        until = clock(order.lapses_ms or 0)
        parts.append(f"approve with: loadmanager admin goals approve {order.id} (until {until})")
    if order.state == "approved":
        parts.append([_approved(order), *_cordoned(order)])
    nothing = order.state == "proposed" and not order.promise.moves
    return Output(raw, tuple(parts), status=int(nothing))


def _goal(options: dict[str, Any]) -> Goal:
    goals: list[Goal] = []
    if options["even"] is not None:
        goals.append(Even(options["even"]))
    if options["fill"]:
        goals.append(Filled(options["fill"]))
    if options["empty"]:
        goals.append(Emptied(options["empty"]))
    if options["spare"]:
        goals.append(Spare())
    if options["apart"]:
        goals.append(Apart(options["apart"]))
    if len(goals) != 1:
        raise click.UsageError("say one of --even, --fill, --empty, --spare and --apart")
    return goals[0]


def _limits(options: dict[str, Any]) -> PlanLimits:
    limits = PlanLimits(
        traffic=None if options["max_traffic"] is None else options["max_traffic"] * 1e6,
        clients=options["max_clients"],
        client_seconds=options["max_client_seconds"],
        stay=options["stay"],
        from_ms=options["begins"] or 0,
        until_ms=options["by"],
        windows=options["window"],
    )
    if options["max_moves"] is None:
        return limits
    return PlanLimits(
        **{
            **{name: getattr(limits, name) for name in limits.__struct_fields__},
            "moves": options["max_moves"],
        }
    )


def _bounds(order: GoalShown) -> list[list[str]]:
    """Its hours, its limits and its note, as one part of an answer."""
    lines = [*hours_of(order.limits, clock), *order.bounds]
    return [lines] if lines else []


def headline(order: GoalShown) -> str:
    promise = order.promise
    if order.state == "ended" and promise.reached and not promise.moves:
        against = promise.ends.text.removeprefix(REACHED.text)
        already = "is reached already: nothing has to be moved"
        return f"the goal ({goal_text(order.goal)}) {already}{against}"
    return f"goal {order.id} ({goal_text(order.goal)}): {_promised(order)}"


def _promised(order: GoalShown) -> str:
    """What was promised; of an order that is carried out already, as what it was."""
    count, why = count_of(order.promise.moves, "move"), order.promise.ends
    ends = ENDS.get(why.code, why.text)
    if why.code == "Limits":
        limit = why.text.partition(": ")[2]
        ends += f": {limit}" if limit else ""
    if why.code == "Reached" and order.state == "ended":
        return f"{count} promised, to reach the goal"
    if why.code != "NothingHelps":
        return f"{count}; {ends}"
    if order.drain:
        left = "has no place for the rest"
        return f"{count} planned; the plan {left} ({why.text}): these go where new bundles go"
    if order.progress.ordered:
        return f"{count} promised, which was not to reach the goal ({why.text})"
    return f"{count}; does not reach the goal: {why.text}"


def _duration(order: GoalShown) -> list[str]:
    """How long it takes, and whether that fits into its hours."""
    return [order.duration.text] if order.duration else []


def _proposed(order: GoalShown) -> str:
    """Of when its figures are, and how long they may be approved."""
    made, lapses = clock(order.made_ms), clock(order.lapses_ms or 0)
    return f"planned at {made}, on figures of then; it may be approved until {lapses}"


def _later(order: GoalShown) -> list[str]:
    """Why some of the promised moves have to wait."""
    later = order.promise.later
    return [f"not all can be made at once: {later}"] if later and order.state != "ended" else []


def goal_text(goal: Goal) -> str:
    """A goal for people."""
    match goal:
        case Even(within_points=points):
            return f"even within {points:g} {'point' if points == 1 else 'points'}"
        case Filled(broker=broker, part=part):
            return f"{broker} filled to {part:.0%} of the mean"
        case Emptied(broker=broker):
            return f"{broker} emptied"
        case Spare():
            return "any one broker may be lost"
        case Apart(names=names):  # pragma: no branch
            return f"{', '.join(names)} apart"


def _curve(curve: tuple[CurvePoint, ...]) -> Any:
    traffic = "traffic moved (in + out)"
    headers = ("moves", "farthest from mean", "spread", traffic, "clients", "wait in all")
    rows = [
        (
            point.moves,
            f"{100 * point.farthest:.1f} points",
            f"{100 * point.spread:.1f}",
            _traffic(point.traffic),
            f"{point.clients:.0f}",
            seconds_text(point.client_seconds),
        )
        for point in curve
    ]
    return table(headers, rows)


def seconds_text(seconds: float) -> str:
    """What clients wait in all."""
    return f"{seconds:.3g} s" if seconds < 100 else f"{seconds:.0f} s"


def _error(order: GoalShown) -> str:
    """How far off the usages are that a plan goes by."""
    off = f"{100 * order.promise.error:.1f} points on the mean"
    return f"when it was planned, the model's usages were off by {off}"


def _replay(order: GoalShown) -> list[str]:
    """How far off the last replay of a recorded day was, if one was."""
    return [] if order.replay.date is None else [order.replay.text]


def _traffic(bytes_s: float) -> str:
    return f"{bytes_s / 1e3:.1f} kB/s" if 0 < bytes_s < 1e5 else f"{bytes_s / 1e6:.1f} MB/s"


@group.command("list")
@at_option
def goals_list(admin: AdminClient, at: int | None) -> Output:
    """List the goals, the newest first, with what was promised and what has come of it.

    With --at, those that were ordered by then, and whether they were approved or had ended.
    """
    if at is not None:
        return _goals_at(admin, at)
    answer, raw = admin.ask("GET", GOALS, None, GoalsShown)
    headers = (
        *("id", "goal", "state", "made", "moves", "promised", "farthest", "promised"),
        *("limits", "why"),
    )
    rows = [
        (
            order.id,
            _short(goal_text(order.goal)),
            order.state,
            clock(order.made_ms),
            order.progress.arrived,
            order.promise.moves,
            _points(order.progress.farthest),
            _points(order.promise.curve[-1].farthest),
            _short("; ".join([*windows_of(order.limits), *order.bounds])),
            _why(order),
        )
        for order in answer.goals
    ]
    return listed(raw, headers, rows, "no goal was proposed yet")


def _why(order: GoalShown) -> str:
    """Why it has ended or waits, with what the look some minutes after its end said."""
    why, after = str(order.ended or order.waits or ""), order.afterwards
    if after is None or after.reached is not False:
        return why
    no_longer = f"no longer so at {clock(after.at_ms)}"
    if isinstance(order.goal, Even | Filled) and after.farthest is not None:
        no_longer += f", when a broker was {_points(after.farthest)} from the mean"
    if order.ended_ms is None:
        return joined(f"goes on: it had ended as reached; {no_longer}", why)
    was_so = order.ended is not None and order.ended.code == REACHED.code
    return f"{why}; {no_longer}" if was_so and after.at_ms >= order.ended_ms else why


def _goals_at(admin: AdminClient, at_ms: int) -> Output:
    then = goals_at(admin, at_ms)
    headers = ("id", "goal", "state", "made", "promised", "changed", "note")
    rows = [
        (
            it.id,
            _short(_goal_then(it)),
            it.state,
            clock(it.made_ms),
            it.promised,
            it.changed,
            it.note,
        )
        for it in then.goals
    ]
    shown = table(headers, rows) if rows else "no goal was ordered by then, as far as is recorded"
    data = {"goals": [it.document() for it in then.goals]}
    return Output(data, (shown, *incomplete(then.notes)), missing=then.missing)


def _goal_then(goal: GoalThen) -> str:
    return "its record was cut off" if goal.goal is None else goal_text(goal.goal)


def _goal_at(admin: AdminClient, goal: str, at_ms: int) -> Output:
    then = goals_at(admin, at_ms, goal)
    it = next(iter(then.goals), None)
    if it is None:
        raise OperationalError(f"no goal {goal} was ordered by {clock(at_ms)}, as far as recorded")
    lines = [f"goal {it.id} ({_goal_then(it)}) was {it.state} at {clock(at_ms)}: {times_text(it)}"]
    lines += [f"{count_of(it.promised, 'move')} promised"] if it.promised is not None else []
    lines += [f"changed {it.changed}"] if it.changed else []
    lines += [it.note] if it.note else []
    lines.append(f"which moves were made by then: `admin decisions --at '{clock(at_ms)}'`")
    return Output(it.document(), (lines, *incomplete(then.notes)), missing=then.missing)


def _short(text: str) -> str:
    return text if len(text) <= GOAL_WIDTH else f"{text[: GOAL_WIDTH - 1]}…"


def _points(usage: float | None) -> str:
    return "" if usage is None else f"{100 * usage:.1f} points"


@group.command("show")
@click.argument("goal")
@at_option
def goals_show(admin: AdminClient, goal: str, at: int | None) -> Output:
    """Show a goal: its limits, what was promised, and what has come of it.

    With --at, what was ordered of it by then.
    """
    if at is not None:
        return _goal_at(admin, goal, at)
    order, raw = admin.ask("GET", _path(goal), None, GoalShown)
    state = (*_state_lines(order), *waited_for(admin, order), *_cordon(order))
    lines = (headline(order), *state, _curve(order.promise.curve))
    return Output(raw, lines)


def _path(goal: str) -> str:
    """The path of a goal; other names would be another path."""
    if goal in ("", ".", ".."):
        raise click.UsageError(f"{goal!r} is no goal: `goals list` has their ids")
    return f"{GOALS}/{quote(goal, safe='')}"


def _state_lines(order: GoalShown) -> list[str]:
    progress = order.progress
    lines = [joined(order.state, _why(order)), _error(order), _pause(order)]
    lines += _replay(order)
    if order.state == "proposed":
        lines.append(_proposed(order))
        lines += _later(order)
    lines += [*_duration(order), *hours_of(order.limits, clock), *order.bounds]
    if progress.ordered:
        last = order.promise.curve[-1]
        lines.append(
            f"{count_of(progress.arrived, 'move')} made, {last.moves} promised; "
            f"{progress.failed} failed or were cancelled, {order.under_way} under way; "
            f"by what counts for its limits, {progress.clients:.0f} clients wait "
            f"{seconds_text(progress.client_seconds)} in all (until their move had ended, or as "
            f"expected where that was not measured), {last.clients:.0f} for "
            f"{seconds_text(last.client_seconds)} were promised"
        )
    lines += _compared(order)
    if progress.farthest is not None:
        promised = order.promise.curve[-1].farthest
        at_work = order.state == "approved" and (it := order.waits) and it.code in AT_WORK
        at = "now" if at_work else "when last looked at"
        lines.append(
            f"farthest from the mean: {_before(order)}, "
            f"{_points(promised)} promised, {_points(progress.farthest)} {at}{_off(progress.error)}"
        )
    after, ended_ms = order.afterwards, order.ended_ms
    if after is not None and ended_ms is not None and after.at_ms >= ended_ms:
        lines.append(
            f"at {clock(after.at_ms)}, when sensors had settled: {_points(after.farthest)}"
            f"{_off(after.error)}"
        )
    return lines


def _off(error: float | None) -> str:
    """How far off the usages are of which a figure is."""
    return "" if error is None else f", by usages that were off by {_points(error)} on the mean"


def _before(order: GoalShown) -> str:
    """How far from the mean the farthest broker was before its moves: other things happened since
    it was proposed.
    """
    proposed, before = order.promise.curve[0].farthest, order.progress.before
    if before is None:
        return f"{_points(proposed)} when it was proposed"
    if _points(before) == _points(proposed):
        return f"{_points(before)} before"
    return f"{_points(before)} before ({_points(proposed)} when it was proposed)"


def _pause(order: GoalShown) -> str:
    """What the pause of a client counts, for the limit of client seconds, and by whom."""
    why = PAUSE_SOURCES[order.pause_source]
    if order.pause_source == "canary":
        why += f", last {clock(order.pause_at or 0)}"
    return f"the pause of a client counts as {order.pause_seconds:g} s: {why}"


def _cordon(order: GoalShown) -> list[str]:
    """What an ended order leaves behind."""
    broker = order.stays_cordoned
    if broker is None:
        return []
    lift = f"loadmanager admin brokers uncordon {broker}"
    return [f"{broker} stays cordoned, so that nothing comes back; end that with: {lift}"]


@group.command("approve")
@click.argument("goal")
@click.option("--at", type=Coming(), help="begin then: 22:00 (UTC), 2h, a date; now without it")
def goals_approve(admin: AdminClient, goal: str, at: int | None) -> Output:
    """Let a goal be reached: a few moves, a look at fresh figures, the next moves."""
    order, raw = admin.ask("POST", f"{_path(goal)}/approve", {"fromMs": at or 0}, GoalShown)
    return Output(
        raw, (_approved(order), *_cordoned(order), *_waits(order), *_duration(order), _anew(order))
    )


def _approved(order: GoalShown) -> str:
    """That a goal is carried out, and from when on."""
    begins, by = order.limits.from_ms, clock(order.limits.until_ms or 0)
    when = "from now on"
    if _waits(order) or order.promise.later:  # which the text about how long it takes tells
        when = "as soon as its moves may be made"
    when = f"from {clock(begins)} on" if begins > (order.approved_ms or 0) else when
    hours = f", in {'; '.join(order.limits.windows)}" if order.limits.windows else ""
    more = ""
    if order.promise.ends.code != REACHED.code:
        more = "; what was planned does not reach it, and it goes on as far as fresh figures let it"
    return f"goal {order.id} is approved and carried out {when}, by {by}{hours}{more}"


def _cordoned(order: GoalShown) -> list[str]:
    """What an approval has done at once."""
    if not isinstance(order.goal, Emptied):
        return []
    return [f"{order.goal.broker} is cordoned: it takes no bundles until it is uncordoned"]


def _anew(order: GoalShown) -> str:
    """That other moves may be made than those that were shown."""
    count = count_of(order.promise.moves, "move")
    age_ms = (order.approved_ms or 0) - order.made_ms
    ago = f" {age_ms // MINUTE_MS} min before" if age_ms >= 2 * MINUTE_MS else ""
    return (
        f"its moves are planned anew on fresh figures, a few at a time: others than the {count} "
        f"that were shown{ago} may be made, within its limits; `goals show {order.id}` names them"
    )


def _compared(order: GoalShown) -> list[str]:
    """What was made of the moves that were shown."""
    of = order.compared
    if not order.progress.arrived or order.drain:
        return []
    if of is None:
        return ["which moves were shown is not known: a leader of an earlier version planned them"]
    are = "is" if of.as_shown == 1 else "are"
    text = f"{of.as_shown} of the {of.made} moves made {are} among the {of.shown} shown"
    if of.made == 1:
        text = f"the move made is {'' if of.as_shown else 'not '}among the {of.shown} shown"
    if not (left := of.made - of.as_shown):
        return [text]
    more = f" and {left - len(of.others)} more" if left > len(of.others) else ""
    return [f"{text}; others, planned anew on fresh figures: {', '.join(of.others)}{more}"]


def _waits(order: GoalShown) -> list[str]:
    """What a goal that was just approved waits for, beside its own times."""
    waits = order.waits if order.state == "approved" else None
    if waits is None or waits.code in ("NotYet", "OutsideWindows"):
        return []
    return [f"it waits now: {waits}"]


@group.command("stop")
@click.argument("goal")
def goals_stop(admin: AdminClient, goal: str) -> Output:
    """End a goal; moves under way end by themselves, the others are not made. A broker that was to
    be emptied stays cordoned.
    """
    order, raw = admin.ask("POST", f"{_path(goal)}/stop", None, GoalShown)
    text = f"goal {order.id} is stopped; {count_of(order.progress.arrived, 'move')} made"
    if order.under_way:
        text += f", {count_of(order.under_way, 'move')} under way"
    return Output(raw, (text, *_cordon(order)))
