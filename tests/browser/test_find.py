"""What the box finds: namespaces by a part of their names, moves and changes by their ids."""

from __future__ import annotations

from pathlib import Path

import pytest
from broker.admin.serving import serving
from broker.admin.test_admin_leading import FIRST, hot_broker
from broker.admin.test_archive import a_decision, in_folder, written
from browser.chromium import CHROMIUM, Page, browser

from loadmanager.kit.system.clock import SystemClock

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine"),
]
V1 = "/loadmanager/v1"


async def _looked_for(page: Page, text: str) -> None:
    await page.key("f")
    await page.command("Input.insertText", text=text)


async def _closed(page: Page) -> None:
    await page.key("Escape")
    await page.wait("!document.querySelector('dialog')")


async def test_a_namespace_whose_bundles_nobody_owns() -> None:
    """A part of its name finds it; it leads to its bundles, with the number of those that are not
    shown, and the begin of a range to fewer. A change is found by its id, and opened.
    """
    async with hot_broker() as served, browser() as page:
        await served.ask("PUT", "/admin/v2/namespaces/acme/plenty", {"bundles": {"numBundles": 64}})
        await page.size(1200, 800)
        await page.go(f"http://{served.broker_id(0)}/ui")
        await page.wait_text("acme/orders", "#heat")
        await _looked_for(page, "plen")
        await page.wait_text("acme/plenty", "#found [aria-selected=true]")
        assert await page.value("document.querySelector('#found .kind').offsetHeight") < 25
        await page.key("Enter")
        await page.wait_text("and 52 more", ".find [role=status]")
        await page.wait("document.querySelectorAll('#found li').length === 12")
        await page.command("Input.insertText", text="/0xf")
        await page.wait("document.querySelectorAll('#found li').length === 4")
        await _closed(page)

        changes = (await served.get(f"{V1}/changes"))["changes"]
        change = next(each for each in changes if "plenty" in f"{each['what']} {each['path']}")
        await _looked_for(page, change["id"])
        await page.wait_text(change["words"], "#found [aria-selected=true]")
        await page.key("Enter")
        await page.wait("document.activeElement.closest('#changes details')?.open")
        assert change["id"] in await page.value("document.activeElement.innerText")


async def test_idle_bundles_are_not_called_busy() -> None:
    """Beside a bundle of the heat stands what it carries."""
    async with hot_broker() as served, browser() as page:
        await page.size(1200, 800)
        await page.go(f"http://{served.broker_id(0)}/ui")
        await page.wait_text("acme/orders", "#heat")
        await _looked_for(page, "acme/orders/0x")
        await page.wait_text("acme/orders/0x", "#found")
        assert "busy" not in await page.text("#found")


async def test_moves_of_earlier_terms(tmp_path: Path) -> None:
    """They are found by their ids, stand among the moves, and tell what a move would cost."""
    now = SystemClock().now_ms()
    async with serving(values=in_folder(tmp_path)) as served, browser() as page:
        source, destination = served.broker_id(0), served.broker_id(1)
        moved = a_decision(
            now - 600_000,
            "move",
            bundle=FIRST,
            move="0-m4",
            source=source,
            destination=destination,
            state="done",
            clients_closed=4,
            clients_back=4,
            clients_waited_ms=16_000,
            clients_waited_mean_ms=8_000,
            pause_ms=25.0,
        )
        await written(served, 0, moved)
        await served.own(FIRST, at=0)
        await page.size(1200, 800)
        await page.go(served.url() + "/ui")
        await page.wait_text("clients waited 8.0 s typically, 16 s at most", "#moves .about")
        await page.wait_text("4 clients waited 8.0 s on the mean", "#moves .move-row")
        await _looked_for(page, "0-m4")
        await page.wait_text(f"from {source} to {destination}, done", "#found")
        await page.key("Enter")
        await page.click("aside button", "Move…")
        price = "In the last moves, clients waited 8.0 s typically, 16 s at most; bundles unserved"
        await page.wait_text(price, "dialog[open]")
        assert page.errors == []


async def test_bundles_by_the_names_that_the_page_gives_them() -> None:
    """With either dash, and with the namespace or without; no question is refused meanwhile."""
    async with hot_broker() as served, browser() as page:
        await page.size(1200, 800)
        await page.go(f"http://{served.broker_id(0)}/ui")
        await page.wait_text("acme/orders", "#heat")
        for text in ("acme/orders c0-ff", "acme/orders c0–ff", "acme/orders c"):
            await _looked_for(page, text)
            await page.wait_text("acme/orders/0xc0000000_0xffffffff", "#found")
            assert await page.text(".find [role=status]") == ""
            await _closed(page)
        for text in ("00-40", "00–40"):
            await _looked_for(page, text)
            await page.wait_text(FIRST, "#found [aria-selected=true]")
            await _closed(page)
        assert not page.errors


async def test_brokers_come_before_others() -> None:
    """Whoever writes an address or a part of it looks for a broker first."""
    async with hot_broker() as served, browser() as page:
        port = served.broker_id(0).rpartition(":")[2]
        path = f"/admin/v2/namespaces/acme/at-{port}"
        await served.ask("PUT", path, {"bundles": {"numBundles": 2}})
        await page.size(1200, 800)
        await page.go(f"http://{served.broker_id(0)}/ui")
        await page.wait_text("acme/orders", "#heat")
        await _looked_for(page, port)
        await page.wait_text(f"acme/at-{port}", "#found")
        first = await page.text("#found li")
        assert served.broker_id(0) in first
        assert "acme" not in first
