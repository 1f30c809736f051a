"""Limits that end by themselves."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest
from broker.admin.serving import Served, serving
from broker.admin.test_archive import in_folder
from cli.test_admin_command import Shell
from clusters.running import eventually
from structlog.testing import capture_logs

from loadmanager.cli import main
from loadmanager.cli.admin.times import clock
from loadmanager.engine.load.wishes import LimitEnd
from loadmanager.kit.metadata import paths
from loadmanager.kit.metadata.documents import Corrupt
from loadmanager.kit.metadata.store import Change, ChangeKind
from loadmanager.kit.system.clock import SystemClock
from loadmanager.leader.wishes import OperatorWishes

ENDS = "/loadmanager/v1/limit-ends"
NAMESPACE = "/admin/v2/namespaces/acme/orders"
TOPIC = "/admin/v2/persistent/acme/orders/t"
RATE = f"{NAMESPACE}/publishRate"
POLICIES = "/admin/policies/acme/orders"
FIELD = ("publishMaxMessageRate", "standalone")


def a_rate(messages: int) -> dict[str, int]:
    """A publish limit."""
    return {"publishThrottlingRateInMsg": messages, "publishThrottlingRateInByte": -1}


async def post(served: Served, path: str, messages: int, *, at: int = 0) -> None:
    """Set a limit."""
    answer = await served.ask("POST", path, a_rate(messages), at=at)
    assert answer.status == 204, answer


async def rate(served: Served, path: str = RATE) -> int | None:
    """The limit that is set."""
    body = (await served.ask("GET", path)).body
    return body["publishThrottlingRateInMsg"] if body else None


async def over(served: Served, of: str, path: tuple[str, ...]) -> None:
    """Let the time of a limit pass, as the store has it."""
    store, place = served.brokers[0].store, paths.limit_end(of, path)
    node = await store.get(place)
    assert node is not None
    end = msgspec.json.decode(node.value, type=LimitEnd)
    await store.put(place, msgspec.json.encode(msgspec.structs.replace(end, until_ms=1)))


async def ends(served: Served, *, at: int = 0) -> list[dict[str, Any]]:
    """The limits that end."""
    shown: list[dict[str, Any]] = await served.get(ENDS, at=at)
    return shown


async def lifted(served: Served) -> None:
    """Wait until the leader has lifted what is over."""
    await eventually(lambda: ends(served), lambda shown: shown == [], 60)


async def test_a_limit_is_afterwards_as_it_was_for_good() -> None:
    """Also when it was set for a time twice; it is stored, so that whoever leads lifts it."""
    async with serving(2) as served:
        await post(served, RATE, 100)
        await post(served, f"{RATE}?forSeconds=600", 10, at=1)
        before = served.brokers[0].clock.now_ms()
        await post(served, f"{RATE}?forSeconds=1200", 5)
        for at in (0, 1):
            (end,) = await ends(served, at=at)
            assert (end["of"], end["limit"]) == ("acme/orders", "publishRate")
            assert end["then"] == a_rate(100)
            assert end["until"] >= before + 1_200_000
        assert await rate(served) == 5
        broker = served.brokers[1]
        later = OperatorWishes(broker.store, broker.clock, Corrupt())
        await later.on_change(Change(ChangeKind.RESYNC, paths.WISHES))
        assert [each.before for each in later.limit_ends.values()] == [a_rate(100)]
        await over(served, POLICIES, FIELD)
        await lifted(served)
        assert await rate(served) == 100

        # Of a topic that had no policies.
        await served.ask("PUT", TOPIC)
        await post(served, f"{TOPIC}/publishRate?forSeconds=600", 7)
        (end,) = await ends(served)
        assert (end["of"], end["limit"]) == ("persistent://acme/orders/t", "publishRate")
        assert end["then"] is None
        await over(served, "/admin/topic-policies/acme/orders/persistent/t", ("publishRate",))
        await lifted(served)
        assert await rate(served, f"{TOPIC}/publishRate") is None


async def test_the_end_of_a_limit_is_recorded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Among the changes, as the leader's own: in `audit`, and in `history` of the namespace; no
    `undo --since` takes it for an operator's.
    """
    async with serving(1, values=in_folder(tmp_path)) as served:
        shell = Shell(served, capsys)
        await post(served, f"{RATE}?forSeconds=600", 5)
        await over(served, POLICIES, FIELD)
        await lifted(served)

        async def said() -> str:
            return (await shell.run("history", "acme/orders"))[1]

        ends = "ends publishRate of acme/orders, which was set for a time"
        was = "publishThrottlingRateInMsg not set (was 5)"
        text = f"{served.broker_id(0)} by itself {ends}: {was}"
        await eventually(said, lambda out: text in out, 30)
        assert ends in (await shell.run("audit"))[1]
        at = clock(SystemClock().now_ms() + 1_000).replace(" ", "T")
        status, out, _ = await shell.run("limits", "show", "acme/orders", "--at", at)
        assert (status, out.splitlines()[0]) == (0, "acme/orders had no limits of its own")
        assert ends not in (await shell.run("undo", "--since", "1h"))[1]


async def test_whoever_sets_it_anew_decides() -> None:
    """Set or removed without a time, also to the same, it has no end; what was written to the store
    directly stays, too.
    """
    async with serving(1) as served:
        for again in (10, 11):
            await post(served, f"{RATE}?forSeconds=600", 10)
            assert len(await ends(served)) == 1
            await post(served, RATE, again)
            assert await ends(served) == []
            assert await rate(served) == again
        await post(served, f"{RATE}?forSeconds=600", 10)
        assert (await served.ask("DELETE", RATE)).status == 204
        assert await ends(served) == []

        await post(served, f"{RATE}?forSeconds=600", 10)
        store = served.brokers[0].store
        node = await store.get(POLICIES)
        assert node is not None
        document = msgspec.json.decode(node.value)
        document[FIELD[0]][FIELD[1]] = a_rate(12)
        await store.put(POLICIES, msgspec.json.encode(document))
        await over(served, POLICIES, FIELD)
        await lifted(served)
        assert await rate(served) == 12
        for seconds in ("-1", "x", str(400 * 86_400)):
            answer = await served.ask("POST", f"{RATE}?forSeconds={seconds}", a_rate(1))
            assert (answer.status, await rate(served)) == (412, 12)


async def test_at_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """Its end is said when it is set, and shown with the limits."""

    async def say(*words: str) -> tuple[int, str]:
        capsys.readouterr()
        with capture_logs():
            url = ("--url", served.url())
            status = await asyncio.to_thread(main, ["admin", "limits", *words, *url])
        return status, capsys.readouterr().out

    async with serving(1) as served:
        words = ("set", "acme/orders", "publishRate", "--messages", "10")
        status, text = await say(*words, "--for", "30m")
        assert (status, await rate(served)) == (0, 10)
        assert text.startswith("publishRate of acme/orders set; it ends at 19")
        assert text.endswith("then: not set\n")
        assert "ends at" in (await say("show", "acme/orders"))[1]
        assert "publishRate of acme/orders ends at" in (await say("list"))[1]
        _, text = await say(*words[:-1], "7", "--for", "5m")
        assert ", then: not set; it replaces publishThrottlingRateInMsg=10  " in text
        assert text.endswith(", for good\n")
        status, text = await say(*words)
        assert (status, await ends(served)) == (0, [])
        said = "publishRate of acme/orders set; it stays: the one before was to end at 19"
        assert text.startswith(said)
        status, text = await say(*words)
        assert (status, text.endswith("nothing was done\n")) == (1, True)
