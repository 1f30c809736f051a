"""Where the focus is once a panel or a dialog closes: where it was."""

from __future__ import annotations

import pytest
from broker.admin.test_admin_leading import hot_broker
from browser.chromium import CHROMIUM, Page, browser

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine"),
]
FOCUS = "document.activeElement.id || document.activeElement.innerText"


async def _closed(page: Page, what: str, back_to: str) -> None:
    await page.key("Escape")
    await page.wait(f"!document.querySelector({what!r})")
    await page.wait(f"({FOCUS}) === {back_to!r}", timeout_s=10)


async def test_the_focus_returns_to_what_opened_it() -> None:
    """Of panels that a click, keys, the heat or the search opened; of a dialog over a panel, also
    when it is cancelled; of the search itself.
    """
    async with hot_broker() as served, browser() as page:
        await page.size(1200, 800)
        await page.go(f"http://{served.broker_id(0)}/ui")
        await page.wait("document.querySelectorAll('.broker').length === 2")
        await page.wait_text("acme/orders", "#heat-rows")
        await page.click("#broker-rows .name", served.broker_id(1))
        await page.wait("document.querySelector('aside')")
        await _closed(page, "aside", "broker-rows")

        await page.key("h")
        await page.key("ArrowDown")
        await page.key("Enter")
        await page.click("aside button", "Move…")
        await page.wait("document.querySelector('dialog[open]')")
        await _closed(page, "dialog", "Move…")
        await page.click("aside button", "Move…")
        await page.click("dialog button", "Cancel")
        await page.wait(f"({FOCUS}) === 'Move…'", timeout_s=10)
        await _closed(page, "aside", "heat-rows")

        await page.click(".top button", "Find…")
        await page.wait("document.querySelector('dialog[open]')")
        await _closed(page, "dialog", "Find…")
        await page.key("b")
        await page.key("f")
        await page.command("Input.insertText", text=served.broker_id(1))
        await page.wait_text(served.broker_id(1), "#found [aria-selected=true]")
        await page.key("Enter")
        await page.wait_text(served.broker_id(1), "aside h2")
        await _closed(page, "aside", "broker-rows")
        await page.key("?")
        await page.wait("document.querySelector('dialog[open]')")
        await _closed(page, "dialog", "broker-rows")


async def test_what_opened_it_may_be_gone() -> None:
    """The focus is in the same part of the page; after a link to a panel, on its first button."""
    async with hot_broker() as served, browser() as page:
        home = f"http://{served.broker_id(0)}/ui"
        await page.size(1200, 800)
        await page.go(home)
        await page.wait_text("acme/orders", "#heat-rows")  # what is below it stays where it is
        await page.wait_text("No limit held anybody", "#throttled")
        await page.click("#moves button", "Pause…")
        await page.wait("document.querySelector('dialog[open]')")
        await page.click("dialog button", "Pause")
        await page.wait_text("Resume", "#moves")
        await page.wait(f"({FOCUS}) !== document.body.innerText", timeout_s=10)
        assert await page.value("!!document.activeElement.closest('#moves')")
        await page.go("about:blank")
        await page.go(f"{home}#broker={served.broker_id(1)}")
        await page.wait_text(served.broker_id(1), "aside h2")
        await _closed(page, "aside", "Find…")
