"""A sealed plan: the moves of a dry run, what they were based on, and what has drifted since."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from loadmanager.engine.load.snapshot import ClusterSnapshot
from loadmanager.engine.strategies import guards
from loadmanager.engine.strategies.inputs import broker_usages
from loadmanager.engine.strategies.plan import Plan, Unload
from loadmanager.engine.strategies.plan_document import Bounds, Drift, Load
from loadmanager.engine.strategies.settings import StrategySettings

LIFE_MS = 600_000
"""A plan can be carried out for so long."""
LOAD_CHANGE_MAX = 0.5
"""A bundle's rate and throughput may differ from those of the plan by this fraction of the larger
value …
"""
RATE_FLOOR, THROUGHPUT_FLOOR = 100.0, 1024.0 * 1024.0
"""… and in any case by so many messages/s and bytes/s."""
USAGE_CHANGE_MAX = 0.15
"""The usage of the two brokers of a move may differ by so much, as a fraction of 1."""
BOUNDS = Bounds(
    life_ms=LIFE_MS,
    load_fraction=LOAD_CHANGE_MAX,
    rate=RATE_FLOOR,
    throughput=THROUGHPUT_FLOOR,
    usage=USAGE_CHANGE_MAX,
)
"""The differences at which a plan is still carried out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sealed:
    """A plan with the figures that it was made from."""

    plan: Plan
    settings: StrategySettings
    made_ms: int
    loads: Mapping[str, Load] = field(default_factory=dict)
    """Bundle of a move → its load; without those whose load was not known."""
    usages: Mapping[str, float] = field(default_factory=dict)
    """Broker of a move → its usage."""
    doubts: Collection[tuple[str, str | None, str | None]] = ()
    """What the guards refuse of the fresh plan, as `Drift.what`, bundle and code: they judge a plan
    against reports that do not show its earlier moves. The same refusal later is not drift.
    """

    @property
    def expires_ms(self) -> int:
        """The time after which it can no longer be carried out, in ms since the epoch."""
        return self.made_ms + LIFE_MS


def seal(plan: Plan, snapshot: ClusterSnapshot, settings: StrategySettings) -> Sealed:
    """A plan, with what its moves were based on."""
    usages = broker_usages(snapshot, settings)
    brokers = {broker for move in plan.unloads for broker in (move.source, move.destination)}
    bundles = {move.bundle: move.source for move in plan.unloads}
    loads = {bundle: load_of(snapshot, bundle, broker) for bundle, broker in bundles.items()}
    doubts = frozenset(map(_doubt, _refused(settings, snapshot, plan.unloads)))
    return Sealed(
        plan=plan,
        settings=settings,
        made_ms=snapshot.now_ms,
        loads={bundle: load for bundle, load in loads.items() if load is not None},
        usages={broker: usages[broker] for broker in brokers & usages.keys() if broker},
        doubts=doubts,
    )


def _doubt(drift: Drift) -> tuple[str, str | None, str | None]:
    return drift.what, drift.bundle, drift.code


def load_of(snapshot: ClusterSnapshot, bundle: str, broker: str) -> Load | None:
    """The load of a bundle at its broker, as last reported."""
    if snapshot.extensible:
        top = snapshot.top_bundles.get(broker)
        for published in () if top is None else top.top_bundles_load_data:
            if published.bundle_name == bundle:
                return Load(published.stats.rate, published.stats.throughput)
        return None
    report = snapshot.reports.get(broker)
    stats = None if report is None else report.last_stats.get(bundle)
    return None if stats is None else Load(stats.rate, stats.throughput)


def drift(
    sealed: Sealed,
    snapshot: ClusterSnapshot,
    owners: Mapping[str, str | None],
    gone: Mapping[str, str],
) -> Iterator[Drift]:
    """Every difference that keeps a plan from being carried out as it is.

    `owners`: bundle → its owner now. `gone`: bundles that do not exist any more, and why.
    """
    if snapshot.now_ms > sealed.expires_ms:
        yield Drift("expired", f"the plan was made more than {LIFE_MS // 1000} s ago")
    staying: list[Unload] = []
    for move in sealed.plan.unloads:
        if move.bundle in gone:
            yield Drift("bundle", gone[move.bundle], move.bundle)
        elif owners[move.bundle] != move.source:
            now = owners[move.bundle] or "nobody"
            text = f"{now} owns it now, not {move.source}"
            yield Drift("owner", text, move.bundle)
        else:
            staying.append(move)
            yield from _other_load(sealed, snapshot, move)
    for refused in _refused(sealed.settings, snapshot, staying):
        if _doubt(refused) not in sealed.doubts:
            yield refused
    yield from _other_usage(sealed, snapshot)


def _refused(
    settings: StrategySettings, snapshot: ClusterSnapshot, moves: Sequence[Unload]
) -> Iterator[Drift]:
    """The moves that brokers, operators and policies no longer allow, by the guards of
    every cycle.
    """
    usable = guards.usable(snapshot, settings)
    judging = guards.Guards(usable, settings)
    allowed, refused = judging.admit(moves)
    for skip in refused:
        yield Drift("refused", skip.reason, skip.what, skip.code)
    planned = {move.bundle: move for move in moves}
    for after in allowed:
        before = planned[after.bundle]
        if after.destination != before.destination:
            text, code = str(after.why["notTo"]), judging.unfit[after.bundle].code
            yield Drift("destination", text, before.bundle, code)


def _other_load(sealed: Sealed, snapshot: ClusterSnapshot, move: Unload) -> Iterator[Drift]:
    before, now = sealed.loads.get(move.bundle), load_of(snapshot, move.bundle, move.source)
    if before is None:
        return
    if now is None:
        yield Drift("load", f"{move.source} does not report its load any more", move.bundle)
        return
    for name, was, present, floor in (
        ("messages/s", before.rate, now.rate, RATE_FLOOR),
        ("bytes/s", before.throughput, now.throughput, THROUGHPUT_FLOOR),
    ):
        allowed = max(floor, LOAD_CHANGE_MAX * max(was, present))
        if abs(present - was) > allowed:
            text = (
                f"{present:.0f} {name} now, {was:.0f} then; {allowed:.0f} more or less is allowed"
            )
            yield Drift("load", text, move.bundle)


def _other_usage(sealed: Sealed, snapshot: ClusterSnapshot) -> Iterator[Drift]:
    usages = broker_usages(snapshot, sealed.settings)
    for broker, was in sorted(sealed.usages.items()):
        present = usages.get(broker)
        if present is not None and abs(present - was) > USAGE_CHANGE_MAX:
            allowed = f"{USAGE_CHANGE_MAX * 100:.0f} points more or less are allowed"
            text = f"{broker} is used to {present:.0%} now, to {was:.0%} then; {allowed}"
            yield Drift("usage", text)
