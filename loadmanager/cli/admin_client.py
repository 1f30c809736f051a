"""The admin API over HTTP: follows redirects with method and body; errors say what to do."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from http.client import HTTPException
from typing import Any
from urllib.parse import SplitResult, urljoin, urlsplit

from loadmanager.core.errors import BadInputError, OperationalError

REDIRECTS_MAX = 20
ANSWER_BYTES_MAX = 64 * 1024 * 1024
REFUSED_AS_INPUT = (400, 405, 406, 412, 413)


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

    def __init__(self, url: str, *, timeout_s: float) -> None:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        if (
            parts.scheme not in ("http", "https")
            or not parts.hostname
            or not _has_valid_port(parts)
        ):
            raise BadInputError(f"--url {url}: http://host:port is expected")
        self.url = f"{parts.scheme}://{parts.netloc}"
        self._timeout_s = timeout_s
        self._opener = urllib.request.build_opener(_KeepRedirects, urllib.request.ProxyHandler({}))

    def at(self, broker_id: str) -> AdminClient:
        """A client for another broker, named by its brokerId."""
        return AdminClient(f"http://{broker_id}", timeout_s=self._timeout_s)

    def get(self, path: str) -> Any:
        """The body of the answer to a GET, parsed if it is JSON; None for an empty body."""
        return self.send("GET", path)

    def send(self, method: str, path: str, body: Any = None) -> Any:
        """The body of the answer, parsed if it is JSON; None for an empty body.

        Raises `BadInputError` if the broker refuses the request as wrong, `OperationalError` for
        any other failure.
        """
        url = f"{self.url}{path}"
        data = None if body is None else json.dumps(body).encode()
        for _ in range(REDIRECTS_MAX):
            try:
                return self._once(method, url, data)
            except _RedirectedError as elsewhere:
                url = urljoin(url, elsewhere.url)
        raise OperationalError(
            f"{method} {path}: more than {REDIRECTS_MAX} redirects; the brokers do not agree on "
            "the owner or the leader; try again"
        )

    def _once(self, method: str, url: str, data: bytes | None) -> Any:
        headers = {
            "Accept": "application/json",
            **({"Content-Type": "application/json"} if data is not None else {}),
        }
        request = urllib.request.Request(url, data=data, method=method, headers=headers)
        where = f"{urlsplit(url).scheme}://{urlsplit(url).netloc}"
        try:
            with self._opener.open(request, timeout=self._timeout_s) as answer:
                return _parsed(answer.read(ANSWER_BYTES_MAX))
        except urllib.error.HTTPError as error:
            with error:
                if error.code in (307, 308) and error.headers.get("Location"):
                    raise _RedirectedError(error.headers["Location"]) from None
                text = (
                    f"{where} answered {error.code}: "
                    f"{_reason(error.read(ANSWER_BYTES_MAX)) or error.reason}"
                )
            raise (
                BadInputError(text) if error.code in REFUSED_AS_INPUT else OperationalError(text)
            ) from None
        except TimeoutError:
            raise OperationalError(
                f"{where} did not answer within {self._timeout_s:g} s; --timeout allows more"
            ) from None
        except HTTPException:
            raise OperationalError(
                f"{where} does not speak HTTP; --url needs the HTTP port of a broker, not the "
                "port of the binary protocol"
            ) from None
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", None) or error
            raise OperationalError(
                f"no answer from {where}: {reason}; is this the HTTP port of a running broker? "
                "--url http://host:port names another"
            ) from None


def _has_valid_port(parts: SplitResult) -> bool:
    try:
        return parts.port != 0
    except ValueError:
        return False


def _parsed(raw: bytes) -> Any:
    try:
        return json.loads(raw) if raw else None
    except ValueError:
        return raw.decode(errors="replace")


def _reason(raw: bytes) -> str:
    document = _parsed(raw)
    return str(document.get("reason", "")) if isinstance(document, dict) else ""
