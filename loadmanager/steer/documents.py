"""What the daemon beside a Pulsar cluster says of it. Times are milliseconds since the epoch."""

from __future__ import annotations

from typing import Literal

from loadmanager.engine.strategies.plan_document import PlanShown, SplitShown, UnloadShown
from loadmanager.kit.model import Shape
from loadmanager.steer.ports.cluster_reader import Cost

Mode = Literal["observe", "advise", "approve", "act"]


class WatchedBroker(Shape):
    """A broker of the cluster. What has not been read is null."""

    answers: bool
    """Whether it answered when it was last read."""
    age_seconds: float | None
    bundles: int | None
    msg_rate_in: float | None
    msg_rate_out: float | None
    cpu_percent: float | None


class Ages(Shape):
    """The age of each part of the picture, in seconds; null: never read."""

    brokers: float | None
    policies: float | None
    settings: float | None


class PictureShown(Shape):
    """The cluster as it was read, with its age."""

    cluster: str
    manager: Literal["modular", "extensible"]
    leader: str | None
    pulsar_balances: list[str] | None
    """Pulsar's own switches that are on; null: not known yet."""
    age_seconds: Ages
    brokers: dict[str, WatchedBroker]
    problems: dict[str, str]
    """What could not be read when it was last tried, and why."""


class CanaryShown(Shape):
    """What the daemon's canary measured last; null: nothing yet."""

    pause_seconds: float | None
    """From the closing of its producer to the first receipt of the next owner."""
    at: int | None
    problem: str | None
    """Why it could not measure when it last tried, or why it waits now."""


class FleetShown(PictureShown):
    """The state of the cluster as the daemon knows it, with its age."""

    name: str
    """The cluster's name in the daemon's configuration; `cluster` is Pulsar's own."""
    mode: Mode
    held: str | None
    """Why nothing is decided, or moved, now."""
    held_code: str | None
    """The word that `held` begins with, for programs."""
    paused_until: int | None
    decides_by: dict[str, str]
    """Keys of broker.conf, as they are in force where cycles decide; not named: the default."""
    canary: CanaryShown | None
    """Null without `canaryNamespace`, and in the modes that move nothing."""
    cost: Cost


class ClusterSummary(Shape):
    """One cluster of a daemon. Null: not known, or the token of the request may not read it."""

    name: str
    port: int
    """The port of its API and its page, at this daemon's host."""
    mode: Mode | None = None
    state: Literal["leads", "waits", "problem"] | None = None
    """Whether this daemon leads there, waits for the lock, or has a problem."""
    why: str | None = None
    """Why it waits, or what the problem is."""
    brokers: int | None = None
    lowest_usage: float | None = None
    """Of the brokers that answer: 1.0 is what a broker has."""
    highest_usage: float | None = None
    modelled: int = 0
    """Of so many brokers the usage is that of the model, since their sensors do not count."""
    held: str | None = None
    """Why nothing is decided, or moved, now."""
    open_goals: int | None = None
    read_at: int | None = None
    """When its list of brokers was last read."""


class ClustersShown(Shape):
    """All clusters of this daemon, the worst first."""

    name: str
    """The cluster that was asked."""
    clusters: list[ClusterSummary]


class UnloadAdvised(UnloadShown, kw_only=True):
    """A move with the `pulsar-admin` command line that makes it."""

    command: str


class PlanAdvised(PlanShown):
    """A plan whose moves have command lines."""

    unloads: list[UnloadAdvised]  # type: ignore[assignment]


class ShadowShown(Shape):
    """The plan of another strategy, which is not carried out."""

    strategy: str
    plan: PlanAdvised | None
    problem: str | None
    """Why it made no plan in the last cycle."""


class SplitAdvised(SplitShown, kw_only=True):
    """A bundle that is too big, and the `pulsar-admin` command line that has its owner split it."""

    broker: str
    """Its owner."""
    plan_id: str | None
    """The sealed plan of this split that may be approved."""
    command: str


class AdviceShown(Shape):
    """The advice of the last cycle."""

    held: str | None
    """Why nothing is decided, or moved, now."""
    held_code: str | None
    """The word that `held` begins with, for programs."""
    at: int | None
    plan_id: str | None
    """The sealed plan that may be approved."""
    plan: PlanAdvised | None
    shadows: list[ShadowShown]
    splits: list[SplitAdvised]
