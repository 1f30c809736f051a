"""Plans moves towards goals from what the leader knows now, and checks what a goal names."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import difflib
from collections.abc import Awaitable, Callable, Collection, Generator, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from msgspec.structs import replace

from loadmanager.engine.load.snapshot import ClusterSnapshot
from loadmanager.engine.plans import planner, published
from loadmanager.engine.plans.goals import Apart, Emptied, Goal, PlanLimits
from loadmanager.engine.plans.order import Progress
from loadmanager.engine.plans.planner import GoalPlan
from loadmanager.engine.strategies import cycle
from loadmanager.engine.strategies.plan import Skip, Unload
from loadmanager.engine.strategies.shedding import balanced, lost_traffic
from loadmanager.engine.strategies.shedding.balanced import BalancedMemory
from loadmanager.engine.strategies.shedding.lost_traffic import Came
from loadmanager.kit.errors import BadInputError, LoadManagerError, NotFoundError
from loadmanager.kit.names import NamespaceName
from loadmanager.kit.reason import Reason
from loadmanager.kit.tasks import in_pieces
from loadmanager.kit.text import count_of
from loadmanager.leader.goal_bars import Bar, bar_of, grace_of, without_recent
from loadmanager.leader.load_manager import LoadManager
from loadmanager.leader.moves import Moves
from loadmanager.leader.pauses import ExpectedPause

SAME_PAUSE_S = 0.01
"""Pauses that differ by less are the same one, rounded."""
NAMED_MAX = 8
"""Names that are there, in the text that refuses another one."""
COMPARED_MAX = 1_000
NOTHING_REFUSED: Mapping[str, Reason] = MappingProxyType({})


async def nothing_to_read() -> None:
    """Reports come by themselves."""


@dataclass(slots=True, kw_only=True)
class GoalPlanning:
    """Makes the plans of a term, one at a time."""

    load_manager: LoadManager
    moves: Moves
    refresh: Callable[[], Awaitable[object]] = nothing_to_read
    """Reads what brokers publish, where it is not fed as it comes."""
    _one_at_a_time: asyncio.Lock = field(default_factory=asyncio.Lock)
    _came: Mapping[str, Came] = field(default_factory=dict)
    """What moved where lately."""
    _losing: tuple[str, ...] = ()
    """Where traffic was lost by the last plan."""

    async def plan(
        self,
        goal: Goal,
        limits: PlanLimits,
        leaving: Mapping[str, str] | None = None,
        *,
        refused: Collection[str] = (),
        early: Collection[str] = (),
        at_once: bool = False,
        patient: bool = False,
    ) -> GoalPlan:
        """The plan from the figures of now; the event loop goes on while it is made. `at_once`: it
        does not wait until another plan is made. `refused`, `early`, `patient`: see
        `planner.planning`.

        Raises `NotFoundError` for a broker that does not report, or if none does.
        """
        async with contextlib.nullcontext() if at_once else self._one_at_a_time:
            settings = self.load_manager.strategies.value
            await self.refresh()
            snapshot = self.snapshot(goal)
            came = self._came_lately(snapshot)
            if snapshot.extensible:
                owners = self.moves.cluster.view.owners
                snapshot = await in_pieces(published.as_reported(snapshot, dict(owners)))
            if not snapshot.reports:
                raise NotFoundError("No broker has reported its load to this leader yet")
            usage = self.load_manager.usage
            learned = usage.base(self.load_manager.memories)
            pieces = planner.planning(
                snapshot,
                settings,
                goal,
                limits,
                learned=learned,
                leaving=leaving,
                came=came,
                losing=self._losing,
                strained=() if snapshot.extensible else self._memory.strained,
                refused=refused,
                early=early,
                patient=patient,
            )
            try:
                made = await in_pieces(pieces)
            except KeyError as error:
                raise NotFoundError(
                    f"Broker {error.args[0]} is not active: the brokers are "
                    f"{', '.join(sorted(snapshot.reports))}"
                ) from None
            if usage.own and usage.base(self.load_manager.memories) is learned:
                level = learned.level or made.learned.level  # it follows the cycles, not the looks
                usage.learned = dataclasses.replace(made.learned, level=level)
            self._losing = tuple(made.losing)
            return made

    @property
    def _memory(self) -> BalancedMemory:
        memory: BalancedMemory = self.load_manager.memories.of(balanced.SHEDDER)
        return memory

    def _came_lately(self, snapshot: ClusterSnapshot) -> Mapping[str, Came]:
        """What moved lately, by cycles and plans. Nothing in the extensible manager: what most
        bundles carry is estimated there, and the estimate is another one at another broker.
        """
        if snapshot.extensible:
            return {}
        came = [*self._came.items(), *self._memory.came.items()]
        came.sort(key=lambda item: item[1].at_ms)
        self._came = lost_traffic.after(dict(came), (), self._losing, snapshot.now_ms)
        return self._came

    def admitted(
        self, goal: Goal, order_id: str, moves: Iterable[Unload], reason: str = ""
    ) -> tuple[tuple[Unload, ...], tuple[Skip, ...]]:
        """The moves of a plan that the guards let go now, each with the order that it is for, and
        why the others stay. `reason`: in place of that of the plan.
        """
        named = [
            replace(move, reason=reason or move.reason, why={**move.why, "goal": order_id})
            for move in moves
        ]
        settings = self.load_manager.strategies.value
        return cycle.admitted(self.snapshot(goal), settings, named)

    def ordered(self, moves: Iterable[tuple[str, str, float]]) -> None:
        """Moves of a plan have begun: bundle, destination, bytes/s."""
        now_ms = self.moves.term.clock.now_ms()
        self._came = lost_traffic.after(self._came, moves, self._losing, now_ms)

    async def barred(
        self,
        goal: Goal,
        limits: PlanLimits,
        leaving: Mapping[str, str] | None = None,
        *,
        for_good: Collection[str] = (),
        passing: Mapping[str, Reason] = NOTHING_REFUSED,
    ) -> tuple[GoalPlan, Bar] | None:
        """The plan that can be made later, and what bars it now; None if waiting would not help.
        `for_good`: bundles that are not moved any more; `passing`: bundle → why a guard kept it a
        moment ago.
        """
        made = await self.plan(goal, limits, leaving, refused=for_good, patient=True)
        bar = bar_of(self.snapshot(goal), made, self._grace_ms, passing)
        return None if bar is None else (made, bar)

    async def counting_on(
        self,
        goal: Goal,
        limits: PlanLimits,
        until_ms: int,
        leaving: Mapping[str, str],
        refused: Collection[str],
    ) -> tuple[GoalPlan, Bar] | None:
        """The moves of now of a plan that counts on bundles whose grace period is over by a time,
        and the wait for these; None: it has none of them.
        """
        snapshot, grace_ms = self.snapshot(goal), self._grace_ms
        recent = snapshot.recently_unloaded_ms
        early = {name for name, at_ms in recent.items() if round(at_ms + grace_ms) <= until_ms}
        if not early:
            return None
        made = await self.plan(goal, limits, leaving, refused=refused, early=early)
        bar = grace_of(snapshot, made.moves, grace_ms)
        return None if bar is None else (without_recent(snapshot, made), bar)

    @property
    def _grace_ms(self) -> float:
        return self.load_manager.strategies.value.grace_period_minutes * 60_000

    def snapshot(self, goal: Goal) -> ClusterSnapshot:
        """The cluster now. What must leave a broker leaves it also if it came a moment ago."""
        snapshot = self.load_manager.snapshot(self.load_manager.strategies.value)
        if snapshot.extensible:
            snapshot = snapshot.having(owners=dict(self.moves.cluster.view.owners))
        if isinstance(goal, Emptied | Apart):
            return snapshot.having(recently_unloaded_ms={})
        return snapshot

    def within(
        self, limits: PlanLimits, progress: Progress, promised_s: float | None = None
    ) -> PlanLimits:
        """What is left of the limits. Seconds of pause become clients by `pause`."""
        pause_s = self.pause(progress, promised_s).seconds
        clients = [
            each
            for each in (
                _left(limits.clients, progress.clients),
                _left(limits.client_seconds, progress.client_seconds, pause_s),
            )
            if each is not None
        ]
        return replace(
            limits,
            moves=max(0, limits.moves - progress.moved),
            traffic=_left(limits.traffic, progress.traffic),
            clients=min(clients, default=None),
        )

    def pause(self, progress: Progress, promised_s: float | None = None) -> ExpectedPause:
        """What a client of the next moves of an order is expected to wait: as in the last moves
        here, or as in those of the order, whichever is longer: it makes several at once. Before its
        first one, the pause that was promised counts in place of theirs. One that is only assumed
        counts where there is no other: a new leader has measured nothing yet.
        """
        here, own_s = self.moves.pauses.expected(), progress.pause_s
        own = ExpectedPause(own_s or 0.0, "goal")
        if own_s is None:
            own = ExpectedPause(promised_s or 0.0, "promise")
        if own.seconds and here.source == "assumed":
            return own if abs(own.seconds - here.seconds) > SAME_PAUSE_S else here
        return own if own.seconds > here.seconds + SAME_PAUSE_S else here

    def cost_of(self, move: Unload) -> tuple[float, float]:
        """The bytes/s and the clients of a bundle, by its broker's last report."""
        view = self.moves.cluster.view
        report, top = view.reports.get(move.source), view.top_bundles.get(move.source)
        stats = None if report is None else report.last_stats.get(move.bundle)
        for bundle in top.top_bundles_load_data if top else ():
            stats = bundle.stats if bundle.bundle_name == move.bundle else stats
        if stats is None:
            return 0.0, 0.0
        clients = stats.producer_count + stats.consumer_count
        return stats.msg_throughput_in + stats.msg_throughput_out, clients

    async def not_reported(self, goal: Goal) -> Reason | None:
        """Why a broker that has no bundles by its report is not empty: the report is too old."""
        address = (
            self.moves.cluster.brokers.address(goal.broker) if isinstance(goal, Emptied) else None
        )
        if address is None:
            return None
        try:
            left = len(await self.moves.orders.mover.served_bundles(address))
        except LoadManagerError as error:
            return Reason("NotReported", str(error))
        some = count_of(left, "bundle")
        text = f"{address.broker_id} serves {some} that its last report does not have"
        return Reason("NotReported", text) if left else None

    async def check_names(self, goal: Goal, limits: PlanLimits) -> None:
        """Raise `BadInputError` for a name of which nothing is there: a slip of the pen would leave
        what was meant without protection. A namespace without a served bundle counts if it exists.
        """
        names = [*limits.stay, *(goal.names if isinstance(goal, Apart) else ())]
        if not names:
            return
        bundles = await in_pieces(self._served())
        namespaces = {bundle.rpartition("/")[0] for bundle in bundles}
        tenants = {namespace.partition("/")[0] for namespace in namespaces}
        for name in dict.fromkeys(names):
            served = name in bundles or name in namespaces or name in tenants
            if not served and not await self._exists(name):
                kinds = (("tenants", tenants), ("namespaces", namespaces), ("bundles", bundles))
                kind, there = kinds[min(name.count("/"), 2)]
                raise BadInputError(f"{name[:200]} is not there: {_some(kind, name, there)}")

    def _served(self) -> Generator[None, None, set[str]]:
        """The bundles that brokers serve, or that are on their way there."""
        view = self.moves.cluster.view
        bundles = {*view.coming(), *view.owners}
        for report in list(view.reports.values()):
            bundles.update(report.bundles, report.last_stats)
            yield
        return bundles

    async def _exists(self, name: str) -> bool:
        if name.count("/") != 1:
            return False
        try:
            return await self.moves.cluster.bundle_count(NamespaceName.parse(name)) > 0
        except LoadManagerError:
            return False


def _some(kind: str, name: str, there: Collection[str]) -> str:
    """What is there, what looks most like the name first."""
    if not there:
        return f"no {kind} are served now"
    parent = name.rpartition("/")[0]
    beside = [each for each in there if parent and each.startswith(f"{parent}/")]
    listed = sorted(beside or there)
    like = difflib.get_close_matches(name, listed[:COMPARED_MAX], NAMED_MAX)
    first = [*like, *(each for each in listed if each not in like)][:NAMED_MAX]
    more = len(there) - len(first)
    return f"the {kind} are {', '.join(first)}" + (f" and {more} more" if more else "")


def _left(limit: float | None, spent: float, unit: float = 1.0) -> float | None:
    return None if limit is None else max(0.0, limit - spent) / max(unit, 1e-3)
