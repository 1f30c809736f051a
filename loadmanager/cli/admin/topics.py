"""`loadmanager admin topics …`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import click

from loadmanager.broker.admin.documents import Partitions
from loadmanager.cli.admin.asking import (
    OWN,
    PARTITIONS_MAX,
    V2,
    count_of,
    namespace_path,
    partitions_of,
    query,
    topic_path,
)
from loadmanager.cli.admin.client import AdminClient, AnsweredError
from loadmanager.cli.admin.command import AdminGroup, Output, done
from loadmanager.cli.admin.nearest import asked_for, did_you_mean, near_names
from loadmanager.cli.admin.shapes import LookupShown, Names, TopicStats
from loadmanager.cli.admin.times import at_option, clock, since_option, span, time_of_day
from loadmanager.cli.terminal import Shown, table, word
from loadmanager.kit.errors import OperationalError
from loadmanager.kit.metadata import paths
from loadmanager.kit.names import TopicName
from loadmanager.kit.units import MIB
from loadmanager.leader.documents.findings import (
    SILENT_MS,
    BacklogsShown,
    BusiestTopicsShown,
    BusyTopic,
    SilentTopicsShown,
)

NAMED_MAX = 3
NOT_FOUND = 404
NOT_OPEN = "nobody has it open"
"""Of a topic that is non-persistent, and has no record."""
SUMS = "of each topic, the sum of its subscriptions: which of them has how much is not recorded"
group = AdminGroup(
    "topics",
    help="List, lookup, create, delete, unload, partitions, stats, backlogs, busiest, silent.",
)
_topic = click.argument("topic")


@group.command("list")
@click.argument("namespace", metavar="TENANT/NAMESPACE")
@at_option
def topics_list(admin: AdminClient, namespace: str, at: int | None) -> Output:
    """List the topics of a namespace, one a line: as `xargs` and a shell take them.

    Names with spaces, quotes or control characters are quoted; --json has them as they are. With
    --at, the persistent ones of then, by who made and deleted topics since.
    """
    names = admin.get(f"{namespace_path(namespace)}/topics?mode=ALL", Names)
    if at is not None:
        from loadmanager.cli.admin.archives import incomplete  # they take time
        from loadmanager.cli.admin.past_documents import topics_then

        then, notes, missing = topics_then(admin, namespace, names, at)
        shown = list(map(word, then)) or f"no topic was in {namespace}, as far as it is recorded"
        return Output(then, (shown, *incomplete(notes)), missing=missing)
    return Output(names, list(map(word, names)) or f"no topic in {namespace}")


@group.command("lookup")
@_topic
@at_option
def topics_lookup(admin: AdminClient, topic: str, *, at: int | None) -> Output:
    """Show the broker that serves a topic, or each of its first 100 partitions; a bundle without an
    owner is placed first. Of one that does not exist, the nearest names are told, and who asked for
    it in the last hour; a topic is not created.

    With --at, the broker that owned its bundle then; nothing is placed.
    """
    partitions = partitions_of(admin, topic)
    if at is not None:
        return _owner_at(admin, partitions or [topic], at)
    lookups = [_lookup(admin, name) for name in partitions or [topic]]
    rows = [[str(each["topic"]), str(each["bundle"]), *_urls(each)] for each in lookups]
    name = str(TopicName.parse(topic))
    data: dict[str, Any] = {"topic": name, "partitions": lookups} if partitions else lookups[0]
    shown = table(("topic", "bundle", "broker", "http"), rows)
    if not partitions and is_missing(admin, topic):
        why = "no such topic here" if data["topic"].startswith("persistent:") else NOT_OPEN
        near = near_names(admin, name)
        hints = [*did_you_mean(near), *asked_for(admin, name)]
        data |= {"exists": False, "near": near}
        return Output(data, ([f"{why}: it would be served by"], shown, hints))
    more = ["and more partitions"] if len(partitions) == PARTITIONS_MAX else []
    return Output(data, (shown, *more))


def is_missing(admin: AdminClient, topic: str) -> bool:
    """Whether no record has a topic, and its owner does not have it open."""
    try:
        _partitions(admin, topic)
    except AnsweredError as error:
        return error.status == NOT_FOUND
    return False


def _lookup(admin: AdminClient, topic: str) -> dict[str, object]:
    path = f"/lookup/v2/topic/{topic_path(topic)}"
    return {
        "topic": str(TopicName.parse(topic)),
        "bundle": admin.text(f"{path}/bundle"),
        **admin.ask("GET", path, None, LookupShown)[1],
    }


def _urls(lookup: Mapping[str, object]) -> tuple[str, str]:
    """By the binary protocol and by HTTP; with TLS where there is no other port."""
    binary = lookup.get("brokerUrl") or lookup.get("brokerUrlTls") or ""
    return str(binary), str(lookup.get("httpUrl") or lookup.get("httpUrlTls") or "")


def _owner_at(admin: AdminClient, topics: Sequence[str], at_ms: int) -> Output:
    from loadmanager.cli.admin.archives import listed_at  # these take time
    from loadmanager.cli.admin.names_then import nothing_then, unknown_then
    from loadmanager.cli.admin.past_owners import bundles_at
    from loadmanager.leader.owners_then import in_bundle

    bundles, past = bundles_at(admin, at_ms)
    owners = []
    for name in map(TopicName.parse, topics):
        there = [it for it in bundles if in_bundle(name, it.bundle)]
        if any(it.owner for it in there):  # others were split or merged about then
            there = [it for it in there if it.owner]
        check = unknown_then if there else nothing_then
        past.notes += filter(None, [check(admin, str(name), at_ms)])
        owners += [(str(name), it.bundle.rpartition("/")[2], it) for it in there]
    data = []
    for of, within, it in owners:
        fields = it.owner_fields
        data.append({"topic": of, "bundle": within, "broker": fields.pop("owner"), **fields})
    rows = [(of, span, it.owner_text) for of, span, it in owners]
    return listed_at(data, ("topic", "bundle", "broker"), rows, past)


@group.command("partitions")
@_topic
@at_option
def topics_partitions(admin: AdminClient, topic: str, at: int | None) -> Output:
    """Show the number of partitions of a topic; 0: it is not partitioned. With --at, of then."""
    count = _partitions(admin, topic)
    if at is not None:
        present = {"partitions": count} if count else None
        from loadmanager.cli.admin.past_documents import document_then  # it takes time

        return document_then(admin, paths.partitioned_topic(TopicName.parse(topic)), present, at)
    return Output({"partitions": count}, str(count))


def _path(topic: str) -> str:
    return f"{V2}/{topic_path(topic)}"


def _partitions(admin: AdminClient, topic: str) -> int:
    return admin.get(f"{_path(topic)}/partitions", Partitions).partitions


@group.command("create")
@_topic
@click.option("--partitions", type=int, metavar="N", help="with N partitions")
def topics_create(admin: AdminClient, topic: str, *, partitions: int | None) -> Output:
    """Create a topic."""
    if partitions is None:
        admin.send("PUT", _path(topic))
        return done(f"{topic} created{_loaded(admin, topic)}", topic=topic)
    admin.send("PUT", f"{_path(topic)}/partitions", partitions)
    text = f"{topic} created with {count_of(partitions, 'partition')}"
    text += "; brokers load them when clients or `topics stats` ask for them"
    return done(text, topic=topic, partitions=partitions)


def _loaded(admin: AdminClient, topic: str) -> str:
    """Have its owner load a topic; says who that is."""
    try:
        admin.get(f"{_path(topic)}/stats", TopicStats)
        lookup = admin.get(f"/lookup/v2/topic/{topic_path(topic)}", LookupShown)
        return f"; {_urls(lookup)[1]} serves it"
    except OperationalError as error:
        return f"; no broker has loaded it yet: {error}"


@group.command("delete")
@_topic
@click.option("--force", is_flag=True, help="although it has clients or subscriptions")
def topics_delete(admin: AdminClient, topic: str, *, force: bool) -> Output:
    """Delete a topic with its partitions, messages and subscriptions."""
    path = f"{_path(topic)}/partitions" if _partitions(admin, topic) else _path(topic)
    admin.send("DELETE", path + query(force=force))
    return done(f"{topic} deleted", topic=topic)


@group.command("unload")
@_topic
def topics_unload(admin: AdminClient, topic: str) -> Output:
    """Close a topic at its owner; its clients open it again."""
    admin.send("PUT", f"{_path(topic)}/unload")
    return done(f"{topic} unloaded", topic=topic)


@group.command("backlogs")
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=20, metavar="N", help="at most N lines"
)
@click.option(
    "--least",
    type=click.IntRange(1),
    default=1,
    metavar="N",
    help="backlogs of at least N messages",
)
@at_option
def topics_backlogs(admin: AdminClient, limit: int, least: int, at: int | None) -> Output:
    """Show the subscriptions with the most messages that they have not acknowledged, of all
    brokers. MESSAGES are those of one subscription; `topics stats` counts entries, of which a batch
    is one. Brokers whose topics are not counted are named, with status 1. With --at, what was
    recorded next to then, and of topics: the sum of their subscriptions.
    """
    if at is not None:
        then = _topics_at(admin, at, limit, lambda topic: _backlog_of(topic, least))
        return replace(then, shown=(*then.shown, SUMS))
    answer, raw = admin.ask("GET", f"{OWN}/backlogs", None, BacklogsShown)
    greatest = [
        (broker, each)
        for broker, those in answer.brokers.items()
        for each in those
        if each.messages >= least
    ]
    greatest.sort(key=lambda item: (-item[1].messages, item[1].topic, item[1].subscription))
    rows = [
        (
            *(each.topic, each.subscription, each.messages),
            *(each.rate_in, each.rate_out, each.consumers, broker),
        )
        for broker, each in greatest[:limit]
    ]
    headers = (
        *("topic", "subscription", "messages"),
        *("topic in/s", "topic out/s", "topic's consumers", "broker"),
    )
    notes = [f"and {len(greatest) - limit} more"] if len(greatest) > limit else []
    if answer.not_asked:
        notes.append(f"{count_of(answer.not_asked, 'broker')} not asked")
    from loadmanager.cli.admin.absences import uncounted  # it takes time

    missing, unasked = uncounted(admin, answer.no_answer)
    notes += unasked
    counted = " that was counted" if missing else ""
    size = "" if least == 1 else f" of {least:,} messages"
    nothing = f"no topic{counted} has a backlog{size}"
    shown: Shown = table(headers, rows) if rows else nothing
    return Output(raw, (shown, notes), missing=missing)


@group.command("busiest")
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=20, metavar="N", help="at most N topics"
)
@at_option
def topics_busiest(admin: AdminClient, limit: int, at: int | None) -> Output:
    """Show the topics with most traffic of all brokers, in the last period over which it is
    averaged; `bundles list` has the bundles. Brokers whose topics are not counted are named, with
    status 1.
    """
    if at is not None:
        return _topics_at(admin, at, limit, _bytes_of)
    answer, raw = admin.ask("GET", f"{OWN}/busiest-topics", None, BusiestTopicsShown)
    busiest = [(broker, each) for broker, those in answer.brokers.items() for each in those]
    busiest.sort(key=lambda item: (-(item[1].bytes_in + item[1].bytes_out), item[1].topic))
    rows = [
        (
            each.topic,
            each.rate_in,
            each.rate_out,
            (each.bytes_in + each.bytes_out) / 1024,
            each.producers,
            each.consumers,
            each.subscriptions,
            None if each.stored_bytes is None else each.stored_bytes / MIB,
            broker,
        )
        for broker, each in busiest[:limit]
    ]
    headers = (
        *("topic", "msg in/s", "msg out/s", "KiB/s", "producers", "consumers"),
        *("subscriptions", "stored MiB", "broker"),
    )
    notes = unread_note([each for _, each in busiest])
    notes += [f"and {len(busiest) - limit} more"] if len(busiest) > limit else []
    if answer.not_asked:
        notes.append(f"{count_of(answer.not_asked, 'broker')} not asked")
    from loadmanager.cli.admin.absences import uncounted  # it takes time

    missing, unasked = uncounted(admin, answer.no_answer)
    notes += unasked
    nothing = "no topic that was counted has traffic" if missing else "no topic has traffic"
    shown: Shown = table(headers, rows) if rows else nothing
    return Output(raw, (shown, notes), missing=missing)


@group.command("silent")
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=20, metavar="N", help="at most N topics"
)
@since_option
@at_option
def topics_silent(admin: AdminClient, limit: int, since: int | None, *, at: int | None) -> Output:
    """Show the open topics to which nothing was published for a minute, those first that fell
    silent last; then those with producers of which no message is known. With --since, only those
    that fell silent since then; with --at, those that were silent then and are still. Brokers whose
    topics are not counted are named, with status 1.
    """
    from loadmanager.cli.admin.absences import uncounted  # it takes time

    path = f"{OWN}/silent-topics{query(since=since, at=at)}"
    answer, raw = admin.ask("GET", path, None, SilentTopicsShown)
    silent = [(broker, each) for broker, those in answer.brokers.items() for each in those]
    silent.sort(key=lambda item: (-(item[1].published or 0), item[1].topic))
    rows = [
        (
            each.topic,
            None if each.published is None else clock(each.published),
            None if each.published is None else span(answer.at - each.published),
            *(each.producers, each.consumers, broker),
        )
        for broker, each in silent[:limit]
    ]
    notes = [f"and {len(silent) - limit} more"] if len(silent) > limit else []
    if any(each.published is None for _, each in silent[:limit]):
        notes.append(
            "- : no message came since the topic was opened there; `topics stats` looks for the "
            "last one in the records"
        )
    if at is not None:
        notes.append(
            "producers and consumers are those of now; topics that were silent then and had a "
            "message since, or are open no more, are not known"
        )
    if answer.not_asked:
        notes.append(f"{count_of(answer.not_asked, 'broker')} not asked")
    missing, unasked = uncounted(admin, answer.no_answer)
    notes += unasked
    notes += young_notes(answer)
    of = "topic that was counted" if missing or answer.young else "open topic"
    nothing = _none_silent(of, since, at)
    notes.append(
        f"silent: without a message for {span(SILENT_MS)}; one that fell silent later is not "
        "listed, and one that had a message since neither: `loadmanager admin history TOPIC` tells "
        "its earlier silences, where they are recorded"
    )
    headers = ("topic", "silent since", "for", "producers", "consumers", "broker")
    shown: Shown = table(headers, rows) if rows else nothing
    return Output(raw, (shown, notes), missing=missing)


def _none_silent(of: str, since: int | None, at: int | None) -> str:
    if since is not None:
        return f"no {of} fell silent since {clock(since)}; without --since, all that are silent"
    return f"no {of} is silent" if at is None else f"no {of} was silent then and is still"


def young_notes(answer: SilentTopicsShown) -> list[str]:
    """Which brokers may not have all topics open again."""
    return [
        f"{name} was started {span(age_ms)} ago: topics that were open before may not be open "
        "again, and are not counted then"
        for name, age_ms in answer.young.items()
    ]


def _topics_at(
    admin: AdminClient,
    at_ms: int,
    limit: int,
    order: Callable[[Mapping[str, float]], float],
    of: str = "",
) -> Output:
    """The topics with the greatest figure of what was recorded at a moment, but for those whose
    figure is 0; `of`: this one, or its partitions.
    """
    from loadmanager.cli.admin.archives import listed_at
    from loadmanager.cli.admin.names_then import nothing_then  # these take time
    from loadmanager.cli.admin.past_topics import topics_then

    recorded, past = topics_then(admin, at_ms)
    topics = [
        each
        for name, each in recorded.items()
        if order(each) > 0 and (not of or str(TopicName.parse(name).partitioned_topic) == of)
    ]
    topics.sort(key=lambda each: (-order(each), each["topic"]))
    if of and not topics:
        past.notes.append(nothing_then(admin, of, at_ms))
    names = ("msg_rate_in", "msg_rate_out", "backlog_messages", "producers", "consumers")
    rows = [
        (
            each["topic"],
            *(each[name] for name in names[:2]),
            _bytes_of(each) / 1024,
            *(round(each[name]) for name in names[2:]),
            time_of_day(each["countedAt"]),
            each["broker"],
            each["doubt"],
        )
        for each in topics[:limit]
    ]
    headers = (
        *("topic", "msg in/s", "msg out/s", "KiB/s", "backlog"),
        *("producers", "consumers", "counted", "broker", ""),
    )
    return listed_at(topics[:limit], headers, rows, past, "no such topic is recorded of then")


def _bytes_of(topic: Mapping[str, float]) -> float:
    return topic["msg_throughput_in"] + topic["msg_throughput_out"]


def _backlog_of(topic: Mapping[str, float], least: int) -> float:
    """0 for one that is smaller."""
    messages = topic["backlog_messages"]
    return messages if messages >= least else 0.0


def unread_note(topics: Sequence[BusyTopic]) -> list[str]:
    """Those of some topics that store what no subscription is to read."""
    unread = [each.topic for each in topics if each.stored_bytes and each.subscriptions == 0]
    more = f" and {len(unread) - NAMED_MAX} more" if len(unread) > NAMED_MAX else ""
    names = ", ".join(unread[:NAMED_MAX])
    return [f"stored, and no subscription is to read it: {names}{more}"] if unread else []


def unread_text(subscriptions: Mapping[str, object], stored_bytes: int) -> str:
    """That what a topic stores is in no backlog; empty if a subscription is to read it."""
    if subscriptions or not stored_bytes:
        return ""
    return (
        f"no subscription is to read the {stored_bytes:,} bytes that are stored: they are in no "
        "backlog, and go by the retention of the namespace"
    )


@group.command("stats")
@_topic
@at_option
def topics_stats(admin: AdminClient, topic: str, at: int | None) -> Output:
    """Show the traffic, subscriptions, consumers and producers of a topic, or of all its
    partitions; and of one without traffic since when it is silent. With --at, its traffic then, if
    it was among those that are recorded; `find TOPIC --at` has who was attached.
    """
    if at is not None:
        name = str(TopicName.parse(topic))
        return _topics_at(admin, at, PARTITIONS_MAX, lambda _: 1.0, of=name)
    path, count = _path(topic), _partitions(admin, topic)
    end = "partitioned-stats?perPartition=false" if count else "stats"
    stats, raw = admin.ask("GET", f"{path}/{end}", None, TopicStats)
    figures = [
        f"{name:32}{_figure(name, value)}"
        for name, value in raw.items()
        if not isinstance(value, dict | list)
    ]
    subscriptions = [
        (
            name,
            subscription["type"],
            subscription["msgBacklog"],
            subscription["unackedMessages"],
            float(subscription["msgRateOut"]),
            len(subscription["consumers"]),
        )
        for name, subscription in stats["subscriptions"].items()
    ]
    consumers = [
        (
            consumer.get("consumerName", ""),
            name,
            consumer.get("address"),
            float(consumer.get("msgRateOut", 0)),
            consumer.get("unackedMessages"),
            consumer.get("availablePermits"),
            consumer.get("role"),
        )
        for name, subscription in stats["subscriptions"].items()
        for consumer in subscription["consumers"]
    ]
    producers = [
        (
            producer["producerName"],
            producer["address"],
            producer["accessMode"],
            float(producer["msgRateIn"]),
            producer.get("role"),
        )
        for producer in stats["publishers"]
    ]
    head = [f"{count_of(count, 'partition')}, in sum:"] if count else []
    figures += filter(None, [unread_text(stats["subscriptions"], stats.get("storageSize", 0))])
    silence = _silence(admin, topic, stats, has_clients=bool(consumers or producers))
    parts: list[Shown] = [[*silence, *head, *figures]]
    if subscriptions:
        headers = ("subscription", "type", "backlog", "unacked", "msg out/s", "consumers")
        parts.append(table(headers, subscriptions))
    if consumers:
        of = ("consumer", "subscription", "address", "msg out/s", "unacked", "permits", "role")
        parts.append(table(of, consumers))
    if producers:
        parts.append(table(("producer", "address", "access", "msg in/s", "role"), producers))
    return Output(raw, tuple(parts))


def _silence(admin: AdminClient, topic: str, stats: TopicStats, *, has_clients: bool) -> list[str]:
    """Since when nothing is published to a topic, and when its last client left; nothing of one
    with traffic.
    """
    from loadmanager.cli.admin.silence import (  # they take time
        last_client,
        silence_in_records,
        silent_since,
    )

    name = str(TopicName.parse(topic))
    if stats.get("msgRateIn"):
        return []
    last_ms = stats.get("lastPublishTimeStamp")
    lines = silent_since(last_ms) if last_ms else silence_in_records(admin, "topic_load", name)
    return [*lines, *([] if has_clients else last_client(admin, name))]


def _figure(name: str, value: object) -> str:
    """A figure of Pulsar's document with its unit, as its name says it."""
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
        return str(value)
    number = f"{value:,.1f}" if isinstance(value, float) else f"{value:,}"
    if name.endswith("TimeStamp"):
        return clock(int(value)) if value else "not known"
    if name.startswith("msgThroughput"):
        return f"{number} bytes/s"
    if name.startswith("msgRate"):
        return f"{number} messages/s"
    return f"{number} bytes" if name.startswith("bytes") or name.endswith("Size") else number
