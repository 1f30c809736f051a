"""What the servers of a ZooKeeper ensemble say of themselves, judged."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from loadmanager.cli.doctor.findings import Diagnosis, fine, problem, warning
from loadmanager.cli.terminal import named
from loadmanager.kit.zookeeper.ensemble import ServerShown

PART = "ZooKeeper"
LATENCY_SHARE_MAX = 0.1
"""A server that needs a larger share of the session timeout for an answer is slow."""
TICKS_MIN, TICKS_ADVISED = 4, 10
"""Ticks in a session timeout; see `kit.zookeeper.heartbeat.LEASE_FRACTION`."""


def check(servers: Sequence[ServerShown], session_timeout_ms: int) -> Iterator[Diagnosis]:
    """Findings about an ensemble whose servers stand in `metadataStoreUrl`."""
    dead = [server for server in servers if server.failure]
    alive = [server for server in servers if not server.failure]
    for server in dead:
        quorum = 2 * len(alive) > len(servers)
        left = "the others have a quorum" if quorum else "the others have no quorum"
        if len(servers) == 1:
            left = "it is the only one"
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


def _of_server(server: ServerShown, session_timeout_ms: int) -> Diagnosis:
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
