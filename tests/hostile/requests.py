"""Hostile HTTP requests over all routes of the admin API.

The routes come from the running broker's router or its OpenAPI document, so that new routes are
covered; requests go through all of them, in random order, again and again. Most fill a route with
plausible or odd names, queries and bodies; some are not valid HTTP. Valid requests use
the tenant `web` only, so that no other tenant may notice.
"""

from __future__ import annotations

import json
import math
import posixpath
import random
import re
import socket
import time
import urllib.parse
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

ANSWER_TIMEOUT_S = 60.0
SLOW_S = 30.0
PROBLEMS_MAX = 100
"""The run ends after so many problems; a broken broker would fill pages."""
HUNG_MAX = 2
"""The run ends after so many requests without an answer."""
TENANT = "web"
RESTORED = ["one", "two", "a" * 32 + "-"]
"""Namespaces that are created again. The last name makes `(a+)+` backtrack."""
NAMESPACES = [*RESTORED, "new"]
CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"
GO_ON = b"HTTP/1.1 100 Continue\r\n\r\n"
RESTORED_EVERY = 150
SKIPPED = "/admin/v2/brokers/shutdown"
"""It would stop the broker."""
ALLOWED_5XX = (501, 503)

METHODS = ["GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "TRACE", "FOO"]
TEXTS = [
    *("public", "default", "..", ".", "%2e%2e", "a%2Fb", "%00", "x" * 300, "x" * 3000, "é", "☃"),
    *("%0d%0aSet-Cookie:%20a=b", "<script>", "'\"", "{}", "*", "-1", "0", "9" * 20, "%ff%fe", "%"),
    *("%u0041", "a b", "persistent", f"{TENANT}%2Fone", "0x00000000_0xffffffff", "zz_zz", "NaN"),
    *("\\..\\..", "a;b", "a?b", "~", "(a+)+$", "\u202e", "true", "null"),
]
QUERIES = [
    *(
        "authoritative",
        "force",
        "unload",
        "destinationBroker",
        "splitAlgorithmName",
        "limit",
        "mode",
    ),
    *("brokerId", "applied", "topics", "tenant", "destination", "reason", "epoch", "checkBundle"),
    *("maxConcurrentUnloadPerSec", "☃", ""),
]
QUERY_VALUES = [
    *("true", "false", "TRUE", "1", "", "0", "-1", "9" * 23, "1e3", "١", "evil:80", "http://evil/"),
    *("../..", "ALL", "PERSISTENT", "range_equally_divide", "topic_count_equally_divide", "☃"),
    *("specified_positions_divide", "flow_or_qps_equally_divide", "\r\nX: y", "x" * 5000, "%"),
    *(f"persistent://{TENANT}/one/a,", "{self}", "{self}"),
]
DYNAMIC_VALUES = [
    *(
        "x",
        "x" * 300,
        "NaN",
        "inf",
        "-inf",
        "1e999",
        "-99999",
        "9" * 400,
        "☃",
        "%00",
        "%ff",
        "null",
    ),
    *(
        "[]",
        "{}",
        "no.such.Strategy",
        "org.apache.pulsar.ThresholdSheder",
        "%0a",
        "0x10",
        "1_0",
        "١",
    ),
]
"""No value is valid for a key that could slow down the neighbour."""
KEYS = [
    *(
        "bundles",
        "boundaries",
        "numBundles",
        "publishThrottlingRateInMsg",
        "ratePeriodInSecond",
        "x",
    ),
    *("publishThrottlingRateInByte", "dispatchThrottlingRateInMsg", "dispatchThrottlingRateInByte"),
    *("relativeToPublishRate", "subscribeThrottlingRatePerConsumer", "adminRoles", "namespaces"),
    *("allowedClusters", "replication_clusters", "primary", "secondary", "auto_failover_policy"),
    *("policy_type", "parameters", "min_limit", "usage_threshold", "unload_scope", "brokers"),
    *("publishRateInMsgs", "publishRateInBytes", "dispatchRateInMsgs", "dispatchRateInBytes"),
]
SCALARS: list[Any] = [
    *(None, True, False, 0, 1, -1, 2**31, 2**63, 2**64, 10**30, 1.5, -0.0, 1e308, float("nan")),
    *(float("inf"), "", "a", "☃", "\ud800", "public", "x" * 2000, "standalone", "min_available"),
]
RAW_BODIES = [
    *(b"", b"{", b"\xff\xfe", b"null", b'"' + b"x" * 100_000 + b'"', b"1e999", b"9" * 5000),
    *(b'{"a":1,"a":2}', b"\xef\xbb\xbf{}", b"[" * 100, b"[" * 900 + b"]" * 900, b"[" * 5000),
    *(b'{"a":' * depth + b"1" + b"}" * depth for depth in (100, 900, 979, 980, 981, 990, 5000)),
]


HALVES = ["0x00000000", "0x80000000", "0xffffffff"]


def _policy(pattern: str, primary: str) -> dict[str, Any]:
    failover = {
        "policy_type": "min_available",
        "parameters": {"min_limit": "1", "usage_threshold": "100"},
    }
    return {
        "namespaces": [pattern],
        "primary": [primary],
        "secondary": [],
        "auto_failover_policy": failover,
    }


VALID: list[Callable[[random.Random], Any]] = [
    lambda rng: {
        "publishThrottlingRateInMsg": 10 ** rng.randrange(20),
        "publishThrottlingRateInByte": -1,
    },
    lambda rng: {
        "dispatchThrottlingRateInMsg": rng.choice([1, -1, 0, 2**31]),
        "dispatchThrottlingRateInByte": rng.choice([-1, 5]),
        "ratePeriodInSecond": rng.choice([0, 1, -1, 2**31, 10**12]),
    },
    lambda rng: {
        "subscribeThrottlingRatePerConsumer": 1,
        "ratePeriodInSecond": rng.choice([0, 30]),
    },
    lambda _: {"bundles": {"boundaries": HALVES, "numBundles": 2}},
    lambda rng: {"bundles": {"numBundles": rng.choice([0, -1, 1, 4, 3.5, 100_000, 2**40])}},
    lambda _: _policy(f"{TENANT}/(a+)+", "127.*"),
    lambda _: _policy(f"{TENANT}/one", "(1|1)*"),
    lambda _: {"brokers": ["127.0.0.1:8080"]},
    lambda _: {"adminRoles": [], "allowedClusters": ["standalone"]},
    lambda _: [0, 5],
    lambda _: [2**31],
    lambda rng: rng.choice([5, 4, "group"]),
]


@dataclass(slots=True)
class Asked:
    """The figures of a run."""

    requests: int = 0
    statuses: Counter[str] = field(default_factory=Counter)
    """Status, or the reason why there is none."""
    problems: Counter[str] = field(default_factory=Counter)
    slowest_s: float = 0.0
    routes: int = 0
    """Different routes (method and path) that were requested with their method."""


def send_requests(
    ports: list[int],
    routes: list[tuple[str, str]],
    count: int,
    seed: int,
    without: list[str],
    *,
    queries: Iterable[str] = (),
    seconds: float = math.inf,
    stop: Callable[[], bool] = lambda: False,
    stranger: Stranger | None = None,
) -> Asked:
    """Send `count` requests, but no more after `seconds`, or when `stop` says so; to be run in a
    process or thread of its own.

    `without` leaves out the routes that contain one of these texts, such as those of a known bug.
    `queries`: names of parameters, beside those that are known here. `stranger`: who asks.
    """
    left = [(method, path) for method, path in routes if not any(text in path for text in without)]
    sender = _Sender(ports, left, seed, queries, stranger)
    return sender.run(count, time.monotonic() + seconds, stop)


@dataclass(frozen=True)
class Stranger:
    """Somebody who proves who he is, and may do next to nothing."""

    credentials: str
    may: re.Pattern[str]
    """`GET` and the paths to which he gets an answer."""

    def is_served(self, request: _Request, status: int) -> bool:
        """True if he gets more than he may."""
        method, _, path = request.raw.partition(b" HTTP/")[0].decode("latin1").partition(" ")
        plain = posixpath.normpath(urllib.parse.unquote(path.partition("?")[0]))
        asked = f"{method.replace('HEAD', 'GET')} {plain}"
        return 0 < status < 400 and self.may.fullmatch(asked) is None


@dataclass(slots=True)
class _Request:
    method: str
    route: str
    raw: bytes
    proper: bool = True
    """Whether the request is valid HTTP, which must be answered."""


class _Sender:
    def __init__(
        self,
        ports: list[int],
        routes: list[tuple[str, str]],
        seed: int,
        queries: Iterable[str],
        stranger: Stranger | None,
    ) -> None:
        self._stranger = stranger
        self._ports = ports
        self._routes = [(method, path) for method, path in routes if not path.startswith(SKIPPED)]
        self._queries = [*QUERIES, *sorted(queries)]
        self._next: list[tuple[str, str]] = []
        """The routes whose turn comes, the last one first."""
        self._rng = random.Random(seed)
        self._asked = Asked()
        self._hung = 0
        self._seen: set[tuple[str, str]] = set()
        self._dynamic: list[str] = []

    def run(self, count: int, until_s: float, stop: Callable[[], bool]) -> Asked:
        """Send them one after the other, each on a connection of its own."""
        while self._asked.requests < count and not self._hopeless():
            if time.monotonic() > until_s or stop():
                break
            if self._asked.requests % RESTORED_EVERY == 0:
                self._restore()
            port = self._rng.choice(self._ports)
            self._send(port, self._wild() if self._rng.random() < 0.05 else self._request())
            self._asked.requests += 1
        if not self._hopeless():
            self._clean_up()
        self._asked.routes = len(self._seen)
        return self._asked

    def _hopeless(self) -> bool:
        return self._asked.problems.total() >= PROBLEMS_MAX or self._hung >= HUNG_MAX

    # Requests

    def _restore(self) -> None:
        """Create again the objects that requests deleted."""
        self._plain("PUT", f"/admin/v2/tenants/{TENANT}", {"allowedClusters": ["standalone"]})
        for name in RESTORED:
            path = f"/admin/v2/namespaces/{TENANT}/{name}"
            self._plain("PUT", path, {"bundles": {"numBundles": 4}})
        answer = self._plain("GET", "/admin/v2/brokers/configuration", None)
        names = json.loads(answer.partition(b"\r\n\r\n")[2] or b"[]")
        self._dynamic = names if isinstance(names, list) else []

    def _clean_up(self) -> None:
        """Undo changes that concern the whole cluster."""
        for name in self._dynamic:
            self._plain("DELETE", f"/admin/v2/brokers/configuration/{name}", None)

    def _plain(self, method: str, path: str, document: Any) -> bytes:
        body = json.dumps(document).encode() if document is not None else b""
        headers = {**self._credentials(), "Content-Type": "application/json"}
        request = _Request(method, path, _http(method, path, headers, body))
        return self._send(self._rng.choice(self._ports), request)

    def _request(self) -> _Request:
        rng = self._rng
        if not self._next:
            self._next = rng.sample(self._routes, len(self._routes))
        method, route = self._next.pop()
        self._seen.add((method, route))
        if rng.random() < 0.05:
            method = rng.choice(METHODS)
        path = self._filled(route)
        if rng.random() < 0.3:
            names = rng.choices(self._queries, k=rng.choice([1, 2, 3]))
            path += "?" + "&".join(f"{_quoted(name)}={self._query_value()}" for name in names)
        headers, body = self._headers(), b""
        if method in ("POST", "PUT", "DELETE", "PATCH") and rng.random() < 0.8:
            body = self._body()
        return _Request(method, route, _http(method, path, headers, body))

    def _filled(self, route: str) -> str:
        return re.sub(r"\{([^}]*)\}", lambda match: self._name(match[1], route), route)

    def _name(self, variable: str, route: str) -> str:
        rng = self._rng
        bundles = ["0x00000000_0x40000000", "0x40000000_0x80000000", "0x80000000_0xc0000000"]
        likely = {
            "domain": ["persistent", "non-persistent"] if "FailureDomains" not in route else ["d1"],
            "tenant": [TENANT],
            "namespace": NAMESPACES,
            "cluster": ["standalone"],
            "topic": ["t1", "t2", "☃", "a/b"],
            "broker": [f"127.0.0.1:{port}" for port in self._ports],
            "bundle": bundles,
            "group": ["g1"],
            "policy": ["p1"],
            "name": self._dynamic or ["loadBalancerLoadSheddingStrategy"],
            "value": DYNAMIC_VALUES,
        }.get(variable)
        if variable == "value":
            return _quoted(rng.choice(DYNAMIC_VALUES))
        return _quoted(rng.choice(likely if likely and rng.random() < 0.75 else TEXTS))

    def _query_value(self) -> str:
        text = self._rng.choice(QUERY_VALUES)
        return _quoted(f"127.0.0.1:{self._rng.choice(self._ports)}" if text == "{self}" else text)

    def _headers(self) -> dict[str, str]:
        rng = self._rng
        headers = {**self._credentials(), "Content-Type": "application/json"}
        if rng.random() < 0.05:
            headers["Content-Encoding"] = rng.choice(["gzip", "deflate", "br", "identity", "x"])
        if rng.random() < 0.05:
            kinds = [
                "text/plain",
                "multipart/form-data; boundary=x",
                "application/json; charset=utf-7",
                "☃",
                "",
            ]
            headers["Content-Type"] = rng.choice(kinds)
        if rng.random() < 0.05:
            headers[rng.choice(["X", "Host", "Origin", "Expect", "Range", "Upgrade"])] = rng.choice(
                ["evil", "☃", "", "x" * 9000, "100-continue", "bytes=0-5", "websocket"]
            )
        return headers

    def _credentials(self) -> dict[str, str]:
        if self._stranger is None:
            return {}
        return {"Authorization": f"Bearer {self._stranger.credentials}"}

    def _body(self) -> bytes:
        kind = self._rng.random()
        if kind < 0.45:
            return json.dumps(self._rng.choice(VALID)(self._rng)).encode()
        if kind < 0.85:
            return json.dumps(self._value(0)).encode()
        return self._rng.choice(RAW_BODIES)

    def _value(self, depth: int) -> Any:
        rng, kind = self._rng, self._rng.random()
        if kind < 0.35 or depth > 4:
            return rng.choice(SCALARS)
        if kind < 0.55:
            return [self._value(depth + 1) for _ in range(rng.choice([0, 1, 2, 5]))]
        return {rng.choice(KEYS): self._value(depth + 1) for _ in range(rng.choice([1, 2, 3, 5]))}

    def _wild(self) -> _Request:
        """Bytes that are not HTTP, or contradict themselves."""
        rng, path = self._rng, f"/admin/v2/namespaces/{TENANT}/one"
        body = b'{"bundles":{"numBundles":4}}'
        put = f"PUT {path} HTTP/1.1\r\nHost: x\r\n".encode()
        raw = rng.choice(
            [
                rng.randbytes(200),
                b"GET / HTTP/9.9\r\n\r\n",
                b"GET\r\n\r\n",
                b"\r\n" * 50,
                b"GET http://evil/admin/v2/brokers HTTP/1.1\r\nHost: evil\r\n\r\n",
                b"GET //evil/admin/v2/brokers HTTP/1.1\r\nHost: x\r\n\r\n",
                b"GET /\x00\xff HTTP/1.1\r\nHost: x\r\n\r\n",
                b"GET /" + b"x" * 20_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
                put + b"Content-Length: -5\r\n\r\n" + body,
                put + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n" + body,
                put + b"Content-Length: 99999999999999999999\r\n\r\n" + body,
                put + b"Content-Length: 500\r\n\r\n" + body,
                put + b"Content-Length: 5\r\n" + CHUNKED + b"5\r\nabcde\r\n0\r\n\r\n",
                put + CHUNKED + b"zz\r\n" + body,
                put + CHUNKED + b"ffffffffffffffff\r\n" + body,
                put + b"Content-Encoding: gzip\r\nContent-Length: 4\r\n\r\nabcd",
                put + b"X: " + b"y" * 100_000 + b"\r\n\r\n",
                put + b"\xff\xfe: \xff\r\n\r\n",
                put + b"X: y\r\n" * 5000 + b"\r\n",
            ]
        )
        return _Request("wild", path, raw, proper=False)

    # Answers

    def _send(self, port: int, request: _Request) -> bytes:
        began_s = time.monotonic()
        try:
            answer = _exchange(port, request)
        except OSError as error:
            answer = b""
            if isinstance(error, ConnectionRefusedError):
                self._asked.problems[f"port {port} refuses connections"] += 1
            elif request.proper or isinstance(error, TimeoutError):
                self._problem(request, f"{type(error).__name__} ({error})")
                self._hung += isinstance(error, TimeoutError)
        took_s = time.monotonic() - began_s
        self._asked.slowest_s = max(self._asked.slowest_s, took_s)
        if request.proper and took_s > SLOW_S:
            self._problem(request, f"took {took_s:.1f} s")
        self._judge(request, answer)
        return answer

    def _judge(self, request: _Request, answer: bytes) -> None:
        head, _, body = answer.removeprefix(GO_ON).partition(b"\r\n\r\n")
        status = int(head[9:12]) if re.match(rb"HTTP/1.[01] \d{3}", head) else 0
        self._asked.statuses[str(status or "closed")] += 1
        if not status and request.proper:
            self._problem(request, f"no HTTP: {answer[:80]!r}")
        if self._stranger is not None and self._stranger.is_served(request, status):
            self._problem(request, f"{status} to a stranger")
        reasoned = request.method == "HEAD" or bool(_reason(body))
        if status >= 500 and not (status in ALLOWED_5XX and reasoned):
            self._problem(request, f"{status} {body[:150]!r}")
        if b"\r\nset-cookie" in head.lower():
            self._problem(request, "header injection")

    def _problem(self, request: _Request, what: str) -> None:
        shown = request.raw[:160].decode("latin1")
        key = f"{request.method} {request.route}: {what}"
        if key not in self._asked.problems:
            key = f"{key} ← {shown!r}"
        self._asked.problems[key] += 1


def _reason(body: bytes) -> str:
    try:
        return str(json.loads(body)["reason"])
    except (ValueError, KeyError, TypeError):
        return ""


def _http(method: str, path: str, headers: dict[str, str], body: bytes) -> bytes:
    all_headers = {"Host": "127.0.0.1", "Connection": "close", **headers}
    if body or method in ("POST", "PUT"):
        all_headers["Content-Length"] = str(len(body))
    lines = [
        f"{method} {path} HTTP/1.1",
        *(f"{name}: {text}" for name, text in all_headers.items()),
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def _exchange(port: int, request: _Request) -> bytes:
    """Send, and read until the broker hangs up."""
    with socket.create_connection(("127.0.0.1", port), timeout=ANSWER_TIMEOUT_S) as connection:
        connection.sendall(request.raw)
        if not request.proper:
            connection.shutdown(socket.SHUT_WR)
        parts = []
        while data := connection.recv(1 << 16):
            parts.append(data)
            if b"text/event-stream" in parts[0]:  # it never ends
                break
    return b"".join(parts)


def _quoted(text: str) -> str:
    """A text as a path element; one with a percent sign is taken as it is."""
    return text if "%" in text else urllib.parse.quote(text, safe=":;'()*,")
