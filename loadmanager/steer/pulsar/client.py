"""Requests to the admin API of a Pulsar: paced, bounded in time and size, redirects followed.

A redirect of a question is followed anywhere, one of an order only to the brokers that were
configured or listed by the cluster, with the same path. The credentials go to these brokers and to
no other host.
"""

from __future__ import annotations

import asyncio
import base64
import os
import re
import ssl
from collections.abc import Callable, Iterable
from typing import Any, Literal
from urllib.parse import parse_qsl, urljoin, urlsplit

import aiohttp
import msgspec
from aiohttp.connector import Connection
from aiohttp.tracing import Trace
from yarl import URL

from loadmanager.kit.errors import ConfigError, OperationalError
from loadmanager.kit.security.reading import read_file
from loadmanager.kit.text import printable
from loadmanager.leader.ports.mover import NotSentError
from loadmanager.steer.ports.cluster_reader import AGENT, Cost
from loadmanager.steer.pulsar.bodies import CHUNK_BYTES, Bodies
from loadmanager.steer.pulsar.settings import PulsarSettings

REDIRECTS_MAX = 5
CONNECT_TIMEOUT_S = 3.0
CONNECTIONS_MAX = 8
TRIED_MAX = 8
"""Brokers that are tried until one answers: listed by the cluster, and as many configured ones."""
BYTES_PER_S = 16 << 20
"""More than this is not asked for: decoding it would keep the daemon from its other clusters."""
SECRET_BYTES_MAX = 64 * 1024
REASON_MAX = 300
ANSWER_BYTES_MAX = 4 << 20
"""Largest answer of those that do not grow with the load."""
REDIRECTS = (301, 302, 303, 307, 308)


class AnswerError(OperationalError):
    """A broker answered with a status that is not a success."""

    def __init__(self, status: int, text: str, *, reasoned: bool) -> None:
        super().__init__(text)
        self.status = status
        self.reasoned = reasoned
        """Whether it gave a reason as Pulsar does. Another server may have its address by now."""


class _Connector(aiohttp.TCPConnector):
    """Asks once more, when a connection is there, whether an order may be sent: resolving a name
    and connecting take their time.
    """

    def __init__(self, client: PulsarClient, **options: Any) -> None:
        super().__init__(**options)
        self._client = client

    async def connect(
        self,
        req: aiohttp.ClientRequest,
        traces: list[Trace],
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 - the base class has it
    ) -> Connection:
        """See the base class. Raises `NotSentError` for an order that may not be sent now."""
        connection = await super().connect(req, traces, timeout)
        if req.method != "GET" and not self._client.leads():
            connection.close()
            raise NotSentError("another daemon may lead")
        return connection


