"""`loadmanager admin` against servers that mean it no good."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import json
import random
import re
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click
import msgspec
import pytest
from broker.admin.serving import serving
from kit.security.certificates import Authority, Pair
from kit.security.tokens import ADMIN, VALUES, token, verifier
from leader.documents import a_broker_shown, a_cluster_shown, a_move_shown
from structlog.testing import capture_logs

from loadmanager.cli import main
from loadmanager.cli.admin import command as admin_command
from loadmanager.engine.history.archived import BROKER as ARCHIVED_BROKER
from loadmanager.engine.strategies.sealed import BOUNDS
from loadmanager.kit.http.passing_on import UNDECIDED
from loadmanager.leader.documents.cluster import BundleShown
from loadmanager.leader.documents.members import AbsentBroker

SEED = 34
BUNDLE = "acme/orders/0x00000000_0x40000000"
TOPIC = "persistent://acme/orders/new"
BROKER = "BROKER"
"""Stands for the server, in answers and on command lines."""
MOVE: dict[str, Any] = {
    **msgspec.to_builtins(a_move_shown(source=BROKER, destination=BROKER)),
    "pinnedUntil": 1,
}
PLAN: dict[str, Any] = {
    "strategy": "s",
    "unloads": [
        {"bundle": BUNDLE, "source": "a", "destination": "b", "reason": "r", "why": {"n": 1.0}}
    ],
    "placements": [
        {"bundle": BUNDLE, "broker": "b", "candidates": ["b"], "rejected": {"c": "too full"}}
    ],
    "splits": [{"bundle": BUNDLE, "boundaries": ["0x1"], "reason": "r", "why": {"n": "x"}}],
    "skipped": [{"what": BUNDLE, "reason": "C: why"}],  # as 0.3.0 tells it
}
SEALED = {
    "id": "p",
    "state": "ready",
    "createdAt": 1,
    "expiresAt": 2,
    "executedAt": None,
    "epoch": 1,
    "shedder": "s",
    "placement": "p",
    "settings": {"a": "b"},
    "unloadCount": 1,
    "basedOn": {"at": 1, "brokers": 0, "averageUsage": None, "loads": {}},
    "bounds": msgspec.to_builtins(BOUNDS),
    "plan": PLAN,
    "moves": [MOVE],
}
GOAL = {
    "id": "7-g1",
    "goal": {"kind": "even", "withinPoints": 5},
    "limits": {"untilMs": 9, "windows": ["22:00-06:00"], "stay": ["acme"]},
    "state": "approved",
    "madeMs": 1,
    "approvedMs": 2,
    "endedMs": None,
    "ended": None,
    "note": "n",
    "promise": {
        "curve": [
            {"moves": n, "traffic": n, "clients": n, "spread": 0.1, "farthest": 0.2} for n in (0, 1)
        ],
        "reached": True,
        "ends": {"code": "Reached"},
        "later": {"code": "GracePeriod", "text": "t"},
        "error": 0.1,
    },
    "progress": {"ordered": 1, "arrived": 1, "farthest": 0.1},
    "waits": {"code": "Paused", "text": "t"},
    "pauseSeconds": 1.0,
    "pauseSource": "canary",
    "pauseAt": 1,
    "moves": [{"bundle": BUNDLE, "source": "a", "destination": "b", "why": {"usage": 1}}],
}
OF_DAEMON = {
    "name": "a",
    "port": 1,
    "mode": "act",
    "state": "leads",
    "why": None,
    "brokers": 3,
    "lowestUsage": 0.1,
    "highestUsage": 0.5,
    "held": "Paused: t",
    "openGoals": 1,
    "readAt": 1,
}
CORDON = {
    "broker": BROKER,
    "since": 1,
    "note": "n",
    "state": "drained",
    "active": True,
    "untilRestart": False,
    "total": 2,
    "left": 0,
    "moved": 2,
    "failed": 1,
    "movesPerMinute": 1.0,
    "secondsLeft": 1,
    "problem": "p",
}
PIN = {"broker": "b", "until": 1, "note": ""}
UNDONE = {
    "seal": "s",
    "steps": [
        {"id": "c-1-100", "what": "w", "of": of, "now": '{"a": 1}', "then": "{}"}
        for of in ("/admin/policies/a/b", BUNDLE)
    ],
    "cannot": [{"id": "7-1", "what": "w", "of": "o", "why": "y"}],
    "moves": ["7-3"],
    "notQueued": {BUNDLE: "w"},
}
STORY = {
    **dict.fromkeys(BundleShown.__struct_encode_fields__),
    "bundle": BUNDLE,
    "owner": BROKER,
    "ownedSinceExact": True,
    "moving": False,
    "at": 1,
    "replacedBy": [],
    "average": None,
    "pin": PIN,
    "move": None,
    "history": [],
}
RESOURCE = {"usage": 1.0, "limit": 2.0}
TRAFFIC = {"msgRateIn": 1.0, "msgRateOut": 1, "msgThroughputIn": 1.0, "msgThroughputOut": 1.0}
HEAD = {"id": "1-1", "ts": 1_700_000_000_000, "epoch": 1, "cycle": 1}
DECISION = {
    **HEAD,
    "kind": "shed",
    "times": 2,
    "firstAt": 1_700_000_000_000,
    **PLAN,
    "unloadsCount": 1,
    "rejectedAt": 1_700_000_000_000,
    "outcome": MOVE["outcome"],
}
FINDING = {
    "kind": "flapping",
    "about": BUNDLE,
    "since": 1,
    "title": f"{BUNDLE} moved back and forth",
    "text": "t",
    "advice": "a",
    "command": f"loadmanager admin decisions --bundle {BUNDLE}",
}
BACKLOG = {
    "topic": TOPIC,
    "bundle": BUNDLE,
    "messages": 5000,
    "rateIn": 1.0,
    "rateOut": 0.0,
    "consumers": 1,
    "subscription": "s",
}
SILENT_TOPIC = {
    "topic": TOPIC,
    "bundle": BUNDLE,
    "published": 1,
    "producers": 1,
    "consumers": 1,
}
BUSY_TOPIC = {
    "topic": TOPIC,
    "bundle": BUNDLE,
    "rateIn": 1.0,
    "rateOut": 0.0,
    "bytesIn": 1e6,
    "bytesOut": 0.0,
    "producers": 1,
    "consumers": 1,
}
EVENT = {
    "id": 1,
    "kind": "change",
    "ts": 1,
    "last": 1,
    "times": 1,
    "record": {
        "kind": "change",
        "ts": 1,
        "broker": BROKER,
        "role": "r",
        "address": "a",
        "over": "http",
        "what": "w",
        "epoch": 1,
        "cycle": 1,
        **dict.fromkeys(("proxied", "path", "before", "after", "note")),
        "strategy": "s",
        "action": "skip",
        "reason": "no",
        "code": "C",
        "bundle": BUNDLE,
    },
}
CLUSTER: dict[str, Any] = {
    **msgspec.to_builtins(
        a_cluster_shown(
            [a_broker_shown(BROKER, usage=0.5, rate=1.0)],
            expected=2,
            absent=[AbsentBroker(broker="b", left_at=1, how="lost", bundles=2, waiting=[BUNDLE])],
        )
    )
}
LOADS = {
    "kind": "bundle_load",
    "broker": BROKER,
    "ts": 1,
    "spanMs": 1,
    "columns": list(ARCHIVED_BROKER),
    "figures": {BUNDLE: [1.0] * len(ARCHIVED_BROKER)},
}
ADDRESSES = {
    "webServiceUrl": "http://BROKER",
    "webServiceUrlTls": "",
    "pulsarServiceUrl": "pulsar://BROKER",
    "pulsarServiceUrlTls": "",
}
CHANGE = {
    **dict.fromkeys(("broker", "role", "address", "over", "what"), "x"),
    **dict.fromkeys(("proxied", "path", "before", "after", "note"), "y"),
    "ts": 1,
}
ANSWERS: list[tuple[str, Any]] = [
    (r"GET .*/brokers", [BROKER]),
    (r"GET .*/leaderBroker", {"brokerId": BROKER, "serviceUrl": "http://BROKER"}),
    (r"GET .*/addresses", {BROKER: ADDRESSES}),
    (r"GET .*/configuration/runtime", {"clusterName": "c"}),
    (r"GET .*/configuration/values", {"key": "value"}),
    (r"GET .*/configuration", ["key"]),
    (r"GET .*/ownedNamespaces", {BUNDLE: {}}),
    (
        r"GET .*/load-report",
        {
            **dict.fromkeys(("cpu", "memory", "directMemory", "bandwidthIn"), RESOURCE),
            **TRAFFIC,
            "numBundles": 1,
            "numTopics": 1,
            "lastStats": {BUNDLE: {"topics": 1, **TRAFFIC}},
            "startTimestamp": 1,
        },
    ),
    (r"GET .*/cordons", [CORDON]),
    (r"PUT .*/cordons/.*", CORDON),
    (r"GET .*/tenants", ["acme"]),
    (r"GET .*/tenants/.*", {"adminRoles": ["a"], "allowedClusters": ["c"]}),
    (r"GET .*/clusters", ["c"]),
    (r"GET .*/namespaces/acme", ["acme/orders"]),
    (r"GET .*/bundles", {"boundaries": ["0x00000000", "0x40000000"], "numBundles": 1}),
    (r"GET .*/namespaces/acme/orders", {"bundles": {"numBundles": 1}}),
    (r"GET .*/resourcegroups", ["g"]),
    (r"GET .*/resourcegroups/.*", {"publishRateInMsgs": 1}),
    (r"GET .*/topics", [TOPIC]),
    (r"GET .*/partitions", {"partitions": 0}),
    (r"GET /lookup/.*", {"brokerUrl": "pulsar://b", "httpUrl": "http://b"}),
    (
        r"GET .*/(partitioned-)?stats",
        {
            "msgRateIn": 1.0,
            "name": "x",
            "subscriptions": {
                "s": {
                    "type": "Shared",
                    "msgBacklog": 1,
                    "unackedMessages": 1,
                    "msgRateOut": 1.0,
                    "consumers": [{}],
                }
            },
            "publishers": [
                {"producerName": "p", "address": "a", "accessMode": "Shared", "msgRateIn": 1.0}
            ],
        },
    ),
    (
        r"GET .*/throttling",
        {
            "producers": [{"producer": "p", "why": "w", "heldSeconds": 1.0}],
            "subscriptions": {"s": {"held": True, "throttledTimes": {"topic": 1}}},
        },
    ),
    (
        r"GET .*/broker-stats/throttling",
        {
            "limits": [
                {
                    "name": "topic x",
                    "configuredMessagesPerS": 1.0,
                    "deliveredMessagesPerS": 1.0,
                    "configuredBytesPerS": -1,
                    "deliveredBytesPerS": 1.0,
                    "error": None,
                    "queueLength": 1,
                }
            ]
        },
    ),
    (r"GET .*/\w+Rate", {"publishThrottlingRateInMsg": 1}),
    (
        r"GET .*/namespaceIsolationPolicies",
        {"iso": {"namespaces": ["n"], "primary": ["p"], "secondary": ["s"]}},
    ),
    (
        r"GET .*/namespaceIsolationPolicies/brokers",
        [{"brokerName": BROKER, "policyName": "iso", "primary": True}],
    ),
    (r"GET .*/cluster", CLUSTER),
    (r"GET .*/loadmanager/v1/clients", {"clients": [], "total": 0, "notAsked": 0, "noAnswer": {}}),
    (
        r"GET .*/loadmanager/v1/backlogs",
        {"brokers": {BROKER: [BACKLOG]}, "notAsked": 0, "noAnswer": {}},
    ),
    (
        r"GET .*/loadmanager/v1/busiest-topics",
        {"brokers": {BROKER: [BUSY_TOPIC]}, "notAsked": 0, "noAnswer": {}},
    ),
    (
        r"GET .*/loadmanager/v1/silent-topics",
        {"at": 1, "brokers": {BROKER: [SILENT_TOPIC]}, "notAsked": 0, "noAnswer": {}},
    ),
    (r"GET .*/loadmanager/v1/members", {"at": 1, "present": [], "expected": 0, "absent": []}),
    (r"GET .*/throttled", {"brokers": {}, "notAsked": 0, "noAnswer": {}}),
    (r"GET .*/findings", {"at": 1, "lookedAt": 1, "findings": [FINDING, FINDING]}),
    (r"GET .*/loadmanager/v1/bundles", {"at": 1, "sort": "rate", "total": 0, "bundles": []}),
    (r"GET .*/archive", {"brokers": [BROKER], "beside": []}),
    (r"GET .*/archive/events.*", {"part": BROKER, "recorded": [], "events": [EVENT]}),
    (r"GET .*/archive/loads.*", {"part": BROKER, "recorded": [], "at": 1, "loads": [LOADS]}),
    (r"GET .*/archive/series.*", {"part": BROKER, "recorded": [], "columns": [], "points": []}),
    (r"GET .*/decisions", {"at": 1, "keptSince": 1, "decisions": [DECISION]}),
    (r"POST .*/dry-runs", SEALED),
    (r"GET .*/plans", {"plans": [SEALED]}),
    (r"(GET|POST) .*/plans/.*", SEALED),
    (r"GET .*/goals", {"goals": [GOAL]}),
    (r"GET .*/v1/clusters", {"name": "a", "clusters": [OF_DAEMON, {"name": "b", "port": 2}]}),
    (r"POST .*/goals", {**GOAL, "state": "proposed"}),
    (r"(GET|POST) .*/goals/.*", GOAL),
    (
        r"GET .*/moves",
        {"paused": {"until": 1, "note": "n"}, "waiting": 0, "running": 0, "moves": [MOVE]},
    ),
    (r"POST .*/moves", MOVE),
    (r"DELETE .*/moves(/[^/]*)?", {"cancelled": 1}),
    (r"PUT .*/moves/pause", {"until": 1, "note": "n"}),
    (r"GET .*/bundles/acme/.*", STORY),
    (
        r"GET .*/changes",
        {"changes": [CHANGE], "notAsked": 1, "noAnswer": {}},
    ),
    (r"(GET|POST) .*/undo", UNDONE),
    (
        r"GET .*/limit-ends",
        [{"of": "acme/orders", "limit": "publishRate", "until": 1, "then": {"a": 1}}],
    ),
    (r"POST .*/roles/app/disconnect", {"brokers": {BROKER: 1}, "noAnswer": {}}),
    (r"GET .*/refused-tokens", {"x": {"since": 1, "until": 2, "note": "n"}}),
    (r"GET .*/pins", {BUNDLE: PIN}),
    (r"POST .*/merges", {"merged": BUNDLE}),
]
"""Method and path → what a broker might answer; the last one that matches counts."""
EVENTS: list[tuple[str, Any]] = [
    ("decision", DECISION),
    ("decision", {**HEAD, "kind": "place", "bundle": BUNDLE, "broker": "b"}),
    ("decision", {**MOVE, **HEAD, "kind": "move", "move": "1-1"}),
    ("move", MOVE),
    ("split", {**HEAD, "kind": "split", **PLAN["splits"][0], "broker": "b", "state": "running"}),
    ("merge", {**HEAD, "kind": "merge", "bundle": BUNDLE, "broker": "b", "reason": "r"}),
    (
        "ownership",
        {"broker": "b", "gained": ["x"], "gainedCount": 1, "lost": ["y"], "lostCount": 5, "at": 1},
    ),
    ("broker", {"at": 1, "broker": "b", "state": "gone", "bundles": 1}),
    ("leadership", {"at": 1, "leader": "b", "epoch": 1}),
    ("change", CHANGE),
    ("finding", {"at": 1, "state": "began", "finding": FINDING}),
    ("lost", {"lost": 1}),
    ("unheard", {"of": [1, {"x": True}]}),
]
COMMANDS: dict[str, Sequence[str]] = {
    **dict.fromkeys(
        (
            "status",
            "findings",
            "brokers list",
            "brokers leader",
            "brokers health",
            "brokers report",
            "tenants list",
            "namespaces list",
            "bundles pins",
            "bundles list",
            "limits list",
            "groups list",
            "isolation list",
            "settings list",
            "decisions",
            "dry-run",
            "plans list",
            "goals list",
            "clusters list",
            "moves list",
            "moves resume",
            "audit",
            "tokens list",
        ),
        (),
    ),
    "use": ("here",),
    "what-if": ("--add", "1"),
    "top": ("--count", "1"),
    "history": (BUNDLE,),
    "trend": (BUNDLE,),
    "compare": (),
    "find": ("orders",),
    "interrupted": (),
    "brokers forget": (BROKER,),
    "brokers cordon": (BROKER, "--note", "x"),
    "brokers uncordon": (BROKER,),
    "tenants create": ("t",),
    "tenants update": ("t", "--admin-role", "x"),
    "tenants delete": ("t",),
    "namespaces create": ("acme/orders", "--create-tenant"),
    "namespaces delete": ("acme/orders",),
    "namespaces bundles": ("acme/orders",),
    "namespaces policies": ("acme/orders",),
    "namespaces unload": ("acme/orders",),
    "bundles show": (BUNDLE,),
    "bundles move": (BUNDLE, "--to", BROKER),
    "bundles merge": ("acme/orders", "0x00000000_0x40000000", "0x40000000_0x80000000"),
    "bundles pin": (BUNDLE, "1h"),
    "bundles unpin": (BUNDLE,),
    "bundles unload": (BUNDLE,),
    "bundles split": (BUNDLE,),
    "topics backlogs": (),
    "topics busiest": (),
    "topics silent": (),
    "topics list": ("acme/orders",),
    "topics lookup": (TOPIC,),
    "topics partitions": (TOPIC,),
    "topics create": (TOPIC,),
    "topics delete": (TOPIC,),
    "topics unload": (TOPIC,),
    "topics stats": (TOPIC,),
    "limits why": (TOPIC,),
    "limits show": ("acme/orders",),
    "limits set": ("acme/orders", "publishRate", "--messages", "2", "--for", "1h"),
    "limits remove": ("acme/orders", "publishRate"),
    "groups set": ("g", "--publish-messages", "2"),
    "groups delete": ("g",),
    "groups join": ("acme/orders", "g"),
    "groups leave": ("acme/orders",),
    "isolation set": ("iso", "--namespaces", "a", "--primary", "b"),
    "isolation delete": ("iso",),
    "settings set": ("key", "other"),
    "settings unset": ("key",),
    "plans show": ("p",),
    "plans execute": ("p",),
    "plans approve": ("p",),
    "goals propose": ("--even", "5"),
    "goals show": ("7-g1",),
    "goals approve": ("7-g1",),
    "goals stop": ("7-g1",),
    "undo": ("c-1-100", "--yes"),
    "watch": ("--count", str(len(EVENTS))),
    "moves cancel": ("--all",),
    "roles disconnect": ("app",),
    "tokens refuse": ("x", "--note", "n"),
    "tokens allow": ("x",),
    "moves pause": ("1h",),
    "drain": (BROKER, "--no-wait", "--within", "1s", "--note", "x"),
    "rolling-restart": ("--within", "1s"),
}
"""Command → its arguments."""
SLOW = {"bundles split", "drain", "watch", "rolling-restart"}
"""They wait for what does not come."""
WHOLE = (
    b"",
    b"null",
    b"[]",
    b"{}",
    b'"x\\ny"',
    b"[" * 100_000,
    b"\xff\xfe",
    b"<html>\x1b[2J",
    b'{"x": "\\ud800"}',
    b"1e999",
    b"12345678901234567890123456789",
)
"""Answers of another kind."""
PARTS = (None, -1, 10**30, 1e308, True, "", "\n\x1b[2Jx y'\"\u202e", [], {}, [None], {"x": [[]]})
"""What stands for a part of an answer."""
FORGED = re.compile(r"[^\n\x20-\x7e\xa0-\u202d\u202f-\U0010ffff]")
"""Characters that must not reach a terminal."""


def words_of(group: click.Group, before: str = "") -> Iterator[str]:
    """All commands of a group."""
    context = click.Context(group)
    for name in group.list_commands(context):
        each = group.get_command(context, name)
        if isinstance(each, click.Group):
            yield from words_of(each, f"{before}{name} ")
        else:
            yield f"{before}{name}"


Answer = Callable[[str, str, dict[str, str]], tuple[int, dict[str, str], bytes]]
"""Method, path and headers → status, headers and body."""


@contextmanager
def a_server(answer: Answer, pair: Pair | None = None) -> Iterator[str]:
    """A server that answers so; its host and port."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            self.rfile.read(length)
            status, headers, body = answer(self.command, self.path, dict(self.headers.items()))
            with contextlib.suppress(OSError):
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        do_POST = do_PUT = do_DELETE = do_GET  # noqa: N815 - the base class looks for them

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if pair is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pair.certificate, pair.key)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class Hostile:
    """Answers as a broker would, but for one part of each answer, or for one whole answer."""

    def __init__(self) -> None:
        self.name = ""
        self.rng = random.Random(SEED)
        self.whole: bytes | None = None
        """What every answer is, if they are not made."""
        self.sane = False
        self.left = 0
        """Answers that are as they should be, before one is not."""

    def __call__(
        self, method: str, path: str, _headers: dict[str, str]
    ) -> tuple[int, dict[str, str], bytes]:
        plain = path.partition("?")[0]
        if plain.endswith("/v1/events"):
            return 200, {"Content-Type": "text/event-stream"}, self._events()
        found = [made for known, made in ANSWERS if re.fullmatch(known, f"{method} {plain}")]
        if self.whole is not None and self.left <= 0:
            return 200, {}, self.whole
        if not found:
            return (200, {}, b"ok") if method == "GET" else (204, {}, b"")
        document = found[-1]
        if "/archive/events" in plain and f"kind={EVENT['kind']}" not in path:
            document = {**document, "events": []}  # none of the kinds that were asked for
        return 200, {}, self._text(document).encode()

    def _events(self) -> bytes:
        lines = []
        for number, (kind, data) in enumerate(EVENTS):
            text = self._text(data) if self.whole is None else self.whole.decode(errors="replace")
            lines.append(f"id: {number}\nevent: {kind}\ndata: {text}\n\n")
        return "".join(lines).encode()

    def _text(self, document: Any) -> str:
        made = json.loads(json.dumps(document).replace(BROKER, self.name))
        self.left -= 1
        if not self.sane and self.left < 0:
            made = self._mangled(made)
        return json.dumps(made)

    def _mangled(self, document: Any) -> Any:
        holder = {"": copy.deepcopy(document)}
        places: list[tuple[Any, Any]] = []

        def walk(container: Any) -> None:
            keys = list(container) if isinstance(container, dict) else range(len(container))
            for key in keys:
                places.append((container, key))
                if isinstance(container[key], dict | list):
                    walk(container[key])

        walk(holder)
        container, key = self.rng.choice(places)
        if isinstance(container, dict) and key and self.rng.random() < 0.2:
            del container[key]
        elif isinstance(container, dict) and key and self.rng.random() < 0.2:
            container["\n\x1b[31mforged"] = container.pop(key)
        else:
            container[key] = self.rng.choice(PARTS)
        return holder[""]


