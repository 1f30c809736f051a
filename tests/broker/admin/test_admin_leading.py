"""`/loadmanager/v1`: the cluster, bundles, decisions, dry runs, sealed plans, events."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import aiohttp
import pytest
from broker.admin.serving import ORDERS, Served, serving
from clusters.running import eventually, until
from system.raw import a_send

from loadmanager.broker.admin.following import FOLLOW
from loadmanager.engine.bundles.ranges import BundleRange, topic_hash
from loadmanager.kit.http.streams import AT_ADDRESS_MAX
from loadmanager.kit.names import TopicName

V1 = "/loadmanager/v1"
FIRST, SECOND = "acme/orders/0x00000000_0x40000000", "acme/orders/0x40000000_0x80000000"
HALVES = "0x00000000_0x20000000", "0x20000000_0x40000000"
HOT = {"shedder": "OverloadShedder"}


@asynccontextmanager
async def hot_broker(values: dict[str, str] | None = None) -> AsyncIterator[Served]:
    """Broker 1 is overloaded, and has two bundles with traffic; broker 0 is idle and leads."""
    quiet = {"loadBalancerSheddingIntervalMinutes": "600"}
    async with serving(2, values={**quiet, **(values or {})}) as served:
        hot = served.brokers[1]
        client = await served.cluster.connect(await hot.listen())
        for bundle in (FIRST, SECOND):
            span = BundleRange.parse(bundle.rpartition("/")[2])
            names = (TopicName("persistent", ORDERS, f"t{n}") for n in range(1_000))
            topic = next(name for name in names if topic_hash(str(name)) in span)
            await hot.serve(topic)
            await client.produce(topic)
            for number in range(40):
                await client.send(a_send(number, b"x" * 5_000))
                await client.take_of(7)
            client.close()
            client = await served.cluster.connect(await hot.listen())
        await hot.measure()
        await uses(served, 95)
        await reported(served, lambda told: all(one["rate"] for one in told["bundles"]))
        yield served


async def uses(served: Served, percent: float) -> None:
    """Broker 1 uses so much of its CPU, and the leader knows."""
    served.brokers[1].sampler.cpu_percent = percent
    await served.brokers[1].parts.member.reporter.sample()

    async def usage() -> Any:
        brokers = (await served.get(f"{V1}/cluster"))["brokers"]
        return next(one["usage"] for one in brokers if not one["leader"])

    await eventually(usage, lambda usage: abs(usage - percent / 100) < 0.01)


async def reported(served: Served, wanted: Any) -> Any:
    """The leader knows of both bundles, with what is wanted."""

    async def read() -> Any:
        return await served.get(f"{V1}/bundles")

    return await eventually(read, lambda told: told["total"] == 2 and wanted(told))


async def a_plan(served: Served, body: Any = HOT) -> Any:
    """A dry run that moves something."""
    answer = await served.ask("POST", f"{V1}/dry-runs", body)
    assert answer.status == 200, answer
    assert answer.body["unloadCount"] == len(answer.body["plan"]["unloads"]) > 0
    return answer.body


async def refused(served: Served, plan: Any) -> list[str]:
    """The kinds of drift with which a plan is refused; nothing is queued then."""
    answer = await served.ask("POST", f"{V1}/plans/{plan['id']}/execute")
    assert answer.status == 409, answer
    moves = await served.get(f"{V1}/moves")
    assert all(move["author"] != "plan" for move in moves["moves"])
    return sorted({one["what"] for one in answer.body["drift"]})


async def test_every_broker_leads_to_the_leader() -> None:
    """307 elsewhere, 503 without a leader; values that are not allowed are refused."""
    async with serving() as served:
        paths = ("cluster", "bundles", f"bundles/{FIRST}", "decisions", "plans", "events")
        for path in paths:
            answer = await served.ask("GET", f"{V1}/{path}", at=1)
            assert (answer.status, answer.headers["Location"]) == (
                307,
                f"{served.url(0)}{V1}/{path}",
            )
        for path in (
            *("cluster?limit=0", "bundles?sort=x", "bundles?limit=99999", "decisions?since=-1"),
            *("decisions?until=x", "bundles/acme/orders/0x1_0x2", "plans?limit=x"),
            *("decisions?bundle=acme/orders", "decisions?bundle=acme/orders/0x1"),
        ):
            assert (await served.ask("GET", f"{V1}/{path}")).status == 412, path
        none = "acme/none/0x00000000_0xffffffff"
        for path in (f"bundles/{none}", f"decisions?bundle={none}", "plans/1-p1", "plans/x"):
            assert (await served.ask("GET", f"{V1}/{path}")).status == 404, path
        await served.depose()
        for path in paths:
            assert (await served.ask("GET", f"{V1}/{path}")).status == 503


async def test_the_cluster() -> None:
    """Each broker with its load and its state; those that are gone are there while cordoned."""
    async with hot_broker() as served:
        told = await served.get(f"{V1}/cluster")
        assert (told["leader"]["broker"], told["manager"]) == (served.broker_id(0), "modular")
        assert (told["shedder"], told["balancing"], told["total"]) == ("ThresholdShedder", True, 2)
        brokers = {broker["broker"]: broker for broker in told["brokers"]}
        hot, idle = brokers[served.broker_id(1)], brokers[served.broker_id(0)]
        assert (hot["leader"], hot["state"], hot["bundles"], hot["topics"]) == (
            *(False, "active", 2, 2),
        )
        assert 0.94 < hot["usage"] < 0.96
        assert 0.94 < hot["resources"]["cpu"]["fraction"] < 0.96
        assert hot["throughput"] > 100_000
        assert hot["reportAgeMs"] < 60_000
        assert (idle["leader"], idle["usage"] < 0.2) == (True, True)
        await served.ask("PUT", f"{V1}/cordons/{served.broker_id(1)}")
        await served.cluster.report("late:1")
        told = await eventually(
            lambda: served.get(f"{V1}/cluster"), lambda told: told["total"] == 3
        )
        states = {broker["broker"]: broker["state"] for broker in told["brokers"]}
        assert states[served.broker_id(1)] == "cordoned"
        assert states["late:1"] == "active"
        assert len((await served.get(f"{V1}/cluster?limit=1"))["brokers"]) == 1


async def test_bundles_by_load_and_age() -> None:
    """Hottest first; of a namespace, of an owner; with what an operator wants of them."""
    async with hot_broker() as served:
        told = await served.get(f"{V1}/bundles?sort=throughput")
        loads = [bundle["throughput"] for bundle in told["bundles"]]
        assert loads == sorted(loads, reverse=True)
        assert {bundle["owner"] for bundle in told["bundles"]} == {served.broker_id(1)}
        assert [bundle["topics"] for bundle in told["bundles"]] == [1, 1]
        assert all(bundle["ownedSinceExact"] for bundle in told["bundles"])
        for query, count in (
            ("namespace=acme/orders", 2),
            ("namespace=acme/order", 0),
            (f"owner={served.broker_id(0)}", 0),
            (f"owner={served.broker_id(1)}&limit=1", 1),
            ("sort=age", 2),
        ):
            assert len((await served.get(f"{V1}/bundles?{query}"))["bundles"]) == count, query
        body = {"bundle": FIRST, "destination": served.broker_id(0), "pinSeconds": 60}
        assert (await served.ask("POST", f"{V1}/moves", body)).body["state"] == "done"
        told = await reported(
            served,
            lambda told: {one["owner"] for one in told["bundles"]} == set(served.owners().values()),
        )
        (moved,) = (bundle for bundle in told["bundles"] if bundle["bundle"] == FIRST)
        assert (moved["pinnedTo"], moved["owner"]) == (served.broker_id(0), served.broker_id(0))
        newest = (await served.get(f"{V1}/bundles?sort=age"))["bundles"][-1]
        assert newest["bundle"] == FIRST


async def test_the_story_of_a_bundle() -> None:
    """Owner, load, pin, averages, and why it is there: placement and moves, newest first."""
    async with hot_broker() as served:
        body = {"bundle": FIRST, "destination": served.broker_id(0), "pinSeconds": 60, "note": "n"}
        assert (await served.ask("POST", f"{V1}/moves", body)).status == 200
        await served.brokers[0].operations.overview.load_manager.shed()  # type: ignore[attr-defined]
        story = await served.get(f"{V1}/bundles/{FIRST}")
        assert (story["owner"], story["pin"]["note"]) == (served.broker_id(0), "n")
        kinds = [decision["kind"] for decision in story["history"]]
        assert "move" in kinds
        move = story["history"][kinds.index("move")]
        assert (move["state"], move["author"]) == ("done", "operator")
        assert move["outcome"]["owner"] == served.broker_id(0)
        free = await served.get(f"{V1}/bundles/acme/orders/0xc0000000_0xffffffff")
        assert (free["owner"], free["rate"]) == (None, None)


async def test_the_story_of_a_bundle_that_was_split() -> None:
    """The split with its figures and its outcome, and the bundles that replaced it; also of one
    that was merged. A range that never was a bundle is refused.
    """
    async with hot_broker({"loadBalancerNamespaceBundleMaxTopics": "1"}) as served:
        await served.open_two_topics(FIRST.rpartition("/")[2], at=1)
        await served.brokers[1].measure()
        manager = served.brokers[0].operations.overview.load_manager  # type: ignore[attr-defined]
        halves = [f"acme/orders/{span}" for span in HALVES]

        async def story() -> Any:
            await manager.split()
            return await served.get(f"{V1}/bundles/{FIRST}")

        told = await eventually(story, lambda told: told["replacedBy"])
        assert (told["owner"], told["rate"], told["replacedBy"]) == (None, None, halves)
        (split,) = (one for one in told["history"] if one["kind"] == "split")
        assert (split["reason"], split["why"]) == ("Topics", {"topics": 3, "limit": 1})
        assert (split["state"], split["outcome"]["children"]) == ("done", halves)
        assert (await served.get(f"{V1}/bundles/{halves[0]}"))["replacedBy"] == []

        await served.own(*(half for half in halves if half not in served.owners()), at=1)
        merge = {"namespace": "acme/orders", "first": HALVES[0], "second": HALVES[1]}
        answer = await served.ask("POST", f"{V1}/merges", merge)
        assert answer.status == 200, answer
        assert (await served.get(f"{V1}/bundles/{halves[0]}"))["replacedBy"] == [FIRST]
        never = await served.ask("GET", f"{V1}/bundles/acme/orders/0x00000000_0x10000000")
        assert (never.status, "there it has" in never.reason) == (412, True)


async def test_decisions_say_why_nothing_moved() -> None:
    """Quiet cycles are one decision; with inputs; by bundle, broker and time."""
    async with hot_broker() as served:
        manager = served.brokers[0].operations.overview.load_manager  # type: ignore[attr-defined]
        await served.brokers[0].set("loadBalancerBrokerOverloadedThresholdPercentage", "99")
        await served.brokers[0].set("loadBalancerLoadSheddingStrategy", "OverloadShedder")
        for _ in range(3):
            await manager.shed()
        told = await served.get(f"{V1}/decisions?bundle={FIRST}")
        (cycle,) = (one for one in told["decisions"] if one["kind"] == "shed")
        assert (cycle["times"], cycle["strategy"], cycle["unloadsCount"]) == (
            3,
            "OverloadShedder",
            0,
        )
        assert [skip["what"] for skip in cycle["skipped"]] == [served.broker_id(1)]
        assert cycle["skipped"][0]["reason"].startswith("NotOverloaded")
        assert cycle["inputs"]["loads"][served.broker_id(1)]["usage"] > 0.9
        for query, found in (
            (f"broker={served.broker_id(1)}", True),
            ("broker=nobody:1", False),
            (f"since={cycle['ts'] + 60_000}", False),
            (f"until={cycle['firstAt'] - 60_000}", False),
            (f"since={cycle['ts']}&until={cycle['ts']}", True),
        ):
            told = await served.get(f"{V1}/decisions?{query}")
            assert any(one["kind"] == "shed" for one in told["decisions"]) is found, query


async def test_a_sealed_plan_is_carried_out_exactly() -> None:
    """Its moves, and no other; once; the decision and the plan tell what became of them."""
    async with hot_broker() as served:
        plan = await a_plan(
            served, {**HOT, "settings": {"loadBalancerBrokerOverloadedThresholdPercentage": 94}}
        )
        assert (plan["state"], plan["shedder"], plan["moves"]) == ("ready", "OverloadShedder", [])
        assert plan["settings"]["loadBalancerBrokerOverloadedThresholdPercentage"] == "94"
        (unload,) = plan["plan"]["unloads"]
        assert (unload["source"], unload["destination"]) == (
            served.broker_id(1),
            served.broker_id(0),
        )
        assert served.owners() == {FIRST: served.broker_id(1), SECOND: served.broker_id(1)}
        done = await served.ask("POST", f"{V1}/plans/{plan['id']}/execute")
        assert (done.status, done.body["state"]) == (200, "executed")
        (change,) = (await served.get(f"{V1}/changes?limit=1"))["changes"]
        assert change["note"] == f"moves {done.body['moves'][0]['id']}"

        async def states() -> Any:
            return [
                move["state"] for move in (await served.get(f"{V1}/plans/{plan['id']}"))["moves"]
            ]

        await eventually(states, lambda states: states == ["done"])
        assert served.owners()[unload["bundle"]] == served.broker_id(0)
        assert await refused_again(served, plan) == ["executed", "owner", "refused"]
        (listed,) = (await served.get(f"{V1}/plans"))["plans"]
        assert (listed["id"], listed["state"]) == (plan["id"], "executed")


async def test_a_goal_is_proposed_approved_and_reached() -> None:
    """Over HTTP: nothing moves before the approval; afterwards the order says what has come."""
    async with hot_broker({"loadManagerMovesWarmUpInSeconds": "0"}) as served:
        await uses(served, 50)
        wanted = {"goal": {"kind": "emptied", "broker": served.broker_id(1)}, "note": "why"}
        order = (await served.ask("POST", f"{V1}/goals", wanted)).body
        assert (order["state"], order["note"], len(order["moves"])) == ("proposed", "why", 2)
        assert order["promise"]["ends"]["code"] == "Reached"
        assert [point["moves"] for point in order["promise"]["curve"]] == [0, 1, 2]
        assert served.owners() == {FIRST: served.broker_id(1), SECOND: served.broker_id(1)}
        approved = await served.ask("POST", f"{V1}/goals/{order['id']}/approve")
        assert (approved.status, approved.body["state"]) == (200, "approved")
        assert (await served.ask("POST", f"{V1}/goals/{order['id']}/approve")).status == 409
        cluster = (await served.get(f"{V1}/cluster"))["brokers"]
        assert {one["broker"] for one in cluster if one["state"] == "cordoned"} == {
            served.broker_id(1)
        }

        async def progress() -> Any:
            for broker in served.brokers:  # which report as their usage changes
                broker.sampler.cpu_percent = 80 - broker.sampler.cpu_percent
                await broker.parts.member.reporter.sample()
            return await served.get(f"{V1}/goals/{order['id']}")

        ended = await eventually(progress, lambda shown: shown["state"] == "ended")
        assert ended["ended"]["code"] == "Reached"
        assert ended["progress"]["arrived"] == 2
        assert served.owners() == {FIRST: served.broker_id(0), SECOND: served.broker_id(0)}
        (listed,) = (await served.get(f"{V1}/goals"))["goals"]
        assert listed["id"] == order["id"]
        assert (await served.ask("POST", f"{V1}/goals/{order['id']}/stop")).status == 409


@pytest.mark.parametrize(
    ("body", "status", "text"),
    [
        ({}, 400, "goal"),
        ({"goal": {"kind": "perfect"}}, 400, "perfect"),
        ({"goal": {"kind": "even", "withinPoints": -1}}, 412, "even within -1 points"),
        ({"goal": {"kind": "filled", "broker": "nobody:1"}}, 404, "nobody:1 is not active"),
        ({"goal": {"kind": "even", "withinPoints": 5, "by": "06:00"}}, 400, "goal: "),
        ({"goal": {"kind": "spare"}, "limits": {"windows": ["noon"]}}, 412, "a window such as"),
        ({"goal": {"kind": "spare"}, "limits": {"stay": ["acmee"]}}, 412, "acmee is not there"),
        ({"goal": {"kind": "spare"}, "limits": {"moves": "x"}}, 400, "limits.moves"),
        ({"goal": {"kind": "spare"}, "note": "x" * 501}, 412, "at most 500"),
    ],
)
async def test_goals_that_cannot_be_are_refused(body: Any, status: int, text: str) -> None:
    """With what to do about it."""
    async with serving(2) as served:

        async def proposed() -> Any:
            return await served.ask("POST", f"{V1}/goals", body)

        # until the leader knows the load
        answer = await eventually(proposed, lambda answer: answer.status != 409)
        assert (answer.status, text in answer.body["reason"]) == (status, True), answer.body
        if "by" in body.get("goal", {}):
            assert "by" in answer.body["reason"]
        for request in (("GET", ""), ("POST", "/approve"), ("POST", "/stop")):
            method, path = request
            assert (await served.ask(method, f"{V1}/goals/1-g9{path}")).status == 404


async def refused_again(served: Served, plan: Any) -> list[str]:
    """The kinds of drift with which a plan that was carried out is refused."""
    answer = await served.ask("POST", f"{V1}/plans/{plan['id']}/execute")
    assert answer.status == 409
    return sorted({one["what"] for one in answer.body["drift"]} | {"owner", "refused"})


async def test_a_plan_that_has_drifted_is_refused() -> None:
    """Whatever differs is named, and nothing is queued."""
    async with hot_broker() as served:
        plan = await a_plan(served)
        bundle = plan["plan"]["unloads"][0]["bundle"]
        other = {"id": "9" + plan["id"]}
        assert await refused(served, other) == ["term"]
        assert (await served.ask("POST", f"{V1}/plans/{plan['id']}9/execute")).status == 404

        await served.brokers[0].set("loadBalancerSheddingEnabled", "false")
        empty = (await served.ask("POST", f"{V1}/dry-runs")).body
        assert (empty["unloadCount"], await refused(served, empty)) == (0, ["empty"])
        await served.brokers[0].set("loadBalancerSheddingEnabled", "true")

        await served.ask("PUT", f"{V1}/cordons/{served.broker_id(0)}")
        assert await refused(served, plan) == ["destination"]
        await served.ask("DELETE", f"{V1}/cordons/{served.broker_id(0)}")

        await uses(served, 70)
        assert await refused(served, plan) == ["usage"]
        await uses(served, 95)

        assert (
            await served.ask("PUT", f"/admin/v2/namespaces/{bundle}/unload", at=1)
        ).status == 204
        assert "owner" in await refused(served, plan)
        await served.own(bundle, at=1)
        await served.open_two_topics(bundle.rpartition("/")[2], at=1)
        split = f"/admin/v2/namespaces/{bundle}/split"
        assert (await served.ask("PUT", split, at=1)).status == 204
        assert "bundle" in await refused(served, plan)


async def test_bad_dry_runs() -> None:
    """The reason names the field, the key or the strategy."""
    async with serving(1) as served:
        for body, status, named in (
            ({"shedder": "Nope"}, 412, "Nope"),
            ({"placement": "Nope"}, 412, "Nope"),
            ({"settings": {"zookeeperSessionTimeoutMillis": 5}}, 412, "zookeeperSession"),
            ({"settings": {"loadManagerClassName": "x"}}, 412, "loadManagerClassName"),
            ({"settings": {"maxUnloadPercentage": 7}}, 412, "maxUnloadPercentage"),
            ({"settings": {"maxUnloadPercentage": []}}, 400, "settings"),
            ({"shedder": 5}, 400, "shedder"),
            ({"sheder": "x"}, 400, "sheder"),
            ([], 400, "body"),
        ):
            answer = await served.ask("POST", f"{V1}/dry-runs", body)
            assert (answer.status, named in answer.reason) == (status, True), answer
        assert (await served.get(f"{V1}/plans"))["plans"] == []
        answer = await served.ask("POST", f"{V1}/moves", {"bundle": FIRST, "destination": 5})
        assert (answer.status, answer.reason) == (400, "destination: expected `str`, got `int`")


async def test_events() -> None:
    """A term, a placement, the states of a move, owners; ids to come back with; the end."""
    async with serving(2) as served:
        told: list[tuple[str, Any]] = []
        ids: list[str] = []

        async def listen(last: str = "") -> None:
            headers = {"Last-Event-ID": last} if last else {}
            async with served.session.get(f"{served.url()}{V1}/events", headers=headers) as answer:
                assert (answer.status, answer.content_type) == (200, "text/event-stream")
                kind = ""
                async for line in answer.content:
                    name, _, value = line.decode().rstrip("\n").partition(": ")
                    ids.extend([value] if name == "id" else [])
                    kind = value if name == "event" else kind
                    if name == "data":
                        told.append((kind, json.loads(value)))

        def of(kind: str) -> list[Any]:
            return [data for name, data in told if name == kind]

        listening = served.cluster.scope.spawn(listen("0-0"), "listen")
        await until(lambda: bool(of("leadership")))
        assert of("leadership")[0]["leader"] == served.broker_id(0)
        await served.own(FIRST, at=1)
        await until(lambda: any(FIRST in data["gained"] for data in of("ownership")))
        body = {"bundle": FIRST, "destination": served.broker_id(0)}
        assert (await served.ask("POST", f"{V1}/moves", body)).status == 200
        await until(lambda: any(data["kind"] == "move" for data in of("decision")))
        assert [move["state"] for move in of("move")][:3] == ["queued", "running", "done"]
        await served.cluster.report("late:1")
        await until(lambda: any(data["broker"] == "late:1" for data in of("broker")))
        assert len(ids) == len(set(ids)) == len(told)
        await served.depose()
        await listening
        assert of("leadership")[-1]["leader"] is None
        assert (await served.ask("GET", f"{V1}/events")).status == 503


@pytest.mark.parametrize("at", [0, 1])
async def test_a_listener_that_goes_is_forgotten(at: int) -> None:
    """So that it does not count any more: at once, before anything is to be sent to it, also where
    another broker passes its stream on.
    """
    async with serving(2) as served:
        hub = served.brokers[0].parts.member.events
        url, timeout = f"{served.url(at)}{V1}/events", aiohttp.ClientTimeout(total=60)
        async with served.session.get(url, headers={FOLLOW: "true"}, timeout=timeout) as answer:
            await answer.content.readline()
            assert len(hub._queues) == 1
            answer.close()
        await until(lambda: not hub._queues)


async def test_one_address_takes_not_all_streams() -> None:
    """The rest is for others; so it is at a broker that passes streams on."""
    async with serving(2) as served, AsyncExitStack() as stack:

        async def open_one(at: int) -> int:
            request = served.session.get(
                f"{served.url(at)}{V1}/events", headers={FOLLOW: "true", "Last-Event-ID": "0-0"}
            )
            answer = await stack.enter_async_context(request)
            if answer.status == 200:
                assert answer.content_type == "text/event-stream"
                assert await answer.content.readline() == b"retry: 1000\n"
                assert b"leadership" in await answer.content.readuntil(b"\n\n")
            return answer.status

        passed_on = [await open_one(1) for _ in range(3)]
        direct = [await open_one(0) for _ in range(AT_ADDRESS_MAX - 2)]
        assert (passed_on, direct) == ([200] * 3, [200] * (AT_ADDRESS_MAX - 3) + [503])
        assert await open_one(1) == 503
        await served.depose()


async def test_a_stream_that_is_passed_on_ends_with_the_term() -> None:
    """And with its reader: the leader forgets a reader that went away from another broker."""
    async with serving(2) as served:
        hub = served.brokers[0].parts.member.events
        url = f"{served.url(1)}{V1}/events"
        async with served.session.get(url, headers={FOLLOW: "true"}) as answer:
            await answer.content.readline()
            assert len(hub._queues) == 1
            await served.depose()
            rest = await answer.content.read()
            assert b"leadership" in rest
        assert not hub._queues
