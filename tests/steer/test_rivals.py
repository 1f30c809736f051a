"""Two daemons beside one Pulsar notice each other, and neither moves anything."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from steer.fake_pulsar import FakePulsar, a_pulsar, failed
from steer.watched import ACT, Watching, beside

from loadmanager.engine.moves.move import Author
from loadmanager.kit.errors import ConflictError
from loadmanager.steer.rivals import DEAD_S, PREFIX, id_in

READ_S = 30


@asynccontextmanager
async def two(tmp_path: Path) -> AsyncIterator[tuple[FakePulsar, Watching, Watching]]:
    """Two daemons that act, with folders of their own."""
    async with a_pulsar(3) as pulsar:
        pulsar.spread([12, 2, 2])
        pulsar.switch_off()
        async with (
            beside(pulsar, tmp_path / "one", ACT, marks=True) as one,
            beside(pulsar, tmp_path / "two", ACT, marks=True) as other,
        ):
            yield pulsar, one, other


async def read(*daemons: Watching) -> None:
    """Each reads the cluster, a reading later."""
    for daemon in daemons:
        daemon.clock.pass_s(READ_S)
        await daemon.work.read()


async def test_neither_of_two_acts(tmp_path: Path) -> None:
    """From the third reading on at the latest; when one has gone, the other goes on."""
    async with two(tmp_path) as (pulsar, one, other):
        await read(one, other, one, other, one)
        for daemon in (one, other):
            for author in (Author.CYCLE, Author.PLAN, Author.GOAL, Author.OPERATOR):
                assert "SecondDaemon: 1 more daemon steers" in (
                    daemon.work.hold.refusal(author) or ""
                )
            cluster = daemon.work.operations.overview.cluster(10)
            assert (cluster.mode, cluster.balancing) == ("act", True)
            assert "SecondDaemon: 1 more daemon steers" in (cluster.hold or "")
            await daemon.work.shed()
            await daemon.work.moves.idle()
        assert pulsar.moved == []
        await read(one, one, one, one)
        assert one.work.hold.refusal(Author.CYCLE) is None
        await one.cycle()
        assert pulsar.moved


async def test_a_copy_of_the_folder_is_a_second_one(tmp_path: Path) -> None:
    """Of a cloned machine, say: it has the same id."""
    async with two(tmp_path) as (pulsar, one, other):
        original, copy = one.work.hold.rivals, other.work.hold.rivals
        assert original is not None
        assert copy is not None
        copy.me = original.me
        await read(one, other, one, other, one)
        for daemon in (one, other):
            assert "SecondDaemon" in (daemon.work.hold.refusal(Author.CYCLE) or "")
        await one.work.shed()
        assert pulsar.moved == []
        await read(one, one, one, one)
        assert one.work.hold.refusal(Author.CYCLE) is None


async def test_one_that_begins_again_is_no_second_one(tmp_path: Path) -> None:
    """It has the id of its folder; and a mark that nobody changes is nobody's after a while."""
    async with a_pulsar(3) as pulsar:
        pulsar.switch_off()
        pulsar.properties[PREFIX + "0123456789ab"] = "1"
        for _ in range(3):
            async with beside(pulsar, tmp_path, ACT, marks=True) as daemon:
                await read(daemon, daemon, daemon)
                assert "SecondDaemon" in (daemon.work.hold.refusal(Author.CYCLE) or "")
                await read(daemon, daemon)
                assert daemon.work.hold.refusal(Author.CYCLE) is None
        assert pulsar.properties.keys() == {PREFIX + "0123456789ab", PREFIX + id_in(tmp_path)}


async def test_nothing_moves_before_the_second_look(tmp_path: Path) -> None:
    """Nobody else's mark can have changed before; what operators order and drains wait, too."""
    async with a_pulsar(3) as pulsar:
        pulsar.spread([12, 2, 2])
        pulsar.switch_off()
        async with beside(pulsar, tmp_path, ACT, marks=True) as daemon:
            await read(daemon)
            for author in Author:
                assert "RivalsUnknown" in (daemon.work.hold.refusal(author) or "")
            with pytest.raises(ConflictError, match="RivalsUnknown"):
                await daemon.work.operations.cordon(pulsar.brokers[0], drain=True)
            await daemon.work.shed()
            await daemon.work.operations.step()
            await daemon.work.moves.idle()
            assert pulsar.moved == []
            await read(daemon)
            assert daemon.work.hold.refusal(Author.DRAIN) is None


