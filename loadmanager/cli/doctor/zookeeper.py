"""The ZooKeeper ensemble, by the four-letter words that its servers answer."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from loadmanager.cli.doctor.findings import Diagnosis, fine, named, problem, warning
from loadmanager.kit.errors import said

PART = "ZooKeeper"
PORT = 2181
ANSWER_BYTES_MAX = 64 * 1024
TRIES = 3
LATENCY_SHARE_MAX = 0.1
"""A server that needs a larger share of the session timeout for an answer is slow."""
TICKS_MIN, TICKS_ADVISED = 4, 10
"""Ticks in a session timeout; see `kit.zookeeper.heartbeat.LEASE_FRACTION`."""
_FIELD = re.compile(r"^([\w/ ]+?):\s+(.+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Server:
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


def read(hosts: str, timeout_s: float) -> list[Server]:
    """Ask all servers of `host:port,host:port` at the same time; takes 3 × `timeout_s` at most."""
    addresses = [host.strip() for host in hosts.split(",") if host.strip()][:99]
    with ThreadPoolExecutor(max(len(addresses), 1)) as threads:
        return list(threads.map(lambda address: _ask(address, timeout_s), addresses))


def _ask(address: str, timeout_s: float) -> Server:
    host, _, port = (
        address.rpartition(":") if re.search(r":[0-9]+$", address) else (address, "", "")
    )
    text, took_ms = "", float("inf")
    try:
        for _ in range(TRIES):
            began_s = time.monotonic()
            text = _word(host.strip("[]"), int(port or PORT), "srvr", timeout_s)
            took_ms = min(took_ms, (time.monotonic() - began_s) * 1000)
    except OSError as error:
        return Server(address, failure=said(error))
    if "Mode" not in text:
        refuses = "not in the whitelist" in text or "not executed" in text
        return Server(address, failure="" if refuses else _not(text), refuses=refuses)
    fields = dict(_FIELD.findall(text))
    try:
        conf = _word(host.strip("[]"), int(port or PORT), "conf", timeout_s)
    except OSError:
        conf = ""
    tick = re.search(r"^tickTime=(\d{1,9})$", conf, re.MULTILINE)
    times = [float(part) for part in re.findall(r"[\d.]+", fields.get("Latency min/avg/max", ""))]
    return Server(
        address,
        mode=fields["Mode"],
        answer_ms=took_ms,
        latency_ms=(times[0], times[1], times[2]) if len(times) == 3 else (0.0, 0.0, 0.0),
        outstanding=int(fields.get("Outstanding", "0")),
        tick_ms=int(tick[1]) if tick else 0,
    )


def _not(text: str) -> str:
    return f"does not answer as ZooKeeper does: {text[:60]!r}" if text else "closed the connection"


def _word(host: str, port: int, word: str, timeout_s: float) -> str:
    """Send a four-letter word; returns the answer. Raises `OSError`."""
    until_s = time.monotonic() + timeout_s
    parts: list[bytes] = []
    with socket.create_connection((host, port), timeout=timeout_s) as connection:
        connection.sendall(word.encode())
        while sum(map(len, parts)) < ANSWER_BYTES_MAX:
            connection.settimeout(max(until_s - time.monotonic(), 0.001))
            part = connection.recv(4096)
            if not part:
                break
            parts.append(part)
    return b"".join(parts).decode(errors="replace")


def check(servers: Sequence[Server], session_timeout_ms: int) -> Iterator[Diagnosis]:
    """Findings about an ensemble whose servers stand in `metadataStoreUrl`."""
    dead = [server for server in servers if server.failure]
    alive = [server for server in servers if not server.failure]
    for server in dead:
        quorum = 2 * len(alive) > len(servers)
        left = "the others have a quorum" if quorum else "the others have no quorum"
        advice = "start it, or mend metadataStoreUrl and the network between"
        made = warning if quorum else problem
        yield made(PART, server.address, f"{server.failure}; {left}", advice)
    for server in alive:
        yield _of_server(server, session_timeout_ms)
    with_mode = [server for server in alive if server.mode]
    if len(with_mode) == len(servers) and all(
        server.mode in ("follower", "observer") for server in with_mode
    ):
        yield problem(
            PART,
            "leader",
            "none of the servers in metadataStoreUrl leads",
            "list all servers of the ensemble in metadataStoreUrl, or look into their logs",
        )
    lonely = [server.address for server in with_mode if server.mode == "standalone"]
    if lonely and len(servers) > 1:
        yield problem(
            PART,
            named(lonely),
            "is a server of its own, not a member of an ensemble",
            "configure the servers as one ensemble: brokers that reach different ones would both "
            "own a bundle",
        )
    yield from _size(len(servers))


def _of_server(server: Server, session_timeout_ms: int) -> Diagnosis:
    if server.refuses:
        text = "answers, and does not allow the four-letter word srvr"
        advice = "4lw.commands.whitelist=srvr in zoo.cfg lets the doctor see its mode and latency"
        return warning(PART, server.address, text, advice)
    _, mean, longest = server.latency_ms
    text = (
        f"{server.mode}, answers within {server.answer_ms:.1f} ms; requests took {mean:.1f} ms in "
        f"the mean, {longest:g} ms at most"
    )
    slow_ms = session_timeout_ms * LATENCY_SHARE_MAX
    if server.answer_ms > slow_ms or mean > slow_ms:
        return problem(
            PART,
            server.address,
            f"{text}: too slow for a session timeout of {session_timeout_ms} ms",
            "give ZooKeeper a disk of its own and enough memory, or raise "
            "metadataStoreSessionTimeoutMillis",
        )
    if session_timeout_ms < TICKS_ADVISED * server.tick_ms:
        made = problem if session_timeout_ms < TICKS_MIN * server.tick_ms else warning
        return made(
            PART,
            server.address,
            f"{text}; its tickTime is {server.tick_ms} ms, and the session timeout "
            f"{session_timeout_ms} ms",
            f"give metadataStoreSessionTimeoutMillis {TICKS_ADVISED} ticks or more: with less than "
            f"{TICKS_MIN}, a broker may trust a session that is over",
        )
    if longest > session_timeout_ms / 3 or server.outstanding > 1000:
        return warning(
            PART,
            server.address,
            f"{text}; {server.outstanding} wait",
            "the longest request was near the end of a session: look at its disk and its garbage "
            "collection, or raise metadataStoreSessionTimeoutMillis",
        )
    return fine(PART, server.address, text)


def _size(servers: int) -> Iterator[Diagnosis]:
    if servers == 1:
        text = "there is one server: without it, brokers serve only stored topics that are open"
        yield warning(PART, "ensemble", text, "run three servers or five")
    elif servers % 2 == 0:
        text = f"{servers} servers survive no more failures than {servers - 1}"
        yield warning(PART, "ensemble", text, "run an odd number of servers")
