"""All that is looked for, from one look to the next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from loadmanager.engine.findings import leaders, words
from loadmanager.engine.findings.backlogs import Backlog, BacklogFindings
from loadmanager.engine.findings.clocks import ClockFindings
from loadmanager.engine.findings.disks import DiskFindings
from loadmanager.engine.findings.finding import KINDS, FindingShown
from loadmanager.engine.findings.flapping import FlappingFindings
from loadmanager.engine.findings.held_connections import LimitedConnection, held_connections
from loadmanager.engine.findings.hot_topics import Published, TopicFindings
from loadmanager.engine.findings.leaders import LeaderChange
from loadmanager.engine.findings.lost import LostBroker, lost, lost_often
from loadmanager.engine.findings.sensors import Load, SensorFindings
from loadmanager.engine.findings.throttling import HeldLimit, ThrottlingFindings
from loadmanager.engine.findings.uneven import Stay, UnevenFindings
from loadmanager.engine.findings.unserved import UnservedBundles, unserved
from loadmanager.engine.load.reports import ResourceUsage
from loadmanager.engine.strategies import registry
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.engine.strategies.splitting.settings import SplitSettings
from loadmanager.kit.reason import Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What a leader sees at one look."""

    now_ms: int
    strategies: StrategySettings
    splits: SplitSettings
    loads: Mapping[str, Load] = field(default_factory=dict)
    published: Published = field(default_factory=dict)
    """Broker → what it published of its bundles."""
    doubts: Mapping[str, Reason] = field(default_factory=dict)
    """Broker → what the model of usage says against its sensor."""
    doubted_since: Mapping[str, int] = field(default_factory=dict)
    """Broker → since when it does."""
    delays: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """See `ClockFindings.step`."""
    leaders: Sequence[LeaderChange] = ()
    holding: Mapping[str, Sequence[HeldLimit]] = field(default_factory=dict)
    """See `ThrottlingFindings.step`."""
    connections: Mapping[str, Sequence[LimitedConnection]] = field(default_factory=dict)
    """Broker → those that its limits hold."""
    backlogs: Mapping[str, Sequence[Backlog]] = field(default_factory=dict)
    """Broker → its greatest ones."""
    holders: Mapping[tuple[str, str], Sequence[str]] = field(default_factory=dict)
    """Topic and subscription → the limits that hold it."""
    disks: Mapping[str, Mapping[str, ResourceUsage]] = field(default_factory=dict)
    """Broker → what is stored there → how full that disk is."""
    unserved: Sequence[UnservedBundles] = ()
    lost: Sequence[LostBroker] = ()
    """Also those that are back."""
    usages: Mapping[str, float] = field(default_factory=dict)
    """Broker → what it uses, as a fraction."""
    stays: Sequence[Stay] = ()
    """Why bundles stayed in the last cycle, if that moved nothing."""


@dataclass(slots=True)
class Watch:
    """Remembers what it needs of earlier looks; bounded, and without a clock of its own."""

    flapping: FlappingFindings = field(default_factory=FlappingFindings)
    """Is told of each move that ended."""
    _sensors: SensorFindings = field(default_factory=SensorFindings)
    _throttling: ThrottlingFindings = field(default_factory=ThrottlingFindings)
    _clocks: ClockFindings = field(default_factory=ClockFindings)
    _disks: DiskFindings = field(default_factory=DiskFindings)
    _hot_topics: TopicFindings = field(default_factory=TopicFindings)
    _backlogs: BacklogFindings = field(default_factory=BacklogFindings)
    _uneven: UnevenFindings = field(default_factory=UnevenFindings)

    def step(self, look: Look) -> list[FindingShown]:
        """What is wrong now, in order of kind and name."""
        now_ms = look.now_ms
        grace_ms = look.strategies.grace_period_minutes * 60_000
        agree = registry.shedder(look.strategies.shedder).goes_with is not None
        findings = [
            *self._backlogs.step(look.backlogs, now_ms, look.holders),
            *self._sensors.step(look.loads, look.doubts, look.doubted_since, now_ms),
            *self._throttling.step(look.holding, now_ms),
            *held_connections(look.connections, now_ms),
            *self.flapping.step(
                now_ms, grace_ms, "" if agree else words.TWO_SCORES, brokers=look.loads.keys()
            ),
            *leaders.often(look.leaders, now_ms),
            *self._clocks.step(look.delays, now_ms),
            *self._disks.step(look.disks, now_ms),
            *self._hot_topics.step(look.loads, look.published, look.splits, now_ms),
            *unserved(look.unserved, now_ms),
            *lost(look.lost),
            *lost_often(look.lost, now_ms),
            *self._uneven.step(look.usages, look.stays, now_ms),
        ]
        return sorted(findings, key=lambda it: (KINDS.index(it.kind), it.about))
