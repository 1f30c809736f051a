"""The note that says what was done lately: before each order, over restarts, and when it fails."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from steer.fake_pulsar import NAMESPACE, RANGES, a_pulsar, failed
from steer.test_holds import minutes_later, one_of_several
from steer.test_orders import ended, ordered
from steer.watched import ACT, Clock, Watching, beside, traffic_falls, watching

from loadmanager.engine.moves.move import Author
from loadmanager.kit.errors import BadInputError, LoadManagerError, OperationalError
from loadmanager.steer.daemon_note import Unwritten
from loadmanager.steer.files.note import FileNote
from loadmanager.steer.ports.note import NOTE_BYTES_MAX

ONE_A_MINUTE = {**ACT, "loadManagerMovesPerMinuteMax": "1"}
ONE_AN_HOUR = {**ACT, "movesPerHourMax": "1"}
OWN = "loadBalancerSheddingEnabled"
NOW_MS = Clock().now_ms()


class ANote:
    """A note that fails as it is told."""

    def __init__(self, value: bytes | None = None) -> None:
        self.value = value
        self.problem: LoadManagerError | None = None
        """Why it cannot be written."""
        self.unreadable: LoadManagerError | None = None
        self.gates: list[asyncio.Event] = []
        """The next writes wait for these."""
        self.hangs = asyncio.Event()
        self.name = "a note"

    async def read(self) -> bytes | None:
        """See the port."""
        if self.unreadable is not None:
            raise self.unreadable
        return self.value

    async def write(self, value: bytes) -> None:
        """See the port."""
        problem = self.problem
        if self.gates:
            self.hangs.set()
            await self.gates.pop(0).wait()
        if problem is not None:
            raise problem
        self.value = value

    def moves(self) -> int:
        """The number of moves of the last hour."""
        return len(json.loads(self.value or b"{}").get("moves", []))


def with_note(daemon: Watching, note: ANote) -> ANote:
    """The daemon's note is this one."""
    daemon.work.note.note = note
    return note


@pytest.mark.parametrize("problem", [OperationalError("the disk is full"), BadInputError("large")])
async def test_no_cycle_moves_what_cannot_be_kept(
    tmp_path: Path, problem: LoadManagerError
) -> None:
    """However often the daemon starts; the budget is not used up. An operator may move."""
    async with a_pulsar(3) as pulsar:
        pulsar.spread([12, 2, 2])
        pulsar.switch_off()
        for epoch in (1, 2):
            async with beside(pulsar, tmp_path, ONE_AN_HOUR, epoch=epoch) as daemon:
                note = with_note(daemon, ANote())
                note.problem = problem
                await daemon.cycle()
                assert ordered(daemon) == 0
                assert ended(daemon)[0][1].startswith("not sent: NotKept: ")
                assert str(problem) in str(daemon.work.hold.shown_reason())
                assert daemon.work.hold.stopped() is None
                assert daemon.work.hold.budget.moves() == []
        bundle = pulsar.owned(pulsar.brokers[0])[0]
        moved = await daemon_move(pulsar, tmp_path, bundle, problem)
        assert moved.state.value == "done"


async def daemon_move(
    pulsar: Any, folder: Path, bundle: str, problem: LoadManagerError
) -> dict[str, Any]:
    """An operator's move by a daemon whose note cannot be written."""
    async with beside(pulsar, folder, ONE_AN_HOUR, epoch=3) as daemon:
        with_note(daemon, ANote()).problem = problem
        await daemon.work.read()
        return await daemon.work.operations.move(bundle, pulsar.brokers[1])


async def test_an_order_waits_until_its_move_is_kept(tmp_path: Path) -> None:
    """The note has it when Pulsar gets it. A note that does not answer keeps the order back."""
    async with watching(tmp_path, settings=ONE_AN_HOUR) as daemon:
        pulsar, work = daemon.pulsar, daemon.work
        note, noted = with_note(daemon, ANote()), []

        async def on_unload(_destination: str, done: bool) -> None:
            if not done:
                noted.append(note.moves())

        pulsar.on_unload = on_unload
        pulsar.switch_off()
        await work.read()
        gate = asyncio.Event()
        note.gates = [gate]
        await work.shed()
        await note.hangs.wait()
        work.note.timeout_s = 0.0
        with pytest.raises(OperationalError, match="no answer within 0 s"):
            await work.note.write()
        assert noted == []
        gate.set()
        await work.moves.idle()
        assert noted == [1]


