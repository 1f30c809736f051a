"""What a daemon undoes: bundles go back to where it moved them from."""

from __future__ import annotations

import asyncio
from pathlib import Path

import aiohttp
import pytest
from steer.test_http import a_cluster, planned
from steer.watched import ACT, Watching, watching

from loadmanager.kit.audit import ChangeShown
from loadmanager.kit.errors import ConflictError
from loadmanager.leader.undo_documents import Draft, UndoOrder
from loadmanager.steer.undo import FleetUndo


def order(*ids: str, **changes: ChangeShown) -> UndoOrder:
    """What is to be undone."""
    found = {each.id or "": [each] for each in changes.values()}
    return UndoOrder((*ids, *found), found, (), lambda _now, _name, _value: {})


def a_change(id_: str, what: str, **more: str) -> ChangeShown:
    """An order that somebody gave."""
    given = {"role": "ann", "address": "::1", "over": "fleet", **dict.fromkeys(("proxied",))}
    fields = {**dict.fromkeys(("path", "before", "after", "note")), **given, **more}
    return ChangeShown(ts=1, broker="test", what=what, id=id_, **fields)  # type: ignore[arg-type]


def undo_of(daemon: Watching) -> FleetUndo:
    """The part that is tested."""
    undo = daemon.work.operations.undo
    assert isinstance(undo, FleetUndo)
    return undo


def why(draft: Draft) -> dict[str, str]:
    """Id → why it cannot be undone."""
    return {each.id: each.why for each in draft.cannot}


async def test_a_cycle_is_undone(tmp_path: Path) -> None:
    """Its bundles go back through the queue; what was done already is no longer there to undo."""
    async with watching(tmp_path, settings=ACT) as daemon:
        daemon.pulsar.switch_off()
        before = dict(daemon.pulsar.owners)
        await daemon.cycle()
        assert daemon.pulsar.owners != before
        decisions = daemon.work.load_manager.records.decisions.newest_first()
        (shed,) = [it.id for it in decisions if it.shown().kind == "shed"]
        undo = undo_of(daemon)
        draft = await undo.draft(order(shed))
        assert {step.of: step.then for step in draft.steps} == {
            bundle: before[bundle] for bundle, _ in daemon.pulsar.moved
        }
        done = await undo.carry_out(order(shed), draft.seal)
        await daemon.work.moves.idle()
        assert (len(done.moves), done.not_queued) == (len(draft.steps), {})
        assert daemon.pulsar.owners == before
        again = await undo.draft(order(shed))
        assert again.steps == []
        assert "it is back at " in why(again)[shed]


async def test_what_a_daemon_cannot_undo(tmp_path: Path) -> None:
    """It says why, and what takes the order back; and where nothing may be moved, nothing is."""
    async with watching(tmp_path, settings={"mode": "advise"}) as daemon:
        await daemon.cycle()
        undo = undo_of(daemon)
        draft = await undo.draft(
            order(
                "7-1",
                pin=a_change("c-1", "PUT /loadmanager/v1/pins/a/b/0x0_0x1"),
                cordon=a_change("c-2", "PUT /loadmanager/v1/cordons/b1"),
                other=a_change("c-3", "POST /loadmanager/v1/dry-run", path="/x"),
            )
        )
        reasons = why(draft)
        assert "another leader's term" in reasons["7-1"]
        assert "bundles unpin" in reasons["c-1"]
        assert "brokers uncordon" in reasons["c-2"]
        assert "moved nothing" in reasons["c-3"]
        with pytest.raises(ConflictError, match="mode"):
            await undo.carry_out(order("7-1"), draft.seal)


async def test_undo_over_http(tmp_path: Path) -> None:
    """The daemon answers as a leader does; findings, too."""
    async with a_cluster(tmp_path) as url, aiohttp.ClientSession() as session:
        await planned(session, url)
        async with asyncio.timeout(60):
            async with session.get(f"{url}/loadmanager/v1/undo?ids=c-1") as answer:
                document = await answer.json()
            assert (answer.status, document["steps"]) == (200, [])
            async with session.get(f"{url}/loadmanager/v1/findings") as answer:
                assert (answer.status, (await answer.json())["findings"]) == (200, [])
