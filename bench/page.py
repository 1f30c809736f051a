"""The page at /ui with a large cluster: frame times in headless Chromium while it scrolls.

    python -m bench page --brokers 1000 --bundles 100000

Serves the built page with answers of such a cluster, made up and different each time. Needs
Chromium.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from aiohttp import web

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from browser.chromium import CHROMIUM, Page, browser

from loadmanager.leader.http.page import PageRoutes

HEAT_ROWS, SAMPLES = 60, 120
FRAMES = """
new Promise((done) => {
  const times = [];
  let before = performance.now();
  const lists = ["#broker-rows", "#heat-rows"].map((each) => document.querySelector(each));
  const step = (now) => {
    times.push(now - before);
    before = now;
    for (const list of lists)
      list.scrollTop = (list.scrollTop + 170) % Math.max(1, list.scrollHeight);
    if (times.length < COUNT) requestAnimationFrame(step);
    else done(times.slice(1));
  };
  requestAnimationFrame(step);
})
"""


class Made:
    """A cluster's answers."""

    def __init__(self, brokers: int, bundles: int) -> None:
        self._rng = random.Random(1)
        self._brokers, self._bundles = brokers, bundles
        self.asked = 0

    def cluster(self) -> dict[str, Any]:
        """The answer of `/loadmanager/v1/cluster`."""
        names = [f"broker-{number}.pulsar.svc:8080" for number in range(self._brokers)]
        return {
            "at": int(time.time_ns() / 1e6),
            "leader": {"broker": names[0], "url": "", "epoch": 1, "since": 0},
            "manager": "modular",
            "shedder": "BalancedShedder",
            "placement": "BalancedPlacement",
            "balancing": True,
            "cycles": 9,
            "paused": None,
            "moves": {"waiting": 0, "running": 0},
            "bundles": self._bundles,
            "total": self._brokers,
            "brokers": [self._broker(name, name == names[0]) for name in names],
        }

    def _broker(self, name: str, leads: bool) -> dict[str, Any]:
        def part() -> float:
            return self._rng.random()

        resource = {"usage": 1, "limit": 1}
        names = ("cpu", "memory", "directMemory", "bandwidthIn", "bandwidthOut")
        return {
            "broker": name,
            "url": None,
            "leader": leads,
            "state": "active",
            "cordon": None,
            "version": "1",
            "startedAt": 0,
            "usage": part(),
            "resources": {each: {**resource, "fraction": part()} for each in names},
            "bundles": self._bundles // self._brokers,
            "topics": 50,
            "producers": 50,
            "consumers": 50,
            "rate": 1e4 * part(),
            "throughput": 1e7 * part(),
            "reportAgeMs": 900,
        }

    def heat(self) -> dict[str, Any]:
        """The answer of `/loadmanager/v1/heat`."""
        return {
            "intervalSeconds": 5,
            "times": [number * 5000 for number in range(SAMPLES)],
            "total": self._bundles,
            "kept": 200,
            "bundles": [
                {
                    "bundle": f"tenant/ns{row}/0x00000000_0x10000000",
                    "owner": "broker-1",
                    "rate": 1.0,
                    "throughput": [self._rng.randrange(10**7) for _ in range(SAMPLES)],
                    "exists": True,
                    "owners": [(0, "broker-1"), (self._rng.randrange(1, SAMPLES), "broker-2")],
                }
                for row in range(min(HEAT_ROWS, self._bundles))
            ],
        }

    def documents(self) -> dict[str, Callable[[], Any]]:
        """The answers by the last part of their paths."""
        return {
            "cluster": self.cluster,
            "heat": self.heat,
            "moves": lambda: {"paused": None, "waiting": 0, "running": 0, "moves": []},
            "decisions": lambda: {"decisions": []},
            "throttled": lambda: {"brokers": {}, "notAsked": 0, "noAnswer": {}},
            "pins": dict,
        }

    async def answer(self, request: web.Request) -> web.Response:
        """One of the answers."""
        self.asked += 1
        document = self.documents().get(request.match_info["what"])
        if document is None:
            raise web.HTTPNotFound
        return web.json_response(document())


async def _measure(brokers: int, bundles: int, frames: int) -> None:
    made = Made(brokers, bundles)
    application = web.Application()
    application.router.add_routes(PageRoutes().routes())
    application.router.add_get("/loadmanager/v1/{what}", made.answer)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    async with browser() as page:
        await page.size(1200, 800)
        await page.go(f"http://127.0.0.1:{port}/ui")
        await page.wait("document.querySelectorAll('.broker').length > 5")
        await page.wait("document.querySelector('#heat-rows canvas')")
        nodes = await page.value("document.querySelectorAll('*').length")
        asked = made.asked
        await page.command("Performance.enable", timeDomain="threadTicks")
        before = await _busy_s(page)
        times = sorted(await page.value(FRAMES.replace("COUNT", str(frames))))
        busy_ms = (await _busy_s(page) - before) * 1000 / len(times)
        print(
            f"{brokers} brokers, {bundles} bundles: {nodes} elements; {made.asked - asked} answers "
            f"during {sum(times) / 1000:.1f} s; frames median {times[len(times) // 2]:.1f} ms, "
            f"p99 {times[int(len(times) * 0.99)]:.1f} ms, longest {times[-1]:.1f} ms; the page's "
            f"thread used {busy_ms:.1f} ms of CPU a frame"
        )
    await runner.cleanup()


async def _busy_s(page: Page) -> float:
    """CPU time of the page's thread so far."""
    metrics = (await page.command("Performance.getMetrics"))["metrics"]
    return float(next(each["value"] for each in metrics if each["name"] == "TaskDuration"))


def main(argv: list[str]) -> int:
    """Measure, and print a line."""
    parser = argparse.ArgumentParser(prog="bench page")
    parser.add_argument("--brokers", type=int, default=1000)
    parser.add_argument("--bundles", type=int, default=100_000)
    parser.add_argument("--frames", type=int, default=400)
    args = parser.parse_args(argv)
    if CHROMIUM is None:
        print("no Chromium on this machine", file=sys.stderr)
        return 1
    asyncio.run(_measure(args.brokers, args.bundles, args.frames))
    return 0
