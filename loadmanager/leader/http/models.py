"""The shapes of the project's own API, as its OpenAPI document has them.

Times are milliseconds since the epoch, rates messages/s, throughputs bytes/s, usages fractions of 1
(more than 1: overcommitted). A figure is null where nobody has reported it.
"""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, UnsetType

from loadmanager.kit.http.model import Model, Name, Shape


class Pause(Model):
    """No queued move begins before `until`."""

    until: int
    note: str


class LeaderShown(Model):
    """The leader and its term."""

    broker: str
    url: str
    epoch: int
    since: int
    """When its term began."""


class Resource(Model):
    """One resource of a broker; `fraction` is null when the limit is not known."""

    usage: float
    limit: float
    fraction: float | None


class Resources(Model):
    """CPU in percent of one core, memory in MiB, bandwidth in kbit/s."""

    cpu: Resource
    memory: Resource
    direct_memory: Resource
    bandwidth_in: Resource
    bandwidth_out: Resource


class Traffic(Model):
    """`rate` and `throughput` are the sums of in and out."""

    rate: float | None
    throughput: float | None
    msg_rate_in: float | None
    msg_rate_out: float | None
    msg_throughput_in: float | None
    msg_throughput_out: float | None


class Cordon(Model):
    """A broker that gets no new bundle, with the progress of its drain, if it is drained."""

    broker: str
    since: int
    note: str
    state: Literal["cordoned", "draining", "drained", "stopped"]
    """`stopped`: it was drained, and is not running."""
    active: bool
    until_restart: bool
    """Whether it ends when the broker is back."""
    total: int | UnsetType = UNSET
    left: int | UnsetType | None = UNSET
    moved: int | UnsetType = UNSET
    failed: int | UnsetType = UNSET
    moves_per_minute: float | UnsetType = UNSET
    seconds_left: int | UnsetType | None = UNSET
    problem: str | UnsetType = UNSET


class BrokerShown(Traffic):
    """A broker with its last report."""

    broker: str
    url: str | None
    service_url: str | None
    leader: bool
    state: Literal["active", "unreadable", "gone", "cordoned", "draining", "drained", "stopped"]
    """`unreadable`: it is registered, and its report is corrupt. `stopped`: it was drained, and is
    not running. `gone`: it is cordoned, and not running.
    """
    cordon: Cordon | None
    version: str | None
    started_at: int | None
    usage: float | None
    """The most used resource: in the modular manager after weighting, as shedders go by."""
    resources: Resources | None
    bundles: int | None
    topics: int | None
    producers: int | None
    consumers: int | None
    reported_at: int | None
    report_age_ms: int | None


class MovesCount(Model):
    """The numbers of moves that wait and that are under way."""

    waiting: int
    running: int


class ClusterShown(Model):
    """The cluster as the leader sees it."""

    at: int
    leader: LeaderShown
    manager: Literal["modular", "extensible"]
    shedder: str
    placement: str
    balancing: bool
    """Whether shedding cycles run and may move something."""
    cycles: int
    """Shedding cycles of this term."""
    paused: Pause | None
    moves: MovesCount
    bundles: int
    """Bundles that have an owner."""
    total: int
    """Brokers; `brokers` has the first ones by name, as many as `limit` allows."""
    brokers: list[BrokerShown]


class BundleShown(Traffic):
    """A bundle with its owner and its last reported load."""

    bundle: str
    owner: str | None
    owned_since: int | None
    owned_since_exact: bool
    """False: it was there already when the leader's term began, which `ownedSince` tells then."""
    moving: bool
    moving_to: str | None
    pinned_to: str | None
    topics: int | None
    producers: int | None
    consumers: int | None


class BundlesShown(Model):
    """Bundles in order; `total` of them match."""

    at: int
    sort: Literal["rate", "throughput", "age"]
    total: int
    bundles: list[BundleShown]


class Outcome(Model):
    """The verified result of a move; or of a split, which has `children`."""

    text: str
    children: list[str] | UnsetType = UNSET
    """The bundles that replaced the one that was split; none if it was not split."""
    owner: str | None = None
    code: str | None = None
    """`NotSent`: no order was sent. `NotOwned`: the source did not own the bundle. Else null."""
    clients_closed: int | None = None
    clients_back: int | None = None
    pause_ms: float | None = None


class MoveShown(Model):
    """A move of a bundle."""

    id: str
    bundle: str
    source: str
    destination: str | None
    reason: str
    why: dict[str, float | str]
    author: Literal["cycle", "operator", "drain", "plan", "merge"]
    swap: str | None
    """Moves with the same `swap` are made together or not at all."""
    state: Literal["queued", "running", "done", "failed", "cancelled", "expired"]
    created_at: int
    started_at: int | None
    ended_at: int | None
    outcome: Outcome | None
    pinned_until: int | UnsetType = UNSET


class NothingMoved(Model):
    """There was nothing to move: `outcome` says why."""

    bundle: str
    state: None
    outcome: Outcome
    pinned_until: int | UnsetType = UNSET


class MovesShown(Model):
    """The queue of moves, then the last moves that ended."""

    paused: Pause | None
    waiting: int
    running: int
    moves: list[MoveShown]


class Pin(Model):
    """A bundle that stays at a broker until a time."""

    broker: str
    until: int
    note: str


class MoveWanted(Model):
    """A bundle, and where it is to go; `pinSeconds`: for how long it is to stay there."""

    bundle: Name
    destination: Name
    pin_seconds: float | UnsetType = UNSET
    note: str = ""


class PauseWanted(Model):
    """For how long no move shall begin."""

    seconds: float
    note: str = ""


class CordonWanted(Model):
    """Why, for others."""

    note: str = ""


class MergeWanted(Model):
    """Two neighbouring ranges of a namespace, in any order."""

    namespace: Name
    first: Name
    second: Name


class Merged(Model):
    """The new bundle."""

    merged: str


class Cancelled(Model):
    """The number of cancelled moves."""

    cancelled: int


class LeaderBroker(Shape):
    """The leader."""

    service_url: str
    broker_id: str
