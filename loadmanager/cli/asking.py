"""Asks a broker over HTTP: redirects are followed with method and body, failures become errors that
say what to do.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any
from urllib.parse import urljoin, urlsplit

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
        """Let a redirect surface: the standard one would forget method and body."""


class Asking:
    """One broker as the place to ask first.

    Proxies of the environment are not used: brokers name each other by internal addresses.
    """

    def __init__(self, url: str, *, timeout_s: float) -> None:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise BadInputError(f"--url {url}: http://host:port is expected")
        self.url = f"{parts.scheme}://{parts.netloc}"
        self._timeout_s = timeout_s
        self._opener = urllib.request.build_opener(_KeepRedirects, urllib.request.ProxyHandler({}))

    def at(self, broker_id: str) -> Asking:
        """The same, asking another broker by its brokerId."""
        return Asking(f"http://{broker_id}", timeout_s=self._timeout_s)

    def get(self, path: str) -> Any:
        """The answer to a GET, parsed if it is JSON."""
        return self.ask("GET", path)

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """The answer, parsed if it is JSON.

        Raises `BadInputError` for what the broker says is wrong, `OperationalError` for all else.
        """
        url = f"{self.url}{path}"
        data = None if body is None else json.dumps(body).encode()
        for _ in range(REDIRECTS_MAX):
            try:
                return self._once(method, url, data)
            except _RedirectedError as elsewhere:
                url = urljoin(url, elsewhere.url)
        raise OperationalError(
            f"{method} {path}: more than {REDIRECTS_MAX} redirects; the brokers do not agree who "
            "is responsible"
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
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", None) or error
            raise OperationalError(
                f"cannot ask {where}: {reason}\n"
                "  is a broker running there? `loadmanager standalone` starts some; --url "
                "http://host:port says where another one is"
            ) from None


def _parsed(raw: bytes) -> Any:
    try:
        return json.loads(raw) if raw else None
    except ValueError:
        return raw.decode(errors="replace")


def _reason(raw: bytes) -> str:
    document = _parsed(raw)
    return str(document.get("reason", "")) if isinstance(document, dict) else ""
