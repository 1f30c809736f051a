"""The files that deploy brokers: valid by their schemas, and true.

Every command in them is one of ours, with options and keys that exist; every path and port leads
somewhere. Nothing here needs Docker or Kubernetes.
"""

from __future__ import annotations

import configparser
import json
import re
import shutil
import subprocess
import sys
import textwrap
import tomllib
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import command_lines
import kubernetes_validate
import pytest
import yaml

from loadmanager import __version__
from loadmanager.broker import settings
from loadmanager.cli.analyze import NO_RECORDS, UNANSWERED
from loadmanager.cli.tournament import NO_RECOMMENDATION
from loadmanager.member.settings import BrokerSettings
from loadmanager.steer import settings_file as fleet

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
KUBERNETES = DEPLOY / "kubernetes"
SYSTEMD = DEPLOY / "systemd"
BIN = Path(sys.executable).parent
EXPOSURE_MAX = 3.0
FOLDERS = [
    KUBERNETES,
    *(KUBERNETES / name for name in ("egress", "monitoring", "fleet", "monitoring-fleet")),
    DEPLOY / "kubernetes-without-storage",
]
MANIFESTS = sorted(
    path
    for folder in FOLDERS
    for path in folder.glob("*.yaml")
    if path.name not in ("kustomization.yaml", "pod-monitor.yaml", "rules.yaml")  # not Kubernetes's
)
COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
BROKERS = sorted(name for name in SERVICES if name.startswith("broker-"))

needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd is not installed"
)


def _run(*command: object) -> str:
    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _refused(values: dict[str, str], file: Path) -> list[str]:
    """Why a broker would refuse a file with these keys set beside it."""
    loaded, problems = settings.examine(file, values)
    return [*(problem.text for problem in problems), *(key.name for key in loaded.unknown)]


def _set(words: list[str]) -> dict[str, str]:
    given = command_lines.check(words).get("overrides")
    assert isinstance(given, dict)
    return given


def _shutdown_s(values: dict[str, str], file: Path | None = None) -> float:
    return settings.KEYS.load(file, values).leaf(BrokerSettings).shutdown_timeout_ms / 1000


# Docker


def _instructions() -> Iterator[tuple[str, str]]:
    """Instruction and arguments of each step of the Dockerfile."""
    text = re.sub(r"\\\n", " ", (DEPLOY / "Dockerfile").read_text())
    for line in text.splitlines():
        if line and not line.startswith("#"):
            name, _, rest = line.strip().partition(" ")
            yield name, rest


def test_the_dockerfile_has_no_faults() -> None:
    """By hadolint, with all its rules."""
    _run(BIN / "hadolint", DEPLOY / "Dockerfile")


def test_what_the_dockerfile_copies_reaches_the_build() -> None:
    """Each path exists, and .dockerignore lets it in."""
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    let_in = {line[1:] for line in ignored if line.startswith("!")}
    assert "*" in ignored
    copied = [
        source
        for name, rest in _instructions()
        if name == "COPY" and "--from" not in rest
        for source in rest.split()[:-1]
    ]
    assert len(copied) > 4
    for source in copied:
        assert (ROOT / source).exists(), source
        ways = (source, Path(source).parts[0])
        assert any(fnmatch(way, name) for way in ways for name in let_in), source
    stages = {rest.split()[-1] for name, rest in _instructions() if name == "FROM"}
    sources = {
        word.removeprefix("--from=")
        for _, rest in _instructions()
        for word in rest.split()
        if word.startswith("--from=")
    }
    assert sources <= stages


def _pinned(path: Path) -> dict[str, str]:
    """Name → version."""
    pins = re.findall(r"^([\w.-]+)==(\S+)", path.read_text(), re.MULTILINE)
    return {name.lower().replace("_", "-"): version for name, version in pins}


