"""`loadmanager admin interrupted`: clients that waited, by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from broker.admin.serving import serving
from broker.admin.test_archive import BUNDLE, in_folder, written
from cli.test_admin_command import Shell

from loadmanager.engine.history.clients import CLOSED_HERE, ClientStep
from loadmanager.engine.history.members import MemberChange
from loadmanager.engine.history.records import Decision
from loadmanager.kit.system.clock import SystemClock

TOPIC = "persistent://acme/orders/t"


def _step(ts: int, broker: str, event: str, name: str, **more: Any) -> ClientStep:
    return ClientStep(
        ts=ts, broker=broker, event=event, client="10.0.3.7:4711", address="10.0.3.7",
        what="producer", name=name, topic=TOPIC, bundle=BUNDLE, **more,
    )  # fmt: skip


async def test_clients_of_a_move_and_of_a_lost_broker(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each with its address, name and topic, how long it waited, and who is not back; by the move,
    by the broker, and by a part of a name.
    """
    now = SystemClock().now_ms()
    async with serving(2, values=in_folder(tmp_path)) as served:
        shell, (one, two) = Shell(served, capsys), (served.broker_id(0), served.broker_id(1))
        status, out, _ = await shell.run("interrupted")
        assert (status, out.startswith("no client is recorded that was interrupted")) == (0, True)
        move = Decision(
            ts=now - 20_000, broker=one, epoch=1, cycle=1, strategy="", action="move", move="1-m1",
            bundle=BUNDLE, source=one, destination=two, author="operator", state="done",
            started_at=now - 60_100, ended_at=now - 59_000, ids=["1-m1"],
        )  # fmt: skip
        left = MemberChange(
            ts=now - 25_000, broker=one, of=two, event="left", how="lost", unheard_ms=11_000,
            left_at=now - 30_000,
        )  # fmt: skip
        closed: dict[str, Any] = {"reason": CLOSED_HERE, "destination": two}
        await written(
            served, 0, move, left,
            _step(now - 90_000, one, "attached", "mover"),
            _step(now - 60_000, one, "left", "mover", **closed),
            _step(now - 18_000, one, "attached", "mover"),
        )  # fmt: skip
        await written(
            served, 1,
            _step(now - 59_600, two, "attached", "mover"),
            _step(now - 80_000, two, "attached", "sad"),
            ClientStep(ts=now - 10, broker=two, event="unrecorded", times=3),
        )  # fmt: skip
        told = await shell.json("interrupted")
        assert [(it["name"], it["waitedMs"], it["backAtBroker"]) for it in told][1:] == [
            ("mover", 12_000, one),
            ("mover", 400, two),
        ]
        assert (told[0]["name"], told[0]["backAt"], told[0]["unheardMs"]) == ("sad", None, 6_000)
        assert told[0]["waitedMs"] >= 30_000
        _, out, _ = await shell.run("interrupted")
        assert "3 interruptions of clients from " in out
        assert "those that are back waited 12 s at most; 1 is not seen to be back" in out
        assert "NOT BACK" in out
        assert "may have waited up to 6.0 s more, before it was lost" in out
        assert f"{two} recorded 3 steps of clients by their number only" in out
        (moved,) = await shell.json("interrupted", "1-m1")
        assert (moved["waitedMs"], moved["because"]) == (400, f"moved to {two}")
        assert [it["name"] for it in await shell.json("interrupted", two)] == ["sad", "mover"]
        assert [it["name"] for it in await shell.json("interrupted", "SAD")] == ["sad"]
        assert await shell.json("interrupted", "--until", "40s ago", "orders") == [moved]
        _, out, _ = await shell.run("interrupted", "--limit", "1")
        assert "and 2 more: --limit shows them" in out
        status, _, err = await shell.run("interrupted", "7-m7")
        assert (status, "no move 7-m7 is recorded yet" in err) == (1, True)
