"""Decisions in sentences, as the page has them (`ui/src/sentences.ts`); names are those that other
commands take.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import islice

from msgspec import UNSET, UnsetType

from loadmanager.cli.admin.asking import count_of
from loadmanager.cli.admin.times import clock, span, time_of_day
from loadmanager.engine.moves.move import Move, MoveState, Outcome
from loadmanager.engine.strategies.plan_document import (
    SkipShown,
    UnloadShown,
    figure,
    placement_reason,
)
from loadmanager.kit.units import MIB
from loadmanager.leader.documents.decisions import DecisionShown
from loadmanager.leader.documents.moves import CordonShown, PauseShown, PinShown

NAMED_MAX = 3
"""Brokers that were rejected, by name."""
LINES_MAX = 20
"""Details of one decision."""


def lines_of(decision: DecisionShown) -> list[str]:
    """A decision: its time, its id if it can be undone by it, and what was decided; below that,
    indented, the reasons.
    """
    head, details = _SENTENCES.get(decision.kind, _other)(decision)
    more = len(details) - LINES_MAX
    id_ = "" if "-a" in decision.id else f"{decision.id}  "  # those of archives have none
    lines = [f"{clock(decision.ts)}  {id_}{head}", *(f"    {it}" for it in details[:LINES_MAX])]
    return [*lines, f"    and {more} more"] if more > 0 else lines


FRACTIONS = ("usage", "average", "threshold")
"""Figures that are shown in percent."""
_BY_LOADS = (
    (
        {"maxRate", "minRate", "differencePercent"},
        "has {maxRate}, {leastLoaded} {minRate}, a difference of {differencePercent}%",
    ),
    (
        {"maxThroughput", "minThroughput", "ratio"},
        "has {maxThroughput}, {leastLoaded} {minThroughput}, a factor of {ratio}",
    ),
    (
        {"score", "destinationScore"},
        "has a score of {score}, the other one {destinationScore}",
    ),
    (
        {"load", "destinationLoad"},
        "has a load of {load}, the other one {destinationLoad}",
    ),
    (
        {"usage", "average", "threshold"},
        "uses {usage}, more than {threshold} points above the mean of {average}",
    ),
    (
        {"usage", "threshold"},
        "uses {usage}, the limit is {threshold}%",
    ),
)
_LOWER = (
    {"usage", "average", "threshold"},
    "uses {usage}, and another one is more than {threshold} points below the mean of {average}",
)
COMPARED = {"": _BY_LOADS, "LowerBoundary": (_LOWER,)}
"""What the figures of Pulsar's shedders say of the broker that sheds."""


def numbers(why: object) -> str:
    """The figures behind a decision."""
    if not isinstance(why, Mapping):
        return ""
    return ", ".join(
        f"{_words(name)} {_percent(value) if name in FRACTIONS else _figure(value)}"
        for name, value in why.items()
    )


def because(reason: str, why: object) -> str:
    """Why a bundle moves: in words where the figures are of a kind that has words, else with the
    figures; `--json` has them in any case.
    """
    text = evened(why) or compared(reason, why)
    if text and isinstance(why, Mapping):
        text += f"; ordered by {by}" if (by := why.get("orderedBy")) else ""
        text += f"; {note}" if (note := why.get("cordonNote")) else ""
    return ": ".join(filter(None, (reason, text or numbers(why))))


def ordered(shown: PauseShown | CordonShown | PinShown) -> str:
    """The note of an order, and who gave it; empty if neither is known."""
    by = f"by {shown.by}" if shown.by else ""
    return "; ".join(filter(None, (shown.note, by)))


def paused_text(pause: PauseShown, verb: str = "are") -> str:
    """Until when moves are paused, or were, why, by whom and since when."""
    about = f" ({text})" if (text := ordered(pause)) else ""
    since = f", since {clock(pause.since)}" if pause.since is not None else ""
    return f"moves {verb} paused until {clock(pause.until)}{about}{since}"


