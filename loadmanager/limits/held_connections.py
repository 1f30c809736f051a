"""Connections and subscriptions that limits hold, and whatever else uses these connections.

A publish that a limit holds stops its connection, as in Pulsar. The other producers and consumers
of that connection wait with it, and so does one that would attach through it: its PRODUCER,
SUBSCRIBE or LOOKUP is not read.
"""

from __future__ import annotations

from itertools import islice

from loadmanager.kit.model import Shape
from loadmanager.limits.broker import BrokerThrottling
from loadmanager.limits.held_connection import HeldConnection
from loadmanager.limits.limit import Ticket
from loadmanager.limits.publish import Sender
from loadmanager.limits.schedule import REMEMBERED_NS
from loadmanager.limits.tracker import ConnectionThrottle

CONNECTIONS_MAX = 200
"""A report has so many connections, those that are held longest."""
NAMES_MAX = 20
"""Limits and topics of a connection that a report names."""
SUBSCRIPTIONS_MAX = 200
"""A report has so many subscriptions; first those that are held themselves."""


class SubscriptionHold(Shape):
    """A subscription that limits held in the last ten seconds: it, or a connection of one of its
    consumers.
    """

    topic: str
    subscription: str
    limits: list[str]


def held_connections(throttling: BrokerThrottling, now_ns: int) -> list[HeldConnection]:
    """Those of a broker, the one that is held longest first."""
    connections = [
        _shown(each, tickets, now_ns) for each, tickets in _tickets_of(throttling, now_ns).items()
    ]
    return sorted(connections, key=lambda it: (-it.held_ago_ms, it.client))[:CONNECTIONS_MAX]


def held_by_others(throttling: BrokerThrottling, topic: str, now_ns: int) -> list[HeldConnection]:
    """Those that limits hold for producers of other topics than this one; first those that it
    uses.
    """
    connections = list[HeldConnection]()
    for throttle, tickets in _tickets_of(throttling, now_ns).items():
        if all(ticket.waiter.topic != topic for ticket in tickets):
            shown = _shown(throttle, tickets, now_ns)
            shown.uses_topic = topic in throttle.owner.topics()
            connections.append(shown)
    connections.sort(key=lambda it: (not it.uses_topic, -it.held_ago_ms, it.client))
    return connections[:CONNECTIONS_MAX]


def held_consumers(throttling: BrokerThrottling, topic: str, now_ns: int) -> dict[str, list[str]]:
    """Subscription of a topic → the connections of its consumers that limits hold: neither what
    these acknowledge nor how many messages they want is read meanwhile.
    """
    clients: dict[str, list[str]] = {}
    for throttle in _tickets_of(throttling, now_ns):
        for name in sorted(throttle.owner.subscriptions(topic)):
            clients.setdefault(name, []).append(throttle.owner.peer)
    return {name: sorted(peers)[:NAMES_MAX] for name, peers in clients.items()}


def held_subscriptions(throttling: BrokerThrottling, now_ns: int) -> list[SubscriptionHold]:
    """Those of a broker."""
    limits: dict[tuple[str, str], set[str]] = {}
    for ticket in throttling.schedule.held_lately(now_ns):
        waiter = ticket.waiter
        if not isinstance(waiter, Sender) and ticket.limit.active:
            limits.setdefault((waiter.topic, waiter.name), set()).add(ticket.limit.name)
    for throttle, tickets in _tickets_of(throttling, now_ns).items():
        names = {ticket.limit.name for ticket in tickets}
        for topic in sorted(throttle.owner.topics()):
            for name in sorted(throttle.owner.subscriptions(topic)):
                limits.setdefault((topic, name), set()).update(names)
    return [
        SubscriptionHold(topic, name, sorted(names)[:NAMES_MAX])
        for (topic, name), names in islice(limits.items(), SUBSCRIPTIONS_MAX)
    ]


def _tickets_of(
    throttling: BrokerThrottling, now_ns: int
) -> dict[ConnectionThrottle, list[Ticket]]:
    """The connections that limits hold now or lately, with the places of their producers in the
    queues of limits, of the last minute: producers of one connection may publish in turns, each for
    longer than lately.
    """
    tickets: dict[ConnectionThrottle, list[Ticket]] = {}
    for ticket in throttling.schedule.held_lately(now_ns, REMEMBERED_NS):
        waiter = ticket.waiter
        if not isinstance(waiter, Sender) or not ticket.limit.active:
            continue
        if waiter.throttle.limited_since_ns(now_ns) is not None:
            tickets.setdefault(waiter.throttle, []).append(ticket)
    return tickets


def _shown(throttle: ConnectionThrottle, tickets: list[Ticket], now_ns: int) -> HeldConnection:
    since_ns = throttle.limited_since_ns(now_ns)
    assert since_ns is not None  # see `_tickets_of`
    since_of: dict[str, int] = {}
    for ticket in tickets:
        name, begun_ns = ticket.limit.name, max(ticket.held_again_since_ns, since_ns)
        since_of[name] = min(since_of.get(name, begun_ns), begun_ns)
    names = sorted(since_of)[:NAMES_MAX]
    topics = {ticket.waiter.topic for ticket in tickets}
    others = {*throttle.owner.topics()} - topics
    return HeldConnection(
        client=throttle.owner.peer,
        held_ago_ms=(now_ns - since_ns) / 1e6,
        limits=names,
        limits_held_ago_ms={name: (now_ns - since_of[name]) / 1e6 for name in names},
        topics=sorted(topics)[:NAMES_MAX],
        others=sorted(others)[:NAMES_MAX],
        others_total=len(others),
    )
