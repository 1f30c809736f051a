"""What the model of usage remembers from one cycle to the next: `usage_fit` learns it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from loadmanager.engine.load import message_costs, moved_costs
from loadmanager.engine.load.columns import Array
from loadmanager.engine.load.message_costs import NO_MESSAGES, MessageCosts
from loadmanager.engine.load.moved_costs import Late, MovedBundle
from loadmanager.engine.load.reports import NUMBER_MAX

UPDATED, REPORTS, OFFSET, ERROR, TRAFFIC, SHOWN, SAME, SINCE, DOUBT, LIMIT = range(10)
USUAL, CAME, CAME_SQUARES, USUAL_BYTES, CAME_BYTES, STILL = range(LIMIT + 1, LIMIT + 7)
SURPRISE, JUMPS, STEP, ROSE, FELL, RESIZED, BESIDE = range(STILL + 1, STILL + 8)
ERRORS_BESIDE = BESIDE + 3
FIGURES = ERRORS_BESIDE + 3
"""What is remembered of a broker. `TRAFFIC` and `SHOWN`: traffic / limit and the sensor in the last
report; `SAME`: reports in a row that show the same, and `SINCE`: the traffic in the first of them.
`LIMIT`: its CPU when it last said it, and `RESIZED`: reports in a row that say another one.
`USUAL`, `USUAL_BYTES`: its sensor and its bytes/s, smoothed. `CAME`, `CAME_BYTES`: the usage and
the bytes/s that were expected of bundles that came; `STILL`: reports in a row that did not follow
them. `SURPRISE`: what the last report showed more than the model; `JUMPS`: the variance of what it
shows from one report to the next, beside what traffic explains. `STEP`: the least that the sensor
changed by lately, when it changed; 0: it never did. `ROSE`: what it rose by at once while its
traffic did not, as another process begins; `FELL`: what of that it fell by again a moment ago.
`BESIDE`: what is used of the other three resources beside traffic; `ERRORS_BESIDE`: the model's
errors there, as `ERROR` is that of the CPU.
"""
DIGITS = 6
IDLE_DOUBT = 0.02
"""The weight of the guess that brokers have no idle part; an empty broker has about 0.5."""
WORK_MIN = 1e-9
"""Less traffic, in bytes/s for a limit of 1, says nothing of what a byte costs."""

Figures = tuple[float, ...]


class RememberedBrokers(Mapping[str, Figures]):
    """brokerId → what is remembered of it, in columns: `[figure, row]`. Never changed."""

    __slots__ = ("columns", "row_of")

    def __init__(self, row_of: Mapping[str, int], columns: Array) -> None:
        self.row_of = row_of
        self.columns = columns

    def __getitem__(self, broker: str) -> Figures:
        figures: Figures = tuple(self.columns[:, self.row_of[broker]].tolist())
        return figures

    def __iter__(self) -> Iterator[str]:
        return iter(self.row_of)

    def __len__(self) -> int:
        return len(self.row_of)


@dataclass(frozen=True, slots=True)
class Learned:
    """All that the model remembers from one cycle to the next."""

    brokers: Mapping[str, Figures] = field(default_factory=dict)
    costs: Mapping[int, float] = field(default_factory=dict)
    """Class of namespaces → what its traffic costs, as a multiple of the mean; 1 where it has
    none.
    """
    idle: float = 0.0
    idle_evidence: float = 0.0
    """What `idle` counts: up to 1, if it was seen at empty brokers."""
    used: float = 0.0
    work: float = 0.0
    """Means over brokers of usage and of traffic / limit, in bytes/s of mean cost."""
    level: float = 0.0
    """The usual bytes/s of all brokers."""
    moved: Mapping[str, MovedBundle] = field(default_factory=dict)
    """Bundle → what its last move says of its cost; those that moved last, the last one at the
    end."""
    differs: float = moved_costs.DIFFERS
    """By how much bundles of a namespace differ in cost."""
    messages: MessageCosts = NO_MESSAGES
    late: Late = field(default_factory=Late)
    """Whether sensors are late."""

    def and_ordered(
        self, moves: Iterable[tuple[str, str, str]], given: Mapping[str, float] | None = None
    ) -> Learned:
        """After some moves were ordered: (bundle, source, destination). `given`: broker → the usage
        that leaves it, beside what its bundles cost by the model.
        """
        return replace(
            self,
            moved=moved_costs.ordered(self.moved, moves),
            brokers=_after_giving(self.brokers, given or {}),
        )


def _after_giving(
    brokers: Mapping[str, Figures], given: Mapping[str, float]
) -> Mapping[str, Figures]:
    """What some brokers use beside traffic went with bundles that left."""
    if not (given and isinstance(brokers, RememberedBrokers)):
        return brokers
    columns = brokers.columns.copy()
    for broker, usage in given.items():
        row = brokers.row_of[broker]
        offset = float(columns[OFFSET, row])
        columns[OFFSET, row] = round(min(offset, max(offset - usage, 0.0)), DIGITS)
    return RememberedBrokers(brokers.row_of, columns)


NOTHING_LEARNED = Learned()


def sane(learned: Learned) -> Learned:
    """What was stored, or nothing if it cannot be true: a store may hold anything."""
    parts = 0 <= learned.idle <= 1 and 0 <= learned.idle_evidence <= 1
    amounts = (learned.used, learned.work, learned.level)
    if not parts or not all(0 <= each <= NUMBER_MAX for each in amounts):
        return NOTHING_LEARNED
    least, most = moved_costs.DIFFERS_MIN, moved_costs.DIFFERS_MAX
    differs = min(max(learned.differs, least), most)
    return replace(
        learned,
        moved=moved_costs.sane(learned.moved),
        differs=differs,
        messages=message_costs.sane(learned.messages),
        late=moved_costs.sane_late(learned.late),
    )


def idle_of(learned: Learned) -> float:
    """The idle part: less than what was seen, where little evidence was."""
    return learned.idle * learned.idle_evidence / (learned.idle_evidence + IDLE_DOUBT)


def cost_of(learned: Learned) -> float:
    """The usage of a byte/s of mean cost, for a limit of 1."""
    if learned.work < WORK_MIN:
        return 0.0
    return max(learned.used - idle_of(learned), 0.0) / learned.work
