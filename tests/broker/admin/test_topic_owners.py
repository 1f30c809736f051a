"""Requests about partitioned topics, which are repeated at the owners of the partitions."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestServer, make_mocked_request

from loadmanager.broker.admin.calls import Calls
from loadmanager.broker.admin.topic_owners import ASKED_AT_ONCE, TopicOwners
from loadmanager.kit.addresses import BrokerAddress
from loadmanager.kit.names import TopicName

TOPIC = TopicName.parse("persistent://public/default/many")


async def test_all_requests_together_ask_for_a_few_partitions_at_a_time() -> None:
    """Several requests about topics with many partitions leave room for others, and are answered
    in full.
    """
    under_way = most = 0

    async def slow(_request: web.Request) -> web.Response:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0)
        under_way -= 1
        return web.json_response({})

    app = web.Application()
    app.router.add_get("/{rest:.*}", slow)
    async with TestServer(app) as server:
        broker = BrokerAddress("b", "", str(server.make_url("")).rstrip("/"))
        found = SimpleNamespace(broker=broker, authoritative=False)

        async def lookup(_topic: TopicName) -> Any:
            return found

        use = SimpleNamespace(directory=SimpleNamespace(lookup=lookup))
        calls = Calls()
        owners = TopicOwners(use, calls)  # type: ignore[arg-type]
        path = "/admin/v2/persistent/public/default/many/stats"
        topics = [TOPIC.partition_name(index) for index in range(50)]
        answers = await asyncio.gather(
            *(owners.ask_each(make_mocked_request("GET", path), topics) for _ in range(4))
        )
        await calls.close()
    assert [[status for status, _ in some] for some in answers] == [[200] * 50] * 4
    assert most <= ASKED_AT_ONCE
