"""A plan for JSON: the one description of a plan.

`decide` prints it; the decisions API and the dry run answer with it; the lines of `--explain`, and
the fields of the log are made from it. `tests/engine/strategies/test_plan_document.py` shows a
whole document.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Sized
from itertools import islice
from typing import Any, Literal, Protocol

import msgspec
from msgspec import UNSET, UnsetType

from loadmanager.engine.strategies.plan import Placement, Plan, Skip, Split, SplitEnd, Unload
from loadmanager.kit.model import Shape
from loadmanager.kit.reason import Reason

REFUSALS_MAX = 5
"""How many brokers an error names."""
TO_BE_PLACED = "(to be placed)"
OWNER_CHOOSES = "a boundary that its owner chooses"


class MoveInShort(Shape):
    """A move that a cycle decided, in short."""

    id: str
    state: str
    outcome: str | None
    owner: str | None


class Load(Shape, kw_only=False):
    """Messages/s and bytes/s of a bundle when a plan was made."""

    rate: float
    throughput: float


class UnloadShown(Shape):
    """A bundle that is to leave its broker; `why` has the numbers."""

    bundle: str
    source: str
    destination: str | None
    reason: str
    why: dict[str, float | str]
    swap: str | UnsetType = UNSET
    """The bundle that goes the other way."""
    move: MoveInShort | UnsetType | None = UNSET
    load: Load | UnsetType | None = UNSET

    @staticmethod
    def of(unload: Unload) -> UnloadShown:
        """What a plan says."""
        return UnloadShown(
            bundle=unload.bundle,
            source=unload.source,
            destination=unload.destination,
            reason=unload.reason,
            why=dict(unload.why),
            swap=UNSET if unload.swap is None else unload.swap,
        )


class PlacementShown(Shape):
    """The broker chosen for a bundle; `rejected` says why the other brokers do not get it; `why`
    has the numbers behind the choice.
    """

    bundle: str
    broker: str | None
    candidates: list[str]
    rejected: dict[str, str]
    why: dict[str, float | str] | UnsetType = UNSET

    @staticmethod
    def of(placement: Placement) -> PlacementShown:
        """What a plan says."""
        return PlacementShown(
            bundle=placement.bundle,
            broker=placement.broker,
            candidates=list(placement.candidates),
            rejected={broker: str(why) for broker, why in sorted(placement.rejected.items())},
            why=dict(placement.why) or UNSET,
        )


class SplitShown(Shape):
    """A bundle that is to be split; `why` has the figure that is too high, and its limit."""

    bundle: str
    boundaries: list[str]
    """Empty: its owner chooses."""
    reason: str
    why: dict[str, float | str]

    @staticmethod
    def of(split: Split) -> SplitShown:
        """What a plan says."""
        return SplitShown(
            bundle=split.bundle,
            boundaries=[f"0x{boundary:08x}" for boundary in split.boundaries],
            reason=split.reason,
            why=dict(split.why),
        )


class SkipShown(Shape, kw_only=True):
    """A refusal: a bundle, a broker or `cluster` stays as it is, and why."""

    what: str
    code: str = ""
    """One word, for programs; `reason` begins with it. Brokers of version 0.3.0 do not say it."""
    reason: str
    why: dict[str, float | str] | UnsetType = UNSET
    """The numbers behind it, if there are any."""
    times: int | UnsetType = UNSET
    """In archives: how many cycles since `firstAt` gave this reason; others may lie between."""
    first_at: int | UnsetType = UNSET

    @staticmethod
    def of(skip: Skip) -> SkipShown:
        """What a plan says."""
        why = dict(skip.why) or UNSET
        return SkipShown(what=skip.what, code=skip.code, reason=skip.reason, why=why)


class PlanShown(Shape):
    """The decisions of a cycle."""

    strategy: str
    unloads: list[UnloadShown]
    placements: list[PlacementShown]
    splits: list[SplitShown]
    skipped: list[SkipShown]

    @staticmethod
    def of(plan: Plan) -> PlanShown:
        return PlanShown(
            strategy=plan.strategy,
            unloads=[UnloadShown.of(unload) for unload in plan.unloads],
            placements=[PlacementShown.of(placement) for placement in plan.placements],
            splits=[SplitShown.of(split) for split in plan.splits],
            skipped=[SkipShown.of(skip) for skip in plan.skipped],
        )


class BrokerLoadSeen(Shape):
    """The load of one broker that a cycle decided from."""

    usage: float
    """The most used resource after weighting; in the extensible manager, its average. Where
    BalancedShedder decides and a sensor does not count, what the model says.
    """
    rate: float
    throughput: float
    bundles: int
    report_age_ms: int | None


class Inputs(Shape):
    """The loads that a cycle decided from: of the most used brokers, and of those that its plan
    names.
    """

    brokers: int
    average_usage: float | None
    loads: dict[str, BrokerLoadSeen]


class Bounds(Shape):
    """The differences at which a plan is still carried out: a bundle's rate and throughput by
    `loadFraction` of the larger value, and in any case by `rate` and `throughput`; the usage of its
    brokers by `usage`.
    """

    life_ms: int
    load_fraction: float
    rate: float
    throughput: float
    usage: float


class Drift(Shape, kw_only=False):
    """One difference between a plan and the cluster."""

    what: Literal[
        "term",
        "expired",
        "executed",
        "empty",
        "bundle",
        "owner",
        "move",
        "load",
        "usage",
        "refused",
        "destination",
    ]
    reason: str
    bundle: str | None = None
    code: str | None = None
    """What a guard or a filter says, of `refused` and `destination`."""


class Explained(Protocol):
    """A move or a split."""

    @property
    def why(self) -> Mapping[str, float | str]: ...


def split_end(children: Sequence[str]) -> SplitEnd:
    """The result of a split that raised no error."""
    if not children:
        return SplitEnd((), "its owner found no boundary that divides its topics")
    spans = ", ".join(child.rpartition("/")[2] for child in children)
    return SplitEnd(tuple(children), f"split into {spans}")


def placement_reason(candidates: Sized, rejected: Sized) -> str:
    """Why a bundle was placed there, from a placement's candidates and rejected brokers."""
    left, brokers = len(candidates), len(candidates) + len(rejected)
    if left > 1:
        among = f", out of {brokers}" if rejected else ""
        return f"one of {left} equally good brokers{among}"
    if left == 0:
        return "no broker qualifies"
    return f"the one of {brokers} brokers that was not rejected" if rejected else "the only broker"


