"""The admin API over HTTP: follows redirects with method and body; errors say what to do."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse, RemoteDisconnected
from typing import Any, TypeVar
from urllib.parse import urljoin, urlsplit

from loadmanager.core.errors import BadInputError, OperationalError, said

T = TypeVar("T")

ADDRESSES = "/loadmanager/v1/addresses"
REDIRECTS_MAX = 20
ANSWER_BYTES_MAX = 64 * 1024 * 1024
REASON_MAX = 500
PROBE_S = 5.0
"""How long a port is asked whether it speaks TLS."""
ADVICE = {
    401: "--token (or LOADMANAGER_TOKEN) says who you are",
    403: "the token of a superuser may do everything",
}
"""Status → what to do about it."""


class AnsweredError(OperationalError):
    """A broker answered with an error."""

    def __init__(self, text: str, status: int) -> None:
        super().__init__(text)
        self.status = status


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Whom a client trusts, and who it is; all are PEM files, empty for none."""

    trust: str = ""
    """Empty: whom the system trusts."""
    certificate: str = ""
    key: str = ""

    def context(self) -> ssl.SSLContext:
        """Raises `BadInputError` for a file that cannot be used."""
        try:
            context = ssl.create_default_context(cafile=self.trust or None)
            if self.certificate:
                context.load_cert_chain(self.certificate, self.key or None, password=_no_password)
        except OSError as error:
            files = ", ".join(file for file in (self.trust, self.certificate, self.key) if file)
            raise BadInputError(f"{files}: {error.strerror or 'no PEM'}") from None
        return context


def _no_password() -> str:
    raise BadInputError("the private key is encrypted, which is not supported")


class _RedirectedError(Exception):
    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.url = url


class _KeepRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        """Follow no redirect here: the standard library would drop method and body."""


class AdminClient:
    """Sends requests to one broker, and follows its redirects to others.

    Ignores proxies of the environment, because brokers redirect to internal addresses.
    """

    def __init__(
        self, url: str, *, timeout_s: float, token: str = "", tls: TlsFiles | None = None
    ) -> None:
        """Raises `BadInputError` for a malformed URL, and for files that cannot be used."""
        self.url = _base(url)
        self._timeout_s = timeout_s
        self._token = token
        self._tls = tls or TlsFiles()
        handlers: list[Any] = [_KeepRedirects, urllib.request.ProxyHandler({})]
        if self._secure or self._tls != TlsFiles():
            handlers.append(urllib.request.HTTPSHandler(context=self._tls.context()))
        self._opener = urllib.request.build_opener(*handlers)
        self._addresses: dict[str, dict[str, str]] = {}
        """brokerId → its addresses, once they were asked for."""

    @property
    def _secure(self) -> bool:
        return self.url.startswith("https:")

    def at(self, broker_id: str) -> AdminClient:
        """A client for another broker, named by its brokerId; over TLS if this one is.

        Raises `OperationalError` when that broker does not serve TLS.
        """
        url = f"http://{broker_id}"
        if self._secure:
            if broker_id not in self._addresses:
                self._addresses.update(self.get(ADDRESSES))
            url = self._addresses.get(broker_id, {}).get("webServiceUrlTls", "")
            if not url:
                raise OperationalError(f"{broker_id} does not serve its admin API over TLS")
        return AdminClient(url, timeout_s=self._timeout_s, token=self._token, tls=self._tls)

    def get(self, path: str) -> Any:
        """The parsed body of the answer to a GET; None for an empty body.

        Raises `OperationalError` if it is not JSON.
        """
        raw = self.send("GET", path)
        try:
            return json.loads(raw) if raw else None
        except ValueError:
            raise OperationalError(
                f"{self.url}{path} did not answer with JSON; is this the HTTP port of a broker?"
            ) from None

    def text(self, path: str) -> str:
        """The body of the answer to a GET, as it is."""
        return self.send("GET", path).decode(errors="replace")

    def send(self, method: str, path: str, body: Any = None) -> bytes:
        """The body of the answer.

        Raises `AnsweredError` if the broker refuses the request, `OperationalError` for any other
        failure.
        """
        data = None if body is None else json.dumps(body).encode()
        return self._followed(method, path, data, {}, _whole)

    def listen(self, path: str, after: str, take: Callable[[Iterable[bytes]], T]) -> T:
        """Pass the lines of a stream to `take` as they come, and return its result; `after`: the id
        of the last event that was seen. Raises as `send` does.
        """
        headers = {"Accept": "text/event-stream", **({"Last-Event-ID": after} if after else {})}
        return self._followed("GET", path, None, headers, take)

    def _followed(
        self,
        method: str,
        path: str,
        data: bytes | None,
        headers: Mapping[str, str],
        take: Callable[[Any], T],
    ) -> T:
        url = f"{self.url}{path}"
        for _ in range(REDIRECTS_MAX):
            try:
                return self._once(method, url, data, headers, take)
            except _RedirectedError as elsewhere:
                url = urljoin(url, elsewhere.url)
        raise OperationalError(
            f"{method} {path}: more than {REDIRECTS_MAX} redirects; the brokers do not agree on "
            "the owner or the leader; try again"
        )

    def _once(
        self,
        method: str,
        url: str,
        data: bytes | None,
        more: Mapping[str, str],
        take: Callable[[Any], T],
    ) -> T:
        headers = {
            "Accept": "application/json",
            **more,
            **({"Content-Type": "application/json"} if data is not None else {}),
            **({"Authorization": f"Bearer {self._token}"} if self._token else {}),
        }
        request = urllib.request.Request(url, data=data, method=method, headers=headers)
        where = f"{urlsplit(url).scheme}://{urlsplit(url).netloc}"
        began_s = time.monotonic()
        try:
            with self._opener.open(request, timeout=self._timeout_s) as answer:
                return take(answer)
        except urllib.error.HTTPError as error:
            with error:
                if error.code in (307, 308) and error.headers.get("Location"):
                    raise _RedirectedError(error.headers["Location"]) from None
                reason = _reason(error.read(ANSWER_BYTES_MAX)) or error.reason
            advice = f"; {ADVICE[error.code]}" if error.code in ADVICE else ""
            text = f"{where} answered {error.code}: {reason}{advice}"
            raise AnsweredError(text, error.code) from None
        except TimeoutError:
            raise OperationalError(
                f"{where} did not answer within {time.monotonic() - began_s:.1f} s; --timeout "
                "allows more"
            ) from None
        except HTTPException as error:
            text = _not_http(where)
            if isinstance(error, RemoteDisconnected):
                text += (
                    ". If it does, the broker has ended, and whether it did what it was asked is "
                    "not known"
                )
            raise OperationalError(text) from None
        except (OSError, ValueError) as error:
            why = getattr(error, "reason", None) or error
            raise OperationalError(_no_answer(where, why)) from None


