"""Brokers that left, at their leader: how, what they owned, and what became of it."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import msgspec
from broker.admin.serving import Served, serving
from clusters.running import a_client, eventually, until

from loadmanager.cli.admin.absences import clients_waited
from loadmanager.engine.history.members import MemberChange
from loadmanager.engine.load.reports import decode_published_clients
from loadmanager.kit.metadata import paths
from loadmanager.kit.names import NamespaceName, TopicName
from loadmanager.leader.brokers import Departure
from loadmanager.leader.documents.members import AbsentBroker
from loadmanager.leader.findings import TermFindings
from loadmanager.leader.goals import TermGoals
from loadmanager.leader.members import TermMembers

HALF = "acme/orders/0x00000000_0x40000000"
TOPIC = TopicName("persistent", NamespaceName("acme", "orders"), "t")
OTHER = "acme/orders/0x40000000_0x80000000"


async def absent(served: Served, name: str, at: int = 0, **wanted: Any) -> dict[str, Any]:
    """What the leader says of a broker that left, once it is as wanted."""

    async def read() -> dict[str, Any]:
        answer = await served.ask("GET", "/loadmanager/v1/members", at=at)
        if answer.status == 503:  # nobody leads for a moment
            return {}
        assert answer.status == 200, answer
        return next((it for it in answer.body["absent"] if it["broker"] == name), {})

    def fits(entry: dict[str, Any]) -> bool:
        return bool(entry) and all(entry[key] == value for key, value in wanted.items())

    entry: dict[str, Any] = await eventually(read, fits, within_s=20)
    return entry


def assert_goals_know(served: Served, lost: str) -> None:
    """Goals read the book, and who left as far as the leader's broker saw it."""
    operations = served.brokers[0].use.leading.operations
    assert operations is not None
    assert isinstance(operations.goals, TermGoals)
    steady = operations.goals.work.steady
    assert [it.broker for it in steady.unserved()] == [lost]
    assert [it.broker for it in steady.departures()] == [lost]


async def test_a_lost_broker_is_remembered() -> None:
    """Its session expires: since when, and what it owned, first without an owner, then placed."""
    async with serving(brokers=3) as served:
        await served.own(HALF, OTHER, at=1)
        name = served.broker_id(1)
        await until(lambda: len(served.brokers[0].use.brokers.reports[name].bundles) == 2)
        await served.servers[1].stop()
        served.brokers[1].store.suspend()
        served.brokers[1].store.expire()
        entry = await absent(served, name, how="lost", bundles=2, placed=0)
        assert entry["waiting"] == [HALF, OTHER]
        assert_goals_know(served, name)
        await absent(served, name, sign="cannot be reached")
        page = await served.get("/metrics")
        assert 'loadmanager_lost_brokers{cluster="standalone",' in page
        await served.own(HALF, at=0)
        await absent(served, name, placed=1, waiting=[OTHER])
        await served.own(OTHER, at=2)
        entry = await absent(served, name, placed=2, waiting=[])
        assert entry["placedAt"] >= entry["leftAt"]
        cluster = await served.get("/loadmanager/v1/cluster")
        assert [it["broker"] for it in cluster["absent"]] == [name]
        records = served.brokers[0].history.records
        changes = [it for it in records if isinstance(it, MemberChange)]
        assert [it.event for it in changes] == ["starts", "leads", "left", "sign", "placed"]
        assert (changes[3].of, changes[3].how) == (name, "cannot be reached")


async def test_what_a_lost_broker_owned_whose_bundles_have_new_owners_at_once() -> None:
    """The extensible manager's leader assigns them again before it looks who left."""
    manager = {"loadManagerClassName": "ExtensibleLoadManagerImpl"}
    async with serving(brokers=3, values=manager) as served:
        await served.own(HALF, OTHER, at=1)
        name = served.broker_id(1)
        await until(lambda: name in served.brokers[0].use.brokers.registered)
        await served.servers[1].stop()
        served.brokers[1].store.suspend()
        served.brokers[1].store.expire()
        entry = await absent(served, name, how="lost", placed=2)
        assert entry["bundles"] == 2


