"""What an archive answers: events, loads at one moment, and loads over a time.

Times are milliseconds since the epoch.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from loadmanager.kit.conversion import converted
from loadmanager.kit.errors import OperationalError
from loadmanager.kit.model import Shape
from loadmanager.kit.units import DAY_MS

T = TypeVar("T")


class RecordedSpan(Shape):
    """A time in which a broker wrote its archive. Before, between and after such times it did not
    run, or its archive was broken.
    """

    begin: int
    end: int
    dropped: int = 0
    """Records of this time that were dropped: the archive could not keep up, or was broken."""


class UnrecordedSpan(Shape):
    """A time of which a broker's archive lacks records that it should have."""

    begin: int
    """0: all that was recorded until the end is gone."""
    end: int | None
    """None: it lasts."""
    reason: str

    def touches(self, since_ms: int, until_ms: int) -> bool:
        """Whether it is in a time."""
        return self.begin <= until_ms and (self.end is None or self.end >= since_ms)

    def is_lately(self, now_ms: int) -> bool:
        """Whether it lasts, or ended in the last day."""
        return self.end is None or now_ms - self.end <= DAY_MS


class ArchivePart(Shape, kw_only=True):
    """The part of one broker."""

    part: str
    """The broker that wrote it."""
    recorded: list[RecordedSpan]
    """The times that it covers, within the time that was asked for."""
    unrecorded: list[UnrecordedSpan] = msgspec.field(default_factory=list)
    """What it lacks, and why; also what it lacks now or lacked lately outside of that time."""
    cut_off: bool = False
    """Whether more matches than was asked for."""


class ArchivedEvent(Shape):
    """One record that is no load: a decision, a step of ownership, a change, a member."""

    id: int
    """Unique within the part."""
    kind: str
    ts: int
    last: int
    """The last time that the same was recorded; `ts` if it was once."""
    times: int
    record: dict[str, Any]
    """The record as the history has it."""

    def record_as(self, shape: type[T]) -> T:
        """The record. Raises `OperationalError` for something else."""
        try:
            return converted(self.record, shape)
        except msgspec.ValidationError as error:
            raise OperationalError(
                f"an archive has a {self.kind} record that cannot be read: {error}"
            ) from None


class ArchivedEvents(ArchivePart, kw_only=True):
    """Events, the newest first."""

    events: list[ArchivedEvent]


class ArchivedLoads(Shape):
    """The figures of everything that a broker recorded at one moment, of one kind."""

    kind: str
    broker: str
    ts: int
    """The end of the time of which these are the averages."""
    span_ms: int
    """How long it was."""
    columns: list[str]
    figures: dict[str, list[float]]
    """Name → its figures, in the order of the columns."""


class ArchivedMoment(ArchivePart, kw_only=True):
    """Loads at one moment."""

    at: int
    loads: list[ArchivedLoads]


class ArchivedPoint(Shape):
    """The figures of what was asked for, at one moment."""

    ts: int
    span_ms: int
    broker: str
    figures: list[float]


class ArchivedSeries(ArchivePart, kw_only=True):
    """The loads of one thing, the oldest first."""

    columns: list[str]
    points: list[ArchivedPoint]


class ArchivedHeatRow(Shape):
    """A bundle over time."""

    bundle: str
    throughput: list[float | None]
    """Bytes/s in and out, a mean for each time; null: this broker recorded nothing of it."""


class ArchivedHeat(ArchivePart, kw_only=True):
    """The traffic of bundles over a time, of those first that had most of it."""

    times: list[int]
    """The ends of equal parts of the time."""
    bundles: list[ArchivedHeatRow]
    total: int
    """How many bundles there are records of."""


class ArchivedSum(Shape):
    """The sums of the figures of one thing over a time."""

    name: str
    sums: list[float]
    lasted_ms: int
    """For how long at least one of them was above zero, by whole records."""


class ArchivedSums(ArchivePart, kw_only=True):
    """The sums of some figures of everything of one kind, in order of name. Records that were
    replaced by averages are not in them.
    """

    columns: list[str]
    rows: list[ArchivedSum]
    averages_until: int | None = None
    """The end of the last averages within the time that was asked for; null: there are none."""


class ArchiveParts(Shape):
    """Whose archives can be asked."""

    brokers: list[str]
    """The brokers that live: each is asked for its own. None: what is asked is the only one."""
    beside: list[str]
    """Others, whose archives the broker that is asked can read."""
