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
from loadmanager.engine.history.clients import ClientStep
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
