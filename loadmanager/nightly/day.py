"""The input of every question: one day's sums, and the operator's settings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from shlex import quote
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from loadmanager.engine.history.tenures import (
    ClockOffset,
    Tenure,
    add_owners,
    clocks_of,
    corrections,
    ordered,
    tenures_of,
)
from loadmanager.engine.moves.move import Author
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.kit.errors import OperationalError
from loadmanager.kit.history.layout import day_of, day_start_ms
from loadmanager.kit.units import DAY_MS, HOUR_MS
from loadmanager.nightly.certainty import Certainty, of_question
from loadmanager.nightly.facts import BUCKET_MS, Facts

if TYPE_CHECKING:
    from loadmanager.nightly.hurt import Hurt

PAST_DAYS = 28
"""Days before that questions over several days look at."""
BUSY_MIN = 0.2
"""Where no broker uses this fraction, no bundle, topic or namespace carries too much."""
STANDS_OUT = 1.25
"""An hour stands out that has so many times the mean of all."""

TEXT, NUMBER, WHOLE, YES_NO = pa.string(), pa.float64(), pa.int64(), pa.bool_()
TEXTS = pa.list_(pa.string())

Columns = Mapping[str, tuple[pa.DataType, str]]
"""Column → its type, and what it says."""
Row = dict[str, Any]


@dataclass(slots=True)
class Finding:
    """A finding: its text, its numbers, and advice."""

    importance: float
    """How much harm was done: 80 and more, clients had no service; 60, clients were held back or
    brokers overloaded; 35, capacity or moves were wasted, or it will become worse; less, a remark.
    """
    question: str
    title: str
    text: str
    advice: str
    hurt: Hurt
    """Who was hurt, or that nobody was, and why it matters nevertheless; words, once it is a card.
    """
    numbers: dict[str, Any] = field(default_factory=dict)
    at_ms: float | None = None
    """When it began; None: it concerns the whole day."""
    until_ms: float | None = None
    where: str = ""
    """The broker, bundle, topic, limit or namespace."""
    plot: str | None = None
    """The plot that shows it."""
    commands: list[str] = field(default_factory=list)
    """To paste into a shell."""
    causes: list[str] = field(default_factory=list)
    """What may be the cause: `topic …`, `bundle …`, `sensor …`, `outage …` with its time. A finding
    that explains one of these takes this one into its card.
    """
    explains: list[str] = field(default_factory=list)
    effects: list[str] = field(default_factory=list)
    """What else this caused, a sentence each."""
    certainty: Certainty | None = None
    """None: that of the question."""

    def __post_init__(self) -> None:
        """A card has the certainty of its question, if it does not say. Raises `ValueError` for one
        that does not say by what, who was hurt or what to do.
        """
        self.certainty = self.certainty or of_question(self.question)
        for name in ("title", "text", "advice", "hurt"):
            if not getattr(self, name):
                raise ValueError(f"a card of {self.question} has no {name}")


@dataclass
class Day:
    """One UTC day of one cluster."""

    cluster: str
    date: str
    facts: Facts
    settings: StrategySettings
    stored: Callable[[str, str, Sequence[str] | None], list[Row]] = lambda *_: []
    """Question, date, columns → the stored rows of an earlier day; empty without such a table."""
    configured: str = ""
    """The options of the command line that `settings` come from, as a shell takes them."""
    answers: dict[str, list[Row]] = field(default_factory=dict)
    """The rows of earlier questions that did not fail."""
    now_ms: float | None = field(default=None, init=False)
    """When it is analysed, if it is not over by then; None: it is over."""

    def answer(self, question: str) -> list[Row]:
        """The rows of an earlier question. Raises `OperationalError` when that question failed."""
        if question not in self.answers:
            raise OperationalError(f"it builds on {question}, which failed")
        return self.answers[question]

    def past(
        self,
        question: str,
        *,
        days: int = PAST_DAYS,
        columns: Sequence[str] | None = None,
        only: bool = False,
    ) -> list[Row]:
        """The stored rows of the `days` days before; of the first of these `only`."""
        rows = []
        for number in (days,) if only else range(days, 0, -1):
            date = day_of(self.start_ms - number * DAY_MS)
            rows += self.stored(question, date, columns)
        return rows

    @property
    def start_ms(self) -> int:
        """The beginning of the day, in ms since the epoch."""
        return day_start_ms(self.date)

    @property
    def end_ms(self) -> int:
        """The end of the day, in ms since the epoch."""
        return self.start_ms + DAY_MS

    @property
    def until_ms(self) -> float:
        """Until when anything can have lasted: the end of the day, or now if it is not over."""
        return self.end_ms if self.now_ms is None else self.now_ms

    @cached_property
    def _tenures(self) -> list[Tenure]:
        steps = sorted([*self.facts.steps_before, *self.facts.steps], key=lambda step: step[:2])
        return add_owners(tenures_of(steps), self._first_owners)

    @cached_property
    def _first_owners(self) -> dict[str, tuple[str, int]]:
        """Bundle → the first broker that recorded its load, and when."""
        first: dict[str, tuple[str, int]] = {}
        table = self.facts.bundles
        columns = (table[name].to_pylist() for name in ("bundle", "broker", "first_ts"))
        for bundle, broker, ts in zip(*columns, strict=True):
            if bundle not in first or (ts, broker) < first[bundle][::-1]:
                first[bundle] = (broker, ts)
        return first

    @cached_property
    def drained(self) -> dict[str, int]:
        """Broker → when the first bundle was drained from it."""
        first: dict[str, int] = {}
        for move in self.facts.leader_moves:
            if move["author"] == Author.DRAIN.value:
                first.setdefault(move["source"], move["ts"])
        return first

    @cached_property
    def clocks(self) -> dict[str, ClockOffset]:
        """Brokers that handed bundles over → how their clocks compare."""
        return clocks_of(self._tenures)

    @cached_property
    def corrections(self) -> dict[str, float]:
        """Broker → by how many ms its clock certainly is ahead."""
        return corrections(self.clocks)

    @cached_property
    def owners(self) -> dict[str, list[Tenure]]:
        """Bundle → its tenures, one after the other."""
        return ordered(self._tenures, self.corrections)


def is_busy(day: Day) -> bool:
    """Whether a broker had enough to do that it matters who carries what; also if nobody knows."""
    rows = day.answers.get("broker_usage")
    return not rows or any(row["p95"] >= BUSY_MIN for row in rows)


def step_of(ts: float) -> int:
    """The five minutes that a time falls into."""
    return int(ts - ts % BUCKET_MS)


def over(value: float, under: float) -> float | None:
    """`value / under`; None where `under` is not positive."""
    return value / under if under > 0 else None


def namespace_of(bundle: str) -> str:
    """`tenant/namespace` of a bundle."""
    return "/".join(bundle.split("/")[:2])


def hours(value_ms: float) -> float:
    return value_ms / HOUR_MS


def mib(value: float) -> str:
    """Bytes/s for a person."""
    return f"{size(value)}/s"


def size(value: float) -> str:
    """Bytes for a person."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            break
        value /= 1024
    return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"


