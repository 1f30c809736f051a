"""Alerts and the dashboard: every expression names what brokers show, and is evaluated by a real
Prometheus over running brokers; every alert fires when it should.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser
import pulsar
import pytest
import yaml
from clusters.standalone import Cluster, wait_for
from ports import free_ports

from bench.grafana import Dashboard, Prometheus
from loadmanager import cli
from loadmanager.broker import settings
from loadmanager.cli.doctor.asking import SERIES
from loadmanager.kit.telemetry import Metric

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
GROUPS = yaml.safe_load((DEPLOY / "alerts.yml").read_text())["groups"]
ALERTS = {rule["alert"]: rule for group in GROUPS for rule in group["rules"]}
DASHBOARD = json.loads((DEPLOY / "grafana" / "dashboards" / "loadmanager.json").read_text())
PANELS = [panel for panel in DASHBOARD["panels"] if "targets" in panel]
QUIET = {"Failures", "Error of limits", "Splits"}
"""Panels that may be empty on brokers that are well, and without limits."""
OF_PROMETHEUS = {"job", "instance", "alertname", "le"}
PROCESS = {"process_open_fds", "process_max_fds", "process_resident_memory_bytes"}

needs_prometheus = pytest.mark.skipif(
    shutil.which("promtool") is None or shutil.which("prometheus") is None,
    reason="Prometheus is not installed (Debian's package has it, with promtool)",
)


# What the expressions name


def _declared() -> dict[str, set[str]]:
    """Each series that a broker may show → its labels."""
    spec = importlib.util.spec_from_file_location("docs_generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    generate = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generate)
    shown: dict[str, set[str]] = {name: set() for name in (*PROCESS, "up")}
    metrics: set[Metric] = generate._declared_metrics()
    for metric in metrics:
        suffixes = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count")}
        for suffix in suffixes.get(metric.kind, ("",)):
            labels = shown.setdefault(metric.name + suffix, set())
            labels |= {*metric.labels, "cluster", *(["broker"] if metric.broker else [])}
    return shown


def _nodes(node: Any) -> Iterator[Any]:
    """An expression and all its parts."""
    yield node
    for name in ("lhs", "rhs", "expr", "param", "args", "vector_selector", "vs"):
        parts = getattr(node, name, None)
        for part in parts if isinstance(parts, list) else [parts]:
            if part is not None and not isinstance(part, str):
                yield from _nodes(part)


def _selected(expression: str) -> Iterator[tuple[str, set[str]]]:
    """Each metric that an expression selects, with the labels that it selects by."""
    for node in _nodes(promql_parser.parse(expression)):
        if isinstance(node, promql_parser.VectorSelector):
            yield node.name, {matcher.name for matcher in node.matchers.matchers}


def _filled(expression: str) -> str:
    return re.sub(r"\$__rate_interval", "1m", expression)


def _of_panels() -> Iterator[tuple[str, str]]:
    for panel in PANELS:
        for target in panel["targets"]:
            yield panel["title"], _filled(target["expr"])


EXPRESSIONS = [*((name, rule["expr"]) for name, rule in ALERTS.items()), *_of_panels()]


def test_expressions_name_what_brokers_show() -> None:
    """Metrics, the labels that they are selected by, and those that they are grouped by."""
    shown, count = _declared(), 0
    for where, expression in EXPRESSIONS:
        known = set(OF_PROMETHEUS)
        for name, labels in _selected(expression):
            assert name in shown, (where, name)
            assert labels <= shown[name] | OF_PROMETHEUS, (where, name, labels)
            known |= shown[name]
            count += 1
        for grouped in re.findall(r"\b(?:by|on) \(([^)]*)\)", expression):
            assert {label.strip() for label in grouped.split(",")} <= known, (where, grouped)
    assert count > 60


def test_the_doctor_reads_what_brokers_show() -> None:
    """The series of metrics pages that `loadmanager doctor` looks at exist."""
    assert set(_declared()) >= SERIES


def test_texts_of_alerts() -> None:
    """A sentence that says what is so, one that says what to do; the labels, commands and keys in
    them exist.
    """
    shown = _declared()
    for name, rule in ALERTS.items():
        summary, description = (rule["annotations"][key] for key in ("summary", "description"))
        assert summary.endswith("."), name
        assert description.endswith("."), name
        assert rule["labels"]["severity"] in ("page", "ticket")
        known = set(OF_PROMETHEUS).union(*(shown[each] for each, _ in _selected(rule["expr"])))
        for label in re.findall(r"\$labels\.(\w+)", summary + description):
            assert label in known, (name, label)
        for command in re.findall(r"`(loadmanager [^`]+)`", description):
            with contextlib.suppress(SystemExit):
                assert cli.main([*command.split()[1:], "--help"]) == 0, (name, command)
        for key in re.findall(r"\b(?:loadManager|loadBalancer|broker|expose)[A-Z]\w+", description):
            assert key in settings.KEYS.by_name(), (name, key)


def test_panels_have_texts_and_places() -> None:
    """Each says what it shows; none covers another; the rows are full."""
    taken = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells
        assert panel["type"] == "row" or panel["description"].endswith(".")
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
    assert len(taken) == 24 * (1 + max(y for _, y in taken))


def test_the_jobs_of_kubernetes() -> None:
    """Are those that the rules and the dashboard select: a PodMonitor takes them from a label of
    the pods.
    """
    folders = ("", "monitoring", "monitoring-fleet")
    documents = [
        document
        for folder in folders
        for document in yaml.safe_load_all(_kustomized(DEPLOY / "kubernetes" / folder))
    ]
    pods = [
        each["spec"]["template"]["metadata"]["labels"]
        for each in documents
        if each["kind"] in ("StatefulSet", "Deployment")
    ]
    jobs = set()
    for monitor in (each["spec"] for each in documents if each["kind"] == "PodMonitor"):
        wanted = monitor["selector"]["matchLabels"].items()
        (labels,) = [each for each in pods if wanted <= each.items()]
        jobs.add(labels[monitor["jobLabel"]])
    selected = re.findall(r'job="([^"]+)"', (DEPLOY / "alerts.yml").read_text())
    assert jobs == set(selected)
    assert set(re.findall(r'job=\\"([^"\\]+)', json.dumps(DASHBOARD))) <= jobs


def test_the_rules_of_kubernetes_are_current() -> None:
    """The PrometheusRule and the dashboard's map are made of the files here."""
    done = subprocess.run(
        [sys.executable, DEPLOY / "generate.py", "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    (rule,) = yaml.safe_load_all((DEPLOY / "kubernetes/monitoring/rules.yaml").read_text())
    assert rule["spec"]["groups"] == GROUPS
    (board,) = yaml.safe_load_all((DEPLOY / "kubernetes/monitoring/dashboard.yaml").read_text())
    assert json.loads(board["data"]["loadmanager.json"]) == DASHBOARD


def _kustomized(folder: Path) -> str:
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not installed")
    return subprocess.check_output(["kubectl", "kustomize", folder], text=True)


# When alerts fire


def _series(labels: str, values: str) -> dict[str, str]:
    return {"series": labels, "values": values}


def _bad_cluster() -> list[dict[str, str]]:
    """Series of a cluster in which everything is wrong for six hours."""
    b1 = '{cluster="c",broker="b1",job="loadmanager",instance="i"'
    b2 = '{cluster="c",broker="b2",job="loadmanager",instance="j"'
    return [
        _series('up{job="loadmanager",instance="i"}', "0x360"),
        _series(f"loadmanager_session_lease_seconds{b1}}}", "0x360"),
        _series(f"loadmanager_fenced_total{b1}}}", "0+1x360"),
        _series(f'pulsar_bundle_topics_count{b1},bundle="a/b/0",metric="bundle"}}', "1x360"),
        _series(f'pulsar_bundle_topics_count{b2},bundle="a/b/0",metric="bundle"}}', "1x360"),
        _series(f"loadmanager_event_loop_busy_ratio{b1}}}", "0.97x360"),
        _series('process_open_fds{job="loadmanager",instance="i"}', "900x360"),
        _series('process_max_fds{job="loadmanager",instance="i"}', "1000x360"),
        _series(f"loadmanager_refused_connections_total{b1}}}", "0+1x360"),
        _series(f"loadmanager_protocol_failures_total{b1}}}", "0+1x360"),
        _series(f"loadmanager_broker_unwell{b1}}}", "2x360"),
        _series(f"loadmanager_lost_brokers{b1}}}", "1x360"),
        _series(f"loadmanager_missing_brokers{b1}}}", "1x360"),
        _series(f"loadmanager_leader{b1}}}", "0x360"),
        _series('loadmanager_leader{cluster="d",broker="b1"}', "1x360"),
        _series('loadmanager_leader{cluster="d",broker="b2"}', "1x360"),
        _series(f"loadmanager_report_age_seconds{b1}}}", "500x360"),
        _series(f'pulsar_lb_step_failures_total{b1},step="report"}}', "0+1x360"),
        _series(f"loadmanager_moves_running{b1}}}", "1x360"),
        _series(f'loadmanager_moves_total{b1},author="cycle",state="done"}}', "3x360"),
        _series(f'loadmanager_moves_total{b2},author="cycle",state="failed"}}', "0+1x360"),
        # Moves of another cluster, whose broker has the same name, say nothing of this one's.
        _series('loadmanager_moves_total{cluster="d",broker="b1",state="done"}', "0+1x360"),
        _series(f"loadmanager_moves_paused{b1}}}", "1x360"),
        _series(f'pulsar_lb_resource_usage{b1},metric="lb",feature="max_ema"}}', "0.9x360"),
        _series(f'pulsar_lb_resource_usage{b2},metric="lb",feature="max_ema"}}', "0.1x360"),
        _series(f'loadmanager_disk_free_bytes{b1},folder="topics"}}', "5x360"),
        _series(f'loadmanager_disk_size_bytes{b1},folder="topics"}}', "100x360"),
        _series(f"loadmanager_storage_damaged_total{b1}}}", "0+1x360"),
        _series(f"loadmanager_history_dropped_records_total{b1}}}", "0+1x360"),
        _series(f'loadmanager_corrupt_data_total{b1},kind="wish"}}', "0+1x360"),
        _series(f"loadmanager_rejected_dynamic_values{b1}}}", "1x360"),
        _series(f'loadmanager_sensor_trusted{b1},sensor="cpu"}}', "0x360"),
        _series(f"loadmanager_sensors_mistrusted{b1}}}", "1x360"),
        _series(f'loadmanager_findings{b1},kind="clock"}}', "1x360"),
        _series(f'loadmanager_throttled_connections{b1},cause="topic publish rate"}}', "2x360"),
        _series(f"loadmanager_time_seconds{b1}}}", "0+60x360"),
        _series(f"loadmanager_time_seconds{b2}}}", "30+60x360"),
        _series(f'loadmanager_http_answers_total{b1},status="500"}}', "0+1x360"),
        _series(f'loadmanager_tls_certificate_ends_seconds{b1},certificate="x"}}', "86400x360"),
        _series(f'loadmanager_tls_refused_changes_total{b1},certificate="x"}}', "0+1x360"),
        _series('up{job="loadmanager-fleet",instance="f"}', "0x360"),
        _series('up{job="loadmanager-fleet",instance="g"}', "0x360"),
        _series(f"loadmanager_fleet_held{b1}}}", "1x360"),
        _series(f"loadmanager_fleet_breaker_openings_total{b1}}}", "0+1x360"),
        _series(f"loadmanager_fleet_report_age_seconds{b1}}}", "0+60x360"),
    ]


def _good_cluster() -> list[dict[str, str]]:
    """The same series of a cluster that is well: nothing fails, and something moves."""
    b1 = '{cluster="c",broker="b1",job="loadmanager",instance="i"'
    b2 = '{cluster="c",broker="b2",job="loadmanager",instance="j"'
    return [
        _series('up{job="loadmanager",instance="i"}', "1x360"),
        _series(f"loadmanager_session_lease_seconds{b1}}}", "25x360"),
        _series(f"loadmanager_fenced_total{b1}}}", "1x360"),
        _series(f'pulsar_bundle_topics_count{b1},bundle="a/b/0",metric="bundle"}}', "1x360"),
        _series(f'pulsar_bundle_topics_count{b2},bundle="a/b/1",metric="bundle"}}', "1x360"),
        _series(f"loadmanager_event_loop_busy_ratio{b1}}}", "0.5 0.97 0.5x358"),
        _series('process_open_fds{job="loadmanager",instance="i"}', "100x360"),
        _series('process_max_fds{job="loadmanager",instance="i"}', "1000x360"),
        _series(f"loadmanager_broker_unwell{b1}}}", "0x360"),
        _series(f"loadmanager_lost_brokers{b1}}}", "0x360"),
        _series(f"loadmanager_missing_brokers{b1}}}", "0x360"),
        _series(f"loadmanager_leader{b1}}}", "1x360"),
        _series(f"loadmanager_leader{b2}}}", "0x360"),
        _series(f"loadmanager_report_age_seconds{b1}}}", "5x360"),
        _series(f'pulsar_lb_step_failures_total{b1},step="report"}}', "2x360"),
        _series(f"loadmanager_moves_running{b1}}}", "1x360"),
        _series(f'loadmanager_moves_total{b1},author="cycle",state="done"}}', "0+1x360"),
        _series(f'loadmanager_moves_total{b1},author="cycle",state="failed"}}', "1x360"),
        _series(f"loadmanager_moves_paused{b1}}}", "1x100 0x260"),
        _series(f'pulsar_lb_resource_usage{b1},metric="lb",feature="max_ema"}}', "0.9x360"),
        _series(f'pulsar_lb_resource_usage{b2},metric="lb",feature="max_ema"}}', "0.1x360"),
        _series(f'loadmanager_disk_free_bytes{b1},folder="topics"}}', "50x360"),
        _series(f'loadmanager_disk_size_bytes{b1},folder="topics"}}', "100x360"),
        _series(f'loadmanager_sensor_trusted{b1},sensor="cpu"}}', "1x360"),
        _series(f'loadmanager_sensor_trusted{b1},sensor="nicSpeed"}}', "0x360"),
        _series(f"loadmanager_sensors_mistrusted{b1}}}", "1x5 0 " * 60),
        _series(f'loadmanager_findings{b1},kind="clock"}}', "0 1x2 " * 90),
        _series(f'loadmanager_throttled_connections{b1},cause="x"}}', "2x40 0 " * 8),
        _series(f"loadmanager_time_seconds{b1}}}", "0+60x360"),
        _series(f"loadmanager_time_seconds{b2}}}", "1+60x360"),
        _series(f'loadmanager_http_answers_total{b1},status="500"}}', "2x360"),
        _series(f'loadmanager_tls_certificate_ends_seconds{b1},certificate="x"}}', "9000000x360"),
        _series(f'loadmanager_tls_refused_changes_total{b1},certificate="x"}}', "1x360"),
        _series('up{job="loadmanager-fleet",instance="f"}', "1x360"),
        _series('up{job="loadmanager-fleet",instance="g"}', "0x360"),
        _series(f"loadmanager_fleet_held{b1}}}", "0 1 " * 180),
        _series(f"loadmanager_fleet_breaker_openings_total{b1}}}", "1x360"),
        _series(f"loadmanager_fleet_report_age_seconds{b1}}}", "30x360"),
    ]


def _firing(input_series: list[dict[str, str]], expected: set[str], minute: int) -> dict[str, Any]:
    return {
        "interval": "1m",
        "input_series": input_series,
        "promql_expr_test": [
            {
                "expr": 'count by (alertname) (ALERTS{alertstate="firing"}) > bool 0',
                "eval_time": f"{minute}m",
                "exp_samples": [
                    {"labels": f'{{alertname="{name}"}}', "value": 1} for name in sorted(expected)
                ],
            }
        ],
    }


@needs_prometheus
def test_alerts_fire_when_they_should(tmp_path: Path) -> None:
    """In a cluster where everything is wrong, all of them; in one that is well, none."""
    document = {
        "rule_files": [str(DEPLOY / "alerts.yml")],
        "evaluation_interval": "1m",
        "tests": [
            _firing(_bad_cluster(), set(ALERTS), 330),
            _firing(_good_cluster(), set(), 90),
            _firing(_good_cluster(), set(), 330),
        ],
    }
    file = tmp_path / "test.yml"
    file.write_text(json.dumps(document))  # JSON is YAML
    done = subprocess.run(
        ["promtool", "test", "rules", file], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    checked = subprocess.run(
        ["promtool", "check", "config", DEPLOY / "prometheus.yml"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


# On running brokers


@contextlib.contextmanager
def _prometheus(folder: Path, brokers: list[str]) -> Iterator[Prometheus]:
    """A Prometheus with our configuration and rules, quicker, over these brokers."""
    config = yaml.safe_load((DEPLOY / "prometheus.yml").read_text())
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    config["rule_files"] = [str(DEPLOY / "alerts.yml")]
    config["scrape_configs"][0]["static_configs"] = [{"targets": brokers}]
    file, port = folder / "prometheus.yml", free_ports(1)
    file.write_text(json.dumps(config))
    with subprocess.Popen(
        [
            "prometheus",
            f"--config.file={file}",
            f"--web.listen-address=127.0.0.1:{port}",
            f"--storage.tsdb.path={folder / 'prometheus'}",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            yield Prometheus(f"http://127.0.0.1:{port}")
        finally:
            process.send_signal(signal.SIGTERM)


def _has(prometheus: Prometheus, expression: str) -> bool:
    try:
        return prometheus.has_value(expression)
    except OSError:
        return False  # it starts


def _use(cluster: Cluster) -> pulsar.Client:
    """Publish to a topic, and move its bundle to the other broker."""
    topic = "persistent://public/default/watched"
    client = pulsar.Client(
        cluster.service_url(), logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    )
    producer = client.create_producer(topic)
    producer.send(b"x")
    owner = cluster.owner_of(topic)
    bundle = cluster.get(0, "/lookup/v2/topic/persistent/public/default/watched/bundle")
    body = {"bundle": f"public/default/{bundle}", "destination": cluster.broker_id(1 - owner)}
    status, told = cluster.request(0, "POST", "/loadmanager/v1/moves", body)
    assert status == 200, told
    producer.send(b"y")
    return client


@needs_prometheus
@pytest.mark.system
@pytest.mark.client
@pytest.mark.timeout(900)
def test_expressions_on_running_brokers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each is evaluated, no alert fires on brokers that are well, and every panel has data but
    those of failures and limits. The doctor finds no problem there, and says which broker is dead
    once one is killed.
    """
    values = {
        "loadBalancerSheddingIntervalMinutes": "0.02",
        "loadBalancerHostUsageCheckIntervalMinutes": "0.02",
        "loadBalancerOverrideBrokerNicSpeedGbps": "1",
    }
    with Cluster(tmp_path, brokers=2, settings=values, session_ms=6_000) as cluster:
        brokers = [cluster.broker_id(index) for index in range(2)]
        with _prometheus(tmp_path, brokers) as prometheus:
            wait_for(lambda: _has(prometheus, "count(up == 1) == 2"), "both are scraped", 120)
            client = _use(cluster)
            try:
                moved = "sum(increase(loadmanager_move_pause_seconds_count[1m])) > 0"
                wait_for(lambda: _has(prometheus, moved), "the move is seen", 120)
                board = Dashboard(prometheus, DASHBOARD)
                wait_for(lambda: not _empty(board) - QUIET, "every panel has data", 120)
            finally:
                client.close()
            for where, expression in EXPRESSIONS:
                answer = prometheus.ask("query", query=_plain(expression))
                assert answer is not None, (where, expression)
            assert not prometheus.ask("query", query='ALERTS{alertstate="firing"}')["result"]
        url = f"http://{brokers[0]}"
        assert cli.main(["doctor", "--url", url, "--json"]) in (0, 3), capsys.readouterr()
        capsys.readouterr()
        cluster.kill(1)
        assert cli.main(["doctor", "--url", url, "--json", "--timeout", "5"]) == 1
        told = json.loads(capsys.readouterr().out)
        problems = [each for each in told["findings"] if each["level"] == "problem"]
        assert brokers[1] in {each["subject"] for each in problems}


def _plain(expression: str) -> str:
    """With values for the dashboard's variables."""
    return re.sub(r"\$(cluster|broker)\b", ".*", expression)


def _empty(board: Dashboard) -> set[str]:
    return {str(panel["title"]) for panel in board.panels() if not board.has_data(panel)}
