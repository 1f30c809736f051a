"""The state of limits, in words and numbers, as JSON for the admin API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec
from msgspec import structs

from loadmanager.kit.model import Shape
from loadmanager.limits.broker import BrokerThrottling, TopicThrottling
from loadmanager.limits.held_connection import HeldConnection
from loadmanager.limits.held_connections import (
    SubscriptionHold,
    held_by_others,
    held_connections,
    held_consumers,
    held_subscriptions,
)
from loadmanager.limits.limit import Limit, Ticket
from loadmanager.limits.publish import CAUSES, Sender
from loadmanager.limits.stats import WINDOW_NS, LimitSnapshot
from loadmanager.limits.tracker import Hold

Waiting = Mapping[Limit, tuple[LimitSnapshot, Mapping[Ticket, int]]]
"""Each limit's figures, and how many go before each ticket that waits; computed once a report,
because thousands may wait.
"""


LIMITS_MAX = 200
"""A report of those that limits held lists so many limits."""


class WaiterShown(Shape):
    """A producer or a subscription that a limit held; `waits`: it does so now."""

    kind: Literal["producer", "subscription"]
    topic: str
    name: str
    client: str | None
    waits: bool
    held_ago_ms: float


class HoldingLimit(LimitSnapshot):
    """A limit that held somebody. Rates are per second, −1 where it has none."""

    topics: list[str]
    waiters: list[WaiterShown]
    waiters_total: int
    waited_lately_ms: float | None = None
    """How long they waited in the last ten seconds, in all; null: of an earlier version."""
    held_ago_ms: float | None = None
    """When it began to hold somebody, again and again since; null: of an earlier version."""


class BrokerHolds(Shape):
    """A broker's limits that held somebody; `causes`: connections that each cause holds now."""

    paused_connections: int
    causes: dict[str, int]
    limits: list[HoldingLimit]
    limits_total: int
    connections: list[HeldConnection] = msgspec.field(default_factory=list)
    """Those that its limits hold: whatever uses them waits."""
    subscriptions: list[SubscriptionHold] = msgspec.field(default_factory=list)
    """Those that its limits hold, or whose consumers wait on such a connection."""


class ThrottledShown(Shape):
    """The brokers that held somebody; why others gave no answer, and how many were not asked."""

    brokers: dict[str, BrokerHolds]
    not_asked: int
    no_answer: dict[str, str]


def broker_report(throttling: BrokerThrottling, now_ns: int) -> dict[str, Any]:
    """Every limit of a broker that has a rate, and what pauses its connections."""
    pauses = throttling.pauses
    return {
        "pausedConnections": pauses.paused_connections,
        "pauses": pauses.pauses,
        "resumes": pauses.resumes,
        "wakeups": throttling.wakeups,
        "causes": {
            cause.value: {
                "connections": totals.connections,
                "times": totals.times,
                "seconds": totals.held_ns / 1e9,
            }
            for cause, totals in pauses.by_cause.items()
        },
        "limits": [limit.snapshot(now_ns) for limit in throttling.limits()],
    }


def topic_report(
    throttling: BrokerThrottling, topic: TopicThrottling, now_ns: int
) -> dict[str, Any]:
    """Why the producers and subscriptions of one topic are slow, the slowest producer first; and
    the connections that are held for other topics.
    """
    waiting = {limit: (limit.snapshot(now_ns), limit.places()) for limit in topic.all_limits()}
    producers = [_producer(sender, waiting, now_ns) for sender in topic.senders]
    producers.sort(key=lambda producer: (-producer["heldSeconds"], producer["producer"]))
    clients = held_consumers(throttling, str(topic.name), now_ns)
    return {
        "topic": str(topic.name),
        "resourceGroup": topic.group_name,
        "limits": [figures for figures, _ in waiting.values()],
        "producers": producers,
        "subscriptions": {
            name: {
                "held": gate.blocked,
                "heldConnections": clients.get(name, []),
                "throttledTimes": {
                    f"{level.value} {what}": times
                    for (level, what), times in sorted(gate.throttled_by.items())
                },
            }
            for name, gate in topic.gates.items()
        },
        "publishRateLimitedTimes": topic.held_times,
        "heldForOthers": held_by_others(throttling, str(topic.name), now_ns),
    }


