"""The cluster as its leader sees it: brokers and bundles.

Times are milliseconds since the epoch, rates messages/s, throughputs bytes/s, usages fractions of 1
(more than 1: overcommitted). A figure is null where nobody has reported it.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from loadmanager.kit.model import Shape
from loadmanager.kit.reason import Reason
from loadmanager.leader.documents.members import AbsentBroker
from loadmanager.leader.documents.moves import CordonShown, PauseShown
from loadmanager.leader.documents.replays import ReplayShown, not_measured

BrokerState = Literal["active", "unreadable", "gone", "cordoned", "draining", "drained", "stopped"]
Sort = Literal["rate", "throughput", "age"]
"""An order of bundles, with the largest first."""


class LeaderShown(Shape):
    """The leader and its term."""

    broker: str
    url: str
    epoch: int
    since: int
    """When its term began."""


class Resource(Shape):
    """One resource of a broker; `fraction` is null when the limit is not known."""

    usage: float
    limit: float
    fraction: float | None


class Resources(Shape):
    """CPU in percent of one core, memory in MiB, bandwidth in kbit/s."""

    cpu: Resource
    memory: Resource
    direct_memory: Resource
    bandwidth_in: Resource
    bandwidth_out: Resource


class TrafficShown(Shape):
    """`rate` and `throughput` are the sums of in and out."""

    rate: float | None
    throughput: float | None
    msg_rate_in: float | None
    msg_rate_out: float | None
    msg_throughput_in: float | None
    msg_throughput_out: float | None


class DiskShown(Shape):
    """A disk of a broker. What is kept for the superuser is neither free nor used."""

    stored: str
    """What is stored there: `history`, `topics`, `store` (the metadata store), or several."""
    used_bytes: int
    size_bytes: int
    """What may be used."""

    @property
    def percent(self) -> float:
        """How full it is."""
        return 100 * self.used_bytes / self.size_bytes if self.size_bytes > 0 else 0.0


class ReportShown(TrafficShown):
    """The last report of a broker."""

    usage: float | None
    """The most used resource: in the modular manager after weighting, as shedders go by."""
    resources: Resources | None
    bundles: int | None
    topics: int | None
    producers: int | None
    consumers: int | None
    reported_at: int | None
    report_age_ms: int | None


class BrokerShown(ReportShown):
    """A broker with its last report."""

    broker: str
    url: str | None
    """Its admin API for who asks as you do: over TLS or without, and by the same listener. Null: it
    advertises none there.
    """
    service_url: str | None
    leader: bool
    state: BrokerState
    """`unreadable`: it is registered, and its report is corrupt. `stopped`: it was drained, and is
    not running. `gone`: it is cordoned, and not running.
    """
    cordon: CordonShown | None
    version: str | None
    started_at: int | None
    modelled: float | None = None
    """Its usage by the model, from its traffic and what it differs by. `usage` is what its sensors
    show, or this, where `sensor` says why these do not count.
    """
    model_error: float | None = None
    """The mean error of `modelled`."""
    sensor: Reason | None = None
    """Why its sensor does not count, if it does not."""
    disks: list[DiskShown] = msgspec.field(default_factory=list)
    """Those that it writes to, the fullest first; none of a broker that does not tell."""


class MovesCount(Shape):
    """The numbers of moves that wait and that are under way."""

    waiting: int
    running: int


class HeadroomShown(Shape):
    """How much more traffic the brokers could carry if it were spread evenly. What they use beside
    traffic stays with them; brokers with a cordon carry nothing.
    """

    resource: str
    """The resource that ends first."""
    below_percent: float
    """The usage that none is to pass."""
    times: float
    """The traffic that they could carry, as a multiple of the present one."""
    times_without_one: float
    """The same without the broker that has most room: below 1, that one cannot be lost."""
    carried_percent: float | None = None
    """What the present traffic uses of the resource on the mean; null: of an earlier version."""
    measurable_from_percent: float = 0.0
    """If traffic uses less than this, `times` and `timesWithoutOne` are noise of the sensors."""
    at_least: float = 0.0
    at_least_without_one: float = 0.0
    """The same multiples if all that is used were the traffic's: so much they carry at least."""
    cordoned: int = 0
    """Brokers that count as full, since they have a cordon."""
    looks: int = 1
    """The figures are the medians of so many cycles with these brokers, within five minutes."""
    since: int | None = None
    """When the first of these cycles was."""
    last: int | None = None
    """When the last of them was: the load may be another one now."""

    @property
    def measurable(self) -> bool:
        """Whether the figures say something."""
        return self.carried_percent is None or self.carried_percent >= self.measurable_from_percent


class ClusterShown(Shape):
    """The cluster as the leader sees it."""

    at: int
    leader: LeaderShown
    manager: Literal["modular", "extensible"]
    shedder: str
    placement: str
    balancing: bool
    """Whether shedding cycles run and may move something; `hold` says why that waits."""
    cycles: int
    """Shedding cycles of this term."""
    paused: PauseShown | None
    moves: MovesCount
    bundles: int
    """Bundles that brokers say they own."""
    total: int
    """Brokers; `brokers` has the first ones by name, as many as `limit` allows."""
    brokers: list[BrokerShown]
    headroom: HeadroomShown | None = None
    """By the last cycle's reports; None: nothing is carried, or nothing says what that costs."""
    expected: int = 0
    """How many brokers there should be (`loadManagerExpectedBrokers`); 0: nobody said."""
    absent: list[AbsentBroker] = msgspec.field(default_factory=list)
    """Brokers that left in the last days, the last one first; also those that are back."""
    replay: ReplayShown = msgspec.field(default_factory=not_measured)
    """How far off the last replay of a recorded day was: `headroom` goes by the same model."""
    awaited: int = 0
    """Bundles that are placed, or moving, and that no broker says it owns yet: some may be taken up
    by nobody, where whoever asked for them did not go on.
    """
    fleet: str | None = None
    """The cluster's name in the daemon beside Pulsar that answers; null: a broker does."""
    mode: str | None = None
    """What this daemon does: observe, advise, approve or act; null: a broker answers."""
    hold: str | None = None
    """Why this daemon moves, or decides, nothing now."""
    store_silent_ms: int | None = None
    """For how long the metadata store has not answered the leader, where it should have; null: it
    does.
    """


class BundleShown(TrafficShown):
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


class BundlesShown(Shape):
    """Bundles in order; `total` of them match."""

    at: int
    sort: Sort
    total: int
    bundles: list[BundleShown]


class LeaderBroker(Shape):
    """The leader."""

    service_url: str
    broker_id: str