@pytest.mark.parametrize(
    ("file", "extras"),
    [
        ("requirements.txt", ["broker", "otel"]),
        ("requirements-analysis.txt", ["broker", "otel", "report", "analysis"]),
        ("requirements-build.txt", None),
    ],
)
def test_images_install_by_hash_what_is_tested(file: str, extras: list[str] | None) -> None:
    """After a change of constraints.txt or pyproject.toml, `make hashes` writes these files."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = ["setuptools"]
    if extras is not None:
        optional = [project["optional-dependencies"][extra] for extra in extras]
        named = [re.split(r"[<>=;]", it)[0] for it in sum(optional, project["dependencies"])]
        wanted = [name for name in named if not name.startswith("loadmanager[")]
    text = (DEPLOY / file).read_text()
    pins, tested = _pinned(DEPLOY / file), _pinned(ROOT / "constraints.txt")
    assert {name: tested.get(name) for name in pins} == pins
    assert set(wanted) <= set(pins)
    assert "/" not in text
    for block in re.split(r"\n(?=\S)", text):
        assert "--hash=sha256:" in block, block
    assert any(file in rest and "--require-hashes" in rest for _, rest in _instructions())


def test_the_commands_of_the_images() -> None:
    """An image runs a command of ours, not as root; the port that is looked at is the broker's."""
    instructions = list(_instructions())
    for name, rest in instructions:
        if name == "CMD":
            command_lines.check(json.loads(rest))
    assert [rest for name, rest in instructions if name == "USER"] == ["10001:10001"]
    broker = settings.KEYS.load(ROOT / "config" / "broker.conf").leaf(BrokerSettings)
    exposed = next(rest for name, rest in instructions if name == "EXPOSE")
    assert exposed.split() == [str(broker.broker_port), str(broker.web_port)]
    health = next(rest for name, rest in instructions if name == "HEALTHCHECK")
    assert f"/dev/tcp/127.0.0.1/{broker.web_port} " in health
    assert "GET /admin/v2/brokers/ready" in health


def test_sigterm_ends_a_container_from_its_first_moment_on() -> None:
    """Its first process is an init: the kernel drops a signal that the first one does not heed."""
    for name, rest in _instructions():
        if name == "ENTRYPOINT":
            assert json.loads(rest) == ["tini", "--", "loadmanager"]
    for pod in (_pod("brokers.yaml"), _pod("analysis.yaml"), _pod("fleet/fleet.yaml")):
        assert "command" not in pod["containers"][0]


def test_health_checks_cost_nothing() -> None:
    """No Java and no Python starts every few seconds; what starts slowly has the time for it."""
    checks = [rest for name, rest in _instructions() if name == "HEALTHCHECK"]
    for service in SERVICES.values():
        if "start_period" in (check := service.get("healthcheck", {})):
            checks.append(str(check))
            assert check["test"][:3] == ["CMD", "bash", "-c"]
    secured = yaml.safe_load((DEPLOY / "secure" / "compose.yml").read_text())["services"]
    checks += [str(secured[name]["healthcheck"]["test"]) for name in BROKERS]
    assert len(checks) == 4 + len(BROKERS)
    for check in checks:
        assert "python" not in check
        assert "zkServer" not in check


def test_docker_compose_is_valid() -> None:
    """By the schema of Compose; its images have the version of the package."""
    _run(
        *(BIN / "check-jsonschema", "--builtin-schema", "vendor.compose-spec"),
        ROOT / "docker-compose.yml",
    )
    own = {service["image"] for service in SERVICES.values() if "build" in service}
    assert own == {f"loadmanager:{__version__}", f"loadmanager-analysis:{__version__}"}
    targets = {rest.split()[-1] for name, rest in _instructions() if name == "FROM"}
    assert {each["build"]["target"] for each in SERVICES.values() if "build" in each} <= targets


def test_the_docs_name_the_images_of_this_version() -> None:
    """A command that is copied from there finds the image that the one before it built."""
    files = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *DEPLOY.rglob("*")]
    texts = [path.read_text(errors="replace") for path in files if path.is_file()]
    tags = set(re.findall(r"\bloadmanager(?:-analysis)?:(\d[\w.]*\w)", "".join(texts)))
    assert tags == {__version__}


