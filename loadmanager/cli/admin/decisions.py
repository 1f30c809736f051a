"""`loadmanager admin decisions`: those of the leader's term, and on into earlier ones."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import Any

import click
from msgspec import to_builtins

from loadmanager.cli.admin.archives import (
    EventsOfAll,
    events_of,
    has_archives,
    incomplete,
    now_ms,
)
from loadmanager.cli.admin.asking import OWN, brokers_of, query
from loadmanager.cli.admin.bundle_show import full_name, in_full
from loadmanager.cli.admin.client import AdminClient
from loadmanager.cli.admin.command import AdminCommand, Output
from loadmanager.cli.admin.past_decisions import KINDS, decisions_of
from loadmanager.cli.admin.returned import count_decisions
from loadmanager.cli.admin.sentences import lines_of
from loadmanager.cli.admin.times import at_option, since_option, until_of, until_option
from loadmanager.cli.admin.under_way import slow_moves_of
from loadmanager.cli.terminal import Shown
from loadmanager.kit.errors import OperationalError
from loadmanager.leader.documents.decisions import DecisionShown, DecisionsShown

PER_DECISION = 20
"""Records of one decision that are asked for, at most as many as a broker answers."""
EVENTS_MAX = 2_000


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is asked for."""

    bundle: str | None
    broker: str | None
    since: int | None
    until: int | None
    limit: int

    @property
    def about(self) -> str | None:
        """The name that records have."""
        return self.bundle or self.broker


@dataclass(slots=True)
class Decided:
    """The decisions, and what is known to be missing."""

    decisions: list[DecisionShown]
    raw: list[Any]
    missing: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


@click.command(cls=AdminCommand)
@click.option(
    "--bundle", metavar="BUNDLE|TOPIC", help="what concerns this bundle, or that of a topic"
)
@click.option("--broker", metavar="BROKER", help="what concerns this broker, host:port")
@since_option
@until_option
@at_option
@click.option("--limit", default=20, metavar="N", help="at most N decisions")
def decisions(admin: AdminClient, at: int | None, limit: int, **given: Any) -> Output:
    """Show the last decisions with their reasons, newest first, also those of earlier leaders.

    The present leader knows those of its term; the brokers' archives have the others. --at shows
    the last ones before that time.
    """
    given["until"] = until_of(at, given["until"])
    if given["bundle"] is not None and "://" in (topic := in_full(given["bundle"])):
        given["bundle"] = full_name(admin, topic)
    wanted = Wanted(**given, limit=limit)
    if wanted.broker is not None:
        _check(admin, wanted.broker)
    decided = _present(admin, wanted)
    if len(decided.decisions) < limit and has_archives(admin):
        _add_earlier(admin, wanted, decided)
    decided.decisions.sort(key=lambda decision: -decision.ts)
    decided.raw.sort(key=lambda decision: -int(decision["ts"]))
    if at is None:
        count_decisions(admin, decided.decisions, decided.raw)
    lines = [line for decision in decided.decisions for line in lines_of(decision)]
    names = [name for name in (wanted.bundle, wanted.broker) if name]
    parts: list[Shown] = [] if wanted.until is not None else [slow_moves_of(admin, names)]
    parts += [lines or _nothing(wanted), *incomplete(decided.notes)]
    data = {"at": now_ms(), "decisions": decided.raw, "notes": decided.notes}
    return Output(data, tuple(parts), status=0 if lines else 1, missing=decided.missing)


def _nothing(wanted: Wanted) -> str:
    narrow = any((wanted.bundle, wanted.broker, wanted.since, wanted.until))
    return "no decision that is still kept matches" if narrow else "no decision yet"


def _check(admin: AdminClient, broker: str) -> None:
    """Raise `OperationalError` for a name that neither a live broker nor a record has."""
    brokers = brokers_of(admin)
    if broker in brokers or (has_archives(admin) and events_of(admin, (), broker, limit=1).events):
        return
    raise OperationalError(
        f"{broker} is not active, and no record names it; the brokers are {', '.join(brokers)}"
    )


def _present(admin: AdminClient, wanted: Wanted) -> Decided:
    """Those of the present term."""
    values = {"bundle": wanted.bundle, "broker": wanted.broker, "since": wanted.since}
    path = f"{OWN}/decisions{query(**values, until=wanted.until, limit=wanted.limit)}"
    try:
        answer, raw = admin.ask("GET", path, None, DecisionsShown)
    except OperationalError as error:
        if not has_archives(admin):
            raise
        return Decided([], [], notes=[f"the leader did not answer: {error}"])
    return Decided(answer.decisions, list(raw["decisions"]))


def _add_earlier(admin: AdminClient, wanted: Wanted, decided: Decided) -> None:
    """Those before the ones that the leader knows."""
    until_ms = wanted.until if wanted.until is not None else now_ms()
    present_ids = {decision.id for decision in decided.decisions}
    own = [_first_ms(decision) for decision in decided.decisions if not _of_earlier(decision)]
    oldest = min(own, default=until_ms + 1)
    rest = wanted.limit - len(decided.decisions)
    at_most = min(rest * PER_DECISION, EVENTS_MAX)
    events: EventsOfAll = events_of(
        admin,
        KINDS,
        wanted.about,
        since_ms=wanted.since,
        until_ms=min(until_ms, oldest - 1),
        limit=at_most,
        wanted=lambda event: event.last < oldest,
    )
    cut_off = len(events.events) >= at_most
    whole_after_ms = events.events[-1].last if cut_off else -inf
    whole_after_ms = inf if wanted.about is not None else whole_after_ms
    earlier = [it for it in decisions_of(events.events, whole_after_ms) if it.id not in present_ids]
    earlier = earlier[:rest]
    decided.decisions += earlier
    decided.raw += to_builtins(earlier)
    decided.missing |= events.missing
    decided.notes += events.notes


def _of_earlier(decision: DecisionShown) -> bool:
    """Whether it is a move of an earlier term, of which this leader counted the clients."""
    return isinstance(decision.move, str) and not decision.move.startswith(f"{decision.epoch}-m")


def _first_ms(decision: DecisionShown) -> int:
    return decision.first_at if isinstance(decision.first_at, int) else decision.ts
