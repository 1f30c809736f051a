"""The history's records: one JSON object a line.

The exporter writes them, the analysis reads them with a schema that is derived from these classes.

Rates are messages/s, throughputs bytes/s, times milliseconds since the epoch. `interval_ms` is how
long a sample stands for: a broker counts, and its rates are the means of that time, so that rate ×
time is what was carried. Brokers until version 0.3.0 recorded what they had measured last, as the
daemon beside a Pulsar does, which counts nothing. A later version of the schema adds fields and
never changes the meaning of one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any, ClassVar

import msgspec

from loadmanager.engine.load.reports import LocalBrokerData, NamespaceBundleStats, ResourceUsage
from loadmanager.engine.moves.move import Author, Move, MoveState, Outcome
from loadmanager.engine.strategies.plan import Plan, Skip
from loadmanager.engine.strategies.plan_document import placement_reason
from loadmanager.kit.errors import OperationalError

VERSION = 2
POSSIBLE = 1.5
"""A sensor that shows more than this multiple of what there is lies."""
REJECTED_MAX = 50
SKIPS_MAX = 100
"""Reasons for doing nothing that one cycle records at most."""


class Record(msgspec.Struct, rename="camel", kw_only=True):
    """The fields that every record has."""

    kind: ClassVar[str]
    ts: int
    broker: str
    v: int = VERSION


class BrokerLoad(Record):
    """A broker's load report, without its bundles."""

    kind: ClassVar[str] = "broker_load"
    interval_ms: int
    usage: float
    """The most used resource after weighting, as a fraction: what shedders go by."""
    cpu: ResourceUsage
    memory: ResourceUsage
    direct_memory: ResourceUsage
    bandwidth_in: ResourceUsage
    bandwidth_out: ResourceUsage
    msg_rate_in: float = 0.0
    msg_rate_out: float = 0.0
    msg_throughput_in: float = 0.0
    msg_throughput_out: float = 0.0
    bundles: int = 0
    topics: int = 0
    producers: int = 0
    consumers: int = 0
    faults: list[str] = msgspec.field(default_factory=list)
    """Sensors that could not be trusted."""


class BundleLoad(Record):
    """Traffic of one bundle at its owner."""

    kind: ClassVar[str] = "bundle_load"
    interval_ms: int
    bundle: str
    msg_rate_in: float = 0.0
    msg_rate_out: float = 0.0
    msg_throughput_in: float = 0.0
    msg_throughput_out: float = 0.0
    topics: int = 0
    producers: int = 0
    consumers: int = 0
    stored_bytes: int | None = None
    """What its open topics have stored; None: nobody knows, as in earlier versions."""


class TopicLoad(Record):
    """Traffic of one of the busiest topics of a broker."""

    kind: ClassVar[str] = "topic_load"
    interval_ms: int
    topic: str
    bundle: str
    msg_rate_in: float = 0.0
    msg_rate_out: float = 0.0
    msg_throughput_in: float = 0.0
    msg_throughput_out: float = 0.0
    producers: int = 0
    consumers: int = 0
    backlog_messages: int = 0


