"""The servers of a ZooKeeper ensemble, by the four-letter words that they answer."""

from __future__ import annotations

import contextlib
import re
import socket
import ssl
import time
from concurrent.futures import ThreadPoolExecutor

from loadmanager.kit.errors import said
from loadmanager.kit.model import Shape

PORT = 2181
ANSWER_BYTES_MAX = 64 * 1024
TRIES = 3
_FIELD = re.compile(r"^([\w/ ]+?):\s+(.+)$", re.MULTILINE)


class ServerShown(Shape):
    """The answers of one server."""

    address: str
    failure: str = ""
    """Why it did not answer; empty: it did."""
    refuses: bool = False
    """It answers, and does not allow `srvr`."""
    mode: str = ""
    """leader, follower, observer or standalone."""
    answer_ms: float = 0.0
    """The quickest of some answers, with the connection."""
    latency_ms: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """Least, mean and longest time for a request since the server started, as it tells."""
    outstanding: int = 0
    """Requests that wait in the server."""
    tick_ms: int = 0
    """Its `tickTime`; 0 unless it allows the word `conf`."""


def read(hosts: str, timeout_s: float, tls: ssl.SSLContext | None = None) -> list[ServerShown]:
    """Ask all servers of `host:port,host:port` at the same time, with TLS if it is given; takes 4 ×
    `timeout_s` at most.
    """
    addresses = [host.strip() for host in hosts.split(",") if host.strip()][:99]
    with ThreadPoolExecutor(max(len(addresses), 1)) as threads:
        return list(threads.map(lambda address: _ask(address, timeout_s, tls), addresses))


def _ask(address: str, timeout_s: float, tls: ssl.SSLContext | None) -> ServerShown:
    host, _, port = (
        address.rpartition(":") if re.search(r":[0-9]+$", address) else (address, "", "")
    )
    text, took_ms, failure = "", float("inf"), ""
    until_s = time.monotonic() + timeout_s
    for _ in range(TRIES):
        began_s = time.monotonic()
        if text and began_s > until_s:
            break  # it is slow: one answer is enough
        try:
            text = _word(host.strip("[]"), int(port or PORT), "srvr", timeout_s, tls)
        except OSError as error:
            failure = said(error)
            break
        took_ms = min(took_ms, (time.monotonic() - began_s) * 1000)
    if not text and failure:
        return ServerShown(address=address, failure=failure)
    if "Mode" not in text:
        refuses = "not in the whitelist" in text or "not executed" in text
        return ServerShown(address=address, failure="" if refuses else _not(text), refuses=refuses)
    fields = dict(_FIELD.findall(text))
    try:
        conf = _word(host.strip("[]"), int(port or PORT), "conf", timeout_s, tls)
    except OSError:
        conf = ""
    tick = re.search(r"^tickTime=(\d{1,9})$", conf, re.MULTILINE)
    times = [float(part) for part in re.findall(r"[\d.]+", fields.get("Latency min/avg/max", ""))]
    return ServerShown(
        address=address,
        mode=fields["Mode"],
        answer_ms=took_ms,
        latency_ms=(times[0], times[1], times[2]) if len(times) == 3 else (0.0, 0.0, 0.0),
        outstanding=int(fields.get("Outstanding", "0")),
        tick_ms=int(tick[1]) if tick else 0,
    )


def _not(text: str) -> str:
    return f"does not answer as ZooKeeper does: {text[:60]!r}" if text else "closed the connection"


def _word(host: str, port: int, word: str, timeout_s: float, tls: ssl.SSLContext | None) -> str:
    """Send a four-letter word; returns the answer. Raises `OSError`."""
    until_s = time.monotonic() + timeout_s
    parts: list[bytes] = []
    with contextlib.ExitStack() as stack:
        connection = stack.enter_context(socket.create_connection((host, port), timeout=timeout_s))
        if tls is not None:
            connection = stack.enter_context(tls.wrap_socket(connection, server_hostname=host))
        connection.sendall(word.encode())
        while sum(map(len, parts)) < ANSWER_BYTES_MAX:
            connection.settimeout(max(until_s - time.monotonic(), 0.001))
            part = connection.recv(4096)
            if not part:
                break
            parts.append(part)
    return b"".join(parts).decode(errors="replace")
