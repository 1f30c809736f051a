"""How the page shares its room: what is cut, and what tells so; on made-up clusters."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from browser.chromium import CHROMIUM, Page, browser
from browser.test_page import made

from bench.page import Made

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine"),
]
NAMES = [f"127.0.0.1:{port}" for port in (38080, 38081, 38082)]
SCREENS = ((1920, 1080), (1440, 900), (1200, 800))


class Busy(Made):
    """Three brokers of one host, two of them lost on demand, with something in each list."""

    lost = 0
    bundles = 70
    moves = 1
    more: dict[str, Any]  # of the cluster

    def __init__(self, **more: Any) -> None:
        super().__init__(3, more.get("bundles", 60))
        self.more = more

    def cluster(self) -> dict[str, Any]:
        told = super().cluster()
        for broker, name in zip(told["brokers"], NAMES, strict=True):
            broker["broker"] = name
        told["brokers"] = told["brokers"][: 3 - self.lost]
        at = told["at"] - 700_000
        told["absent"] = [
            {"broker": name, "how": "lost", "leftAt": at, "backAt": None, "bundles": 1, "placed": 1}
            for name in NAMES[3 - self.lost :]
        ]
        return {**told, **self.more}

    def documents(self) -> dict[str, Callable[[], Any]]:
        return {
            **super().documents(),
            "moves": self._moves,
            "decisions": self._decisions,
            "throttled": self._throttled,
            "changes": self._changes,
            "bundles": self._bundles_of_one,
        }

    def _moves(self) -> dict[str, Any]:
        now = int(time.time_ns() / 1e6)
        waited = {"clientsClosed": 4, "clientsWaitedMeanMs": 8_000, "clientsWaitedMs": 16_000}
        moves = [
            {
                "id": f"1-m{number}",
                "bundle": "tenant/ns/0x00000000_0x10000000",
                "source": NAMES[0],
                "destination": NAMES[1],
                "reason": "Operator",
                "why": {},
                "author": "operator",
                "state": "done",
                "createdAt": now,
                "endedAt": now,
                "outcome": {"text": "", "pauseMs": 25, "clientsBack": back, **waited},
            }
            for number, back in [(1, 3), *((2 + index, 4) for index in range(self.moves))]
        ]
        return {"paused": None, "waiting": 0, "running": 0, "moves": moves}

    def _decisions(self) -> dict[str, Any]:
        text = "GracePeriod: it was moved lately, and may move from 2026-01-02T09:30:23Z on"
        skip = {"what": "tenant/ns/0x00000000_0x10000000", "code": "GracePeriod", "reason": text}
        now = int(time.time_ns() / 1e6)
        return {
            "decisions": [
                {
                    "id": f"1-{number}",
                    "kind": "shed",
                    "ts": now - 1_000 * number,
                    "epoch": 1,
                    "cycle": number,
                    "strategy": "BalancedShedder",
                    "unloads": [],
                    "unloadsCount": 0,
                    "skipped": [skip],
                }
                for number in range(30)
            ]
        }

    def _throttled(self) -> dict[str, Any]:
        def limit(number: int) -> dict[str, Any]:
            return {
                "name": f"publish rate of tenant/ns{number}",
                "configuredMessagesPerS": 100,
                "configuredBytesPerS": -1,
                "deliveredMessagesPerS": 100,
                "deliveredBytesPerS": 1,
                "waiters": [],
                "waitersTotal": 1,
            }

        limits = [limit(number) for number in range(20)]
        of_one = {"causes": {}, "connections": [], "limits": limits}
        return {"brokers": {NAMES[0]: of_one}, "notAsked": 0, "noAnswer": {}}

    def _changes(self) -> dict[str, Any]:
        now = int(time.time_ns() / 1e6)
        change = {"broker": NAMES[0], "role": "deploy", "address": "c", "over": "http"}
        words = "set the limits of a namespace"
        changes = [
            {**change, "ts": now, "what": f"PUT {number}", "words": words} for number in range(40)
        ]
        return {"changes": changes, "noAnswer": {}, "notAsked": 0}

    def _bundles_of_one(self) -> dict[str, Any]:
        names = [f"tenant/ns/0x{number:08x}_0x{number + 1:08x}" for number in range(self.bundles)]
        shown = {"owner": NAMES[0], "rate": 1.0, "throughput": 1.0}
        limit = 50 if self.asked_for_few else self.bundles
        return {
            "total": self.bundles,
            "bundles": [{"bundle": name, **shown} for name in names[:limit]],
        }

    asked_for_few = True

    async def answer(self, request: Any) -> Any:
        self.asked_for_few = request.query.get("limit") == "50"
        return await super().answer(request)


async def _opened(page: Page, url: str, width: int, height: int) -> None:
    await page.size(width, height)
    await page.go("about:blank")
    await page.go(f"{url}/ui")
    await page.wait("document.querySelectorAll('.broker').length === 3")
    await page.wait("document.querySelectorAll('#changes .entries li').length === 40")


async def _heights(page: Page, selector: str) -> tuple[int, int]:
    """How high a list is, and how high it would like to be."""
    found = await page.value(
        f"(({{clientHeight, scrollHeight}}) => [clientHeight, scrollHeight])"
        f"(document.querySelector({selector!r}))"
    )
    return found[0], found[1]


async def test_cards_share_the_room() -> None:
    """Few brokers and moves are all seen; long lists have what is left, in like parts, down to the
    end of the window, and a shadow tells that there is more.
    """
    async with made(Busy()) as url, browser() as page:
        for width, height in SCREENS:
            await _opened(page, url, width, height)
            lists = {"#broker-rows", "#moves .scroll"} if height > 800 else {"#broker-rows"}
            for whole in lists:
                seen, wanted = await _heights(page, whole)
                assert seen == wanted, (width, whole)
            for part in ("decisions", "throttled", "changes"):
                seen, wanted = await _heights(page, f"#{part} .scroll")
                assert wanted > seen > 90, (width, part, seen)
                shadow = f"getComputedStyle(document.querySelector('#{part} .scroll'))"
                assert "gradient" in await page.value(f"{shadow}.backgroundImage")
            assert (await _heights(page, "#moves .scroll"))[0] > 60, width
            assert await page.value("document.documentElement.scrollHeight <= innerHeight")
            ends = await page.value(
                "[...document.querySelectorAll('.column')].map((it) => Math.round("
                "innerHeight - it.lastElementChild.getBoundingClientRect().bottom))"
            )
            assert all(10 <= end <= 16 for end in ends), (width, ends)


async def test_cards_of_a_daemon_share_the_room() -> None:
    """There is no heat, and the moves leave room to the changes."""
    busy = Busy(fleet="east")
    busy.moves = 60
    async with made(busy) as url, browser() as page:
        await _opened(page, url, 1440, 900)
        await page.wait("document.querySelectorAll('.move-row').length === 61")
        for part in ("decisions", "moves", "changes"):
            seen, wanted = await _heights(page, f"#{part} .scroll")
            assert wanted > seen > 90, (part, seen)
        assert await page.value("document.documentElement.scrollHeight <= innerHeight")


async def test_headings_and_names_on_a_phone() -> None:
    """A heading is broken between words, and rows of the heat have their namespace."""
    async with made(Busy(bundles=9_999)) as url, browser() as page:
        await _opened(page, url, 400, 850)
        await page.wait_text("hottest of", "#heat .about")
        height = "document.querySelector('#heat .about').offsetHeight"
        assert await page.value(height) < 30
        assert await page.value("document.documentElement.scrollWidth <= innerWidth")
        small = "[...document.querySelectorAll('.heat-row small')].slice(0, 5)"
        assert await page.value(f"{small}.every((it) => it.checkVisibility() && it.offsetWidth)")


async def test_names_are_not_cut_where_they_differ() -> None:
    """Also those of lost brokers, with what is said of them beside."""
    cut = "[...document.querySelectorAll('.broker b')].map((it) => it.scrollWidth > it.clientWidth)"
    busy = Busy()
    async with made(busy) as url, browser() as page:
        for lost in (0, 2):
            busy.lost = lost
            await _opened(page, url, 1200, 800)
            assert not any(await page.value(cut))
            assert await page.value("document.querySelectorAll('.chip.gone').length") == lost
        await page.value("document.querySelector('.broker .name').style.width = '90px'")
        assert (await page.value(cut))[0]
        style = "getComputedStyle(document.querySelector('.broker b')).direction"
        assert await page.value(style) == "rtl"  # its begin is cut: the ports stay


async def test_all_bundles_of_a_broker_can_be_shown() -> None:
    """What is beyond the first fifty is a click away."""
    async with made(Busy()) as url, browser() as page:
        await page.go(f"{url}/ui#broker={NAMES[0]}")
        await page.click("aside .more button", "and 20 more")
        await page.wait("document.querySelectorAll('aside .owned').length === 70")
        assert not await page.value("!!document.querySelector('aside .more')")


async def test_times_have_one_zone() -> None:
    """The page's, which stands beside the clock; also those within reasons, which brokers tell in
    UTC. A title has all of it.
    """
    async with made(Busy()) as url, browser() as page:
        await page.command("Emulation.setTimezoneOverride", timezoneId="America/New_York")
        await _opened(page, url, 1200, 800)
        assert (await page.text(".live")).endswith("GMT-5") or "GMT-4" in await page.text(".live")
        titles = await page.value("[...document.querySelectorAll('time')].map((it) => it.title)")
        assert titles
        assert all("GMT-" in title and title.endswith("UTC)") for title in titles)
        await page.wait_text("2 Jan, 04:30:23", "#decisions")
        within = "[...document.querySelectorAll('#decisions p time')].map((it) => it.title)[0]"
        assert "Fri, 2 Jan 2026, 04:30:23 GMT-5 (09:30:23 UTC)" in await page.value(within)
        assert "Z" not in await page.text("#decisions")


async def test_what_clients_waited_leads() -> None:
    """The heading of the moves says it before what the bundles were unserved; those whose clients
    are not all back can be chosen.
    """
    async with made(Busy()) as url, browser() as page:
        await _opened(page, url, 1440, 900)
        price = "clients waited 8.0 s typically, 16 s at most · bundles unserved for 25 ms"
        await page.wait_text(price, "#moves .about")
        rows = "document.querySelectorAll('.move-row').length"
        assert await page.value(rows) == 2
        assert "clients not back (1)" in await page.value(
            "document.querySelector('#moves select').textContent"
        )
        await page.value("document.querySelector('#moves select').focus()")
        await page.key("ArrowDown")
        await page.wait(f"{rows} === 1")
        await page.wait_text("only 3 of 4 clients back", "#moves")


async def test_regions_have_names_of_their_own() -> None:
    """For those who go from one to the next, as with a screen reader."""
    async with made(Busy()) as url, browser() as page:
        await _opened(page, url, 1440, 900)
        tree = (await page.command("Accessibility.getFullAXTree"))["nodes"]
        names = [node["name"]["value"] for node in tree if node["role"]["value"] == "region"]
        assert len(names) >= 6
        assert len(names) == len(set(names)), names