class PulsarClient:
    """One cluster's admin API, as an asynchronous context manager."""

    def __init__(self, settings: PulsarSettings, leads: Callable[[], bool] = lambda: True) -> None:
        """`leads`: whether this process may give orders now. Raises `ConfigError` for addresses or
        files that cannot be used.
        """
        self._settings = settings
        self._seeds = [_base(url) for url in settings.urls]
        if not self._seeds:
            raise ConfigError("pulsar: http://host:8080 of at least one broker is expected")
        self._scheme = urlsplit(self._seeds[0]).scheme
        self._ssl = _ssl_context(settings.ca_file)
        self._brokers: dict[str, None] = {}
        """The brokers that the cluster lists."""
        self._next_s = 0.0
        self._session: aiohttp.ClientSession | None = None
        self.bodies = Bodies(settings.timeout_s)
        self.leads = leads
        self.cost = Cost(requests=0, failures=0, bytes_read=0)
        self._headers()  # what cannot be read now is said before the start

    async def __aenter__(self) -> PulsarClient:
        """Open the pool of connections. Proxies of the environment are ignored."""
        self._session = aiohttp.ClientSession(
            connector=_Connector(self, limit=CONNECTIONS_MAX, ssl=self._ssl),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"User-Agent": AGENT},
            read_bufsize=CHUNK_BYTES,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()

    def learn(self, brokers: Iterable[str]) -> None:
        """Trust these brokers with the credentials, and ask them when no broker is named."""
        self._brokers = dict.fromkeys(brokers)

    def url_of(self, broker_id: str) -> str:
        """The address of a broker. Its id is host and port of its admin API."""
        return f"{self._scheme}://{broker_id}"

    @property
    def secure(self) -> bool:
        """True if nothing goes to brokers without TLS: the first address has https."""
        return self._scheme == "https"

    @property
    def tls(self) -> ssl.SSLContext:
        """What the certificates of brokers are checked against."""
        return ssl.create_default_context() if self._ssl is True else self._ssl

    def knows(self, host: str) -> bool:
        """Whether a broker of the cluster is at a host."""
        places = [*(f"//{broker}" for broker in self._brokers), *self._seeds]
        return any(urlsplit(place).hostname == host for place in places)

    async def get(self, path: str, at: str | None = None) -> bytes:
        """The body of an answer; `at`: the broker to ask, else any.

        Raises `AnswerError` for a status other than success, `OperationalError` for no answer.
        """
        return await self.send("GET", path, at)

    async def get_large(self, path: str, at: str) -> bytes:
        """Get an answer that grows with the load; `answerBytesMax` bounds it. See `get`."""
        limit = self._settings.answer_bytes_max
        return (await self._follow("GET", self.url_of(at) + path, None, limit))[1]

    async def json(self, path: str, at: str | None = None) -> object:
        """The parsed body of an answer; raises as `get` does, and for what is not JSON."""
        raw = await self.get(path, at)
        try:
            return msgspec.json.decode(raw)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            shown = raw[:60].decode(errors="replace")
            raise OperationalError(f"GET {path} did not answer with JSON but {shown!r}") from None

    async def get_if_any(self, path: str, *, may_be_empty: bool = False) -> bytes | None:
        """The body of an answer; None for 204 and 404, which say that there is nothing.

        Raises as `get` does, and for another success without a body unless it `may_be_empty`: that
        is no answer of Pulsar.
        """
        try:
            status, raw = await self._ask("GET", path, None, None)
        except AnswerError as error:
            if error.status == 404 and error.reasoned:
                return None
            raise
        if not raw and status != 204 and not may_be_empty:
            raise OperationalError(f"GET {path} answered {status} with nothing")
        return raw or None

    async def send(
        self, method: str, path: str, at: str | None = None, body: bytes | None = None
    ) -> bytes:
        """Send a request; see `get`. If no broker is named, the next one is asked when one does not
        answer; only requests that may be repeated may be sent so.
        """
        return (await self._ask(method, path, at, body))[1]

    async def _ask(
        self, method: str, path: str, at: str | None, body: bytes | None
    ) -> tuple[int, bytes]:
        """Status and body of a success."""
        if at is not None:
            return await self._follow(method, self.url_of(at) + path, body)
        bases = list(map(self.url_of, self._brokers))[:TRIED_MAX]
        problem: OperationalError | None = None
        for base in dict.fromkeys([*bases, *self._seeds[:TRIED_MAX]]):
            try:
                return await self._follow(method, base + path, body)
            except AnswerError as error:
                if error.status < 500 and error.reasoned:
                    raise
                problem = error
            except OperationalError as error:
                problem = error
        raise problem or OperationalError("there is no broker to ask")

    async def _follow(
        self, method: str, url: str, body: bytes | None, limit: int = ANSWER_BYTES_MAX
    ) -> tuple[int, bytes]:
        began, limit = url, min(limit, self._settings.answer_bytes_max)
        for _ in range(REDIRECTS_MAX + 1):
            status, headers, raw = await self._once(method, url, body, limit)
            if status in REDIRECTS and headers.get("Location"):
                url = self._redirected(method, url, headers["Location"])
                continue
            if 200 <= status < 300:
                return status, raw
            self.cost.failures += status != 404  # that says that there is nothing
            reason = _reason(raw)
            text = reason or _beginning(raw)
            raise AnswerError(
                status,
                f"{method} {_shown(url)} answered {status}: {text}",
                reasoned=reason is not None,
            )
        self.cost.failures += 1
        raise OperationalError(
            f"{method} {_shown(began)}: redirects do not end; the last one is to {_shown(url)}"
        )

    def _redirected(self, method: str, url: str, location: str) -> str:
        problem = "which is no URL"
        try:
            target = urljoin(url, location)
            if urlsplit(target).scheme in ("http", "https"):
                if self._trusts(target) and (method == "GET" or _same_order(url, target)):
                    return target
                problem = "which is not a broker of the cluster, or another request"
        except ValueError:
            pass  # such as brackets without an IPv6 address
        self.cost.failures += 1
        raise OperationalError(f"{_shown(url)} redirects to {_shown(location)}, {problem}")

    async def _once(
        self, method: str, url: str, body: bytes | None, limit: int
    ) -> tuple[int, dict[str, str], bytes]:
        if self._session is None:
            raise OperationalError("the client is closed")
        await self._pace()
        self.cost.requests += 1
        headers = self._headers() if self._trusts(url) else {}
        if method != "GET":  # Pulsar answers 415 to another type, also without a body
            headers["Content-Type"] = "application/json"
        try:
            async with (
                asyncio.timeout(self._settings.timeout_s) as time_limit,
                self._session.request(
                    method,
                    URL(url, encoded=True),
                    data=body,
                    headers={"Accept": "*/*", **headers},
                    allow_redirects=False,
                    middlewares=() if method == "GET" else (_sent_once,),
                    timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S),
                ) as answer,
            ):
                raw = await self.bodies.read(answer, limit, time_limit)
                self._next_s += len(raw) / BYTES_PER_S
                location = answer.headers.get("Location", "")
                return answer.status, {"Location": location}, raw
        except NotSentError:
            raise
        except TimeoutError:
            text = f"no answer within {self._settings.timeout_s:g} s"
        except (aiohttp.ClientError, OperationalError, OSError, ValueError) as error:
            text = _explained(error)
        finally:
            self.cost.bytes_read = self.bodies.bytes_read
        self.cost.failures += 1
        raise OperationalError(f"{method} {_shown(url)}: {text}")

    async def _pace(self) -> None:
        """Wait for this request's turn."""
        now_s = asyncio.get_running_loop().time()
        turn_s = max(now_s, self._next_s)
        self._next_s = turn_s + 1 / self._settings.requests_per_s
        if turn_s > now_s:
            await asyncio.sleep(turn_s - now_s)

    def _trusts(self, url: str) -> bool:
        """Whether a broker of the cluster is there. Where one seed has TLS, nothing else than
        another seed is asked without.
        """
        parts = urlsplit(url)
        own = [urlsplit(seed) for seed in self._seeds]
        if parts.scheme == "http" and any(seed.scheme == "https" for seed in own):
            return any((parts.scheme, parts.netloc) == (seed.scheme, seed.netloc) for seed in own)
        return parts.netloc in self._brokers or any(parts.netloc == seed.netloc for seed in own)

    def credentials(self) -> tuple[str, bytes]:
        """Pulsar's name of the authentication method, and its data; empty ones without any. Raises
        `OperationalError` when a file cannot be read now.
        """
        if self._settings.token_file:
            return "token", _secret(self._settings.token_file).encode()
        if self._settings.basic_file:
            secret = _secret(self._settings.basic_file)
            if ":" not in secret:
                raise OperationalError(f"{self._settings.basic_file}: user:password is expected")
            return "basic", secret.encode()
        return "", b""

    def _headers(self) -> dict[str, str]:
        """The credentials of a request; raises as they do."""
        method, data = self.credentials()
        if method == "token":
            return {"Authorization": f"Bearer {data.decode()}"}
        if method == "basic":
            return {"Authorization": f"Basic {base64.b64encode(data).decode()}"}
        return {}


