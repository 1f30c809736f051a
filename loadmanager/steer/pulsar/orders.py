"""Implements `leader.ports.mover.Mover` for a Pulsar: unloads to a destination, and splits.

Pulsar answers an unload before the bundle has arrived. Modular brokers assign it with the next
lookup, and sometimes elsewhere: a client's lookup that comes too early uses the destination up. So
the owner is read afterwards, a lookup is made for a bundle that has no clients, and one that went
elsewhere, or came back, is ordered again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from urllib.parse import quote

import msgspec

from loadmanager.engine.bundles.ranges import (
    BundleRange,
    NamespaceBundles,
    bundle_name,
    parse_boundaries,
    split_bundle_name,
)
from loadmanager.kit.addresses import BrokerAddress
from loadmanager.kit.errors import OperationalError
from loadmanager.kit.names import NamespaceName, is_system_namespace
from loadmanager.leader.ports.mover import (
    ClientsBack,
    NotAgainError,
    NotSentError,
    OrderGate,
    Released,
)
from loadmanager.steer.pulsar import answers
from loadmanager.steer.pulsar.client import AnswerError, PulsarClient
from loadmanager.steer.pulsar.reader import V2, AdminReader

LOOKS_S = (0.5, 0.5, 1.0, 2.0, 4.0)
"""Waits before the looks for the new owner. The first ones ask the destination only."""
PATIENT_LOOKS = 2
AGAIN_S = (0.0, 0.5, 1.0, 2.0, 2.0, 4.0)
"""Waits before the further orders of one move, so that its clients have looked their topics up. On
a busy machine four in a row have been seen to miss.
"""
TOPICS_MAX = 100
"""Topics of a bundle whose clients are counted."""


class AdminOrders:
    """Orders to the brokers of one cluster. Epochs mean nothing to them."""

    def __init__(
        self,
        client: PulsarClient,
        reader: AdminReader,
        gate: OrderGate,
        brokers: Callable[[], Iterable[str]],
        *,
        looks_s: Sequence[float] = LOOKS_S,
        again_s: Sequence[float] = AGAIN_S,
    ) -> None:
        self._looks_s = looks_s
        self._again_s = again_s
        self._client = client
        self._reader = reader
        self._gate = gate
        self._brokers = brokers
        """The live brokers: the owner of a bundle is looked for among them."""
        self._likely: tuple[str, ...] = ()
        """The brokers of the last move: they are asked first who owns its bundle."""

    async def owner(self, bundle: str) -> str | None:
        """The owner of a bundle among all live brokers; None if no broker owns it.

        Raises `OperationalError` when a broker that might own it does not answer.
        """
        problem: OperationalError | None = None
        brokers = sorted(self._brokers())
        likely = [broker for broker in self._likely if broker in brokers]
        for broker in dict.fromkeys([*likely, *brokers]):
            try:
                if bundle in await self._reader.owned(broker):
                    return broker
            except OperationalError as error:
                problem = error
        if problem is not None:
            raise problem
        return None

    async def release_bundle(
        self,
        owner: BrokerAddress,
        bundle: str,
        destination: BrokerAddress | None,
        *,
        epoch: int | None,
    ) -> Released | None:
        """See the port. Raises `OperationalError` if the bundle ends up elsewhere."""
        if bundle not in await self._reader.owned(owner.broker_id):
            return None
        clients = await self._clients(owner.broker_id, bundle)
        if destination is not None:
            # It may be registered and dead: a bundle sent there would be without an owner.
            await self._client.get(f"{V2}/brokers/version", destination.broker_id)
        self._likely = (owner.broker_id,)
        if destination is None:
            await self._gate.first(bundle)
            await self._unload(owner.broker_id, bundle, "")
        else:
            self._likely = (destination.broker_id, owner.broker_id)
            await self._transfer(bundle, owner.broker_id, destination.broker_id)
        return Released(clients)

    async def _transfer(self, bundle: str, source: str, destination: str) -> None:
        """Unload a bundle until it is where it should be. Raises `OperationalError`."""
        query = f"?destinationBroker={quote(destination, safe=':')}"
        await self._gate.first(bundle)
        await self._unload(source, bundle, query)
        for wait_s in (*self._again_s, None):
            owner = await self._arrival(bundle, destination)
            if owner == destination:
                return
            if owner is None:
                raise OperationalError("nobody owns it; its next lookup assigns it")
            source = owner
            if wait_s is not None:
                await asyncio.sleep(wait_s)
                await self._unload_again(source, bundle, query)
        raise OperationalError(f"Pulsar gave it to {source}, not to {destination}")

    async def _unload_again(self, owner: str, bundle: str, query: str) -> None:
        """The move has begun: without another order it has failed."""
        try:
            await self._gate.again(bundle)
            await self._unload(owner, bundle, query)
        except NotSentError as error:
            raise NotAgainError(error.why) from None

    async def _unload(self, owner: str, bundle: str, query: str) -> None:
        namespace, span = split_bundle_name(bundle)
        path = f"{V2}/namespaces/{namespace}/{span}/unload{query}"
        await self._client.send("PUT", path, owner)

    async def _arrival(self, bundle: str, destination: str) -> str | None:
        """The owner, once there is one; also the source, if the bundle came back."""
        for number, wait_s in enumerate(self._looks_s):
            await asyncio.sleep(wait_s)
            if bundle in await self._reader.owned(destination):
                return destination
            if number >= PATIENT_LOOKS:
                owner = await self.owner(bundle)
                if owner is not None:
                    return owner
                await self._look_up(bundle, destination)
        return await self.owner(bundle)

    async def _look_up(self, bundle: str, broker: str) -> None:
        """Have Pulsar assign a bundle that nobody owns, as a client's lookup does."""
        topics = await self._topics(bundle, broker)
        for topic in topics[:1]:
            domain, _, rest = topic.partition("://")
            namespace, _, local = rest.rpartition("/")
            path = f"/lookup/v2/topic/{domain}/{namespace}/{quote(local, safe='')}"
            try:
                await self._client.get(path, broker)
            except OperationalError:
                return  # the look that follows says who has it

    async def _topics(self, bundle: str, at: str) -> list[str]:
        """The names of a bundle's topics."""
        namespace, span = split_bundle_name(bundle)
        raw = await self._client.get(f"{V2}/persistent/{namespace}?bundle={span}", at)
        try:
            return sorted(msgspec.json.decode(raw, type=list[str]))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise OperationalError(f"the topics of {bundle}: {error}") from None

    async def acquire_bundle(
        self,
        broker: BrokerAddress,
        bundle: str,
        *,
        epoch: int | None,
    ) -> None:
        """Have Pulsar assign a bundle without an owner: the hint of the unload before leads it to
        its destination, if it is still there. Raises `OperationalError` if nobody has it then.
        """
        await self._look_up(bundle, broker.broker_id)
        await asyncio.sleep(self._looks_s[0])
        if await self.owner(bundle) is None:
            raise OperationalError(f"nobody owns {bundle}; its next lookup assigns it")

    async def served_bundles(
        self, broker: BrokerAddress, bundle: str | None = None
    ) -> Mapping[str, int]:
        """See the port. Clients are counted for a single bundle only; 0 for the others. Pulsar's
        own bundles, which stay at their brokers, are not among them.
        """
        owned = await self._reader.owned(broker.broker_id)
        if bundle is None:
            return {name: 0 for name in owned if not is_system_namespace(name.rpartition("/")[0])}
        if bundle not in owned:
            return {}
        return {bundle: await self._clients(broker.broker_id, bundle) or 0}

    async def clients_back(
        self, broker: BrokerAddress, bundle: str, closed: int
    ) -> ClientsBack | None:
        """See the port. When they came back is not known."""
        count = (await self.served_bundles(broker, bundle)).get(bundle)
        return None if count is None else ClientsBack(count)

    async def _clients(self, broker: str, bundle: str) -> int | None:
        """Producers and consumers of the first topics of a bundle; None if they are not told."""
        try:
            topics = (await self._topics(bundle, broker))[:TOPICS_MAX]
            return sum([await self._clients_of(broker, topic) for topic in topics])
        except OperationalError:
            return None

    async def _clients_of(self, broker: str, topic: str) -> int:
        domain, _, rest = topic.partition("://")
        namespace, _, local = rest.rpartition("/")
        path = f"{V2}/{domain}/{namespace}/{quote(local, safe='')}/stats"
        try:
            return answers.clients_of_topic(await self._client.get(path, broker))
        except AnswerError as error:
            if error.status == 404:  # a topic that is not loaded
                return 0
            raise

    async def split_bundle(
        self,
        owner: BrokerAddress,
        bundle: str,
        *,
        unload: bool,
        epoch: int | None,
    ) -> Sequence[str]:
        """See the port. Pulsar answers 204 also when it did nothing: the boundaries tell. Its
        owner is asked for them, because other brokers hear of new ones later.
        """
        namespace, span = split_bundle_name(bundle)
        path = f"{V2}/namespaces/{namespace}/{span}/split?unload={str(unload).lower()}"
        await self._gate.first(bundle)
        await self._client.send("PUT", path, owner.broker_id)
        after = NamespaceBundles(
            NamespaceName.parse(namespace),
            parse_boundaries(await self._reader.boundaries(namespace, at=owner.broker_id)),
        )
        children = after.overlapping(BundleRange.parse(span))
        if len(children) == 1:
            return []
        return [bundle_name(namespace, str(child)) for child in children]
