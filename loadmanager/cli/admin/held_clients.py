"""What limits hold, in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from loadmanager.broker.ports.topics import ClientFound, ClientsFound
from loadmanager.cli.admin.asking import OWN, count_of, query
from loadmanager.cli.admin.client import AdminClient
from loadmanager.cli.admin.times import clock, span
from loadmanager.kit.errors import LoadManagerError
from loadmanager.limits.held_connection import HeldConnection, may_wait_text
from loadmanager.limits.report import HoldingLimit, ThrottledShown, configured_text

WAITS_TOO = (
    "a connection that is held is not read: a producer or consumer that is to attach through it "
    "waits as well"
)
SHORT_MS = 1_000
"""Holds that began less than this ago let no lookup time out."""
TIMES_OUT = ", and may time out at its client"
SHOWN = 10
LIMITS_NAMED_MAX = 5
TOPICS_NAMED_MAX = 3
CONNECTIONS_NAMED_MAX = 3


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


def holders_of(admin: AdminClient) -> dict[str, set[str]]:
    """Address, without a port → the brokers where limits hold a connection of it now; empty if
    none is held, or that is not known.
    """
    try:
        holds = admin.get(f"{OWN}/throttled", ThrottledShown).brokers
    except LoadManagerError:  # without a leader, of a daemon, or not allowed
        return {}
    holders = dict[str, set[str]]()
    for broker, of in holds.items():
        for each in of.connections:
            holders.setdefault(each.client.rpartition(":")[0], set()).add(broker)
    return holders


def held_for_others(connections: Sequence[HeldConnection], now_ms: int) -> list[str]:
    """Lines about a topic: which of its connections are held at the limits of others, and how many
    others of its broker are.
    """
    own = [each for each in connections if each.uses_topic]
    lines = [
        f"connection {each.client}, which it uses, is held since "
        f"{clock(now_ms - round(each.held_ago_ms))} by {each.limits_text}: its clients "
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
            f"({longest.limits_text}): whoever is to attach to this topic through one "
            "waits"
        )
    return lines


def waiting_since(
    admin: AdminClient, topic: str, others: Sequence[HeldConnection], at_ms: int
) -> list[str]:
    """Lines about a topic: since when the connections are held that its limits hold, and which
    others are held anywhere, beside the `others` of its own broker: a lookup may go through each.
    """
    try:
        holds = admin.get(f"{OWN}/throttled", ThrottledShown).brokers
    except LoadManagerError:  # without a leader, or of a daemon
        return []
    named = {each.client for each in others}
    own, elsewhere = list[str](), list[tuple[HeldConnection, str]]()
    for broker, of in sorted(holds.items()):
        for each in of.connections:
            since_ms = at_ms - round(each.held_ago_ms)
            if topic in each.topics:
                ago = span(each.held_ago_ms)
                own.append(
                    f"the connection {each.client} waits again and again since {clock(since_ms)} "
                    f"({ago}): {each.limits_text}"
                )
            elif each.client not in named:
                elsewhere.append((each, broker))
    lines = own[:SHOWN] + ([f"and {len(own) - SHOWN} more of these"] if len(own) > SHOWN else [])
    if elsewhere:
        lines.append(elsewhere_text(elsewhere, at_ms))
    return lines


def elsewhere_text(holds: Sequence[tuple[HeldConnection, str]], at_ms: int) -> str:
    """What held connections, each with its broker, mean for a lookup through one. Whatever is sent
    through one is read after what was sent before: that can be long only if it is held for long.
    """
    longest, broker = max(holds, key=lambda it: (it[0].held_ago_ms, it[0].client))
    is_short = longest.held_ago_ms < SHORT_MS
    since = clock(at_ms - round(longest.held_ago_ms))
    how_long = f"for {span(longest.held_ago_ms)} until now" if is_short else f"since {since}"
    return (
        f"limits hold {count_of(len(holds), 'connection')} to other brokers, {longest.client} at "
        f"{broker} {how_long} ({longest.limits_text}): a lookup of this topic through one waits "
        f"until what was sent before it is read{'' if is_short else TIMES_OUT}"
    )


def limits_that_held(throttled: ThrottledShown) -> Iterator[str]:
    """Those that held somebody in the last ten seconds, that for which most was waited first."""
    limits = [(name, each) for name, of in throttled.brokers.items() for each in of.limits]
    if not limits:
        yield "no limit held anybody in the last ten seconds"
    if limits:
        total = sum(of.limits_total for of in throttled.brokers.values())
        waits = [each.waited_lately_ms for _, each in limits if each.waited_lately_ms is not None]
        waited = f", who waited {span(sum(waits))} in all" if waits else ""
        yield f"{count_of(total, 'limit')} held somebody in the last ten seconds{waited}:"
        limits.sort(key=lambda it: (-(it[1].waited_lately_ms or 0.0), it[1].name, it[0]))
        yield from (f"    {_holds(each, it)}" for it, each in limits[:LIMITS_NAMED_MAX])
        if total > LIMITS_NAMED_MAX:
            yield f"    and {total - LIMITS_NAMED_MAX} more: `loadmanager admin limits list`"
    yield from others_that_wait(throttled)
    silent = [*throttled.no_answer]
    if silent:
        yield f"what limits hold is not known of {', '.join(silent[:SHOWN])}"
    if throttled.not_asked:
        yield f"{count_of(throttled.not_asked, 'broker')} not asked what limits hold"


def others_that_wait(throttled: ThrottledShown) -> Iterator[str]:
    """The connections that limits hold and other topics use, too, that of most topics first."""
    connections = [
        (broker, it)
        for broker, of in sorted(throttled.brokers.items())
        for it in of.connections
        if it.others_total
    ]
    connections.sort(key=lambda each: -each[1].others_total)
    for broker, it in connections[:CONNECTIONS_NAMED_MAX]:
        left = it.others_total - len(it.others[:TOPICS_NAMED_MAX])
        more = f" and {left} more" if left > 0 else ""
        yield (
            f"    {it.limits_text}: the connection {it.client} to {broker} is not read "
            f"meanwhile; {count_of(it.others_total, 'other topic')} of it must wait as well: "
            f"{', '.join(it.others[:TOPICS_NAMED_MAX])}{more}"
        )
    if len(connections) > CONNECTIONS_NAMED_MAX:
        others = len(connections) - CONNECTIONS_NAMED_MAX
        yield f"    and {count_of(others, 'more connection')} with other topics"


def _holds(limit: HoldingLimit, broker: str) -> str:
    """A limit, whom it held, and for how long."""
    kinds = {each.kind for each in limit.waiters}
    who = count_of(limit.waiters_total, kinds.pop() if len(kinds) == 1 else "client")
    named = [topic for topic in limit.topics if topic not in limit.name]
    on = f" on {', '.join(named[:TOPICS_NAMED_MAX])}" if named else ""
    if len(named) > TOPICS_NAMED_MAX:
        on += f" and {len(named) - TOPICS_NAMED_MAX} more"
    lasts = "" if limit.held_ago_ms is None else f", again and again for {span(limit.held_ago_ms)}"
    waited = "" if limit.waited_lately_ms is None else f", waited {span(limit.waited_lately_ms)}"
    return f"{limit.name} ({configured_text(limit)}) at {broker}: {who}{on}{lasts}{waited}"
