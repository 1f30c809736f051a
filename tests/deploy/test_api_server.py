"""The manifests and the chart, taken by a real Kubernetes API server: `make test-deploy`.

It checks what no schema says: selectors, immutable fields, references, the security of pods.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from clusters.standalone import wait_for
from deploy.api_server import ApiServer, operators_kinds, why_not

from loadmanager.cli import main

pytestmark = [pytest.mark.deploy, pytest.mark.timeout(1200)]

DEPLOY = Path(__file__).parents[2] / "deploy"
CHART = DEPLOY / "chart"
OVERLAYS = ["monitoring", "fleet", "monitoring-fleet"]
EVERYTHING = [
    "--set=secure.secret=s,outside.enabled=true,zookeeper.address=zk-0:2281/x,zookeeper.tls=true",
    "--set=monitoring.enabled=true,monitoring.labels.release=prometheus,nicSpeedGbps=10",
    "--set=config.backlogQuotaDefaultLimitGB=10,priorityClassName=high,podAnnotations.x=y",
    "--set=networkPolicy.clientNamespaces={apps},replicas=5",
    "--set=networkPolicy.egress.enabled=true",
    "--set=networkPolicy.egress.also[0].to[0].ipBlock.cidr=10.0.0.0/8",
]

needs_helm = pytest.mark.skipif(shutil.which("helm") is None, reason="helm is not installed")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    """One that has the kinds of the Prometheus operator, where they can be had."""
    if reason := why_not():
        pytest.skip(reason)
    with ApiServer(tmp_path_factory.mktemp("kubernetes")).serving() as serving:
        for file in operators_kinds():
            serving.run("kubectl", "create", "-f", file)
        yield serving


@pytest.fixture
def monitored(server: ApiServer) -> ApiServer:
    """The server, if it has those kinds."""
    kinds = ("podmonitors", "prometheusrules")
    if not operators_kinds():
        pytest.skip("Go's module proxy does not give the kinds of the Prometheus operator")
    for kind in kinds:
        path = f"/apis/monitoring.coreos.com/v1/{kind}"
        wait_for(lambda path=path: server.run("kubectl", "get", "--raw", path), kind)
    return server


def _secrets(folder: Path) -> Path:
    """The secured overlay beside what it is laid over, with credentials."""
    shutil.copytree(DEPLOY, folder / "deploy")
    overlay = folder / "deploy" / "secure" / "kubernetes"
    shutil.rmtree(overlay / "credentials", ignore_errors=True)
    assert main(["tokens", "bootstrap", str(overlay / "credentials"), "localhost"]) == 0
    return overlay


def _hook(server: ApiServer) -> Path:
    """The chart's job, by itself, for that server's version: helm alone takes one of its own."""
    version = json.loads(server.run("kubectl", "get", "--raw", "/version"))["gitVersion"]
    command = ["helm", "template", "lm", str(CHART), "--namespace=chart"]
    told = subprocess.check_output([*command, f"--kube-version={version}"], text=True)
    rendered = yaml.safe_load_all(told)
    (job,) = [each for each in rendered if each and each["kind"] == "Job"]
    file = server.folder / "job.yaml"
    file.write_text(yaml.safe_dump(job))
    return file


def _get(server: ApiServer, namespace: str, kind: str) -> dict[str, dict[str, Any]]:
    """Objects by their names."""
    told = server.run("kubectl", "get", kind, f"--namespace={namespace}", "--output=json")
    return {each["metadata"]["name"]: each for each in json.loads(told)["items"]}


def test_the_manifests(server: ApiServer, tmp_path: Path) -> None:
    """Are taken without a warning, also the secured ones after those that are not."""
    server.namespace("plain")
    server.apply("plain", "-k", DEPLOY / "kubernetes")
    # A job cannot be changed; a controller would remove it five minutes after its end.
    server.run("kubectl", "delete", "job", "loadmanager-initialize", "--namespace=plain")
    server.apply("plain", "-k", _secrets(tmp_path))
    assert set(_get(server, "plain", "statefulset")) == {"loadmanager"}
    server.apply("plain", "-k", DEPLOY / "kubernetes" / "egress")
    assert set(_get(server, "plain", "networkpolicy")) == {"loadmanager", "loadmanager-egress"}
    secrets = set(_get(server, "plain", "secret"))
    (job,) = _get(server, "plain", "job").values()
    volumes = job["spec"]["template"]["spec"]["volumes"]
    assert {it["secret"]["secretName"] for it in volumes if "secret" in it} <= secrets
    assert "credentials" in [it["name"] for it in volumes]


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_manifests_with_monitoring(monitored: ApiServer, overlay: str) -> None:
    """Are taken without a warning."""
    monitored.namespace(overlay)
    monitored.apply(overlay, "-k", DEPLOY / "kubernetes" / overlay)


def test_the_manifests_without_storage(server: ApiServer) -> None:
    """Are taken without a warning, and claim no volume."""
    server.namespace("no-storage")
    server.apply("no-storage", "-k", DEPLOY / "kubernetes-without-storage")
    assert not _get(server, "no-storage", "persistentvolumeclaim")
    assert not _get(server, "no-storage", "cronjob")
    (brokers,) = _get(server, "no-storage", "statefulset").values()
    pod = brokers["spec"]["template"]["spec"]
    assert "--set=loadManagerStorageDirectory=" in pod["containers"][0]["args"]
    assert {"name": "data", "emptyDir": {}} in pod["volumes"]


def test_the_secured_monitoring(monitored: ApiServer, tmp_path: Path) -> None:
    monitored.namespace("secured-monitoring")
    monitored.apply("secured-monitoring", "-k", _secrets(tmp_path) / "monitoring")


def test_a_wrong_manifest_is_refused(server: ApiServer, tmp_path: Path) -> None:
    """So the others are not taken for want of a look."""
    wrong = tmp_path / "wrong.yaml"
    text = (DEPLOY / "kubernetes" / "services.yaml").read_text()
    wrong.write_text(text.replace("targetPort:", "targetPorts:"))
    strict = ("--server-side", "--validate=strict")
    told = server.run("kubectl", "apply", *strict, "-f", wrong, refused=True)
    assert "targetPorts" in told


@needs_helm
def test_the_chart(monitored: ApiServer) -> None:
    """Is installed, upgraded to everything, rolled back, removed and installed again: the claim of
    the stored topics stays. Nothing warns.
    """
    server, where = monitored, "--namespace=chart"
    server.namespace("chart")
    told = [server.apply("chart", "-f", _hook(server))]
    # No controller ends the job that helm would wait for.
    install = ("helm", "install", "lm", CHART, where, "--no-hooks")
    told.append(server.run(*install))
    upgrade = ("helm", "upgrade", "lm", CHART, where, "--no-hooks")
    told.append(server.run(*upgrade, *EVERYTHING))
    brokers = _get(server, "chart", "statefulset")["lm"]
    assert brokers["spec"]["replicas"] == 5
    assert set(_get(server, "chart", "podmonitor")) == {"lm"}
    told.append(server.run("helm", "rollback", "lm", "1", where, "--no-hooks"))
    assert set(_get(server, "chart", "statefulset")) == {"lm", "lm-zookeeper"}
    told.append(server.run("helm", "uninstall", "lm", where, "--no-hooks"))
    assert "lm" in _get(server, "chart", "pvc")
    told.append(server.run(*install, "--set=outside.enabled=true,outside.type=NodePort"))
    assert "warn" not in "".join(told).lower().replace("warn=restricted", "")