async def test_an_older_write_never_comes_last(tmp_path: Path) -> None:
    """It hangs and fails while a newer one waits: the newer one is written, and moves go on."""
    async with watching(tmp_path, settings=ACT) as daemon:
        acting, writer = daemon.work.acting, daemon.work.note
        daemon.pulsar.switch_off()
        note, gate = with_note(daemon, ANote()), asyncio.Event()
        await daemon.work.read()
        note.gates, note.problem = [gate], OperationalError("the disk is full")
        daemon.work.hold.budget.began("a:1", "b:1", NOW_MS)
        acting.write_note()
        await note.hangs.wait()
        note.problem = None
        daemon.work.hold.budget.began("a:1", "b:1", NOW_MS)
        acting.write_note()
        newer = asyncio.create_task(writer.write())
        gate.set()
        await newer
        assert note.moves() == 2
        assert daemon.work.note.problem is None


async def test_what_cannot_be_kept_is_tried_again(tmp_path: Path) -> None:
    """No cycle moves anything meanwhile. What an operator approves does not wait for it."""
    async with watching(tmp_path, settings=ONE_A_MINUTE) as daemon:
        note = with_note(daemon, ANote())
        await one_of_several(daemon)
        await daemon.work.note.write()
        note.problem = OperationalError("the disk is full")
        assert await minutes_later(daemon) == 1
        assert "the disk is full" in str(daemon.work.hold.shown_reason())
        assert daemon.work.hold.refusal(Author.PLAN) is None
        note.problem = None
        await daemon.work.read()
        assert daemon.work.hold.shown_reason() is None
        assert b"127.0.0.1" in (note.value or b"")
        assert await minutes_later(daemon) > 1


async def test_a_move_whose_order_was_not_sent_costs_no_budget(tmp_path: Path) -> None:
    """Nor is anything expected of it. The note says so, too."""
    async with watching(tmp_path, settings=ONE_AN_HOUR) as daemon:
        note = with_note(daemon, ANote())
        daemon.pulsar.switch_off()
        await daemon.work.read()
        daemon.pulsar.settings[OWN] = "true"
        await daemon.work.shed()
        await daemon.work.moves.idle()
        assert ended(daemon)[0][1].startswith("not sent: PulsarBalances")
        await daemon.work.note.write()
        assert note.moves() == 0
        daemon.pulsar.switch_off()
        await traffic_falls(daemon)
        assert daemon.work.hold.stopped() is None
        for bundle in daemon.pulsar.rates:
            daemon.pulsar.rates[bundle] *= 4
        await daemon.cycle()
        assert len(daemon.pulsar.moved) == 1


# A note that cannot be read


@pytest.mark.parametrize("mode", ["observe", "advise", "approve", "act"])
async def test_a_note_that_cannot_be_read(tmp_path: Path, mode: str) -> None:
    """The cluster is read. In act no cycle moves anything, and nothing is written, until the note
    was read: what is in it counts then.
    """
    async with watching(tmp_path, settings={**ONE_AN_HOUR, "mode": mode}) as daemon:
        before = json.dumps({"moves": [[NOW_MS, "a:1", "b:1"]]}).encode()
        note = with_note(daemon, ANote(before))
        note.unreadable = OperationalError("it is a directory")
        daemon.pulsar.switch_off()
        for _ in range(2):
            await daemon.work.read()
            await daemon.work.shed()
            await daemon.work.moves._turn()
        assert len(daemon.work.picture.reports) == 3
        told = str(daemon.work.hold.shown_reason())
        assert ("NotRead: what was done lately is not known: it is a dir" in told) is (
            mode == "act"
        )
        assert daemon.work.note.problem is not None
        daemon.work.acting.write_note()
        with pytest.raises(OperationalError, match="NotRead"):
            await daemon.work.note.write()
        assert (note.value, ordered(daemon)) == (before, 0)
        note.unreadable = None
        await daemon.work.read()
        assert daemon.work.note.problem is None
        assert daemon.work.hold.budget.moves() == [(NOW_MS, "a:1", "b:1")]
        assert note.moves() == 1


