"""The unit of a broker, run by a systemd in a container: `make test-deploy`."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator

import pytest
from clusters.standalone import wait_for
from deploy.images import base
from deploy.images.base import docker

from loadmanager import __version__

pytestmark = [pytest.mark.deploy, pytest.mark.timeout(1800)]

IMAGE, MACHINE = f"loadmanager:{__version__}", "loadmanager-test-units"
UNIT, BIN = "loadmanager-broker", "/opt/loadmanager/venv/bin/loadmanager"
CONF = """clusterName=units
metadataStoreUrl=zk:127.0.0.1:2181
advertisedAddress=127.0.0.1
metadataStoreSessionTimeoutMillis=5000
"""
ALLOWED = ["--cap-add=SYS_ADMIN", "--cap-add=NET_ADMIN", "--cgroupns=private"]
ALLOWED += ["--security-opt=seccomp=unconfined", "--security-opt=apparmor=unconfined"]
FILE = "/etc/loadmanager/broker.conf"


@pytest.fixture(scope="module", autouse=True)
def _machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A machine that is set up as docs/howto/run.md says, with a metadata store."""
    if reason := base.why_not() or base.prepare(tmp_path_factory.mktemp("images")):
        pytest.skip(reason)
    build = ("build", "--network", "host", "--file")
    docker(*build, "deploy/Dockerfile", "--tag", IMAGE, ".", timeout_s=base.MAKE_S)
    file = "tests/deploy/images/systemd.Dockerfile"
    words = ("--build-arg", f"IMAGE={IMAGE}", "--tag", MACHINE, "deploy/systemd")
    docker(*build, file, *words, timeout_s=base.MAKE_S)
    temporary = ("--tmpfs", "/run", "--tmpfs", "/tmp")
    docker("run", "--detach", "--name", MACHINE, *ALLOWED, *temporary, MACHINE)
    try:
        wait_for(lambda: _said("systemctl is-system-running") == "running", "systemd runs", 120)
        _do("systemd-sysusers && systemd-tmpfiles --create")
        _do(f"printf '{CONF}' > {FILE}")
        if _run("systemd-run --wait --property PrivateUsers=true true").returncode:
            # No namespaces of users are to be had in this container.
            folder = f"/etc/systemd/system/{UNIT}.service.d"
            _do(f"mkdir {folder} && printf '[Service]\\nPrivateUsers=false\\n' > {folder}/a.conf")
            _do("systemctl daemon-reload")
        _do(f"systemd-run --unit=store {BIN} store --data-dir /var/tmp/store")
        wait_for(lambda: _said(f"{BIN} initialize-cluster-metadata --config {FILE}"), "a store")
        yield
    finally:
        docker("rm", "--force", MACHINE)


def _run(command: str) -> subprocess.CompletedProcess[str]:
    words = ["docker", "exec", MACHINE, "bash", "-c", command]
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=300)


def _do(command: str) -> str:
    done = _run(command)
    assert done.returncode == 0, (command, done.stdout, done.stderr, _journal())
    return done.stdout.strip()


def _said(command: str) -> str:
    """What a command prints; nothing if it fails."""
    done = _run(command)
    return done.stdout.strip() if done.returncode == 0 else ""


def _journal() -> str:
    return _run(f"journalctl --unit {UNIT} --no-pager --lines 30").stdout


def _property(name: str) -> str:
    return _do(f"systemctl show --value --property {name} {UNIT}")


def _ready() -> bool:
    path = "http://127.0.0.1:8080/admin/v2/brokers/ready"
    code = f"import urllib.request as r; print(r.urlopen('{path}', timeout=5).status)"
    return _said(f'/opt/loadmanager/bin/python -c "{code}"') == "200"


def test_start_kill_and_stop() -> None:
    """`systemctl start` returns when the broker is ready; a reload reads its file again; one that
    is killed is started again; a stop is clean.
    """
    _do(f"systemctl start {UNIT}")
    assert _property("ActiveState") == "active"
    assert _ready(), _journal()
    _do(f"echo loadBalancerBrokerThresholdShedderPercentage=11 >> {FILE}")
    _do(f"systemctl reload {UNIT}")
    wait_for(lambda: "ShedderPercentage: 10 -> 11" in _journal(), "it has read its file again")
    killed = _property("MainPID")
    _do(f"systemctl kill --signal KILL --kill-whom main {UNIT}")
    wait_for(
        lambda: _property("MainPID") not in (killed, "0") and _ready(), "it is started again", 180
    )
    assert _property("NRestarts") == "1"
    _do(f"systemctl stop {UNIT}")
    assert (_property("Result"), _property("ExecMainStatus")) == ("success", "0"), _journal()


def test_wrong_settings() -> None:
    """End with status 2, are named in the journal, and are not tried again."""
    _do(f"cp {FILE} {FILE}.good && echo webServicePort=many >> {FILE}")
    try:
        assert _run(f"systemctl start {UNIT}").returncode != 0
        wait_for(lambda: _property("ActiveState") == "failed", "it has failed")
        assert _property("ExecMainStatus") == "2"
        assert _property("NRestarts") == "0"
        assert "webServicePort" in _journal()
    finally:
        _do(f"cp {FILE}.good {FILE} && systemctl reset-failed {UNIT}")


def test_what_it_may_do() -> None:
    """The exposure is what docs/howto/run.md says."""
    told = _run(f"systemd-analyze security --no-pager {UNIT}").stdout
    exposure = re.search(r"exposure level for .*: (\d+\.\d+)", told)
    assert exposure is not None, told
    assert float(exposure[1]) <= 1.4 + (0.2 if _property("PrivateUsers") == "no" else 0.0), told


def test_a_secured_broker() -> None:
    """By the commands of docs/howto/secure.md: it is ready over TLS, answers who has a token, and
    cannot read what makes tokens.
    """
    secure, url = "/etc/loadmanager/secure", "https://localhost:8080"
    ask = f"{BIN} admin --url {url} --tls-trust-certs {secure}/broker/ca.pem brokers list"
    _do(f"{BIN} tokens bootstrap {secure} localhost 127.0.0.1")
    _do(f"cp -p {FILE} {FILE}.open && cat {secure}/broker/secure.conf >> {FILE}")
    _do(f"mkdir -p /etc/systemd/system/{UNIT}.service.d")
    files = base.HERE.parents[2] / "deploy" / "secure" / "systemd"
    for name, target in (
        ("secure.conf", f"/etc/systemd/system/{UNIT}.service.d/secure.conf"),
        ("loadmanager-secure.tmpfiles", "/usr/lib/tmpfiles.d/loadmanager-secure.conf"),
    ):
        docker("cp", files / name, f"{MACHINE}:{target}")
    _do("systemctl daemon-reload")
    try:
        _do(f"systemctl start {UNIT}")
        token = f"LOADMANAGER_TOKEN=file://{secure}/authority/admin.token"
        assert "127.0.0.1:8080" in _do(f"{token} {ask}")
        assert _run(ask).returncode != 0
        key = f"/proc/{_property('MainPID')}/root{secure}/authority/ca.key"
        assert _run(f"test -e {secure}/authority/ca.key").returncode == 0
        assert _run(f"cat {key}").returncode != 0
        _do(f"systemctl stop {UNIT}")
    finally:
        _do(f"mv {FILE}.open {FILE}")
        _do(f"rm /etc/systemd/system/{UNIT}.service.d/secure.conf && systemctl daemon-reload")
