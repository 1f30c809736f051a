"""The daemon beside a real Pulsar of three brokers, with stock clients and a skewed load:
`make test-pulsar`. Each of Pulsar's load managers has a cluster.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import maven
import pulsar
import pytest
from clients.pulsar import VERSION, brokers, distribution
from clusters.standalone import wait_for
from kit.security.tokens import ADMIN, KEY, token
from ports import free_port
from steer.real import NAMESPACE, SPANS, RealPulsar, a_real_pulsar, gather, until

from loadmanager.cli import main

pytestmark = [pytest.mark.pulsar, pytest.mark.timeout(1_200)]

SLOW_S = 300.0
"""No step takes so long, also on a machine that does something else."""
TOPICS = 24
FLEET = (
    "readIntervalSeconds=2",
    "policiesIntervalSeconds=4",
    "loadBalancerSheddingIntervalMinutes=0.05",
    "loadBalancerSheddingGracePeriodMinutes=1",
    "loadBalancerLoadSheddingStrategy=UniformLoadShedder",
    "loadBalancerMsgRateDifferenceShedderThreshold=30",
    "minUnloadMessage=1",
    "minUnloadMessageThroughput=1",
    "maxUnloadPercentage=0.5",
    "loadManagerMovesPerMinuteMax=-1",
    "settleSeconds=10",
)
"""By rates: all brokers of one machine have the same CPU."""


@pytest.fixture(scope="module")
def homes(request: pytest.FixtureRequest) -> tuple[Path, Path]:
    """Pulsar's distribution, and the folder of the brokers of the chosen version."""
    if (reason := maven.missing()) is not None:
        pytest.skip(reason)
    try:
        return distribution(), brokers(request.config.getoption("pulsar") or VERSION)
    except subprocess.SubprocessError:
        pytest.skip("Maven Central is not reached, or has not got this version")


BY_TRAFFIC = "loadBalancerCPUResourceWeight=0"
"""All brokers report the machine's CPU: where that is full, no broker has room for more."""
NOTHING_MEASURED = (
    BY_TRAFFIC,
    "loadBalancerBandwidthInResourceWeight=0",
    "loadBalancerBandwidthOutResourceWeight=0",
)
"""The topics' traffic is evened out: that of a test fills no network card."""
MANY = "many/orders"
"""A namespace of many small bundles, of another tenant."""
MOVES_MIN = 4
"""What it takes at least to even out its 32 bundles, all at one broker; a plan of fewer moves goes
by figures from before most of them had traffic again.
"""
OPERATOR = {"Authorization": f"Bearer {token(ADMIN)}", "Content-Type": "application/json"}


class Load:
    """A producer for each topic; counts what is acknowledged and what fails."""

    def __init__(
        self, cluster: RealPulsar, namespace: str = NAMESPACE, topics: int = TOPICS
    ) -> None:
        self._client = pulsar.Client(
            cluster.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
        )
        self._producers = [
            self._client.create_producer(f"persistent://{namespace}/t-{number}")
            for number in range(topics)
        ]
        self.results: Counter[str] = Counter()
        self._going = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._going.set()
        self._thread.join()
        self._client.close()

    def _run(self) -> None:
        def done(result: Any, _id: Any) -> None:
            self.results[str(result)] += 1

        while not self._going.wait(0.1):
            for producer in self._producers:
                producer.send_async(b"x" * 100, done)

    def goes_on(self) -> None:
        """Wait for further acknowledgements."""
        enough = self._acknowledged() + 10 * len(self._producers)
        wait_for(lambda: self._acknowledged() > enough, f"acknowledgements {self.results}", SLOW_S)

    def _acknowledged(self) -> int:
        return self.results["Result.Ok"] or self.results["Ok"]


