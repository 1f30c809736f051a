"""The dead man's timer: when it switches Pulsar's own balancing on, and when it does not."""

from __future__ import annotations

import asyncio
import socket
import sys
from pathlib import Path

import pytest
from ports import free_port
from steer.fake_pulsar import a_pulsar
from steer.test_daemon import a_daemon, ask
from steer.watched import ACT, Clock, Watching, watching

from loadmanager import cli
from loadmanager.kit.errors import OperationalError
from loadmanager.steer.dead_man import DeadMan
from loadmanager.steer.work import HUNG_S


class Timer:
    """A timer of 100 s over a sign that the test sets."""

    def __init__(self) -> None:
        self.sign: int | None = None
        self.restored = 0
        self.answers = True
        self.clock = Clock()
        self.dead_man = DeadMan(
            cluster="test",
            last_sign=lambda: self.sign,
            forget=self.forget,
            restore=self.restore,
            clock=self.clock,
            silent_s=100,
        )

    def forget(self) -> None:
        self.sign = None

    async def restore(self) -> None:
        if not self.answers:
            raise OperationalError("nobody answers")
        self.restored += 1

    async def after(self, seconds: float) -> int:
        """Look after so long; returns how often it has fired."""
        self.clock.pass_s(seconds)
        await self.dead_man.step()
        return self.restored


def signs_of(daemon: Watching) -> list[None]:
    """The signs of life that a daemon gives from now on."""
    given: list[None] = []
    daemon.work.lives = lambda: given.append(None)
    return given


async def test_it_fires_once_after_each_life() -> None:
    """Never before the first sign; then when there was no other sign for 100 s."""
    timer = Timer()
    assert await timer.after(1000) == 0
    timer.sign = 1
    assert await timer.after(0) == 0
    assert await timer.after(99) == 0
    timer.sign = 2
    assert await timer.after(1) == 0
    assert await timer.after(99) == 0
    assert await timer.after(1) == 1
    assert await timer.after(1000) == 1
    timer.sign = 3
    assert await timer.after(0) == 1
    assert await timer.after(100) == 2


async def test_it_tries_again_until_pulsar_answers() -> None:
    """The failure is the step's."""
    timer = Timer()
    timer.sign, timer.answers = 1, False
    await timer.after(0)
    with pytest.raises(OperationalError):
        await timer.after(100)
    timer.answers = True
    assert await timer.after(5) == 1


@pytest.mark.parametrize(("mode", "signs"), [("advise", 0), ("approve", 2), ("act", 2)])
async def test_who_gives_signs(tmp_path: Path, mode: str, signs: int) -> None:
    """A daemon that may move bundles, each time that the cluster answers it."""
    async with watching(tmp_path, settings={**ACT, "mode": mode}) as daemon:
        given = signs_of(daemon)
        await daemon.work.read()
        await daemon.work.read()
        assert len(given) == signs
        for broker in list(daemon.pulsar.servers):
            await daemon.pulsar.stop(broker)
        await daemon.work.read()
        assert len(given) == signs


async def test_a_daemon_that_is_killed(tmp_path: Path) -> None:
    """The process of the timer switches Pulsar's own on, and the next daemon then moves nothing."""
    port = free_port()
    async with a_pulsar(2) as pulsar:
        pulsar.switch_off()
        configuration = f"pulsar={pulsar.url()}\nmode=act\n"
        async with a_daemon(tmp_path, configuration, port) as daemon:
            await ask(port, "/loadmanager/v1/fleet", until=lambda told: told["brokers"])
            timer = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "loadmanager", "fleet",
                "--config", str(tmp_path / "fleet.conf"), "--data-dir", str(tmp_path / "data"),
                "restore", "--when-silent", "3", stderr=asyncio.subprocess.PIPE,
            )  # fmt: skip
            try:
                assert timer.stderr is not None
                async for line in timer.stderr:
                    if b"a daemon steers this cluster" in line:
                        daemon.kill()
                        await daemon.wait()
                        assert pulsar.settings["loadBalancerSheddingEnabled"] == "false"
                    if b"loadBalancerAutoBundleSplitEnabled" in line:
                        break
            finally:
                timer.kill()
                await timer.wait()
        assert pulsar.settings["loadBalancerSheddingEnabled"] == "true"
        assert pulsar.settings["loadBalancerAutoBundleSplitEnabled"] == "true"
        async with a_daemon(tmp_path, configuration, port):
            balances = "PulsarBalances"
            await ask(port, "/loadmanager/v1/fleet", until=lambda told: balances in told["held"])


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("", "90 or more is expected"),
        ("metadataStoreUrl=zk:h:1\nreadIntervalSeconds=1", "another daemon takes over"),
    ],
)
def test_what_the_timer_refuses(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: str, said: str
) -> None:
    """A time that a daemon at work would exceed, and a lock in ZooKeeper."""
    path = tmp_path / "fleet.conf"
    path.write_text(f"pulsar=http://127.0.0.1:1\n{more}\n")
    assert cli.main(["fleet", "--config", str(path), "restore", "--when-silent", "60"]) == 2
    assert said in capsys.readouterr().err


async def test_a_sign_that_cannot_be_deleted() -> None:
    """It fires once; a newer sign begins the time again."""
    timer = Timer()
    timer.dead_man.forget = lambda: None
    timer.sign = 1
    await timer.after(0)
    assert await timer.after(100) == 1
    assert await timer.after(1000) == 1
    timer.sign = 2
    assert await timer.after(0) == 1
    assert await timer.after(100) == 2


async def test_brokers_that_hang_do_not_silence_the_daemon(tmp_path: Path) -> None:
    """While a long reading goes on, it gives signs; none once nothing of it ends any more."""
    patient = {**ACT, "requestTimeoutSeconds": "3"}
    async with watching(tmp_path, settings=patient) as daemon:
        work, given = daemon.work, signs_of(daemon)
        await work.sign()
        assert given == []  # nothing is known yet
        await work.read()
        given.clear()
        hangs = daemon.pulsar.brokers[0]
        await daemon.pulsar.stop(hangs)
        with socket.create_server(("127.0.0.1", int(hangs.rpartition(":")[2]))) as server:
            server.setblocking(False)
            read = asyncio.create_task(work.read())
            connection, _ = await asyncio.get_running_loop().sock_accept(server)
            daemon.clock.pass_s(60)
            await work.sign()
            assert len(given) == 1
            daemon.clock.pass_s(HUNG_S)
            await work.sign()
            assert len(given) == 1
            read.cancel()
            connection.close()


async def test_a_sign_that_is_gone() -> None:
    """With the volume it was on, or a cleaner took it: that is silence, and it fires once."""
    timer = Timer()
    timer.sign = 1
    await timer.after(0)
    timer.sign = None
    assert await timer.after(99) == 0
    assert await timer.after(1) == 1
    assert await timer.after(1000) == 1


async def test_a_reading_that_hangs_is_no_life(tmp_path: Path) -> None:
    """Although the settings can be read beside it."""
    async with watching(tmp_path, settings=ACT) as daemon:
        work, given = daemon.work, signs_of(daemon)
        await work.read()
        for _ in range(5):
            daemon.clock.pass_s(HUNG_S / 4 + 1)
            await work.sign()
            assert work.picture.settings_ms == daemon.clock.now_ms()
        assert len(given) == 1 + 3
