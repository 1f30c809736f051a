"""Reads a Pulsar cluster at intervals, and feeds the view of its load.

Whatever cannot be read keeps its last value, with its age: nothing is moved from or to a broker
whose report is too old, and nothing at all while the policies are not known.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Set
from dataclasses import dataclass, field, replace
from functools import partial

from loadmanager.engine.bundles.ranges import split_bundle_name
from loadmanager.engine.load.carried import Carried
from loadmanager.engine.load.cluster_view import ClusterView
from loadmanager.kit.conf import Live
from loadmanager.kit.errors import LoadManagerError, OperationalError, said
from loadmanager.kit.logger import get_logger
from loadmanager.kit.names import is_system_namespace
from loadmanager.kit.tasks import for_each
from loadmanager.steer.own_balancing import switches_on
from loadmanager.steer.picture import LeftSilently, Picture
from loadmanager.steer.ports.cluster_reader import BrokerReading, ClusterReader
from loadmanager.steer.settings import ACT, APPROVE, FleetSettings

NAMESPACES_MAX = 5_000
"""With more, the policies are not known: their groups would take too many requests."""
BUNDLES_MAX = 500_000
"""Bundles in all reports, and bundles whose averages are kept: further brokers count as not read. A
cluster that names others each time would take all memory.
"""
NAMED_MAX = 5
"""Brokers that one line of the log names."""

log = get_logger("fleet")


@dataclass(slots=True, kw_only=True)
class Watching:
    """Keeps a `Picture` and a `ClusterView` current."""

    reader: ClusterReader
    picture: Picture
    view: ClusterView
    carried: Carried
    settings: Live[FleetSettings]
    record: Callable[[str, BrokerReading], None]
    """Called with each broker's reading, as it was read."""
    bundles_max: int = BUNDLES_MAX
    covered: set[str] = field(default_factory=set, init=False)
    """The namespaces whose policies have been read."""
    read_s: float = field(default=0.0, init=False)
    """How long the last reading of all brokers took."""
    _bundles_of: dict[str, int] = field(default_factory=dict)
    """Broker → bundles in its last report."""
    _bundles: int = 0
    """Their sum."""
    tried_s: float = field(default=0.0, init=False)
    """When the list or a broker was last read, or could not be read."""

    async def read_brokers(self) -> None:
        """Read the list of brokers, then each of them."""
        began_s = self.picture.clock.monotonic_s()
        listed = await self._part("brokers", self._read_list)
        self.tried_s = self.picture.clock.monotonic_s()
        if not listed:
            return
        brokers = sorted(self.picture.registered)
        await for_each(brokers, self._read_broker, self.settings.value.read_at_once_max, "read")
        self.read_s = self.picture.clock.monotonic_s() - began_s
        self.view.forget_old(self.picture.clock.now_ms())

    async def _read_list(self) -> None:
        present = set(await self.reader.brokers())
        picture, now_ms = self.picture, self.picture.clock.now_ms()
        for broker in picture.registered - present:
            report = picture.reports.pop(broker, None)
            if broker not in picture.answering and report is not None:
                picture.lost[broker] = LeftSilently(now_ms, frozenset(report.bundles))
            picture.answering.discard(broker)
            picture.own.pop(broker, None)
            for part in (broker, f"settings of {broker}"):
                picture.problems.pop(part, None)
            self._bundles -= self._bundles_of.pop(broker, 0)
            self.view.gone(broker, now_ms)
            for listener in picture.listeners:
                listener(broker, None)
        _tell("brokers left", picture.registered - present)
        _tell("brokers joined", present - picture.registered)
        for broker in [it for it in picture.lost if it in present]:
            del picture.lost[broker]
        picture.registered, picture.brokers_ms = present, now_ms

    async def _read_broker(self, broker: str) -> None:
        if not await self._part(broker, partial(self._take, broker)):
            self.picture.answering.discard(broker)
        self.tried_s = self.picture.clock.monotonic_s()

    async def _take(self, broker: str) -> None:
        reading = await self.reader.read(broker)
        if broker not in self.picture.registered:
            return
        size = max(len(reading.report.bundles), len(reading.report.last_stats))
        others = self._bundles - self._bundles_of.get(broker, 0)
        if max(len(self.view.bundle_data), others) + size > self.bundles_max:
            raise OperationalError(f"more than {self.bundles_max} bundles in the cluster")
        self._bundles, self._bundles_of[broker] = others + size, size
        now_ms = self.picture.clock.now_ms()
        report = self.carried.apply(reading.report, now_ms)
        self.picture.reports[broker] = report
        self.picture.answering.add(broker)
        self.view.observe(broker, report, now_ms)
        for listener in self.picture.listeners:
            listener(broker, report)
        self.record(broker, reading)

    async def read_settings(self) -> bool:
        """Read the leader's settings: above all, whether Pulsar moves bundles itself. Returns
        whether they could be read.
        """
        return await self._read_settings_and(owns=False)

    async def _read_settings_and(self, *, owns: bool) -> bool:
        """Read the leader and its settings, and those of each broker if they are wanted, or if one
        of them balances by settings of its own.
        """
        await self._part("leader", self._read_leader)
        read = await self._part("settings", self._read_settings)
        if owns or any(self.picture.own.values()):
            await self._read_owns()
        return read

    async def _read_owns(self) -> None:
        brokers = sorted(self.picture.answering)
        await for_each(brokers, self._read_own, self.settings.value.read_at_once_max, "own")

    async def read_policies(self) -> None:
        """Read Pulsar's settings, its leader and the policies; where bundles may be moved, which
        brokers balance by settings of their own.
        """
        await self._read_settings_and(owns=self.settings.value.mode in (APPROVE, ACT))
        if self.picture.cluster:
            everything = partial(self._read_policies, None)
            await self._part("policies", everything)

    async def _read_own(self, broker: str) -> None:
        async def read() -> None:
            values = await self.reader.settings(broker)
            if broker in self.picture.registered:
                self.picture.own[broker] = switches_on(values)

        part = f"settings of {broker}"
        await self._part(part, read)
        if broker not in self.picture.registered:  # it left meanwhile
            self.picture.problems.pop(part, None)

    async def read_due_policies(self) -> None:
        """Read the policies if it is time, and those of namespaces that are new."""
        read_ms, now_ms = self.picture.policies_ms, self.picture.clock.now_ms()
        if read_ms is None or now_ms - read_ms >= self.settings.value.policies_interval_s * 1000:
            await self.read_policies()
        elif new := self._namespaces() - self.covered:
            await self._part("policies", partial(self._read_policies, new))
        self.picture.uncovered = self._namespaces() - self.covered

    def _namespaces(self) -> set[str]:
        return {
            namespace
            for report in self.picture.reports.values()
            for namespace in (split_bundle_name(bundle)[0] for bundle in report.bundles)
            if not is_system_namespace(namespace)
        }

    async def _read_settings(self) -> None:
        leader = self.picture.leader
        registered_leader = leader if leader in self.picture.registered else None
        self.picture.settings = await self.reader.settings(registered_leader)
        self.picture.settings_ms = self.picture.clock.now_ms()

    async def _read_leader(self) -> None:
        self.picture.leader = await self.reader.leader()

    async def _read_policies(self, new: set[str] | None) -> None:
        """Read the policies; groups of these namespaces only, or of all."""
        namespaces = self._namespaces()
        if len(namespaces) > NAMESPACES_MAX:
            raise OperationalError(f"{len(namespaces)} namespaces: more than {NAMESPACES_MAX}")
        wanted = namespaces if new is None else new
        read = await self.reader.policies(self.picture.cluster, sorted(wanted))
        if new is not None:
            groups = {**self.picture.policies.groups, **read.groups}
            read = replace(read, groups=groups)
        before = self.picture.policies.isolation
        if read.isolation == before:  # the same ones keep what they matched
            read = replace(read, isolation=before)
        self.picture.policies, self.covered = (
            read,
            namespaces if new is None else self.covered | new,
        )
        if new is None:
            self.picture.policies_ms = self.picture.clock.now_ms()

    async def _part(self, part: str, read: Callable[[], Awaitable[None]]) -> bool:
        """Read a part; a failure is told once, until the part can be read again."""
        problems = self.picture.problems
        try:
            await read()
        except Exception as error:
            text = said(error)
            if part not in problems:
                bug = None if isinstance(error, LoadManagerError) else error
                event = "a part of the cluster cannot be read"
                log.warning(event, part=part, error=text, exc_info=bug)
            problems[part] = text
            return False
        if problems.pop(part, None) is not None:
            log.info("it can be read again", part=part)
        return True


def _tell(what: str, brokers: Set[str]) -> None:
    """One line of the log for all of them."""
    if brokers:
        log.info(what, brokers=len(brokers), first=sorted(brokers)[:NAMED_MAX])
