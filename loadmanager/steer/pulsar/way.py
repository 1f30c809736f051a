"""The way of the canary's producer to the brokers; implements `steer.ports.producing.Way`.

It has the credentials and the certificates of the admin API, and goes to the hosts of the cluster's
brokers only.
"""

from __future__ import annotations

import asyncio
from urllib.parse import quote, urlsplit

import msgspec

from loadmanager.kit.errors import OperationalError
from loadmanager.kit.text import printable
from loadmanager.steer.pulsar.client import CONNECT_TIMEOUT_S, AnswerError, PulsarClient

PORTS = {"pulsar": 6650, "pulsar+ssl": 6651}
URL_MAX = 200
EXISTS = 409


class _Owner(msgspec.Struct, rename="camel"):
    """The answer to a lookup of the admin API."""

    broker_url: str | None = None
    broker_url_tls: str | None = None


class AdminWay:
    """Of one cluster."""

    def __init__(self, client: PulsarClient) -> None:
        self._client = client

    async def make_topic(self, topic: str) -> None:
        """Make a topic, unless it is there. Raises `OperationalError`."""
        domain, namespace, local = _parts(topic)
        try:
            await self._client.send("PUT", f"/admin/v2/{domain}/{namespace}/{local}")
        except AnswerError as error:
            if error.status != EXISTS:
                raise OperationalError(f"{topic} cannot be made: {error}") from None

    async def find(self, topic: str) -> str:
        """See the port."""
        domain, namespace, local = _parts(topic)
        raw = await self._client.get(f"/lookup/v2/topic/{domain}/{namespace}/{local}")
        try:
            owner = msgspec.json.decode(raw, type=_Owner)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise OperationalError(f"the owner of {topic}: {error}") from None
        return self.choose(owner.broker_url or "", owner.broker_url_tls or "")

    def choose(self, plain: str, tls: str) -> str:
        """See the port: with TLS where the admin API has it, and where nothing else is told."""
        url = tls if self._client.secure else plain or tls
        if not url:
            raise OperationalError("the owner has no service URL" + " with TLS" * bool(plain))
        _address(url)
        return url

    async def connect(self, url: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """See the port."""
        host, port, secure = _address(url)
        if not self._client.knows(host):
            raise OperationalError(f"{printable(url[:URL_MAX])} is no broker of the cluster")
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                return await asyncio.open_connection(
                    host, port, ssl=self._client.tls if secure else None
                )
        except TimeoutError:
            text = f"no connection within {CONNECT_TIMEOUT_S:g} s"
        except (OSError, ValueError) as error:
            text = getattr(error, "strerror", None) or str(error)
        raise OperationalError(f"{printable(url[:URL_MAX])}: {text}")

    def credentials(self) -> tuple[str, bytes]:
        """See the port."""
        return self._client.credentials()


def _parts(topic: str) -> tuple[str, str, str]:
    """Domain, namespace and name of a topic, for a path."""
    domain, _, rest = topic.partition("://")
    namespace, _, local = rest.rpartition("/")
    return domain, namespace, quote(local, safe="")


def _address(url: str) -> tuple[str, int, bool]:
    """Host, port and whether with TLS, of a service URL. Raises `OperationalError`."""
    try:
        parts = urlsplit(url)
        if parts.scheme in PORTS and parts.hostname:
            return parts.hostname, parts.port or PORTS[parts.scheme], parts.scheme == "pulsar+ssl"
    except ValueError:
        pass
    raise OperationalError(f"{printable(url[:URL_MAX])} is no service URL")