def test_every_command_is_tried() -> None:
    """So that a new one is, too."""
    assert sorted(words_of(admin_command)) == sorted(COMMANDS)


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_answers_of_any_shape(
    name: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """A sentence and an exit status, never a traceback; nothing that drives a terminal."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    hostile = Hostile()
    hostile.rng.seed(f"{SEED} {name}")
    slow = name in SLOW
    tries: list[tuple[bytes | None, int, bool]] = [(None, 0, True)]
    tries += [(whole, after, False) for whole in WHOLE for after in ((0,) if slow else (0, 1))]
    tries += [(None, number % 3, False) for number in range(4 if slow else 25)]
    with a_server(hostile) as hostile.name:
        for whole, left, sane in tries[: 9 if name == "rolling-restart" else None]:
            hostile.whole, hostile.left, hostile.sane = whole, left, sane
            words = [*name.split(), *(hostile.name if w == BROKER else w for w in COMMANDS[name])]
            for output in ((), ("--json",)):
                status = main(["admin", *words, "--url", hostile.name, "--timeout", "5", *output])
                out, err = capsys.readouterr()
                assert status in (0, 1), (name, whole, status, err)
                assert out or err, (name, whole)
                assert not FORGED.search(out + err), (name, whole, out, err)
                assert "\nforged" not in out + err
                if sane and name != "rolling-restart":
                    assert not err, (name, err)


# Whom the token is sent to


class Seen:
    """A broker that lists some brokers, and redirects every request for tenants."""

    def __init__(self) -> None:
        self.tokens: list[str] = []
        """The credentials that came, with the method and path."""
        self.redirect = ""
        self.listed: list[str] = []

    def __call__(
        self, method: str, path: str, headers: dict[str, str]
    ) -> tuple[int, dict[str, str], bytes]:
        if "Authorization" in headers:
            self.tokens.append(f"{method} {path}")
        if path.endswith("/addresses"):
            brokers = {
                url: {
                    "webServiceUrl": url if url.startswith("http:") else "",
                    "webServiceUrlTls": url if url.startswith("https:") else "",
                    "pulsarServiceUrl": "",
                    "pulsarServiceUrlTls": "",
                }
                for url in self.listed
            }
            return 200, {}, json.dumps(brokers).encode()
        if self.redirect:
            return 307, {"Location": self.redirect + path}, b""
        return (200, {}, b"[]") if method == "GET" else (204, {}, b"")


def admin(*words: str, **options: str) -> int:
    """Run a command with a token."""
    given = [word for name, value in options.items() for word in (f"--{name}", value)]
    return main(["admin", *words, "--token", "secret", "--timeout", "5", *given])


def test_a_redirect_to_whom_the_cluster_does_not_list(capsys: pytest.CaptureFixture[str]) -> None:
    """The token is not sent there, and the message says so; it is to a broker that is listed."""
    named, other = Seen(), Seen()
    with a_server(named) as here, a_server(other) as there:
        named.redirect, named.listed = f"http://{there}", [f"http://{here}"]
        for words in (("tenants", "list"), ("topics", "unload", TOPIC)):
            assert admin(*words, url=here) == 1
            err = capsys.readouterr().err
            assert f"http://{there} is not among the brokers that http://{here} lists" in err
        assert not other.tokens
        named.listed.append(f"http://{there}")
        assert admin("tenants", "list", url=here) == 0
        assert other.tokens == ["GET /admin/v2/tenants"]
        assert "secret" not in capsys.readouterr().err


def test_a_broker_that_is_named_and_not_listed(capsys: pytest.CaptureFixture[str]) -> None:
    """A name on the command line, or in a list, is no reason either to send the token there."""
    named, other = Seen(), Seen()
    with a_server(named) as here, a_server(other) as there:
        named.listed = [f"http://{here}"]
        assert admin("limits", "list", there, url=here) == 1
        assert f"{there} is not among the brokers" in capsys.readouterr().err
        assert not other.tokens


def test_a_list_that_is_not_told(capsys: pytest.CaptureFixture[str]) -> None:
    """Then the token goes to the named broker alone; Pulsar's brokers have another list."""
    other = Seen()

    def answer(
        method: str, path: str, _headers: dict[str, str]
    ) -> tuple[int, dict[str, str], bytes]:
        if path == "/admin/v2/brokers":
            return 200, {}, json.dumps(listed).encode()
        if path == "/admin/v2/tenants":
            return 307, {"Location": f"http://{there}{path}"}, b""
        return 404, {}, b'{"reason": "not here"}'

    listed: list[str] = []
    with a_server(answer) as here, a_server(other) as there:
        assert admin("tenants", "list", url=here) == 1
        assert f"http://{there} is not among the brokers" in capsys.readouterr().err
        assert not other.tokens
        listed.append(there)
        assert admin("tenants", "list", url=here) == 0
        assert other.tokens


@pytest.mark.parametrize("named_token", ["secret", ""])
def test_nothing_goes_from_https_to_http(
    named_token: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Whoever redirects there, and whoever lists it; also without a token."""
    authority = Authority(tmp_path)
    named, plain = Seen(), Seen()
    reached: list[str] = []

    def in_clear(method: str, path: str, headers: dict[str, str]) -> Any:
        reached.append(path)
        return plain(method, path, headers)

    with a_server(named, authority.issue("broker")) as here, a_server(in_clear) as there:
        named.redirect, named.listed = f"http://{there}", [f"https://{here}", f"http://{there}"]
        words = ["admin", "tenants", "list", "--url", f"https://{here}", "--timeout", "5"]
        words += ["--tls-trust-certs", str(authority.trust)]
        assert main([*words, *(("--token", named_token) if named_token else ())]) == 1
        err = capsys.readouterr().err
        assert f"https://{here} redirects to http://{there}, without TLS: nothing is sent" in err
        assert not reached


def test_an_address_without_tls_that_is_said_to_have_it(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A broker that was asked over TLS names a port without TLS as that of another one."""
    authority, plain = Authority(tmp_path), Seen()

    def named(
        _method: str, path: str, _headers: dict[str, str]
    ) -> tuple[int, dict[str, str], bytes]:
        told: Any = [BROKER]
        if path.endswith("/addresses"):
            told = {BROKER: {**ADDRESSES, "webServiceUrlTls": f"http://{there}"}}
        return 200, {}, json.dumps(told).encode()

    with a_server(named, authority.issue("broker")) as here, a_server(plain) as there:
        options = {"url": f"https://{here}", "tls-trust-certs": str(authority.trust)}
        assert admin("brokers", "health", **options) == 1
        assert f"http://{there} has no TLS" in "".join(capsys.readouterr())
        assert not plain.tokens


@pytest.mark.parametrize("location", ["file:///etc/passwd", "ftp://h/", "http://[", "", "http://"])
def test_a_redirect_that_leads_to_no_broker(
    location: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Files of this machine are not read, and nothing else is asked."""
    with a_server(lambda *_: (307, {"Location": location}, b"")) as here:
        assert main(["admin", "tenants", "list", "--url", here, "--timeout", "5"]) == 1
        out, err = capsys.readouterr()
        assert (out, "root:" in err) == ("", False)


class Undecided:
    """Brokers that redirect to themselves, or say that they do not agree yet, so many times."""

    def __init__(self, times: int, *, says: bool) -> None:
        self.left, self.says, self.here = times, says, ""

    def __call__(
        self, method: str, path: str, headers: dict[str, str]
    ) -> tuple[int, dict[str, str], bytes]:
        if path.endswith("/addresses") or not path.startswith("/admin/v2/tenants"):
            return 404, {}, b""
        self.left -= 1
        if self.left < 0:
            return 200, {}, b"[]"
        if self.says:
            return 503, {UNDECIDED: "true"}, b'{"reason": "they do not agree yet"}'
        return 307, {"Location": f"http://{self.here}{path}"}, b""


@pytest.mark.parametrize(("times", "says"), [(25, False), (2, True)])
def test_brokers_that_do_not_agree_yet_are_asked_again(times: int, says: bool) -> None:
    """Until they do; with less time than that takes, the command says that they do not."""
    undecided = Undecided(times, says=says)
    with a_server(undecided) as here:
        undecided.here = here
        assert main(["admin", "tenants", "list", "--url", f"http://{here}"]) == 0
        assert undecided.left < 0


@pytest.mark.parametrize("says", [False, True])
def test_brokers_that_never_agree(says: bool, capsys: pytest.CaptureFixture[str]) -> None:
    """The command ends, with what they said."""
    undecided = Undecided(10**9, says=says)
    with a_server(undecided) as here:
        undecided.here = here
        words = ["admin", "tenants", "list", "--url", f"http://{here}", "--timeout", "1"]
        assert main(words) == 1
    expected = "they do not agree yet" if says else "the brokers do not agree on the owner"
    assert expected in capsys.readouterr().err


async def test_an_administrator_of_a_tenant_follows_redirects(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The addresses of the brokers are told to everybody who proves who he is."""
    async with serving(2, values=VALUES, verifier=verifier(), token=token(ADMIN)) as served:
        path = "/admin/v2/tenants/acme"
        info = {"adminRoles": ["boss"], "allowedClusters": ["standalone"]}
        assert (await served.ask("POST", path, info)).status == 204
        assert (await served.ask("PUT", "/admin/v2/persistent/acme/orders/new")).status == 204
        await served.own(BUNDLE, "acme/orders/0x40000000_0x80000000", at=1)
        await served.own("acme/orders/0x80000000_0xc0000000", at=1)
        await served.own("acme/orders/0xc0000000_0xffffffff", at=1)
        words = ["topics", "stats", TOPIC, "--url", served.url(0), "--token", token("boss")]
        with capture_logs():
            status = await asyncio.to_thread(main, ["admin", *words, "--timeout", "5"])
        assert status == 0, capsys.readouterr()


# Names


NAMES = (
    "new",
    "a\nb",
    "a\\nb",
    "it's\n",
    "x persistent://acme/orders/new",
    "it's",
    '"q"',
    "\u202ee",
    "ü",
)


async def test_no_name_forges_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    """`topics list` has a line for each topic, of which xargs makes one argument: the topic's name,
    or no topic's; --json has the names as they are.
    """
    async with serving(1) as served:
        for name in NAMES:
            path = f"/admin/v2/persistent/acme/orders/{quote(name, safe='')}"
            assert (await served.ask("PUT", path)).status == 204, name
        names = {f"persistent://acme/orders/{name}" for name in NAMES}
        words = ["admin", "topics", "list", "acme/orders", "--url", served.url(), "--timeout", "5"]
        capsys.readouterr()
        with capture_logs():
            assert await asyncio.to_thread(main, words) == 0
            out = capsys.readouterr().out
            assert await asyncio.to_thread(main, [*words, "--json"]) == 0
            assert set(json.loads(capsys.readouterr().out)) == names
        assert len(out.splitlines()) == len(NAMES)
        assert not FORGED.search(out)
        xargs = await asyncio.create_subprocess_exec(
            *("xargs", "-n", "1", "printf", "%s\\0"), stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        read, _ = await xargs.communicate(out.encode())
        assert xargs.returncode == 0
        told = read.decode().split("\0")[:-1]
        assert len(told) == len(NAMES)
        odd = {f"persistent://acme/orders/{name}" for name in NAMES if not name.isprintable()}
        assert names - odd <= set(told)
        assert all(word.startswith("$") for word in set(told) - names)
        bash = await asyncio.create_subprocess_exec(
            *("bash", "-c", f"printf '%s\\0' {' '.join(out.splitlines())}"), stdout=subprocess.PIPE
        )
        read, _ = await bash.communicate()
        assert set(read.decode().split("\0")[:-1]) == names
