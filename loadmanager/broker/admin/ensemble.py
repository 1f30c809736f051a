"""How the servers of the metadata store are, as this broker reaches them: whoever asks may not."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from aiohttp import web

from loadmanager.broker.admin.use_cases import UseCases
from loadmanager.kit.http.answers import shown
from loadmanager.kit.http.operation import operation
from loadmanager.kit.zookeeper.ensemble import ServerShown, read
from loadmanager.kit.zookeeper.settings import ZooKeeperSettings, ZooKeeperTlsSettings

TIMEOUT_S = 3.0
"""For each of the few answers of a server: on a busy machine a TLS handshake with one takes more
than a second.
"""


class EnsembleRoutes:
    """The servers of `metadataStoreUrl`."""

    def __init__(self, use: UseCases) -> None:
        self._use = use
        self._asking = asyncio.Lock()

    def routes(self) -> list[web.RouteDef]:
        return [web.get("/loadmanager/v1/ensemble", self.ensemble)]

    @operation(list[ServerShown])
    async def ensemble(self, _request: web.Request) -> web.Response:
        """The mode and latencies of each ZooKeeper server in `metadataStoreUrl`, or why it does not
        answer.
        """
        async with self._asking:  # one after the other: a thread for each server
            return shown(await asyncio.to_thread(_read, self._use.settings()))


def _read(texts: Mapping[str, str]) -> list[ServerShown]:
    hosts = ZooKeeperSettings(url=texts["metadataStoreUrl"]).hosts
    tls = ZooKeeperTlsSettings(
        enabled=texts["loadManagerZooKeeperTlsEnabled"] == "true",
        trust=texts["loadManagerZooKeeperTlsTrustCertsFilePath"],
        certificate=texts["loadManagerZooKeeperTlsCertificateFilePath"],
        key=texts["loadManagerZooKeeperTlsKeyFilePath"],
    )
    return read(hosts, TIMEOUT_S, tls.context())