async def _sent_once(
    request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType
) -> aiohttp.ClientResponse:
    """A middleware without which aiohttp sends a PUT again when its connection ends: the order may
    have been carried out, and a second one would interrupt clients again.
    """
    try:
        return await send(request)
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        raise OperationalError(_explained(error)) from None


def _secret(path: str) -> str:
    try:
        text = read_file(path, SECRET_BYTES_MAX).decode().strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not a text"
        raise OperationalError(f"{path} cannot be read: {reason}") from None
    if not text or not text.isascii() or not text.isprintable():
        raise OperationalError(f"{path}: one line of printable ASCII characters is expected")
    return text


def _ssl_context(ca_file: str) -> ssl.SSLContext | Literal[True]:
    if not ca_file:
        return True
    try:
        return ssl.create_default_context(cafile=ca_file)
    except OSError as error:
        raise ConfigError(f"caFile = {ca_file!r}: {error.strerror or error}") from None


def _base(url: str) -> str:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        usable = False
    if not usable or parts.path not in ("", "/") or set(url) & set("@?#"):
        raise ConfigError(
            f"pulsar = {'an address with credentials' if '@' in url else _shown(url)}: http://host "
            "or https://host is expected, with a port or without, and nothing else; tokenFile and "
            "basicFile name credentials"
        )
    return f"{parts.scheme}://{parts.netloc}"


def _shown(url: str) -> str:
    """The address in messages: not longer than a line, without what may be a secret."""
    scheme, separator, rest = url.partition("://")
    host, slash, path = re.split("[?#]", rest)[0].partition("/")
    return printable(f"{scheme}{separator}{host.rpartition('@')[2]}{slash}{path}"[:200])


def _same_order(url: str, target: str) -> bool:
    """True if a redirect changes the host only, and what Pulsar changes: it adds `authoritative`,
    and leaves out a destination that the leader knows by then.
    """
    before, after = urlsplit(url), urlsplit(target)
    added = set(parse_qsl(after.query)) - set(parse_qsl(before.query))
    return before.path == after.path and {name for name, _ in added} <= {"authoritative"}


def _reason(raw: bytes) -> str | None:
    """Pulsar's reason; None if the body is not Pulsar's."""
    try:
        document = msgspec.json.decode(raw)
        if isinstance(document, dict) and "reason" in document:
            return printable(str(document["reason"])[:REASON_MAX])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    return None


def _beginning(raw: bytes) -> str:
    """The beginning of a body that is not Pulsar's, for a message."""
    text = " ".join(raw[:REASON_MAX].decode(errors="replace").split())[:80]
    return printable(text) or "no reason"


def _explained(error: Exception) -> str:
    """Why there is no answer."""
    text = str(error)
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        why = getattr(error.certificate_error, "verify_message", "") or error.certificate_error
        text = f"its certificate is not trusted: {why}; caFile names the authority"
    elif isinstance(error, aiohttp.ClientSSLError):
        reason = getattr(error.os_error, "reason", None) or error.os_error
        text = f"no TLS connection ({reason}): is this a port for https?"
    elif isinstance(error, aiohttp.ClientConnectorError):
        number = error.os_error.errno or 0
        text = os.strerror(number) if number > 0 else str(error.os_error.strerror)
    return printable((text or type(error).__name__)[:REASON_MAX])
