"""A check which panels of Grafana dashboards have data: their expressions, evaluated by a real
Prometheus.

`python -m bench grafana FOLDER [--brokers HOST:PORT …] [--seconds 75] [--empty]` reads the
dashboards (*.json, below FOLDER). It needs Prometheus (Debian: prometheus), and uses a node
exporter if there is one (prometheus-node-exporter). Without --brokers it starts three brokers and
sends messages; with it, it scrapes those, which may be Pulsar's.

Variables have the values that Grafana finds for them: the first, or all where the dashboard lets a
person choose several. A panel has data if one of its expressions has a value.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pulsar

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from clusters.standalone import Cluster, wait_for
from ports import free_ports

SCRAPE_S = 5
SPACE = "public/default"
METRIC = re.compile(r"\b([a-zA-Z_:][a-zA-Z0-9_:]*)\s*\{")
EXPORTER = shutil.which("prometheus-node-exporter")


def main(argv: list[str]) -> int:
    """Print a line per dashboard, and with --empty one per panel without data."""
    parser = argparse.ArgumentParser(prog="python -m bench grafana", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--brokers", nargs="+", metavar="HOST:PORT", help="scrape these")
    parser.add_argument("--seconds", type=float, default=75.0, help="how long to scrape")
    parser.add_argument("--empty", action="store_true", help="list the panels without data")
    args = parser.parse_args(argv)
    files = sorted(args.folder.rglob("*.json"))
    if not files or shutil.which("prometheus") is None:
        print("no dashboards there" if not files else "Prometheus is not installed")
        return 2
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        brokers = args.brokers or stack.enter_context(_brokers(Path(folder)))
        url = stack.enter_context(_prometheus(Path(folder), brokers))
        time.sleep(args.seconds)
        _print_table(Prometheus(url), files, args.folder, empty=args.empty)
    return 0


def _print_table(prometheus: Prometheus, files: list[Path], folder: Path, *, empty: bool) -> None:
    with_data = panels = 0
    for file in files:
        board = Dashboard(prometheus, json.loads(file.read_text()))
        results = [(panel, board.has_data(panel)) for panel in board.panels()]
        found = sum(has_data for _, has_data in results)
        with_data, panels = with_data + found, panels + len(results)
        note = f"   no values: {', '.join(board.without_values)}" if board.without_values else ""
        print(f"{found:4} / {len(results):3}  {file.relative_to(folder)}{note}", flush=True)
        for panel, has_data in results:
            if empty and not has_data:
                print(f"            {panel['title']!r}: {', '.join(board.missing(panel))}")
    print(f"{with_data:4} / {panels:3}  panels with data")


@dataclass
class Prometheus:
    """Its HTTP API."""

    url: str
    _names: set[str] | None = None

    def ask(self, path: str, **parameters: str) -> Any:
        """The data of an answer; None if the question is refused."""
        question = f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(question, timeout=30) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            if error.code not in (400, 422):
                raise
            return None

    def has_value(self, expression: str) -> bool:
        """True if an expression has a value now that is a number."""
        data = self.ask("query", query=expression)
        return data is not None and any(each["value"][1] != "NaN" for each in data["result"])

    def series(self, selector: str) -> list[dict[str, str]]:
        """Labels of the series that a selector finds."""
        data: list[dict[str, str]] | None = self.ask("series", **{"match[]": selector})
        return data or []

    def names(self) -> set[str]:
        """All metrics."""
        if self._names is None:
            self._names = set(self.ask("label/__name__/values"))
        return self._names


@dataclass
class Dashboard:
    """One dashboard, with values for its variables."""

    prometheus: Prometheus
    document: dict[str, Any]
    values: dict[str, str] = field(default_factory=dict)
    without_values: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.document = self.document.get("dashboard", self.document)
        for variable in self.document.get("templating", {}).get("list", ()):
            if variable["type"] == "query":
                self.values[variable["name"]] = self._value(variable)

    def panels(self) -> list[dict[str, Any]]:
        """All panels that ask Prometheus, those in rows, too."""
        found, queue = [], [self.document]
        while queue:
            part = queue.pop(0)
            queue += [*part.get("rows", ()), *part.get("panels", ())]
            if any(target.get("expr") for target in part.get("targets", ())):
                found.append(part)
        return found

    def has_data(self, panel: dict[str, Any]) -> bool:
        """True if one of its expressions has a value."""
        return any(map(self.prometheus.has_value, self._expressions(panel)))

    def missing(self, panel: dict[str, Any]) -> list[str]:
        """The metrics that a panel without data asks for and that are absent, or else its
        expressions.
        """
        asked = {name for each in self._expressions(panel) for name in METRIC.findall(each)}
        return sorted(asked - self.prometheus.names()) or self._expressions(panel)

    def _expressions(self, panel: dict[str, Any]) -> list[str]:
        texts = (target.get("expr") for target in panel["targets"])
        return [self._filled(text) for text in texts if text and text.strip()]

    def _filled(self, text: str) -> str:
        text = re.sub(r"\$__(rate_)?interval\b|\[\[__interval]]", "1m", text)
        for name, value in self.values.items():
            text = re.sub(rf"\$\{{{name}(:\w+)?}}|\${name}\b", value.replace("\\", r"\\"), text)
        return text

    def _value(self, variable: dict[str, Any]) -> str:
        query = variable["query"]
        query = self._filled(query["query"] if isinstance(query, dict) else query)
        labelled = re.fullmatch(r"label_values\((.*),\s*(\w+)\)", query.strip())
        series = self.prometheus.series(labelled[1] if labelled else query)
        if labelled:
            texts = [each[labelled[2]] for each in series if labelled[2] in each]
        else:
            texts = [
                "{" + ",".join(f'{name}="{value}"' for name, value in each.items()) + "}"
                for each in series
            ]
        pattern = (variable.get("regex") or "").strip("/")
        if pattern:
            matches = [re.search(pattern, text) for text in texts]
            texts = [match[1] if match.re.groups else match[0] for match in matches if match]
        choices = sorted(set(texts))
        if not choices:
            self.without_values.append(variable["name"])
            return ".*"
        return "|".join(choices) if variable.get("multi") else choices[0]


@contextlib.contextmanager
def _prometheus(folder: Path, brokers: list[str]) -> Iterator[str]:
    """A Prometheus that scrapes the brokers, itself under the jobs that exist elsewhere, and the
    node exporter; gives its URL.
    """
    port, node_port = free_ports(2), free_ports(1)
    targets = [
        {"targets": [broker], "labels": {"kubernetes_pod_name": f"broker-{index}"}}
        for index, broker in enumerate(brokers)
    ]
    jobs = [{"job_name": "broker", "metrics_path": "/metrics/", "static_configs": targets}]
    commands = []
    if EXPORTER is not None:
        commands.append([EXPORTER, f"--web.listen-address=127.0.0.1:{node_port}"])
        jobs.append(
            {"job_name": "node", "static_configs": [{"targets": [f"127.0.0.1:{node_port}"]}]}
        )
    config = {"global": {"scrape_interval": f"{SCRAPE_S}s"}, "scrape_configs": jobs}
    file = folder / "prometheus.yml"
    file.write_text(json.dumps(config))  # JSON is YAML
    listen = f"--web.listen-address=127.0.0.1:{port}"
    store = f"--storage.tsdb.path={folder / 'prometheus'}"
    commands.append(["prometheus", f"--config.file={file}", listen, store])
    with contextlib.ExitStack() as stack:
        for command in commands:
            process = stack.enter_context(
                subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            )
            stack.callback(process.terminate)
        yield f"http://127.0.0.1:{port}"


@contextlib.contextmanager
def _brokers(folder: Path) -> Iterator[list[str]]:
    """Three brokers under load, of which one split a bundle; gives their HTTP addresses."""
    settings = {"statsUpdateFrequencyInSecs": "5"}
    with Cluster(folder, settings=settings) as cluster:
        stop = threading.Event()
        thread = threading.Thread(target=_send, args=(cluster.pulsar_port, stop))
        thread.start()
        try:
            wait_for(lambda: _owned(cluster), "topics are open")
            bundle = _owned(cluster)[0]
            for action in ("split", "unload"):
                path = f"/admin/v2/namespaces/{SPACE}/{bundle}/{action}"
                status, body = cluster.request(0, "PUT", path)
                print(f"{action} {bundle}: {status} {body or ''}".rstrip(), file=sys.stderr)
            yield [cluster.broker_id(index) for index in range(cluster.count)]
        finally:
            stop.set()
            thread.join()


def _owned(cluster: Cluster) -> list[str]:
    found: list[str] = []
    for index in range(cluster.count):
        status, report = cluster.request(index, "GET", "/admin/v2/broker-stats/load-report")
        bundles = report["bundles"] if status == 200 else []
        found += [name.rsplit("/")[-1] for name in bundles if name.startswith(SPACE)]
    return found


def _send(port: int, stop: threading.Event) -> None:
    """Publish to some topics; on each, one subscription reads and another does not."""
    client = pulsar.Client(
        f"pulsar://127.0.0.1:{port}", logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    )
    held: list[object] = []  # a consumer that nobody holds closes itself
    producers = []
    for number in range(8):
        topic = f"persistent://{SPACE}/panel-{number}"
        client.subscribe(topic, "idle").close()
        held.append(
            client.subscribe(
                topic,
                "reading",
                consumer_type=pulsar.ConsumerType.Shared,
                message_listener=lambda consumer, message: consumer.acknowledge(message),
            )
        )
        producers.append(client.create_producer(topic, batching_enabled=False))
    while not stop.wait(0.01):
        for producer in producers:
            producer.send_async(b"x" * 200, callback=None)
    client.close()