def test_the_labels_of_the_images() -> None:
    """Name the version and the licence of the package, the commit and the image below; the place of
    its sources only if the package names one.
    """
    labels = next(rest for name, rest in _instructions() if name == "LABEL")
    assert f'org.opencontainers.image.version="{__version__}"' in labels
    assert 'org.opencontainers.image.licenses="Apache-2.0"' in labels
    assert 'org.opencontainers.image.revision="${REVISION}"' in labels
    assert ("ARG", 'REVISION=""') in _instructions()
    builds = [it["build"] for it in SERVICES.values() if "build" in it]
    assert all(build["args"] == ["REVISION"] for build in builds)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    source = project.get("urls", {}).get("Source", "")
    assert ("org.opencontainers.image.source" in labels) == bool(source)
    assert source in labels
    base = next(rest for name, rest in _instructions() if name == "FROM").split()[0]
    assert f'base.name="docker.io/library/{base}"' in labels


def test_grafana_has_no_password_that_everybody_knows() -> None:
    """Without a password it makes `admin`, whose password is `admin`, unless it is told not to."""
    environment = COMPOSE["services"]["grafana"]["environment"]
    assert environment["GF_SECURITY_DISABLE_INITIAL_ADMIN_CREATION"] == "true"
    assert environment["GF_AUTH_ANONYMOUS_ORG_ROLE"] == "Viewer"
    assert not [name for name in environment if "PASSWORD" in name]


def test_what_docker_compose_mounts() -> None:
    """Each file and folder of this repository exists, each named volume is declared."""
    for service in SERVICES.values():
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            if source.startswith("."):
                assert (ROOT / source).exists(), volume
            else:
                assert source in COMPOSE["volumes"], volume


@pytest.mark.parametrize("name", BROKERS)
def test_the_brokers_of_docker_compose(name: str) -> None:
    """A broker accepts the command and the file; clients outside reach it where it says, on the
    loopback address only; it has the time to stop.
    """
    service = SERVICES[name]
    given = _set(service["command"])
    assert not _refused(given, DEPLOY / "compose.conf")
    broker = settings.KEYS.load(DEPLOY / "compose.conf", given).leaf(BrokerSettings)
    assert broker.advertised_address == name
    published = dict(
        re.fullmatch(r"127\.0\.0\.1:(\d+):(\d+)", port).groups() for port in service["ports"]
    )
    outside = [text for text in broker.advertised_listeners if text.startswith("outside:")]
    bound = [text for text in broker.bind_addresses if text.startswith("outside:")]
    ports = {text.split(":")[1]: text.rpartition(":")[2] for text in bound}
    assert {text.rpartition(":")[2] for text in outside} == published.keys()
    for text in outside:
        kind, port = text.split(":")[1], text.rpartition(":")[2]
        assert published[port] == ports[kind]
    assert float(service["stop_grace_period"].removesuffix("s")) > broker.shutdown_timeout_ms / 1000
    assert len(BROKERS) == 3


def test_a_new_cluster_of_docker_compose_has_a_namespace() -> None:
    """It is made before the first broker starts, in the store of the brokers."""
    service = SERVICES["initialize"]
    options = command_lines.check(service["command"])
    assert str(options["config"]) == "/etc/loadmanager/broker.conf"
    assert "./deploy/compose.conf:/etc/loadmanager/broker.conf:ro" in service["volumes"]
    waits = {"initialize": {"condition": "service_completed_successfully"}}
    assert all(SERVICES[name]["depends_on"] == waits for name in BROKERS)


def test_the_night_of_docker_compose() -> None:
    """The job begins at 00:45 UTC, within a day, from any time; its command is ours."""
    script = SERVICES["nightly"]["command"][0].replace("$$", "$")
    arithmetic = re.search(r"sleep \$\(\((.*)\)\)", script)
    assert arithmetic is not None
    now = 1_790_000_000
    for second in (0, 2_699, 2_700, 2_701, 43_200, 86_399):
        at = now - now % 86_400 + second
        expression = arithmetic[1].replace("$(date -u +%s)", str(at))
        wait = int(_run("sh", "-c", f"echo $(({expression}))"))
        assert 0 < wait <= 86_400
        assert (at + wait) % 86_400 == 2_701
    words = script.split("loadmanager analyze")[1].splitlines()[0].split()
    command_lines.check(["analyze", *words])


