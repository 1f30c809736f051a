"""What differs between two moments, by what the brokers recorded of both and between."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import NamedTuple

from msgspec.structs import replace

from loadmanager.cli.admin.past_owners import doubt_text
from loadmanager.engine.bundles.ranges import split_bundle_name
from loadmanager.engine.history.clients import ClientStep
from loadmanager.engine.history.members import MemberChange, left_at_of
from loadmanager.engine.history.records import BrokerLoad, Decision, OwnershipStep, TopicLoad
from loadmanager.engine.history.waits import Key, Loss, interruptions_of, key_of
from loadmanager.engine.moves.move import Author, MoveState
from loadmanager.engine.ownership.states import BundleState, LifeCause
from loadmanager.kit.errors import LoadManagerError
from loadmanager.kit.history.archive_answers import ArchivedEvent, ArchivedLoads
from loadmanager.kit.names import TopicName
from loadmanager.leader.owners_then import PastBundle, figures, in_bundle

QUIET = 0.0005
"""Fewer messages/s are none: they are rounded away."""
LESS = 0.5
"""A namespace that has less than this part of its traffic is named."""
MOVED_BY = {
    Author.CYCLE.value: "the balancer moved them",
    Author.OPERATOR.value: "an operator moved them",
    Author.DRAIN.value: "their broker was drained",
    Author.PLAN.value: "a plan was carried out",
    Author.GOAL.value: "a goal was worked for",
    "merge": "they were to be merged",
}
ENDED_BY = {
    LifeCause.LEADER.value: "the leader had them unloaded",
    LifeCause.OPERATOR.value: "an operator had them unloaded",
    LifeCause.SPLIT.value: "they were split",
    LifeCause.MERGE.value: "they were merged",
    LifeCause.STOP.value: "their broker stopped",
    LifeCause.LOSS.value: "their broker lost its session or their claims",
}
LEFT = {
    "stopped": "their broker stopped",
    "drained": "their broker was drained",
    "lost": "their broker was lost",
}
UNKNOWN = "why is not recorded"
Figures = dict[str, float]
REPLACED = (ENDED_BY[LifeCause.SPLIT.value], ENDED_BY[LifeCause.MERGE.value])
"""Bundles that are no more: others have their topics."""


@dataclass(slots=True)
class ClusterThen:
    """The cluster at one moment."""

    at_ms: int
    bundles: dict[str, PastBundle]
    loads: Sequence[ArchivedLoads]
    gone: Mapping[str, str]
    """Broker → how it had left, of those that were not there."""
    leader: str | None = None
    started: Set[str] = frozenset()
    """Brokers that had started a moment before: they may have recorded no load yet."""
    unknown: Set[str] = frozenset()
    """Brokers of which no load of the moment is known."""
    doubts: Mapping[str, str] = field(default_factory=dict, init=False)
    """Broker → why its load is not that of the moment; see `past_owners.doubt_of`."""
    carried: Mapping[str, Figures | None] = field(default_factory=dict, init=False)
    """Broker → the traffic of the bundles that it owned; see `past_owners.carried_by`."""
    unmeasured: Set[str] = field(default=frozenset(), init=False)
    """Brokers that had just started when they recorded their loads: these are of a part of the
    time, or zeros.
    """
    down: str = field(default="", init=False)
    """That no broker ran, in a sentence: then nothing had an owner, and nothing carried traffic."""

    def there(self) -> set[str]:
        """The brokers that were there."""
        if self.down:
            return set()
        return {*self.brokers(), *self.started, *self.unknown} - self.gone.keys()

    def brokers(self) -> dict[str, Figures]:
        """The brokers that were there and had recorded a load, with their figures."""
        return self._of(BrokerLoad.kind)

    def measured(self) -> dict[str, Figures]:
        """Of the brokers that were there, the figures that are known; their traffic is that of the
        bundles that they owned.
        """
        return {
            name: of | (self.carried.get(name) or {})
            for name, of in self.brokers().items()
            if name not in self.unmeasured
        }

    def owned(self) -> Counter[str]:
        """Broker → how many bundles it owned."""
        return Counter(it.owner for it in self.bundles.values() if it.owner is not None)

    def topics(self) -> dict[str, Figures]:
        """The recorded ones of the brokers that were there: of each its busiest."""
        return self._of(TopicLoad.kind)

    def has_all_topics(self) -> bool:
        """Whether every topic that is not among the recorded ones had no traffic."""
        if self.unknown - self.gone.keys():
            return False
        brokers = self.brokers()
        recorded = {it.broker: it for it in self._there(TopicLoad.kind)}
        for broker, of in brokers.items():
            loads = recorded.get(broker)
            if loads is None:
                if of["topics"] >= 1:
                    return False
                continue
            rates = [rate_of(figures(loads, name)) for name in loads.figures]
            if len(rates) < round(of["topics"]) and min(rates, default=1.0) > QUIET:
                return False
        return True

    def uncounted(self) -> set[str]:
        """Bundles whose owner has recorded no figures of them, or such as are not of the moment."""
        return {
            it.bundle
            for it in self.bundles.values()
            if it.owner and (it.by != it.owner or doubt_text(it))
        }

    def sums(self, without: Set[str], *, tenants: bool) -> dict[str, Figures]:
        """Namespace or tenant → the sums of the figures of its bundles that had an owner, `without`
        some.
        """
        sums = dict[str, Figures]()
        for it in self.bundles.values():
            name = split_bundle_name(it.bundle)[0]
            of = sums.setdefault(name.partition("/")[0] if tenants else name, {})
            if it.owner is not None and it.by == it.owner and it.bundle not in without:
                for column, figure in it.figures.items():
                    of[column] = of.get(column, 0.0) + figure
        return sums

    def _there(self, kind: str) -> Iterator[ArchivedLoads]:
        return (it for it in self.loads if it.kind == kind and it.broker not in self.gone)

    def _of(self, kind: str) -> dict[str, Figures]:
        return {name: figures(it, name) for it in self._there(kind) for name in it.figures}


def rate_of(of: Mapping[str, float]) -> float:
    """Messages/s, in and out."""
    return of.get("msg_rate_in", 0.0) + of.get("msg_rate_out", 0.0)


class Changed(NamedTuple):
    """A bundle whose owner is another one."""

    bundle: str
    before: str | None
    after: str | None
    cause: str


class Less(NamedTuple):
    """A namespace with far less traffic, in messages/s."""

    namespace: str
    before: float
    after: float


class Fewer(NamedTuple):
    """Producers or consumers of a namespace that are fewer."""

    namespace: str
    what: str
    before: int
    after: int


@dataclass(slots=True)
class Missing:
    """What was there at the first moment and is not at the second."""

    bundles: list[Changed] = field(default_factory=list)
    """Without an owner."""
    namespaces: list[str] = field(default_factory=list)
    """Without traffic."""
    less: list[Less] = field(default_factory=list)
    topics: list[str] = field(default_factory=list)
    """Without traffic, in namespaces that have some."""
    all_topics: bool = True
    """Whether others than these are known to have traffic still, or had none."""
    fewer: list[Fewer] = field(default_factory=list)
    clients: list[ClientStep] = field(default_factory=list)
    """Producers and consumers whose last recorded step is that they left, or whose broker was lost.
    """
    uncounted: list[str] = field(default_factory=list)
    """Bundles of whose traffic nothing is known at one of the moments."""


def causes_of(
    changed: Iterable[tuple[str, str | None, str | None]],
    events: Iterable[ArchivedEvent],
    losses: Iterable[Loss] = (),
) -> list[Changed]:
    """Bundle, owner before and after, with the cause: of a bundle that changed its owner several
    times, that of the last time. `events`: what was recorded between, of moves, owners and members,
    the oldest first; `losses`: those of brokers, of which some may be recorded by nobody.
    """
    causes = _Causes()
    for loss in losses:
        causes.left.setdefault(loss.broker, []).append((loss.ts, LEFT["lost"]))
    for event in events:
        if event.kind == OwnershipStep.kind:
            causes.step(event.record_as(OwnershipStep))
        elif event.kind == MemberChange.kind:
            causes.member(event.record_as(MemberChange))
        elif event.kind == f"{Decision.kind}.move":
            causes.move(event.record_as(Decision))
    return [Changed(*it, causes.cause(it[0], it[1] or "", it[2] or "")) for it in changed]


@dataclass(slots=True)
class _Causes:
    """What was recorded: the last of each kind, and all departures."""

    ended: dict[tuple[str, str], str] = field(default_factory=dict)
    moved: dict[tuple[str, str], str] = field(default_factory=dict)
    """Bundle and broker → the cause for which it served the bundle no more."""
    left: dict[str, list[tuple[int, str]]] = field(default_factory=dict)
    """Broker → when its sessions were over, and why."""
    owners: dict[str, list[str]] = field(default_factory=dict)
    """Bundle → those that served it, one after the other."""
    since: dict[tuple[str, str], int] = field(default_factory=dict)
    """Bundle and broker → since when it served the bundle last."""

    def step(self, step: OwnershipStep) -> None:
        if step.after == BundleState.FREE.value and step.cause in ENDED_BY:
            self.ended[step.bundle, step.broker] = step.cause or ""
        elif step.after == BundleState.OWNED.value:
            self.owners.setdefault(step.bundle, []).append(step.broker)
            self.since[step.bundle, step.broker] = step.ts
            for earlier in (self.ended, self.moved):  # it is back since
                earlier.pop((step.bundle, step.broker), None)

    def member(self, change: MemberChange) -> None:
        if change.event == "left":
            why = LEFT.get(change.how, LEFT["lost"])
            self.left.setdefault(change.of, []).append((left_at_of(change), why))

    def move(self, move: Decision) -> None:
        if move.state == MoveState.DONE.value and move.source:
            author = MOVED_BY.get(move.author or "", MOVED_BY[Author.OPERATOR.value])
            self.moved[move.bundle or "", move.source] = author

    def cause(self, bundle: str, before: str, after: str) -> str:
        owners = self.owners.get(bundle, ())
        last = next((it for it in reversed(owners) if it != after), before)
        moved, own = self.moved.get((bundle, last)), self.ended.get((bundle, last))
        if own == LifeCause.LOSS.value or own is None:
            return moved or self._left(bundle, last) or ENDED_BY.get(own or "", UNKNOWN)
        return moved or ENDED_BY[own]

    def _left(self, bundle: str, broker: str) -> str:
        """Why a broker left first after it had got a bundle: others had that when it left again."""
        since_ms = self.since.get((bundle, broker), 0)
        left = sorted(self.left.get(broker, ()))
        return next((why for at_ms, why in left if at_ms >= since_ms), "")


def changed_owners(
    then: ClusterThen,
    now: ClusterThen,
    events: Sequence[ArchivedEvent],
    losses: Sequence[Loss] = (),
) -> tuple[list[Changed], list[Changed], list[str]]:
    """Bundles with another owner; those that have none any more; and those that are new, because
    others were split or merged, or because nobody had looked them up before. `events` and `losses`:
    see `causes_of`.
    """
    changed = list[tuple[str, str | None, str | None]]()
    for bundle, was in sorted(then.bundles.items()):
        if was.owner is None:
            continue
        owner = None if (now_is := now.bundles.get(bundle)) is None else now_is.owner
        if owner != was.owner:
            changed.append((bundle, was.owner, owner))
    new = [
        bundle
        for bundle, it in sorted(now.bundles.items())
        if it.owner is not None
        and ((was_not := then.bundles.get(bundle)) is None or was_not.owner is None)
    ]
    caused = causes_of(changed, events, losses)
    without = [it for it in caused if it.after is None]
    return [it for it in caused if it.after is not None], without, new


def uncounted(then: ClusterThen, now: ClusterThen) -> set[str]:
    """Bundles of whose traffic nothing is known at one of the moments: they are not compared."""
    return then.uncounted() | now.uncounted()


def missing_of(
    then: ClusterThen,
    now: ClusterThen,
    without: Sequence[Changed],
    clients: Iterable[ArchivedEvent],
    cut_off: Iterable[ClientStep],
    *,
    there: Set[Key],
) -> Missing:
    """What was there then and is not now; `clients`: their steps between, the oldest first;
    `cut_off`: see `cut_off_by`; `there`: clients that were there then, of those known from before.
    """
    unknown = uncounted(then, now)
    silent_about = {split_bundle_name(bundle)[0] for bundle in unknown}
    before, after = (moment.sums(unknown, tenants=False) for moment in (then, now))
    missing = Missing(uncounted=sorted(unknown))
    missing.bundles = [it for it in without if it.cause not in REPLACED]
    for name, was in () if then.down or now.down else sorted(before.items()):
        of = after.get(name, {})
        if name in silent_about:
            continue
        if rate_of(was) > QUIET >= rate_of(of):
            missing.namespaces.append(name)
        elif max(rate_of(of), QUIET) < LESS * rate_of(was):
            missing.less.append(Less(name, rate_of(was), rate_of(of)))
        for what in ("producers", "consumers"):
            had, has = round(was.get(what, 0.0)), round(of.get(what, 0.0))
            if has < had:
                missing.fewer.append(Fewer(name, what, had, has))
    missing.topics, missing.all_topics = _quiet_topics(then, now, unknown, missing.namespaces)
    gone = departed(clients, then.at_ms, there)
    left = {key_of(it): it for it in (*cut_off, *gone)}
    missing.clients = sorted(left.values(), key=_by_topic)
    return missing


def _quiet_topics(
    then: ClusterThen, now: ClusterThen, unknown: Iterable[str], namespaces: Sequence[str]
) -> tuple[list[str], bool]:
    if then.down or now.down:
        return [], True
    had, have, whole = then.topics(), now.topics(), now.has_all_topics()
    unknown_of = dict[str, list[str]]()
    for bundle in unknown:
        unknown_of.setdefault(split_bundle_name(bundle)[0], []).append(bundle)
    silent, quiet = set(namespaces), list[str]()
    for topic, figures_then in sorted(had.items()):
        if rate_of(figures_then) <= QUIET or rate_of(have.get(topic, {})) > QUIET:
            continue
        if topic not in have and not whole:
            continue
        try:
            name = TopicName.parse(topic)
        except LoadManagerError:
            continue
        namespace = str(name.namespace)
        of = unknown_of.get(namespace, [])
        if namespace not in silent and not any(in_bundle(name, bundle) for bundle in of):
            quiet.append(topic)
    return quiet, whole and then.has_all_topics()


def count_clients(bundles: Iterable[PastBundle], steps: Iterable[ClientStep], at_ms: int) -> None:
    """Have bundles with figures of the owner of a moment count its clients as they were then: they
    were counted at the end of a record's time, and who came or left between is recorded.
    """
    of_namespace = dict[str, list[PastBundle]]()
    for it in bundles:
        if it.at is not None and it.by == it.owner:
            of_namespace.setdefault(split_bundle_name(it.bundle)[0], []).append(it)
    for step in steps:
        for it in of_namespace.get((step.topic or "").partition("://")[2].rpartition("/")[0], ()):
            counted_ms, what = it.at or 0, f"{step.what}s"
            is_between = min(counted_ms, at_ms) < step.ts <= max(counted_ms, at_ms)
            if step.broker != it.owner or not is_between or what not in it.figures:
                continue
            if in_bundle(TopicName.parse(step.topic or ""), it.bundle):
                sign = 1 if (step.event == "attached") == (counted_ms < at_ms) else -1
                it.figures[what] = max(0.0, it.figures[what] + sign)


def departed(
    events: Iterable[ArchivedEvent], then_ms: int, there: Set[Key] = frozenset()
) -> list[ClientStep]:
    """The last steps of those that were there at a moment, left after it and did not come again;
    `there`: some that are known to have been there. The first step of another one says it: that it
    left, and for how long it had been attached.
    """
    first, last = dict[Key, ClientStep](), dict[Key, ClientStep]()
    for event in events:
        step = event.record_as(ClientStep)
        if step.event in ("attached", "left"):
            first.setdefault(key_of(step), step)
            last[key_of(step)] = step
    were_there = {
        key
        for key, step in first.items()
        if step.event == "left"
        and (step.attached_ms is None or step.ts - step.attached_ms <= then_ms)
    }
    return [
        step for key, step in last.items() if step.event == "left" and key in were_there | there
    ]


def there_at(steps: Iterable[ClientStep], at_ms: int) -> set[Key]:
    """The clients that were attached at a moment, by their steps until then."""
    present = set[Key]()
    for step in sorted(steps, key=lambda it: it.ts):
        if step.ts > at_ms:
            break
        (present.add if step.event == "attached" else present.discard)(key_of(step))
    return present


def cut_off_by(
    losses: Sequence[Loss], steps: Iterable[ClientStep], then_ms: int
) -> list[ClientStep]:
    """The clients of brokers that were lost after a moment, at which these clients were there, and
    that no broker serves again: each as if it had left with its broker, which could record no such
    step. `steps`: of clients until the second moment, also of long before.
    """
    known_steps = list(steps)
    were_there = there_at(known_steps, then_ms)
    return [
        replace(
            it.client, event="left", ts=it.since, reason=f"its broker {it.client.broker} was lost"
        )
        for it in interruptions_of(known_steps, losses)
        if it.lost
        and not it.unsure
        and it.came_at is None
        and it.since > then_ms
        and key_of(it.client) in were_there
    ]


def _by_topic(step: ClientStep) -> tuple[str, ...]:
    return step.what, step.topic or "", step.subscription or "", step.name
