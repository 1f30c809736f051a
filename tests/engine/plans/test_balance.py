"""Items with named loads over nodes with budgets."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadmanager import BadInputError, Item, Node, balance
from loadmanager.engine.plans.balance import Balance

KINDS = ("requests", "gpu_mb", "sockets")


@st.composite
def clusters(draw: st.DrawFn) -> tuple[list[Item], list[Node]]:
    """Any items on any nodes, some above their budgets, some nowhere, some nodes leaving."""
    names = [f"node {number}" for number in range(draw(st.integers(1, 6)))]
    amounts = st.dictionaries(st.sampled_from(KINDS), st.integers(0, 50).map(float), max_size=3)
    budgets = st.dictionaries(st.sampled_from(KINDS), st.integers(1, 300).map(float), max_size=3)
    nodes = [
        Node(name, draw(budgets), draw(amounts), draw(st.booleans()) and number > 0)
        for number, name in enumerate(names)
    ]
    items = [
        Item(
            f"item {number}",
            draw(amounts),
            draw(st.sampled_from(["", *names])),
            draw(st.integers(0, 3).map(float)),
            draw(st.integers(0, 5)) == 0,
        )
        for number in range(draw(st.integers(0, 25)))
    ]
    return items, nodes


def after(items: Sequence[Item], made: Balance) -> list[Item]:
    """The items where the moves bring them."""
    where = {item.name: item.on for item in items}
    for move in made.moves:
        assert where[move.item] == move.source
        where[move.item] = move.destination
    return [replace(item, on=where[item.name]) for item in items]


def load(node: Node, items: Sequence[Item], kind: str) -> float:
    """What a node has of a kind."""
    mine = [item.load.get(kind, 0.0) for item in items if item.on == node.name]
    return node.load.get(kind, 0.0) + sum(mine)


def squares(nodes: Sequence[Node], items: Sequence[Item]) -> float:
    """The sum of the squares of usages, of nodes that stay."""
    staying = [node for node in nodes if not node.leaving]
    total = 0.0
    for kind in KINDS:
        share = (
            sum(item.load.get(kind, 0.0) for item in items)
            + sum(node.load.get(kind, 0.0) for node in nodes)
        ) / len(staying) or 1.0
        total += sum(
            (load(node, items, kind) / node.budget.get(kind, share)) ** 2 for node in staying
        )
    return total


@given(clusters())
def test_no_move_passes_a_budget_and_every_item_has_one_node(
    cluster: tuple[list[Item], list[Node]],
) -> None:
    """What was above its budget before may stay so; nothing comes to it. What stays, stays; what
    is placed nowhere, or left on a leaving node, has a reason.
    """
    items, nodes = cluster
    made = balance(items, nodes)
    then = after(items, made)
    for node in nodes:
        for kind, budget in node.budget.items():
            assert load(node, then, kind) <= max(budget, load(node, items, kind)) * (1 + 1e-6)
    for item, now in zip(items, then, strict=True):
        if item.stays and item.on:
            assert now.on == item.on
        assert now.on or item.name in made.homeless
        on = next((node for node in nodes if node.name == now.on), None)
        assert on is None or not on.leaving or item.name in made.homeless
    assert all(move.reason.text for move in made.moves)


@given(clusters())
def test_every_move_between_staying_nodes_helps_and_what_is_balanced_stays(
    cluster: tuple[list[Item], list[Node]],
) -> None:
    """So it ends, and a second run moves nothing more; the order of the input does not matter."""
    items, nodes = cluster
    made = balance(items, nodes, moves_max=1_000)
    leaving = {node.name for node in nodes if node.leaving}
    for count, move in enumerate(made.moves):
        if move.source and move.source not in leaving:
            begun = after(items, replace(made, moves=made.moves[:count]))
            done = after(items, replace(made, moves=made.moves[: count + 1]))
            assert squares(nodes, done) < squares(nodes, begun)
    again = balance(after(items, made), nodes, moves_max=1_000)
    assert not again.moves
    assert again.ends == made.ends
    assert balance(items[::-1], nodes[::-1], moves_max=1_000) == made


@given(clusters(), st.integers(0, 5))
def test_no_more_moves_are_made_than_allowed(
    cluster: tuple[list[Item], list[Node]], most: int
) -> None:
    """Placing what nobody has is none."""
    made = balance(*cluster, moves_max=most)
    assert sum(bool(move.source) for move in made.moves) <= most


@settings(max_examples=40)
@given(clusters())
def test_a_move_is_the_best_for_its_node(cluster: tuple[list[Item], list[Node]]) -> None:
    """Whatever is left out of the search for it: all others with that load, from or to that node,
    make the nodes less even for their cost, or do not fit.
    """
    items, nodes = cluster
    nodes = [replace(node, leaving=False) for node in nodes]
    items = [replace(item, on=item.on or nodes[0].name) for item in items]
    made = balance(items, nodes, moves_max=1)
    if not made.moves:
        return
    (move,) = made.moves
    said = re.match(r"(node \d) has .* points (more|less) (\w+) than", move.reason.text)
    assert said is not None
    node, side, kind = said.groups()
    before = squares(nodes, items)

    def worth(item: Item, to: Node) -> float:
        then = [replace(each, on=to.name) if each is item else each for each in items]
        return (before - squares(nodes, then)) / (1 + item.cost)

    def may_move(item: Item, to: Node) -> bool:
        fits = all(
            load(to, items, name) + amount <= to.budget.get(name, float("inf")) * (1 + 1e-6)
            for name, amount in item.load.items()
            if amount
        )
        ends = item.on if side == "more" else to.name
        return fits and not item.stays and bool(item.load.get(kind)) and ends == node

    worths = {
        (item.name, to.name): worth(item, to)
        for item in items
        for to in nodes
        if to.name != item.on and may_move(item, to)
    }
    assert worths[move.item, move.destination] >= max(worths.values()) - 1e-6


def test_what_stays_on_a_leaving_node_is_told() -> None:
    """So is what more moves than are allowed would have moved: it is not empty."""
    items = [
        Item("bolted", {"x": 1}, "a", stays=True),
        Item("1", {"x": 1}, "a"),
        Item("2", {}, "a"),
    ]
    made = balance(items, [Node("a", leaving=True), Node("b")], moves_max=1)
    assert {name: why.code for name, why in made.homeless.items()} == {
        "bolted": "Pinned",
        "2": "Limits",
    }
    assert [move.item for move in made.moves] == ["1"]


def test_an_uneven_cluster_becomes_even_in_few_moves() -> None:
    """By each named load; the reasons say which."""
    items = [
        Item(f"room {number:02}", {"requests": 10, "gpu_mb": 100 * (number % 3)}, "a")
        for number in range(30)
    ]
    nodes = [Node(name, {"requests": 400, "gpu_mb": 4_000}) for name in "abc"]
    made = balance(items, nodes)
    assert made.ends.code == "Reached"
    assert len(made.moves) <= 22
    assert made.before["a"] == pytest.approx(75)
    assert max(made.after.values()) - min(made.after.values()) <= 10
    assert str(made.moves[0].reason).startswith("Uneven: a has 50.0 points more")


def test_cheap_items_go_and_pinned_ones_stay() -> None:
    """If they help as much."""
    items = [
        Item("dear", {"rooms": 1}, "a", cost=9),
        Item("cheap", {"rooms": 1}, "a"),
        Item("pinned", {"rooms": 1}, "a", stays=True),
    ]
    made = balance(items, [Node("a"), Node("b")], moves_max=1)
    assert [move.item for move in made.moves] == ["cheap"]


@pytest.mark.parametrize(
    ("items", "nodes"),
    [
        ([Item("i", {"x": -1})], [Node("a")]),
        ([Item("i", {"x": float("nan")})], [Node("a")]),
        ([Item("i", {"x": 1e308})], [Node("a")]),
        ([Item("i", {"x": 1})], [Node("a", {"x": 1e-308})]),
        ([Item("i", {}, "b")], [Node("a")]),
        ([Item("i", {}), Item("i", {})], [Node("a")]),
        ([], [Node("a", {"x": 0})]),
        ([], [Node("a"), Node("a")]),
        ([Item("i", {}, cost=-1)], []),
    ],
)
def test_what_cannot_be_is_refused(items: list[Item], nodes: list[Node]) -> None:
    """At once."""
    with pytest.raises(BadInputError):
        balance(items, nodes)


def test_limits_that_cannot_be_are_refused_by_name() -> None:
    """NaN, too."""
    with pytest.raises(BadInputError, match=r"within_points .* not nan"):
        balance([], [], within_points=float("nan"))
    with pytest.raises(BadInputError, match=r"moves_max .* not -1"):
        balance([], [], moves_max=-1)


def test_without_nodes_everything_is_homeless() -> None:
    """And that is said."""
    made = balance([Item("i", {"x": 1})], [])
    assert made.homeless["i"].code == "NoRoom"
