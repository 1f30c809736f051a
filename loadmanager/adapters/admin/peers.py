"""What brokers ask of each other, over HTTP: both sides of it."""

from __future__ import annotations

import asyncio

import aiohttp
from aiohttp import web

from loadmanager.adapters.admin.answers import flag, namespace_of, whole
from loadmanager.core.bundles.ranges import BundleRange, bundle_name
from loadmanager.core.errors import OperationalError
from loadmanager.ports.control import BrokerControl, PeerControl
from loadmanager.ports.hosting import BrokerAddress

PATH = "/admin/v2/loadmanager/bundles"
ACQUIRE_TIMEOUT_S = 5.0
CONNECTIONS_MAX = 64
EPOCH_MAX = 1 << 62


class PeerRoutes:
    """Serves what peers ask."""

    def __init__(self, control: PeerControl, brokers: BrokerControl) -> None:
        self._control = control
        self._brokers = brokers

    def routes(self) -> list[web.RouteDef]:
        """All routes."""
        one = PATH + "/{tenant}/{namespace}/{bundle}"
        return [
            web.post(one + "/acquire", self.acquire),
            web.post(one + "/release", self.release),
            web.post(one + "/split", self.split),
        ]

    async def acquire(self, request: web.Request) -> web.Response:
        """POST …/acquire?epoch=: own a bundle that nobody owns."""
        await self._control.acquire_bundle(_bundle(request), epoch=_epoch(request))
        return web.Response(status=204)

    async def release(self, request: web.Request) -> web.Response:
        """POST …/release?destination=&epoch=: unload a bundle; says whether it was this broker's."""
        name = request.query.get("destination", "")
        destination = self._control.address_of(name) if name else None
        reason = request.query.get("reason", "leader")
        released = await self._control.release_bundle(_bundle(request), destination, reason, epoch=_epoch(request))
        return web.json_response({"released": released})

    async def split(self, request: web.Request) -> web.Response:
        """POST …/split?unload=&epoch=: split a bundle of this broker."""
        moved = await self._brokers.split_bundle(
            namespace_of(request),
            request.match_info["bundle"],
            algorithm=None,
            positions=(),
            unload=flag(request, "unload"),
            automatic=True,
            epoch=_epoch(request),
        )
        if moved is not None:
            raise OperationalError("the bundle has another owner by now")
        return web.Response(status=204)


def _bundle(request: web.Request) -> str:
    return bundle_name(str(namespace_of(request)), str(BundleRange.parse(request.match_info["bundle"])))


def _epoch(request: web.Request) -> int | None:
    """The term of the leader that gives the order; None for an operator's wish."""
    epoch = whole(request, "epoch", 0, minimum=0, maximum=EPOCH_MAX)
    return epoch or None


class HttpPeers:
    """Implements `ports.peers.Peers`: asks over HTTP, with one pool of connections."""

    def __init__(self, *, release_timeout_s: float) -> None:
        self._release_timeout_s = release_timeout_s
        self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=CONNECTIONS_MAX))

    async def close(self) -> None:
        """Close the connections."""
        await self._session.close()

    async def release_bundle(self, owner: BrokerAddress, bundle: str, destination: BrokerAddress | None, *, epoch: int | None) -> bool:
        """Ask the owner to unload a bundle."""
        query = {"destination": destination.broker_id} if destination else {}
        answer = await self._post(owner, f"{bundle}/release", query, epoch, self._release_timeout_s)
        return b'"released": true' in answer

    async def split_bundle(self, owner: BrokerAddress, bundle: str, *, unload: bool, epoch: int | None) -> None:
        """Ask the owner to split a bundle."""
        await self._post(owner, f"{bundle}/split", {"unload": "true" if unload else "false"}, epoch, self._release_timeout_s)

    async def acquire_bundle(self, broker: BrokerAddress, bundle: str, *, epoch: int | None) -> None:
        """Ask a broker to acquire a bundle."""
        await self._post(broker, f"{bundle}/acquire", {}, epoch, ACQUIRE_TIMEOUT_S)

    async def _post(self, broker: BrokerAddress, path: str, query: dict[str, str], epoch: int | None, timeout_s: float) -> bytes:
        query = query if epoch is None else {**query, "epoch": str(epoch)}
        try:
            async with asyncio.timeout(timeout_s), self._session.post(f"{broker.web_url}{PATH}/{path}", params=query) as answer:
                if answer.status >= 300:
                    raise OperationalError(f"{broker.broker_id} answered {answer.status}: {(await answer.text())[:300]}")
                return await answer.read()
        except (aiohttp.ClientError, OSError) as error:
            raise OperationalError(f"{broker.broker_id} cannot be reached: {error}") from None
        except TimeoutError:
            raise OperationalError(f"{broker.broker_id} did not answer within {timeout_s:g} s") from None
