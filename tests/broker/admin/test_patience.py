"""Requests that need a store which does not answer end soon; others are not touched."""

from __future__ import annotations

import asyncio

from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from loadmanager.kit.http.middlewares import errors
from loadmanager.kit.http.patience import CHANGES_WAIT_S, LOOK_S, UNKNOWN, WAITS_S, patience


async def test_a_request_that_waits_for_a_silent_store() -> None:
    """It is told so once the store is known to be silent; of a change, that it may be done. A
    stream, and what answers by itself, go on.
    """
    await asyncio.gather(_waits_for_a_silent_store("GET"), _waits_for_a_silent_store("PUT"))


async def _waits_for_a_silent_store(method: str) -> None:
    silent: list[int | None] = [None]
    ended = list[str]()

    async def waits(request: web.Request) -> web.Response:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(request.path)
        return web.Response()

    async def streams(_request: web.Request) -> web.Response:
        await asyncio.sleep(CHANGES_WAIT_S + 3 * LOOK_S)
        return web.Response(text="all of it")

    async def at_once(_request: web.Request) -> web.Response:
        return web.Response(text="here")

    watched = patience(lambda: silent[0], frozenset({"/stream"}))
    application = web.Application(middlewares=[errors, watched])
    for path, handler in (("/waits", waits), ("/stream", streams), ("/here", at_once)):
        application.router.add_route("*", path, handler)
    async with TestClient(TestServer(application)) as client:
        loop = asyncio.get_running_loop()
        stream = asyncio.ensure_future(client.request(method, "/stream"))
        begun_s, waiting = loop.time(), asyncio.ensure_future(client.request(method, "/waits"))
        await asyncio.sleep(WAITS_S + 1.5 * LOOK_S)
        assert not waiting.done()  # nobody knows yet that the store is silent
        silent[0] = 7_400
        answer = await waiting
        least_s = WAITS_S if method == "GET" else CHANGES_WAIT_S
        assert loop.time() - begun_s >= least_s
        assert answer.status == 503
        reason = "the metadata store has not answered for 7 s"
        expected = reason if method == "GET" else reason + UNKNOWN
        assert (await answer.json())["reason"] == expected
        assert ended == ["/waits"]
        assert await (await client.request(method, "/here")).text() == "here"
        assert await (await stream).text() == "all of it"
