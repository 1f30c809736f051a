"""Orders of one broker to another: the routes, and the client that calls them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar
from urllib.parse import quote

import msgspec
from aiohttp import web
from msgspec import to_builtins

from loadmanager.broker.admin.calls import Calls
from loadmanager.broker.admin.documents import ClientsBackShown, ReleasedShown
from loadmanager.broker.admin.use_cases import UseCases
from loadmanager.engine.bundles.ranges import BundleRange, bundle_name
from loadmanager.kit.addresses import BrokerAddress
from loadmanager.kit.audit import ChangeShown
from loadmanager.kit.errors import ConflictError, OperationalError
from loadmanager.kit.http.answers import TOPIC, flag, namespace_of, shown, topic_of, whole
from loadmanager.kit.http.operation import FORCE, Query, operation
from loadmanager.kit.model import ErrorReason
from loadmanager.kit.names import TopicName
from loadmanager.leader.documents.moves import Merged
from loadmanager.leader.ports.mover import RETURNED_MAX, ClientsBack, Released

PATH = "/loadmanager/v1/peers/bundles"
TOPICS = "/loadmanager/v1/peers/topics"
CHANGES = "/loadmanager/v1/peers/changes"
ACQUIRE_TIMEOUT_S = 5.0
CHANGES_TIMEOUT_S = 5.0
EPOCH_MAX = 10**16
TEXT_MAX = 300
"""Characters of a reason that are told."""
ANSWER_BYTES_MAX = 64 * 1024
"""More than an answer with the longest names has."""
BUNDLES_BYTES_MAX = 64 * 1024 * 1024
T = TypeVar("T")


EPOCH = Query(
    name="epoch",
    doc="The term of the leader that gives the order; 0: an operator's.",
    kind=int,
    minimum=0,
    maximum=EPOCH_MAX,
    default=0,
)
DESTINATION = Query(name="destination", doc="The next owner, `host:port`.")
CLOSED_MAX = 10**9
CLOSED = Query(name="closed", doc="So many clients were closed when it was moved.", kind=int)
OF_BUNDLE = Query(name="bundle", doc="Only this bundle.")
WITH = Query(name="with", doc="The range of the next bundle.")


class PeerRoutes:
    """Carries out what other brokers order."""

    def __init__(self, use: UseCases) -> None:
        self._use = use

    def routes(self) -> list[web.RouteDef]:
        bundle = PATH + "/{tenant}/{namespace}/{bundle}"
        return [
            web.get(PATH, self.served),
            web.get(bundle + "/released", self.released),
            web.get(bundle + "/clients", self.clients),
            web.post(bundle + "/acquire", self.acquire),
            web.post(bundle + "/release", self.release),
            web.post(bundle + "/split", self.split),
            web.post(bundle + "/merge", self.merge),
            web.post(f"{TOPICS}/{TOPIC}/close", self.close_topic),
        ]

    @operation(query=(EPOCH,), also={503: "another broker owns it, or it cannot be served"})
    async def acquire(self, request: web.Request) -> web.Response:
        """Acquire a bundle that has no owner; `?epoch=` is that of the leader that orders it."""
        await self._use.orders.acquire(_bundle(request), epoch=_epoch(request))
        return web.Response(status=204)

    @operation(ReleasedShown, query=(DESTINATION, EPOCH))
    async def release(self, request: web.Request) -> web.Response:
        """Unload a bundle of this broker; `?destination=`, `?epoch=`."""
        name = request.query.get("destination", "")
        destination = self._use.brokers.address(name) if name else None
        released = await self._use.orders.release(
            _bundle(request), destination, epoch=_epoch(request)
        )
        return _released_shown(released)

    @operation(ReleasedShown)
    async def released(self, request: web.Request) -> web.Response:
        """The pause and the life of this broker's last release of a bundle, once that has ended."""
        return _released_shown(self._use.orders.released(_bundle(request)))

    @operation(dict[str, int], query=(OF_BUNDLE,))
    async def served(self, request: web.Request) -> web.Response:
        """The bundles that this broker serves, each with its producers and consumers; `?bundle=`
        for one.
        """
        return web.json_response(self._use.orders.served(request.query.get("bundle") or None))

    @operation(ClientsBackShown, query=(CLOSED,))
    async def clients(self, request: web.Request) -> web.Response:
        """The clients of a bundle of this broker, and how long the first `?closed=` of them took to
        come back to it.
        """
        closed = whole(request, "closed", 0, minimum=0, maximum=CLOSED_MAX)
        back = self._use.orders.clients_back(_bundle(request), closed)
        if back is None:
            return shown(ClientsBackShown(clients=None))
        return shown(
            ClientsBackShown(
                clients=back.count,
                returned_ms=[*back.returned_ms],
                unserved=back.unserved,
                served_ms=back.served_ms,
            )
        )

    @operation(
        list[str], query=(Query(name="unload", doc="Unload the children.", kind=bool), EPOCH)
    )
    async def split(self, request: web.Request) -> web.Response:
        """Split a bundle of this broker, if that divides its topics, and name the children;
        `?unload=`, `?epoch=`.
        """
        unload, epoch = flag(request, "unload"), _epoch(request)
        children = await self._use.orders.split(
            namespace_of(request), request.match_info["bundle"], unload=unload, epoch=epoch
        )
        return web.json_response(children)

    @operation(Merged, query=(WITH, EPOCH), also={409: "they are not both owned here"})
    async def merge(self, request: web.Request) -> web.Response:
        """Merge a bundle of this broker with the next one, `?with=`; `?epoch=`."""
        namespace = namespace_of(request)
        right = bundle_name(str(namespace), str(BundleRange.parse(request.query.get("with", ""))))
        merged = await self._use.orders.merge(_bundle(request), right, epoch=_epoch(request))
        return shown(Merged(merged=merged))

    @operation(bool, query=(FORCE,), also={409: "it has clients"})
    async def close_topic(self, request: web.Request) -> web.Response:
        """Close a topic that is deleted; `?force=true` although it has clients."""
        was_open = self._use.hosting.close_topic(
            str(topic_of(request)), force=flag(request, "force")
        )
        return web.json_response(was_open)


