"""The topics that brokers recorded of a moment, by the records of those that served them then."""

from __future__ import annotations

from typing import Any

from loadmanager.cli.admin.archives import LoadsOfAll, loads_at
from loadmanager.cli.admin.client import AdminClient
from loadmanager.cli.admin.downtimes import say_down
from loadmanager.cli.admin.past_owners import bundles_at
from loadmanager.cli.admin.standing import Standing, Stands, times_text
from loadmanager.cli.admin.times import clock
from loadmanager.engine.bundles.ranges import split_bundle_name
from loadmanager.engine.history.records import TopicLoad
from loadmanager.kit.history.archive_answers import ArchivedLoads
from loadmanager.kit.names import TopicName
from loadmanager.leader.owners_then import PastBundle, figures, in_bundle

COUNTS = ("producers", "consumers", "backlog_messages")
"""What is counted when it is recorded; the rest are means of the time before."""


def topics_then(admin: AdminClient, at_ms: int) -> tuple[dict[str, dict[str, Any]], LoadsOfAll]:
    """Topic → its figures, the `broker` that served it, when its clients and messages were counted
    (`countedAt`), and the `doubt`: why these are not the figures of then. With what is missing.
    """
    past = loads_at(admin, at_ms, TopicLoad.kind)
    say_down(admin, at_ms, past)
    bundles, _ = bundles_at(admin, at_ms)
    of_namespace = dict[str, list[PastBundle]]()
    for it in bundles:
        of_namespace.setdefault(split_bundle_name(it.bundle)[0], []).append(it)
    standing = Standing.of(admin, past, at_ms, TopicLoad.kind)
    latest = {
        name: loads
        for loads in sorted(standing.counts, key=lambda each: each.ts)
        if loads.ts <= at_ms or loads in past.loads
        for name in loads.figures
    }
    topics = {}
    for name, last in latest.items():
        topic = TopicName.parse(name)
        there = [
            it for it in of_namespace.get(str(topic.namespace), []) if in_bundle(topic, it.bundle)
        ]
        bundle = next((it for it in there if it.owner), there[0] if there else None)
        topics[name] = _topic(standing, name, bundle, last)
    standing.say(past, TopicLoad.kind)
    return topics, past


def _topic(
    standing: Standing, name: str, bundle: PastBundle | None, last: ArchivedLoads
) -> dict[str, Any]:
    """`last`: the last record that has it, of whichever broker."""
    owner = last.broker if bundle is None else bundle.owner
    had = owner if bundle is None else owner or bundle.last
    best, counted = None, last
    if bundle is not None and had:
        best = standing.topic(name, bundle.bundle, had)
        counted = standing.counted(name, bundle.bundle, had) or last
    means = counted if best is None else best.loads
    counts = figures(counted, name)
    return {
        "topic": name,
        "broker": owner,
        "at": means.ts,
        **figures(means, name),
        **{column: counts[column] for column in COUNTS},
        "countedAt": counted.ts,
        "doubt": _doubt(best, owner, counted),
    }


def _doubt(best: Stands | None, owner: str | None, counted: ArchivedLoads) -> str:
    doubts = list[str]()
    if owner is not None and counted.broker != owner:
        doubts.append(f"recorded by {counted.broker}, not by its owner of then")
    elif owner is None:
        doubts.append(f"nobody served it; recorded by {counted.broker}")
    if best is not None and best.moved:
        doubts.append(f"messages/s in part: its bundle came or went at {times_text(best.moved)}")
    elif best is not None and best.limited:
        doubts.append(f"messages/s are a mean: limits changed at {times_text(best.limited)}")
    if best is None and not doubts:
        doubts.append(f"messages/s are those until {clock(counted.ts)}")
    return "; ".join(doubts)
