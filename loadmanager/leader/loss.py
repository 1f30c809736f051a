"""Where the bundles of brokers would go if these were lost now, by the placement rule in force."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field

from msgspec import structs

from loadmanager.engine.bundles.ranges import split_bundle_name
from loadmanager.engine.strategies import cycle, filters
from loadmanager.engine.strategies.plan import Placement
from loadmanager.kit.errors import BadInputError
from loadmanager.kit.reason import Reason
from loadmanager.kit.tasks import sleep
from loadmanager.leader.documents.cluster import BundleShown
from loadmanager.leader.documents.loss import LossDestination, LostBundle, RemainingBroker
from loadmanager.leader.load_manager import LoadManager

AT_ONCE = 100
"""Bundles that are placed before other tasks get their turn."""
LOST = Reason("DeadBroker", "it counts as lost here")
RULES = ("AntiAffinity", "CannotOpen", "Cordoned", "Isolation", "MaxTopics", "Version")
"""Codes of the rules that leave brokers out before the placement rule chooses."""


@dataclass(slots=True)
class Rehomed:
    """What would become of all bundles."""

    bundles: list[LostBundle] = field(default_factory=list)
    homeless: int = 0
    destinations: dict[str, LossDestination] = field(default_factory=dict)
    traffic: dict[str, list[tuple[str, float]]] = field(default_factory=dict)
    """Destination → its bundles and their bytes/s."""
    remaining: list[RemainingBroker] = field(default_factory=list)

    def add(self, bundle: BundleShown, placement: Placement) -> None:
        """Count where a bundle would go."""
        if placement.broker is None:
            self.homeless += 1
            return
        of = self.traffic.setdefault(placement.broker, [])
        of.append((bundle.bundle, bundle.throughput or 0.0))
        nothing = LossDestination(broker=placement.broker, bundles=0, rate=0.0, throughput=0.0)
        there = self.destinations.get(placement.broker, nothing)
        self.destinations[placement.broker] = structs.replace(
            there,
            bundles=there.bundles + 1,
            rate=there.rate + (bundle.rate or 0.0),
            throughput=there.throughput + (bundle.throughput or 0.0),
        )


def _lost(bundle: BundleShown, placement: Placement, *, isolated: bool) -> LostBundle:
    codes = {why.code for why in placement.rejected.values()} & {*RULES}
    return LostBundle(
        bundle=bundle.bundle,
        broker=bundle.owner or "",
        destination=placement.broker,
        rate=bundle.rate,
        throughput=bundle.throughput,
        pinned_to=bundle.pinned_to,
        rules=sorted(codes | {"Isolation"} if isolated else codes),
    )


async def rehomed(
    load_manager: LoadManager, lost: Sequence[str], bundles: Sequence[BundleShown], limit: int
) -> Rehomed:
    """Place the bundles, in this order, without these brokers; the first ones are told each, as
    many as `limit`. Raises `BadInputError` if no other broker has a report.
    """
    settings = load_manager.strategies.value
    whole = load_manager.snapshot(settings, passing=True)
    snapshot = whole.without(dict.fromkeys(lost, LOST)).planning()
    if not snapshot.available:
        raise BadInputError("no other broker would be left")
    memories, rng = load_manager.memories, copy.deepcopy(load_manager.term.rng)
    total, isolated = Rehomed(), dict[str, bool]()
    for first in range(0, len(bundles), AT_ONCE):
        part = bundles[first : first + AT_ONCE]
        names = [each.bundle for each in part]
        placements, memories = cycle.place(snapshot, names, settings, memories, rng)
        for bundle, placement in zip(part, placements, strict=True):
            if placement.broker is not None:
                snapshot.add_placement(bundle.bundle, placement.broker)
            total.add(bundle, placement)
            if len(total.bundles) == limit:
                continue
            namespace = split_bundle_name(bundle.bundle)[0]
            if namespace not in isolated:
                isolated[namespace] = bool(filters.may_serve(snapshot, namespace)[1])
            total.bundles.append(_lost(bundle, placement, isolated=isolated[namespace]))
        await sleep(0)
    usages = load_manager.usage.with_more(whole, settings, total.traffic)
    total.remaining = [
        RemainingBroker(broker=name, usage=now, usage_after=then, usage_error=error)
        for name, (now, then, error) in sorted(usages.items())
        if name not in lost
    ]
    return total
