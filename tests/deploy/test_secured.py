"""deploy/secure: the same clusters with authentication and TLS, from the credentials that
`loadmanager tokens bootstrap` makes.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import command_lines
import kubernetes_validate
import pulsar
import pytest
import yaml
from clusters.standalone import wait_for
from ports import free_ports

from loadmanager.broker import settings
from loadmanager.kit.zookeeper.java import JavaZooKeeper
from loadmanager.member.settings import BrokerSettings

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
SECURE = DEPLOY / "secure"
BIN = Path(sys.executable).parent
SECRETS = "/run/secrets/loadmanager"
OPEN = "loadManagerAllowUnauthenticatedAccess"
PAIRS = [
    (DEPLOY / "compose.conf", SECURE / "compose.conf"),
    (DEPLOY / "kubernetes" / "broker.conf", SECURE / "kubernetes" / "broker.conf"),
]
COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
OVERLAY = yaml.safe_load((SECURE / "compose.yml").read_text())
BROKERS = ["broker-0", "broker-1", "broker-2"]
TOPIC = "persistent://acme/orders/t"


def _environment() -> dict[str, str]:
    return {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}


def _make(folder: Path, *names: str) -> str:
    done = subprocess.run(
        [BIN / "loadmanager", "tokens", "bootstrap", folder, *names],
        capture_output=True,
        text=True,
        check=False,
        env=_environment(),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _keys(file: Path) -> dict[str, str]:
    lines = [line for line in file.read_text().splitlines() if line and line[0] != "#"]
    return dict(line.split("=", 1) for line in lines)


def _file(credentials: Path, folder: Path, secured: Path = SECURE / "compose.conf") -> Path:
    """A broker's file as on this machine: with the folder where its credentials are."""
    file = folder / "broker.conf"
    file.write_text(secured.read_text().replace(SECRETS, str(credentials / "broker")))
    return file


