"""kazoo's own tests, of the version that is installed, on the embedded store."""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
LEFT_OUT = {
    "TestReconfig": "reconfiguring an ensemble",
    "TestReadOnlyMode": "an ensemble that has lost its quorum",
    "test_update_host_list": "an ensemble of which one server is stopped",
    "TestSSLClient": "TLS: the store listens on loopback",
    "SASLDigestAuthentication": "SASL, which the store does not speak",
    "KazooTreeCacheTests and (test_close or test_delete_operation)": (
        "they count objects of the client, and fail beside a real ZooKeeper, too"
    ),
}
"""What is not run, as an expression of pytest's -k, and what it needs."""
EXTRAS = ("objgraph", "gevent", "eventlet")
"""What some of them import; a test of another event loop is skipped without it."""


def main(argv: list[str]) -> int:
    """Run them; further arguments are pytest's. Returns its status."""
    parser = argparse.ArgumentParser(prog="python -m bench kazoo-suite", description=__doc__)
    _, given = parser.parse_known_args(argv)
    version = importlib.metadata.version("kazoo")
    with tempfile.TemporaryDirectory(prefix="kazoo-suite-") as name:
        folder = Path(name)
        pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
        subprocess.run(
            [*pip, "download", "--no-binary", "kazoo", "--no-deps", f"kazoo=={version}"],
            cwd=folder,
            check=True,
        )
        subprocess.run([*pip, "install", "--target", folder / "extras", *EXTRAS], check=True)
        with tarfile.open(next(folder.glob("kazoo-*.tar.gz"))) as archive:
            archive.extractall(folder, filter="data")
        suite = folder / f"kazoo-{version}"
        paths = (suite, ROOT, ROOT / "tests", folder / "extras")
        left_out = " or ".join(f"({expression})" for expression in LEFT_OUT)
        command = [sys.executable, "-m", "pytest", "-q", "-rs", "-c", os.devnull, "--rootdir", "."]
        command += ["-p", "bench._kazoo_cluster", "-p", "no:xdist", "-p", "no:asyncio"]
        command += ["--timeout", "120", "-k", f"not ({left_out})", "kazoo/tests", *given]
        status = subprocess.run(
            command,
            cwd=suite,
            env=os.environ
            | {
                "PYTHONPATH": os.pathsep.join(map(str, paths)),
                "ZOOKEEPER_VERSION": "3.9.5",
                "CI": "true",
            },
            check=False,
        ).returncode
    print("not run:")
    for expression, reason in LEFT_OUT.items():
        print(f"  {expression}: {reason}")
    return status
