"""Orders as they are stored: bounded, and readable by the versions before and after."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from loadmanager.engine.load.learned import Learned
from loadmanager.engine.plans.goals import MOVES_MAX, NO_LIMITS, Even
from loadmanager.engine.plans.order import OTHERS_MAX, GoalOrder, MadeAsShown, Promise
from loadmanager.engine.plans.planner import REACHED, GoalPlan, Point
from loadmanager.engine.strategies.plan import Unload

NAMESPACE = "tenant/namespace"
PROMISE = Promise.nothing(REACHED)
ORDER = GoalOrder(id="7-g1", goal=Even(5), limits=NO_LIMITS, made_ms=1, promise=PROMISE)
BYTES_MAX = 64 << 10


def a_plan(moves: int) -> GoalPlan:
    """Bundle n goes from broker 1 to broker 2."""
    each = (
        Unload(f"{NAMESPACE}/0x{at:08x}_0x{at + 1:08x}", "b1:8080", "b2:8080", "Even")
        for at in range(moves)
    )
    point = Point(0, 0.0, 0.0, 0.0, 0.0)
    return GoalPlan(Even(5), tuple(each), (point,), True, REACHED, 0.0, Learned(), ())


def test_the_moves_of_the_largest_plan_are_stored_and_still_known() -> None:
    """Each that went where it was shown counts, and no other; in a small document."""
    plan = a_plan(MOVES_MAX)
    order = replace(ORDER, compared=MadeAsShown.of(plan))
    stored = msgspec.json.encode(order)
    assert len(stored) < BYTES_MAX
    compared = msgspec.json.decode(stored, type=GoalOrder).compared
    assert compared is not None
    for move in plan.moves[::997]:
        assert compared.and_made([(move.bundle, "b2:8080")]).as_shown == 1
        elsewhere = compared.and_made([(move.bundle, "b3:8080")])
        assert (elsewhere.made, elsewhere.as_shown) == (1, 0)
        assert elsewhere.others == (f"{move.bundle} to b3:8080",)


def test_what_was_not_shown_is_counted_and_some_of_it_named() -> None:
    """However many moves were made, few names are stored."""
    compared = MadeAsShown.of(a_plan(3))
    for at in range(2 * OTHERS_MAX):
        compared = compared.and_made([(f"{NAMESPACE}/{at}", "b9:8080")])
    assert (compared.made, compared.as_shown) == (2 * OTHERS_MAX, 0)
    assert compared.others == tuple(f"{NAMESPACE}/{at} to b9:8080" for at in range(OTHERS_MAX))


def test_an_order_of_before_has_no_marks() -> None:
    """It is read, and says that it does not know."""
    fields = msgspec.json.decode(msgspec.json.encode(ORDER))
    del fields["compared"]
    assert msgspec.convert(fields, GoalOrder) == ORDER
    assert ORDER.compared is None
