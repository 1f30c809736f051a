"""What limits do, in words and numbers: the answers of the admin API."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from loadmanager.core.throttling.broker import BrokerThrottling, TopicThrottling
from loadmanager.core.throttling.limit import Limit, Ticket
from loadmanager.core.throttling.publish import Sender
from loadmanager.core.throttling.stats import LimitSnapshot

Waiting = Mapping[Limit, tuple[LimitSnapshot, Mapping[Ticket, int]]]
"""Each limit's figures, and how many are let go before each of those who wait; computed once for a
report, because thousands may wait.
"""


def broker_report(throttling: BrokerThrottling) -> dict[str, Any]:
    """Every limit of a broker that has a rate, and what pauses its connections."""
    pauses = throttling.pauses
    return {
        "pausedConnections": pauses.paused_connections,
        "pauses": pauses.pauses,
        "resumes": pauses.resumes,
        "wakeups": throttling.wakeups.count,
        "causes": {
            cause.value: {
                "connections": totals.connections,
                "times": totals.times,
                "seconds": totals.held_ns / 1e9,
            }
            for cause, totals in pauses.by_cause.items()
        },
        "limits": [limit_report(limit) for limit in throttling.limits()],
    }


def topic_report(topic: TopicThrottling) -> dict[str, Any]:
    """Why the producers and subscriptions of one topic are slow, if they are: the worst first."""
    waiting = {limit: (limit.snapshot(), limit.places()) for limit in topic.all_limits()}
    producers = [_producer(sender, waiting) for sender in topic.senders]
    return {
        "topic": str(topic.name),
        "resourceGroup": topic.group_name,
        "limits": [_figures(figures) for figures, _ in waiting.values()],
        "producers": sorted(producers, key=lambda one: (-one["heldSeconds"], one["producer"])),
        "subscriptions": {
            name: {
                "held": gate.blocked,
                "throttledTimes": {
                    f"{level.value} {what}": times
                    for (level, what), times in sorted(gate.throttled_by.items())
                },
            }
            for name, gate in topic.gates.items()
        },
        "publishRateLimitedTimes": topic.held_times,
    }


def limit_report(limit: Limit) -> dict[str, Any]:
    """One limit: configured and delivered rates with their error, and who waits."""
    return _figures(limit.snapshot())


def _figures(figures: LimitSnapshot) -> dict[str, Any]:
    return {_camel(name): value for name, value in asdict(figures).items()}


def _producer(sender: Sender, waiting: Waiting) -> dict[str, Any]:
    """One producer: what holds it now, what held it so far, and why in one sentence."""
    throttle = sender.throttle
    held_s = {cause.value: ns / 1e9 for cause, ns in throttle.throttled_ns.items()}
    for hold in throttle.holds():
        held_s[hold.cause.value] = held_s.get(hold.cause.value, 0.0) + hold.for_ns / 1e9
    return {
        "producer": sender.name,
        "paused": throttle.paused,
        "why": _why(sender, waiting),
        "heldSeconds": sum(held_s.values()),
        "heldSecondsByCause": held_s,
        "pauses": throttle.throttled_times,
        "chargedMessages": sender.messages,
        "chargedBytes": sender.size_bytes,
    }


def _why(sender: Sender, waiting: Waiting) -> str:
    """Why a producer is slow, in one sentence."""
    reasons = [*(_waits(ticket, waiting) for ticket in sender.waiting()), *_connection(sender)]
    if reasons:
        return "held by " + "; and by ".join(reasons)
    if sender.times_held:
        return f"not held now; was held {sender.times_held} times so far"
    return "no limit of this broker slows it down"


def _waits(ticket: Ticket, waiting: Waiting) -> str:
    figures, places = waiting[ticket.limit]
    ahead = places[ticket]
    place = f", after {ahead} other producers" if ahead else ""
    return (
        f"{figures.name} limit of {_configured(figures)}, of which {_delivered(figures)} was "
        f"delivered{place}; next turn in {figures.next_ms:.0f} ms"
    )


def _configured(figures: LimitSnapshot) -> str:
    rates = ((figures.configured_messages_per_s, "msg/s"), (figures.configured_bytes_per_s, "B/s"))
    return " and ".join(f"{rate:g} {unit}" for rate, unit in rates if rate >= 0)


def _delivered(figures: LimitSnapshot) -> str:
    parts = []
    if figures.configured_messages_per_s >= 0:
        parts.append(f"{figures.delivered_messages_per_s:.1f} msg/s")
    if figures.configured_bytes_per_s >= 0:
        parts.append(f"{figures.delivered_bytes_per_s:.0f} B/s")
    return " and ".join(parts)


def _connection(sender: Sender) -> Iterator[str]:
    """What holds the connection and is not this producer's own waiting."""
    own = {sender.cause_of(ticket.limit) for ticket in sender.waiting()}
    for hold in sender.throttle.holds():
        if hold.cause not in own:
            yield (
                f"its connection, which is held by {hold.cause.value} since "
                f"{hold.for_ns / 1e6:.0f} ms"
            )


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)
