"""Clients to run against Pulsar and against ours: the Java client, the Go client, pulsar-admin.

Each gives answers by the name of a case; `compare.py` compares them.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import time
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import maven
import pulsar as python_client
from clients import commands
from clients.pulsar import BUILD, HERE, java

SCHEMAS = {
    "schema": '{"type": "STRING", "schema": "", "properties": {}}',
    "other_schema": '{"type": "INT32", "schema": "", "properties": {}}',
}
GO_BUILD = {"CGO_ENABLED": "0"}
"""The client's compression with C takes minutes to compile."""


@dataclass(frozen=True)
class Target:
    """The addresses that clients and pulsar-admin connect to."""

    service_url: str
    admin_url: str
    broker: str
    """The id of one broker."""
    cluster: str = "standalone"


def request(target: Target, method: str, path: str, body: Any) -> None:
    """A request that must succeed."""
    asked = urllib.request.Request(
        target.admin_url + path,
        data=json.dumps(body).encode(),
        method=method,
        headers={"Content-Type": "application/json"},
    )
    urllib.request.urlopen(asked, timeout=30).close()


def go_modules() -> None:
    """Download what Go needs. Raises `SubprocessError` where the Go proxy is not reached."""
    command = ["go", "mod", "download"]
    subprocess.run(command, cwd=HERE / "go", check=True, timeout=maven.TIMEOUT_S)


def go_program() -> Path:
    """The Go cases, compiled; `go_modules` have been downloaded."""
    program = BUILD / "go-cases"
    sources = list((HERE / "go").iterdir())
    if not program.exists() or program.stat().st_mtime < max(p.stat().st_mtime for p in sources):
        command = ["go", "build", "-o", str(program), "."]
        subprocess.run(command, cwd=HERE / "go", check=True, env={**os.environ, **GO_BUILD})
    return program


def lines(command: list[str], timeout_s: float = 300.0) -> dict[str, Any]:
    """The answers of a program that prints a case a line."""
    printed = subprocess.run(
        command, stdout=subprocess.PIPE, text=True, timeout=timeout_s, check=True
    ).stdout
    return {one["case"]: one["answer"] for one in map(json.loads, printed.splitlines())}


def java_cases(home: Path, target: Target, prefix: str, names: Sequence[str]) -> dict[str, Any]:
    """Results of the Java client, on topics that begin with the prefix; no name means all cases."""
    return lines(java(home, "Cases", target.service_url, target.admin_url, prefix, *names))


def go_cases(program: Path, target: Target, prefix: str, names: Sequence[str]) -> dict[str, Any]:
    """Results of the Go client, on topics that begin with the prefix; no name means all cases."""
    return lines([str(program), target.service_url, prefix, *names])


class Admin:
    """pulsar-admin against a target, in one Java process."""

    def __init__(self, home: Path, target: Target, folder: Path) -> None:
        self._process = subprocess.Popen(
            java(home, "Commands", target.admin_url),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._target = target
        self._client = python_client.Client(
            target.service_url, logger=python_client.ConsoleLogger(python_client.LoggerLevel.Error)
        )
        self._words = {"broker": target.broker, "cluster": target.cluster}
        for name, text in SCHEMAS.items():
            path = folder / f"{name}.json"
            path.write_text(text)
            self._words[name] = str(path)

    def __enter__(self) -> Admin:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()
        self._process.communicate()

    def answers(self, listed: str) -> dict[str, Any]:
        """The answers to a list of commands; one that comes again has a number in its name."""
        found: dict[str, Any] = {}
        for line in filter(None, listed.splitlines()):
            number, name = 1, line
            while name in found:
                number += 1
                name = f"{line} #{number}"
            words = shlex.split(line)
            if words[0] == "produce":
                self._produce(int(words[1]), words[2])
            elif words[0] == "backlog":
                stats = tidied(self.run("topics", "stats", words[1]))
                each = stats["out"]["subscriptions"].items() if "out" in stats else ()
                found[name] = {name: one["msgBacklog"] for name, one in each}
            else:
                found[name] = tidied(self.run(*words))
                if line in commands.WHOLE_BROKER:
                    del found[name]["out"]
                if words[0] == "topicPolicies" and not words[1].startswith("get"):
                    time.sleep(1)  # Pulsar reads them from a topic
        return found

    def run(self, *words: str) -> dict[str, Any]:
        """The output and the exit status of one command."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        filled = [word.format(**self._words) for word in words]
        self._process.stdin.write(json.dumps(filled) + "\n")
        self._process.stdin.flush()
        return dict(json.loads(self._process.stdout.readline()))

    def _produce(self, count: int, topic: str) -> None:
        producer = self._client.create_producer(topic, "p", batching_enabled=False)
        for number in range(count):
            producer.send(b"%d" % number)
        producer.close()


ADDRESS = re.compile(r"(127\.0\.0\.1|localhost):\d+")
SENTENCE = re.compile(r"(Exception: [\w.$]+): .*")
LEDGER = re.compile(r"\b\d+:(-?\d+):(-?\d+)\b")


def tidied(answer: dict[str, Any]) -> dict[str, Any]:
    """The answer of a command without what differs from run to run.

    Of an error it has the status, of HTTP or −1; its sentence is for people.
    """
    if answer["exit"]:
        return {"status": answer["status"] or -1}
    out = LEDGER.sub(r"ledger:\1:\2", ADDRESS.sub("broker", answer["out"].strip()))
    out = SENTENCE.sub(r"\1", out)
    try:
        return {"status": 0, "out": json.loads(out)}
    except ValueError:
        return {"status": 0, "out": out}
