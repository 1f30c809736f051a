"""Builds the leader's work of a broker."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from functools import partial

from loadmanager.broker.messaging.settings import MessagingSettings
from loadmanager.broker.settings.live import LiveSettings
from loadmanager.broker.wiring.outside import Outside
from loadmanager.engine.bundles.ranges import NamespaceBundles
from loadmanager.engine.moves.move import Move
from loadmanager.engine.moves.settings import MoveSettings
from loadmanager.engine.strategies.plan import Plan
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.engine.strategies.splitting.merging import MergeSettings
from loadmanager.engine.strategies.splitting.settings import SplitSettings
from loadmanager.kit.conf import Live
from loadmanager.kit.metadata.documents import Corrupt
from loadmanager.kit.names import NamespaceName
from loadmanager.leader.brokers import Brokers
from loadmanager.leader.cycle_log import CycleLog
from loadmanager.leader.events import Events
from loadmanager.leader.leading import Leading
from loadmanager.leader.wishes import OperatorWishes
from loadmanager.member.leading.term import LeaderWork
from loadmanager.member.owners import stored_owner
from loadmanager.member.placement_policies import PlacementPolicies
from loadmanager.member.settings import BrokerSettings


def leader_work(
    outside: Outside,
    settings: LiveSettings,
    *,
    brokers: Brokers,
    policies: PlacementPolicies,
    wishes: OperatorWishes,
    leading: Leading,
    corrupt: Corrupt,
    bundle_count: Callable[[NamespaceName], Awaitable[int]],
    boundaries: Callable[[NamespaceName], Awaitable[NamespaceBundles]],
    events: Events,
    observe: Callable[[int, int, Plan], None],
    observe_move: Callable[[int, int, Move, int | None], None],
) -> LeaderWork:
    """Build what this broker does whenever it leads."""
    messaging = settings.live(MessagingSettings)
    return LeaderWork(
        store=outside.store,
        brokers=brokers,
        policies=policies,
        wishes=wishes,
        peers=outside.peers,
        release=outside.peers.release_bundle,
        owner=partial(stored_owner, outside.store),
        clock=outside.clock,
        leading=leading,
        corrupt=corrupt,
        broker=settings.live(BrokerSettings),
        strategies=settings.live(StrategySettings),
        splits=settings.live(SplitSettings),
        moves=settings.live(MoveSettings),
        merges=settings.live(MergeSettings),
        bundle_count=bundle_count,
        boundaries=boundaries,
        settings_with=settings.strategies_with,
        events=events,
        stats_interval_s=lambda: messaging.value.stats_interval_s,
        rng=lambda epoch: random.Random(outside.seed + epoch),  # noqa: S311 - reproducible, not secret
        cycle_log=partial(_cycle_log, outside, settings.live(BrokerSettings)),
        observe=observe,
        observe_move=observe_move,
    )


def _cycle_log(outside: Outside, broker: Live[BrokerSettings], epoch: int) -> CycleLog | None:
    history = outside.history
    if history is None or not broker.value.history_cycles:
        return None
    return CycleLog(history, outside.me.broker_id, epoch, outside.clock)
