"""The images and docker-compose.yml, run: `make test-deploy`. As somebody on the host sees them."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pulsar
import pytest
import yaml
from browser.chromium import CHROMIUM, browser
from clusters.standalone import wait_for
from deploy.images import base
from deploy.images.base import docker

from loadmanager import __version__

pytestmark = [pytest.mark.deploy, pytest.mark.timeout(1800)]

ROOT = Path(__file__).parents[2]
COMPOSE = ROOT / "docker-compose.yml"
IMAGE, ANALYSIS = f"loadmanager:{__version__}", f"loadmanager-analysis:{__version__}"
REVISION = "0123abc"
RELEASED = "loadmanager:last-release"
PROJECT = "loadmanager-test"
BROKERS = ["broker-0", "broker-1", "broker-2"]
SERVICE_URL = "pulsar://localhost:6660,localhost:6661,localhost:6662"
URL = "http://localhost:8081"
UP_S = 300.0
TOPIC = "persistent://public/default/t"


@pytest.fixture(scope="module", autouse=True)
def _images(tmp_path_factory: pytest.TempPathFactory) -> None:
    if reason := base.why_not() or base.prepare(tmp_path_factory.mktemp("images")):
        pytest.skip(reason)
    words = ("--network", "host", "--file", "deploy/Dockerfile", f"--build-arg=REVISION={REVISION}")
    docker("build", *words, "--tag", IMAGE, ".", timeout_s=base.MAKE_S)


class Compose:
    """A cluster by docker-compose.yml, without what watches it."""

    def __init__(self, *files: str, first: str = "docker-compose.yml") -> None:
        self._files = [word for file in (first, *files) for word in ("-f", file)]

    def run(self, *words: str, timeout_s: float = UP_S) -> str:
        return docker("compose", "-p", PROJECT, *self._files, *words, timeout_s=timeout_s)

    def healthy(self) -> bool:
        """Every broker is."""
        lines = self.run("ps", "--format", "json", *BROKERS).splitlines()
        states = [json.loads(line)["Health"] for line in lines if line.startswith("{")]
        return states == ["healthy"] * len(BROKERS)


@contextlib.contextmanager
def _up(compose: Compose) -> Iterator[Compose]:
    try:
        compose.run("up", "--detach", "--no-build", *BROKERS)
        wait_for(compose.healthy, "the brokers are healthy", UP_S)
        yield compose
    finally:
        compose.run("down", "--volumes", "--timeout", "20")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Compose]:
    """A cluster that all tests of this module share."""
    with _up(Compose()) as compose:
        yield compose


def _loadmanager(*words: str, status: tuple[int, ...] = (0,), token: str = "") -> Any:
    done = subprocess.run(
        [sys.executable, "-m", "loadmanager", *words, "--json"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "LOADMANAGER_TOKEN": token},
    )
    assert done.returncode in status, done.stdout + done.stderr
    return json.loads(done.stdout)


def _doctor(*words: str, token: str = "") -> dict[str, Any]:
    found: dict[str, Any] = _loadmanager(
        "doctor", "--timeout", "30", *words, status=(0, 1, 3), token=token
    )
    return found


def _problems(found: dict[str, Any]) -> list[dict[str, str]]:
    return [each for each in found["findings"] if each["level"] == "problem"]


@contextlib.contextmanager
def _client() -> Iterator[pulsar.Client]:
    quiet = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    with contextlib.closing(pulsar.Client(SERVICE_URL, logger=quiet)) as client:
        yield client


def test_a_stop_at_any_moment(cluster: Compose) -> None:
    """SIGTERM ends a broker within seconds, from the first moment of its container on."""
    config = f"{ROOT / 'deploy/compose.conf'}:/etc/loadmanager/broker.conf:ro"
    for after_s in (0.0, 0.2, 0.5, 1.0, 2.0):
        run = ("run", "--detach", "--network", f"{PROJECT}_default", "--volume", config, IMAGE)
        broker = ("broker", "--config=/etc/loadmanager/broker.conf")
        own = ("--set=advertisedAddress=other", "--set=loadManagerStorageDirectory=")
        name = docker(*run, *broker, *own).strip()
        try:
            time.sleep(after_s)
            docker("kill", "--signal", "TERM", name)
            assert docker("wait", name, timeout_s=30).strip() in ("0", "143"), after_s
        finally:
            docker("rm", "--force", name)


def test_what_an_image_says_of_itself(cluster: Compose) -> None:
    """Its version and the commit that it was built from."""
    (image,) = json.loads(docker("image", "inspect", IMAGE))
    labels = image["Config"]["Labels"]
    assert labels["org.opencontainers.image.version"] == __version__
    assert labels["org.opencontainers.image.revision"] == REVISION


def test_from_the_host(cluster: Compose) -> None:
    """Messages arrive; the doctor has no problem; every broker's report and every owner is told
    through one port, and a redirect leads to where the host can go.
    """
    with _client() as client:
        producer = client.create_producer(TOPIC)
        for number in range(200):
            producer.send(b"%d" % number)
        consumer = client.subscribe(TOPIC, "s", initial_position=pulsar.InitialPosition.Earliest)
        assert len({consumer.receive(10_000).data() for _ in range(200)}) == 200
        assert _problems(_doctor("--url", URL)) == []
        reports = _loadmanager("admin", "brokers", "report", "--url", URL)
        assert sorted(reports) == [f"{name}:8080" for name in BROKERS]
        bundles = _loadmanager("admin", "bundles", "list", "public/default", "--url", URL)
        (owner,) = [row["owner"] for row in bundles if row["owner"]]
        assert owner.removesuffix(":8080") in BROKERS
        path = "/admin/v2/persistent/public/default/t/stats"
        for port in (8080, 8081, 8082):
            with urllib.request.urlopen(f"http://localhost:{port}{path}", timeout=30) as answer:
                assert json.load(answer)["msgInCounter"] == 200


def test_orders_from_the_host(cluster: Compose) -> None:
    """Through one port: a limit is set and acts, and is why the producer waits; a bundle moves to
    the broker that is named.
    """
    topic = f"{TOPIC}-limited"
    with _client() as client:
        producer = client.create_producer(topic, send_timeout_millis=0, batching_enabled=False)
        producer.send(b"first")
        limit = ("admin", "limits", "set", topic, "publishRate", "--messages", "10")
        _loadmanager(*limit, "--url", URL)
        began_s = time.monotonic()
        for number in range(50):
            producer.send(b"%d" % number)
        assert time.monotonic() - began_s > 3  # of 5 s; a bucket may be full at first
        listed = _loadmanager("admin", "limits", "list", "--url", URL)
        assert topic in json.dumps(listed)
        bundles = _loadmanager("admin", "bundles", "list", "public/default", "--url", URL)
        row = next(row for row in bundles if row["owner"])
        to = next(f"{name}:8080" for name in BROKERS if f"{name}:8080" != row["owner"])
        _loadmanager("admin", "bundles", "move", row["bundle"], "--to", to, "--url", URL)
        producer.send(b"after the move")
        bundles = _loadmanager("admin", "bundles", "list", "public/default", "--url", URL)
        assert to in [each["owner"] for each in bundles if each["bundle"] == row["bundle"]]


def test_the_page_from_the_host(cluster: Compose) -> None:
    """It is there, with what it is made of, and the addresses of the others are ones that the host
    reaches.
    """
    with urllib.request.urlopen(f"{URL}/ui", timeout=30) as answer:
        text = answer.read().decode()
    parts = re.findall(r'(?:src|href)="(/ui/[^"]+)"', text)
    assert parts
    for part in parts:
        urllib.request.urlopen(f"{URL}{part}", timeout=30).close()
    ask = urllib.request.Request(
        f"{URL}/loadmanager/v1/cluster", headers={"Loadmanager-Follow": "true"}
    )
    with urllib.request.urlopen(ask, timeout=30) as answer:
        urls = {each["broker"]: each["url"] for each in json.load(answer)["brokers"]}
    assert urls == {f"broker-{n}:8080": f"http://localhost:{8080 + n}" for n in range(3)}


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")
async def test_the_page_in_a_browser_of_the_host(cluster: Compose) -> None:
    """It shows the brokers, asks one address only, and leads to the others by theirs."""
    async with browser() as page:
        await page.go(f"{URL}/ui#broker=broker-2:8080")
        there = "document.querySelectorAll('.broker:not(.gone)').length === 3"
        await page.wait(there)  # beside one that stopped: of the first test, say
        await page.wait_text("Its own page", "aside")
        link = await page.value("document.querySelector('aside a.button').href")
        assert link == "http://localhost:8082/ui"
        assert {url.split("/")[2] for url in page.requests} == {"localhost:8081"}


def test_the_night_of_a_small_history(cluster: Compose) -> None:
    """The nightly container waits for its hour, analyses what the brokers recorded today when it is
    asked to, and stops within seconds.
    """
    words = ("--network", "host", "--file", "deploy/Dockerfile", "--target", "analysis")
    docker("build", *words, "--tag", ANALYSIS, ".", timeout_s=base.MAKE_S)
    cluster.run("up", "--detach", "--no-build", "--no-deps", "nightly")
    container = cluster.run("ps", "--quiet", "nightly").strip()
    analyze = ("analyze", "--quiet", "--config=/etc/loadmanager/broker.conf")

    def analysed() -> bool:
        day = datetime.now(UTC).date().isoformat()
        words = ("exec", container, "loadmanager", *analyze, f"--date={day}")
        told = docker(*words, timeout_s=UP_S, check=False)
        return "nothing was recorded" not in told and "Traceback" not in told and _reports()

    def _reports() -> bool:
        return "report" in docker("exec", container, "find", "data/analysis", check=False)

    wait_for(analysed, "today is analysed", UP_S)
    assert "sleep" in docker("top", container)
    began_s = time.monotonic()
    cluster.run("stop", "nightly")
    assert time.monotonic() - began_s < 30


def _served(url: str) -> Any:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return json.load(answer)
    except OSError:
        return None


def test_prometheus_scrapes_the_brokers(cluster: Compose) -> None:
    """With its configuration, which promtool finds no fault in, and all of our rules."""
    base.prepare_prometheus(yaml.safe_load(COMPOSE.read_text())["services"]["prometheus"]["image"])
    cluster.run("up", "--detach", "--no-build", "--no-deps", "prometheus")
    checked = cluster.run(
        *("exec", "-T", "prometheus", "promtool", "check", "config"),
        "/etc/prometheus/prometheus.yml",
    )
    assert "SUCCESS" in checked

    def up() -> bool:
        told = _served("http://localhost:9090/api/v1/targets")
        targets = told["data"]["activeTargets"] if told else []
        return [each["health"] for each in targets] == ["up"] * len(BROKERS)

    wait_for(up, "the brokers are scraped", UP_S)
    groups = _served("http://localhost:9090/api/v1/rules")["data"]["groups"]
    rules = yaml.safe_load((ROOT / "deploy" / "alerts.yml").read_text())["groups"]
    assert sum(len(each["rules"]) for each in groups) == sum(len(it["rules"]) for it in rules)
    cluster.run("rm", "--force", "--stop", "prometheus")


def test_grafana_has_the_dashboard(cluster: Compose) -> None:
    """Nobody logs in to look at it."""
    image = yaml.safe_load(COMPOSE.read_text())["services"]["grafana"]["image"]
    if not base.is_there(image):
        pytest.skip(f"{image} cannot be pulled")
    cluster.run("up", "--detach", "--no-build", "--no-deps", "grafana")
    wait_for(lambda: _served("http://localhost:3000/api/search"), "it has a dashboard", UP_S)
    (dashboard,) = _served("http://localhost:3000/api/search")
    model = json.loads((ROOT / "deploy/grafana/dashboards/loadmanager.json").read_text())
    assert dashboard["title"] == model["title"]
    cluster.run("rm", "--force", "--stop", "grafana")


def test_a_killed_owner_and_a_rolling_restart(cluster: Compose) -> None:
    """No message with a receipt is lost."""
    with _client() as client:
        producer = client.create_producer(f"{TOPIC}2", send_timeout_millis=0)
        consumer = client.subscribe(f"{TOPIC}2", "s")
        sent = 0
        for what in ("kill", *BROKERS):
            producer.send(b"%d" % sent)
            sent += 1
            if what == "kill":
                bundles = _loadmanager("admin", "bundles", "list", "public/default", "--url", URL)
                owner = next(row["owner"] for row in bundles if row["owner"])
                cluster.run("kill", owner.partition(":")[0])
                cluster.run("start", owner.partition(":")[0])
            else:
                cluster.run("restart", what)
            wait_for(cluster.healthy, "the brokers are healthy", UP_S)
        producer.send(b"%d" % sent)
        received = set()
        while len(received) < sent + 1:
            message = consumer.receive(60_000)
            consumer.acknowledge(message)
            received.add(message.data())
    assert _problems(_doctor("--url", URL)) == []


def _released() -> str:
    """The commit of the last release: its tag's, or else that which named it in the changelog."""
    heading = re.search(r"^## \[(\d[^]]*)]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert heading is not None
    tag = _git("rev-list", "-n1", heading[1])
    named = _git("log", "--format=%H", "--reverse", f"-S## [{heading[1]}] - ", "--", "CHANGELOG.md")
    return tag or named.partition("\n")[0]


def _git(*words: str) -> str:
    done = subprocess.run(["git", "-C", ROOT, *words], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


def _release(folder: Path) -> Path:
    """docker-compose.yml of the last release, whose brokers have its image; ZooKeeper is as today,
    for the image of tests has no zkServer.sh.
    """
    commit = _released()
    if not commit:
        pytest.skip("this is no clone with the last release's commit")
    archive = subprocess.check_output(["git", "-C", ROOT, "archive", commit])
    subprocess.run(["tar", "-x", "-C", folder], input=archive, check=True)
    words = ("--network", "host", "--file", folder / "deploy/Dockerfile", "--tag", RELEASED)
    docker("build", *words, folder, timeout_s=base.MAKE_S)
    file = folder / "docker-compose.yml"
    before, now = (yaml.safe_load(path.read_text()) for path in (file, ROOT / file.name))
    for name, service in before["services"].items():
        if name in BROKERS:
            service["image"] = RELEASED
        elif name in now["services"]:
            before["services"][name] = now["services"][name]
    file.write_text(yaml.safe_dump(before))
    return file


def test_a_rolling_upgrade(cluster: Compose, tmp_path: Path) -> None:
    """From the last release to this version, under traffic: no message with a receipt is lost, and
    those stored before are there afterwards.
    """
    cluster.run("down", "--volumes", "--timeout", "20")
    with _up(Compose(first=str(_release(tmp_path)))), _client() as client:
        for path in ("tenants/public", "namespaces/public/default"):
            _put(path, {"allowedClusters": ["compose"]} if "tenants" in path else {})
        producer = client.create_producer(f"{TOPIC}3", send_timeout_millis=0)
        consumer = client.subscribe(f"{TOPIC}3", "s")
        sent = [b"stored %d" % number for number in range(200)]
        for data in sent:
            producer.send(data)
        with _traffic(producer, sent):
            for name in BROKERS:
                cluster.run("up", "--detach", "--no-deps", "--no-build", name)
                wait_for(cluster.healthy, "the brokers are healthy", UP_S)
        received = set()
        while received != set(sent):
            message = consumer.receive(60_000)
            consumer.acknowledge(message)
            received.add(message.data())
        versions = _loadmanager("admin", "brokers", "list", "--url", URL)
        assert len(versions) == len(BROKERS)
        assert _problems(_doctor("--url", URL)) == []


@contextlib.contextmanager
def _traffic(producer: pulsar.Producer, sent: list[bytes]) -> Iterator[None]:
    """Somebody publishes; `sent` gets what has a receipt. It goes on until all of it has one."""
    stop = threading.Event()

    def publish() -> None:
        while not stop.wait(0.05):
            data = b"%d" % len(sent)
            producer.send(data)
            sent.append(data)

    with ThreadPoolExecutor(1) as pool:
        publishing = pool.submit(publish)
        try:
            yield
        finally:
            stop.set()
        publishing.result(UP_S)


def _put(path: str, body: dict[str, Any]) -> None:
    request = urllib.request.Request(
        f"http://localhost:8080/admin/v2/{path}",
        data=json.dumps(body).encode(),
        method="PUT",
        headers={"Content-Type": "application/json"},
    )
    urllib.request.urlopen(request, timeout=30).close()


def test_a_secured_cluster(cluster: Compose, tmp_path: Path) -> None:
    """With TLS and tokens everywhere; the doctor finds nothing but the open disk; strangers get
    nothing.
    """
    cluster.run("down", "--volumes", "--timeout", "20")
    with _up(Compose("deploy/secure/compose.yml")) as secured:
        folder = tmp_path / "authority"
        secured.run("cp", "credentials:/var/lib/loadmanager/secure/authority", str(folder))
        asked = ("--url", "https://localhost:8081", "--tls-trust-certs", str(folder / "ca.pem"))
        token = f"file://{folder / 'admin.token'}"
        # The first TLS handshakes of a ZooKeeper server take seconds.
        with contextlib.suppress(AssertionError):  # the next look says what is left
            wait_for(lambda: not _problems(_doctor(*asked, token=token)), "no problem", UP_S)
        assert _problems(_doctor(*asked, token=token)) == []
        found = _doctor(*asked, "--security", token=token)
        points = [each for each in found["findings"] if each["part"] == "security"]
        left = [each["subject"] for each in points if each["level"] != "fine"]
        assert left == ["backlogQuotaDefaultLimitGB"]
        with pytest.raises((urllib.error.URLError, OSError)):
            urllib.request.urlopen("http://localhost:8081/admin/v2/brokers", timeout=10)