class Daemon:
    """`loadmanager fleet` as a process."""

    def __init__(self, cluster: RealPulsar, folder: Path, mode: str, *more: str) -> None:
        self.port = free_port()
        self.log = folder / f"fleet-{mode}-{self.port}.log"
        arguments = [sys.executable, "-m", "loadmanager", "fleet", "--pulsar", cluster.url(1)]
        arguments += ["--mode", mode, "--data-dir", str(folder / "fleet")]
        arguments += ["--listen", f"127.0.0.1:{self.port}"]
        tokens = (f"tokenSecretKey={KEY}", f"superUserRoles={ADMIN}")
        for pair in (*FLEET, *tokens, *more):
            arguments += ["--set", pair]
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(
                arguments, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )

    def __enter__(self) -> Daemon:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            assert self.process.wait(SLOW_S) == 0

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """The answer of its API; None until it listens."""
        data = None if body is None else json.dumps(body).encode()
        url = f"http://127.0.0.1:{self.port}/loadmanager/v1/{path}"
        try:
            with urllib.request.urlopen(
                urllib.request.Request(url, data=data, method=method, headers=OPERATOR), timeout=60
            ) as answer:
                return json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as error:
            return {"status": error.code, **json.loads(error.read())}
        except OSError:
            return None

    def until(self, what: str, path: str, holds: Callable[[Any], Any]) -> Any:
        """The first answer that holds."""
        try:
            return wait_for(
                lambda: (told := self.ask("GET", path)) and holds(told) and told, what, SLOW_S
            )
        except AssertionError as error:
            raise AssertionError(
                f"{error}: {self.ask('GET', path)}\n{self.log.read_text()[-3000:]}"
            ) from None