async def test_the_busiest_bundles_of_a_lost_broker_stand_for_all() -> None:
    """Of a hundred the names are remembered: when these are served, no alert goes on for ever."""
    edges = [f"0x{number * 0x02000000:08x}" for number in range(128)] + ["0xffffffff"]
    many = [f"acme/many/{low}_{high}" for low, high in pairwise(edges)]
    async with serving(brokers=2) as served:
        path = "/admin/v2/namespaces/acme/many"
        assert (await served.ask("PUT", path, {"bundles": {"numBundles": 128}})).status == 204
        await served.own(*many, at=1)
        name = served.broker_id(1)
        await until(lambda: len(served.brokers[0].use.brokers.reports[name].bundles) > 105)
        served.brokers[1].store.suspend()
        served.brokers[1].store.expire()
        entry = await absent(served, name, how="lost", placed=0)
        assert entry["bundles"] > 105
        assert len(entry["waiting"]) == 20
        await served.own(*many, at=0)
        await absent(served, name, waiting=[], placed=entry["bundles"])


async def test_clients_of_a_lost_broker() -> None:
    """Those that it had published are counted as the new owner serves them, with how long they
    waited since it was lost; those that stay away are missing.
    """
    async with serving(brokers=2) as served:
        lost, name = served.brokers[1], served.broker_id(1)
        reports = served.brokers[0].use.brokers.reports
        await lost.serve(TOPIC)
        async with a_client(await lost.listen()) as client:
            await client.produce(TOPIC)
            await client.subscribe(TOPIC)
            await until(lambda: reports[name].num_producers + reports[name].num_consumers == 2)
            lost.store.suspend()
            lost.store.expire()
            entry = await absent(served, name, how="lost", clients=2, clientsBack=0)
            assert entry["clientsAt"] <= entry["leftAt"]
            assert entry["unheardMs"] == 60_000
            members = served.brokers[0].use.leading.members
            assert isinstance(members, TermMembers)
            (unserved,) = members.unserved()
            assert (unserved.broker, unserved.total, unserved.clients) == (name, 1, 2)
        await served.brokers[0].serve(TOPIC)
        await until(lambda: not any(it.total for it in members.unserved()))
        async with a_client(await served.brokers[0].listen()) as client:
            await client.produce(TOPIC)
            entry = await absent(served, name, clientsBack=1)
            text = clients_waited(msgspec.convert(entry, AbsentBroker))
            assert text.startswith("ONLY 1 of 2 clients back, who waited ")
            assert text.endswith(" since it was lost, and up to 60 s before")
            await client.subscribe(TOPIC)
            entry = await absent(served, name, clientsBack=2)
        assert 0 < entry["clientsWaitedMeanMs"] <= entry["clientsWaitedMs"]
        text = clients_waited(msgspec.convert(entry, AbsentBroker))
        assert text.startswith("2 clients waited ")
        changes = [it for it in served.brokers[0].history.records if isinstance(it, MemberChange)]
        (told,) = [it for it in changes if it.event == "clients"]
        assert (told.clients, told.clients_back) == (2, 2)
        (left,) = [it for it in changes if it.event == "left"]
        assert left.unheard_ms is not None
        assert left.unheard_ms >= 60_000
        assert told.clients_waited_ms == entry["clientsWaitedMs"]


