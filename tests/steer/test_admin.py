"""`loadmanager admin` beside a daemon: what it answers, and what only brokers have."""

from __future__ import annotations

import asyncio
from pathlib import Path

import aiohttp
import pytest
from steer.test_http import a_cluster

from loadmanager.cli import main

ASKED_OF_BROKERS = (
    ("settings list --all", "its own are in the file of --config"),
    ("settings set loadBalancerEnabled false", "its own are in the file of --config"),
    ("tenants list", "`pulsar-admin` asks"),
    ("topics list acme/shop", "`pulsar-admin` asks"),
    ("find orders", "only loadmanager's own brokers have"),
    ("limits list", "it is no broker of loadmanager"),
    ("brokers health", "are Pulsar's, which this command cannot ask: `brokers list` has"),
    ("brokers report", "are Pulsar's, which this command cannot ask: `brokers list` has"),
)
"""Command → what is said of it."""


class Console:
    """Runs `loadmanager admin` at a daemon."""

    def __init__(self, url: str, capsys: pytest.CaptureFixture[str]) -> None:
        self._url, self._capsys = url, capsys

    async def run(self, line: str) -> tuple[int, str]:
        """The status, and what was printed."""
        code = await asyncio.to_thread(main, ["admin", "--url", self._url, *line.split()])
        said = self._capsys.readouterr()
        return code, said.out + said.err

    async def until_it_says(self, line: str, text: str) -> str:
        """What is printed once this is in the answer."""
        async with asyncio.timeout(60):
            while True:
                code, said = await self.run(line)
                if code == 0 and text in said:
                    return said


async def test_what_if_beside_a_daemon(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By the strategies that the daemon decides by, of the loads that it recorded."""
    async with a_cluster(tmp_path, loadBalancerLoadSheddingStrategy="ThresholdShedder") as url:
        console = Console(url, capsys)
        await console.until_it_says("what-if --times 2", "traffic × 2")
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"{url}/admin/v2/brokers") as answer,
        ):
            broker = (await answer.json())[0]
        line = f"what-if --without {broker}"
        said = await console.until_it_says(line, "bundles, which placement would send")
        assert f"of {broker} now: " in said


async def test_what_only_brokers_have(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each command says in a sentence that the daemon has no such thing, and what has it."""
    async with a_cluster(tmp_path) as url:
        console = Console(url, capsys)
        await console.until_it_says("brokers list", "BUNDLES")
        for line, expected in ASKED_OF_BROKERS:
            code, said = await console.run(line)
            assert code == 1, line
            assert expected in said, (line, said)


async def test_status_says_mode_and_hold_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """That a daemon only advises is no balancing that somebody switched off."""
    async with a_cluster(tmp_path / "advise") as url:
        console = Console(url, capsys)
        said = await console.until_it_says("status", "mode advise: this daemon says what to move")
        assert "BALANCING IS OFF" not in said
    async with a_cluster(tmp_path / "act", "act") as url:
        console = Console(url, capsys)
        said = await console.until_it_says("status", "NOTHING IS MOVED NOW: PulsarBalances: ")
        assert said.index("NOTHING IS MOVED NOW") < said.index("2 brokers")
        assert "balancing waits (PulsarBalances): 0 moves under way, 0 wait" in said
