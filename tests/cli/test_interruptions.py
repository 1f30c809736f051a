"""The total of what clients went through today, by `loadmanager admin status` and `moves list`."""

from __future__ import annotations

from pathlib import Path

import pytest
from broker.admin.serving import serving
from broker.admin.test_archive import BUNDLE, in_folder, written
from cli.test_admin_command import Shell

from loadmanager.cli.admin.interruptions import Interruptions
from loadmanager.engine.history.members import MemberChange
from loadmanager.engine.history.records import Decision
from loadmanager.kit.system.clock import SystemClock


def test_in_words() -> None:
    """Only what there was; clients that were not seen again are named."""
    at = 13 * 3_600_000
    assert str(Interruptions(at, moves=1)) == "today since 13:00:00Z: 1 move, 0 clients interrupted"
    total = Interruptions(at, 12, 1, 34, 33, longest_ms=1_200, sum_ms=14_000)
    assert str(total) == (
        "today since 13:00:00Z: 12 moves, 1 broker lost, 34 clients interrupted, longest 1.2 s, "
        "in all 14 s, 1 of them not seen to be back"
    )


async def test_moves_and_lost_brokers_count(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """From all archives; so does a move that failed, if it closed clients."""
    now = SystemClock().now_ms()
    async with serving(values=in_folder(tmp_path)) as served:
        shell = Shell(served, capsys)
        assert "interrupted" not in (await shell.run("status"))[1]

        def moved(
            state: str, clients: int | None, waited_ms: float | None, mean_ms: float | None
        ) -> Decision:
            return Decision(
                ts=now, broker="b0", epoch=1, cycle=1, strategy="moves", action="move",
                bundle=BUNDLE, author="cycle", state=state, clients_closed=clients,
                clients_back=clients, clients_waited_ms=waited_ms, clients_waited_mean_ms=mean_ms,
            )  # fmt: skip

        lost = [
            MemberChange(ts=now, broker="b0", of="b9:8080", event="left", how="lost"),
            MemberChange(
                ts=now, broker="b0", of="b9:8080", event="clients", clients=3, clients_back=2,
                clients_waited_ms=5_000, clients_waited_mean_ms=4_000, unheard_ms=6_000,
            ),
        ]  # fmt: skip
        failed = [moved("failed", 1, 2_000, None), moved("failed", None, None, None)]
        await written(served, 0, moved("done", 4, 1_000, 500), *failed)
        await written(served, 1, moved("done", 2, 3_000, None), *lost)
        total = (
            ": 2 moves, 2 moves failed, 1 broker lost, 10 clients interrupted, longest 5.0 s, "
            "in all 18 s, up to 6.0 s more before a broker counted as lost, "
            "1 of them not seen to be back"
        )
        for words in (("status",), ("moves", "list")):
            assert total in (await shell.run(*words))[1]