def held_report(throttling: BrokerThrottling, now_ns: int, waiters_max: int) -> BrokerHolds:
    """The limits of a broker that held somebody lately, each with its figures and with those whom
    it held, at most `waiters_max` of each; the limit that holds most of them first.
    """
    tickets_of: dict[Limit, list[Ticket]] = {}
    for ticket in throttling.schedule.held_lately(now_ns):
        if ticket.limit.active:
            tickets_of.setdefault(ticket.limit, []).append(ticket)
    limits = sorted(tickets_of, key=lambda limit: (-len(tickets_of[limit]), limit.name))
    return BrokerHolds(
        paused_connections=throttling.pauses.paused_connections,
        causes={
            cause.value: totals.connections
            for cause, totals in throttling.pauses.by_cause.items()
            if totals.connections
        },
        limits=[
            HoldingLimit(
                **structs.asdict(limit.snapshot(now_ns)),
                topics=sorted({ticket.waiter.topic for ticket in tickets_of[limit]})[:waiters_max],
                waiters=[_waiter(ticket, now_ns) for ticket in tickets_of[limit][-waiters_max:]],
                waiters_total=len(tickets_of[limit]),
                waited_lately_ms=_waited_ns(limit, tickets_of[limit], now_ns) / 1e6,
                held_ago_ms=(now_ns - _held_since_ns(limit, tickets_of[limit])) / 1e6,
            )
            for limit in limits[:LIMITS_MAX]
        ],
        limits_total=len(limits),
        connections=held_connections(throttling, now_ns),
        subscriptions=held_subscriptions(throttling, now_ns),
    )


def _waited_ns(limit: Limit, tickets: Sequence[Ticket], now_ns: int) -> int:
    """The waits that ended in the last ten seconds, and those that last; of each waiter no more
    than that: a wait may have begun before.
    """
    lasting = (min(now_ns - each.since_ns, WINDOW_NS) for each in tickets if each.holds_up)
    waited_ns = limit.stats.waited_lately_ns(now_ns) + sum(lasting)
    return min(waited_ns, len(tickets) * WINDOW_NS)


def _held_since_ns(limit: Limit, tickets: Sequence[Ticket]) -> int:
    """When it began to hold somebody, again and again since, with the waits that last."""
    lasting = [ticket.since_ns for ticket in tickets if ticket.holds_up]
    return limit.stats.stretch_ns(min(lasting)) if lasting else limit.stats.held_since_ns


def _waiter(ticket: Ticket, now_ns: int) -> WaiterShown:
    waiter = ticket.waiter
    client = waiter.throttle.owner.peer if isinstance(waiter, Sender) else None
    return WaiterShown(
        kind="subscription" if client is None else "producer",
        topic=waiter.topic,
        name=waiter.name,
        client=client,
        waits=ticket.holds_up,
        held_ago_ms=(now_ns - ticket.last_ns) / 1e6,
    )


def _producer(sender: Sender, waiting: Waiting, now_ns: int) -> dict[str, Any]:
    """The holds of a producer, now and since it was attached, and the reason in one sentence."""
    throttle = sender.throttle
    held_ns = sender.held_ns(now_ns)
    return {
        "producer": sender.name,
        "paused": throttle.paused and sender.has_more,
        "why": _why(sender, waiting, throttle.holds(now_ns)),
        "heldSeconds": sender.waited_ns(now_ns) / 1e9,
        "heldSecondsByCause": {cause.value: ns / 1e9 for cause, ns in held_ns.items()},
        "pauses": throttle.throttled_times,
        "chargedMessages": sender.messages,
        "chargedBytes": sender.size_bytes,
    }


def _why(sender: Sender, waiting: Waiting, holds: list[Hold]) -> str:
    """Why a producer is slow, in one sentence."""
    tickets = sender.waiting()
    own = {CAUSES[ticket.limit.level] for ticket in tickets}
    reasons = [_waits(ticket, waiting) for ticket in tickets]
    reasons += [_connection(hold) for hold in holds if hold.cause not in own]
    if reasons and sender.has_more:
        return "held by " + "; and by ".join(reasons)
    if sender.times_held_up:
        times = "once" if sender.times_held_up == 1 else f"{sender.times_held_up} times"
        return f"not held now; was held {times} so far"
    return "no limit of this broker slows it down"


def _waits(ticket: Ticket, waiting: Waiting) -> str:
    figures, places = waiting[ticket.limit]
    ahead = places[ticket]
    place = f", after {ahead} other producers" if ahead else ""
    return (
        f"{figures.name} limit of {configured_text(figures)}, of which {_delivered(figures)} was "
        f"delivered{place}; next turn in {figures.next_ms:.0f} ms"
    )


def configured_text(figures: LimitSnapshot) -> str:
    """Its rates, with their units."""
    rates = ((figures.configured_messages_per_s, "msg/s"), (figures.configured_bytes_per_s, "B/s"))
    return " and ".join(f"{rate:g} {unit}" for rate, unit in rates if rate >= 0)


def _delivered(figures: LimitSnapshot) -> str:
    parts = []
    if figures.configured_messages_per_s >= 0:
        parts.append(f"{figures.delivered_messages_per_s:.1f} msg/s")
    if figures.configured_bytes_per_s >= 0:
        parts.append(f"{figures.delivered_bytes_per_s:.0f} B/s")
    return " and ".join(parts)


def _connection(hold: Hold) -> str:
    of = " and ".join(f"{each.topic} (producer {each.name})" for each in hold.holders)
    cause = f"{hold.cause.value} of {of}" if of else hold.cause.value
    return f"its connection, which is held by {cause} since {hold.for_ns / 1e6:.0f} ms"