# Kubernetes


def _documents(file: Path) -> list[dict[str, Any]]:
    return [document for document in yaml.safe_load_all(file.read_text()) if document]


@pytest.mark.parametrize("file", MANIFESTS, ids=lambda file: file.name)
def test_manifests_are_valid(file: Path) -> None:
    """By the schemas of Kubernetes, without unknown fields."""
    for document in _documents(file):
        kubernetes_validate.validate(document, "1.31", strict=True)


def test_kustomizations_name_what_is_there() -> None:
    """Each resource and file exists, and none is left out."""
    for folder in FOLDERS:
        (document,) = _documents(folder / "kustomization.yaml")
        named = {each for each in document["resources"] if not each.startswith("..")}
        for generator in document.get("configMapGenerator", []):
            assert all((folder / file).exists() for file in generator["files"])
        there = {path.name for path in folder.glob("*.yaml")} - {"kustomization.yaml"}
        assert named == there
        assert all(image["newTag"] == __version__ for image in document.get("images", []))


def _pod(name: str) -> dict[str, Any]:
    kinds = {document["kind"]: document for document in _documents(KUBERNETES / name)}
    pods = kinds.get("StatefulSet") or kinds.get("Deployment")
    spec = (pods or kinds.get("Job") or kinds["CronJob"]["spec"]["jobTemplate"])["spec"]["template"]
    return dict(spec["spec"])


def test_the_brokers_of_kubernetes() -> None:
    """A broker accepts its command and file; the drain before a stop, and the stop, have the time
    that they need; what probes and ports name is the broker's.
    """
    pod = _pod("brokers.yaml")
    (container,) = pod["containers"]
    given = _set(container["args"])
    file = KUBERNETES / "broker.conf"
    assert not _refused(given, file)
    shell, option, script = container["lifecycle"]["preStop"]["exec"]["command"]
    assert (shell, option) == ("sh", "-c")
    (words,) = command_lines.simple_commands(script)
    options = command_lines.check(words[1:])
    assert words[0] == "loadmanager"
    assert options["until_restart"]
    within = options["within"]
    assert isinstance(within, float)
    assert pod["terminationGracePeriodSeconds"] > within + _shutdown_s(given, file)
    broker = settings.KEYS.load(file, given).leaf(BrokerSettings)
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports == {"pulsar": broker.broker_port, "http": broker.web_port}
    assert container["readinessProbe"]["httpGet"]["path"] == "/admin/v2/brokers/ready"
    names = set(re.findall(r"\$\(?(\w+)", script + str(container["args"])))
    assert names <= {variable["name"] for variable in container["env"]}


def test_the_analysis_of_kubernetes() -> None:
    """Its command is ours."""
    (container,) = _pod("analysis.yaml")["containers"]
    command_lines.check(container["args"])


def test_a_new_cluster_of_kubernetes_has_a_namespace() -> None:
    """Its job's command is ours, with the file of the brokers."""
    pod = _pod("initialize.yaml")
    (container,) = pod["containers"]
    assert str(command_lines.check(container["args"])["config"]) == "/etc/loadmanager/broker.conf"
    assert pod["volumes"][0]["configMap"] == {"name": "loadmanager"}


def test_the_daemon_of_kubernetes() -> None:
    """Its command and its file are ours; it is asked in its pod, where the image looks, too."""
    (container,) = _pod("fleet/fleet.yaml")["containers"]
    options = command_lines.check(container["args"])
    assert options["listen"] == ("127.0.0.1", 8080)
    (cluster,) = fleet.clusters(fleet.read_file(KUBERNETES / "fleet" / "fleet.conf"), {})
    assert (cluster.name, cluster.fleet.mode) == ("default", "advise")


