"""`loadmanager admin goals show`: what was promised beside what came."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from loadmanager.cli.admin.goal_waits import waited_text
from loadmanager.cli.admin.goals import headline
from loadmanager.engine.history.clients import ClientStep
from loadmanager.engine.history.records import Decision
from loadmanager.engine.history.waits import Interrupted
from loadmanager.engine.plans.goals import Emptied, PlanLimits
from loadmanager.engine.plans.order import CurvePoint, Progress, Promise
from loadmanager.engine.plans.planner import NOTHING_HELPS, REACHED
from loadmanager.kit.reason import Reason
from loadmanager.leader.documents.goals import GoalShown

MOVE = Decision(
    ts=90_000, broker="b0", epoch=1, cycle=0, strategy="", action="move", move="1-m1", bundle="x",
    source="b1", destination="b2", author="drain", state="done", started_at=10_000, ended_at=10_050,
)  # fmt: skip


def a_wait(
    since: int, back_at: int | None, broker: str = "b1", bundle: str = "x", *, lost: bool = False
) -> Interrupted:
    """Of a client."""
    step = ClientStep(
        ts=since, broker=broker, event="left", client="h:1", address="h", what="producer",
        name="p", topic="t", bundle=bundle,
    )  # fmt: skip
    return Interrupted(step, since, lost=lost, back_at=back_at)


def test_how_long_the_clients_of_moves_waited() -> None:
    """By their records; neither those of other brokers, bundles and times, nor those whose broker
    was lost, which made their move fail.
    """
    others = [
        a_wait(10_010, 20_000, broker="b2"),
        a_wait(10_010, 20_000, bundle="y"),
        a_wait(15_000, 20_000),
        a_wait(10_010, 20_000, lost=True),
    ]
    assert waited_text(others, [MOVE]) == ""
    waits = [a_wait(10_010, 35_010), a_wait(10_020, 10_520), *others]
    assert waited_text(waits, [MOVE]) == (
        "by the records of clients: 2 clients waited 26 s in all until attached again, longest 25 s"
    )
    assert waited_text([*waits, a_wait(10_020, None)], [MOVE]).endswith(
        "longest 25 s; 1 of them is not seen to be back, and not in this sum"
    )
    assert waited_text([a_wait(10_020, None)], [MOVE]) == (
        "by the records of clients: 1 client waited; 1 of them is not seen to be back"
    )


POINT = CurvePoint(moves=0, traffic=0, clients=8, spread=0, farthest=0)
WHY = Reason("NothingHelps", "1 bundle may not leave")
ORDER = GoalShown(
    id="4-g1", goal=Emptied("b1"), limits=PlanLimits(),
    state="ended", made_ms=1, approved_ms=2, ended_ms=3, ended=None, note="",
    promise=Promise((POINT,), False, WHY, 0.0), progress=Progress(), waits=None,
    pause_seconds=1.0, pause_source="moves", pause_at=None,
)  # fmt: skip
AGAINST = Reason("Reached", f"{REACHED.text}; by sensors, a broker is 30.0 points from the mean")


@pytest.mark.parametrize(
    ("ends", "text"),
    [
        (REACHED, "b1 emptied) is reached already: nothing has to be moved"),
        (AGAINST, "nothing has to be moved; by sensors, a broker is 30.0 points from the mean"),
        (NOTHING_HELPS, "b1 emptied): 0 moves; does not reach the goal: no other move would help"),
    ],
)
def test_a_goal_that_ended_without_a_move(ends: Reason, text: str) -> None:
    """It was reached already, or was not reached."""
    promise = Promise((POINT,), ends.code == "Reached", ends, 0.0)
    order = replace(ORDER, promise=promise)
    assert headline(order).endswith(text)


@pytest.mark.parametrize(
    ("drain", "ordered", "text"),
    [
        (True, 5, "4 moves planned; the plan has no place for the rest (1 bundle may not leave): "),
        (False, 4, "4 moves promised, which was not to reach the goal (1 bundle may not leave)"),
        (False, 0, "4 moves; does not reach the goal: 1 bundle may not leave"),
    ],
)
def test_a_plan_that_did_not_reach_its_goal(drain: bool, ordered: int, text: str) -> None:
    """Of what is carried out, the first line says what the plan was: the goal may be reached."""
    promise = Promise((replace(POINT, moves=4),), False, WHY, 0.0)
    order = replace(
        ORDER, promise=promise, state="ended" if ordered else "proposed", drain=drain,
        progress=Progress(ordered=ordered, arrived=ordered),
    )  # fmt: skip
    assert headline(order).startswith(f"goal 4-g1 (b1 emptied): {text}")
