"""Undoing moves: by the id of a decision, of a plan that was carried out, and not against anything
that happened since.
"""

from __future__ import annotations

import asyncio

import pytest
from clusters.led import Led, led_fleet
from leader.test_moves import SPANS, UNIFORM, unload
from leader.test_undo_documents import a_change

from loadmanager.engine.load.reports import NamespaceBundleStats
from loadmanager.engine.moves.move import Author
from loadmanager.engine.moves.settings import MoveSettings
from loadmanager.kit.errors import BadInputError, ConflictError
from loadmanager.leader.documents.undo import Undone
from loadmanager.leader.undo import TermUndo
from loadmanager.leader.undo_documents import UndoOrder

A, B, C = SPANS


def undo_of(led: Led) -> TermUndo:
    """The term's part that undoes."""
    undo = led.operations.undo
    assert undo is not None
    return undo


def order(*ids: str, note: str | None = None, what: str = "POST /x") -> UndoOrder:
    """Ids as an operator names them; with a note, of a change that has it."""
    change = a_change("", None, None)
    change.path, change.note, change.what = None, note, what
    changes = {change.id or "": [change]} if note is not None or what != "POST /x" else {}
    return UndoOrder(ids, changes, [], lambda stored, _key, _value: dict(stored))


async def undone(led: Led, *ids: str) -> Undone:
    """Carry out the plan, and wait for its moves."""
    seal = (await undo_of(led).draft(order(*ids))).seal
    answer = await undo_of(led).carry_out(order(*ids), seal)
    await led.moves.idle()
    return answer


async def why_not(led: Led, wanted: UndoOrder) -> str:
    """Why nothing can be undone; nothing is."""
    draft = await undo_of(led).draft(wanted)
    assert draft.steps == []
    with pytest.raises(ConflictError, match="nothing is undone"):
        await undo_of(led).carry_out(wanted, draft.seal)
    return draft.cannot[0].why


def decided(led: Led, kind: str, number: int = 0) -> str:
    """The id of a decision of a kind, the newest first."""
    newest = led.load_manager.records.decisions.newest_first()
    return [each.id for each in newest if each.kind == kind][number]


async def overloaded(led: Led) -> None:
    """Broker 1 has all bundles."""
    for bundle in (A, B, C):
        await led.fleet.brokers[1].acquire(bundle)
    await led.report(0, {})
    await led.report(2, {})
    await led.report(1, dict.fromkeys((A, B, C), NamespaceBundleStats(msg_rate_in=500)))
    await led.feed.refresh()


async def test_a_cycle_is_undone() -> None:
    """Every bundle that it moved goes back; the moves are an operator's, which a pause does not
    hold.
    """
    async with led_fleet(3, strategies=UNIFORM) as led:
        await overloaded(led)
        await led.shed()
        moved = {move.bundle for move in led.moves.queue.ended}
        assert moved
        await led.operations.pause(600)
        answer = await undone(led, decided(led, "shed"))
        assert {step.of for step in answer.steps} == moved
        assert len(answer.moves) == len(moved)
        assert all(led.fleet.owners(bundle) == ["b1:8080"] for bundle in (A, B, C))
        ended = list(led.moves.queue.ended)[: len(moved)]
        assert {(move.author, move.reason) for move in ended} == {(Author.OPERATOR, "Undo")}
        assert "it is back at " in await why_not(led, order(decided(led, "shed")))


async def test_moves_one_after_the_other() -> None:
    """The newest first; what it comes to is one move of each bundle, or none."""
    async with led_fleet(3) as led:
        await led.fleet.brokers[0].acquire(A)
        for to in ("b1:8080", "b2:8080"):
            await led.operations.move(A, to)
        await asyncio.sleep(10)  # until the decisions are there
        second, first = decided(led, "move"), decided(led, "move", 1)
        assert "now, and not at" in await why_not(led, order(first))
        answer = await undone(led, first, second)
        assert [(step.id, step.then) for step in answer.steps] == [
            (second, "b1:8080"),
            (first, "b0:8080"),
        ]
        assert (len(answer.moves), led.fleet.owners(A)) == (1, ["b0:8080"])
        ids = [move.id for move in led.moves.queue.ended]
        assert not set(ids) & {it.id for it in led.load_manager.records.decisions.newest_first()}
        (step,) = (await undo_of(led).draft(order(ids[0]))).steps
        assert (step.id, step.what, step.then) == (ids[0], "move", "b2:8080")
        again = order("c-1-100", note=f"moves {ids[0]}")
        (step,) = (await undo_of(led).draft(again)).steps
        assert (step.of, step.now, step.then) == (A, "b0:8080", "b2:8080")
        gone = order("c-1-100", note="moves 1-99")
        assert await why_not(led, gone) == "neither this leader nor an archive knows move 1-99"
        with pytest.raises(ConflictError, match="no longer"):
            await undo_of(led).carry_out(again, "another")
        assert led.fleet.owners(A) == ["b0:8080"]