def test_brokers_are_spread_as_by_the_chart() -> None:
    """Over zones first, then over machines."""
    values = yaml.safe_load((DEPLOY / "chart" / "values.yaml").read_text())
    spread = _pod("brokers.yaml")["topologySpreadConstraints"]
    assert [each["topologyKey"] for each in spread] == values["spread"]


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
def test_a_priority_class_by_the_patch_of_the_page(tmp_path: Path) -> None:
    """docs/howto/run.md has a kustomization that names one."""
    page = (ROOT / "docs" / "howto" / "run.md").read_text()
    (text,) = re.findall(r"```yaml\n(  resources:.*?)\n  ```", page, re.DOTALL)
    shutil.copytree(KUBERNETES, tmp_path / "deploy" / "kubernetes")
    (tmp_path / "kustomization.yaml").write_text(textwrap.dedent(text))
    built = yaml.safe_load_all(_run("kubectl", "kustomize", tmp_path))
    (brokers,) = [document for document in built if document["kind"] == "StatefulSet"]
    assert brokers["spec"]["template"]["spec"]["priorityClassName"] == "NAME"


def test_what_brokers_may_reach_is_what_they_may_with_the_chart() -> None:
    """Names, each other and ZooKeeper's ports."""
    values = yaml.safe_load((DEPLOY / "chart" / "values.yaml").read_text())
    (policy,) = _documents(KUBERNETES / "egress" / "network-policy.yaml")
    (ingress,) = _documents(KUBERNETES / "network-policy.yaml")
    assert policy["spec"]["podSelector"] == ingress["spec"]["podSelector"]
    assert policy["spec"]["policyTypes"] == ["Egress"]
    names, own, zookeeper = policy["spec"]["egress"]
    assert {(each["port"], each["protocol"]) for each in names["ports"]} == {
        (53, "UDP"),
        (53, "TCP"),
    }
    assert own == {"to": [{"podSelector": {}}]}
    ports = [each["port"] for each in zookeeper["ports"]]
    assert ports == values["networkPolicy"]["egress"]["zookeeperPorts"]


def test_labels_and_ports_agree() -> None:
    """What services, budgets, policies and the monitor select is there, with these ports."""
    labels = {f"loadmanager-{each}" for each in ("broker", "analysis", "fleet", "initialize")}
    ports = {"pulsar", "http", 6650, 8080, 53, 2181, 2281}
    for file in KUBERNETES.rglob("*.yaml"):
        for document in _documents(file):
            for value in _values(document, "app"):
                assert value in labels, file
            for value in (*_values(document, "targetPort"), *_values(document, "port")):
                assert value in ports, file


def _values(document: object, key: str) -> Iterator[Any]:
    if isinstance(document, dict):
        for name, value in document.items():
            if name == key:
                yield value
            else:
                yield from _values(value, key)
    elif isinstance(document, list):
        for member in document:
            yield from _values(member, key)


# systemd


def _unit(name: str) -> configparser.SectionProxy:
    unit = configparser.RawConfigParser(strict=False, interpolation=None)
    unit.optionxform = str
    unit.read(SYSTEMD / name)
    return unit["Service"]


@pytest.mark.parametrize("name", ["broker", "analyze", "tournament"])
def test_the_commands_of_the_units(name: str) -> None:
    """They are ours, and the settings are where the page says."""
    program, *words = _unit(f"loadmanager-{name}.service")["ExecStart"].split()
    assert program == "/opt/loadmanager/venv/bin/loadmanager"
    assert str(command_lines.check(words)["config"]) == "/etc/loadmanager/broker.conf"


def test_a_broker_has_the_time_to_stop() -> None:
    """More than `brokerShutdownTimeoutMs`; wrong settings are not tried again."""
    unit = _unit("loadmanager-broker.service")
    assert float(unit["TimeoutStopSec"]) > _shutdown_s({})
    assert unit["Type"] == "notify"
    assert unit["RestartPreventExitStatus"] == "2"


