"""The shapes of decisions, dry runs and sealed plans, as the OpenAPI document has them."""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from loadmanager.kit.http.model import Model, Name
from loadmanager.leader.http.models import BundleShown, MoveShown, Outcome, Pin


class MoveInShort(Model):
    """A move that a cycle decided, in short."""

    id: str
    state: str
    outcome: str | None
    owner: str | None


class BundleLoad(Model):
    """The load of a bundle when a plan was made."""

    rate: float
    throughput: float


class UnloadShown(Model):
    """A bundle that is to leave its broker; `why` has the numbers."""

    bundle: str
    source: str
    destination: str | None
    reason: str
    why: dict[str, float | str]
    move: MoveInShort | UnsetType | None = UNSET
    load: BundleLoad | UnsetType | None = UNSET


class PlacementShown(Model):
    """The broker chosen for a bundle; `rejected` says why the other brokers do not get it."""

    bundle: str
    broker: str | None
    candidates: list[str]
    rejected: dict[str, str]


class SplitShown(Model):
    """A bundle that is to be split; `why` has the figure that is too high, and its limit."""

    bundle: str
    boundaries: list[str]
    """Empty: its owner chooses."""
    reason: str
    why: dict[str, float | str]


class SkipShown(Model):
    """A refusal: a bundle, a broker or `cluster` stays as it is, and why."""

    what: str
    code: str
    """One word, for programs; `reason` begins with it."""
    reason: str


class PlanShown(Model):
    """The decisions of a cycle."""

    strategy: str
    unloads: list[UnloadShown]
    placements: list[PlacementShown]
    splits: list[SplitShown]
    skipped: list[SkipShown]


class BrokerLoadShown(Model):
    """The load of one broker that a cycle decided from."""

    usage: float
    """The most used resource after weighting; in the extensible manager, its average."""
    rate: float
    throughput: float
    bundles: int
    report_age_ms: int | None


class Inputs(Model):
    """The loads that a cycle decided from: of the most used brokers, and of those that its plan
    names.
    """

    brokers: int
    average_usage: float | None
    loads: dict[str, BrokerLoadShown]


class DecisionShown(Model):
    """A decision. Which fields it has depends on its kind.

    `shed`: a cycle with its plan; `place`: a bundle got a broker; `split`, `merge`; `move`: a move
    has ended; `newcomers`: why nearly empty brokers stay so; `skip`: something was not done;
    `failure`: a step of the leader failed. Of each list at most 200 entries are shown; `…Count`
    says how many there are.
    """

    id: str
    ts: int
    kind: str
    epoch: int
    cycle: int
    times: int | UnsetType = UNSET
    """The number of cycles in a row, from `firstAt` until `ts`, that moved nothing for the same
    reasons.
    """
    first_at: int | UnsetType = UNSET
    strategy: str | UnsetType = UNSET
    inputs: Inputs | UnsetType = UNSET
    unloads: list[UnloadShown] | UnsetType = UNSET
    unloads_count: int | UnsetType = UNSET
    placements: list[PlacementShown] | UnsetType = UNSET
    placements_count: int | UnsetType = UNSET
    splits: list[SplitShown] | UnsetType = UNSET
    splits_count: int | UnsetType = UNSET
    skipped: list[SkipShown] | UnsetType = UNSET
    skipped_count: int | UnsetType = UNSET
    bundle: str | UnsetType = UNSET
    broker: str | UnsetType | None = UNSET
    candidates: list[str] | UnsetType = UNSET
    rejected: dict[str, str] | UnsetType = UNSET
    rejected_count: int | UnsetType = UNSET
    boundaries: list[str] | UnsetType = UNSET
    parts: list[str] | UnsetType = UNSET
    reason: str | UnsetType = UNSET
    source: str | UnsetType = UNSET
    destination: str | UnsetType | None = UNSET
    why: dict[str, float | str] | UnsetType = UNSET
    author: str | UnsetType = UNSET
    swap: str | UnsetType | None = UNSET
    state: str | UnsetType = UNSET
    created_at: int | UnsetType = UNSET
    started_at: int | UnsetType | None = UNSET
    ended_at: int | UnsetType | None = UNSET
    outcome: Outcome | UnsetType | None = UNSET
    move: str | UnsetType = UNSET
    step: str | UnsetType = UNSET
    error: str | UnsetType = UNSET


class DecisionsShown(Model):
    """Decisions, the newest first."""

    at: int
    kept_since: int | None
    """When the oldest decision was made that is still kept."""
    decisions: list[DecisionShown]


class Average(Model):
    """An average over the last samples of a bundle."""

    rate: float
    throughput: float
    samples: int


class Averages(Model):
    """The averages that placement and shedding decide from."""

    short_term: Average
    long_term: Average


class BundleStory(BundleShown):
    """A bundle, with the decisions that concern it, the newest first."""

    at: int
    replaced_by: list[str]
    """The bundles that it was split or merged into; empty while it is a bundle."""
    average: Averages | None
    pin: Pin | None
    move: MoveShown | None
    history: list[DecisionShown]


class DryRun(Model):
    """The strategies and settings to try; those that are left out are the ones in force."""

    shedder: Name | None = None
    placement: Name | None = None
    settings: dict[str, str | float | bool] = msgspec.field(default_factory=dict)
    """Keys of broker.conf that belong to strategies."""


class BasedOn(Inputs):
    """The data that a plan was made from."""

    at: int


class Bounds(Model):
    """The differences at which a plan is still carried out: a bundle's rate and throughput by
    `loadFraction` of the larger value, and in any case by `rate` and `throughput`; the usage of its
    brokers by `usage`.
    """

    life_ms: int
    load_fraction: float
    rate: float
    throughput: float
    usage: float


class SealedSummary(Model):
    """A sealed plan."""

    id: str
    state: Literal["ready", "expired", "executed"]
    created_at: int
    expires_at: int
    executed_at: int | None
    epoch: int
    shedder: str
    placement: str
    settings: dict[str, str]
    unload_count: int


class SealedPlan(SealedSummary):
    """A sealed plan with its reasons; `moves` is empty until it is carried out."""

    based_on: BasedOn
    bounds: Bounds
    plan: PlanShown
    moves: list[MoveShown]


class SealedPlans(Model):
    """The plans of this term, the newest first."""

    plans: list[SealedSummary]


class DriftShown(Model):
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
    bundle: str | None
    code: str | None
    """What a guard or a filter says, of `refused` and `destination`."""
    reason: str


class Refusal(Model):
    """Why a sealed plan is not carried out; `drift` has every difference."""

    reason: str
    drift: list[DriftShown] = msgspec.field(default_factory=list)
