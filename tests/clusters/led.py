"""A fleet whose broker 0 leads: the leader's load manager over real parts, in either manager."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from clusters.members import Fleet, a_fleet
from clusters.views import a_report

from loadmanager.engine.load.reports import LocalBrokerData, NamespaceBundleStats
from loadmanager.engine.load.snapshot import NOTHING_KNOWN
from loadmanager.engine.moves.move import Move
from loadmanager.engine.moves.settings import MoveSettings
from loadmanager.engine.strategies.plan import Plan
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.engine.strategies.shedding.from_reports import load_data, top_bundles
from loadmanager.engine.strategies.splitting.merging import MergeSettings
from loadmanager.engine.strategies.splitting.settings import SplitSettings
from loadmanager.kit.clock import Clock
from loadmanager.kit.conf import Live
from loadmanager.kit.metadata import paths
from loadmanager.kit.metadata.documents import Corrupt
from loadmanager.kit.metadata.leader import Leader, Term
from loadmanager.kit.metadata.memory import MemoryTree
from loadmanager.kit.tasks import Steps
from loadmanager.leader.load_manager import LeaderHold
from loadmanager.leader.members import AbsenceSettings, StoreOfTerm, TermMembers
from loadmanager.leader.merging import Merging
from loadmanager.leader.moves import Moves
from loadmanager.member.leading.term import Leads, TermParts, build, shed

LEADER = Leader("b0:8080", "http://b0:8080", 1)
STRATEGIES = StrategySettings(failure_domains=True, distribute_evenly=False)


class Led:
    """A fleet whose broker 0 leads: the parts of a term, which run when a test says so."""

    def __init__(self, fleet: Fleet, parts: TermParts, seen: Observed) -> None:
        first, settings = fleet.brokers[0], parts.leads.base.settings
        self.fleet, self.store, self.parts = fleet, first.store, parts
        self.policies, self.wishes = first.cluster.policies, first.cluster.wishes
        self.strategies = settings.live(StrategySettings)
        self.splits, self.move_settings = settings.live(SplitSettings), settings.live(MoveSettings)
        self.merge_settings = settings.live(MergeSettings)
        self.steps, self.view = parts.moves.term.steps, parts.feed.view
        self.load_manager, self.moves, self.operations = (
            parts.load_manager,
            parts.moves,
            parts.operations,
        )
        self.draining, self.overview = self.operations.draining, self.operations.overview
        self.plans, self.feed, self.owners = self.operations.plans, parts.feed, parts.owners
        merging = self.operations.merging
        assert isinstance(merging, Merging)
        self.merging = merging
        self.hold: LeaderHold | None = None
        self.observed, self.ended = seen.plans, seen.moves

    async def shed(self) -> None:
        """A cycle, and all its moves."""
        await shed(self.parts, self.hold)
        await self.moves.idle()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until a watch has brought a change."""
        async with asyncio.timeout(60):
            while not condition():
                await asyncio.sleep(0.005)

    async def report(
        self,
        index: int,
        stats: dict[str, NamespaceBundleStats],
        *,
        cpu: float = 0,
        at_ms: int = 0,
        started_ms: int = 0,
        manager: str | None = None,
    ) -> bytes:
        """A broker reports; returns the report's JSON."""
        address = self.fleet.brokers[index].address
        data = self._data(index, stats, cpu, at_ms, manager)
        data.start_timestamp = started_ms
        value = msgspec.json.encode(data)
        store, reports = self.fleet.brokers[index].store, self.fleet.brokers[0].brokers.reports
        if not await store.create(paths.broker(address.broker_id), value, ephemeral=True):
            await store.put(paths.broker(address.broker_id), value)
        await self.until(
            lambda: (
                address.broker_id in reports
                and reports[address.broker_id].last_stats == stats
                and reports[address.broker_id].cpu == data.cpu
                and reports[address.broker_id].last_update == at_ms
                and reports[address.broker_id].load_manager_class_name == manager
            )
        )
        return value

    async def publish(
        self, index: int, stats: dict[str, NamespaceBundleStats], *, cpu: float, at_ms: int
    ) -> tuple[bytes, bytes]:
        """A broker publishes its load data and its busiest bundles; returns the JSON of both."""
        store, settings = self.fleet.brokers[index].store, self.strategies.value
        broker_id = self.fleet.brokers[index].address.broker_id
        data = load_data(self._data(index, stats, cpu, at_ms), settings, None, at_ms)
        top = top_bundles(NOTHING_KNOWN, stats, settings, settings.bundles_in_report_max)
        published = msgspec.json.encode(data), msgspec.json.encode(top)
        for root, value in zip((paths.LOAD_DATA, paths.TOP_BUNDLES), published, strict=True):
            if not await store.create(f"{root}/{broker_id}", value, ephemeral=True):
                await store.put(f"{root}/{broker_id}", value)
        known = self.view.load_data
        await self.until(lambda: broker_id in known and known[broker_id].updated_at == at_ms)
        return published

    def _data(
        self,
        index: int,
        stats: dict[str, NamespaceBundleStats],
        cpu: float,
        at_ms: int,
        manager: str | None = None,
    ) -> LocalBrokerData:
        address = self.fleet.brokers[index].address
        return a_report(
            stats,
            cpu=cpu,
            web_service_url=address.web_url,
            pulsar_service_url=address.service_url,
            last_update=at_ms,
            load_manager_class_name=manager,
        )


class Observed:
    """What a leader of a test decided and did."""

    def __init__(self) -> None:
        self.plans: list[Plan] = []
        self.moves: list[Move] = []

    def plan(self, _epoch: int, _cycle: int, plan: Plan, _ids: Sequence[str]) -> None:
        self.plans.append(plan)

    def move(self, _epoch: int, _cycle: int, move: Move, *_more: object) -> None:
        self.moves.append(move)


@asynccontextmanager
async def led_fleet(
    brokers: int,
    *,
    bundles: int = 4,
    clock: Clock | None = None,
    strategies: StrategySettings | None = None,
    extensible: bool = False,
    tree: MemoryTree | None = None,
) -> AsyncIterator[Led]:
    """A running fleet with a leader."""
    records = range(brokers if extensible else 0)
    async with a_fleet(brokers, bundles, records, tree, clock) as fleet:
        first, observed = fleet.brokers[0], Observed()
        settings = first.base.settings
        settings.live(StrategySettings).set(strategies or STRATEGIES)
        settings.live(SplitSettings).set(SplitSettings(topics_max=10))
        settings.live(MergeSettings).set(MergeSettings(enabled=True))
        settings.live(MoveSettings).set(MoveSettings(warm_up_s=0))
        leads = Leads(
            base=first.base,
            cluster=first.cluster,
            manager=first.member.manager,
            history=None,
            events=first.member.events,
            stats_interval_s=lambda: 60.0,
            observe=observed.plan,
            observe_move=observed.move,
        )
        parts = await build(leads, Term(LEADER), fleet.scope, Steps())
        first.leading.leader, first.leading.load_manager = LEADER, parts.load_manager
        fleet.scope.spawn(parts.moves.run(), "moves")
        with parts.feed, parts.owners:
            yield Led(fleet, parts, observed)


def the_members(led: Led, moves: Moves) -> TermMembers:
    """Of a term with these moves."""

    def nothing(**_fields: Any) -> None:
        return None

    return TermMembers(
        store=StoreOfTerm(led.store, (), Corrupt(), "b0:8080"),
        brokers=led.fleet.brokers[0].brokers,
        moves=moves,
        owners=led.owners,
        settings=Live(AbsenceSettings()),
        record=nothing,
    )
