"""Stock clients and pulsar-admin on our three brokers and on a real Pulsar: `make test-clients`.

The differences are printed; those that are not in `differences.py` fail, and so do rows there that
do not occur.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import maven
import pytest
from clients import commands, targets
from clients.compare import Expected, differences, unexplained
from clients.differences import ADMIN, GO, JAVA
from clients.pulsar import BUILD, Standalone, compile_java, distribution, java
from clients.targets import Admin, Target
from clusters.standalone import Cluster
from kit.security.tokens import ADMIN as ADMIN_ROLE
from kit.security.tokens import token
from system.secured import TOPIC, Secured

pytestmark = [pytest.mark.clients, pytest.mark.timeout(600)]

SETTINGS = {"acknowledgmentAtBatchIndexLevelEnabled": "true"}
"""Of Pulsar: its default is off, ours always acknowledges single messages of a batch."""
Client = Callable[[Target, str, Sequence[str]], dict[str, Any]]
NAMESPACE = "/admin/v2/namespaces/public/clients"
PARTITIONED = "/admin/v2/persistent/public/clients/partitioned/partitions"


@pytest.fixture(scope="session")
def home() -> Path:
    """Pulsar's distribution."""
    if (reason := maven.missing()) is not None:
        pytest.skip(reason)
    try:
        unpacked = distribution()
    except subprocess.SubprocessError:
        pytest.skip("Maven Central is not reached")
    compile_java(unpacked)
    return unpacked


@pytest.fixture(scope="session")
def both(home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Target]]:
    """Pulsar and our three brokers, running."""
    folder = tmp_path_factory.mktemp("clients")
    with (
        Cluster(folder) as cluster,
        Standalone(home, folder / "pulsar", SETTINGS) as pulsar,
    ):
        ours = Target(
            cluster.service_url(),
            f"http://127.0.0.1:{cluster.http_port}",
            cluster.broker_id(0),
        )
        theirs = Target(pulsar.service_url(), pulsar.admin_url(), f"127.0.0.1:{pulsar.http_port}")
        for target in (theirs, ours):
            targets.request(target, "PUT", NAMESPACE, {"bundles": {"numBundles": 8}})
            targets.request(target, "PUT", PARTITIONED, 3)
        yield [theirs, ours]


def at_once(both: list[Target], run: Callable[[Target], dict[str, Any]]) -> list[dict[str, Any]]:
    """The results of running something against both targets at once."""
    with ThreadPoolExecutor() as threads:
        return list(threads.map(run, both))


def check(
    name: str, pulsars: dict[str, Any], ours: dict[str, Any], expected: list[Expected]
) -> None:
    """Print every difference; fail for what is not expected. All answers are in `build/pulsar`."""
    assert pulsars, "no case ran"
    answers = {case: [answer, ours.get(case)] for case, answer in pulsars.items()}
    (BUILD / f"{name}.json").write_text(json.dumps(answers, indent=1, ensure_ascii=False))
    found = differences(pulsars, ours)
    for one in found:
        print(one.text())
    print(f"{len(pulsars)} cases, {len({one.case for one in found})} differ")
    left, missing = unexplained(found, expected)
    assert not left, "\n".join(one.text() for one in left)
    assert not missing, "listed, but does not occur: " + "; ".join(missing)


def check_client(name: str, both: list[Target], run: Client, expected: list[Expected]) -> None:
    """Run all cases. Those that differ unexpectedly run once more, on other topics: a machine that
    is busy for a second delays a message, but not in the same case again.
    """
    pulsars, ours = at_once(both, lambda target: run(target, f"{name}-", ()))
    left, _ = unexplained(differences(pulsars, ours), expected)
    again = sorted({one.case for one in left})
    if again:
        print("once more:", *(one.text() for one in left), sep="\n")
        for answers, later in zip(
            (pulsars, ours),
            at_once(both, lambda target: run(target, f"{name}-again-", again)),
            strict=True,
        ):
            answers.update(later)
    check(name, pulsars, ours, expected)


def test_the_java_client_gets_pulsars_answers(home: Path, both: list[Target]) -> None:
    """Every feature of `java/`: the same answers, but for the listed ones."""
    check_client("java", both, partial(targets.java_cases, home), JAVA)


def test_the_go_client_gets_pulsars_answers(both: list[Target]) -> None:
    """Every feature of `go/`: the same answers, but for the listed ones."""
    if shutil.which("go") is None:
        pytest.skip("no go here")
    try:
        targets.go_modules()
    except subprocess.SubprocessError:
        pytest.skip("the Go proxy is not reached")
    check_client("go", both, partial(targets.go_cases, targets.go_program()), GO)


def test_pulsar_admin_gets_pulsars_answers(home: Path, both: list[Target], tmp_path: Path) -> None:
    """Every command of `commands.py`: the same answers, but for the listed ones."""

    def run(target: Target) -> dict[str, Any]:
        with Admin(home, target, tmp_path) as admin:
            return admin.answers(commands.ALL)

    check("admin", *at_once(both, run), ADMIN)


def test_the_java_client_over_tls_with_tokens(home: Path, tmp_path: Path) -> None:
    """Each role may do what it was permitted; who proves nothing gets the error that says so."""
    sent, denied, unknown = "sent", "AuthorizationException", "AuthenticationException"
    expected = {
        "writer": (token("writer"), sent, denied),
        "reader": (token("reader"), denied, "x"),
        "stranger": (token("stranger"), denied, denied),
        ADMIN_ROLE: (token(ADMIN_ROLE), sent, "x"),
        "expired": (token(ADMIN_ROLE, lives_s=-60), unknown, unknown),
        "forged": (token(ADMIN_ROLE)[:-8] + "AAAAAAAA", unknown, unknown),
        "nobody": ("", unknown, unknown),
    }
    with Secured(tmp_path) as broker:
        path = "/admin/v2/" + TOPIC.replace("://", "/")
        for each in (path, f"{path}/subscription/java"):
            assert broker.request(0, "PUT", each)[0] in (200, 204)
        roles = [word for role, (proof, *_) in expected.items() for word in (role, proof)]
        trust = str(broker.authority.trust)
        answers = targets.lines(java(home, "Secured", broker.url, trust, TOPIC, *roles))
    assert answers == {
        f"{role} {what}": answer
        for role, (_, *given) in expected.items()
        for what, answer in zip(("produces", "consumes"), given, strict=True)
    }
