"""Builds the leader's work of a broker."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from functools import partial

from loadmanager.core.bundles.names import NamespaceName
from loadmanager.core.bundles.ranges import NamespaceBundles
from loadmanager.core.conf import Live
from loadmanager.core.messaging.settings import MessagingSettings
from loadmanager.core.moves.move import Move
from loadmanager.core.moves.settings import MoveSettings
from loadmanager.core.strategies.plan import Plan
from loadmanager.core.strategies.settings import StrategySettings
from loadmanager.core.strategies.splitting.merging import MergeSettings
from loadmanager.core.strategies.splitting.settings import SplitSettings
from loadmanager.runtime.leader.cycle_log import CycleLog
from loadmanager.runtime.leader.term import LeaderWork
from loadmanager.runtime.shared.brokers import Brokers
from loadmanager.runtime.shared.documents import Corrupt
from loadmanager.runtime.shared.events import Events
from loadmanager.runtime.shared.leading import Leading
from loadmanager.runtime.shared.owners import stored_owner
from loadmanager.runtime.shared.placement_policies import PlacementPolicies
from loadmanager.runtime.shared.settings import BrokerSettings
from loadmanager.runtime.shared.wishes import OperatorWishes
from loadmanager.settings.live import LiveSettings
from loadmanager.wiring.outside import Outside


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
    observe_move: Callable[[int, int, Move], None],
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
