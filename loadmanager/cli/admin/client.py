"""The admin API over HTTP: follows redirects with method and body; errors say what to do.

The broker that the operator named asks the others, if it can: their names may mean nothing here.
Brokers that pass nothing on (those of Pulsar, and of version 0.3.0) redirect, and the others are
asked directly. The token goes to the broker that the operator named and to those that it lists, and
never from https to http. An answer is checked against the shape that its command expects.
"""

from __future__ import annotations

import contextlib
import json
import re
import socket
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from http.client import HTTPConnection, HTTPException, HTTPResponse, RemoteDisconnected
from queue import Empty, SimpleQueue
from typing import Any, TypeVar, cast
from urllib.parse import urljoin

import msgspec

from loadmanager.broker.admin.documents import AddressesShown
from loadmanager.cli.admin.shapes import Names
from loadmanager.cli.admin.trust import Trusted, place_of
from loadmanager.kit.conversion import converted
from loadmanager.kit.errors import BadInputError, OperationalError, said
from loadmanager.kit.http.passing_on import (
    BROKER,
    FOLLOW,
    MISDIRECTED,
    UNDECIDED,
    WITHIN,
)
from loadmanager.kit.nesting import STORED_LEVELS_MAX, nests_deeper
from loadmanager.kit.text import printable

T = TypeVar("T")

ADDRESSES = "/loadmanager/v1/addresses"
VERSION = "/admin/v2/brokers/version"
STATUS = "/status.html"
"""Answered to everybody, by Pulsar's brokers, too: a sign of life needs no token."""
BROKERS = "/admin/v2/brokers"
"""Pulsar's list of brokers, by host and port of their admin API."""
UNIX = "unix:"
"""Begins the URL of a Unix socket: `unix:/path`."""
REDIRECTS_MAX = 20
AGREE_S, AGAIN_S = 10.0, 0.5
"""Brokers that do not agree yet on the owner or the leader, as after one was lost, are asked again
so often, and for so long.
"""
ANSWER_BYTES_MAX = 64 * 1024 * 1024
LINE_BYTES_MAX = 16 * 1024 * 1024
"""A longer line of a stream is taken apart."""
REASON_MAX = 500
PROBE_S = 5.0
"""How long a port is asked whether it speaks TLS."""
WITHIN_SHARE = 0.8
"""Of the time that an answer may take, what the broker that is asked gives another one."""
PASSES_WITHIN_S = 0.5
"""Who asks whether requests are passed on waits so long for the other broker, which may be cut off:
that it did not answer is said by a broker that passes them on.
"""
PATIENCE_S, SIGN_S = 2.0, 4.0
"""A broker whose answer takes longer is asked for a sign, which may take so long: one that is
frozen gives none.
"""
SILENT = "silent"
NOT_FOUND = 404
BARE = re.compile(r"(404:? ?)?Not Found", re.IGNORECASE)
"""An answer that says no more than its status."""
NO_BROKER = ": it is no broker of loadmanager, or one of an earlier version"
UNREACHED = (502, 504)
"""Statuses of a broker that could not ask another one."""
ADVICE = {
    401: "LOADMANAGER_TOKEN (or --token) says who you are",
    403: "the token of a superuser may do everything",
}
"""Status → what to do about it."""
WANTED = "it wants a certificate that it trusts (--tls-cert and --tls-key name yours)"
"""Of a server that hangs up over TLS: brokers do so instead of sending an alert."""


class AnsweredError(OperationalError):
    """A broker answered with an error."""

    def __init__(
        self, text: str, status: int, passed_on: bool = False, *, undecided: bool = False
    ) -> None:
        super().__init__(text)
        self.status = status
        self.passed_on = passed_on
        """The broker that was asked answers for others."""
        self.undecided = undecided
        """Brokers do not agree yet on who answers; none has done anything."""


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


class _PassesOn:
    """Whether the named broker asks others; None: it is not known yet."""

    def __init__(self) -> None:
        self.value: bool | None = None
        self.asking = threading.Lock()


@dataclass(slots=True)
class Lacking:
    """What archives that were asked lack, so that whatever follows from them is not all."""

    unread: dict[str, str] = field(default_factory=dict)
    """brokerId → why its archive cannot be read."""
    times: dict[str, bool] = field(default_factory=dict)
    """What of which time is missing, in sentences → whether that lasts."""

    def lines(self) -> list[str]:
        """All of it, in sentences."""
        return [*(f"{name}: {why}" for name, why in sorted(self.unread.items())), *self.times]


