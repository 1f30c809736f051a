"""Headless Chromium, driven through its DevTools protocol: no driver and no package is needed."""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import aiohttp

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
START_TIMEOUT_S = 60.0
WAIT_S = 60.0
KEYS = {
    "Enter": 13,
    "Escape": 27,
    "Tab": 9,
    "ArrowLeft": 37,
    "ArrowUp": 38,
    "ArrowRight": 39,
    "ArrowDown": 40,
}


class Page:
    """One tab; `errors` are the console's, `requests` the URLs that were asked for."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.errors: list[str] = []
        self.requests: list[str] = []
        self._socket = socket
        self._ids = count(1)
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}

    async def read(self) -> None:
        """Take what the browser says, until it ends."""
        async for message in self._socket:
            event = json.loads(message.data)
            if "id" in event:
                self._answers.pop(event["id"]).set_result(event)
            else:
                self._on_event(event["method"], event["params"])

    def _on_event(self, method: str, params: dict[str, Any]) -> None:
        if method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(params["exceptionDetails"])[:2000])
        elif method == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.errors.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "assert"):
            self.errors.append(json.dumps(params["args"])[:2000])

    async def command(self, method: str, **params: Any) -> dict[str, Any]:
        """One command of the protocol; its result."""
        number = next(self._ids)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": number, "method": method, "params": params})
        result = await asyncio.wait_for(answer, WAIT_S)
        assert "error" not in result, (method, result)
        return dict(result["result"])

    async def begin(self) -> None:
        """Have the browser tell what happens."""
        for domain in ("Page", "Runtime", "Network", "Log"):
            await self.command(f"{domain}.enable")

    async def go(self, url: str) -> None:
        """Open a page."""
        await self.command("Page.navigate", url=url)

    async def size(self, width: int, height: int, *, dark: bool = False) -> None:
        """The size of the window, and the colours that the visitor prefers."""
        await self.command(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.command("Emulation.setEmulatedMedia", features=[scheme])

    async def value(self, expression: str) -> Any:
        """The value of a JavaScript expression; a promise is awaited."""
        result = await self.command(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in result, (expression, result)
        return result["result"].get("value")

    async def text(self, selector: str = "body") -> str:
        """The visible text of an element; empty without one."""
        return str(await self.value(f"document.querySelector({selector!r})?.innerText ?? ''"))

    async def wait(self, expression: str, timeout_s: float = WAIT_S) -> Any:
        """Wait until an expression is true; its value."""
        until_s = time.monotonic() + timeout_s
        plain = f"((found) => (found instanceof Element ? true : found))({expression})"
        while not (value := await self.value(plain)):
            assert time.monotonic() < until_s, f"never: {expression}\n{await self.text()}"
            await asyncio.sleep(0.1)
        return value

    async def wait_text(self, text: str, selector: str = "body", timeout_s: float = WAIT_S) -> None:
        """Wait until an element shows a text."""
        found = f"(document.querySelector({selector!r})?.innerText ?? '').includes({text!r})"
        await self.wait(found, timeout_s)

    async def click(self, selector: str, text: str = "") -> None:
        """Click the first visible element of a selector that contains a text, with the mouse; again
        where it moved away under the mouse, as whatever came above it makes it do.
        """
        until_s = time.monotonic() + WAIT_S
        await self._click_once(selector, text)
        while await self.value("window.clicked") is False:
            assert time.monotonic() < until_s, f"no click reaches {selector} {text}"
            await self._click_once(selector, text)

    async def _click_once(self, selector: str, text: str) -> None:
        box = await self.wait(
            f"""(() => {{
              const found = [...document.querySelectorAll({selector!r})]
                .find((each) => each.innerText.includes({text!r}) && each.checkVisibility());
              if (!found) return null;
              found.scrollIntoView({{block: "center"}});
              window.clicked = false;
              const seen = () => {{ window.clicked = true; }};
              found.addEventListener("click", seen, {{once: true, capture: true}});
              const box = found.getBoundingClientRect();
              return [box.x + box.width / 2, box.y + box.height / 2];
            }})()"""
        )
        for kind in ("mousePressed", "mouseReleased"):
            await self.command(
                "Input.dispatchMouseEvent",
                type=kind,
                x=box[0],
                y=box[1],
                button="left",
                clickCount=1,
            )

    async def key(self, key: str) -> None:
        """Press a key."""
        code = KEYS.get(key, ord(key[0].upper()))
        text = "\r" if key == "Enter" else key if len(key) == 1 else ""
        common = {"key": key, "windowsVirtualKeyCode": code}
        kind = "keyDown" if text else "rawKeyDown"
        await self.command("Input.dispatchKeyEvent", type=kind, text=text, **common)
        await self.command("Input.dispatchKeyEvent", type="keyUp", **common)

    async def shot(self) -> bytes:
        """A picture of the window, PNG."""
        result = await self.command("Page.captureScreenshot", format="png")
        return base64.b64decode(result["data"])


@asynccontextmanager
async def browser() -> AsyncIterator[Page]:
    """A browser with one tab."""
    assert CHROMIUM is not None
    with tempfile.TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True) as profile:
        process = _start(profile)
        try:
            port = await _port(Path(profile, "DevToolsActivePort"))
            async with aiohttp.ClientSession() as session:
                async with session.get(f"http://127.0.0.1:{port}/json/list") as answer:
                    tabs = await answer.json()
                url = next(tab["webSocketDebuggerUrl"] for tab in tabs if tab["type"] == "page")
                async with session.ws_connect(url, max_msg_size=0) as socket:
                    page = Page(socket)
                    reading = asyncio.create_task(page.read())
                    await page.begin()
                    try:
                        yield page
                    finally:
                        reading.cancel()
        finally:
            process.kill()
            process.wait()


def _start(profile: str) -> subprocess.Popen[bytes]:
    command = [str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu"]
    command += ["--disable-dev-shm-usage", "--disable-background-networking", "--no-first-run"]
    command += ["--disable-component-update", "--no-proxy-server", "--remote-debugging-port=0"]
    command += [f"--user-data-dir={profile}", "about:blank"]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


async def _port(path: Path) -> int:
    until_s = time.monotonic() + START_TIMEOUT_S
    while not (text := _text(path)).count("\n"):
        assert time.monotonic() < until_s, "Chromium did not start"
        await asyncio.sleep(0.05)
    return int(text.splitlines()[0])


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""
