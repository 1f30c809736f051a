"""The Helm chart: rendered by helm where there is one, valid by Kubernetes' schemas, and true."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import command_lines
import kubernetes_validate
import pytest
import yaml

from loadmanager import __version__
from loadmanager.broker import settings
from loadmanager.cli.bootstrap import SETTINGS, ZOOKEEPER
from loadmanager.member.settings import BrokerSettings

CHART = Path(__file__).parents[2] / "deploy" / "chart"
HELPERS = (CHART / "templates" / "_helpers.tpl").read_text()
KUBERNETES = "1.31"
SECRETS = "/run/secrets/loadmanager"
HELM = shutil.which("helm")
EVERYTHING = {
    "secure.secret": "s",
    "outside.enabled": "true",
    "zookeeper.address": "zk-0:2281/x",
    "zookeeper.tls": "true",
    "monitoring.enabled": "true",
    "monitoring.labels.release": "prometheus",
    "nicSpeedGbps": "10",
    "storage.enabled": "false",
    "config.backlogQuotaDefaultLimitGB": "10",
    "priorityClassName": "high",
    "networkPolicy.clientNamespaces": "{apps}",
    "networkPolicy.egress.enabled": "true",
    "networkPolicy.egress.also[0].to[0].ipBlock.cidr": "10.0.0.0/8",
    "podAnnotations.x": "y",
}

needs_helm = pytest.mark.skipif(HELM is None, reason="helm is not installed")


def _helm(values: dict[str, str], *words: object) -> subprocess.CompletedProcess[str]:
    given = [word for name, value in values.items() for word in ("--set", f"{name}={value}")]
    command = [HELM or "helm", "template", "lm", CHART, "--namespace", "prod", *given, *words]
    return subprocess.run(
        [*command, "--kube-version", f"{KUBERNETES}.0"], capture_output=True, text=True, check=False
    )


def _rendered(values: dict[str, str], *words: object) -> dict[str, dict[str, Any]]:
    """Kind and name → document, each valid."""
    done = _helm(values, *words)
    assert done.returncode == 0, done.stderr
    documents = [each for each in yaml.safe_load_all(done.stdout) if each]
    for document in documents:
        if "monitoring.coreos.com" not in document["apiVersion"]:
            kubernetes_validate.validate(document, KUBERNETES, strict=True)
    return {f"{each['kind']} {each['metadata']['name']}": each for each in documents}


def _given(container: dict[str, Any], ordinal: str = "1") -> dict[str, str]:
    """The keys that the command of a broker sets, as in its pod."""
    texts = {"BROKER_HOST": "lm-1.lm.prod.svc.cluster.local", "ORDINAL": ordinal}
    words = [re.sub(r"\$\((\w+)\)", lambda it: texts[it[1]], word) for word in container["args"]]
    given = command_lines.check(words)["overrides"]
    assert isinstance(given, dict)
    return given


def test_its_version_is_that_of_the_package() -> None:
    """So is the image's, whose tag it is; that of the chart is spelled as Helm wants it."""
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == __version__
    assert chart["version"] == __version__.replace(".dev", "-dev.")


def test_it_secures_as_the_command_does() -> None:
    """The same settings, where the secret is mounted."""
    for line in (SETTINGS + ZOOKEEPER).format(at=SECRETS).splitlines():
        assert line[0] == "#" or f"\n{line}\n" in HELPERS, line


def _nested(values: dict[str, str]) -> dict[str, Any]:
    """What helm makes of `--set` for such names."""
    made: dict[str, Any] = {}
    for name, value in values.items():
        *parts, last = re.findall(r"[^.\[\]]+", name)
        within: Any = made
        for part, following in zip(parts, [*parts, last][1:], strict=True):
            fresh: Any = [] if following.isdigit() else {}
            if isinstance(within, list):
                within.append(fresh)
                within = fresh
            else:
                within = within.setdefault(part, fresh)
        within[last] = yaml.safe_load(re.sub(r"^{(.*)}$", r"[\1]", value))
    return made


def _refused(files: Sequence[Path]) -> dict[str, str]:
    """The files of values that the schema does not take, by their names, and why."""
    done = subprocess.run(
        [
            Path(sys.executable).parent / "check-jsonschema",
            *("--output-format", "json", "--schemafile", CHART / "values.schema.json", *files),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    told = json.loads(done.stdout)
    assert not told.get("parse_errors")
    return {Path(each["filename"]).stem: str(each) for each in told.get("errors", ())}


def _written(folder: Path, **values: dict[str, Any]) -> list[Path]:
    for name, document in values.items():
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(document))
    return [folder / f"{name}.yaml" for name in values]


def test_the_schema_takes_what_is_right(tmp_path: Path) -> None:
    """The defaults, those for trials, those of these tests; it knows each value that is there."""
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())
    host = {"host": "pulsar.example.org"}
    some = _written(
        tmp_path,
        everything=_nested(EVERYTHING),
        empty={},
        within={"global": {"x": 1}},
        one={"replicas": 1, "outside": {"enabled": True, **host}},
        off={"replicas": 3, "outside": {"enabled": False, **host}},
        cpu={"resources": {"requests": {"cpu": 1}}},
    )
    assert _refused([CHART / "values.yaml", CHART / "values-trial.yaml", *some]) == {}

    def check(values: dict[str, Any], schema: dict[str, Any]) -> None:
        for name, value in values.items():
            assert name in schema["properties"], name
            if "properties" in schema["properties"][name]:
                check(value, schema["properties"][name])

    check(defaults, json.loads((CHART / "values.schema.json").read_text()))