def evened(why: object) -> str:
    """What a move does to the usage of both brokers, by the model; empty if `why` is of another
    kind.
    """
    if not isinstance(why, Mapping):
        return ""
    try:
        source, left, other, more = (
            f"{float(why[name]):.1%}"
            for name in ("usage", "usageAfter", "destinationUsage", "destinationUsageAfter")
        )
        sensors = (why["usageMeasured"], why["destinationMeasured"])
        shown = " and ".join(f"{float(each):.1%}" for each in sensors)
        error = 100 * max(float(why["usageError"]), float(why["destinationError"]))
        gain, price = float(why["gain"]), float(why.get("price", 0))
        pause = (
            f", who wait {float(why['pauseSeconds']):.2g} s each" if "pauseSeconds" in why else ""
        )
    except (KeyError, ValueError, TypeError):
        return ""
    worth = f", {gain / price:.1f} times what it costs clients{pause}" if price > 0 else ""
    text = f"it brings {source} and {other} to {left} and {more}{worth}"
    return f"{text} (sensors: {shown}; the model may be {error:.1f} points off)"


def compared(reason: str, why: object) -> str:
    """Why a broker sheds, by the figures of Pulsar's shedders; empty for figures of other kinds."""
    if not isinstance(why, Mapping):
        return ""
    goal = why.get("goal", why.get("goalBytesPerSecond"))
    lower = "LowerBoundary" if why.get("pass") == "lowerBoundary" else ""
    words = next((it for names, it in COMPARED[lower] if names <= why.keys()), None)
    if goal is None or words is None:
        return ""
    try:
        shown = {name: _compared(reason, name, value) for name, value in why.items()}
        to_leave = _traffic(reason, float(goal))
    except (ValueError, TypeError):
        return ""
    shown["leastLoaded"] = str(why.get("leastLoaded") or "another one")
    return f"its broker {words.format(**shown)}; bundles of {to_leave} in all are to leave"


def _compared(reason: str, name: str, value: object) -> str:
    if name in {"leastLoaded", "pass", "swapFor", "orderedBy", "cordonNote"}:
        return str(value)
    number = float(str(value))
    if name in {"maxRate", "minRate", "maxThroughput", "minThroughput"}:
        return _traffic(reason, number)
    if name == "threshold":
        return f"{100 * number:.1f}"
    return f"{number:.1%}" if name in FRACTIONS else figure(number)


def _traffic(reason: str, value: float) -> str:
    return f"{value:,.0f} messages/s" if reason == "MsgRate" else f"{value / MIB:,.1f} MiB/s"


def _used(why: object) -> str:
    """What a broker uses that got a bundle; empty if `why` does not say it."""
    if not isinstance(why, Mapping):
        return ""
    try:
        usage, after, sensors = (
            f"{float(why[name]):.1%}" for name in ("usage", "usageAfter", "usageMeasured")
        )
        error = 100 * float(why["usageError"])
    except (KeyError, ValueError, TypeError):
        return ""
    return (
        f"it uses {usage}, and {after} while the bundle's clients connect "
        f"(sensors: {sensors}; the model may be {error:.1f} points off)"
    )


def _words(name: str) -> str:
    return re.sub("[A-Z]", lambda letter: f" {letter[0].lower()}", name).replace("_", " ")


def _percent(value: object) -> str:
    try:
        return f"{float(str(value)):.1%}"
    except ValueError:
        return str(value)


def _figure(value: object) -> str:
    if isinstance(value, float):
        return figure(value)
    if isinstance(value, str):  # so in the history
        try:
            return figure(float(value)) if "." in value else value
        except ValueError:
            return value
    return str(value)


def _text(value: object) -> str:
    return "" if value is UNSET or value is None else str(value)


def _because(decision: DecisionShown) -> str:
    return because(_text(decision.reason), decision.why)


def _skip(skip: SkipShown) -> str:
    text = skip.reason if skip.what == "cluster" else f"{skip.what}: {skip.reason}"
    return text + (f" ({since[2:]})" if (since := _times(skip)) else "")


def _times(repeated: DecisionShown | SkipShown) -> str:
    """How often since when; empty for what was so once."""
    times, first_ms = repeated.times, repeated.first_at
    if times is UNSET or first_ms is UNSET or times < 2:
        return ""
    return f", {times} times since {time_of_day(first_ms)}"


def _skips(decision: DecisionShown) -> list[str]:
    return [] if decision.skipped is UNSET else [_skip(skip) for skip in decision.skipped]


def unload_text(unload: UnloadShown) -> str:
    """A move that was decided."""
    to = unload.destination or "wherever it is placed"
    return f"{unload.bundle} from {unload.source} to {to}: {because(unload.reason, unload.why)}"


