"""Posts notices to the addresses that operators configured: a chat, a pager, anything else."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import aiohttp
import msgspec

from loadmanager.kit.clock import Clock
from loadmanager.kit.errors import ConfigError
from loadmanager.kit.logger import get_logger
from loadmanager.kit.tasks import Scope, sleep
from loadmanager.kit.telemetry import Sample, counter
from loadmanager.kit.text import moment
from loadmanager.steer.settings import FleetSettings

WAITING_MAX = 100
"""Notices that wait; further ones are dropped, and counted."""
TIMEOUT_S = 10.0
AGAIN_S = (1.0, 5.0, 30.0)
TEXT_MAX = 2_000
PLACES = ("{cluster}", "{kind}", "{text}", "{at}", "{time}")
PLACE = re.compile("{(cluster|kind|text|at|time)}")

NOTICES = counter(
    "loadmanager_fleet_notices", "Notices to webhooks that were delivered, or lost", "outcome"
)

log = get_logger("webhooks")


def body(template: str, *, cluster: str, kind: str, text: str, at_ms: int) -> bytes:
    """The JSON that is posted: the template with its places filled in, or, without one, an object
    with `cluster`, `kind`, `text`, `at` (ms since the epoch) and `time` (ISO 8601, UTC).
    """
    values = {
        "cluster": cluster,
        "kind": kind,
        "text": text[:TEXT_MAX],
        "at": at_ms,
        "time": moment(at_ms),
    }
    if not template:
        return msgspec.json.encode(values)
    inner = {name: msgspec.json.encode(str(value)).decode()[1:-1] for name, value in values.items()}
    return PLACE.sub(lambda place: inner[place[1]], template).encode()


def check(urls: tuple[str, ...], template: str) -> None:
    """Raise `ConfigError` for addresses and templates that cannot be used."""
    for url in urls:
        try:
            parts = urlsplit(url)
            is_url = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        except ValueError:
            is_url = False
        if not is_url:
            raise ConfigError("webhookUrls: URLs such as https://chat.example/hook are expected")
    try:
        msgspec.json.decode(body(template, cluster="c", kind="k", text='"', at_ms=1))
    except msgspec.DecodeError as error:
        text = f"webhookTemplate: JSON with the places {', '.join(PLACES)} is expected: {error}"
        raise ConfigError(text) from None


@dataclass(slots=True, kw_only=True)
class Webhooks:
    """The notices of one cluster, on their way."""

    cluster: str
    urls: tuple[str, ...]
    template: str
    clock: Clock
    again_s: tuple[float, ...] = AGAIN_S
    posted: int = 0
    failed: int = 0
    """Notices that were dropped, or given up."""
    _waiting: dict[str, asyncio.Queue[bytes]] = field(init=False)
    """Address → its notices. One that answers late, or not at all, delays no other."""

    def __post_init__(self) -> None:
        """Nothing waits yet."""
        self._waiting = {url: asyncio.Queue(WAITING_MAX) for url in self.urls}

    def tell(self, kind: str, text: str) -> None:
        """Have a notice posted to all addresses; returns at once."""
        made = body(
            self.template,
            cluster=self.cluster,
            kind=kind,
            text=text,
            at_ms=self.clock.now_ms(),
        )
        for waiting in self._waiting.values():
            try:
                waiting.put_nowait(made)
            except asyncio.QueueFull:
                self.failed += 1
                log.warning("a notice is dropped: too many wait", cluster=self.cluster, kind=kind)

    def samples(self) -> Iterator[Sample]:
        """How many were delivered."""
        yield NOTICES.sample(self.posted, "delivered")
        yield NOTICES.sample(self.failed, "lost")

    async def run(self) -> None:
        """Post, for ever."""
        timeout = aiohttp.ClientTimeout(TIMEOUT_S)
        async with aiohttp.ClientSession(timeout=timeout) as session, Scope("webhooks") as scope:
            for url, waiting in self._waiting.items():
                scope.spawn(self._deliver(session, url, waiting), "address")

    async def _deliver(
        self, session: aiohttp.ClientSession, url: str, waiting: asyncio.Queue[bytes]
    ) -> None:
        """Post to one address, for ever."""
        while True:
            made = await waiting.get()
            problem = await self._post(session, url, made)
            for wait_s in self.again_s:
                if not problem:
                    break
                await sleep(wait_s)
                problem = await self._post(session, url, made)
            if problem:
                self.failed += 1
                host = urlsplit(url).hostname  # the path may hold a secret
                log.warning("a notice was not delivered", to=host, why=problem)
            else:
                self.posted += 1

    async def _post(self, session: aiohttp.ClientSession, url: str, made: bytes) -> str:
        """Why it was not taken; empty if it was."""
        headers = {"Content-Type": "application/json"}
        try:
            async with session.post(
                url, data=made, headers=headers, allow_redirects=False
            ) as answer:
                return "" if answer.status < 300 else f"status {answer.status}"
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            return type(error).__name__


def begin(cluster: str, fleet: FleetSettings, clock: Clock, scope: Scope) -> Webhooks | None:
    """What posts the notices of a cluster, already at work; None: nobody wants them."""
    if not fleet.webhook_urls:
        return None
    hooks = Webhooks(
        cluster=cluster, urls=fleet.webhook_urls, template=fleet.webhook_template, clock=clock
    )
    scope.spawn(hooks.run(), "webhooks")
    return hooks
