"""A Kubernetes API server with its etcd, on loopback: it takes or refuses, and nothing runs."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import yaml
from clusters.standalone import wait_for
from ports import free_ports

PROGRAMS = ("etcd", "kube-apiserver", "kubectl")
OPERATOR = "github.com/prometheus-operator/prometheus-operator@v0.84.0"
START_S, CALL_S = 300.0, 180.0
TOKEN = "of-this-test"


def why_not() -> str:
    """Why there is no API server to start here; empty: there is."""
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    return f"not installed: {', '.join(missing)}" if missing else ""


class ApiServer:
    """`run` is a command of kubectl or helm there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._config = folder / "kubeconfig"

    def run(self, *words: object, refused: bool = False) -> str:
        """What a command prints. It must succeed; or fail, with `refused`."""
        done = subprocess.run(
            [*map(str, words), f"--kubeconfig={self._config}"],
            capture_output=True,
            text=True,
            check=False,
            timeout=CALL_S,
        )
        assert bool(done.returncode) == refused, (words, done.stdout[-2000:], done.stderr[-3000:])
        return done.stdout + done.stderr

    def namespace(self, name: str) -> None:
        """Make one that warns of every pod that is not restricted."""
        self.run("kubectl", "create", "namespace", name)
        label = "pod-security.kubernetes.io/warn=restricted"
        self.run("kubectl", "label", "namespace", name, label)

    def apply(self, namespace: str, *what: object) -> str:
        """Strictly: an unknown field and a warning are errors."""
        strict = ("--server-side", "--validate=strict", "--warnings-as-errors")
        return self.run("kubectl", "apply", *strict, f"--namespace={namespace}", *what)

    @contextlib.contextmanager
    def serving(self) -> Iterator[ApiServer]:
        """Run the two processes."""
        client, peer, port = range(first := free_ports(3), first + 3)
        data = self.folder / "etcd"
        etcd = f"--data-dir={data} --listen-client-urls=http://127.0.0.1:{client}"
        etcd += f" --advertise-client-urls=http://127.0.0.1:{client}"
        etcd += f" --listen-peer-urls=http://127.0.0.1:{peer} --unsafe-no-fsync"
        key = self.folder / "accounts.key"
        subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True)
        tokens = self.folder / "tokens.csv"
        tokens.write_text(f"{TOKEN},admin,admin,system:masters\n")
        server = f"--etcd-servers=http://127.0.0.1:{client} --secure-port={port}"
        server += f" --bind-address=127.0.0.1 --cert-dir={self.folder / 'certificates'}"
        server += f" --service-cluster-ip-range=10.96.0.0/16 --token-auth-file={tokens}"
        server += " --service-account-issuer=https://localhost --authorization-mode=RBAC"
        server += f" --service-account-key-file={key} --service-account-signing-key-file={key}"
        self._config.write_text(_config(port))
        self._config.chmod(0o600)
        with self._process("etcd", etcd), self._process("kube-apiserver", server):
            wait_for(self._ready, "the API server is ready", START_S)
            yield self

    def _ready(self) -> bool:
        command = ["kubectl", f"--kubeconfig={self._config}", "get", "--raw", "/readyz"]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0

    @contextlib.contextmanager
    def _process(self, name: str, words: str) -> Iterator[None]:
        with (self.folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen([name, *words.split()], stdout=log, stderr=log)
        try:
            yield
        finally:
            process.terminate()
            process.wait(60)


def _config(port: int) -> str:
    server = {"server": f"https://127.0.0.1:{port}", "insecure-skip-tls-verify": True}
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": server}],
            "users": [{"name": "admin", "user": {"token": TOKEN}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "admin"}}],
            "current-context": "test",
        }
    )


def operators_kinds() -> list[Path]:
    """The definitions of PodMonitor and PrometheusRule, by Go's module proxy; none without Go."""
    if shutil.which("go") is None:
        return []
    command = ["go", "mod", "download", "-json", OPERATOR]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=CALL_S)
    if done.returncode:
        return []
    folder = Path(json.loads(done.stdout)["Dir"]) / "example" / "prometheus-operator-crd"
    names = ("podmonitors", "prometheusrules")
    return [folder / f"monitoring.coreos.com_{name}.yaml" for name in names]