def _shed(decision: DecisionShown) -> tuple[str, list[str]]:
    strategy = _text(decision.strategy) or "The shedder"
    unloads = [] if decision.unloads is UNSET else decision.unloads
    count = decision.unloads_count
    if unloads or count:
        moves = f"{strategy} moves {count_of(count or len(unloads), 'bundle')}"
        moves += _others(unloads, count) + once_resumed(decision)
        return moves, [*map(unload_text, unloads), *_skips(decision)]
    details = _skips(decision)
    if decision.inputs is not UNSET and decision.inputs.average_usage is not None:
        average = f"average load {decision.inputs.average_usage:.0%}"
        details.insert(0, f"{count_of(decision.inputs.brokers, 'broker')}, {average}")
    if count is UNSET:
        return f"{strategy} decided", details
    return f"{strategy} moved nothing{_times(decision)}", details


def once_resumed(decision: DecisionShown) -> str:
    """That what a cycle moves waits, because moves were paused; empty if they were not."""
    skipped = [] if decision.skipped is UNSET else decision.skipped
    paused = any((it.what, it.code) == ("cluster", "Paused") for it in skipped)
    return " once moves are no longer paused" if paused else ""


def _others(shown: Sequence[UnloadShown], count: int | UnsetType) -> str:
    """What a cycle moves beside what is shown of it."""
    if count is UNSET:
        return ", perhaps others, too"
    if len(shown) == count:
        return ""
    return f", {len(shown) or 'none'} of them here"


def _place(decision: DecisionShown) -> tuple[str, list[str]]:
    bundle = _text(decision.bundle)
    head = (
        f"{bundle} placed on {decision.broker}"
        if decision.broker not in (None, UNSET)
        else f"{bundle} could not be placed"
    )
    rejected = {} if decision.rejected is UNSET else decision.rejected
    reason = _text(decision.reason)
    if decision.candidates is not UNSET:
        reason = placement_reason(decision.candidates, rejected)
    few = [f"not {broker}: {why}" for broker, why in islice(rejected.items(), NAMED_MAX)]
    others = len(rejected) - NAMED_MAX
    few += [f"and {others} others were rejected"] if others > 0 else []
    return head, _given(reason, _used(decision.why), *few)


_SPLITS = {"running": "splits", "done": "was split", "failed": "was not split"}


def _split(decision: DecisionShown) -> tuple[str, list[str]]:
    how = _SPLITS.get(_text(decision.state), "splits")
    on = f" on {decision.broker}" if decision.broker not in (None, UNSET) else ""
    return f"{_text(decision.bundle)} {how}{on}", _given(
        _because(decision), _outcome(decision).text
    )


def _merge(decision: DecisionShown) -> tuple[str, list[str]]:
    parts = [] if decision.parts is UNSET else decision.parts
    return f"{' and '.join(parts)} merged", _given(_text(decision.reason))


_ENDS = {
    "done": "moved",
    "failed": "was not moved",
    "cancelled": "stays: its move was cancelled",
    "expired": "stays: its move waited too long",
}


def _move(decision: DecisionShown) -> tuple[str, list[str]]:
    state, outcome = _text(decision.state), _outcome(decision)
    way = ""
    if state == "done":
        to = _text(decision.destination) or outcome.owner or "another broker"
        way = f" from {_text(decision.source)} to {to}"
        if outcome.clients_waited_ms is not None:
            way += f", {clients(outcome)}"
        elif outcome.pause_ms is not None:
            way += f", paused {span(outcome.pause_ms)}"
    head = f"{_text(decision.bundle)} {_ENDS.get(state, state)}{way}"
    end = _rest(outcome) if state == "done" else _not_moved(outcome)
    return head, _given(_because(decision), end, _unanswered(decision, outcome))


def _not_moved(outcome: Outcome) -> str:
    """Why a bundle was not moved, and for how long nobody served it meanwhile."""
    if outcome.pause_ms is None:
        return outcome.text
    return f"{outcome.text}; nobody served it for {span(outcome.pause_ms)}"


def _unanswered(decision: DecisionShown, outcome: Outcome) -> str:
    """Since when nobody may have served a bundle whose owner gave no answer, and who waited."""
    if outcome.unanswered_since is None:
        return ""
    until = f"until {clock(decision.ts)}" if decision.state == "done" else "from then on"
    clients = decision.clients if isinstance(decision.clients, int) else None
    who = "" if clients is None else f"; {count_of(clients, 'client')} of it may have waited"
    return (
        f"{_text(decision.source)} gave no answer since {clock(outcome.unanswered_since)}: nobody "
        f"may have been served {until}{who}"
    )