@pytest.fixture(scope="module", params=["modular", "extensible"])
def cluster(
    request: pytest.FixtureRequest,
    homes: tuple[Path, Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[RealPulsar, Load]]:
    """Three brokers, of which the first has every bundle, under load."""
    folder = tmp_path_factory.mktemp(request.param)
    with ExitStack() as stack:
        home, broker_home = homes
        real = stack.enter_context(
            a_real_pulsar(home, folder, request.param, broker_home=broker_home)
        )
        real.switch(on=False)
        load = stack.enter_context(Load(real))
        gather(real, SLOW_S)
        yield real, load


def test_observe_and_advise(cluster: tuple[RealPulsar, Load], tmp_path: Path) -> None:
    """Records, a line for `decide`, and a plan with commands; nothing moves."""
    real, load = cluster
    before = real.owners()
    with Daemon(real, tmp_path, "advise") as daemon:
        daemon.until(
            "every broker is read",
            "fleet",
            lambda told: (
                all(broker["answers"] for broker in told["brokers"].values())
                and len(told["brokers"]) == 3
                and not told["problems"]
            ),
        )
        advice = daemon.until(
            "a plan with moves", "advice", lambda told: (told["plan"] or {}).get("unloads")
        )
        assert all("pulsar-admin" in move["command"] for move in advice["plan"]["unloads"])
        assert {move["source"] for move in advice["plan"]["unloads"]} == {real.broker(0)}
        line = json.dumps(daemon.ask("GET", "snapshot"))
    assert real.owners() == before
    load.goes_on()
    decided = subprocess.run(
        [sys.executable, "-m", "loadmanager", "decide", "--set", FLEET[4], "--set", FLEET[5]],
        input=line.encode(),
        capture_output=True,
        check=True,
    )
    assert json.loads(decided.stdout)["strategy"]
    kinds = {path.name for path in (tmp_path / "fleet" / "history").glob("*/kind=*")}
    assert kinds >= {"kind=broker_load", "kind=bundle_load", "kind=decision"}


def test_observe_through_zookeeper(cluster: tuple[RealPulsar, Load], tmp_path: Path) -> None:
    """What the brokers publish in Pulsar's own ZooKeeper says the same; an extensible broker, which
    publishes no load there, is read as before.
    """
    real, _ = cluster
    stored = f"pulsarMetadataStoreUrl=zk:127.0.0.1:{real.zookeeper}"
    owners = real.owners()
    with Daemon(real, tmp_path, "observe", stored) as daemon:
        told = daemon.until(
            "every bundle is seen",
            "fleet",
            lambda told: (
                sum(broker["bundles"] or 0 for broker in told["brokers"].values()) >= len(owners)
                and not told["problems"]
            ),
        )
    assert len(told["brokers"]) == 3
    assert told["brokers"][real.broker(0)]["msgRateIn"] > 0


def approved(daemon: Daemon) -> Any:
    """The present plan, carried out; None if there is none, or if rates changed since it was made:
    then there will be another one.
    """
    advice = daemon.ask("GET", "advice")
    if not advice["planId"]:
        return None
    plan = daemon.ask("POST", f"plans/{advice['planId']}/execute")
    drifted = {drift["what"] for drift in plan.get("drift", ())}
    if drifted and drifted <= {"load", "usage", "destination"}:
        return None
    assert plan.get("state") == "executed", plan
    return plan


def test_approve(cluster: tuple[RealPulsar, Load], tmp_path: Path) -> None:
    """Refused while Pulsar balances itself; then exactly the plan is made."""
    real, load = cluster
    real.switch(on=True)
    try:
        with Daemon(real, tmp_path, "approve") as daemon:
            advice = daemon.until("a plan", "advice", lambda told: told["planId"])
            refused = daemon.ask("POST", f"plans/{advice['planId']}/execute")
            assert refused["status"] == 409
            assert "loadBalancerSheddingEnabled" in refused["reason"]
            real.switch(on=False)
            daemon.until("it is off", "fleet", lambda told: told["pulsarBalances"] == [])
            plan = wait_for(lambda: approved(daemon), "a plan is carried out", SLOW_S)
            daemon.until(
                "the moves have ended",
                "moves",
                lambda told: told["moves"] and not told["running"] and not told["waiting"],
            )
            owners = real.owners()
            for move in plan["plan"]["unloads"]:
                assert owners[move["bundle"]] == move["destination"], daemon.log.read_text()
    finally:
        real.switch(on=False)
    load.goes_on()


def promised(
    daemon: Daemon, wanted: dict[str, Any], holds: Callable[[dict[str, Any]], bool]
) -> dict[str, Any]:
    """The order for a goal, once the daemon knows enough to promise this; the bundles that were
    gathered have no traffic at first.
    """
    order: dict[str, Any] = {}
    for _ in until(SLOW_S):
        order = daemon.ask("POST", "goals", wanted) or {}
        if "id" not in order:
            continue
        if order.get("promise") and holds(order["promise"]):
            return order
        daemon.ask("POST", f"goals/{order['id']}/stop")
    raise AssertionError(f"{order}\n{daemon.log.read_text()[-3000:]}")


def test_a_goal(cluster: tuple[RealPulsar, Load], tmp_path: Path) -> None:
    """Planned, approved and carried out within its limits; afterwards the order says what came."""
    real, load = cluster
    gather(real, SLOW_S)
    with Daemon(real, tmp_path, "approve", BY_TRAFFIC) as daemon:
        wanted = {
            "goal": {"kind": "emptied", "broker": real.broker(0)},
            "limits": {"moves": 4, "stay": ["pulsar"]},
        }
        order = promised(daemon, wanted, lambda promise: promise["curve"][-1]["moves"] == 4)
        assert order["state"] == "proposed", order
        before = real.owners()
        assert set(before.values()) == {real.broker(0)}
        assert daemon.ask("POST", f"goals/{order['id']}/approve")["state"] == "approved"
        ended = daemon.until(
            "it has ended", f"goals/{order['id']}", lambda told: told["state"] == "ended"
        )
        evidence = f"{json.dumps(ended)}\n{daemon.log.read_text()[-3000:]}"
        assert ended["ended"]["code"] == "Limits", evidence
        assert (ended["progress"]["ordered"], ended["progress"]["failed"]) == (4, 0), evidence
        after = real.owners()
        assert sum(after[bundle] != owner for bundle, owner in before.items()) == 4
        daemon.ask("DELETE", f"cordons/{real.broker(0)}")
    load.goes_on()


def test_a_canary(cluster: tuple[RealPulsar, Load], tmp_path: Path) -> None:
    """A producer of the daemon's own is moved, and tells how long it was paused; goals count with
    that. Without its namespace it says what is missing.
    """
    real, load = cluster
    with Daemon(real, tmp_path, "approve", "canaryNamespace=acme/canary") as daemon:
        missing = "pulsar-admin namespaces create acme/canary"
        daemon.until(
            "it misses the namespace",
            "fleet",
            lambda told: missing in str(told["canary"]["problem"]),
        )
    real.request("PUT", "namespaces/acme/canary", {"bundles": {"numBundles": 1}})
    (tmp_path / "again").mkdir()
    with Daemon(real, tmp_path / "again", "approve", "canaryNamespace=acme/canary") as daemon:
        told = daemon.until(
            "it has measured", "fleet", lambda told: told["canary"]["pauseSeconds"] is not None
        )
        assert 0.001 < told["canary"]["pauseSeconds"] < 60, told["canary"]
        moved = [move for move in daemon.ask("GET", "moves")["moves"] if move["reason"] == "Canary"]
        assert [move["state"] for move in moved] == ["done"]
        assert moved[0]["bundle"].startswith("acme/canary/")
        pause_ms = moved[0]["outcome"]["pauseMs"]
        assert pause_ms / 1000 == pytest.approx(told["canary"]["pauseSeconds"], abs=0.001)
        ((busiest, _),) = Counter(real.owners().values()).most_common(1)
        wanted = {"goal": {"kind": "emptied", "broker": busiest}}
        order = daemon.ask("POST", "goals", wanted)
        assert order.get("pauseSource") == "canary", order
        print(f"{real.manager}: the canary was paused for {pause_ms:.0f} ms")
    load.goes_on()


def test_two_daemons_notice_each_other(cluster: tuple[RealPulsar, Load], tmp_path: Path) -> None:
    """And say so, by the properties of Pulsar's system namespace; one alone goes on."""
    real, _ = cluster
    folders = tmp_path / "one", tmp_path / "other"
    for folder in folders:
        folder.mkdir()

    def alone(told: Any) -> bool:
        return told["held"] is None or "SecondDaemon" not in told["held"]

    with Daemon(real, folders[0], "act") as one:
        with Daemon(real, folders[1], "act") as other:
            for daemon in (one, other):
                daemon.until(
                    "it notices the other", "fleet", lambda told: told["held"] and not alone(told)
                )
        one.until("it is alone", "fleet", alone)


def test_splits(cluster: tuple[RealPulsar, Load], tmp_path: Path) -> None:
    """A bundle that is too big is split when an operator approves it, and by itself in act. The
    parts exist, and clients go on.
    """
    real, load = cluster
    few = "loadBalancerNamespaceBundleMaxTopics=3"
    soon = ("loadBalancerSplitIntervalMinutes=0.05", few)
    with Daemon(real, tmp_path, "approve", *soon) as daemon:
        advice = daemon.until("a split is advised", "advice", lambda told: told["splits"])
        split = advice["splits"][0]
        assert split["bundle"] in real.owners()
        plan = daemon.ask("POST", f"plans/{split['planId']}/execute")
        assert plan.get("state") == "executed", plan
        boundaries = real.boundaries()
        assert len(boundaries) == SPANS + 2
        daemon.until(
            "no part is missing",
            "fleet",
            lambda _told: len(real.owners()) == len(boundaries) - 1,
        )
    load.goes_on()
    with Daemon(real, tmp_path, "act", *soon, "movesPerHourMax=0") as daemon:
        daemon.until(
            "a split has ended",
            "decisions",
            lambda told: any(
                (one.get("outcome") or {}).get("children")
                for one in told["decisions"]
                if one["kind"] == "split"
            ),
        )
    assert set(boundaries) < set(real.boundaries())
    load.goes_on()


def test_act_while_zookeeper_restarts(cluster: tuple[RealPulsar, Load], tmp_path: Path) -> None:
    """Pulsar's ZooKeeper is killed in the middle of the moves, and comes back. Each bundle has one
    owner at the end, the cluster is balanced, and clients go on. Where a move failed, the circuit
    breaker stopped the others, and an operator lets them go on.
    """
    real, load = cluster
    gather(real, SLOW_S)
    with Daemon(real, tmp_path, "act") as daemon:
        daemon.until("a move begins", "moves", lambda told: told["moves"])
        real.kill("zookeeper")
        real.start_zookeeper()
        bundles = len(real.boundaries()) - 1
        for _ in until(SLOW_S):
            if "CircuitBreaker" in str((daemon.ask("GET", "fleet") or {}).get("held")):
                daemon.ask("DELETE", "moves/pause")
            shares = Counter(real.owners().values())
            if len(shares) == 3 and max(shares.values()) <= bundles / 2 == sum(shares.values()) / 2:
                break
        else:
            raise AssertionError(f"{shares}\n{daemon.log.read_text()[-4000:]}")
        owned = [bundle for index in range(real.brokers) for bundle in real.owned(index)]
        assert len(set(owned)) == len(owned)
        load.goes_on()


def test_act_after_being_killed(cluster: tuple[RealPulsar, Load], tmp_path: Path) -> None:
    """A daemon that is killed leaves nothing half done; the next one goes on."""
    real, load = cluster
    gather(real, SLOW_S)
    daemon = Daemon(real, tmp_path, "act")
    daemon.until("a move begins", "moves", lambda told: told["moves"])
    daemon.process.kill()
    daemon.process.wait()
    with Daemon(real, tmp_path, "act") as daemon:
        for _ in until(SLOW_S):
            shares = Counter(real.owners().values())
            if len(shares) == 3 and max(shares.values()) <= sum(shares.values()) / 2:
                break
        else:
            raise AssertionError(f"{shares}\n{daemon.log.read_text()[-4000:]}")
        load.goes_on()
    assert "Pulsar's own stays off" in daemon.log.read_text()


def test_its_history(
    cluster: tuple[RealPulsar, Load], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The cycles of a daemon that acts are decided again, and all of its moves come out again; the
    nightly report has these moves, but those whose bundles a third broker had in between, and puts
    no record of a broker aside.
    """
    real, load = cluster
    gather(real, SLOW_S)
    with Daemon(real, tmp_path, "act") as daemon:
        for _ in until(SLOW_S):
            shares = Counter(real.owners().values())
            if len(shares) == 3 and max(shares.values()) <= sum(shares.values()) / 2:
                break
        else:
            raise AssertionError(f"{shares}\n{daemon.log.read_text()[-4000:]}")
        told = daemon.until(
            "the moves have ended",
            "moves",
            lambda told: not told["running"] and not told["waiting"],
        )
        done = {move["id"]: move["bundle"] for move in told["moves"] if move["state"] == "done"}
        load.goes_on()
    history = str(tmp_path / "fleet" / "history")
    capsys.readouterr()
    assert main(["replay", history, "--exact", "--json"]) == 0
    for date, exact in json.loads(capsys.readouterr().out).items():
        assert exact["cycles"] == exact["same"], exact
        assert exact["moves"] == exact["reproduced"], exact
        where = ("--history", history, "--output", str(tmp_path / "analysis"), "--quiet")
        assert main(["analyze", "--date", date, *where]) == 0
    reports = [json.loads(path.read_text()) for path in tmp_path.rglob("reports/*.json")]
    rows = [row for told in reports for row in told["tables"]["moves"]["rows"]]
    named = {row["move"] for row in rows} - {None}
    strayed = {row["bundle"] for row in rows if row["move"] is None}
    assert len(done) >= 4
    assert len(named) >= 3
    assert {bundle for move, bundle in done.items() if move not in named} <= strayed
    assert not any(told["input"]["quarantined"] for told in reports)


def test_a_goal_while_a_broker_dies(cluster: tuple[RealPulsar, Load], tmp_path: Path) -> None:
    """Even within 5 points, in time, with at most 40 moves and a tenant left alone. When a broker
    dies in the middle, moves wait until all is steady; then the goal is reached, and the order says
    what was promised and what came.
    """
    real, load = cluster
    real.request("PUT", "tenants/many", {"allowedClusters": ["c1"], "adminRoles": []})
    real.request("PUT", f"namespaces/{MANY}", {"bundles": {"numBundles": 32}})
    with (
        Load(real, MANY, topics=96) as more,
        Daemon(real, tmp_path, "approve", *NOTHING_MEASURED) as daemon,
    ):
        gather(real, SLOW_S, MANY)
        until_ms = round(time.time() * 1000) + 8 * 3_600_000
        wanted = {
            "goal": {"kind": "even", "withinPoints": 5},
            "limits": {"moves": 40, "untilMs": until_ms, "stay": ["acme"]},
        }
        order = promised(
            daemon,
            wanted,
            lambda promise: promise["reached"] and promise["curve"][-1]["moves"] >= MOVES_MIN,
        )
        print(f"{real.manager}: {order['promise']['curve'][-1]['moves']} moves promised")
        path = f"goals/{order['id']}"
        answer = daemon.ask("POST", f"{path}/approve")
        assert answer.get("state") == "approved", answer
        daemon.until("a bundle has moved", path, lambda told: told["progress"]["arrived"])
        real.kill("broker2")
        daemon.until(
            "moves wait",
            "fleet",
            lambda told: told["held"] and "BrokersLeft" in told["held"],
        )
        for _ in until(2 * SLOW_S):  # it ends only when the brokers have been the same for a while
            ended = daemon.ask("GET", path) or {}
            if ended.get("state") == "ended":
                break
        evidence = f"{json.dumps(ended)}\n{daemon.log.read_text()[-3000:]}"
        assert (ended.get("ended") or {}).get("code") == "Reached", evidence
        assert ended["progress"]["farthest"] <= 0.05, evidence
        assert ended["progress"]["ordered"] <= 40, evidence
        moved = {move["bundle"] for move in daemon.ask("GET", "moves")["moves"]}
        assert all(bundle.startswith("many/") for bundle in moved)
        more.goes_on()
    load.goes_on()
