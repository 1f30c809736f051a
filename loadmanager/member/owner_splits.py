"""Splits this broker's own bundles that are too big (the extensible manager's rule)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

import msgspec

from loadmanager.engine.bundles.ranges import split_bundle_name, topic_hash
from loadmanager.engine.load.reports import BrokerLoadData, TopBundle, TopBundlesLoadData
from loadmanager.engine.load.snapshot import ClusterSnapshot
from loadmanager.engine.strategies.memories import Memories
from loadmanager.engine.strategies.plan import Plan, Split, SplitEnd
from loadmanager.engine.strategies.plan_document import (
    SplitShown,
    log_fields,
    split_end,
)
from loadmanager.engine.strategies.splitting import threshold
from loadmanager.engine.strategies.splitting.algorithms import HashedTopic
from loadmanager.engine.strategies.splitting.settings import OF_OWNERS, SplitSettings
from loadmanager.kit.errors import LoadManagerError
from loadmanager.kit.logger import get_logger
from loadmanager.kit.names import NamespaceName, is_system_namespace
from loadmanager.leader.decisions import Decisions
from loadmanager.leader.documents.decisions import of_cycle, of_split
from loadmanager.member.assigning import Observe
from loadmanager.member.base import Base, Cluster
from loadmanager.member.ownership.ownership import Ownership
from loadmanager.member.ports.hosting import Hosting
from loadmanager.member.traffic import bundle_traffic

log = get_logger("splitting")


@dataclass(slots=True, kw_only=True)
class OwnerSplits:
    """Looks at the served bundles at intervals."""

    ownership: Ownership
    hosting: Hosting
    base: Base
    cluster: Cluster
    decisions: Decisions
    observe: Observe
    """Called with the epoch, the cycle (0) and the plan."""
    choose: Callable[[SplitSettings], Awaitable[threshold.Splits]] = field(init=False)
    """Says what to split; the host may set another one."""
    strategy: str = OF_OWNERS
    """Its name."""
    _memories: Memories = field(default_factory=Memories)

    def __post_init__(self) -> None:
        """Go by the thresholds."""
        self.choose = self._exceeding

    async def tick(self) -> None:
        """Split every bundle that exceeded a threshold in enough checks in a row; none while moves
        are paused.
        """
        settings = self.base.settings.live(SplitSettings).value
        if not settings.enabled or self.cluster.wishes.pause() is not None:
            return
        chosen = await self.choose(settings)
        epoch = self.cluster.leading.epoch
        if chosen.skipped:
            plan = Plan(self.strategy, skipped=chosen.skipped)
            details = partial(of_cycle, plan, None, msgspec.UNSET)
            same = tuple((skip.what, skip.code) for skip in chosen.skipped)
            decision = self.decisions.remember("skip", details, epoch=epoch, cycle=0, same=same)
            self.observe(epoch, 0, plan, self.cluster.leading.shown_ids(decision))
        for split in chosen.splits:
            await self._split(split)

    async def _exceeding(self, settings: SplitSettings) -> threshold.Splits:
        stats = await bundle_traffic(self.hosting)
        served = [
            TopBundle(bundle_name=bundle, stats=stats[bundle])
            for bundle in self.ownership.owned()
            if bundle in stats and not is_system_namespace(split_bundle_name(bundle)[0])
        ]
        names = sorted({split_bundle_name(top.bundle_name)[0] for top in served})
        counts = {
            name: await self.cluster.namespaces.bundle_count(NamespaceName.parse(name))
            for name in names
        }
        snapshot = ClusterSnapshot(
            now_ms=self.base.clock.now_ms(),
            extensible=True,
            reports={},
            load_data={self.base.broker_id: BrokerLoadData()},
            top_bundles={self.base.broker_id: TopBundlesLoadData(top_bundles_load_data=served)},
        )
        chosen, self._memories = threshold.extensible(
            snapshot, settings, _Topics(self.hosting), counts, self._memories
        )
        return chosen

    async def _split(self, split: Split) -> None:
        epoch, me = self.cluster.leading.epoch, self.base.broker_id
        decision = self.decisions.remember(
            "split", partial(of_split, split, me), epoch=epoch, cycle=0
        )
        ids = self.cluster.leading.shown_ids(decision)
        self.observe(epoch, 0, Plan(self.strategy, splits=(split,)), ids)
        try:
            end = split_end(
                await self.ownership.split(split.bundle, list(split.boundaries), split.reason)
            )
            fields = log_fields(SplitShown.of(split), "bundle", "boundaries", "reason")
            log.info("bundle split", **fields, children=end.children)
        except LoadManagerError as error:
            end = SplitEnd((), str(error))
            log.warning("a bundle was not split", bundle=split.bundle, error=str(error))
        ended = replace(split, end=end)
        self.observe(epoch, 0, Plan(self.strategy, splits=(ended,)), ids)
        self.decisions.changed(decision, partial(of_split, ended, me))


class _Topics(Mapping[str, Mapping[str, HashedTopic]]):
    """Bundle → the loads of its open topics, computed when they are asked for."""

    def __init__(self, hosting: Hosting) -> None:
        self._hosting = hosting

    def __getitem__(self, bundle: str) -> Mapping[str, HashedTopic]:
        return {
            name: HashedTopic(
                topic_hash(name),
                traffic.msg_rate_in + traffic.msg_rate_out,
                traffic.msg_throughput_in + traffic.msg_throughput_out,
            )
            for name, traffic in self._hosting.topics(bundle).items()
        }

    def __iter__(self) -> Iterator[str]:
        return iter(self._hosting.bundle_stats())

    def __len__(self) -> int:
        return len(self._hosting.bundle_stats())