class Decision(Record):
    """One thing that the leader decided, or decided not to do."""

    kind: ClassVar[str] = "decision"
    epoch: int
    cycle: int
    strategy: str
    action: str
    """`unload`, `place`, `split`, `skip`, or `move` when a move has ended: its outcome beside its
    reason. A split has two records: when it is decided, and when it has ended.
    """
    bundle: str | None = None
    """The bundle; None for a skip that concerns none: then `what` names a broker or the cluster."""
    what: str | None = None
    source: str | None = None
    destination: str | None = None
    reason: str = ""
    code: str | None = None
    """Of `skip`: the word for its reason, which programs read, while `reason` is for people. Of
    `unload`, `split` and `move`, `reason` is such a word itself.
    """
    why: dict[str, str] = msgspec.field(default_factory=dict)
    """The numbers that the decision came from, as texts. Of `place`: rejected broker → why."""
    move: str | None = None
    """The move's id; this and what follows: of `move` only, but `state` and `outcome` also of
    `split`.
    """
    author: str | None = None
    """Who wanted it: `cycle`, `operator`, `drain` or `merge`."""
    state: str | None = None
    """`done`, `failed`, `cancelled` or `expired`; of a split, also `running`."""
    outcome: str | None = None
    """For people."""
    owner: str | None = None
    """The broker that owned the bundle afterwards."""
    clients_closed: int | None = None
    """Producers and consumers that the source had."""
    clients_back: int | None = None
    """Producers and consumers that the destination served some seconds later."""
    clients_back_at: str | None = None
    """The broker that served those, if it was another one: the bundle had gone on from there."""
    pause_ms: float | None = None
    """From the fence at the source to the acquisition by the destination; of one that failed, until
    the leader had found another owner.
    """
    waited_ms: int | None = None
    """From the decision to the beginning."""
    life: int | None = None
    """The source's ownership that the move ended: `life` of its `ownership` records."""
    clients_waited_ms: float | None = None
    """From the fence at the source until the last of the clients that came back was served."""
    clients_waited_mean_ms: float | None = None
    """The same for all of these, on the mean."""
    clients_unserved: int | None = None
    """Those that were connected to the destination and had got nothing of what they wanted."""
    ids: list[str] = msgspec.field(default_factory=list)
    """The ids by which the leader shows it: its own, and of `move`, also that of the decision that
    ordered the move. Empty in earlier versions, and where a broker decided that does not lead.
    """
    unanswered_since: int | None = None
    """When the source was ordered to give the bundle up, in ms since the epoch, if it gave no
    answer: from then on it may have served nobody.
    """
    clients: int | None = None
    """Producers and consumers of the bundle when the move began, by the source's last report."""
    started_at: int | None = None
    """When the move began; None: it did not, or a version before wrote this."""
    ended_at: int | None = None
    """When the move ended; None: a version before wrote this. `ts` is when this was written: once
    its clients were counted, up to minutes later.
    """
    clients_within_ms: int | None = None
    """How long after the move's end it was last looked who is back: a client may have come later.
    """
    figures: dict[str, str] = msgspec.field(default_factory=dict)
    """Of `place`: the numbers of a rule that says them, as texts: BalancedPlacement says what the
    broker uses, by the model and by its sensors, with the model's error.
    """


class OwnershipStep(Record):
    """One transition of a bundle on one broker."""

    kind: ClassVar[str] = "ownership"
    bundle: str
    before: str
    after: str
    reason: str
    """For people; programs read `cause` and `parent`."""
    cause: str | None = None
    """One of the causes that `engine.ownership.states.LifeCause` lists; None in version 1."""
    parent: str | None = None
    """The bundle whose split began this life of the bundle; None in version 1."""
    destination: str | None = None
    pause_ms: float | None = None
    """From the fence to the acquisition by the destination, on the transition that
    ends a release.
    """
    life: int | None = None
    """Names this ownership of the bundle: the transaction that took its claim. Grows from each
    owner of a bundle to the next, whatever their clocks say. None before the claim is taken.
    """


class Throttle(Record):
    """One limit over one interval."""

    kind: ClassVar[str] = "throttle"
    interval_ms: int
    level: str
    """`broker`, `topic`, `subscription` or `resource group`."""
    limit: str
    configured_messages_per_s: float
    configured_bytes_per_s: float
    """−1 when unlimited."""
    delivered_messages_per_s: float
    delivered_bytes_per_s: float
    held: int = 0
    """How often somebody began to wait in the interval."""
    waited_ms: float = 0.0
    """Sum of the waits that ended in the interval."""
    queue_length: int = 0
    stood_ms: int | None = None
    """For how long of the interval these rates were configured; None: a version before wrote this.
    `delivered` is over the whole interval.
    """


BY_ITSELF = "broker"


