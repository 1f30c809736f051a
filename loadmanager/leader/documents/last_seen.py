"""The brokers as one of them has seen them last.

Times are milliseconds since the epoch.
"""

from __future__ import annotations

from loadmanager.kit.model import Shape
from loadmanager.leader.documents.cluster import ReportShown


class BrokerSeen(Shape):
    """A broker that was registered when the broker that answers looked last."""

    broker: str
    version: str | None
    report: ReportShown | None
    """Its last report; null: none was seen that can be read."""


class LastSeen(Shape):
    """What a broker has seen last of all brokers, itself among them. It is true of `seenAt`, and
    says nothing of later.
    """

    at: int
    by: str
    """The broker that answers."""
    seen_at: int
    """When the metadata store gave its last answer: now, unless it is silent."""
    store_silent_ms: int | None
    """For how long it has not answered, where it should have; null: it does."""
    leads: bool
    """Whether `leader` leads still, as far as this broker knows."""
    leader: str | None
    """The last leader that this broker has seen; null: it has seen none."""
    epoch: int | None
    """Its term."""
    total: int
    """Brokers; `brokers` has the first ones by name, as many as `limit` allows."""
    brokers: list[BrokerSeen]
