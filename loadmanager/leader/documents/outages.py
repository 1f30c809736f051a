"""What was wrong with all brokers or some at a time gone by, by what they recorded. Times are
milliseconds since the epoch.
"""

from __future__ import annotations

from loadmanager.kit.model import Shape


class LapseShown(Shape):
    """A time in which brokers together stood still or could not prove their sessions."""

    begin: int
    end: int
    since: int
    """When it began at the earliest: from the last answer of the store on, if that is known."""
    until: int
    """When it ended at the latest: one without a recorded end lasted until its brokers would have
    given their next signs.
    """
    brokers: list[str]
    stood_ms: dict[str, int]
    """Broker → for how long it stood still, of those that did."""
    is_open: bool
    """Whether no record tells how it ended."""
    is_unproven: bool
    """False: sessions were proven until it ended, or it is not known."""


class DownShown(Shape):
    """A time in which no broker recorded anything, after which one started."""

    begin: int
    end: int
    in_order: bool
    """Whether all brokers that were there had recorded that they stop in order."""


class OutagesShown(Shape):
    """Those of a time, the oldest first."""

    lapses: list[LapseShown]
    downs: list[DownShown]
    missing: list[str]
    """Brokers whose archives did not answer."""


class UnknownLoads(Shape):
    """The brokers whose recorded loads are not of a moment."""

    at: int
    brokers: dict[str, str]
    """Broker → why not."""
    lost: dict[str, str]
    """Broker → when its last sign was, which was before, and when its session ended, which was
    after: nobody knows whether it still served.
    """
    missing: list[str]
    """Brokers whose archives did not answer."""
