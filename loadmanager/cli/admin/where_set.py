"""Where limits are set that hold the clients of a topic, and who set them last."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from loadmanager.cli.admin.asking import V2, namespace_path, topic_path
from loadmanager.cli.admin.audit import CHANGES_MAX, changes_of
from loadmanager.cli.admin.client import AdminClient
from loadmanager.cli.admin.shapes import Document
from loadmanager.cli.admin.times import clock
from loadmanager.kit.audit import ChangeShown
from loadmanager.kit.errors import LoadManagerError
from loadmanager.kit.names import TopicName

FIELDS = {
    "publishRate": ("publishThrottlingRateInMsg", "publishThrottlingRateInByte", None),
    "dispatchRate": (
        "dispatchThrottlingRateInMsg",
        "dispatchThrottlingRateInByte",
        "ratePeriodInSecond",
    ),
    "subscriptionDispatchRate": (
        "dispatchThrottlingRateInMsg",
        "dispatchThrottlingRateInByte",
        "ratePeriodInSecond",
    ),
    "subscribeRate": ("subscribeThrottlingRatePerConsumer", None, "ratePeriodInSecond"),
}
"""Limit → its fields for messages (or requests), bytes and period."""


def limits_path(target: str) -> str:
    """The path of the limits of a namespace or a topic in the admin API."""
    is_topic = "://" in target or target.count("/") == 2
    return f"{V2}/{topic_path(target)}" if is_topic else namespace_path(target)


def rate_text(rate: Document) -> str:
    """The fields of a limit."""
    return "  ".join(f"{field}={value}" for field, value in rate.items())


def namespace_with(admin: AdminClient, target: str, limit: str) -> str | None:
    """The namespace from which a topic has a limit; None: it has none from there."""
    if target.count("/") == 1:
        return None
    namespace = str(TopicName.parse(target).namespace)
    has = admin.get_any(f"{limits_path(namespace)}/{limit}", Document)
    return namespace if has else None


def where_set(admin: AdminClient, topic: str, limits: Iterable[str]) -> list[str]:
    """A line for each limit of these that is set for a topic or its namespace; none where nobody
    may say.
    """
    name = TopicName.parse(topic)
    try:
        in_force = dict(
            _in_force(admin, (str(name.partitioned_topic), str(name.namespace)), limits)
        )
    except LoadManagerError:  # the role may not see them
        return []
    try:
        changes = changes_of(admin, None, None, None, limit=CHANGES_MAX).changes if in_force else []
    except LoadManagerError:
        changes = []
    return [
        f"{limit} is set on {of}: {rate_text(rate)}{_set_by(changes, of, limit)}; `limits set {of} "
        f"{limit} …` changes it"
        for limit, (of, rate) in in_force.items()
    ]


def _in_force(
    admin: AdminClient, targets: Sequence[str], limits: Iterable[str]
) -> Iterator[tuple[str, tuple[str, Document]]]:
    """Limit → where it is set, the nearest first, and its fields."""
    for limit in limits:
        for of in targets:
            if rate := admin.get_any(f"{limits_path(of)}/{limit}", Document):
                yield limit, (of, rate)
                break


def _set_by(changes: Sequence[ChangeShown], of: str, limit: str) -> str:
    """Who set a limit last, and when; empty where that is not recorded."""
    path = f"{limits_path(of)}/{limit}"
    for change in changes:  # the newest first
        if change.what.partition("?")[0] == f"POST {path}" and not change.failed:
            return f", by {change.role or change.address} at {clock(change.ts)}"
    return ""
