"""Balances anything: items with named loads over nodes with named budgets.

For whoever has neither brokers nor bundles. The usage of a node is, for each name of a load, the
sum over its items as a part of its budget; without a budget, as a part of what each node would have
of the total. A move is made if it makes the nodes more even: if it lowers the sum of the squares of
all usages, by the most for its cost, and takes nothing above a budget. So every move helps, and
what is balanced stays as it is. Goals of brokers, with a model of what they use:
`engine.plans.planner`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import add, mul, sub

from loadmanager.kit.errors import BadInputError
from loadmanager.kit.reason import Reason

LEAST_GAIN = 1e-9
ROUNDING = 1e-9
GREATEST = 1e50
"""Of a load or budget: squares of usages are sums of floats."""

REACHED = Reason("Reached", "every node is within the points of the mean")
NOTHING_HELPS = Reason("NothingHelps", "no other move would make the nodes more even")
LIMITS = Reason("Limits", "as many moves as allowed are made")


@dataclass(frozen=True, slots=True)
class Item:
    """What may move: a shard, a job, a pod.

    `on`: the node that has it; empty: it is to be placed. `cost`: what a move of it costs, compared
    with the others' (0: nothing). `stays`: it is not moved from where it is.
    """

    name: str
    load: Mapping[str, float]
    on: str = ""
    cost: float = 0.0
    stays: bool = False


@dataclass(frozen=True, slots=True)
class Node:
    """What items are on.

    `budget`: name of a load → how much of it the node takes at most. `load`: what it has beside its
    items. `leaving`: its items go to the others.
    """

    name: str
    budget: Mapping[str, float] = field(default_factory=dict)
    load: Mapping[str, float] = field(default_factory=dict)
    leaving: bool = False


@dataclass(frozen=True, slots=True)
class ItemMove:
    """One move of an item; `source` is empty if it is placed."""

    item: str
    source: str
    destination: str
    reason: Reason


@dataclass(frozen=True, slots=True)
class Balance:
    """The moves, in the order in which to make them, and what they come to.

    `ends`: why there are no more moves. `homeless`: item → why no node takes it, or why it stays on
    one that leaves. `before`, `after`: node → its greatest usage, in percent.
    """

    moves: tuple[ItemMove, ...]
    ends: Reason
    homeless: Mapping[str, Reason]
    before: Mapping[str, float]
    after: Mapping[str, float]


def balance(
    items: Iterable[Item],
    nodes: Iterable[Node],
    *,
    within_points: float = 5.0,
    moves_max: int = 100,
) -> Balance:
    """Place the items that no node has, empty the nodes that leave, then even the others out until
    each is within so many percentage points of the mean. The same input gives the same moves.

    `moves_max`: of items that some node has. With 10,000 items it may take two seconds, in which a
    loop would stand still: call it in a thread there. Raises `BadInputError` for loads
    below 0, budgets of 0, what is above 1e50, names that occur twice, and items on nodes that do
    not exist.
    """
    return _Balancing(list(items), list(nodes), within_points, moves_max).run()


class _Balancing:
    def __init__(
        self, items: Sequence[Item], nodes: Sequence[Node], within_points: float, moves_max: int
    ) -> None:
        _check(items, nodes, within_points, moves_max)
        self._items = {item.name: item for item in sorted(items, key=lambda item: item.name)}
        self._nodes = {node.name: node for node in sorted(nodes, key=lambda node: node.name)}
        self._within, self._moves_max = within_points / 100, moves_max
        self._where = {item.name: item.on for item in items}
        self._on: dict[str, set[str]] = {node.name: set() for node in nodes}
        for item in items:
            if item.on:
                self._on[item.on].add(item.name)
        loads = [*(item.load for item in items), *(node.load for node in nodes)]
        self._kinds = sorted({kind for load in loads for kind in load})
        self._staying = [name for name, node in self._nodes.items() if not node.leaving]
        totals = {kind: sum(load.get(kind, 0.0) for load in loads) for kind in self._kinds}
        self._share = {
            kind: total / max(len(self._staying), 1) or 1.0 for kind, total in totals.items()
        }
        """A node's part of the total: its budget where it has none."""
        self._usage = {name: self._usage_of(node) for name, node in self._nodes.items()}
        self._inverse = {
            name: [self._share[kind] / self._budget(node, kind) for kind in self._kinds]
            for name, node in self._nodes.items()
        }
        """Node → by what a load, in shares, is multiplied to be a part of its budget."""
        self._loads = {
            item.name: [item.load.get(kind, 0.0) / self._share[kind] for kind in self._kinds]
            for item in items
        }
        self._powers = {
            name: [*load, *(part * part for part in load)] for name, load in self._loads.items()
        }
        """Item → its loads in shares, and their squares: with `_weights` it is what a move adds to
        the sum of the squares of usages, (low + here)² - low² = 2 low here + here².
        """
        self._movable = {item.name for item in items if not item.stays}
        self._moves: list[ItemMove] = []
        self._moved = 0
        self._homeless: dict[str, Reason] = {}

    def _usage_of(self, node: Node) -> list[float]:
        parts = [node.load, *(self._items[name].load for name in sorted(self._on[node.name]))]
        return [
            sum(part.get(kind, 0.0) for part in parts) / self._budget(node, kind)
            for kind in self._kinds
        ]

    def _budget(self, node: Node, kind: str) -> float:
        return node.budget.get(kind, self._share[kind])

    def _part(self, item: str, node: str) -> list[float]:
        """What an item uses of a node."""
        return list(map(mul, self._loads[item], self._inverse[node]))

    def _weights(self, node: str, sign: float) -> list[float]:
        """What each power of a load of an item adds if it comes (1), or takes if it goes (-1)."""
        inverse = self._inverse[node]
        linear = [2 * low * part for low, part in zip(self._usage[node], inverse, strict=True)]
        return [*linear, *(sign * part * part for part in inverse)]

    def run(self) -> Balance:
        before = self._greatest()
        while True:
            made = len(self._moves)
            self._give_homes()
            ends = self._even_out()
            if not self._homeless or len(self._moves) == made:
                break  # else there may be room now
        self._usage = {name: self._usage_of(node) for name, node in self._nodes.items()}
        return Balance(
            tuple(self._moves), ends, self._homeless | self._left(), before, self._greatest()
        )

    def _left(self) -> dict[str, Reason]:
        """What stays on nodes that leave, and why."""
        return {
            name: Reason("Pinned", f"it stays on {node}, which is leaving")
            if self._items[name].stays
            else LIMITS
            for node in self._nodes
            if self._nodes[node].leaving
            for name in sorted(self._on[node] - self._homeless.keys())
        }

    def _give_homes(self) -> None:
        self._homeless = {}
        for name in self._by_size(name for name, node in self._where.items() if not node):
            self._place(name, Reason("Placed", "no node has it"))
        for node in (name for name in self._nodes if self._nodes[name].leaving):
            going = [name for name in self._on[node] if not self._items[name].stays]
            for name in self._by_size(going):
                if self._moved < self._moves_max:
                    self._place(name, Reason("Leaving", f"{node} is leaving"))

    def _greatest(self) -> dict[str, float]:
        return {name: 100 * max(usage, default=0.0) for name, usage in self._usage.items()}

    def _by_size(self, names: Iterable[str]) -> list[str]:
        """The greatest first: it finds the fewest places."""

        def size(name: str) -> float:
            load = self._items[name].load
            return max((load[kind] / self._share[kind] for kind in load), default=0.0)

        return sorted(names, key=lambda name: (-size(name), name))

    def _place(self, name: str, why: Reason) -> None:
        best: tuple[float, str] | None = None
        for node in self._staying:
            part = self._part(name, node)
            if self._fits(node, part):
                after = max(map(add, self._usage[node], part), default=0.0)
                best = min(best, (after, node)) if best else (after, node)
        if best is None:
            self._homeless[name] = Reason("NoRoom", "it is more than any node has left")
        else:
            self._move(self._items[name], best[1], why)

    def _fits(self, node: str, part: Sequence[float]) -> bool:
        budget, usage = self._nodes[node].budget, self._usage[node]
        return not any(
            more and kind in budget and usage[at] + more > 1 + ROUNDING
            for at, (kind, more) in enumerate(zip(self._kinds, part, strict=True))
        )

    def _move(self, item: Item, to: str, why: Reason) -> None:
        source = self._where[item.name]
        if source:
            self._on[source].discard(item.name)
            gone = self._part(item.name, source)
            self._usage[source] = list(map(sub, self._usage[source], gone))
            self._moved += 1
        self._where[item.name] = to
        self._on[to].add(item.name)
        self._usage[to] = list(map(add, self._usage[to], self._part(item.name, to)))
        self._moves.append(ItemMove(item.name, source, to, why))

    # Evening out

    def _even_out(self) -> Reason:
        while len(self._staying) > 1:
            uneven = self._uneven()
            if not uneven:
                return REACHED
            best = next(filter(None, (self._best(*each) for each in uneven)), None)
            if best is None:
                return NOTHING_HELPS
            if self._moved >= self._moves_max:
                return LIMITS
            self._move(*best)
        return REACHED

    def _uneven(self) -> list[tuple[str, int, float]]:
        """Node, place of a load, and its distance from the mean, the farthest first."""
        uneven = []
        for at in range(len(self._kinds)):
            mean = sum(self._usage[node][at] for node in self._staying) / len(self._staying)
            for node in self._staying:
                distance = self._usage[node][at] - mean
                if abs(distance) > self._within + ROUNDING:
                    uneven.append((node, at, distance))
        return sorted(uneven, key=lambda each: (-abs(each[2]), each[0], each[1]))

    def _best(self, node: str, at: int, distance: float) -> tuple[Item, str, Reason] | None:
        """The best move away from a node with too much, or to one with too little."""
        kind, others = self._kinds[at], [name for name in self._staying if name != node]
        sources, targets = ([node], others) if distance > 0 else (others, [node])
        comes = {to: self._weights(to, 1.0) for to in targets}
        least = list(map(min, zip(*comes.values(), strict=True)))
        best: tuple[float, str, str] | None = None
        for source in sources:
            goes = self._weights(source, -1.0)
            for name in self._on[source] & self._movable:
                powers, cost = self._powers[name], 1 + self._items[name].cost
                less = sum(map(mul, powers, goes))
                most = less - sum(map(mul, powers, least))  # wherever it goes
                if not powers[at] or most <= LEAST_GAIN:
                    continue
                if best is None or (-most / cost, name) < best:
                    gains = {to: less - sum(map(mul, powers, more)) for to, more in comes.items()}
                    for to, gain in gains.items():
                        move = (-gain / cost, name, to)
                        if gain > LEAST_GAIN and (best is None or move < best):
                            best = move if self._fits(to, self._part(name, to)) else best
        if best is None:
            return None
        side = "more" if distance > 0 else "less"
        text = f"{node} has {abs(distance) * 100:.1f} points {side} {kind} than the mean"
        return self._items[best[1]], best[2], Reason("Uneven", text)