async def test_changes_of_one_request_name_the_same_move() -> None:
    """Each is noted with the moves that the request ordered: the newest of them has the move back,
    and no other is said to be unable to.
    """
    async with led_fleet(3) as led:
        await led.fleet.brokers[0].acquire(A)
        await led.operations.move(A, "b1:8080")
        await led.moves.idle()
        (move,) = led.moves.queue.ended
        of_one = [a_change(f"c-1-{number}", None, None) for number in (100, 101)]
        for change in of_one:
            change.path, change.note = None, f"undoes c-1-1; moves {move.id}"
        changes = {change.id or "": [change] for change in of_one}
        wanted = UndoOrder((*changes,), changes, [], lambda stored, _key, _value: dict(stored))
        draft = await undo_of(led).draft(wanted)
        (step,) = draft.steps
        assert (step.of, step.now, step.then) == (A, "b1:8080", "b0:8080")
        assert draft.cannot == []


async def test_what_is_against_a_move_back() -> None:
    """A cordon, a pin, a move under way, a split, a broker that is gone, too many ids, or a queue
    that is full by then.
    """
    async with led_fleet(3) as led:
        await led.fleet.brokers[1].acquire(A)
        await led.operations.move(A, "b2:8080")
        await asyncio.sleep(10)
        move = decided(led, "move")
        await led.operations.cordon("b1:8080", drain=False)
        assert await why_not(led, order(move)) == "b1:8080 is cordoned"
        await led.operations.uncordon("b1:8080")
        await led.operations.move(A, "b2:8080", pin_s=600)
        assert "pinned to b2:8080" in await why_not(led, order(move))
        await led.operations.unpin(A)

        seal = (await undo_of(led).draft(order(move))).seal
        led.move_settings.set(MoveSettings(queue_max=0))
        answer = await undo_of(led).carry_out(order(move), seal)
        assert (answer.moves, list(answer.not_queued)) == ([], [A])
        led.move_settings.set(MoveSettings())
        await led.operations.pause(600)
        led.moves.decide([unload(A)], Author.CYCLE)
        assert "of it is under way" in await why_not(led, order(move))
        led.operations.cancel(None)

        await led.fleet.brokers[2].release(A)
        assert "nobody owns it now" in await why_not(led, order(move))
        plan = order("c-1-100", what="POST /loadmanager/v1/plans/1-p9/execute")
        assert "there is no plan 1-p9" in await why_not(led, plan)
        assert "it is an order" in await why_not(led, order("c-1-100", what="PUT /y"))
        for ids in ((), ("c-1-100",) * 101):
            with pytest.raises(BadInputError):
                await undo_of(led).draft(order(*ids))


async def test_a_plan_that_was_carried_out_is_undone() -> None:
    """By the id of the change that had it carried out."""
    async with led_fleet(3, strategies=UNIFORM) as led:
        await overloaded(led)
        plan = led.plans.dry_run(None, None, {})
        assert plan.plan.unloads
        await led.plans.execute(plan.id)
        wanted = order("c-1-100", what=f"POST /loadmanager/v1/plans/{plan.id}/execute")
        assert "has not ended" in await why_not(led, wanted)
        await led.moves.idle()
        moved = [unload.bundle for unload in plan.plan.unloads]
        assert all(led.fleet.owners(bundle) != ["b1:8080"] for bundle in moved)
        draft = await undo_of(led).draft(wanted)
        await undo_of(led).carry_out(wanted, draft.seal)
        await led.moves.idle()
        assert all(led.fleet.owners(bundle) == ["b1:8080"] for bundle in moved)
