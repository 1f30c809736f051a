"""Why brokers interrupted clients, and what these waited for: for `interrupted` and `history`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from loadmanager.cli.admin.archives import events_of
from loadmanager.cli.admin.asking import count_of
from loadmanager.cli.admin.client import AdminClient
from loadmanager.cli.admin.client_steps import Waits
from loadmanager.cli.admin.downtimes import Downtime
from loadmanager.cli.admin.held_clients import holders_of
from loadmanager.cli.admin.held_then import ConnectionHold, held_between, longest_for
from loadmanager.cli.admin.moves import owner_of
from loadmanager.cli.admin.times import clock, span, time_of_day
from loadmanager.engine.history.clients import CLOSED_HERE, REFUSED, ClientStep
from loadmanager.engine.history.lapses import lapse_of
from loadmanager.engine.history.records import Decision, OwnershipStep, decided_ms
from loadmanager.engine.history.waits import Interrupted, Key, key_of
from loadmanager.engine.moves.move import MoveState
from loadmanager.engine.ownership.states import BundleState
from loadmanager.kit.units import HOUR_MS
from loadmanager.leader.interruptions import CLOCKS_MS, NEXT_SEEN_MS

REFUSALS_MAX = 1_000
MOVES_MAX = 1_000
STEPS_MAX = 2_000
OWNERS_MAX = 20
"""Bundles whose owner is asked for."""
LONG_MS = 10_000
"""Of the client of a lost broker that waited for longer it is told what happened meanwhile."""
OWNED = BundleState.OWNED.value


@dataclass(frozen=True, slots=True, kw_only=True)
class Causes:
    """What clients may have waited for."""

    by_name: Waits
    """All that were interrupted about then, and what brokers did."""
    as_of_ms: int
    held_at: Mapping[Key, str]
    """Where limits hold connections of the address of one that is not back."""
    holds: Sequence[ConnectionHold] = ()
    refusals: Mapping[Key, str]
    """What those that are not back were told when they tried."""
    failed: Sequence[Decision] = ()
    """Moves that failed."""
    owned: Sequence[OwnershipStep] = ()
    """When bundles of lost brokers had owners again, the oldest first."""

    @classmethod
    def of(
        cls,
        admin: AdminClient,
        by_name: Waits,
        waits: Sequence[Interrupted],
        times: tuple[int, int],
        *,
        lasts: bool = False,
    ) -> Causes:
        """Ask for those of some clients within a time; `lasts`: it goes on until now."""
        begin_ms, as_of_ms = times
        return cls(
            by_name=by_name,
            as_of_ms=as_of_ms,
            held_at=_held_at(admin, waits) if lasts else {},
            holds=held_between(admin, begin_ms, as_of_ms, by_name.losses) if waits else (),
            refusals=_refusals(admin, waits, begin_ms, as_of_ms),
            failed=_failed_moves(admin, waits),
            owned=_owned(admin, waits, as_of_ms),
        )

    def because(self, it: Interrupted) -> str:
        """What its broker did, and why, where that is recorded."""
        step = it.client
        if step.destination:
            return f"moved to {step.destination}"
        if (move := self._failed_move(it)) is not None:
            by = f" by {move.why['orderedBy']}" if move.why.get("orderedBy") else ""
            return f"move {move.move} to {move.destination}{by} failed: {move.outcome}"
        if (down := self._down(it)) is not None:
            between = f"from {clock(down.begin)} at the earliest to {time_of_day(down.end)}"
            took = span(down.end - down.begin)
            return f"all brokers were down: {between} ({took} at most)"
        lapse = lapse_of(self.by_name.lapses, step.broker, it.since)
        if it.stood:
            return "it stood still" if lapse is None else lapse.of(step.broker)
        if not it.lost and step.reason == CLOSED_HERE and self._stopped(it):
            return "it stopped in order"
        did = "it was lost" if it.lost else step.reason
        return did if lapse is None else f"{did}: {lapse.of(step.broker)}"

    def course(self, it: Interrupted) -> str:
        """What happened while the client of a lost broker waited for long; empty if it did not, or
        that is not recorded.
        """
        came_ms = it.came_at or self.as_of_ms
        if not it.lost or came_ms - it.since < LONG_MS:
            return ""
        owner = next(
            (
                step
                for step in self.owned
                if step.bundle == it.client.bundle and it.since - LONG_MS <= step.ts <= came_ms
                if step.broker != it.client.broker or step.ts > it.since
            ),
            None,
        )
        if owner is None:
            return ""
        texts = [f"its session was over at {time_of_day(it.since)}"]
        if self._down(it) is not None:
            texts.clear()  # nobody was there whose session it could be
        texts.append(f"{owner.broker} had its bundle from {time_of_day(owner.ts)} on")
        if it.came_at is not None:
            texts.append(f"the client came at {time_of_day(it.came_at)}")
        return ", ".join(texts)

    def _down(self, it: Interrupted) -> Downtime | None:
        """The time in which all brokers were down, if its own was lost in that."""
        broker = it.client.broker
        of = (
            down
            for down in self.by_name.downs
            if it.lost and broker in down.ended
            if down.ended[broker] <= it.since <= down.end + NEXT_SEEN_MS
        )
        return next(of, None)

    def _stopped(self, it: Interrupted) -> bool:
        """Whether its broker stopped in order then, as that recorded itself."""
        own = [
            change
            for change in self.by_name.changes
            if change.of == it.client.broker and change.ts <= it.since + CLOCKS_MS
            if change.event in ("starts", "stops")
        ]
        return max(own, key=lambda change: change.ts).event == "stops" if own else False

    def _failed_move(self, it: Interrupted) -> Decision | None:
        """The move of its bundle that failed, for which its broker had closed its topic."""
        if it.lost or it.stood or it.client.reason != CLOSED_HERE:
            return None
        of = (
            move
            for move in self.failed
            if (move.bundle, move.source) == (it.client.bundle, it.client.broker)
            and (move.started_at or 0) - CLOCKS_MS <= it.since <= decided_ms(move) + CLOCKS_MS
        )
        return next(of, None)

    def holder(self, it: Interrupted) -> str | None:
        """Where limits hold connections of its address now, if it is not back."""
        return self.held_at.get(key_of(it.client)) if it.came_at is None else None

    def hold(self, it: Interrupted) -> ConnectionHold | None:
        """The connection of its address that limits held longest while it waited."""
        if it.stood:
            return None
        lapse = lapse_of(self.by_name.lapses, it.client.broker, it.since)
        still_ms = 0 if lapse is None else lapse.end
        return longest_for(self.holds, it, self.as_of_ms, still_ms)

    def why_not_yet(self, it: Interrupted) -> str:
        """Why it is not back: who refused it, or what limits had to do with it; empty: nothing that
        is known.
        """
        refusal = self.refusals.get(key_of(it.client))
        if it.came_at is None and refusal is not None:
            return refusal
        if (holder := self.holder(it)) is not None:
            return f"{holder} holds connections from its host for a limit, maybe not its own"
        return "" if (hold := self.hold(it)) is None else self._held_text(it, hold)

    def _held_text(self, it: Interrupted, hold: ConnectionHold) -> str:
        lasted = span(hold.overlap_ms(it, self.as_of_ms))
        whose = "its connection"
        if not hold.is_of(it):
            whose = "a connection from its host, maybe not its own"
        limits = hold.limits_for(it, self.as_of_ms)
        why = " for a limit" if limits is None else f": {limits}"
        return f"for {lasted} of it, {hold.broker} held {whose}{why}"


def is_of_name(step: ClientStep, name: str) -> bool:
    """Whether a name is that of its broker, or a part of another one in a step of a client."""
    if name == step.broker:
        return True
    says = (step.client, *step.roles, step.name, step.topic, step.subscription, step.bundle)
    return any(name.casefold() in each.casefold() for each in says if each)


def _refusals(
    admin: AdminClient, waits: Sequence[Interrupted], since_ms: int, until_ms: int
) -> dict[Key, str]:
    """For those that are not back and were refused since they were interrupted: how often, and what
    the last answer was.
    """
    missing = {key_of(it.client): it for it in waits if it.came_at is None}
    if not missing:
        return {}
    answer = events_of(admin, (REFUSED,), since_ms=since_ms, until_ms=until_ms, limit=REFUSALS_MAX)
    steps = dict[Key, list[ClientStep]]()
    for event in answer.events:
        step = event.record_as(ClientStep)
        it = missing.get(key_of(step))
        if it is not None and event.last >= it.since:
            steps.setdefault(key_of(step), []).append(step)
    texts = dict[Key, str]()
    for key, refused in steps.items():
        last = max(refused, key=lambda step: step.ts)
        times = sum(step.times for step in refused)
        texts[key] = f"{last.broker} refused it, {count_of(times, 'time')}: {last.reason}"
    return texts


def _failed_moves(admin: AdminClient, waits: Sequence[Interrupted]) -> list[Decision]:
    """The moves that failed about when brokers closed topics of clients."""
    closed = [it.since for it in waits if it.client.reason == CLOSED_HERE]
    if not closed:
        return []
    answer = events_of(
        admin,
        ("decision.move",),
        since_ms=min(closed) - CLOCKS_MS,
        until_ms=max(closed) + HOUR_MS,
        limit=MOVES_MAX,
    )
    records = [event.record_as(Decision) for event in answer.events]
    return [it for it in records if it.state == MoveState.FAILED.value and it.started_at]


def _held_at(admin: AdminClient, waits: Sequence[Interrupted]) -> dict[Key, str]:
    """For those that are not back and of whose address limits hold a connection at the broker that
    should serve them: that broker. If there is none, one that may not read their lookup.
    """
    missing = [it for it in waits if it.came_at is None]
    holders = holders_of(admin) if missing else {}
    owners, held_at = dict[str, str | None](), dict[Key, str]()
    for it in missing:
        brokers = holders.get(it.client.client.rpartition(":")[0])
        bundle = it.client.bundle
        if not brokers or bundle is None:
            continue
        if bundle not in owners:
            if len(owners) == OWNERS_MAX:
                break
            owners[bundle] = owner_of(admin, bundle)
        owner = owners[bundle]
        if owner is None or owner in brokers:
            held_at[key_of(it.client)] = owner or min(brokers)
    return held_at


def _owned(admin: AdminClient, waits: Sequence[Interrupted], as_of_ms: int) -> list[OwnershipStep]:
    """Who had the bundles of lost brokers next whose clients waited for long, the oldest first."""
    long = [it for it in waits if it.lost and (it.came_at or as_of_ms) - it.since >= LONG_MS]
    if not long:
        return []
    begin_ms = min(it.since for it in long) - LONG_MS
    until_ms = max(it.came_at or as_of_ms for it in long)
    answer = events_of(
        admin, (OwnershipStep.kind,), since_ms=begin_ms, until_ms=until_ms, limit=STEPS_MAX
    )
    bundles = {it.client.bundle for it in long}
    steps = [event.record_as(OwnershipStep) for event in answer.events]
    own = [it for it in steps if it.after == OWNED and it.bundle in bundles]
    return sorted(own, key=lambda it: it.ts)
