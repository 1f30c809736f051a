"""The four-letter words, for people and monitoring. Source: ZooKeeper 3.9's `server.command`."""

from __future__ import annotations

import platform
from dataclasses import dataclass

from loadmanager.kit.zookeeper.embedded.sessions import TIMEOUT_MS_MAX, TIMEOUT_MS_MIN

PROTOCOL_VERSION = "3.9.5"
"""The version of ZooKeeper that answers alike."""
VERSION = f"{PROTOCOL_VERSION}-loadmanager-embedded"


@dataclass(frozen=True, slots=True)
class StoreFigures:
    """What the words show. Times are in milliseconds."""

    port: int
    data_dir: str
    tick_ms: int
    connections: tuple[str, ...]
    """A line for each."""
    requests: int
    answers: int
    waiting: int
    mean_ms: float
    longest_ms: int
    zxid: int
    nodes: int
    watches: int
    ephemerals: int
    sessions: int
    cost_bytes: int


def _summary(figures: StoreFigures) -> list[str]:
    return [
        f"Latency min/avg/max: 0/{figures.mean_ms:.4f}/{figures.longest_ms}",
        f"Received: {figures.requests}",
        f"Sent: {figures.answers}",
        f"Connections: {len(figures.connections)}",
        f"Outstanding: {figures.waiting}",
        f"Zxid: {figures.zxid:#x}",
        "Mode: standalone",
        f"Node count: {figures.nodes}",
    ]


def _server(figures: StoreFigures) -> list[str]:
    return [f"Zookeeper version: {VERSION}", *_summary(figures)]


def _stat(figures: StoreFigures) -> list[str]:
    clients = [f" {line}" for line in figures.connections]
    return [f"Zookeeper version: {VERSION}", "Clients:", *clients, "", *_summary(figures)]


def _connections(figures: StoreFigures) -> list[str]:
    return [f" {line}" for line in figures.connections]


def _configuration(figures: StoreFigures) -> list[str]:
    return [
        f"clientPort={figures.port}",
        f"dataDir={figures.data_dir}",
        f"tickTime={figures.tick_ms}",
        f"minSessionTimeout={TIMEOUT_MS_MIN}",
        f"maxSessionTimeout={TIMEOUT_MS_MAX}",
        "serverId=0",
    ]


def _environment(_figures: StoreFigures) -> list[str]:
    return [
        "Environment:",
        f"zookeeper.version={VERSION}",
        f"python.version={platform.python_version()}",
    ]


def _monitor(figures: StoreFigures) -> list[str]:
    values = {
        "version": VERSION,
        "server_state": "standalone",
        "avg_latency": f"{figures.mean_ms:.4f}",
        "max_latency": figures.longest_ms,
        "min_latency": 0,
        "packets_received": figures.requests,
        "packets_sent": figures.answers,
        "num_alive_connections": len(figures.connections),
        "outstanding_requests": figures.waiting,
        "znode_count": figures.nodes,
        "watch_count": figures.watches,
        "ephemerals_count": figures.ephemerals,
        "global_sessions": figures.sessions,
        "approximate_data_size": figures.cost_bytes,
    }
    return [f"zk_{name}\t{value}" for name, value in values.items()]


WORDS = {
    b"srvr": _server,
    b"stat": _stat,
    b"cons": _connections,
    b"conf": _configuration,
    b"envi": _environment,
    b"mntr": _monitor,
}
FIXED = {b"ruok": b"imok", b"isro": b"rw"}
"""Words whose answer never changes."""


def is_word(start: bytes) -> bool:
    """True if a connection that begins so wants the answer to a word."""
    return start in WORDS or start in FIXED


def answer_to(word: bytes, figures: StoreFigures) -> bytes:
    """The answer to a word."""
    if word in FIXED:
        return FIXED[word]
    return "".join(f"{line}\n" for line in WORDS[word](figures)).encode()