@pytest.fixture(scope="module")
def credentials(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the command makes."""
    folder = tmp_path_factory.mktemp("secure") / "credentials"
    assert f"made {folder}/authority" in _make(folder, "localhost", "127.0.0.1", "*.example.org")
    return folder


def test_what_the_command_makes(credentials: Path) -> None:
    """Nothing that another user can read, but for what Prometheus reads; the names are in the
    certificate; a second run changes nothing; all but the authority is made anew on demand.
    """
    for path in credentials.rglob("*"):
        others = path.stat().st_mode & 0o077
        assert not others or path.is_relative_to(credentials / "monitoring"), path
    text = subprocess.check_output(
        ["openssl", "x509", "-in", credentials / "broker/broker.pem", "-noout", "-text"], text=True
    )
    assert "DNS:localhost, IP Address:127.0.0.1, DNS:*.example.org" in text
    before = {path: path.read_bytes() for path in credentials.rglob("*") if path.is_file()}
    assert "nothing was changed" in _make(credentials, "localhost")
    assert {path: path.read_bytes() for path in before} == before
    copied = credentials.parent / "renewed"
    shutil.copytree(credentials, copied)
    _make(copied, "localhost", "--renew", "--zookeeper", "zk-1")
    for name in ("authority/ca.pem", "authority/private.key", "broker/ca.pem", "broker/public.key"):
        assert (copied / name).read_bytes() == (credentials / name).read_bytes()
    for name in ("broker/broker.pem", "broker/broker.token", "authority/admin.token"):
        assert (copied / name).read_bytes() != (credentials / name).read_bytes()
    for name, host in (("broker/broker.pem", "localhost"), ("zookeeper/zookeeper.pem", "zk-1")):
        # As strictly as Python does from 3.13 on.
        command = ["openssl", "verify", "-x509_strict", "-CAfile", copied / "authority/ca.pem"]
        subprocess.run([*command, "-verify_hostname", host, copied / name], check=True)


def test_the_settings_that_the_command_makes(credentials: Path) -> None:
    """Are those of the overlays, where the files are."""
    made = (credentials / "broker/secure.conf").read_text()
    texts = made.replace(str(credentials / "broker"), SECRETS)
    for _, secured in PAIRS:
        assert texts in secured.read_text(), secured
    loaded, problems = settings.examine(credentials / "broker/secure.conf", {})
    assert (problems, loaded.unknown) == ([], ())


@pytest.mark.parametrize(("plain", "secured"), PAIRS, ids=["compose", "kubernetes"])
def test_a_secured_file_has_what_the_plain_one_has(
    plain: Path, secured: Path, credentials: Path, tmp_path: Path
) -> None:
    """But for the open door; a broker accepts it with the credentials, on the same ports."""
    before, after = _keys(plain), _keys(secured)
    assert before.pop(OPEN) == "true"
    assert OPEN not in after
    stores = before.pop("metadataStoreUrl"), after["metadataStoreUrl"]
    assert stores[0] == stores[1].replace(":2281", ":2181")
    assert before.items() <= after.items()
    file = _file(credentials, tmp_path, secured)
    loaded, problems = settings.examine(file, {})
    assert (problems, loaded.unknown) == ([], ())
    open_, closed = (settings.KEYS.load(each, {}).leaf(BrokerSettings) for each in (plain, file))
    assert (closed.broker_port, closed.web_port) == (None, None)
    assert (closed.broker_port_tls, closed.web_port_tls) == (open_.broker_port, open_.web_port)


def test_the_overlay_of_docker_compose(credentials: Path, tmp_path: Path) -> None:
    """Valid by the schema; only what is there is changed, each volume and file exists; a secured
    broker has the command of the plain one, with TLS.
    """
    subprocess.run(
        [
            BIN / "check-jsonschema",
            "--builtin-schema",
            "vendor.compose-spec",
            SECURE / "compose.yml",
        ],
        check=True,
        capture_output=True,
    )
    assert OVERLAY["services"].keys() - COMPOSE["services"].keys() == {"credentials"}
    (script,) = OVERLAY["services"]["credentials"]["command"]
    words = next(command_lines.simple_commands(script))
    options = command_lines.check(words[1:])
    assert set(BROKERS) <= set(options["names"])  # type: ignore[call-overload]
    zookeepers = {name for name in OVERLAY["services"] if name.startswith("zookeeper-")}
    assert set(options["zookeeper"]) == zookeepers  # type: ignore[call-overload]
    assert options["at"] == SECRETS
    declared = COMPOSE["volumes"].keys() | OVERLAY["volumes"].keys()
    for service in OVERLAY["services"].values():
        for volume in service["volumes"]:
            source = volume.split(":")[0]
            assert (ROOT / source).exists() if source[0] == "." else source in declared
    for name in BROKERS:
        words = OVERLAY["services"][name]["command"]
        given = command_lines.check(words)["overrides"]
        assert isinstance(given, dict)
        assert not settings.examine(_file(credentials, tmp_path), given)[1]
        plain = [
            word.replace("pulsar+ssl:", "pulsar:").replace("https:", "http:") for word in words
        ]
        assert plain == COMPOSE["services"][name]["command"]


def test_prometheus_is_told_where_its_token_is(credentials: Path) -> None:
    """The files that its configuration names are made; the rest is as without TLS."""
    plain, secured = (
        yaml.safe_load((folder / "prometheus.yml").read_text()) for folder in (DEPLOY, SECURE)
    )
    (job,) = secured["scrape_configs"]
    for file in (job.pop("tls_config")["ca_file"], job.pop("authorization")["credentials_file"]):
        assert (credentials / "monitoring" / Path(file).name).exists()
    assert job.pop("scheme") == "https"
    assert secured == plain


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
def test_the_overlay_of_kubernetes(credentials: Path, tmp_path: Path) -> None:
    """It builds, its objects are valid, and the secrets have what the broker's file names."""
    shutil.copytree(DEPLOY, tmp_path / "deploy")
    folder = tmp_path / "deploy" / "secure" / "kubernetes"
    shutil.rmtree(folder / "credentials", ignore_errors=True)
    shutil.copytree(credentials, folder / "credentials")
    built = subprocess.check_output(["kubectl", "kustomize", folder], text=True)
    found: dict[str, dict[str, Any]] = {}
    for document in yaml.safe_load_all(built):
        kubernetes_validate.validate(document, "1.31", strict=True)
        found[f"{document['kind']} {document['metadata']['name'].rsplit('-', 1)[0]}"] = document
    named = {
        value.rpartition("/")[2]
        for value in _keys(SECURE / "kubernetes" / "broker.conf").values()
        if SECRETS in value
    }
    secret = found["Secret loadmanager-credentials"]
    assert set(secret["data"]) == named
    pod = found["StatefulSet loadmanager"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    (volume,) = [each for each in pod["volumes"] if each["name"] == "credentials"]
    assert volume["secret"]["secretName"] == secret["metadata"]["name"]
    assert container["readinessProbe"]["httpGet"] == {
        "scheme": "HTTPS",
        "path": "/admin/v2/brokers/ready",
        "port": "http",
    }
    job = found["Job loadmanager"]["spec"]["template"]["spec"]
    for each in (pod, job):
        assert volume in each["volumes"]
        assert {"name": "credentials", "mountPath": SECRETS, "readOnly": True} in each[
            "containers"
        ][0]["volumeMounts"]
        # The files are the group's to read.
        assert (volume["secret"]["defaultMode"], each["securityContext"]["fsGroup"]) == (
            0o440,
            each["securityContext"]["runAsGroup"],
        )
    script = container["lifecycle"]["preStop"]["exec"]["command"][2]
    (words,) = command_lines.simple_commands(script)
    assert command_lines.check(words[1:])["until_restart"]
    monitor = subprocess.check_output(["kubectl", "kustomize", folder / "monitoring"], text=True)
    kinds = {document["kind"]: document for document in yaml.safe_load_all(monitor)}
    (endpoint,) = kinds["PodMonitor"]["spec"]["podMetricsEndpoints"]
    assert endpoint["scheme"] == "https"
    assert found["Secret loadmanager"]["metadata"]["name"] == "loadmanager-monitoring"
    keys = {
        endpoint["tlsConfig"]["ca"]["secret"]["key"],
        endpoint["authorization"]["credentials"]["key"],
    }
    assert keys == set(found["Secret loadmanager"]["data"])


@pytest.mark.skipif(
    shutil.which("systemd-analyze") is None or os.geteuid() != 0,
    reason="systemd is not installed, or this is not root, who alone gives files to a group",
)
def test_the_drop_in_of_systemd(credentials: Path, tmp_path: Path) -> None:
    """systemd finds no fault in it; it lets the broker's group read what the broker's file names,
    and nothing else.
    """
    units = tmp_path / "units"
    (units / "loadmanager-broker.service.d").mkdir(parents=True)
    text = (DEPLOY / "systemd" / "loadmanager-broker.service").read_text()
    unit = units / "loadmanager-broker.service"
    unit.write_text(text.replace("/opt/loadmanager/venv/bin/loadmanager", "/bin/true"))
    drop_in = (SECURE / "systemd" / "secure.conf").read_text()
    (units / "loadmanager-broker.service.d" / "secure.conf").write_text(drop_in)
    subprocess.run(["systemd-analyze", "verify", unit], check=True)
    root = tmp_path / "root"
    (root / "etc" / "loadmanager").mkdir(parents=True)
    shutil.copytree(credentials, root / "etc" / "loadmanager" / "secure")
    users = DEPLOY / "systemd" / "loadmanager.sysusers"
    subprocess.run(["systemd-sysusers", f"--root={root}", users], check=True)
    files = SECURE / "systemd" / "loadmanager-secure.tmpfiles"
    for _ in range(2):  # what is as it should be stays so
        subprocess.run(["systemd-tmpfiles", "--create", f"--root={root}", files], check=True)
    made = root / "etc" / "loadmanager" / "secure"
    modes = {
        path.name: path.stat().st_mode & 0o777 for path in (made, *(made / "broker").iterdir())
    }
    assert modes.pop("secure") == 0o710
    assert set(modes.values()) == {0o640}
    group = (root / "etc" / "group").read_text()
    ids = {path.stat().st_gid for path in (made, *(made / "broker").iterdir())}
    assert [f"loadmanager:x:{number}:" in group for number in ids] == [True]
    assert (made / "broker").stat().st_mode & 0o777 == 0o750
    assert (made / "authority" / "ca.key").stat().st_mode & 0o777 == 0o600


class Running:
    """Two brokers with the secured file of docker compose, on other ports."""

    def __init__(self, credentials: Path, folder: Path) -> None:
        self.credentials = credentials
        self.first = free_ports(5)
        self._folder = folder
        data = folder / "zookeeper"
        self._zookeeper = JavaZooKeeper(port=self.first + 4, data_dir=data)
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Running:
        with contextlib.ExitStack() as stack:
            stack.callback(self.__exit__)
            self._zookeeper.start()
            _file(self.credentials, self._folder)
            for index in range(2):
                self._start(index)
            wait_for(lambda: len(self.ask("/admin/v2/brokers/compose")) == 2, "both are there")
            stack.pop_all()
        return self

    def _start(self, index: int) -> None:
        values = {
            "metadataStoreUrl": f"zk:127.0.0.1:{self.first + 4}",
            "loadManagerZooKeeperTlsEnabled": "false",  # tests/kit has TLS to ZooKeeper
            "bindAddress": "127.0.0.1",
            "advertisedAddress": "localhost",
            "webServicePortTls": self.first + index,
            "brokerServicePortTls": self.first + 2 + index,
        }
        with (self._folder / f"{index}.log").open("wb") as output:
            self._processes.append(
                subprocess.Popen(
                    [
                        *(BIN / "loadmanager", "broker", "--config", "broker.conf"),
                        *(f"--set={key}={value}" for key, value in values.items()),
                    ],
                    cwd=self._folder,
                    stdout=output,
                    stderr=output,
                )
            )

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.send_signal(signal.SIGTERM)
        for process in self._processes:
            process.wait(60)
        self._zookeeper.stop()

    def status(self, path: str, token: str | None = None, body: object = None) -> tuple[int, str]:
        """Status and body of a GET, or a POST of `body`, at the first broker; `token`: a file of
        `credentials`.
        """
        url = f"https://localhost:{self.first}{path}"
        request = urllib.request.Request(
            url,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        if token is not None:
            secret = (self.credentials / token).read_text().strip()
            request.add_header("Authorization", f"Bearer {secret}")
        trusted = ssl.create_default_context(cafile=str(self.credentials / "authority/ca.pem"))
        try:
            with urllib.request.urlopen(request, timeout=30, context=trusted) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def ask(self, path: str) -> Any:
        """What an administrator is answered; nothing before the broker is there."""
        try:
            status, body = self.status(path, "authority/admin.token")
        except OSError:
            return []
        return json.loads(body) if status == 200 else []

    def admin(self, *words: str, token: str = "authority/admin.token") -> str:
        """What `loadmanager admin` prints, with the token of a file."""
        url = f"https://localhost:{self.first}"
        done = subprocess.run(
            [
                *(BIN / "loadmanager", "admin", "--url", url),
                *("--tls-trust-certs", self.credentials / "authority/ca.pem", *words),
            ],
            capture_output=True,
            text=True,
            check=False,
            env={**_environment(), "LOADMANAGER_TOKEN": f"file://{self.credentials / token}"},
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@pytest.mark.system
@pytest.mark.zookeeper
def test_a_secured_cluster_serves(credentials: Path, tmp_path: Path) -> None:
    """Brokers find each other, a client with a token and a permission produces, Prometheus reads
    its page and nothing else, and a broker drains itself as in Kubernetes; who has no token gets
    nothing.
    """
    with Running(credentials, tmp_path) as running:
        assert running.status("/metrics")[0] == 401
        assert running.status("/admin/v2/brokers/compose")[0] == 401
        monitoring = "monitoring/monitoring.token"
        wait_for(lambda: "pulsar_" in running.status("/metrics", monitoring)[1], "figures")
        assert running.status("/admin/v2/tenants", monitoring)[0] == 403
        running.admin("namespaces", "create", "acme/orders", "--create-tenant")
        permissions = "/admin/v2/namespaces/acme/orders/permissions/app"
        assert running.status(permissions, "authority/admin.token", ["produce"])[0] == 204
        client = pulsar.Client(
            f"pulsar+ssl://localhost:{running.first + 2}",
            tls_trust_certs_file_path=str(credentials / "authority/ca.pem"),
            tls_validate_hostname=True,
            authentication=pulsar.AuthenticationToken(
                (credentials / "authority/app.token").read_text().strip()
            ),
            logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
        )
        with contextlib.closing(client):
            client.create_producer(TOPIC).send(b"hello")
        assert " pulsar+ssl://localhost:" in running.admin("topics", "lookup", TOPIC)
        assert "created; https://localhost:" in running.admin("topics", "create", f"{TOPIC}-2")
        broker = f"localhost:{running.first + 1}"
        running.admin(
            *("drain", broker, "--within", "60s", "--until-restart"), token="broker/broker.token"
        )