def test_a_night_without_records_is_a_failure() -> None:
    """Of the unit; so is one without an answer."""
    fine = _unit("loadmanager-analyze.service")["SuccessExitStatus"].split()
    assert not {str(NO_RECORDS), str(UNANSWERED)} & set(fine)


def test_a_night_that_recommends_nothing_is_no_failure() -> None:
    """Of the tournament's unit."""
    fine = _unit("loadmanager-tournament.service")["SuccessExitStatus"].split()
    assert str(NO_RECOMMENDATION) in fine


@needs_systemd
def test_the_units_are_valid_and_hardened(tmp_path: Path) -> None:
    """systemd finds no fault in them, and an exposure of at most 3."""
    for unit in SYSTEMD.glob("loadmanager-*"):
        text = unit.read_text().replace("/opt/loadmanager/venv/bin/loadmanager", "/bin/true")
        (tmp_path / unit.name).write_text(text)
    units = sorted(tmp_path.iterdir())
    assert len(units) == 5
    _run("systemd-analyze", "verify", *units)
    for service in (unit for unit in units if unit.suffix == ".service"):
        said = _run("systemd-analyze", "security", "--offline=yes", "--threshold=30", service)
        level = re.search(r"exposure level for .*: ([\d.]+)", said)
        assert level is not None
        assert float(level[1]) <= EXPOSURE_MAX


@needs_systemd
def test_the_user_and_its_folders(tmp_path: Path) -> None:
    """systemd makes the user and the folders that the units name."""
    (tmp_path / "etc").mkdir()
    _run("systemd-sysusers", f"--root={tmp_path}", SYSTEMD / "loadmanager.sysusers")
    users = (tmp_path / "etc" / "passwd").read_text()
    assert "loadmanager:" in users
    assert _unit("loadmanager-broker.service")["WorkingDirectory"] in users
    _run("systemd-tmpfiles", "--create", f"--root={tmp_path}", SYSTEMD / "loadmanager.tmpfiles")
    assert (tmp_path / "etc/loadmanager").is_dir()
    assert (tmp_path / "var/lib/loadmanager/data").is_dir()


@pytest.mark.parametrize("name", sorted(path.name for path in DEPLOY.rglob("*.service")))
def test_the_units_leave_nothing_to_other_users(name: str) -> None:
    """What they write is for their user alone, and they see no other users; what has no Java gets
    no memory that it can write and run, and no right to change priorities.
    """
    (path,) = DEPLOY.rglob(name)
    unit = configparser.RawConfigParser(strict=False, interpolation=None)
    unit.optionxform = str
    unit.read(path)
    service, text = unit["Service"], path.read_text()
    assert service["UMask"] == "0077"
    assert service["StateDirectoryMode"] == "0700"
    assert service.get("RuntimeDirectoryMode", "0700") == "0700"
    assert service["PrivateUsers"] == "true"
    if "Java" not in text:
        assert service["MemoryDenyWriteExecute"] == "true"
        assert "SystemCallFilter=~@privileged @resources\n" in text


def test_the_memory_of_a_killed_broker_outlives_it() -> None:
    """systemd keeps the folder in which the next process looks for records."""
    unit = _unit("loadmanager-broker.service")
    assert (unit["RuntimeDirectory"], unit["RuntimeDirectoryPreserve"]) == ("loadmanager", "yes")


def test_a_broker_needs_no_memory_that_is_written_and_run() -> None:
    """`MemoryDenyWriteExecute` of its unit stops neither uvloop nor re2, nor what else it loads."""
    program = (
        "import ctypes, sys; print(ctypes.CDLL(None).prctl(65, 1, 0, 0, 0), flush=True)\n"
        "import loadmanager.broker.process, uvloop, re2\n"
        "loop = uvloop.new_event_loop(); loop.run_until_complete(loop.create_task(loop.shutdown_"
        "asyncgens())); loop.close(); print(bool(re2.match('a+', 'aa')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False
    )
    if not done.stdout.startswith("0"):
        pytest.skip("this kernel cannot forbid such memory")
    assert done.stdout.split() == ["0", "True"], done.stderr