async def test_marks_are_cleaned_up(tmp_path: Path) -> None:
    """Its own when it leaves, and those of the dead after an hour; nobody else's properties."""
    async with a_pulsar(3) as pulsar:
        pulsar.switch_off()
        pulsar.properties |= {PREFIX + "0123456789ab": "1", "owner": "somebody"}
        async with beside(pulsar, tmp_path, ACT, marks=True) as daemon:
            await read(daemon)
            daemon.clock.pass_s(DEAD_S)
            await read(daemon)
            assert PREFIX + "0123456789ab" not in pulsar.properties
            assert daemon.work.hold.rivals is not None
            await daemon.work.hold.rivals.leave()
        assert pulsar.properties == {"owner": "somebody"}


@pytest.mark.parametrize("mode", ["observe", "advise"])
async def test_one_that_moves_nothing_leaves_no_mark(tmp_path: Path, mode: str) -> None:
    """It writes nothing at all."""
    async with (
        a_pulsar(3) as pulsar,
        beside(pulsar, tmp_path, {"mode": mode}, marks=True) as daemon,
    ):
        await read(daemon, daemon)
        assert pulsar.properties == {}


async def test_while_marks_cannot_be_read_nothing_moves(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Once the last look is old; the log says it once, and the reason says what helps."""
    async with a_pulsar(3) as pulsar:
        pulsar.switch_off()
        async with beside(pulsar, tmp_path, ACT, marks=True) as daemon:
            await read(daemon, daemon)
            pulsar.nonsense["/properties"] = failed
            await read(daemon, daemon)
            assert daemon.work.hold.refusal(Author.CYCLE) is None
            await read(daemon)
            for author in Author:
                assert "metadataStoreUrl" in (daemon.work.hold.refusal(author) or "")
            del pulsar.nonsense["/properties"]
            await read(daemon)
            assert daemon.work.hold.refusal(Author.CYCLE) is None
    assert capsys.readouterr().out.count("another daemon on this cluster would not be noticed") == 1


@pytest.mark.parametrize("locks", [("zk:a:2181", ""), ("zk:a:2181", "zk:b:2181")])
async def test_a_lock_that_another_does_not_have_helps_nobody(
    tmp_path: Path, locks: tuple[str, str]
) -> None:
    """Neither the daemon with a lock moves anything, nor the one without, or with another."""
    async with a_pulsar(3) as pulsar:
        pulsar.spread([12, 2, 2])
        pulsar.switch_off()
        async with (
            beside(pulsar, tmp_path / "one", ACT, marks=True, lock=locks[0]) as one,
            beside(pulsar, tmp_path / "two", ACT, marks=True, lock=locks[1]) as other,
        ):
            await read(one, other, one, other)
            for daemon in (one, other):
                assert "SecondDaemon" in (daemon.work.hold.refusal(Author.CYCLE) or "")
                await daemon.work.shed()
                await daemon.work.moves.idle()
    assert pulsar.moved == []


async def test_those_that_take_turns_do_not_stop_each_other(tmp_path: Path) -> None:
    """Whoever has the lock after one that was killed moves at once, also where it may not read and
    change marks.
    """
    lock = "zk:a:2181/of"
    async with a_pulsar(3) as pulsar:
        pulsar.switch_off()
        async with beside(pulsar, tmp_path / "one", ACT, marks=True, lock=lock) as one:
            await read(one, one)
            assert one.work.hold.refusal(Author.CYCLE) is None
        (mark,) = pulsar.properties
        async with beside(pulsar, tmp_path / "two", ACT, marks=True, lock=lock) as other:
            await read(other)
            assert other.work.hold.refusal(Author.CYCLE) is None
            assert list(pulsar.properties) == [mark]
        pulsar.nonsense["/properties"] = failed
        async with beside(pulsar, tmp_path / "three", ACT, marks=True, lock=lock) as third:
            await read(third)
            assert third.work.hold.refusal(Author.CYCLE) is None


def test_an_id_is_made_once(tmp_path: Path) -> None:
    """And again, if the file is damaged."""
    first = id_in(tmp_path)
    assert id_in(tmp_path) == first
    (tmp_path / "daemon-id").write_text("../x y")
    assert id_in(tmp_path) != first