async def test_clients_that_came_back_after_the_bundle_had_moved_on() -> None:
    """They are back, too; and whoever was back before is counted once."""
    async with serving(brokers=3) as served:
        lost, name = served.brokers[1], served.broker_id(1)
        reports = served.brokers[0].use.brokers.reports
        await lost.serve(TOPIC)
        async with a_client(await lost.listen()) as client:
            await client.produce(TOPIC)
            await client.subscribe(TOPIC)
            await until(lambda: reports[name].num_producers + reports[name].num_consumers == 2)
            lost.store.suspend()
            lost.store.expire()
            await absent(served, name, how="lost", clients=2, clientsBack=0)
        await served.brokers[0].serve(TOPIC)
        async with a_client(await served.brokers[0].listen()) as client:
            await client.produce(TOPIC)
            before = await absent(served, name, clientsBack=1)
        bundle = next(iter(served.brokers[0].use.ownership.owned()))
        unload = f"/admin/v2/namespaces/{bundle}/unload"
        assert (await served.ask("PUT", unload, at=0)).status == 204
        await served.brokers[2].serve(TOPIC)
        async with a_client(await served.brokers[2].listen()) as client:
            await client.produce(TOPIC)
            await client.subscribe(TOPIC)
            entry = await absent(served, name, clientsBack=2)
        assert entry["clientsWaitedMs"] >= before["clientsWaitedMs"]
        changes = [it for it in served.brokers[0].history.records if isinstance(it, MemberChange)]
        (told,) = [it for it in changes if it.event == "clients"]
        assert (told.clients, told.clients_back) == (2, 2)


async def test_clients_of_a_lost_leader_in_the_extensible_manager() -> None:
    """The next leader knows how many there were: every broker does. All bundles count, also those
    without traffic.
    """
    manager = {"loadManagerClassName": "ExtensibleLoadManagerImpl"}
    async with serving(brokers=2, values=manager) as served:
        lost, name = served.brokers[0], served.broker_id(0)
        path = f"{paths.LOAD_DATA}/{name}"

        async def published() -> int:
            """Fewer than ten that come are published with the next other change only."""
            node = await served.brokers[1].store.get(path)
            clients = {} if node is None else decode_published_clients(node.value).bundle_clients
            return int(sum(clients.values()))

        await lost.serve(TOPIC)
        async with a_client(await lost.listen()) as client:
            await client.produce(TOPIC)
            clients = number = 0
            while not clients:
                number += 1
                await client.subscribe(TOPIC, consumer_id=number)
                clients = await published()
            await served.get("/loadmanager/v1/members")
            lost.store.suspend()
            lost.store.expire()
            entry = await absent(served, name, at=1, how="lost", clients=clients)
            assert entry["clientsAt"] <= entry["leftAt"]


async def test_a_stopped_broker_says_so() -> None:
    """It stops in order, and owned nothing any more when it left."""
    async with serving(brokers=2) as served:
        name = served.broker_id(1)
        await served.brokers[1].parts.stop(0)
        entry = await absent(served, name, how="stopped")
        assert entry["sign"] == ""
        assert (await served.ask("DELETE", f"/loadmanager/v1/members/{name}")).status == 204
        assert (await served.get("/loadmanager/v1/members"))["absent"] == []
        assert (await served.ask("DELETE", f"/loadmanager/v1/members/{name}")).status == 404


async def test_clients_of_a_drained_broker_are_those_of_its_moves() -> None:
    """Its last report still names the bundles that were moved away: they are not its any more."""
    seldom = {"loadBalancerReportUpdateMinIntervalMillis": "600000"}
    async with serving(brokers=2, values=seldom) as served:
        drained, name = served.brokers[1], served.broker_id(1)
        reports = served.brokers[0].use.brokers.reports
        await drained.serve(TOPIC)
        async with a_client(await drained.listen()) as client:
            await client.produce(TOPIC)
            await drained.parts.member.reporter.sample()
            await drained.parts.member.reporter.tick()
            await until(lambda: reports[name].num_producers == 1)
            (bundle,) = drained.use.ownership.owned()
            body = {"bundle": bundle, "destination": served.broker_id(0)}
            assert (await served.ask("POST", "/loadmanager/v1/moves", body)).status == 200
            assert bundle in reports[name].bundles  # no report since
        await drained.parts.stop(0)
        entry = await absent(served, name, how="stopped")
        assert (entry["bundles"], entry["clients"] or 0) == (0, 0)