def _released_shown(released: Released | None) -> web.Response:
    if released is None:
        return shown({"released": False})
    return shown(
        ReleasedShown(
            released=True,
            clients=released.clients,
            pause_ms=released.pause_ms,
            life=released.life,
        )
    )


def _bundle(request: web.Request) -> str:
    return bundle_name(
        str(namespace_of(request)), str(BundleRange.parse(request.match_info["bundle"]))
    )


def _epoch(request: web.Request) -> int | None:
    """The term of the leader that gives the order; None for the order of an operator."""
    epoch = whole(request, "epoch", 0, minimum=0, maximum=EPOCH_MAX)
    return epoch or None


def _decoded(broker: BrokerAddress, body: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except ValueError as error:
        raise OperationalError(f"{broker.broker_id} gave no usable answer: {error}") from None


def _release_in(broker: BrokerAddress, body: bytes) -> Released | None:
    answer = _decoded(broker, body, ReleasedShown)
    return Released(answer.clients, answer.pause_ms, answer.life) if answer.released else None


def _reason(body: bytes) -> str:
    """The reason in an error's document, or another text as it is; cut to `TEXT_MAX`."""
    try:
        text = msgspec.json.decode(body, type=ErrorReason).reason
    except ValueError:
        text = body.decode(errors="replace")
    return text[:TEXT_MAX]


class HttpPeers:
    """Implements `leader.ports.peers.Peers` over HTTP."""

    def __init__(self, calls: Calls, *, release_timeout_s: Callable[[], float]) -> None:
        self._calls, self._release_timeout_s = calls, release_timeout_s

    async def release_bundle(
        self,
        owner: BrokerAddress,
        bundle: str,
        destination: BrokerAddress | None,
        *,
        epoch: int | None,
    ) -> Released | None:
        """Ask the owner to unload a bundle."""
        query = {"destination": destination.broker_id} if destination else {}
        answer = await self._post(
            owner, f"{bundle}/release", query, epoch, self._release_timeout_s()
        )
        return _release_in(owner, answer)

    async def last_release(self, broker: BrokerAddress, bundle: str) -> Released | None:
        """Ask a broker for its last release of a bundle."""
        path = f"{PATH}/{bundle}/released"
        _, body = await self._ask(broker, path, {}, ACQUIRE_TIMEOUT_S, method="GET")
        return _release_in(broker, body)

    async def served_bundles(
        self, broker: BrokerAddress, bundle: str | None = None
    ) -> Mapping[str, int]:
        """Ask a broker which bundles it serves."""
        query = {"bundle": bundle} if bundle else {}
        _, body = await self._ask(
            broker, PATH, query, ACQUIRE_TIMEOUT_S, method="GET", bytes_max=BUNDLES_BYTES_MAX
        )
        return _decoded(broker, body, dict[str, int])

    async def clients_back(
        self, broker: BrokerAddress, bundle: str, closed: int
    ) -> ClientsBack | None:
        """Ask a broker for the clients of a bundle."""
        path, query = f"{PATH}/{bundle}/clients", {"closed": str(closed)}
        _, body = await self._ask(broker, path, query, ACQUIRE_TIMEOUT_S, method="GET")
        answer = _decoded(broker, body, ClientsBackShown)
        if answer.clients is None:
            return None
        returned_ms = tuple(answer.returned_ms[:RETURNED_MAX])
        return ClientsBack(answer.clients, returned_ms, answer.unserved, answer.served_ms)

    async def split_bundle(
        self, owner: BrokerAddress, bundle: str, *, unload: bool, epoch: int | None
    ) -> Sequence[str]:
        """Ask the owner to split a bundle."""
        answer = await self._post(
            owner,
            f"{bundle}/split",
            {"unload": "true" if unload else "false"},
            epoch,
            self._release_timeout_s(),
            bytes_max=BUNDLES_BYTES_MAX,
        )
        return _decoded(owner, answer, list[str])

    async def merge_bundles(
        self, owner: BrokerAddress, left: str, right: str, *, epoch: int | None
    ) -> str:
        """Ask the owner to merge two bundles."""
        query = {"with": right.rpartition("/")[2]}
        answer = await self._post(owner, f"{left}/merge", query, epoch, self._release_timeout_s())
        return _decoded(owner, answer, Merged).merged

    async def acquire_bundle(
        self, broker: BrokerAddress, bundle: str, *, epoch: int | None
    ) -> None:
        """Ask a broker to acquire a bundle."""
        await self._post(broker, f"{bundle}/acquire", {}, epoch, ACQUIRE_TIMEOUT_S)

    async def tell_changes(self, leader: BrokerAddress, changes: Sequence[ChangeShown]) -> None:
        """Tell the leader of changes."""
        await self._ask(leader, CHANGES, {}, CHANGES_TIMEOUT_S, document=to_builtins(changes))

    async def close_topic(self, owner: BrokerAddress, topic: str, *, force: bool) -> bool:
        """Ask the owner to close a topic."""
        name = TopicName.parse(topic)
        topic = f"{name.domain}/{name.namespace}/{quote(name.local, safe='')}"
        path = f"{TOPICS}/{topic}/close"
        query = {"force": "true" if force else "false"}
        try:
            status, body = await self._ask(owner, path, query, self._release_timeout_s())
        except OperationalError as error:
            raise OperationalError(
                f"{topic} is deleted, but its owner may still serve it: {error}"
            ) from None
        if status == 409:
            raise ConflictError(_reason(body))
        return body == b"true"

    async def _post(
        self,
        broker: BrokerAddress,
        path: str,
        query: dict[str, str],
        epoch: int | None,
        timeout_s: float,
        *,
        bytes_max: int = ANSWER_BYTES_MAX,
    ) -> bytes:
        query = query if epoch is None else {**query, "epoch": str(epoch)}
        status, body = await self._ask(
            broker, f"{PATH}/{path}", query, timeout_s, bytes_max=bytes_max
        )
        if status == 409:
            raise OperationalError(f"{broker.broker_id} answered {status}: {_reason(body)}")
        return body

    async def _ask(
        self,
        broker: BrokerAddress,
        path: str,
        query: dict[str, str],
        timeout_s: float,
        *,
        method: str = "POST",
        bytes_max: int = ANSWER_BYTES_MAX,
        document: object = None,
    ) -> tuple[int, bytes]:
        answer = await self._calls.ask(
            broker,
            method,
            path,
            query,
            timeout_s=timeout_s,
            bytes_max=bytes_max,
            document=document,
        )
        if answer.status >= 300 and answer.status != 409:
            raise OperationalError(
                f"{broker.broker_id} answered {answer.status}: {_reason(answer.body)}"
            )
        return answer.status, answer.body
