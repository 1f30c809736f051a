"""Which topics are silent, on the page: now and at a time gone by."""

from __future__ import annotations

from pathlib import Path

import pytest
from broker.admin.serving import ORDERS, serving
from broker.admin.test_archive import in_folder
from browser.chromium import CHROMIUM, browser
from browser.test_reading import when_of

from loadmanager.kit.names import TopicName
from loadmanager.kit.system.clock import SystemClock

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine"),
]
MINUTE = 60_000
FEW = 20


async def test_which_topics_are_silent(tmp_path: Path) -> None:
    """Of all brokers, the last one in the line; a list of few at first, each with a link to its
    bundle. At a time gone by only those that were silent then.
    """
    async with serving(values=in_folder(tmp_path)) as served, browser() as page:
        now = SystemClock().now_ms()
        broker = served.brokers[1]
        for number in range(FEW + 2):
            topic = TopicName("persistent", ORDERS, f"quiet-{number:02}")
            await broker.serve(topic)
            hosted = broker.parts.hosting.serving.open_topics[str(topic)]
            hosted.published_ms = now - (5 + number) * MINUTE
        await broker.measure()
        await page.size(1200, 800)
        await page.go(f"{served.url()}/ui")
        await page.wait_text(f"{FEW + 2} open topics are silent, the last one", "#silent summary")
        await page.wait_text("acme/orders/quiet-00", "#silent summary")
        await page.click("#silent summary")
        rows = "document.querySelectorAll('#silent li').length"
        await page.wait(f"{rows} === {FEW}")
        await page.wait_text(f"0 producers, 0 consumers, at {served.broker_id(1)}", "#silent li")
        await page.click("#silent .more button", "and 2 more")
        await page.wait(f"{rows} === {FEW + 2}")
        await page.click("#silent li button", "quiet-03")
        await page.wait_text("Bundle of acme/orders", "aside")

        await page.go(f"{served.url()}/ui?at={when_of(now - (5 + FEW) * MINUTE)}&last=600")
        one = "1 open topic was silent then and is still, since"
        await page.wait_text(one, "#silent summary")
        await page.click("#silent summary")
        await page.wait_text(f"quiet-{FEW + 1}", "#silent li")
        await page.wait_text("had a message since", "#silent")
        await page.go(f"{served.url()}/ui?at={when_of(now - 120 * MINUTE)}&last=600")
        await page.wait_text("was silent then and is still.", "#silent")
        assert not page.errors
        await served.servers[1].stop()
        await page.go(f"{served.url()}/ui?at={when_of(now - 121 * MINUTE)}&last=600")
        nobody = "No topic that was counted was silent then and is still."
        await page.wait_text(nobody, "#silent")
        await page.wait_text(f"{served.broker_id(1)} ", "#silent .problem")
