"""`loadmanager admin topics …`."""

from __future__ import annotations

import click

from loadmanager.cli.admin.asking import V2, namespace_path, topic_path
from loadmanager.cli.admin.client import AdminClient
from loadmanager.cli.admin.command import AdminGroup, Output
from loadmanager.cli.terminal import Shown, table
from loadmanager.core.bundles.names import TopicName

group = AdminGroup("topics", help="List, lookup, partitions, stats.")
_topic = click.argument("topic")


@group.command("list")
@click.argument("namespace", metavar="TENANT/NAMESPACE")
def topics_list(admin: AdminClient, namespace: str) -> Output:
    """List the topics of a namespace."""
    names = admin.get(f"{namespace_path(namespace)}/topics?mode=ALL")
    return Output(names, "\n".join(names))


@group.command("lookup")
@_topic
def topics_lookup(admin: AdminClient, topic: str) -> Output:
    """Show the broker that serves a topic; a bundle without an owner is placed first."""
    path = f"/lookup/v2/topic/{topic_path(topic)}"
    lookup = {
        "topic": str(TopicName.parse(topic)),
        "bundle": admin.text(f"{path}/bundle"),
        **admin.get(path),
    }
    row = [lookup[name] for name in ("topic", "bundle", "brokerUrl", "httpUrl")]
    return Output(lookup, table(("topic", "bundle", "broker", "http"), [row]))


@group.command("partitions")
@_topic
@click.option("--create", type=int, metavar="N", help="create the topic with N partitions")
def topics_partitions(admin: AdminClient, topic: str, create: int | None) -> Output:
    """Show the number of partitions of a topic, or create a partitioned topic."""
    path = f"{V2}/{topic_path(topic)}/partitions"
    if create is not None:
        admin.send("PUT", path, create)
    count = admin.get(path)["partitions"]
    return Output({"partitions": count}, str(count))


@group.command("stats")
@_topic
def topics_stats(admin: AdminClient, topic: str) -> Output:
    """Show the traffic, subscriptions and producers of a topic, or of all its partitions."""
    path = f"{V2}/{topic_path(topic)}"
    count = admin.get(f"{path}/partitions")["partitions"]
    end = "partitioned-stats?perPartition=false" if count else "stats"
    stats = admin.get(f"{path}/{end}")
    figures = [
        f"{name:32}{value}" for name, value in stats.items() if not isinstance(value, dict | list)
    ]
    subscriptions = [
        (
            name,
            found["type"],
            found["msgBacklog"],
            found["unackedMessages"],
            float(found["msgRateOut"]),
            len(found["consumers"]),
        )
        for name, found in stats["subscriptions"].items()
    ]
    producers = [
        (found["producerName"], found["address"], found["accessMode"], float(found["msgRateIn"]))
        for found in stats["publishers"]
    ]
    head = [f"{count} partitions, in sum:"] if count else []
    parts: list[Shown] = ["\n".join([*head, *figures])]
    if subscriptions:
        headers = ("subscription", "type", "backlog", "unacked", "msg out/s", "consumers")
        parts.append(table(headers, subscriptions))
    if producers:
        parts.append(table(("producer", "address", "access", "msg in/s"), producers))
    return Output(stats, tuple(parts))