async def test_a_note_is_recalled_once(tmp_path: Path) -> None:
    """Also while no broker answers yet: what an operator resumed stays resumed."""
    kept = json.dumps({"until_ms": NOW_MS + 600_000, "why": "it failed"}).encode()
    async with watching(tmp_path, settings=ACT) as daemon:
        note = with_note(daemon, ANote(kept))
        daemon.pulsar.nonsense["/load-report"] = failed
        await daemon.work.read()
        assert "it failed" in str(daemon.work.hold.stopped())
        note.value = kept
        assert daemon.work.acting.resume()
        await daemon.work.read()
        assert daemon.work.hold.stopped() is None


NONSENSE = [b"x", b"[" * 100_000, b'{"moves": [[1]]}', b"null"]


@pytest.mark.parametrize("kept", NONSENSE)
async def test_what_was_kept_and_makes_no_sense(tmp_path: Path, kept: bytes) -> None:
    """The breaker is open: nobody knows what was done. An operator may end that."""
    (tmp_path / "acted.json").write_bytes(kept)
    async with watching(tmp_path, settings=ACT) as daemon:
        daemon.pulsar.switch_off()
        await daemon.cycle()
        assert daemon.pulsar.moved == []
        why = str(daemon.work.hold.shown_reason())
        assert why.startswith("CircuitBreaker: ")
        assert f"{tmp_path}/acted.json makes no sense" in why
        await daemon.work.operations.pause(None)
        daemon.clock.pass_s(60)
        await daemon.cycle()
        assert daemon.pulsar.moved
    async with watching(tmp_path / "observe") as daemon:
        note = with_note(daemon, ANote(kept))
        await daemon.work.read()
        assert note.value == kept


async def test_a_note_of_nothing(tmp_path: Path) -> None:
    """The store has an empty one before the first write."""
    (tmp_path / "acted.json").write_bytes(b"")
    async with watching(tmp_path, settings=ACT) as daemon:
        daemon.pulsar.switch_off()
        await daemon.cycle()
        assert daemon.pulsar.moved


async def test_reasons_of_others_drive_no_terminal(tmp_path: Path) -> None:
    """The note is a file that others can write."""
    kept = json.dumps({"until_ms": NOW_MS + 600_000, "why": "\x1b]0;x\x07\n" + 9_999 * "y"})
    (tmp_path / "acted.json").write_text(kept)
    async with watching(tmp_path, settings=ACT) as daemon:
        await daemon.work.read()
        why = str(daemon.work.hold.stopped())
        assert why.isprintable()
        assert len(why) < 2000


# What the next daemon knows


async def test_times_of_a_clock_that_was_ahead(tmp_path: Path) -> None:
    """They are kept as those of the first start after that, so that they end, whenever the next
    starts are.
    """
    day_ms = 86_400_000
    bundle = f"{NAMESPACE}/{RANGES[0]}"
    later_ms = NOW_MS + day_ms
    note = ANote(
        json.dumps(
            {
                "moves": [[later_ms, "a:1", "b:1"]],
                "why": "it failed",
                "until_ms": later_ms,
                "bundles": {bundle: later_ms},
                "splits": {bundle: later_ms},
            }
        ).encode()
    )
    async with watching(tmp_path, settings=ONE_AN_HOUR) as daemon:
        with_note(daemon, note)
        await daemon.work.read()
        kept = json.loads(note.value or b"")
        assert kept["moves"] == [[NOW_MS, "a:1", "b:1"]]
        assert kept["until_ms"] == NOW_MS + 1_800_000
        assert kept["bundles"] == kept["splits"] == {bundle: NOW_MS}