def _check_limits(within_points: float, moves_max: int) -> None:
    if not 0 <= within_points < float("inf"):
        raise BadInputError(f"within_points is a number of 0 or more, not {within_points}")
    if not moves_max >= 0:
        raise BadInputError(f"moves_max is a number of 0 or more, not {moves_max}")


def _check(
    items: Sequence[Item], nodes: Sequence[Node], within_points: float, moves_max: int
) -> None:
    names = {node.name for node in nodes}
    if len(names) != len(nodes) or len({item.name for item in items}) != len(items):
        raise BadInputError("each item and each node has a name of its own")
    if "" in names:
        raise BadInputError("a node has a name")
    _check_limits(within_points, moves_max)
    for item in items:
        if item.on and item.on not in names:
            raise BadInputError(f"{item.name} is on {item.on}, which is no node")
        if not 0 <= item.cost < float("inf"):
            raise BadInputError(f"{item.name} has a cost of {item.cost}: 0 or more is expected")
    for name, load in (
        *((item.name, item.load) for item in items),
        *((node.name, node.load) for node in nodes),
    ):
        if not all(0 <= value <= GREATEST for value in load.values()):
            raise BadInputError(f"{name} has a load that is no number from 0 to {GREATEST:g}")
    for node in nodes:
        if not all(1 / GREATEST <= value <= GREATEST for value in node.budget.values()):
            raise BadInputError(
                f"{node.name} has a budget that is no number above 0, or above {GREATEST:g}"
            )
