"""The words for what is wrong, for the nightly report as for the leader."""

from __future__ import annotations

from loadmanager.engine.load.reports import ResourceUsage
from loadmanager.kit.units import DAY_MS, HOUR_MS, MIB, MINUTE_MS, free_text

STUCK = "one value"
IMPOSSIBLE = "more used than there is"
NO_SENSOR = "no sensor that can be trusted"
WRONG_SENSOR = "Decisions that go by this sensor are wrong."
TWO_SCORES = (
    "If shedding and placement score different things, use one strategy for both (AvgShedder, or "
    "BalancedShedder with BalancedPlacement). "
)
STAY = (
    "A longer loadBalancerSheddingGracePeriodMinutes saves such moves. A pin keeps a bundle where "
    "it is."
)
RECONNECT = "Every move makes its clients reconnect."
SYNCHRONISE = "Synchronise it (chrony, ntpd)."
ONE_TOPIC = "A topic is served by one broker at a time, and no split divides it."
PARTITION = "Partition it."
LEADER_LOGS = (
    "Look at the logs of brokers that led: a lost session, a paused process, or a step that failed "
    "again and again."
)
START_AGAIN = (
    "Look at its process, its machine and its network, and start it again. If it is not to come "
    "back: `loadmanager admin brokers forget`."
)
LOST_OFTEN = (
    "Its log and its machine say why it ends, is cut off or stands still again and again. Until "
    "that is mended: `loadmanager admin drain` takes its bundles away, and keeps others off it."
)
KEPT_BACK = (
    "`loadmanager admin bundles unpin` ends a pin; a grace period ends after "
    "loadBalancerSheddingGracePeriodMinutes. An operator's move needs to wait for neither."
)
LOOK_UP = (
    "Clients that look up have each placed at once: see whether they run, whom they reach, whether "
    "a limit holds the connection by which they look up (`loadmanager admin limits why TOPIC`), "
    "and why placements fail (`loadmanager admin decisions`)."
)
OWN_CONNECTION = (
    "If that load is legitimate, raise the limit. Have its producers use connections of their own."
)
WHEN_FULL = {
    "topics": "producers are refused",
    "history": "records of the history are dropped",
    "store": "the metadata store stops, so that nothing is placed, moved or set",
}
"""What is stored → what happens when its disk is full."""
MAKE_ROOM = (
    "Free some of it, or make it larger. Topics: consume or delete what nobody needs "
    "(`loadmanager admin topics backlogs`). History and archive: loadManagerHistoryMaxBytes and "
    "loadManagerArchiveMaxBytes say how much they take."
)
CATCH_UP = (
    "Consumers must take more than comes in: add some, or see what holds them. Delete a "
    "subscription that nobody needs."
)

RAISE_THE_LIMIT = (
    "Raise that limit, or remove it, if the broker can bear what the consumers would take; until "
    "then more consumers take no more."
)


def sensor(name: str, broker: str, fault: str) -> str:
    """A title."""
    return f"{name} of {broker}: {fault}"


def sensor_advice(name: str) -> str:
    """Where to look when a sensor lies."""
    if name in ("cpu", "memory", "directMemory"):
        return "In containers, check the cgroup's limits."
    return "loadBalancerOverrideBrokerNicSpeedGbps says a NIC's speed where the system does not."


def held_back(limit: str, share: float, when: str) -> str:
    """A title: a limit that held somebody for this part of a time."""
    return f"{limit} held clients back in {share:.0%} of {when}"


def connections_held(connections: int, limits: str, others: int) -> str:
    """A title: connections that a limit holds for minutes, which other topics use."""
    are = "1 connection is" if connections == 1 else f"{connections:,} connections are"
    wait = "1 other topic waits" if others == 1 else f"{others:,} other topics wait"
    return f"{are} held for minutes by {limits}; {wait}"


def held_advice(level: str) -> str:
    """What to do about a limit that holds clients most of the time."""
    if level == "resource group":
        return "If that load is legitimate, raise the limit."
    return (
        "If that load is legitimate, raise the limit, or give the clients a resource group of "
        "their own."
    )


def configured(messages_per_s: float | None, bytes_per_s: float | None) -> str:
    """The rates of a limit; none and a negative one are unlimited."""
    return " and ".join(
        text
        for value, text in (
            (messages_per_s, f"{messages_per_s:g} messages/s"),
            (bytes_per_s, f"{bytes_per_s:g} bytes/s"),
        )
        if value is not None and value >= 0
    )


def clock(broker: str, ahead_ms: float) -> str:
    """A title."""
    way = "ahead" if ahead_ms > 0 else "behind"
    return f"The clock of {broker} is {abs(ahead_ms) / 1000:.1f} s {way}"


def messages(count: int) -> str:
    """So many of them."""
    return f"{count:,} {'message' if count == 1 else 'messages'}"


def backlog(subscription: str, topic: str, how: str) -> str:
    """A title; `how`: what it does."""
    return f"The backlog of {subscription} at {topic} {how}"


def lost(broker: str) -> str:
    """A title."""
    return f"{broker} was lost, and is not back"


def lost_often(broker: str, times: int, within: str) -> str:
    """A title: a broker that is back."""
    return f"{broker} was lost {times} times within {within}, and is back"


def uneven(broker: str, usage: float, mean: float) -> str:
    """A title: a broker that is used more than others, whose bundles stay."""
    return (
        f"{broker} is used at {usage:.0%}, {100 * (usage - mean):.0f} points above the mean, and "
        "pins or grace periods keep bundles where they are"
    )


def unserved(count: int, broker: str, how: str) -> str:
    """A title: bundles of a broker that left, which have no owner since."""
    what = "1 bundle has" if count == 1 else f"{count:,} bundles have"
    return f"{what} no owner since {broker} {'was lost' if how == 'lost' else 'stopped'}"


def disk(broker: str, name: str, percent: float, left_ms: float | None) -> str:
    """A title; `left_ms`: when it is full at the present rate, if it fills."""
    title = f"The disk of {broker} with its {name} is {percent:.0f}% full"
    if left_ms is None or left_ms > 2 * DAY_MS:
        return title
    hours = left_ms >= 2 * HOUR_MS
    when = f"{left_ms / HOUR_MS:.0f} h" if hours else f"{left_ms / MINUTE_MS:.0f} min"
    return f"{title}, and full in {when} at the rate of the last hour"


def room(usage: ResourceUsage) -> str:
    """How much may still be written."""
    free, size = usage.limit - usage.usage, usage.limit
    return f"{free_text(free * MIB, size * MIB)}."


def once_full(name: str) -> str:
    """What happens then."""
    what = [text for stored, text in WHEN_FULL.items() if stored in name.split(", ")]
    return f"Once it is full, {' and '.join(what) or 'what writes there fails'}."


def carried(what: str, share: float, verb: str = "carried") -> str:
    """A title."""
    return f"{what} {verb} {share:.0%} of all traffic"
