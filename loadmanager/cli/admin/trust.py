"""Whom the token of an operator is sent: the broker that he named, and those that it lists."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from urllib.parse import urlsplit

from loadmanager.kit.errors import OperationalError
from loadmanager.kit.text import printable

PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Origin:
    """Scheme, host and port of a URL."""

    scheme: str
    host: str
    port: int
    netloc: str
    """As it is written."""

    @property
    def secure(self) -> bool:
        """True if it is reached over TLS."""
        return self.scheme == "https"

    def __str__(self) -> str:
        """A URL without a path."""
        return f"{self.scheme}://{self.netloc}"


def place_of(url: str) -> Origin | None:
    """Where a URL leads; None for one that no broker has."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return None
    if parts.scheme not in PORTS or not parts.hostname or port == 0 or "@" in parts.netloc:
        return None
    netloc = parts.netloc
    if not netloc.isprintable() or " " in netloc:
        return None
    return Origin(parts.scheme, parts.hostname, port or PORTS[parts.scheme], netloc)


class Trusted:
    """The places that the token may be sent to. `listed`: asks for the URLs of the brokers."""

    def __init__(self, url: str, listed: Callable[[], Iterable[str]]) -> None:
        self._url, self._listed = url, listed
        self._named = place_of(url)
        self._places = {self._key(self._named)}
        self._asking = threading.Lock()

    @staticmethod
    def _key(place: Origin | None) -> tuple[str, str, int] | None:
        return None if place is None else (place.scheme, place.host.lower(), place.port)

    def require(self, url: str) -> None:
        """Raise `OperationalError` unless the token may be sent there. Asks for the list when a
        place is not known yet: a broker may be new.
        """
        place = place_of(url)
        if place is None:
            raise OperationalError(f"{printable(url)} is no address of a broker")
        if self._named is not None and self._named.secure and not place.secure:
            text = f"{place} has no TLS, and {self._url} has: the token is not sent there"
            raise OperationalError(text)
        with self._asking:  # of several threads, one
            if self._key(place) not in self._places:
                self._learn(place)
        if self._key(place) not in self._places:
            text = f"{place} is not among the brokers that {self._url} lists"
            raise OperationalError(f"{text}: the token is not sent there")

    def _learn(self, wanted: Origin) -> None:
        try:
            self._places |= {self._key(place_of(each)) for each in self._listed() if each}
        except OperationalError as error:
            text = f"the token is not sent to {wanted}, which may not be a broker of the cluster"
            raise OperationalError(f"{text}: {error}") from None