async def test_the_next_leader_knows() -> None:
    """The book outlives a leader; and of the leader that was lost, its successor knows itself."""
    async with serving(brokers=3) as served:
        first, second = served.broker_id(0), served.broker_id(1)
        await served.brokers[1].parts.stop(0)
        before = await absent(served, second, how="stopped")
        served.brokers[0].store.suspend()
        served.brokers[0].store.expire()
        leading = served.brokers[2].use.leading
        await until(lambda: leading.members is not None, within_s=20)
        assert await absent(served, second, at=2) == before
        records = served.brokers[2].history.records
        (told,) = [it for it in records if isinstance(it, MemberChange) and it.event == "leads"]
        assert (told.of, told.before, told.epoch) == (served.broker_id(2), first, 2)
        await absent(served, first, at=2, how="lost")
        assert isinstance(leading.members, TermMembers)
        (change,) = leading.members.leader_changes()
        assert (change.before, change.orderly) == (first, False)


async def test_a_leader_that_stops_in_order() -> None:
    """Its successor knows, so that a rolling restart is no leader that changes often."""
    async with serving(brokers=2) as served:
        leading = served.brokers[1].use.leading
        await until(lambda: served.brokers[0].use.leading.members is not None)
        await served.brokers[0].parts.stop(0)
        await until(lambda: leading.members is not None, within_s=20)
        members = leading.members
        assert isinstance(members, TermMembers)
        await until(lambda: [it.orderly for it in members.leader_changes()] == [True])
        records = [it for it in served.brokers[0].history.records if isinstance(it, MemberChange)]
        assert [(it.of, it.event) for it in records][-1] == (served.broker_id(0), "stops")


async def test_a_leader_that_stopped_in_order_after_all_others() -> None:
    """Nobody saw it leave: the next leader finds its farewell, also a long time later."""
    async with serving(brokers=2) as served:
        last, another = served.brokers[1], served.brokers[0]
        await until(lambda: another.use.leading.members is not None)
        another.store.suspend()
        another.store.expire()
        await until(lambda: last.use.leading.members is not None, within_s=20)

        async def book() -> bytes:
            node = await last.store.get(paths.MEMBERS)
            return b"" if node is None else node.value

        await eventually(book, lambda value: served.broker_id(1).encode() in value, within_s=20)
        await last.parts.stop(0)
        another.store.resume()
        await until(lambda: another.use.leading.members is not None, within_s=20)
        members = another.use.leading.members
        assert isinstance(members, TermMembers)
        changes = [(it.before, it.orderly) for it in members.leader_changes()]
        assert changes == [(served.broker_id(0), False), (served.broker_id(1), True)]


async def test_a_broker_that_comes_back() -> None:
    """The same process with a new session: it was away, and is not restarted."""
    async with serving(brokers=2) as served:
        name = served.broker_id(1)
        served.brokers[1].store.expire()
        await absent(served, name, how="lost", backAt=None)
        served.brokers[1].store.resume()
        entry = await absent(served, name, how="lost", sameProcess=True)
        assert entry["backAt"] >= entry["leftAt"]
        assert entry["restarts"] == 0


async def test_a_loss_is_remembered_when_the_broker_stops_in_order_later() -> None:
    """Both are told, the last one first; also by the next leader, and until it is forgotten."""
    async with serving(brokers=3) as served:
        name = served.broker_id(1)
        served.brokers[1].store.expire()
        lost = await absent(served, name, how="lost", backAt=None)
        served.brokers[1].store.resume()
        await absent(served, name, how="lost", sameProcess=True)
        await served.brokers[1].parts.stop(0)
        await absent(served, name, how="stopped")

        async def told(at: int) -> list[tuple[str, int]]:
            answer = await served.ask("GET", "/loadmanager/v1/members", at=at)
            its = answer.body["absent"] if answer.status == 200 else []
            return [(it["how"], it["leftAt"]) for it in its if it["broker"] == name]

        (stopped, earlier) = await told(0)
        assert (stopped[0], earlier) == ("stopped", ("lost", lost["leftAt"]))
        await served.brokers[0].parts.stop(0)
        assert await eventually(lambda: told(2), lambda its: len(its) == 2) == [stopped, earlier]
        path = f"/loadmanager/v1/members/{name}"
        assert (await served.ask("DELETE", path, at=2)).status == 204
        assert await told(2) == []


