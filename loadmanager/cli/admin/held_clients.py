"""Connections that limits hold, in words."""

from __future__ import annotations

from collections.abc import Sequence

from loadmanager.broker.ports.topics import ClientFound, ClientsFound
from loadmanager.cli.admin.asking import OWN, count_of, query
from loadmanager.cli.admin.client import AdminClient
from loadmanager.cli.admin.times import clock
from loadmanager.kit.errors import LoadManagerError
from loadmanager.limits.held_connection import HeldConnection, may_wait_text
from loadmanager.limits.report import ThrottledShown

WAITS_TOO = (
    "a connection that is held is not read: a producer or consumer that is to attach through it "
    "waits as well"
)
SHOWN = 10


def held_text(client: ClientFound) -> str | None:
    """What holds the connection of a client, for which other topic, and since when."""
    if not client.held_by:
        return None
    others = [topic for topic in client.held_for if topic != client.topic]
    of = f" of {' and '.join(others)} on its connection" if others else ""
    since = "" if client.held_since is None else f", since {clock(client.held_since)}"
    return ", ".join(client.held_by) + of + since


def held_now(admin: AdminClient, name: str) -> list[str]:
    """A line for each connection of clients of this name that limits hold now."""
    try:
        answer = admin.get(f"{OWN}/clients{query(find=name, limit=200)}", ClientsFound)
    except LoadManagerError:  # a name too short, or an earlier version
        return []
    lines = {
        each.client: f"now: the connection {each.client} is held since {clock(each.held_since)} "
        f"by {', '.join(each.held_by)} of {' and '.join(each.held_for)}"
        for each in answer.clients
        if each.held_since is not None
    }
    return [*list(lines.values())[:SHOWN], WAITS_TOO] if lines else []


def may_wait_anywhere(admin: AdminClient) -> str:
    """What limits of the cluster may do to those who would attach to a topic that nobody uses;
    empty: nothing that is known.
    """
    try:
        holds = admin.get(f"{OWN}/throttled", ThrottledShown).brokers.values()
    except LoadManagerError:
        return ""
    return may_wait_text([connection for each in holds for connection in each.connections])


def held_for_others(connections: Sequence[HeldConnection], now_ms: int) -> list[str]:
    """Lines about a topic: which of its connections are held at the limits of others, and how many
    others of its broker are.
    """
    own = [each for each in connections if each.uses_topic]
    lines = [
        f"connection {each.client}, which it uses, is held since "
        f"{clock(now_ms - round(each.held_ago_ms))} by {' and '.join(each.limits)}: its clients "
        "there wait as well"
        for each in own[:SHOWN]
    ]
    if len(own) > SHOWN:
        lines.append(f"and {len(own) - SHOWN} more of its connections")
    others = [each for each in connections if not each.uses_topic]
    if others:
        longest = others[0]
        lines.append(
            f"limits hold {count_of(len(others), 'other connection')} to its broker, "
            f"{longest.client} since {clock(now_ms - round(longest.held_ago_ms))} "
            f"({' and '.join(longest.limits)}): whoever is to attach to this topic through one "
            "waits"
        )
    return lines
