"""Who uses most of what all topics of a broker share, while others wait for it."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from loadmanager.cli.admin.asking import OWN
from loadmanager.cli.admin.client import AdminClient
from loadmanager.kit.errors import LoadManagerError
from loadmanager.leader.documents.findings import BusiestTopicsShown, BusyTopic
from loadmanager.limits.report import ThrottledShown
from loadmanager.limits.tracker import HoldCause

OF_BROKER = {HoldCause.BROKER_PUBLISH_RATE, HoldCause.PUBLISH_BUFFER}
SHARED = OF_BROKER | {HoldCause.RESOURCE_GROUP_PUBLISH_RATE}
"""Causes for which a client may wait because others publish much."""

SHARE_MIN = 0.5
"""Who publishes less of the whole is not to blame."""


def greatest_users(admin: AdminClient, topic: str, causes: Collection[str]) -> list[str]:
    """A sentence for each cause that holds clients of this topic and is shared: which topic
    publishes most of what it bounds; none if that is not known.
    """
    shared = sorted(SHARED & {*causes})
    if not shared:
        return []
    try:
        busiest = admin.get(f"{OWN}/busiest-topics", BusiestTopicsShown).brokers
        throttled = admin.get(f"{OWN}/throttled", ThrottledShown).brokers
    except LoadManagerError:
        return []
    for broker, topics in busiest.items():
        if not any(each.topic == topic for each in topics):
            continue
        own = throttled.get(broker)
        groups = [limit.topics for limit in own.limits if topic in limit.topics] if own else []
        of_group = {name for names in groups for name in names}
        return [
            text
            for cause in shared
            if (text := user_text(cause, broker, _users(topics, cause, of_group)))
        ]
    return []


def _users(topics: Sequence[BusyTopic], cause: str, of_group: set[str]) -> list[BusyTopic]:
    return [each for each in topics if cause in OF_BROKER or each.topic in of_group]


def user_text(cause: str, broker: str, topics: Sequence[BusyTopic]) -> str:
    """Which of these topics publishes most of all; empty if none stands out."""
    total = sum(each.bytes_in for each in topics)
    most = max(topics, key=lambda each: (each.bytes_in, each.topic), default=None)
    if most is None or most.bytes_in <= SHARE_MIN * total:
        return ""
    tenant = most.topic.partition("://")[2].partition("/")[0]
    return (
        f"{cause}: {most.topic} of tenant {tenant} uses most of it: {most.rate_in:,.0f} "
        f"messages/s, {most.bytes_in / total:.0%} of the bytes that those who share it publish at "
        f"{broker}"
    )