class AuditedChange(Record):
    """A change that somebody was allowed to make: what an operator or a client did, not what the
    leader decided. One that changed several stored documents has a record for each. Also that a
    broker that is not well cordons itself, or no longer, and that a limit ends by itself.
    """

    kind: ClassVar[str] = "change"
    role: str
    """Empty without authentication."""
    address: str
    """Where the request came from; if another broker passed it on, that broker."""
    over: str
    """`http`, `binary` (Pulsar's protocol), `fleet` (the API of the daemon beside a cluster), or
    `broker`: that broker did it by itself.
    """
    what: str
    """The method and path of a request, the command with its topic, or what a broker did."""
    proxied: str | None = None
    """The role for which a proxy asked."""
    path: str | None = None
    """The stored document that was changed."""
    before: str | None = None
    """The fields that were changed, as JSON, cut off when it is long; None: there was nothing."""
    after: str | None = None
    """The same afterwards; None: it was deleted. Without a stored document, what was asked for."""
    note: str | None = None
    """What else is to be said, such as that the request failed after this change."""
    id: str | None = None
    """By which the change can be undone; None: a version before there were ids wrote this."""
    words: str | None = None
    """What was done, in words; None: a version that had none wrote this."""
    failed: bool = False
    """Whether it could not be carried out; `note` says why."""

    def __str__(self) -> str:
        """What was done."""
        return self.words or self.what


KINDS: dict[str, type[Record]] = {
    item.kind: item
    for item in (
        BrokerLoad,
        BundleLoad,
        TopicLoad,
        Decision,
        OwnershipStep,
        Throttle,
        AuditedChange,
    )
}


def broker_load(
    ts: int,
    broker: str,
    report: LocalBrokerData,
    *,
    usage: float,
    interval_ms: int,
    faults: list[str],
) -> BrokerLoad:
    """What a report says. Pulsar may count less than nothing sent over the network: that is 0."""

    def counted(resource: ResourceUsage) -> ResourceUsage:
        return resource if resource.usage >= 0 else ResourceUsage(0.0, resource.limit)

    return BrokerLoad(
        ts=ts,
        broker=broker,
        interval_ms=interval_ms,
        usage=usage,
        cpu=counted(report.cpu),
        memory=counted(report.memory),
        direct_memory=counted(report.direct_memory),
        bandwidth_in=counted(report.bandwidth_in),
        bandwidth_out=counted(report.bandwidth_out),
        msg_rate_in=report.msg_rate_in,
        msg_rate_out=report.msg_rate_out,
        msg_throughput_in=report.msg_throughput_in,
        msg_throughput_out=report.msg_throughput_out,
        bundles=int(report.num_bundles),
        topics=int(report.num_topics),
        producers=int(report.num_producers),
        consumers=int(report.num_consumers),
        faults=faults,
    )


def bundle_loads(
    ts: int,
    broker: str,
    stats: Mapping[str, NamespaceBundleStats],
    *,
    interval_ms: int,
    stored: Mapping[str, int] | None = None,
) -> list[BundleLoad]:
    """`stored`: the bytes that a bundle has stored; others have none. None: nobody knows."""
    return [
        BundleLoad(
            ts=ts,
            broker=broker,
            interval_ms=interval_ms,
            bundle=bundle,
            msg_rate_in=item.msg_rate_in,
            msg_rate_out=item.msg_rate_out,
            msg_throughput_in=item.msg_throughput_in,
            msg_throughput_out=item.msg_throughput_out,
            topics=int(item.topics),
            producers=int(item.producer_count),
            consumers=int(item.consumer_count),
            stored_bytes=None if stored is None else stored.get(bundle, 0),
        )
        for bundle, item in stats.items()
    ]


def decisions(
    ts: int, broker: str, plan: Plan, *, epoch: int, cycle: int, ids: Sequence[str] = ()
) -> list[Decision]:
    """A record for everything in a plan; of the skips, `SKIPS_MAX`, bundles first; of the brokers
    that a placement rejected, the first `REJECTED_MAX`.
    """

    def record(action: str, **fields: Any) -> Decision:
        return Decision(
            ts=ts,
            broker=broker,
            epoch=epoch,
            cycle=cycle,
            strategy=plan.strategy,
            action=action,
            ids=list(ids),
            **fields,
        )

    records = [
        record(
            "unload",
            bundle=unload.bundle,
            source=unload.source,
            destination=unload.destination,
            reason=unload.reason,
            why=_texts(unload.why),
        )
        for unload in plan.unloads
    ]
    records += [
        record(
            "place",
            bundle=placed.bundle,
            destination=placed.broker,
            reason=placement_reason(placed.candidates, placed.rejected),
            why=_clipped({broker: str(why) for broker, why in sorted(placed.rejected.items())}),
            figures=_texts(placed.why),
        )
        for placed in plan.placements
    ]
    records += [
        record(
            "split",
            bundle=split.bundle,
            reason=split.reason,
            why=_texts(split.why),
            state=split.state,
            outcome=None if split.end is None else split.end.text,
        )
        for split in plan.splits
    ]
    skipped: Sequence[Skip] = plan.skipped
    if len(skipped) > SKIPS_MAX:  # hundreds of brokers that are not overloaded; bundles say more
        skipped = sorted(skipped, key=lambda skip: "/" not in skip.what)[:SKIPS_MAX]
    records += [
        record("skip", what=skip.what, code=skip.code, reason=skip.reason, why=_texts(skip.why))
        for skip in skipped
    ]
    return records