def lasting(value_h: float) -> str:
    """Hours for a person."""
    if value_h >= 1:
        return f"{value_h:.1f} hours"
    seconds = value_h * 3600
    return many(round(seconds / 60), "minute") if seconds >= 90 else f"{seconds:.0f} s"


def many(count: int, what: str) -> str:
    """`1 move`, `2 moves`."""
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def listed(names: Sequence[str], most: int = 3) -> str:
    """The first few of them."""
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest:,} more" if rest > 0 else "")


def command(text: str, name: str, more: str = "") -> list[str]:
    """A command to paste, about a name that a client or an operator chose. None for a name that
    would drive a terminal (even when quoted, Ctrl-C ends a line), or that is taken for an option.
    """
    if not name or not name.isprintable() or name.startswith("-"):
        return []
    return [f"{text} {quote(name)}{more}"]


def busiest_hour(carried: Iterable[tuple[float, float]]) -> str:
    """A sentence about the hour that has most of these amounts at times (ms), to end a text with;
    empty if none stands out.
    """
    by_hour: dict[int, float] = {}
    for ts, amount in carried:
        hour = int(ts - ts % HOUR_MS)
        by_hour[hour] = by_hour.get(hour, 0.0) + amount
    if not by_hour:
        return ""
    most = max(sorted(by_hour), key=by_hour.__getitem__)
    stands_out = by_hour[most] >= STANDS_OUT * sum(by_hour.values()) / len(by_hour)
    return f" Its busiest hour began at {clock(most)}." if stands_out else ""


def clock(ts_ms: float) -> str:
    """Time of day in UTC for a person."""
    minutes = int(ts_ms // 60_000) % 1440
    return f"{minutes // 60:02}:{minutes % 60:02}"
