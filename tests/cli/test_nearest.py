"""What names that do not exist may have meant, and who asks for them."""

from __future__ import annotations

from asyncio import to_thread
from pathlib import Path

import pytest
from broker.admin.serving import serving
from broker.admin.test_archive import in_folder, written
from cli.test_admin_command import Shell

from loadmanager.cli.admin.client import AdminClient
from loadmanager.cli.admin.nearest import near_names
from loadmanager.cli.admin.times import clock
from loadmanager.engine.history.clients import ClientStep
from loadmanager.engine.history.members import MemberChange
from loadmanager.engine.history.records import OwnershipStep
from loadmanager.kit.system.clock import SystemClock

TYPO = "persistent://acme/orders/payed"


async def test_the_nearest_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of topics, namespaces and tenants, in every command; and who asks for what is missing."""
    now = SystemClock().now_ms()
    async with serving(2, values=in_folder(tmp_path)) as served:
        shell = Shell(served, capsys)
        for name in ("paid", "new"):
            topic = f"persistent://acme/orders/{name}"
            assert (await shell.run("topics", "create", topic))[0] == 0
        status, out, _ = await shell.run("topics", "lookup", TYPO)
        assert status == 0
        assert out.startswith("no such topic here: it would be served by\n")
        assert out.endswith("\n\ndid you mean persistent://acme/orders/paid?")
        admin = AdminClient(served.url(0), timeout_s=60)
        assert await to_thread(near_names, admin, "persistent://acme/orders/paid") == []
        assert (await shell.json("topics", "lookup", TYPO))["near"] == [
            "persistent://acme/orders/paid"
        ]
        refused = [
            ClientStep(
                ts=now - 5_000 + ms, broker="b0", event="refused", client=f"10.0.3.{ms}:4711",
                address=f"10.0.3.{ms}", what="producer", topic=TYPO, reason="no such topic",
                code="TopicNotFound", times=3,
            )
            for ms in range(5)
        ]  # fmt: skip
        await written(served, 1, *refused)
        asked = (
            "10.0.3.4, 10.0.3.3, 10.0.3.2 and 2 more addresses asked for it 15 times in the last "
            "hour, last at "
        )
        more = "without success: `loadmanager admin find --refused acme/orders/payed` tells more"
        for words in (("topics", "lookup"), ("bundles", "show")):
            _, out, _ = await shell.run(*words, TYPO)
            assert "did you mean persistent://acme/orders/paid?" in out
            assert asked in out
            assert more in out
        status, _, err = await shell.run("topics", "stats", TYPO)
        assert (status, "not found; did you mean persistent://acme/orders/paid? 10.0" in err) == (
            1,
            True,
        )
        for words, near in (
            (("bundles", "show", "persistent://acme/order/new"), "acme/orders"),
            (("namespaces", "bundles", "acne/orders"), "acme/orders"),
            (("tenants", "delete", "acne"), "acme"),
        ):
            status, _, err = await shell.run(*words)
            assert (status, f"; did you mean {near}?" in err) == (1, True), err
        _, out, _ = await shell.run("history", "acme/order")
        assert "nothing is recorded of acme/order\ndid you mean acme/orders?" in out


async def test_names_of_a_moment(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A typo is told from a name of which nothing is recorded then, as without --at: with the
    nearest names, of those that exist and of those that are only recorded.
    """
    now = SystemClock().now_ms()
    owned = {"before": "Opening", "after": "Owned", "reason": "lookup"}
    gone = "bygone/orders/0x00000000_0x80000000"
    step = OwnershipStep(ts=now - 1_000, broker="b0", bundle=gone, **owned)
    lost = MemberChange(ts=now - 1_000, broker="b0", of="10.0.0.7:8080", event="left", how="lost")
    at = ("--at", clock(now - 60_000))
    async with serving(2, values=in_folder(tmp_path)) as served:
        shell = Shell(served, capsys)
        topic = "persistent://acme/orders/paid"
        assert (await shell.run("topics", "create", topic))[0] == 0
        await written(served, 0, step, lost)
        half = "acme/orders/0x00000000_0x40000000"
        for words, typo, near in (
            (("topics", "stats"), TYPO, topic),
            (("topics", "lookup"), TYPO, topic),
            (("limits", "why"), TYPO, topic),
            (("bundles", "show"), "acme/orders/0x00000000_0x40000001", half),
            (("bundles", "show"), "bygone/orders/0x00000000_0x80000001", gone),
            (("bundles", "list"), "bygon/orders", "bygone/orders"),
            (("namespaces", "bundles"), "acme/order", "acme/orders"),
            (("namespaces", "list"), "bygon", "bygone"),
            (("brokers", "health"), "10.0.0.7:8081", "10.0.0.7:8080"),
            (("brokers", "report"), "10.0.0.7:8081", "10.0.0.7:8080"),
            (("limits", "list"), "10.0.0.7:8081", "10.0.0.7:8080"),
        ):
            status, _, err = await shell.run(*words, typo, *at)
            told = f" {typo} is known, now or by what is recorded; did you mean {near}"
            assert (status, told in err) == (1, True), err
            status, out, err = await shell.run(*words, near, *at)
            told = f"{near} is known, but nothing is recorded of it at {clock(now - 60_000)}"
            assert (status, told in out + err) == (1, True), (out, err)
        _, out, _ = await shell.run("history", "10.0.0.7:8081")
        assert "nothing is recorded of 10.0.0.7:8081\ndid you mean 10.0.0.7:8080" in out


async def test_a_name_of_which_nothing_is_recorded_lately_is_no_typo(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A story of a time in which nothing happened to what exists, or is recorded of before."""
    now = SystemClock().now_ms()
    owned = {"before": "Opening", "after": "Owned", "reason": "lookup"}
    gone = "bygone/orders/0x00000000_0x80000000"
    step = OwnershipStep(ts=now - 600_000, broker="b0", bundle=gone, **owned)
    async with serving(2, values=in_folder(tmp_path)) as served:
        shell = Shell(served, capsys)
        topics = [f"persistent://acme/orders/{name}" for name in ("traffic-1", "traffic-15")]
        for topic in topics:
            assert (await shell.run("topics", "create", topic))[0] == 0
        await written(served, 0, step)
        until = clock(now - 300_000)
        for name, words, said in (
            (topics[0], ("--until", until), f" until {until}"),
            (gone, ("--since", "60s"), " since "),
        ):
            _, out, _ = await shell.run("history", name, *words)
            assert f"{name} is known, but nothing is recorded of it{said}" in out
            assert "did you mean" not in out
        typo = "persistent://acme/orders/traffic-2"
        _, out, _ = await shell.run("history", typo, "--until", until)
        assert f"nothing is recorded of {typo} until {until}" in out
        assert "did you mean" in out


async def test_nothing_is_near(capsys: pytest.CaptureFixture[str]) -> None:
    """Then nothing is added."""
    async with serving(1) as served:
        shell = Shell(served, capsys)
        for words in (("topics", "list", "zzz/qqqqqq"), ("tenants", "delete", "zzzzz")):
            status, _, err = await shell.run(*words)
            assert status == 1
            assert err.rstrip().endswith(" makes it")
        _, out, _ = await shell.run("topics", "lookup", TYPO)
        assert "did you mean" not in out