def _not_http(where: str) -> str:
    """Why a port that answers does not answer a request."""
    parts = urlsplit(where)
    if parts.scheme == "http" and _speaks_tls(parts.hostname or "", parts.port or 80):
        return f"{where} speaks TLS: --url https://{parts.netloc} is right for an HTTPS port"
    return (
        f"{where} does not speak HTTP; --url needs the HTTP port of a broker, not the port of the "
        "binary protocol"
    )


def _no_answer(where: str, reason: object) -> str:
    parts = urlsplit(where)
    if isinstance(reason, ssl.SSLCertVerificationError):
        return (
            f"{where} is not trusted: {reason.verify_message or reason}; --tls-trust-certs FILE "
            "names the authority that signed its certificate"
        )
    if isinstance(reason, ssl.SSLError) and "WRONG_VERSION_NUMBER" in str(reason):
        return f"{where} does not speak TLS: --url http://{parts.netloc} is right for an HTTP port"
    if isinstance(reason, ConnectionResetError) and parts.scheme == "http":
        return _not_http(where)
    return (
        f"no answer from {where}: {said(reason)}; is this the HTTP port of a running broker? "
        "--url http://host:port names another"
    )


def _speaks_tls(host: str, port: int) -> bool:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # nothing is sent
    try:
        with (
            socket.create_connection((host, port), PROBE_S) as plain,
            context.wrap_socket(plain, server_hostname=host),
        ):
            return True
    except ssl.SSLError as error:
        return "CERTIFICATE_REQUIRED" in str(error)
    except (OSError, ValueError):
        return False


def _whole(answer: HTTPResponse) -> bytes:
    return answer.read(ANSWER_BYTES_MAX)


def _base(url: str) -> str:
    with contextlib.suppress(ValueError):
        parts = urlsplit(url if "://" in url else f"http://{url}")
        if parts.scheme in ("http", "https") and parts.hostname and parts.port != 0:
            return f"{parts.scheme}://{parts.netloc}"
    raise BadInputError(f"--url {url}: http://host:port is expected")


def _reason(raw: bytes) -> str:
    try:
        document = json.loads(raw)
    except ValueError:
        if raw.lstrip().startswith(b"<"):
            return ""  # a page of something else than a broker
        return raw.decode(errors="replace")[:REASON_MAX]
    return str(document.get("reason", "")) if isinstance(document, dict) else ""