class SilentError(Exception):
    """A broker gave no sign for so many seconds."""


class _LoopError(OperationalError):
    """Brokers send a request to each other."""


class _RedirectedError(Exception):
    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.url = url


def _opener(tls: ssl.SSLContext | None, unix: str = "") -> urllib.request.OpenerDirector:
    """Asks over HTTP, and HTTPS with `tls`, and nothing else. It knows no proxy, because brokers
    redirect to internal addresses; and it follows no redirect, because the standard library would
    drop method and body. `unix`: the Unix socket that everything is asked over.
    """
    opener = urllib.request.OpenerDirector()
    for handler in (
        _UnixHandler(unix) if unix else urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(context=tls),
        urllib.request.HTTPErrorProcessor(),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.UnknownHandler(),
    ):
        opener.add_handler(handler)
    return opener


class _UnixConnection(HTTPConnection):
    """Connects to a Unix socket, whatever the URL says."""

    def __init__(self, path: str, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        try:
            self.sock.connect(self._path)
        except OSError as error:
            raise OSError(f"{self._path}: {error.strerror}") from None


class _UnixHandler(urllib.request.HTTPHandler):
    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = path

    def http_open(self, req: urllib.request.Request) -> HTTPResponse:
        def connection(_host: str, /, *, timeout: float = 0.0, **_: Any) -> HTTPConnection:
            return _UnixConnection(self._path, timeout)

        return self.do_open(connection, req)


class AdminClient:
    """Sends requests to one broker, and follows its redirects to others."""

    def __init__(
        self,
        url: str,
        *,
        timeout_s: float,
        token: str = "",
        tls: TlsFiles | None = None,
        trusted: Trusted | None = None,
        to: str = "",
    ) -> None:
        """`trusted`: whom the token may be sent to, if not this broker and those that it lists.
        `to`: the brokerId of the one that shall answer; empty: the one of the URL.

        Raises `BadInputError` for a malformed URL, and for files that cannot be used.
        """
        self._unix = url.removeprefix(UNIX) if url.startswith(UNIX) else ""
        self.url = _base("http://localhost" if self._unix else url)
        self._timeout_s = timeout_s
        self._token = token
        self._to = to
        self._passes_on = _PassesOn()
        self._tls = tls or TlsFiles()
        context = self._tls.context() if self._secure or self._tls != TlsFiles() else None
        self._opener = _opener(context, self._unix)
        self._addresses: dict[str, AddressesShown] = {}
        """brokerId → its addresses, once they were asked for."""
        self.silent: dict[str, str] = {}
        """brokerId → why it did not answer in time; each waits for a broker once."""
        self.lacking = Lacking()
        self._trusted = trusted or Trusted(self.url, self._listed)

    @property
    def _secure(self) -> bool:
        return self.url.startswith("https:")

    def at(self, broker_id: str, *, timeout_s: float | None = None) -> AdminClient:
        """A client for another broker, named by its brokerId: through this one, if it passes on,
        else directly, and over TLS if this one is. `timeout_s`: if that is less than this one
        waits.

        Raises `OperationalError` when that broker does not serve TLS, and for a name of none.
        """
        url, to = f"http://{broker_id}", ""
        if self._may_pass_on(broker_id):
            url, to = self.url, broker_id
        elif self._secure:
            if broker_id not in self._addresses:
                self._addresses.update(self.get(ADDRESSES, dict[str, AddressesShown]))
            address = self._addresses.get(broker_id)
            url = "" if address is None else address.web_service_url_tls
            if not url:
                raise OperationalError(f"{broker_id} does not serve its admin API over TLS")
        try:
            other = AdminClient(
                url,
                timeout_s=min(self._timeout_s, timeout_s or self._timeout_s),
                token=self._token,
                tls=self._tls,
                trusted=self._trusted,
                to=to,
            )
        except BadInputError:
            raise OperationalError(f"{broker_id} is no address of a broker") from None
        other.lacking = self.lacking
        return other

    def _may_pass_on(self, broker_id: str) -> bool:
        """Whether this broker asks another one: a request that changes nothing tells."""
        passing = self._passes_on
        with passing.asking:  # of several threads, one
            if passing.value is None:
                url = f"{self.url}{VERSION}"
                headers = self._to_broker(broker_id) | {WITHIN: f"{PASSES_WITHIN_S}"}
                try:
                    passing.value = self._once("GET", url, None, headers, _passed_on)
                except _RedirectedError:
                    passing.value = False
                except AnsweredError as error:
                    if error.status in ADVICE:
                        raise
                    passing.value = error.passed_on
            return passing.value

    def _to_broker(self, broker_id: str) -> dict[str, str]:
        return {BROKER: broker_id, WITHIN: f"{self._timeout_s * WITHIN_SHARE:.3f}"}

    def _listed(self) -> Iterator[str]:
        """The URLs of the brokers that the named one lists. Raises `OperationalError`."""
        try:
            raw = self._once("GET", f"{self.url}{ADDRESSES}", None, {}, _whole)
            for broker in self._decoded(raw, ADDRESSES, dict[str, AddressesShown])[0].values():
                yield from (broker.web_service_url, broker.web_service_url_tls)
        except _RedirectedError:
            raise OperationalError(f"{self.url} does not list the brokers itself") from None
        except AnsweredError as error:
            if error.status != 404:
                raise
            # A broker of Pulsar has no such list.
            raw = self._once("GET", f"{self.url}{BROKERS}", None, {}, _whole)
            scheme = self.url.partition("://")[0]
            for name in self._decoded(raw, BROKERS, Names)[0]:
                yield f"{scheme}://{name}"

    def get(self, path: str, shape: type[T]) -> T:
        """The answer to a GET, of this shape; it may have further fields.

        Raises `OperationalError` if it has another shape, or is not JSON.
        """
        return self.ask("GET", path, None, shape)[0]

    def get_any(self, path: str, shape: type[T]) -> T | None:
        """The same; None for an empty answer, and for null."""
        raw = self.send("GET", path)
        return self._decoded(raw, path, shape)[0] if raw not in (b"", b"null") else None

    def ask(self, method: str, path: str, body: Any, *shapes: type[T]) -> tuple[T, Any]:
        """The answer to a request, of the first of these shapes that it has, and the whole of it as
        it came; see `get` and `send`.
        """
        raw = self.send(method, path, body)
        for shape in shapes[:-1]:
            with contextlib.suppress(OperationalError):
                return self._decoded(raw, path, shape)
        return self._decoded(raw, path, shapes[-1])

    def order(self, method: str, path: str, body: Any, shape: type[T]) -> T:
        """The answer to another request than a GET; see `get` and `send`."""
        return self.ask(method, path, body, shape)[0]

    def _decoded(self, raw: bytes, path: str, shape: type[T]) -> tuple[T, Any]:
        where = f"{self.url}{path.partition('?')[0]}"
        try:
            return decoded(raw, shape)
        except msgspec.ValidationError as error:
            text = f"{where} answered something else than a broker would: {error}"
            raise OperationalError(text) from None
        except ValueError:
            raise OperationalError(
                f"{where} did not answer with JSON; is this the HTTP port of a broker?"
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
        return self._agreed(lambda: self._followed(method, path, data, {}, _whole))

    def listen(self, path: str, after: str, take: Callable[[Iterable[bytes]], T]) -> T:
        """Pass the lines of a stream to `take` as they come, and return its result; `after`: the id
        of the last event that was seen. Raises as `send` does.
        """
        headers = {"Accept": "text/event-stream", **({"Last-Event-ID": after} if after else {})}

        def lines(answer: HTTPResponse) -> T:
            return take(iter(lambda: answer.readline(LINE_BYTES_MAX), b""))

        return self._agreed(lambda: self._followed("GET", path, None, headers, lines))

    def _agreed(self, ask: Callable[[], T]) -> T:
        """Ask again, for `AGREE_S` at most, while brokers send each other the request, because they
        do not agree yet on the owner or the leader.
        """
        until_s = time.monotonic() + min(AGREE_S, self._timeout_s)
        while True:
            try:
                return ask()
            except (AnsweredError, _LoopError) as error:
                loops = isinstance(error, _LoopError) or error.undecided
                if not loops or time.monotonic() >= until_s:
                    raise
                time.sleep(AGAIN_S)

    def _followed(
        self,
        method: str,
        path: str,
        data: bytes | None,
        headers: Mapping[str, str],
        take: Callable[[Any], T],
    ) -> T:
        """Ask, and follow redirects."""
        url = f"{self.url}{path}"
        named = self._to_broker(self._to) if self._to else {}
        more: Mapping[str, str] = {**headers, **named, FOLLOW: "true"}
        for _ in range(REDIRECTS_MAX):
            if self._token:
                self._trusted.require(url)
            try:
                return self._once(method, url, data, more, take)
            except _RedirectedError as elsewhere:
                url, more = self._redirected(url, elsewhere.url), headers
            except AnsweredError as error:
                if error.status != MISDIRECTED or FOLLOW not in more:
                    raise
                more = {**headers, **named}  # it redirects then
        raise _LoopError(
            f"{method} {path}: more than {REDIRECTS_MAX} redirects; the brokers do not agree on "
            "the owner or the leader; try again"
        )

    @staticmethod
    def _redirected(url: str, location: str) -> str:
        """The next URL. Raises `OperationalError` for what no broker redirects to."""
        target = ""
        with contextlib.suppress(ValueError):
            target = urljoin(url, location)
        before, after = place_of(url), place_of(target)
        if after is None:
            raise OperationalError(f"{url} redirects to {location[:REASON_MAX]}, which is no URL")
        if before is not None and (before.secure and not after.secure):
            raise OperationalError(f"{before} redirects to {after}, without TLS: nothing is sent")
        return target

    def _taken(self, request: urllib.request.Request, take: Callable[[Any], T], where: str) -> T:
        def answer() -> T:
            with self._opener.open(request, timeout=self._timeout_s) as answer:
                return take(answer)

        if self._timeout_s <= PATIENCE_S + SIGN_S or take is not _whole:
            return answer()
        try:
            return while_it_lives(answer, partial(self._lives, request.full_url))
        except SilentError:
            raise OperationalError(
                f"{where} does not answer, for {PATIENCE_S + SIGN_S:g} s now: its process may be "
                f"frozen; --url names another broker{_later(request)}"
            ) from None

    def answers(self) -> bool:
        """Whether this broker answers anything in time."""
        return self._sign(self.url) == ""

    def _lives(self, url: str) -> bool:
        """Whether whoever is asked at this URL gives a sign, or is no longer there."""
        return self._sign(url) != SILENT

    def _sign(self, url: str) -> str:
        """Empty if there is an answer, of any kind; else why there is none."""
        try:
            sign = urllib.request.Request(urljoin(url, STATUS))
            self._opener.open(sign, timeout=SIGN_S).close()
        except urllib.error.HTTPError:
            return ""
        except (OSError, HTTPException, ValueError) as error:
            why = getattr(error, "reason", None) or error
            return SILENT if isinstance(why, TimeoutError) else said(why)
        return ""

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
        where = f"{UNIX}{self._unix}" if self._unix else str(place_of(url) or url)
        began_s = time.monotonic()
        try:
            return self._taken(request, take, where)
        except urllib.error.HTTPError as error:
            with error:
                if error.code in (307, 308) and error.headers.get("Location"):
                    raise _RedirectedError(error.headers["Location"]) from None
                reason = _why(error, request)
            advice = f"; {ADVICE[error.code]}" if error.code in ADVICE else ""
            passed_on = BROKER in error.headers
            if passed_on and more.get(BROKER):
                where = more[BROKER]  # which gave this answer
            text = f"{where} answered {error.code}: {reason}{advice}"
            if passed_on and error.code in UNREACHED:
                text = str(reason)  # which names the other broker
            undecided = UNDECIDED in error.headers
            raise AnsweredError(
                text, error.code, passed_on=passed_on, undecided=undecided
            ) from None
        except TimeoutError:
            raise OperationalError(
                f"{where} did not answer within {time.monotonic() - began_s:.1f} s; --timeout "
                f"allows more{_later(request)}"
            ) from None
        except HTTPException as error:
            text = _not_http(where)
            if isinstance(error, RemoteDisconnected):
                refused = f"{WANTED}, or " if url.startswith("https:") else ""
                text += (
                    f". If it does, {refused}the broker has ended, and whether it did what it was "
                    "asked is not known"
                )
            raise OperationalError(text) from None
        except (OSError, ValueError) as error:
            why = getattr(error, "reason", None) or error
            if self._unix:
                text = f"no answer from {where}: {said(why)}; is the daemon running?"
                raise OperationalError(text) from None
            raise OperationalError(_no_answer(where, why)) from None


def _why(error: urllib.error.HTTPError, request: urllib.request.Request) -> str:
    """What an answer with an error says, or that there is nothing where it was asked."""
    reason = _reason(error.read(ANSWER_BYTES_MAX)) or str(error.reason)
    if error.code == NOT_FOUND and BARE.fullmatch(reason):
        return f"there is nothing at {request.selector.partition('?')[0]}{NO_BROKER}"
    return reason


def _later(request: urllib.request.Request) -> str:
    """What may become of an order without an answer; empty for a question."""
    return "" if request.get_method() == "GET" else ". It may still do what it was asked"


def while_it_lives(
    ask: Callable[[], T], lives: Callable[[], bool], patience_s: float = PATIENCE_S
) -> T:
    """What `ask` returns, or raises, however long it takes, as long as there is a sign of life:
    else raises `SilentError`, and leaves it alone.
    """
    answers: SimpleQueue[tuple[T | None, BaseException | None]] = SimpleQueue()

    def work() -> None:
        try:
            answers.put((ask(), None))
        except BaseException as error:  # noqa: BLE001 - the caller gets it
            answers.put((None, error))

    threading.Thread(target=work, name="ask", daemon=True).start()
    while True:
        try:
            answer, error = answers.get(timeout=patience_s)
        except Empty:
            if not lives() and answers.empty():
                raise SilentError from None
            continue
        if error is not None:
            raise error
        return cast(T, answer)


def _passed_on(answer: HTTPResponse) -> bool:
    return BROKER in answer.headers


def _not_http(where: str) -> str:
    """Why a port that answers does not answer a request."""
    place = place_of(where)
    if place is not None and not place.secure and _speaks_tls(place.host, place.port):
        return f"{where} speaks TLS: --url https://{place.netloc} is right for an HTTPS port"
    return (
        f"{where} does not speak HTTP; --url needs the HTTP port of a broker, not the port of the "
        "binary protocol"
    )


def _no_answer(where: str, reason: object) -> str:
    scheme, _, netloc = where.partition("://")
    if isinstance(reason, ssl.SSLCertVerificationError):
        return (
            f"{where} is not trusted: {reason.verify_message or reason}; --tls-trust-certs FILE "
            "names the authority that signed its certificate"
        )
    if isinstance(reason, ssl.SSLError) and "WRONG_VERSION_NUMBER" in str(reason):
        return f"{where} does not speak TLS: --url http://{netloc} is right for an HTTP port"
    if isinstance(reason, ConnectionResetError) and scheme == "http":
        return _not_http(where)
    if isinstance(reason, ConnectionResetError | ssl.SSLEOFError):
        return f"{where} has hung up: {WANTED}, or the broker has ended"
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


def decoded(raw: bytes | str, shape: type[T]) -> tuple[T, Any]:
    """A JSON document of this shape, and the whole of it as it came. Raises `ValueError`, of which
    `msgspec.ValidationError` says what is wrong with the shape.
    """
    try:
        document = msgspec.json.decode(raw)
        size = raw.encode() if isinstance(raw, str) else raw
        if nests_deeper(document, size, STORED_LEVELS_MAX):
            raise msgspec.ValidationError("it nests too deeply")
        return converted(document, shape), document
    except RecursionError:
        raise msgspec.ValidationError("it nests too deeply") from None


def _base(url: str) -> str:
    place = place_of(url if "://" in url else f"http://{url}")
    if place is None:
        raise BadInputError(f"--url {url}: http://host:port or unix:/path is expected")
    return str(place)


def _reason(raw: bytes) -> str:
    try:
        document, _ = decoded(raw, dict[str, Any])
    except msgspec.ValidationError:
        return ""
    except ValueError:
        if raw.lstrip().startswith(b"<"):
            return ""  # a page of something else than a broker
        return printable(raw.decode(errors="replace")[:REASON_MAX])
    return printable(str(document.get("reason", ""))[:REASON_MAX])
