"""What is wrong in a cluster now. Times are milliseconds since the epoch."""

from __future__ import annotations

from typing import Literal

import msgspec

from loadmanager.engine.findings.backlogs import Backlog
from loadmanager.engine.findings.finding import FindingShown
from loadmanager.kit.model import Shape

SILENT_MS = 60_000
"""A topic is silent once its last message came so long ago: who publishes less often than this may
publish still.
"""

YOUNG_MS = 60_000
"""Clients of a process that ended may not have opened their topics again for so long after the next
one began.
"""


class BacklogsShown(Shape):
    """The greatest backlogs of subscriptions, by broker."""

    brokers: dict[str, list[Backlog]] = msgspec.field(default_factory=dict)
    not_asked: int = 0
    """Brokers beyond those that are asked at once."""
    no_answer: dict[str, str] = msgspec.field(default_factory=dict)
    """Broker → why it gave none."""


class BusyTopic(Shape):
    """A topic with traffic. Rates are messages/s and bytes/s."""

    topic: str
    bundle: str
    rate_in: float
    rate_out: float
    bytes_in: float
    bytes_out: float
    producers: int
    consumers: int
    subscriptions: int | None = None
    """Null: of an earlier version; so the next."""
    stored_bytes: int | None = None


class BusiestTopicsShown(Shape):
    """The topics with most traffic, by broker."""

    brokers: dict[str, list[BusyTopic]] = msgspec.field(default_factory=dict)
    not_asked: int = 0
    """Brokers beyond those that are asked at once."""
    no_answer: dict[str, str] = msgspec.field(default_factory=dict)
    """Broker → why it gave none."""


class SilentTopic(Shape):
    """An open topic to which nothing was published for a minute."""

    topic: str
    bundle: str
    published: int | None
    """When its last message came; null: none since it was opened there, but producers are there."""
    producers: int
    consumers: int


class SilentTopicsShown(Shape):
    """The topics that fell silent last, by broker."""

    at: int
    """The moment at which they are silent."""
    brokers: dict[str, list[SilentTopic]] = msgspec.field(default_factory=dict)
    not_asked: int = 0
    """Brokers beyond those that are asked at once."""
    no_answer: dict[str, str] = msgspec.field(default_factory=dict)
    """Broker → why it gave none."""
    young: dict[str, int] = msgspec.field(default_factory=dict)
    """Broker → for how long its process has run, of those that began less than a minute ago:
    topics that were open before may not be open again.
    """


class FindingsShown(Shape):
    """What the leader finds wrong, in order of kind and name."""

    at: int
    looked_at: int | None
    """When it looked last; null: not yet in this term."""
    findings: list[FindingShown]


class FindingChange(Shape):
    """Something began to be wrong, or no longer is."""

    at: int
    state: Literal["began", "ended"]
    finding: FindingShown
