"""The limits of a moment, and whom they held, as brokers recorded it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from loadmanager.cli.admin.archives import OLD_MS, figures, listed_at, loads_at
from loadmanager.cli.admin.client import AdminClient
from loadmanager.cli.admin.command import Output
from loadmanager.cli.admin.downtimes import say_down
from loadmanager.cli.admin.names_then import nothing_then
from loadmanager.cli.admin.past_owners import PastBundle, bundles_at, in_bundle
from loadmanager.engine.history.archived import limit_words
from loadmanager.kit.history.archive_answers import ArchivedLoads
from loadmanager.kit.names import TopicName

_TOPIC = re.compile(r"(non-)?persistent://\S+")


def limits_at(
    admin: AdminClient, broker: str | None, at_ms: int, of: TopicName | None = None
) -> Output:
    """What limits held then: of a broker, of a topic or of all."""
    past = loads_at(admin, at_ms, "throttle")
    say_down(admin, at_ms, past)
    bundles, _ = bundles_at(admin, at_ms)
    data: list[dict[str, Any]] = [
        {"broker": loads.broker, "limit": name, "at": loads.ts, **figures(loads, name)}
        for loads in fresh(past.loads, at_ms)
        if broker in (None, loads.broker)
        for name in sorted(loads.figures)
        if in_force(name, loads.broker, bundles) and (of is None or _limits_topic(name, of))
    ]
    if broker is not None and not any(it.broker == broker for it in past.loads):
        past.notes.append(nothing_then(admin, broker, at_ms))
    headers = ("broker", "limit", "msg/s", "delivered", "bytes/s", "delivered", "held", "waited s")
    names = (
        "configured_messages_per_s",
        "delivered_messages_per_s",
        "configured_bytes_per_s",
        "delivered_bytes_per_s",
    )
    rows = [
        (
            row["broker"],
            limit_words(row["limit"]),
            *(None if row[name] == -1 else row[name] for name in names),
            round(row["held"]),
            row["waited_ms"] / 1000,
        )
        for row in data
    ]
    whose = "limit" if of is None else "limit of its own"
    nothing = f"no {whose} was in use then, as far as it is recorded"
    return listed_at(data, headers, rows, past, nothing)


def fresh(loads: Sequence[ArchivedLoads], at_ms: int) -> list[ArchivedLoads]:
    """Those that had not ended long before a moment: a limit is recorded while it is in use."""
    return [it for it in loads if at_ms - it.ts <= max(it.span_ms, OLD_MS)]


def in_force(limit: str, broker: str, bundles: Sequence[PastBundle]) -> bool:
    """False for the limit of a topic whose bundle another broker owned then, or nobody: averages
    have it of all that owned it within their time.
    """
    topic = _TOPIC.search(limit)
    if topic is None:
        return True
    name = TopicName.parse(topic[0])
    there = [it.owner for it in bundles if in_bundle(name, it.bundle)]
    owners = set(filter(None, there))  # others were split or merged about then
    return broker in owners if owners else not there


def _limits_topic(limit: str, topic: TopicName) -> bool:
    """Whether it is a limit of this topic, or of a partition of it."""
    name = _TOPIC.search(limit)
    return name is not None and TopicName.parse(name[0]).partitioned_topic == topic