async def test_what_one_term_could_not_write_the_next_one_knows(tmp_path: Path) -> None:
    """Beside what another daemon has kept meanwhile: the sum of both counts, and is kept."""
    unwritten, note = Unwritten(), ANote()
    one, two = f"{NAMESPACE}/{RANGES[0]}", f"{NAMESPACE}/{RANGES[1]}"
    async with watching(tmp_path, settings=ACT, unwritten=unwritten) as daemon:
        with_note(daemon, note)
        await daemon.work.read()
        note.problem = OperationalError("the store stands still")
        acting = daemon.work.acting
        daemon.work.hold.budget.began("a:1", "b:1", NOW_MS)
        daemon.work.hold.budget.began("e:1", "f:1", NOW_MS)
        acting.moves.cluster.view.know_moves({one: NOW_MS}, {"a:1": NOW_MS})
        daemon.work.hold.breaker.ended("x", "no", NOW_MS, acting.rules())
        acting._opened()
        with pytest.raises(OperationalError):
            await daemon.work.note.write()
    note.value = json.dumps(
        {
            "moves": [[NOW_MS, "a:1", "b:1"], [NOW_MS, "c:1", "d:1"]],
            "why": "another failed",
            "until_ms": NOW_MS + 60_000,
            "bundles": {one: NOW_MS - 5, two: NOW_MS},
        }
    ).encode()
    note.problem = None
    async with watching(tmp_path, settings=ACT, epoch=2, unwritten=unwritten) as daemon:
        with_note(daemon, note)
        assert "no; moves go on" in str(daemon.work.hold.stopped())
        await daemon.work.read()
        assert "no; moves go on" in str(daemon.work.hold.stopped())
        kept = json.loads(note.value)
        assert kept["moves"] == [
            [NOW_MS, "a:1", "b:1"],
            [NOW_MS, "c:1", "d:1"],
            [NOW_MS, "e:1", "f:1"],
        ]
        assert (kept["bundles"], kept["brokers"]) == ({one: NOW_MS, two: NOW_MS}, {"a:1": NOW_MS})
        assert kept["until_ms"] == NOW_MS + 1_800_000
        assert unwritten.value is None


async def test_a_note_has_a_largest_size(tmp_path: Path) -> None:
    """With names that are too long for it, fewer bundles are kept; the breaker always is."""
    async with watching(tmp_path, settings=ACT) as daemon:
        acting, work = daemon.work.acting, daemon.work
        await work.read()
        names = [f"{'x' * 1000}/{number}/0x0_0x1" for number in range(1500)]
        acting.moves.cluster.view.know_moves(dict.fromkeys(names, NOW_MS), {})
        daemon.work.hold.breaker.ended("x", "no", NOW_MS, acting.rules())
        acting._opened()
        await work.note.write()
        kept = json.loads((tmp_path / "acted.json").read_bytes())
        assert "no" in kept["why"]
        assert 0 < len(kept["bundles"]) < 1500
        with pytest.raises(OperationalError, match=f"{NOTE_BYTES_MAX + 1} bytes"):
            await FileNote(tmp_path / "acted.json").write(b"x" * (NOTE_BYTES_MAX + 1))
        assert json.loads((tmp_path / "acted.json").read_bytes()) == kept


SPLITS = {"mode": "act", "loadBalancerNamespaceBundleMaxTopics": "10"}


async def test_splits_outlive_the_daemon(tmp_path: Path) -> None:
    """Pulsar answers 204 and divides nothing: a restart does not order it again at once. The note
    has the split when Pulsar gets the order.
    """
    noted: list[bytes] = []

    async def on_split(_done: bool) -> None:
        noted.append((tmp_path / "acted.json").read_bytes())

    async with a_pulsar(3, divides=False, on_split=on_split) as pulsar:
        pulsar.spread([6, 5, 5])
        pulsar.switch_off()
        too_big = pulsar.owned(pulsar.brokers[0])[0]
        pulsar.topics_of[too_big] = 12
        for epoch, minutes, orders in ((1, 0, 1), (2, 1, 1), (3, 31, 2)):
            async with beside(pulsar, tmp_path, SPLITS, epoch=epoch) as daemon:
                daemon.clock.pass_s(60 * minutes)
                await daemon.work.read()
                await daemon.work.splitting.step()
                assert ordered(daemon) == orders
        assert json.loads(noted[0])["splits"] == {too_big: NOW_MS}


async def test_a_split_that_cannot_be_kept_is_not_made(tmp_path: Path) -> None:
    """It is ordered as soon as it can be."""
    async with watching(tmp_path, settings=SPLITS) as daemon:
        daemon.pulsar.switch_off()
        daemon.pulsar.topics_of[f"{NAMESPACE}/{RANGES[3]}"] = 12
        note = with_note(daemon, ANote())
        note.problem = OperationalError("the disk is full")
        for _ in range(2):
            await daemon.work.read()
            await daemon.work.splitting.step()
        assert ordered(daemon) == 0
        assert daemon.work.load_manager.not_split == 1
        note.problem = None
        await daemon.work.read()
        await daemon.work.splitting.step()
        assert ordered(daemon) == 1
