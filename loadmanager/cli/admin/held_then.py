"""Connections that limits held while clients waited, as brokers recorded it, and those of now."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import inf

from loadmanager.cli.admin.archives import now_ms, parts_of
from loadmanager.cli.admin.asking import OWN
from loadmanager.cli.admin.client import AdminClient
from loadmanager.engine.history.clients import ClientStep
from loadmanager.engine.history.waits import Interrupted, Loss
from loadmanager.kit.errors import LoadManagerError
from loadmanager.kit.history.archive_answers import ArchivedEvents
from loadmanager.kit.units import HOUR_MS
from loadmanager.limits.report import ThrottledShown

HOLDS_MAX = 1_000
"""Records that are asked of one broker."""
AGO_MS = 24 * HOUR_MS
"""Connections that were held for longer by then are not looked for."""
NEAR_MS = 10_000
"""Limits hold a connection for some seconds before it is recorded, and for some after the last look
at it.
"""
LONG_MS = 5_000
"""Whoever is back sooner was not kept from looking up its topic by a limit."""
LEAST_MS = 1_000
"""Whoever waited for a limit for less than this did not wait because of it."""


@dataclass(frozen=True, slots=True)
class ConnectionHold:
    """A connection that limits held for a time, now and then or all the time."""

    broker: str
    client: str
    """Its address and port."""
    begin: int
    end: float
    """Infinite: it is held still."""
    looks: tuple[tuple[int, str], ...]
    """When it was looked at, and which limits held it then: others may have at other times."""

    def overlap_ms(self, it: Interrupted, as_of_ms: int) -> float:
        """For how much of its wait a client may have waited for a limit, too."""
        until_ms = it.came_at or as_of_ms
        return min(self.end, until_ms) - max(self.begin, it.since)

    def is_of(self, it: Interrupted) -> bool:
        """Whether it is the connection over which a client came back, or tried to."""
        return (self.broker, self.client) in {(it.back, it.over), *it.tried}

    def limits_for(self, it: Interrupted, as_of_ms: int) -> str | None:
        """Which limits held it while a client waited; None: not known."""
        return self.limits_between(it.since, it.came_at or as_of_ms)

    def limits_between(self, begin_ms: int, end_ms: int) -> str | None:
        """Which limits held it in a time, by the first look then, or by those before and after, if
        these agree; None: not known.
        """
        then = [limits for ts, limits in self.looks if begin_ms <= ts <= end_ms + NEAR_MS]
        if not then and len({limits for _, limits in self.looks}) == 1:
            then = [self.looks[0][1]] if self.looks[-1][0] >= end_ms else []
        return next(iter(then), None)


def address_of(client: str) -> str:
    """Without the port."""
    return client.rpartition(":")[0]


def held_between(
    admin: AdminClient, begin_ms: int, end_ms: int, losses: Sequence[Loss]
) -> list[ConnectionHold]:
    """The connections that limits held in a time; none of brokers that do not record it. `losses`:
    of brokers that were lost or stopped, whose connections ended with them.
    """
    kinds = [("kind", f"{ClientStep.kind}.{it}") for it in ("held", "freed")]
    values = [*kinds, ("since", max(0, begin_ms - AGO_MS)), ("until", end_ms), ("limit", HOLDS_MAX)]
    parts = parts_of(admin, "events", values, ArchivedEvents).parts.values()
    steps = [event.record_as(ClientStep) for part in parts for event in part.events]
    return _with_those_of_now(_holds_of(steps, losses), _held_now(admin))


def _holds_of(steps: Iterable[ClientStep], losses: Sequence[Loss]) -> list[ConnectionHold]:
    """Of those that no record ends, the end is the last sign of their broker, if it ended: whether
    it held them until the end of its session is not known.
    """
    open_ones, holds = dict[tuple[str, str], ClientStep](), list[ConnectionHold]()
    for step in sorted(steps, key=lambda it: (it.ts, it.event == "held")):
        if step.event == "held":
            open_ones[step.broker, step.client] = step
            continue
        first = open_ones.pop((step.broker, step.client), None)
        of = [step] if first is None else [first, step]
        holds.append(_hold(of, step.ts))
    for step in open_ones.values():
        ends = [
            max(step.ts, it.ts - it.unheard_ms)
            for it in losses
            if it.broker == step.broker and it.ts >= step.ts
        ]
        holds.append(_hold([step], min(ends, default=step.ts)))
    return holds


def _hold(steps: Sequence[ClientStep], end: float) -> ConnectionHold:
    """Of the records of one hold, in order."""
    last, looks = steps[-1], tuple((it.ts, it.reason) for it in steps)
    begin = last.ts - (last.held_ms or 0)
    return ConnectionHold(last.broker, last.client, begin, end, looks)


def _with_those_of_now(
    recorded: Sequence[ConnectionHold], now: Iterable[ConnectionHold]
) -> list[ConnectionHold]:
    """What a record began and no other ended goes on, if it is held now."""
    holds = list(recorded)
    for it in now:
        begun = next((each for each in holds if _goes_on(each, it)), None)
        if begun is None:
            holds.append(it)
        else:
            holds.remove(begun)
            holds.append(replace(begun, end=it.end, looks=(*begun.looks, *it.looks)))
    return holds


def _goes_on(before: ConnectionHold, now: ConnectionHold) -> bool:
    same = (before.broker, before.client) == (now.broker, now.client)
    return same and abs(before.begin - now.begin) <= LEAST_MS


def _held_now(admin: AdminClient) -> list[ConnectionHold]:
    try:
        shown = admin.get(f"{OWN}/throttled", ThrottledShown)
    except LoadManagerError:  # without a leader, of a daemon, or not allowed
        return []
    at_ms = now_ms()
    return [
        ConnectionHold(
            broker,
            it.client,
            at_ms - round(it.held_ago_ms),
            inf,
            ((at_ms, " and ".join(it.limits)),),
        )
        for broker, of in shown.brokers.items()
        for it in of.connections
    ]


def longest_for(
    holds: Iterable[ConnectionHold], it: Interrupted, as_of_ms: int, still_ms: int = 0
) -> ConnectionHold | None:
    """The hold that a client waited for longest: of the connection over which it came back, or
    tried to. Of one that is not back, or waited for long, of any connection of its address, but not
    at the broker that it had lost: it may have asked there where its topic is. Limits of its
    namespace go first. `still_ms`: until when the broker that it had lost stood still, or could not
    prove its session: until then, it was for this that the client waited.
    """
    address = address_of(it.client.client)
    of_address = [
        hold
        for hold in holds
        if address_of(hold.client) == address
        and not (it.lost and hold.broker == it.client.broker)
        and hold.overlap_ms(it, as_of_ms) >= LEAST_MS
    ]
    if it.came_at is not None:
        own = [hold for hold in of_address if hold.is_of(it)]
        rest = replace(it, since=min(max(it.since, still_ms), it.came_at))
        waited_ms = rest.waited_ms(as_of_ms)
        others = [each for each in of_address if 2 * each.overlap_ms(rest, as_of_ms) >= waited_ms]
        of_address = own or (others if waited_ms >= LONG_MS else [])
    namespace = f"{(it.client.topic or '').rpartition('/')[0]}/"

    def rank(hold: ConnectionHold) -> tuple[bool, float]:
        is_near = namespace in (hold.limits_for(it, as_of_ms) or "")
        return is_near, hold.overlap_ms(it, as_of_ms)

    return max(of_address, key=rank, default=None)
