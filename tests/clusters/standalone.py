"""A cluster for tests: `loadmanager standalone` as a process, and the logs of its brokers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from ports import free_ports

READY_TIMEOUT_S = 300.0
STOP_TIMEOUT_S = 40.0
STARTS_MAX = 3


def wait_for(condition: Callable[[], Any], what: str, timeout_s: float = 60.0) -> Any:
    """Poll until `condition` returns a true value, and return that."""
    deadline_s = time.monotonic() + timeout_s
    while time.monotonic() < deadline_s:
        found = condition()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError(f"not within {timeout_s:g} s: {what}")


@dataclass(frozen=True)
class Span:
    """The time for which a broker owned a bundle, in seconds of the machine's monotonic clock."""

    broker: str
    since_s: float
    until_s: float


class Cluster:
    """A cluster, started by `with`; `brokers` are its processes by index.

    A killed broker is not started again, unless `restart` is set.
    """

    headers: Mapping[str, str] = {}
    """Of every request."""

    def __init__(
        self,
        folder: Path,
        *,
        brokers: int = 3,
        settings: dict[str, str] | None = None,
        restart: bool = False,
        session_ms: int = 30_000,
        zookeeper: str | None = None,
    ) -> None:
        """`session_ms`: shorter for tests in which brokers die; else a busy machine ends sessions.
        `zookeeper`: the kind of the metadata store.
        """
        self.count = brokers
        self._restart = restart
        self._zookeeper = [] if zookeeper is None else ["--zookeeper", zookeeper]
        self.log = folder / "cluster.log"
        self._folder = folder
        session = {"metadataStoreSessionTimeoutMillis": str(session_ms)}
        self._settings = {**session, **(settings or {})}
        self.killed_s: dict[str, float] = {}

    def __enter__(self) -> Cluster:
        for _ in range(STARTS_MAX):
            self._start()
            try:
                wait_for(
                    lambda: (
                        self.process.poll() is not None
                        or b"is ready after" in self.log.read_bytes()
                    ),
                    "the cluster is ready",
                    READY_TIMEOUT_S,
                )
                if (
                    self.process.poll() is not None
                    and "Address already in use" in self.log.read_text()
                ):
                    continue  # another program took the port
                assert self.process.poll() is None, self.log.read_text()
                wait_for(
                    lambda: len(self.get(0, "/admin/v2/brokers")) == self.count,
                    "all brokers see each other",
                )
            except BaseException:
                self.__exit__()
                raise
            return self
        raise AssertionError(self.log.read_text())

    def _start(self) -> None:
        self.pulsar_port = free_ports(2 * self.count + 1)
        self.http_port = self.pulsar_port + self.count
        self.zookeeper_port = self.http_port + self.count
        command = [
            sys.executable,
            "-m",
            "loadmanager",
            "standalone",
            "--brokers",
            str(self.count),
            "--log-format",
            "json",
        ]
        command += ["--pulsar-port", str(self.pulsar_port), "--http-port", str(self.http_port)]
        command += [
            "--zookeeper-port",
            str(self.zookeeper_port),
            "--data-dir",
            str(self._folder / "data"),
        ]
        command += [*self._zookeeper, *([] if self._restart else ["--no-restart"])]
        for key, text in self._settings.items():
            command += ["--set", f"{key}={text}"]
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(
                command, stdout=output, stderr=output, stdin=subprocess.DEVNULL
            )

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                for child in psutil.Process(self.process.pid).children(recursive=True):
                    child.kill()
                self.process.kill()
                self.process.wait()
                raise AssertionError("the cluster did not stop") from None

    # Brokers

    def broker_id(self, index: int) -> str:
        """The brokerId of a broker."""
        return f"127.0.0.1:{self.http_port + index}"

    def pid(self, index: int) -> int:
        """The process id of a broker."""
        wanted = f"webServicePort={self.http_port + index}"
        return next(
            child.pid
            for child in psutil.Process(self.process.pid).children()
            if wanted in child.cmdline()
        )

    def kill(self, index: int) -> float:
        """Kill a broker (kill -9); returns when, on the monotonic clock."""
        os.kill(self.pid(index), signal.SIGKILL)
        self.killed_s[self.broker_id(index)] = time.monotonic()
        return self.killed_s[self.broker_id(index)]

    def service_url(self, *indexes: int) -> str:
        """The service URL of these brokers, or of all."""
        return "pulsar://" + ",".join(
            f"127.0.0.1:{self.pulsar_port + index}" for index in indexes or range(self.count)
        )

    # HTTP

    def request(self, index: int, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Status and body of one request to one broker; JSON is parsed.

        Redirects are followed with method and body.
        """
        url = f"http://127.0.0.1:{self.http_port + index}{path}"
        for _ in range(5):
            data = None if body is None else json.dumps(body).encode()
            request = urllib.request.Request(
                url,
                data=data,
                method=method,
                headers={"Content-Type": "application/json", **self.headers},
            )
            try:
                with _OPENER.open(request, timeout=30) as answer:
                    return answer.status, _parse(answer.read())
            except urllib.error.HTTPError as error:
                with error:
                    if error.code != 307:
                        return error.code, _parse(error.read())
                    url = error.headers["Location"]
        raise AssertionError(f"too many redirects: {method} {path}")

    def get(self, index: int, path: str) -> Any:
        """Body of a successful GET."""
        status, body = self.request(index, "GET", path)
        assert status == 200, (path, status, body)
        return body

    def leader(self, asked: int = 0) -> int:
        """Index of the broker that leads; waits while broker `asked` knows of none."""

        def answer() -> Any:
            status, body = self.request(asked, "GET", "/admin/v2/brokers/leaderBroker")
            return body if status == 200 else None

        found = wait_for(answer, "a leader")
        return int(found["brokerId"].rpartition(":")[2]) - self.http_port

    def owner_of(self, topic: str, asked: int = 0) -> int:
        """Index of the broker that serves a topic, which the lookup may place; waits while broker
        `asked` finds none, such as in a moment without a session.
        """

        def answer() -> Any:
            path = "/lookup/v2/topic/" + topic.replace("://", "/")
            status, body = self.request(asked, "GET", path)
            return body if status == 200 else None

        found = wait_for(answer, f"an owner of {topic}")
        return int(found["httpUrl"].rpartition(":")[2]) - self.http_port

    # Logs

    def events(self) -> Iterator[dict[str, Any]]:
        """The brokers' log lines, as objects."""
        for line in self.log.read_text().splitlines():
            if line.startswith("{"):
                yield json.loads(line)

    def ownership(self) -> dict[str, list[Span]]:
        """The spans for which each broker owned each bundle, from the brokers' logs, ascending."""
        begun: dict[tuple[str, str], float] = {}
        spans: dict[str, list[Span]] = {}
        for event in self.events():
            key = (event.get("bundle", ""), event.get("broker", ""))
            if event["event"] == "bundle acquired":
                begun[key] = event["monotonic_s"]
            elif event["event"] in ("bundle releasing", "bundle released") and key in begun:
                spans.setdefault(key[0], []).append(
                    Span(key[1], begun.pop(key), event["monotonic_s"])
                )
        for (bundle, broker), since_s in begun.items():
            spans.setdefault(bundle, []).append(
                Span(broker, since_s, self.killed_s.get(broker, time.monotonic()))
            )
        return {
            bundle: sorted(items, key=lambda span: span.since_s) for bundle, items in spans.items()
        }

    def check_single_ownership(self) -> int:
        """Assert that no bundle had two owners at once; returns the number of spans checked."""
        checked = 0
        for bundle, spans in self.ownership().items():
            checked += len(spans)
            for before, after in zip(spans, spans[1:], strict=False):
                assert before.until_s <= after.since_s, (
                    f"{bundle} had two owners: {before} and {after}"
                )
        return checked


def _parse(raw: bytes) -> Any:
    try:
        return json.loads(raw)
    except ValueError:
        return raw.decode()


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


_OPENER = urllib.request.build_opener(_NoRedirect, urllib.request.ProxyHandler({}))