async def test_a_broker_that_is_lost_again_and_again() -> None:
    """Once it is back for the third time, the leader's next look finds it."""
    async with serving(brokers=2) as served:
        name, store, left_at = served.broker_id(1), served.brokers[1].store, 0
        findings = served.brokers[0].use.leading.findings
        assert isinstance(findings, TermFindings)
        for _ in range(3):
            store.expire()
            gone = await absent(served, name, how="lost", backAt=None)
            assert gone["leftAt"] > left_at
            left_at = gone["leftAt"]
            store.resume()
            await absent(served, name, how="lost", sameProcess=True)
        await findings.step()
        (finding,) = (it for it in findings.shown().findings if it.about == name)
        assert finding.kind == "lost often"
        assert finding.title.startswith(f"{name} was lost 3 times within ")


async def test_clients_of_a_broker_that_is_lost_again_meanwhile() -> None:
    """What was counted of the first loss is recorded, as of before the second one, whose clients
    are still to be counted.
    """
    async with serving(brokers=2) as served:
        lost, name = served.brokers[1], served.broker_id(1)
        reports = served.brokers[0].use.brokers.reports
        await lost.serve(TOPIC)
        async with a_client(await lost.listen()) as client:
            await client.produce(TOPIC)
            await until(lambda: reports[name].num_producers == 1)
            lost.store.suspend()
            lost.store.expire()
            first = await absent(served, name, how="lost", clients=1, clientsBack=0)
        lost.store.resume()
        first = await absent(served, name, leftAt=first["leftAt"], sameProcess=True)
        lost.store.suspend()
        lost.store.expire()
        second = await absent(served, name, how="lost", backAt=None)
        records = served.brokers[0].history.records
        changes = [it for it in records if isinstance(it, MemberChange) and it.of == name]
        (told,) = [it for it in changes if it.event == "clients"]
        assert (told.how, told.clients, told.clients_back) == ("so far", 1, 0)
        assert first["leftAt"] < told.ts < second["leftAt"]
        assert (first["lostBefore"], second["lostBefore"]) == ([], [first["leftAt"]])
        assert [it.event for it in changes if it.event in ("left", "clients")] == [
            "left", "clients", "left"
        ]  # fmt: skip


async def test_a_leader_that_was_lost_before_its_term_knows_no_other_loss_of_itself() -> None:
    """What it saw of its own end is not what happened; and when it is lost again, that is told."""
    async with serving(brokers=2) as served:
        first, second = served.brokers
        name = served.broker_id(1)
        second.store.expire()
        await absent(served, name, how="lost", backAt=None)
        second.store.resume()
        before = await absent(served, name, how="lost", sameProcess=True)
        seen = second.use.brokers
        await until(lambda: name in seen.registered)
        late = Departure(name, before["backAt"] + 1_000, seen.sessions[name], None, None)
        seen.departed[name] = late  # it was frozen, and takes up later what it had missed
        first.store.suspend()
        first.store.expire()
        await until(lambda: second.use.leading.members is not None, within_s=20)
        await absent(served, served.broker_id(0), at=1, how="lost")
        assert await absent(served, name, at=1) == before
        first.store.resume()
        await absent(served, served.broker_id(0), at=1, sameProcess=True)
        second.store.suspend()
        second.store.expire()
        await until(lambda: first.use.leading.members is not None, within_s=20)
        again = await absent(served, name, how="lost", backAt=None)
        assert again["leftAt"] > before["backAt"]


async def test_brokers_that_are_expected() -> None:
    """Fewer are told of."""
    async with serving(brokers=2, values={"loadManagerExpectedBrokers": "3"}) as served:
        await until(lambda: served.brokers[0].use.leading.members is not None)
        cluster = await served.get("/loadmanager/v1/cluster")
        assert cluster["expected"] == 3
        page = await served.get("/metrics")
        (line,) = [it for it in page.splitlines() if it.startswith("loadmanager_missing_brokers{")]
        assert line.endswith(" 1.0")
