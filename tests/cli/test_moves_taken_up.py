"""Moves whose leader went before their clients were back, as `moves list` shows them."""

from __future__ import annotations

import pytest
from broker.admin.serving import serving
from broker.admin.test_archive import BUNDLE
from cli.test_admin_command import Shell

from loadmanager.cli.admin.moves import EARLIER
from loadmanager.engine.moves.move import Author, Move, MoveState, Outcome
from loadmanager.kit.system.clock import SystemClock
from loadmanager.leader.http.use import operations
from loadmanager.leader.moves import Moves, Unverified


async def test_they_are_listed_as_what_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    """At once, with their leader's outcome; without such a move, nothing is said of any."""
    async with serving() as served:
        shell, now_ms = Shell(served, capsys), SystemClock().now_ms()
        out = (await shell.run("moves", "list"))[1]
        assert "earlier leader" not in out
        assert EARLIER not in out
        move = Move(
            id="7-m1", bundle=BUNDLE, source=served.broker_id(0), destination=served.broker_id(1),
            reason="test", why={}, author=Author.CYCLE, swap=None, state=MoveState.DONE,
            created_at=now_ms, started_at=now_ms, ended_at=now_ms,
            outcome=Outcome("moved", clients_closed=4, pause_ms=5.0),
        )  # fmt: skip
        moves = operations(served.brokers[0].use).moves
        assert isinstance(moves, Moves)
        moves.take_up([Unverified(move)])
        _, row, *_ = (await shell.run("moves", "list"))[1].splitlines()
        assert row.split()[:2] == ["7-m1", "done"]
        assert EARLIER in (await shell.run("moves", "list"))[1].splitlines()
        told = "made by an earlier leader, and their clients counted by this one: 7-m1"
        assert told in (await shell.run("moves", "list"))[1].splitlines()
        assert (await shell.json("moves", "list"))["takenUp"] == ["7-m1"]
