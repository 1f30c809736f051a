"""`loadmanager admin bundles show`: why one bundle stays where it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from broker.admin.serving import ORDERS, serving
from broker.admin.test_archive import archive_of, in_folder, written
from cli.test_admin_command import Shell
from cli.test_past_findings import iso
from cli.test_past_wishes import now_of
from clusters.running import eventually, until
from msgspec import structs

from loadmanager.cli.admin.bundle_show import NO_VERDICT, why_it_stays
from loadmanager.cli.admin.times import clock
from loadmanager.engine.history.records import Decision
from loadmanager.engine.strategies.plan_document import SkipShown, UnloadShown
from loadmanager.kit.system.clock import SystemClock
from loadmanager.leader.documents.decisions import DecisionShown
from loadmanager.leader.documents.moves import PinShown

FIRST, SECOND = f"{ORDERS}/0x00000000_0x40000000", f"{ORDERS}/0x40000000_0x80000000"
OWNER = "b1:8080"
THEN = "2023-11-14 22:13:20Z"


def cycle(
    *skipped: tuple[str, str], unloads: list[UnloadShown] | None = None, id_: str = "3-7"
) -> DecisionShown:
    """A cycle that left these."""
    return DecisionShown(
        id=id_,
        ts=1_700_000_000_000,
        kind="shed",
        epoch=3,
        cycle=7,
        unloads=unloads or [],
        skipped=[SkipShown(what=what, reason=reason) for what, reason in skipped],
    )


MOVING = UnloadShown(bundle=FIRST, source=OWNER, destination="b2:8080", reason="Hot", why={})


@pytest.mark.parametrize(
    ("decision", "expected"),
    [
        (cycle((FIRST, "NotWorthIt: too dear"), (OWNER, "x")), "left it: NotWorthIt: too dear"),
        (cycle((OWNER, "NotOverloaded: y")), f"took nothing from {OWNER}: NotOverloaded: y"),
        (cycle(("cluster", "SheddingDisabled")), "moved nothing; it said then: SheddingDisabled"),
        (cycle(unloads=[MOVING]), f"decided to move it: {FIRST} from {OWNER} to b2:8080: Hot"),
    ],
)
def test_the_verdict_of_the_last_cycle(decision: DecisionShown, expected: str) -> None:
    """Of the bundle, else of its broker, else of all; with the id of the decision."""
    (line,) = why_it_stays(FIRST, OWNER, None, [decision])
    assert line == f"the last cycle to judge it ({THEN}, decision 3-7) {expected}"


def test_what_is_no_verdict() -> None:
    """Placements, and cycles that name others only; records of archives have no id to undo by."""
    place = DecisionShown(id="3-1", ts=1, kind="place", epoch=3, cycle=0, bundle=FIRST)
    others = cycle((SECOND, "GracePeriod"), ("b9:8080", "NotOverloaded"))
    assert list(why_it_stays(FIRST, OWNER, None, [place, others])) == [NO_VERDICT]
    archived = cycle((FIRST, "GracePeriod: moved"), id_="3-a9")
    (line,) = why_it_stays(FIRST, OWNER, None, [others, archived])
    assert line == f"the last cycle to judge it ({THEN}) left it: GracePeriod: moved"
    (line,) = why_it_stays(SECOND, OWNER, None, [cycle(unloads=[MOVING])])
    assert line.endswith(f"took 1 bundle from {OWNER}, and not this one")
    (line,) = why_it_stays(FIRST, "b2:8080", None, [cycle(unloads=[MOVING])])  # it is there
    assert line.endswith(f"moved it: {FIRST} from {OWNER} to b2:8080: Hot")


def test_a_pin_comes_first() -> None:
    """Until when, and by whom."""
    pin = PinShown(broker=OWNER, until=1_700_000_000_000, note="migration", by="ops")
    first, _ = why_it_stays(FIRST, OWNER, pin, [])
    assert first == f"pinned to {OWNER} until {THEN} (migration; by ops)"


async def test_of_a_running_cluster(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Now, by the name of a topic, and as it was before the pin."""
    async with serving(values=in_folder(tmp_path)) as served:
        shell, owner = Shell(served, capsys), served.broker_id(1)
        await served.own(FIRST, at=1)
        skip = Decision(
            ts=SystemClock().now_ms(),
            broker=served.broker_id(0),
            epoch=1,
            cycle=4,
            strategy="X",
            action="skip",
            what=FIRST,
            code="NotWorthIt",
            reason="NotWorthIt: too dear",
        )
        await written(served, 0, skip)
        before = await now_of(SystemClock().now_ms())
        await now_of(before)
        assert (await shell.run("bundles", "pin", FIRST, "2h", "--note", "for the test"))[0] == 0
        for index in range(2):
            await archive_of(served, index).settle(60.0)
        _, out, _ = await shell.run("undo", "--since", "1h")
        assert f"    back: unpinned {FIRST} (was pinned to {owner} until " in out
        assert "/loadmanager/wishes" not in out
        status, out, err = await shell.run("bundles", "show", FIRST)
        assert (status, err) == (0, "")
        assert out.startswith(f"{FIRST} is served by {owner}")
        assert f"pinned to {owner} until " in out
        assert "left it: NotWorthIt: too dear" in out  # by a leader before, as it is recorded
        assert (await shell.json("bundles", "show", FIRST))["elsewhere"]["destination"]
        assert f"now: pinned to {owner} until " in (await shell.run("history", FIRST))[1]
        status, out, _ = await shell.run("bundles", "show", FIRST, "--at", iso(before))
        assert status == 0, out
        assert f"{FIRST} was served by {owner} at " in out
        assert "left it: NotWorthIt: too dear" in out
        assert "pinned" not in out
        dip = structs.replace(skip, what="cluster", code="TrafficDip", reason="TrafficDip: half")
        later = SystemClock().now_ms()
        await written(served, 0, structs.replace(dip, ts=later))
        _, out, _ = await shell.run("bundles", "show", FIRST, "--at", iso(later + 1_000))
        assert "moved nothing; it said then: TrafficDip: half" in out
        assert (await shell.run("bundles", "show", "acme/orders/0x00000000_0x00000001"))[0] == 1


async def test_a_new_leader_asks_the_records_since_when_a_bundle_is_served(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It has not seen it come: so far, it was `at least` as long as its term."""
    async with serving(values=in_folder(tmp_path)) as served:
        await served.own(FIRST, at=1)
        await until(lambda: served.brokers[0].use.leading.epoch == 1)
        shell = Shell(served, capsys)

        async def story() -> Any:
            try:
                return await shell.json("bundles", "show", FIRST, at=1)
            except AssertionError:  # nobody leads
                return {}

        await eventually(story, lambda it: it.get("ownedSinceExact") is True)  # it is reported
        served.brokers[0].store.expire()
        served.brokers[0].store.resume()
        await eventually(story, lambda it: it.get("ownedSinceExact") is False, within_s=20)
        await archive_of(served, 1).settle(60.0)
        events = (await served.get("/loadmanager/v1/archive/events?kind=ownership", at=1))["events"]
        (came,) = (
            it["ts"]
            for it in events
            if (it["record"]["bundle"], it["record"]["after"]) == (FIRST, "Owned")
        )
        _, out, _ = await shell.run("bundles", "show", FIRST, at=1)
        since = f"{FIRST} is served by {served.broker_id(1)}, since {clock(came)}, for "
        assert out.startswith(since), out
        assert "at least" not in out.splitlines()[0]