def refusals(rejected: Mapping[str, Reason]) -> str:
    """Why no broker qualifies, in a sentence: the reasons of the first brokers."""
    reasons = [f"{broker}: {reason}" for broker, reason in islice(rejected.items(), REFUSALS_MAX)]
    if len(rejected) > REFUSALS_MAX:
        reasons.append(f"and {len(rejected) - REFUSALS_MAX} others")
    return "; ".join(reasons) or "there is none"


def log_fields(part: Explained, *names: str) -> dict[str, Any]:
    """These fields of a move or a split, and each number of `why` as a field of its own."""
    return {
        **{name: msgspec.to_builtins(getattr(part, name)) for name in names},
        **{f"why_{name}": value for name, value in part.why.items()},
    }


def figure(value: float) -> str:
    """A number for people: four digits, and no exponent if it is large."""
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def because(reason: str, why: Mapping[str, float | str]) -> str:
    """The reason, with the numbers behind it."""
    figures = ", ".join(
        f"{name} {figure(value)}" if isinstance(value, float) else f"{name} {value}"
        for name, value in why.items()
    )
    return f"{reason}: {figures}" if figures else reason


def plan_lines(plan: PlanShown) -> list[str]:
    """A plan for people: a line for each move, placement, split and refusal."""
    lines = [
        f"  move   {unload.bundle}  {unload.source} -> "
        f"{unload.destination or TO_BE_PLACED}  {because(unload.reason, unload.why)}"
        for unload in plan.unloads
    ]
    for placement in plan.placements:
        candidates = ", ".join(placement.candidates) or "no candidates"
        broker = placement.broker or "nobody"
        line = f"  place  {placement.bundle}  -> {broker}  out of {candidates}"
        lines.append(because(line, {} if placement.why is UNSET else placement.why))
        lines += [f"         not {other}: {why}" for other, why in placement.rejected.items()]
    for split in plan.splits:
        at = ", ".join(split.boundaries) or OWNER_CHOOSES
        lines.append(f"  split  {split.bundle}  at {at}  {because(split.reason, split.why)}")
    return lines + [f"  stay   {skip.what}: {skip.reason}" for skip in plan.skipped]