def test_the_schema_refuses_what_is_wrong(tmp_path: Path) -> None:
    """Keys that nothing reads, also within others, and values of another type."""
    wrong: dict[str, dict[str, Any]] = {
        "typo": {"replica": 3},
        "inner": {"storage": {"enable": False}},
        "deep": {"networkPolicy": {"egress": {"ports": [1]}}},
        "text": {"replicas": "3"},
        "none": {"replicas": 0},
        "flag": {"secure": {"secret": True}},
        "word": {"storage": {"enabled": "false"}},
        "digest": {"image": {"digest": "3f2a"}},
        "policy": {"image": {"pullPolicy": "Sometimes"}},
        "speed": {"nicSpeedGbps": "fast"},
        "size": {"storage": {"size": "50 GB"}},
        "bytes": {"storage": {"size": 50}},
        "snapshots": {"zookeeper": {"storage": 10}},
        "host": {"replicas": 2, "outside": {"enabled": True, "host": "pulsar.example.org"}},
        "hosts": {"outside": {"enabled": True, "host": "pulsar.example.org"}},
        "port": {"networkPolicy": {"egress": {"zookeeperPorts": ["2181"]}}},
        "config": {"config": {"a": {"b": 1}}},
        "list": {"spread": "zone"},
    }
    assert _refused(_written(tmp_path, **wrong)).keys() == wrong.keys()


@needs_helm
def test_helm_refuses_a_typo() -> None:
    """By the schema."""
    done = _helm({"storage.enable": "false"})
    assert done.returncode != 0
    assert "enable" in done.stderr


@needs_helm
def test_a_release_for_trials(tmp_path: Path) -> None:
    """Brokers accept their file and command; ZooKeeper is there, and the claim outlives it."""
    found = _rendered({})
    file = tmp_path / "broker.conf"
    file.write_text(found["ConfigMap lm"]["data"]["broker.conf"])
    pod = found["StatefulSet lm"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    loaded, problems = settings.examine(file, _given(container))
    assert ([problem.text for problem in problems], loaded.unknown) == ([], ())
    assert loaded.given["metadataStoreUrl"] == "zk:lm-zookeeper:2181/loadmanager"
    assert "StatefulSet lm-zookeeper" in found
    claim = found["PersistentVolumeClaim lm"]
    assert claim["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
    (words,) = command_lines.simple_commands(
        container["lifecycle"]["preStop"]["exec"]["command"][2]
    )
    options = command_lines.check(words[1:])
    within = options["within"]
    assert isinstance(within, float)
    stop_s = loaded.leaf(BrokerSettings).shutdown_timeout_ms / 1000
    assert pod["terminationGracePeriodSeconds"] > within + stop_s
    (job,) = found["Job lm-initialize"]["spec"]["template"]["spec"]["containers"]
    command_lines.check(job["args"])
    assert pod["automountServiceAccountToken"] is False


@needs_helm
def test_a_first_look() -> None:
    """On a small cluster: no volume that brokers share, and little reserved."""
    found = _rendered({}, "--values", CHART / "values-trial.yaml")
    assert not [name for name in found if name.startswith("PersistentVolumeClaim")]
    assert "loadManagerStorageDirectory=\n" in found["ConfigMap lm"]["data"]["broker.conf"]
    pod = found["StatefulSet lm"]["spec"]["template"]["spec"]
    assert pod["containers"][0]["resources"]["requests"]["cpu"] == "100m"


@needs_helm
def test_a_release_with_everything(tmp_path: Path) -> None:
    """TLS and tokens, also of the drain and of Prometheus; an address for each broker; no ZooKeeper
    and no volume.
    """
    found = _rendered(EVERYTHING)
    names = " ".join(found)
    assert "zookeeper" not in names
    assert "PersistentVolumeClaim" not in names
    conf = found["ConfigMap lm"]["data"]["broker.conf"]
    (container,) = found["StatefulSet lm"]["spec"]["template"]["spec"]["containers"]
    given = _given(container)
    assert "outside:https://broker-1.example.org:8081" in given["advertisedListeners"]
    assert f"file://{SECRETS}/broker.token" in str(container["env"])
    assert container["readinessProbe"]["httpGet"]["scheme"] == "HTTPS"
    (words,) = command_lines.simple_commands(
        container["lifecycle"]["preStop"]["exec"]["command"][2]
    )
    assert words[words.index("--tls-trust-certs") + 1] == f"{SECRETS}/ca.pem"
    command_lines.check(words[1:])
    file = tmp_path / "broker.conf"
    file.write_text(conf)
    loaded = settings.KEYS.load(file, given)
    assert not loaded.unknown
    broker = loaded.leaf(BrokerSettings)
    assert (broker.broker_port_tls, broker.web_port_tls) == (6650, 8080)
    assert loaded.given["loadBalancerOverrideBrokerNicSpeedGbps"] == "10"
    outside = found["Service lm-outside-1"]["spec"]
    assert outside["selector"]["statefulset.kubernetes.io/pod-name"] == "lm-1"
    labels = found["StatefulSet lm"]["spec"]["template"]["metadata"]["labels"]
    monitor = found["PodMonitor lm"]["spec"]
    assert labels[monitor["jobLabel"]] == "loadmanager"
    assert monitor["selector"]["matchLabels"].items() <= labels.items()
    assert found["PrometheusRule lm"]["spec"]["groups"]
    assert found["ConfigMap lm-dashboard"]["data"]["loadmanager.json"].startswith("{")


@needs_helm
@pytest.mark.parametrize("also", [{}, {"secure.secret": "s"}])
def test_values_that_contradict_each_other(also: dict[str, str]) -> None:
    """Are refused, with the reason."""
    done = _helm({"zookeeper.tls": "true", **also})
    assert done.returncode != 0
    assert "zookeeper.tls needs" in done.stderr