def under_way_text(move: Move, now_ms: int) -> str:
    """A move that is under way: since when, and who waits."""
    began = move.started_at or move.created_at
    clients = "" if move.clients is None else f"; {count_of(move.clients, 'client')} of it may wait"
    waits = f"{move.source} has not answered"
    if move.destination is not None:
        waits += f", which waits in turn until {move.destination} has it"
    return (
        f"{move.bundle} is under way from {move.source} to {move.destination or 'another broker'} "
        f"since {clock(began)} ({span(now_ms - began)}): {waits}{clients}"
    )


def so_far_text(move: Move, now_ms: int) -> str:
    """Of a move that waits or is under way: since when, and the note of whoever ordered it."""
    verb, began = ("waits", move.created_at)
    if move.state is MoveState.RUNNING:
        verb, began = "runs", move.started_at or move.created_at
    note = move.why.get("note") or move.why.get("cordonNote")
    text = f"{verb} since {clock(began)} ({span(max(now_ms - began, 0))})"
    return f"{text}: {note}" if note else text


def few_of(back: int) -> str:
    """How many are back of more."""
    return f"ONLY {back}" if back else "NONE"


def clients(outcome: Outcome) -> str:
    """How many clients came back after a move; empty if that is not known."""
    if outcome.clients_closed is None:
        return ""
    if outcome.clients_closed == 0:
        return "no clients"
    if outcome.clients_back is None:
        return f"{count_of(outcome.clients_closed, 'client')} disconnected"
    back, closed = outcome.clients_back, count_of(outcome.clients_closed, "client")
    at = f" at {outcome.clients_back_at}" if outcome.clients_back_at and back else ""
    if back < outcome.clients_closed:
        idle = outcome.clients_unserved
        more = f"; {idle} more connected and got nothing" if idle else ""
        within = "" if outcome.clients_within_ms is None else span(outcome.clients_within_ms)
        until = f" within {within}" if within else ""
        return f"{few_of(back)} of {closed} back{at}{until}{more}"
    if outcome.clients_waited_ms is None:
        return f"{back} of {closed} back{at}"
    longest, mean = outcome.clients_waited_ms, outcome.clients_waited_mean_ms
    then = f", back{at}" if at else ""
    return f"{closed} waited {waits_text(longest, mean, back)}{then}"


def waits_text(longest_ms: float, mean_ms: float | None, clients: int) -> str:
    """How long clients waited: on the mean, and at most."""
    if mean_ms is None or clients < 2:
        return span(longest_ms)
    if span(mean_ms) == span(longest_ms):
        return f"{span(longest_ms)} each"
    return f"{span(mean_ms)} on the mean, {span(longest_ms)} at most"


def _rest(outcome: Outcome) -> str:
    """What the first line of a move does not say."""
    if outcome.clients_waited_ms is None:
        return clients(outcome)
    return "" if outcome.pause_ms is None else f"nobody served it for {span(outcome.pause_ms)}"


def _outcome(decision: DecisionShown) -> Outcome:
    return decision.outcome if isinstance(decision.outcome, Outcome) else Outcome("")


def _given(*texts: str) -> list[str]:
    return [text for text in texts if text]


def _newcomers(decision: DecisionShown) -> tuple[str, list[str]]:
    return "Nearly empty brokers get no bundle", _skips(decision)


def _nothing(decision: DecisionShown) -> tuple[str, list[str]]:
    return f"{_text(decision.strategy) or 'The leader'} did not act", _skips(decision)


def _failure(decision: DecisionShown) -> tuple[str, list[str]]:
    return f"The step {_text(decision.step)!r} failed", _given(_text(decision.error))


def _other(decision: DecisionShown) -> tuple[str, list[str]]:
    return f"{decision.kind} {_text(decision.bundle)}".strip(), _given(_text(decision.reason))


_SENTENCES: dict[str, Callable[[DecisionShown], tuple[str, list[str]]]] = {
    "shed": _shed,
    "newcomers": _newcomers,
    "skip": _nothing,
    "place": _place,
    "split": _split,
    "merge": _merge,
    "move": _move,
    "failure": _failure,
}
