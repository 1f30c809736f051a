"""Plans what the daemon would do, by the configured strategy and by others beside it."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from msgspec import structs

from loadmanager.engine.bundles.ranges import split_bundle_name
from loadmanager.engine.load.snapshot import ClusterSnapshot
from loadmanager.engine.strategies import cycle, registry
from loadmanager.engine.strategies.memories import Memories
from loadmanager.engine.strategies.plan import Plan, Split, Unload
from loadmanager.engine.strategies.plan_document import PlanShown, SplitShown, UnloadShown
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.kit.addresses import BrokerAddress
from loadmanager.kit.reason import Reason
from loadmanager.steer.documents import (
    AdviceShown,
    PlanAdvised,
    ShadowShown,
    SplitAdvised,
    UnloadAdvised,
)


@dataclass(slots=True)
class Shadow:
    """A strategy whose plans are made and not carried out."""

    name: str
    memories: Memories = field(default_factory=Memories)
    plan: Plan | None = None
    problem: str = ""
    """Why it made no plan in the last cycle."""


@dataclass(slots=True)
class Advice:
    """The plans of the last cycle."""

    rng: cycle.Rng
    shadows: tuple[Shadow, ...] = ()
    plan: Plan | None = None
    at_ms: int = 0
    plan_id: str | None = None
    """The sealed plan that an operator may approve."""
    splits: tuple[SplitAdvised, ...] = ()
    """The bundles that were too big when it was last checked."""

    def take(self, snapshot: ClusterSnapshot, plan: Plan, settings: StrategySettings) -> None:
        """A cycle's plan; the other strategies decide on the same snapshot."""
        self.plan, self.at_ms, self.plan_id = plan, snapshot.now_ms, None
        for shadow in self.shadows:
            changed = dataclasses.replace(
                settings, shedder=shadow.name, placement=_placement(settings, shadow.name)
            )
            shadow.plan, shadow.problem = None, ""
            try:
                decided, shadow.memories = cycle.shed(snapshot, changed, shadow.memories)
                shadow.plan, shadow.memories = cycle.destinations(
                    snapshot, decided, changed, shadow.memories, self.rng
                )
            except Exception as error:  # noqa: BLE001 - it must not keep the configured one from deciding
                shadow.problem = f"{type(error).__name__}: {error}"[:300]

    def take_splits(
        self,
        chosen: Sequence[tuple[BrokerAddress, Split]],
        plan_ids: Mapping[str, str],
        *,
        unload: bool,
    ) -> None:
        """The bundles to split, with their owners. `plan_ids`: bundle → its sealed plan, if any."""
        self.splits = tuple(
            SplitAdvised(
                **structs.asdict(SplitShown.of(split)),
                broker=owner.broker_id,
                plan_id=plan_ids.get(split.bundle),
                command=split_command(split, unload=unload),
            )
            for owner, split in chosen
        )

    def shown(self, hold: Reason | None) -> AdviceShown:
        """For operators: each move and each split with a command line that makes it; `held`: why
        nothing is decided, or moved, now.
        """
        return AdviceShown(
            held=None if hold is None else str(hold),
            held_code=None if hold is None else hold.code,
            at=self.at_ms or None,
            plan_id=self.plan_id,
            plan=_advised(self.plan),
            shadows=[
                ShadowShown(
                    strategy=shadow.name,
                    plan=_advised(shadow.plan),
                    problem=shadow.problem or None,
                )
                for shadow in self.shadows
            ],
            splits=list(self.splits),
        )


def _placement(settings: StrategySettings, shedder: str) -> str:
    """The configured placement rule, unless it follows another shedder."""
    rule = registry.placement(settings.placement)
    return (rule if rule.follows in (None, shedder) else registry.FALLBACK_PLACEMENT).name


def _advised(plan: Plan | None) -> PlanAdvised | None:
    if plan is None:
        return None
    unloads = [
        UnloadAdvised(**structs.asdict(UnloadShown.of(move)), command=command(move))
        for move in plan.unloads
    ]
    return PlanAdvised(**(structs.asdict(PlanShown.of(plan)) | {"unloads": unloads}))


def command(move: Unload) -> str:
    """The `pulsar-admin` command line that makes a move."""
    namespace, span = split_bundle_name(move.bundle)
    to = [] if move.destination is None else ["--destinationBroker", move.destination]
    return _pasted("unload", namespace, "--bundle", span, *to)


def split_command(split: Split, *, unload: bool) -> str:
    """The `pulsar-admin` command line that makes a split."""
    namespace, span = split_bundle_name(split.bundle)
    return _pasted("split-bundle", namespace, "--bundle", span, *(["--unload"] if unload else []))


def _pasted(action: str, namespace: str, *options: str) -> str:
    """A line for a shell; a comment where `pulsar-admin` would take the namespace for an option."""
    line = shlex.join(["pulsar-admin", "namespaces", action, namespace, *options])
    return (
        f"# not to be pasted, the tenant begins with a dash: {line}"
        if namespace[0] == "-"
        else line
    )
