"""The audit log: each change that was allowed, with who made it, and nothing else."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from broker.admin.serving import CLUSTER, ORDERS, Served, serving
from broker.admin.test_admin_access import secured
from broker.admin.test_archive import in_folder
from broker.composed.test_rights import a_consumer, a_producer, answer_to
from clusters.running import eventually
from kit.security.tokens import ADMIN, VALUES, token, verifier
from structlog.testing import capture_logs

from loadmanager.broker.wire import pulsar_pb2 as pb
from loadmanager.broker.wire.frames import encode
from loadmanager.cli import main
from loadmanager.engine.bundles.ranges import topic_hash
from loadmanager.engine.plans.goals import Even, PlanLimits
from loadmanager.engine.plans.order import CurvePoint, GoalOrder, MadeAsShown, Promise
from loadmanager.kit.audit import Asked, ChangeShown, asking
from loadmanager.kit.http.auditing import PEERS, audited
from loadmanager.kit.metadata import paths
from loadmanager.kit.metadata.memory import MemoryTree
from loadmanager.kit.names import TopicName
from loadmanager.kit.reason import Reason
from loadmanager.leader.audit import CHANGES_MAX, TEXT_MAX, WAITING_MAX, AuditLog, NotingStore

CHANGES = "/loadmanager/v1/changes"
POLICIES = "/admin/policies/acme/orders"


async def changes(served: Served, query: str = "", *, at: int = 0) -> list[dict[str, Any]]:
    """The last changes, the newest first."""
    answer = await served.get(f"{CHANGES}{query}", at=at)
    assert not answer["noAnswer"]
    found: list[dict[str, Any]] = answer["changes"]
    return found


async def test_the_stop_of_a_broker_names_it(tmp_path: Path) -> None:
    """It stands in the story of that broker, too."""
    async with serving(values=in_folder(tmp_path)) as served:
        name = served.broker_id(1)
        assert (await served.ask("POST", "/admin/v2/brokers/shutdown", at=1)).status == 204
        change = (await changes(served))[0]
        assert (change["words"], change["note"]) == ("ordered a broker to stop", name)
        archive = served.brokers[1].archive
        assert archive is not None
        await archive.settle()
        (event,) = (await archive.events(("change",), name, (0, 1 << 52), 10)).events
        assert event.record["note"] == name


def as_role(role: str) -> dict[str, str]:
    """The header of a role."""
    return {"Authorization": f"Bearer {token(role)}"}


async def test_who_changed_what() -> None:
    """Role, address, method and path, and of the stored document the fields that are different."""
    async with secured() as served:
        path = "/admin/v2/namespaces/acme/orders/permissions/app"
        before = served.brokers[0].clock.now_ms()
        for actions in (["produce"], ["consume"]):
            answer = await served.ask("POST", path, actions, headers=as_role("boss"))
            assert answer.status == 204
        newest = (await changes(served))[0]
        assert newest["ts"] >= before
        assert {name: newest[name] for name in ("role", "address", "over", "what", "path")} == {
            "role": "boss",
            "address": "127.0.0.1",
            "over": "http",
            "what": f"POST {path}",
            "path": POLICIES,
        }
        for name, actions in (("before", ["produce"]), ("after", ["consume"])):
            document = json.loads(newest[name])
            assert document.keys() == {"auth_policies"}
            assert document["auth_policies"]["namespace_auth"]["app"] == actions
        told = [each for each in served.brokers[0].history.records if each.kind == "change"]
        assert getattr(told[-1], "role", "") == "boss"


async def test_what_is_no_change() -> None:
    """What was refused, failed, or only read; nor is a dry run."""
    async with secured() as served:
        before = await changes(served)
        for method, path, body, role, status in (
            ("POST", "/admin/v2/namespaces/acme/orders/permissions/x", ["produce"], "reader", 403),
            ("POST", "/admin/v2/namespaces/acme/orders/permissions/x", ["fly"], "boss", 412),
            ("DELETE", "/admin/v2/tenants/acme", None, ADMIN, 409),
            ("GET", "/admin/v2/tenants/acme", None, "boss", 200),
            ("PUT", "/admin/v2/nothing", None, ADMIN, 404),
        ):
            answer = await served.ask(method, path, body, headers=as_role(role))
            assert answer.status == status, (path, answer)
        assert await changes(served) == before


@pytest.mark.parametrize(
    ("method", "path", "body", "stored"),
    [
        ("PUT", "/admin/v2/tenants/new", {"allowedClusters": [CLUSTER]}, "/admin/policies/new"),
        ("PUT", "/admin/v2/namespaces/acme/new", None, "/admin/policies/acme/new"),
        ("PUT", "/admin/v2/persistent/acme/orders/t", None, "/managed-ledgers/acme/orders/"),
        ("PUT", "/admin/v2/persistent/acme/orders/p/partitions", 2, "/admin/partitioned-topics/"),
        (
            "POST",
            "/admin/v2/brokers/configuration/loadBalancerSheddingEnabled/true",
            None,
            "/admin/conf",
        ),
        ("PUT", "/admin/v2/resourcegroups/gold", {"publishRateInMsgs": 1}, "/admin/resourcegroups"),
        ("PUT", "/loadmanager/v1/moves/pause", {"seconds": 60}, "/loadmanager/wishes/pause"),
    ],
)
async def test_stored_documents(method: str, path: str, body: Any, stored: str) -> None:
    """Whatever is stored is told: what was not there before has no `before`."""
    async with secured() as served:
        answer = await served.ask(method, path, body)
        assert answer.status in (200, 204), answer
        told = [each for each in await changes(served) if each["what"] == f"{method} {path}"]
        (found,) = [each for each in told if (each["path"] or "").startswith(stored)]
        assert found["before"] is None
        assert found["after"] is not None
        assert found["role"] == ADMIN


async def test_an_order_that_could_not_be_carried_out() -> None:
    """It is told as failed, with the reason, and is not among what can be undone; an order of what
    is so already is not told.
    """
    async with serving() as served:
        owner, other = served.broker_id(0), served.broker_id(1)
        bundle = f"{ORDERS}/0x00000000_0x40000000"
        moved = {"bundle": bundle, "destination": owner}
        assert (await served.ask("POST", "/loadmanager/v1/moves", moved)).status == 200
        topic = next(
            name
            for number in range(100)
            if topic_hash(str(name := TopicName("persistent", ORDERS, str(number)))) < 0x40000000
        )
        await served.brokers[0].serve(topic)
        before = await changes(served)
        assert (await served.ask("POST", "/loadmanager/v1/moves", moved)).status == 200
        assert await changes(served) == before, "it is there already"
        served.brokers[1].store.suspend()
        order = {"bundle": bundle, "destination": other}
        answer = await served.ask("POST", "/loadmanager/v1/moves", order)
        assert answer.status == 503
        newest = (await changes(served))[0]
        assert newest["failed"]
        assert newest["words"] == f"failed: ordered the move of {bundle} to {other}"
        assert newest["note"].startswith("503: ")
        assert newest["path"] is None


async def test_what_is_not_stored() -> None:
    """An order has what was asked for."""
    async with secured() as served:
        answer = await served.ask("PUT", "/admin/v2/namespaces/acme/orders/unload")
        assert answer.status == 204
        newest = (await changes(served))[0]
        assert newest["what"] == "PUT /admin/v2/namespaces/acme/orders/unload"
        assert (newest["path"], newest["before"], newest["after"]) == (None, None, None)


async def test_without_authentication() -> None:
    """The role is empty, the address is told. Neither a dry run is a change, nor the end of a pause
    where there was none.
    """
    async with serving(1) as served:
        before = await changes(served)
        assert (await served.ask("POST", "/loadmanager/v1/dry-runs", {})).status == 200
        assert (await served.ask("DELETE", "/loadmanager/v1/moves/pause")).status == 204
        assert await changes(served) == before
        assert {(each["role"], each["address"]) for each in await changes(served)} == {
            ("", "127.0.0.1")
        }


async def test_what_clients_change() -> None:
    """A topic that the first client makes, a subscription, a schema, and an end of one; a client
    that comes back changes nothing.
    """
    topic = TopicName("persistent", ORDERS, "by-a-client")
    async with secured() as served:
        (broker,) = served.brokers
        await served.ask(
            "POST",
            "/admin/v2/namespaces/acme/orders/permissions/app",
            ["produce", "consume"],
        )
        bundles = await broker.use.namespaces.bundles(ORDERS)
        await served.own(bundles.bundle_of_topic(str(topic)))
        port, cluster = await broker.listen(), served.cluster
        for _ in range(2):
            client = await cluster.connect(port, token("app"))
            await answer_to(client, a_producer(topic=topic))
            await answer_to(client, a_consumer("mine", topic=topic))
        unsubscribe = encode(unsubscribe=pb.CommandUnsubscribe(consumer_id=1, request_id=9))
        told = await changes(served, "?role=app")
        assert [each["what"] for each in told] == [f"SUBSCRIBE {topic}", f"PRODUCER {topic}"]
        assert all(each["over"] == "binary" for each in told)
        client = await cluster.connect(port, token("app"))
        await answer_to(client, a_consumer("other", topic=topic))
        await answer_to(client, unsubscribe)
        newest = (await changes(served, "?role=app&limit=1"))[0]
        assert newest["what"] == f"UNSUBSCRIBE {topic} other"
        assert newest["path"].endswith("/by-a-client/other")
        assert (newest["before"], newest["after"]) == (None, None)


async def test_of_all_brokers_and_on_the_stream() -> None:
    """Any broker tells those of all; the leader tells its listeners of those that others made."""
    async with serving(2, values=VALUES, verifier=verifier(), token=token(ADMIN)) as served:
        stream = served.session.get(f"{served.url(0)}/loadmanager/v1/events")
        async with stream as events:
            path = "/admin/v2/tenants/from-1"
            body = {"allowedClusters": [CLUSTER]}
            assert (await served.ask("PUT", path, body, at=1)).status == 204
            told: dict[str, Any] = {}
            async with asyncio.timeout(60):
                kind = ""
                while told.get("what") != f"PUT {path}":
                    line = (await events.content.readline()).decode()
                    if line.startswith("event: "):
                        kind = line[7:].strip()
                    elif line.startswith("data: ") and kind == "change":
                        told = json.loads(line[6:])
        assert (told["broker"], told["role"]) == (served.broker_id(1), ADMIN)
        for at in (0, 1):
            assert told in await changes(served, at=at)
        served.brokers[1].store.suspend()
        assert (await served.get(f"{CHANGES}?local=true"))["changes"]


async def test_at_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """`admin audit` shows who did what, and has it all with --json."""
    async with secured() as served:
        words = ["admin", "audit", "--url", served.url(), "--token", token(ADMIN)]
        for more in (["--role", ADMIN], ["--json", "--limit", "3"]):
            capsys.readouterr()
            with capture_logs():
                assert await asyncio.to_thread(main, [*words, *more]) == 0
            out = capsys.readouterr().out
        assert json.loads(out)["changes"] == (await changes(served))[:3]


async def test_who_may_read_it() -> None:
    """Superusers only."""
    async with secured() as served:
        for role, status in (("boss", 403), ("reader", 403), (ADMIN, 200)):
            assert (await served.ask("GET", CHANGES, headers=as_role(role))).status == status


class Clock:
    """Stands still."""

    def now_ms(self) -> int:
        return 1

    def monotonic_s(self) -> float:
        return 1

    def monotonic_ns(self) -> int:
        return 1


def asked(what: str = "PUT /x", **fields: Any) -> Asked:
    """A request."""
    return Asked(roles=("admin",), address="a", over="http", what=what, **fields)


async def test_it_is_bounded_and_counts_what_it_drops() -> None:
    """A leader that takes nothing costs no memory and no time."""
    told: list[int] = []

    async def tell(some: Any) -> bool:
        told.append(len(some))
        return False

    audit = AuditLog(broker_id="b", clock=Clock(), history=None, tell=tell)
    running = asyncio.create_task(audit.run())
    for _ in range(WAITING_MAX + CHANGES_MAX):
        audit.changed(asked())
    await eventually(lambda: asyncio.sleep(0, told), bool)
    running.cancel()
    assert audit.count == WAITING_MAX + CHANGES_MAX
    assert audit.dropped == CHANGES_MAX
    assert len(audit.recent(10_000)) == CHANGES_MAX


async def test_a_task_that_outlives_its_request() -> None:
    """It holds nothing of the request, and what it writes is no change by who asked then."""
    memory = MemoryTree().session(timeout_s=60)
    store = NotingStore(memory)
    going_on = asyncio.Event()

    async def later() -> None:
        await going_on.wait()
        await store.get("/admin/policies/a")
        await store.put("/admin/policies/a", b"{}")

    request = asked()
    async with memory:
        with asking(request):
            task = asyncio.create_task(later())
            await store.put("/admin/policies/b", b"{}")
            await store.get("/admin/policies/b")
        assert list(request.written) == ["/admin/policies/b"]
        going_on.set()
        await task
        assert list(request.written) == ["/admin/policies/b"]
        assert not request.read


async def test_a_tenant_that_is_changed() -> None:
    """With what it was before."""
    async with secured() as served:
        body = {"adminRoles": ["new"], "allowedClusters": [CLUSTER]}
        assert (await served.ask("POST", "/admin/v2/tenants/acme", body)).status == 204
        newest = (await changes(served))[0]
        assert json.loads(newest["before"]) == {"adminRoles": ["boss"]}
        assert json.loads(newest["after"]) == {"adminRoles": ["new"]}
        assert (await served.ask("PUT", "/admin/v2/tenants/other", body)).status == 204
        assert (await served.ask("DELETE", "/admin/v2/tenants/other")).status == 204
        newest = (await changes(served))[0]
        assert (json.loads(newest["before"]), newest["after"]) == (body, None)


async def test_long_documents_and_secrets() -> None:
    """Texts are cut off, keys that hold secrets are hidden, odd bytes are harmless."""
    audit = AuditLog(broker_id="b", clock=Clock(), history=None, secret=lambda key: key == "token")
    request = asked()
    request.saw("/admin/x", b'{"a": 1, "token": "old", "same": 1}')
    request.wrote("/admin/x", json.dumps({"same": 1, "token": "new", "b": "x" * 9999}).encode())
    request.wrote("/admin/y", b"\xff{")
    request.wrote("/admin/z", b"[" * 100_000)
    audit.changed(request)
    z, y, x = audit.recent(10)
    assert json.loads(x.before) == {"a": 1, "token": "*****"}
    assert "new" not in x.after
    assert len(x.after) == TEXT_MAX + 1
    assert len(z.after) <= TEXT_MAX + 1
    assert y.before is None


def test_of_a_large_plan_the_goal_is_recorded() -> None:
    """With its limits and the number of its moves; these would leave no room for it."""
    audit = AuditLog(broker_id="b", clock=Clock(), history=None)
    stay = tuple(f"tenant-{number:03}" for number in range(900))
    nothing = CurvePoint(moves=0, traffic=0, clients=0, spread=0.1, farthest=0.2)
    curve = tuple(msgspec.structs.replace(nothing, moves=number) for number in range(25))
    order = GoalOrder(
        id="1-g1",
        goal=Even(5),
        limits=PlanLimits(moves=40, stay=stay),
        made_ms=1,
        promise=Promise(curve, True, Reason("Reached", "it is"), 0.01),
        compared=MadeAsShown(b"0000" * 10_000),
    )
    request, path = asked("POST /loadmanager/v1/goals"), f"{paths.GOALS}/1-g1"
    request.wrote(path, msgspec.json.encode(order))
    audit.changed(request)
    approved = msgspec.structs.replace(order, state="approved", approved_ms=2)
    request = asked("POST /loadmanager/v1/goals/1-g1/approve")
    request.saw(path, msgspec.json.encode(order))
    request.wrote(path, msgspec.json.encode(approved))
    audit.changed(request)
    later, first = audit.recent(10)
    recorded = json.loads(first.after or "")
    assert (recorded["goal"], recorded["state"]) == (
        {"kind": "even", "withinPoints": 5},
        "proposed",
    )
    assert (recorded["limits"]["moves"], recorded["promise"]["curve"][0]["moves"]) == (40, 24)
    assert recorded["limits"]["stay"][:1] == ["tenant-000"]
    assert recorded["limits"]["stay"][-1] == "… and 891 more"
    text = "proposed the goal 1-g1: all brokers within 5 points of the mean; at most 40 moves; "
    assert first.words.startswith(f"{text}stay: tenant-000, ")
    assert first.words.endswith(", tenant-008, … and 891 more; 24 moves planned")
    assert json.loads(later.after or "") == {"state": "approved", "approvedMs": 2}


class Settling:
    """An audit log whose records are there when a test says so."""

    def __init__(self) -> None:
        self.changes = 0
        self.settled = asyncio.Event()

    def changed(self, asked: Asked) -> None:
        """Count it."""
        self.changes += 1

    async def settle(self) -> None:
        """Wait for the test."""
        await self.settled.wait()

    def recent(self, limit: int) -> list[ChangeShown]:
        """None is kept."""
        return []


async def test_an_order_is_answered_once_its_record_is_there() -> None:
    """So that a leader that is killed afterwards leaves it; what brokers order does not wait."""
    audit, ok = Settling(), "/loadmanager/v1/moves"

    async def done(_request: web.Request) -> web.Response:
        return web.Response(status=204)

    app = web.Application(middlewares=[audited(audit)])
    app.add_routes([web.post(ok, done), web.post(f"{PEERS}bundles", done), web.get(ok, done)])
    async with TestClient(TestServer(app)) as client:
        assert (await client.get(ok)).status == 204
        assert (await client.post(f"{PEERS}bundles")).status == 204
        assert audit.changes == 1
        order = asyncio.create_task(client.post(ok))
        await eventually(lambda: asyncio.sleep(0, audit.changes), lambda count: count == 2)
        assert not order.done()
        audit.settled.set()
        assert (await order).status == 204