def _texts(why: Mapping[str, float | str]) -> dict[str, str]:
    return {name: str(value) for name, value in why.items()}


def move_record(
    ts: int,
    broker: str,
    move: Move,
    *,
    epoch: int,
    cycle: int,
    life: int | None,
    ids: Sequence[str] = (),
) -> Decision:
    """The record of a move that has ended; `life`: that of the bundle at the source."""
    outcome = move.outcome or Outcome("")
    begun_ms = move.started_at
    return Decision(
        ts=ts,
        broker=broker,
        epoch=epoch,
        cycle=cycle,
        strategy="",
        action="move",
        bundle=move.bundle,
        source=move.source,
        destination=move.destination,
        reason=move.reason,
        why=_texts(move.why),
        move=move.id,
        author=move.author.value,
        state=move.state.value,
        outcome=outcome.text,
        owner=outcome.owner,
        clients_closed=outcome.clients_closed,
        clients_back=outcome.clients_back,
        clients_back_at=outcome.clients_back_at,
        clients_within_ms=outcome.clients_within_ms,
        clients_unserved=outcome.clients_unserved,
        clients_waited_ms=outcome.clients_waited_ms,
        clients_waited_mean_ms=outcome.clients_waited_mean_ms,
        pause_ms=outcome.pause_ms,
        unanswered_since=outcome.unanswered_since,
        clients=move.clients,
        life=life,
        waited_ms=None if begun_ms is None else max(0, begun_ms - move.created_at),
        started_at=begun_ms,
        ended_at=move.ended_at,
        ids=list(ids),
    )


def decided_ms(record: Decision) -> int:
    """When it happened: of a move, when it ended, and not when its clients had been counted."""
    return record.ts if record.ended_at is None else record.ended_at


def recorded_move(record: Decision) -> Move:
    """The move that `move_record` recorded. Raises `OperationalError` for words of another
    version.
    """
    ended_ms = decided_ms(record)
    begun_ms = ended_ms if record.started_at is None else record.started_at
    try:
        author, state = Author(record.author), MoveState(record.state)
    except ValueError as error:
        raise OperationalError(
            f"the record of move {record.move} is of another version: {error}"
        ) from None
    return Move(
        id=record.move or "",
        bundle=record.bundle or "",
        source=record.source or "",
        destination=record.destination,
        reason=record.reason,
        why=dict(record.why),
        author=author,
        swap=None,
        state=state,
        created_at=begun_ms - (record.waited_ms or 0),
        started_at=record.started_at,
        ended_at=ended_ms,
        outcome=recorded_outcome(record),
        clients=record.clients,
    )


def recorded_outcome(record: Decision) -> Outcome:
    """What came of a move or a split."""
    return Outcome(
        record.outcome or "",
        owner=record.owner,
        clients_closed=record.clients_closed,
        clients_back=record.clients_back,
        clients_back_at=record.clients_back_at,
        clients_within_ms=record.clients_within_ms,
        clients_unserved=record.clients_unserved,
        clients_waited_ms=record.clients_waited_ms,
        clients_waited_mean_ms=record.clients_waited_mean_ms,
        pause_ms=record.pause_ms,
        unanswered_since=record.unanswered_since,
    )


def _clipped(rejected: dict[str, str]) -> dict[str, str]:
    if len(rejected) <= REJECTED_MAX:
        return rejected
    others = f"{len(rejected) - REJECTED_MAX} more brokers were rejected"
    return {**dict(islice(rejected.items(), REJECTED_MAX)), "others": others}
