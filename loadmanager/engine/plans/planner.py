"""Plans all moves towards a goal at once, by the model and the search of `BalancedShedder`.

A plan has the curve from moves to evenness, so that its reader can stop where more moves are not
worth it. It is made of a snapshot, and moves nothing. A cycle's limits do not hold: it takes many
cycles to carry out, and is to be made anew after every few moves.

A large plan takes seconds. `planning` makes it in pieces, so that an event loop can do other things
between them; how it is cut changes nothing in the plan.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from loadmanager.engine.bundles.ranges import split_bundle_name
from loadmanager.engine.load.bundle_columns import clients_and_topics
from loadmanager.engine.load.headroom import headroom
from loadmanager.engine.load.learned import Learned
from loadmanager.engine.load.snapshot import ClusterSnapshot
from loadmanager.engine.load.usage_fit import fit, just_moved
from loadmanager.engine.load.usage_model import UsageModel
from loadmanager.engine.plans.goals import (
    NO_LIMITS,
    Apart,
    Emptied,
    Even,
    Filled,
    Goal,
    PlanLimits,
    Spare,
    Staying,
    name_of,
)
from loadmanager.engine.plans.planned_owners import PlannedOwners
from loadmanager.engine.plans.sensed import SensedUsage
from loadmanager.engine.plans.swaps import best_swap, room_and_move
from loadmanager.engine.strategies import filters
from loadmanager.engine.strategies.plan import Unload
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.engine.strategies.shedding import lost_traffic
from loadmanager.engine.strategies.shedding.lost_traffic import LOST, NOTHING_CAME, Came
from loadmanager.engine.strategies.shedding.modelled import Left, ModelledBrokers
from loadmanager.engine.strategies.shedding.moving import Moving
from loadmanager.engine.strategies.shedding.objective import OVERLOAD
from loadmanager.engine.strategies.shedding.search import BestMove, MoveSearch, SearchScope, may_go
from loadmanager.engine.strategies.shedding.strained import STRAINED
from loadmanager.kit.reason import Reason
from loadmanager.kit.text import count_of, moment

DIFFERENCE = 0.01
"""The difference, as a part of the mean usage, that is worth a move of an average bundle: a goal is
what says when it is enough.
"""
DEARNESS = (128.0, 32.0, 8.0, 2.0, 1.0, 0.25)
"""How many times its price a move has to gain, in one round after the other: what evens out most
for what it costs clients moves first. The last ones are not worth their price, or are by the error
of the model alone: they are made where the goal is not reached otherwise.
"""
WORTH_IT = 1.0
NO_GAIN = 1e-12
NAMED_MAX = 3
"""Bundles and brokers that a reason names."""
MOVES = "moves"
LARGE_ONES = 20
"""Bundles of an emptied broker that leave it first, if not all find room otherwise."""
SWAPS_MAX = 200
"""Looks for two bundles that could change places, in one plan."""
REACHED = Reason("Reached", "the goal is reached")
LIMITS = Reason("Limits", "another move would pass a limit")
NOTHING_HELPS = Reason("NothingHelps", "no other move would help")
AWAY = Reason("TrafficDip", "the clients are away")
NOT_ENOUGH = Reason("NotEnoughBrokers", "the others have no room for a broker that is lost")


@dataclass(frozen=True, slots=True)
class Point:
    """What some moves come to."""

    moves: int
    traffic: float
    """Bytes/s of the moved bundles."""
    clients: float
    spread: float
    """Standard deviation of the usage of the brokers that `farthest` counts."""
    farthest: float
    """How far the usage of the broker that is farthest from the mean is from it."""


@dataclass(frozen=True, slots=True)
class GoalPlan:
    """The moves towards a goal, in the order in which to make them."""

    goal: Goal
    moves: tuple[Unload, ...]
    """Of a swap, the one that goes first is first here."""
    curve: tuple[Point, ...]
    """Before the first move, and after each."""
    reached: bool
    ends: Reason
    """Why it has no further move."""
    error: float
    """The mean error of the usages of the curve, by what sensors show now, too: see
    `SensedUsage.error`.
    """
    learned: Learned
    """What the model has learned with this snapshot."""
    losing: Mapping[str, Reason]
    """Brokers where bundles lose their traffic → how: no move goes there, but in a patient plan."""


T = TypeVar("T")
Pieces = Generator[None, None, T]
"""Work that may be interrupted wherever it yields; what it returns does not depend on that."""


def plan(
    snapshot: ClusterSnapshot,
    settings: StrategySettings,
    goal: Goal,
    limits: PlanLimits = NO_LIMITS,
    *,
    learned: Learned | None = None,
    leaving: Mapping[str, str] | None = None,
) -> GoalPlan:
    """`planning` at once."""
    pieces = planning(snapshot, settings, goal, limits, learned=learned, leaving=leaving)
    while True:
        try:
            next(pieces)
        except StopIteration as made:
            plan_made: GoalPlan = made.value
            return plan_made


def planning(
    snapshot: ClusterSnapshot,
    settings: StrategySettings,
    goal: Goal,
    limits: PlanLimits = NO_LIMITS,
    *,
    learned: Learned | None = None,
    leaving: Mapping[str, str] | None = None,
    came: Mapping[str, Came] = NOTHING_CAME,
    losing: Collection[str] = (),
    strained: Collection[str] = (),
    refused: Collection[str] = (),
    early: Collection[str] = (),
    patient: bool = False,
) -> Pieces[GoalPlan]:
    """The moves that the search finds towards a goal, as few as it finds of those that cost clients
    little for what they even out; the times of the limits do not count. It yields after every few
    milliseconds of work.

    `learned`: what is remembered of usage. `leaving`: bundle → the broker that it has left, whose
    report may still have it. `came`: what moved lately. `losing`: the brokers where traffic was
    lost at the last look. `strained`: those to which the shedder gives nothing, as they serve no
    more. `refused`: bundles that stay for now. `early`: bundles that count as if they had not been
    moved lately; `patient`: what bars moves for a while only does not count.
    Raises `KeyError` for a broker that does not report.
    """
    lost = dict.fromkeys(lost_traffic.losing_brokers(snapshot, came, losing), LOST)
    lost |= dict.fromkeys(sorted(snapshot.columns.row_of.keys() & strained), STRAINED)
    if patient:
        snapshot = snapshot.having(wishes=replace(snapshot.wishes, refusals={}))
    else:
        snapshot = lost_traffic.refusing(snapshot, lost)
    columns, before = snapshot.columns, learned or Learned()
    moved = just_moved(snapshot.recently_unloaded_ms, snapshot.now_ms)
    model = fit(columns, snapshot.averages, settings.weights, before, moved=moved)
    yield
    left = Left(leaving=leaving or {}, came=came)
    modelled = snapshot
    if patient:
        snapshot = snapshot.having(recently_unloaded_ms={}, leaving={})
    elif early:
        recent = snapshot.recently_unloaded_ms
        late = {bundle: at_ms for bundle, at_ms in recent.items() if bundle not in early}
        snapshot = snapshot.having(recently_unloaded_ms=late)

    def made(*, largest_first: bool = False) -> Pieces[GoalPlan]:
        emptied = goal.broker if isinstance(goal, Emptied) else None
        cluster = ModelledBrokers(modelled, model, DIFFERENCE, left, emptied=emptied)
        cluster.intake_max = math.inf
        yield
        names = goal.names if isinstance(goal, Apart) else ()
        owners = PlannedOwners(modelled, cluster, names, Staying(limits.stay, refused))
        yield from owners.read()
        sensed = SensedUsage(model, cluster)
        work = _Planning(
            snapshot, settings, owners, goal, limits, sensed=sensed, largest_first=largest_first
        )
        return (yield from work.made(model, lost))

    plan_made = yield from made()
    if isinstance(goal, Emptied) and plan_made.ends.code == NOTHING_HELPS.code:
        other = yield from made(largest_first=True)
        plan_made = other if len(other.moves) > len(plan_made.moves) else plan_made
    return plan_made


def _away(goal: Goal, model: UsageModel) -> Reason | None:
    """Why nothing is planned while the clients are away. A broker is emptied nevertheless."""
    if model.dip is None or isinstance(goal, Emptied):
        return None
    text = f"the clients send {model.dip:.0%} of their usual traffic: these figures say nothing"
    return Reason(AWAY.code, text)


@dataclass(frozen=True, slots=True)
class _Stage:
    """A part of a plan: moves of one kind."""

    scope: SearchScope
    must: bool = False
    """Whether moves are made that cost more than they even out."""
    swaps: bool = False
    """Whether two bundles may change places: where none helps, or has room, alone."""


class _Planning:
    """One plan while it is made."""

    def __init__(
        self,
        snapshot: ClusterSnapshot,
        settings: StrategySettings,
        owners: PlannedOwners,
        goal: Goal,
        limits: PlanLimits,
        *,
        sensed: SensedUsage,
        largest_first: bool,
    ) -> None:
        cluster = owners.cluster
        self._sensed, self._largest_first = sensed, largest_first
        self._snapshot, self._settings, self._cluster = snapshot, settings, cluster
        self._goal, self._limits = goal, limits
        self._stay = owners.stay
        self._moves: list[Unload] = []
        self._moved = set[str]()
        self._curve = [Point(0, 0.0, 0.0, cluster.spread, cluster.farthest)]
        self._owners = owners
        self._swaps = 0
        self._passed = dict[str, None]()
        """The limits because of which a move was passed over."""
        self._not_spare: int | None = None
        """The broker that could not be lost when that was last asked."""

    def made(self, model: UsageModel, losing: Mapping[str, Reason]) -> Pieces[GoalPlan]:
        ends = self._impossible() or _away(self._goal, model)
        if ends is None:
            ends = yield from self._ends()
        reached = ends is REACHED
        if not self._moves:
            ends = self._by_sensors(ends)
        return GoalPlan(
            self._goal,
            tuple(self._moves),
            tuple(self._curve),
            reached,
            ends,
            self._sensed.error,
            model.learned,
            losing,
        )

    def _by_sensors(self, ends: Reason) -> Reason:
        """Why there is no move, with what trusted sensors say against it: that a goal is not
        reached that seems so, by more than the error that is told; or that brokers are overloaded.
        """
        sensed, against = self._sensed, ""
        match self._goal:
            case Even(within_points=points) if ends is REACHED:
                if sensed.farthest > points / 100 + sensed.error:
                    against = f"a broker is {100 * sensed.farthest:.1f} points from the mean"
            case Filled(broker=broker, part=part) if ends is REACHED:
                part_now = sensed.of_mean(self._cluster.row(broker))
                if part_now < part - sensed.error / max(self._cluster.mean, sensed.error):
                    against = f"{broker} has {part_now:.0%} of the mean"
            case Spare() if full := np.flatnonzero(sensed.usage > OVERLOAD).tolist():
                full.sort(key=lambda row: (-sensed.usage[row], row))
                names = [f"{self._cluster.names[row]} {sensed.usage[row]:.0%}" for row in full]
                some = ", ".join(names[:NAMED_MAX]) + (" …" if len(full) > NAMED_MAX else "")
                against = f"above {OVERLOAD:.0%} now: {some}"
        return Reason(ends.code, f"{ends.text}; by sensors, {against}") if against else ends

    def _ends(self) -> Pieces[Reason]:
        """Make the moves; returns why there are no more."""
        if (yield from self._reached()):
            return REACHED
        search: MoveSearch | None = None
        for stage in self._stages():
            search = MoveSearch(self._snapshot, self._settings, self._cluster, stage.scope)
            moving = Moving(self._snapshot, self._cluster, search)
            for dearness in (WORTH_IT,) if stage.must else DEARNESS:
                search.at_prices(dearness)
                swaps = stage.swaps and dearness <= WORTH_IT
                ends = yield from self._round(moving, must=stage.must, swaps=swaps)
                if ends is not None:
                    return ends
            yield
        if (yield from self._reached()):
            return REACHED
        if self._passed:
            return _limits(self._passed)
        if isinstance(self._goal, Emptied):
            left = sorted(self._owners.bundles[self._cluster.row(self._goal.broker)])
            return self._stay_at(left, self._goal.broker)
        bundles = [each for its in self._owners.bundles for each in its]
        if staying := sum(map(self._stay.has, bundles)):
            are = "is" if staying == 1 else "are"
            text = f"{NOTHING_HELPS.text}; {staying} of {len(bundles)} bundles {are} to stay"
            return Reason(NOTHING_HELPS.code, text)
        return self._nothing_helps(search)

    def _stay_at(self, left: Sequence[str], broker: str) -> Reason:
        """That these bundles stay at a broker; and until when, if they are pinned to it."""
        some = count_of(len(left), "bundle")
        names = ", ".join(left[:NAMED_MAX]) + (" …" if len(left) > NAMED_MAX else "")
        text = f"{some} may not leave, or no other has room: {names}"
        pin_of = self._snapshot.wishes.pin_of
        pins = {name: pin for name in left if (pin := pin_of(name)) and pin.broker == broker}
        if pins:
            first = min(pins, key=lambda name: (pins[name].until_ms, name))
            until = moment(pins[first].until_ms)
            some = "the first of them " if len(pins) > 1 else ""
            text += (
                f"; {len(pins)} pinned here, {some}until {until}, or until "
                f"`loadmanager admin bundles unpin {first}`"
            )
        return Reason(NOTHING_HELPS.code, text)

    def _nothing_helps(self, search: MoveSearch | None) -> Reason:
        """Why no move is made any more; `search`: the last one."""
        texts = [NOTHING_HELPS.text]
        if isinstance(self._goal, Apart):
            texts += self._mixed()
        elif not self._rooms():
            texts.append("no broker has room for more")
        elif search is not None:
            search.at_prices(0.0)
            if (best := search.best()) is not None and best.gain > NO_GAIN:
                error = f"the model's error of {100 * self._sensed.error:.1f} points"
                texts = [f"what other moves would even out is not worth them, or may be {error}"]
        cordoned = sorted(self._snapshot.wishes.cordons.keys() & set(self._cluster.names))
        if cordoned:
            names = ", ".join(cordoned[:NAMED_MAX]) + (" …" if len(cordoned) > NAMED_MAX else "")
            texts.append(f"nothing goes to what is cordoned: {names}")
        return Reason(NOTHING_HELPS.code, "; ".join(texts))

    def _rooms(self) -> bool:
        """Whether moves may bring anything more to some broker."""
        rooms, full = self._cluster.rooms.max(axis=0), self._cluster.by_sensors.full
        return any(rooms[row] > 0 and not full[row] for row in self._cluster.open_rows)

    def _mixed(self) -> Iterator[str]:
        """How many bundles are beside those of another name."""
        owners = self._owners
        counts = [[count for count, _ in named.values()] for named in owners.named]
        if left := sum(sum(each) - max(each) for each in counts if len(each) > 1):
            are = "bundle is" if left == 1 else "bundles are"
            yield f"{left} {are} beside those of another name, and no broker of its own takes more"

    def _round(self, moving: Moving, *, must: bool, swaps: bool) -> Pieces[Reason | None]:
        """Make the moves of a stage at the same prices; returns why there are no more at all."""
        while moves := (yield from self._next(moving, must=must, swaps=swaps)):
            costs = [self._cost_of(moving.search, move) for move in moves]
            if passed := self._passes(costs):
                if MOVES in passed:
                    return _limits([MOVES])
                self._passed |= dict.fromkeys(passed)
                self._pass_over(moving.search, moves)
                continue
            swap = moving.search.bundle(moves[0]) if len(moves) > 1 else None
            for move in moves:
                self._make(moving, move, swap)
            if not must and (yield from self._reached()):
                return REACHED
        return None

    def _pass_over(self, search: MoveSearch, moves: Sequence[BestMove]) -> None:
        """A move would pass a limit: its broker keeps each bundle that would. After a swap that
        would, none is looked for any more.
        """
        if len(moves) > 1:
            self._swaps = SWAPS_MAX
            return
        (move,) = moves
        broker = self._cluster.names[move.source]
        search.leave_out(
            move.source, lambda bundle: bool(self._passes([self._cost(bundle, broker)]))
        )

    def _next(self, moving: Moving, *, must: bool, swaps: bool) -> Pieces[tuple[BestMove, ...]]:
        """The next move that policies allow; where none helps, two bundles that change places."""
        yield
        search = moving.search
        move = self._spread_out(search, search.best()) if must else moving.worth_it()
        if move is not None:
            return (move,)
        if not swaps or self._swaps >= SWAPS_MAX:
            return ()
        self._swaps += 1
        two = room_and_move if must else best_swap
        return (yield from two(self._snapshot, self._cluster, search)) or ()

    def _spread_out(self, search: MoveSearch, move: BestMove | None) -> BestMove | None:
        """A move of a bundle without load, which is as good anywhere: to the broker that has the
        fewest bundles, or as it is if it may not go there. Any other move as it is.
        """
        if move is None or abs(move.gain) > NO_GAIN:
            return move
        bundle = search.bundle(move)
        for row in sorted(search.takers, key=lambda row: (len(self._owners.bundles[row]), row)):
            if may_go(self._snapshot, bundle, self._cluster.names[row]):
                return move._replace(destination=row)
        return move

    def _cost(self, bundle: str, source: str) -> tuple[float, float]:
        """The bytes/s and the clients of a bundle."""
        clients, _ = clients_and_topics(self._snapshot.reports[source].last_stats, [bundle])
        return self._snapshot.averages.quick_of(bundle), float(clients[0])

    def _cost_of(self, search: MoveSearch, move: BestMove) -> tuple[float, float]:
        return self._cost(search.bundle(move), self._cluster.names[move.source])

    def _passes(self, costs: Sequence[tuple[float, float]]) -> list[str]:
        """The limits that do not hold after moves with these costs."""
        traffic, clients = (sum(each) for each in zip(*costs, strict=True))
        last, limits = self._curve[-1], self._limits
        of_clients = "clients" if limits.client_seconds is None else "clients or their seconds"
        after = (
            (MOVES, len(self._moves) + len(costs), limits.moves),
            ("traffic", last.traffic + traffic, limits.traffic),
            (of_clients, last.clients + clients, limits.clients),
        )
        return [name for name, cost, most in after if most is not None and cost > most]

    def _make(self, moving: Moving, move: BestMove, swap: str | None) -> None:
        cluster = self._cluster
        names = cluster.names[move.source], cluster.names[move.destination]
        (bundle,), usages = moving.make(move)
        traffic, clients = self._cost(bundle, names[0])
        self._owners.move(bundle, move.source, move.destination)
        self._moved.add(bundle)
        why = {"gain": move.gain, **usages}
        self._moves.append(Unload(bundle, *names, type(self._goal).__name__, why, swap))
        last, spread = self._curve[-1], cluster.spread
        costs = last.traffic + traffic, last.clients + clients
        self._curve.append(Point(len(self._moves), *costs, spread, cluster.farthest))

    # What the goals are

    def _reached(self) -> Pieces[bool]:
        cluster = self._cluster
        match self._goal:
            case Even(within_points=points):
                return cluster.farthest <= points / 100
            case Filled(broker=broker, part=part):
                row = cluster.row(broker)
                return cluster.fields(row)[0] >= part * float(cluster.means[row])
            case Emptied(broker=broker):
                return not self._owners.bundles[cluster.row(broker)]
            case Spare():
                return (yield from self._can_lose_any())
            case Apart():  # pragma: no branch
                return not any(len(self._owners.named[row]) > 1 for row in cluster.rows)

    def _impossible(self) -> Reason | None:
        """Why no move could reach the goal."""
        if not isinstance(self._goal, Spare):
            return None
        cluster = self._cluster
        work = (cluster.usage - cluster.beside) * cluster.size
        room = headroom(OVERLOAD, cluster.beside, 1 / cluster.size, work)
        alone = len(cluster.open_rows) < 2
        return NOT_ENOUGH if alone or (room and room.times_without_one < 1) else None

    def _stages(self) -> Iterator[_Stage]:
        """The kinds of moves towards the goal; a later one begins when an earlier one has ended."""
        cluster, goal = self._cluster, self._goal
        stay = self._stay
        leaves: Callable[[str], bool] | None = partial(_is_free, stay) if stay else None
        match goal:
            case Even() | Spare():
                yield _Stage(SearchScope(leaves=leaves), swaps=True)
            case Filled(broker=broker):
                takers = [row for row in cluster.open_rows if row == cluster.row(broker)]
                yield _Stage(SearchScope(takers=takers, leaves=leaves))
            case Emptied(broker=broker):
                row = cluster.row(broker)
                takers = [other for other in cluster.open_rows if other != row]
                for large in self._large_ones(row):
                    leaves = partial(self._goes_now, large)
                    scope = SearchScope(sources=[row], takers=takers, leaves=leaves)
                    yield _Stage(scope, must=True)
                    leaves = partial(self._goes_now, "")
                yield _Stage(SearchScope(sources=[row], takers=takers, leaves=leaves), must=True)
            case Apart(names=names):
                yield from self._stages_apart(names)

    def _large_ones(self, row: int) -> list[str]:
        """The bundles that leave a broker first: where others take the room that they need, the
        largest ones.
        """
        if not self._largest_first:
            return []
        by_share = self._owners.bundles_by_share(row)[:LARGE_ONES]
        return [name for share, name in by_share if share > 0 and not self._stay.has(name)]

    def _goes_now(self, only: str, bundle: str) -> bool:
        """Whether a bundle is the one that leaves now (empty: any), and has not left yet."""
        return only in ("", bundle) and bundle not in self._moved and _is_free(self._stay, bundle)

    def _stages_apart(self, names: Sequence[str]) -> Iterator[_Stage]:
        """Each name leaves each broker that another one keeps; again while that made room for what
        had none. What has none then changes places with a bundle that is of none of the names. No
        bundle leaves a broker that keeps its name, so that each moves once at most.
        """
        cluster, keeper = self._cluster, self._owners.apart(names)
        for swaps in (False, True):
            before = -1
            while before < len(self._moves):
                before = len(self._moves)
                for name in names:
                    right = [row for row in cluster.open_rows if keeper.get(row) == name]
                    for row in cluster.rows:
                        if right and keeper.get(row) != name and name in self._owners.named[row]:
                            leaves = partial(self._leaves, row, frozenset(names), name)
                            scope = SearchScope(sources=[row], takers=right, leaves=leaves)
                            yield _Stage(scope, must=True, swaps=swaps)

    def _leaves(self, row: int, names: frozenset[str], name: str, bundle: str) -> bool:
        """Whether a bundle of a tenant or a namespace is at a broker and may leave it; or is of
        none of these names, and may leave another broker to make room.
        """
        if bundle in self._moved:
            return False
        if bundle in self._owners.bundles[row]:
            return _is_free_of(self._stay, name, bundle)
        return name_of(bundle, names) is None and _is_free(self._stay, bundle)

    def _can_lose_any(self) -> Pieces[bool]:
        """Whether the others can take each broker's bundles, the largest first to the least used,
        and none is overloaded then, by the model or by its sensor.
        """
        cluster = self._cluster
        if self._not_spare is not None and not self._can_lose(self._not_spare):
            return False  # as before the last move
        busiest_first = np.argsort(-(cluster.usage * cluster.size), kind="stable").tolist()
        for row in busiest_first:
            yield
            if not self._can_lose(row):
                self._not_spare = row
                return False
        return True

    def _can_lose(self, lost: int) -> bool:
        cluster = self._cluster
        if not cluster.reach.everywhere:
            return self._can_lose_by_policies(lost)
        most = self._sensed.most
        rest = [(float(most[row]), row) for row in cluster.open_rows if row != lost]
        if not rest or max(rest)[0] > OVERLOAD:
            return False
        heapq.heapify(rest)
        for share in self._owners.shares(lost):
            usage, row = rest[0]
            after = usage + share * self._dearer(lost) / float(cluster.size[row])
            if share > 0 and after > OVERLOAD:
                return False
            heapq.heapreplace(rest, (after, row))
        return True

    def _can_lose_by_policies(self, lost: int) -> bool:
        """The same where isolation policies say who may serve what once this broker is gone."""
        cluster, snapshot = self._cluster, self._snapshot
        usages, serving = np.full(len(cluster.rows), np.inf), dict[str, NDArray[np.bool_]]()
        rest, most = [row for row in cluster.open_rows if row != lost], self._sensed.most
        if not rest or most[rest].max() > OVERLOAD:
            return False
        usages[cluster.open_rows] = most[cluster.open_rows]
        for share, bundle in self._owners.bundles_by_share(lost):
            namespace = split_bundle_name(bundle)[0]
            if namespace not in serving:
                serving[namespace] = filters.serving_rows_without(snapshot, namespace, lost)
            row = int(np.where(serving[namespace], usages, np.inf).argmin())
            usage = float(usages[row]) if serving[namespace][row] else math.inf
            after = usage + share * self._dearer(lost) / float(cluster.size[row])
            if math.isinf(usage) or (share > 0 and after > OVERLOAD):
                return False
            usages[row] = after
        return True

    def _dearer(self, row: int) -> float:
        """By how much more than the model has it a broker's sensor shows of its bundles."""
        usage = float(self._cluster.usage[row])
        return float(self._sensed.most[row]) / usage if usage > 0 else 1.0


def _limits(names: Iterable[str]) -> Reason:
    """That another move would pass these limits."""
    return Reason(LIMITS.code, f"{LIMITS.text}: that of {', '.join(names)}")


def _is_free(stay: Staying, bundle: str) -> bool:
    return not stay.has(bundle)


def _is_free_of(stay: Staying, name: str, bundle: str) -> bool:
    return name_of(bundle, (name,)) is not None and not stay.has(bundle)
