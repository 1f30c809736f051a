"""`/loadmanager/v1/moves`, `pins` and `cordons`."""

from __future__ import annotations

import pytest
from broker.admin.serving import Served, serving
from clusters.running import eventually

from loadmanager.engine.bundles.ranges import topic_hash
from loadmanager.engine.history.records import Decision, OwnershipStep

MOVES = "/loadmanager/v1/moves"
PINS = "/loadmanager/v1/pins"
CORDONS = "/loadmanager/v1/cordons"
FIRST, SECOND = "acme/orders/0x00000000_0x40000000", "acme/orders/0x40000000_0x80000000"


async def test_every_broker_leads_to_the_leader() -> None:
    """307 elsewhere, 503 without a leader."""
    async with serving() as served:
        paths = (MOVES, PINS, CORDONS)
        for path in paths:
            answer = await served.ask("GET", path, at=1)
            assert (answer.status, answer.headers["Location"]) == (307, served.url(0) + path)
        await served.depose()
        for path in paths:
            assert (await served.ask("GET", path)).status == 503


async def test_a_move_with_a_pin() -> None:
    """The answer is the outcome; the pin is listed and removed."""
    async with serving() as served:
        await served.own(FIRST, at=0)
        body = {"bundle": FIRST, "destination": served.broker_id(1), "pinSeconds": 60, "note": "n"}
        answer = await served.ask("POST", MOVES, body)
        assert (answer.status, answer.body["state"]) == (200, "done")
        assert answer.body["outcome"]["owner"] == served.broker_id(1)
        assert served.owners() == {FIRST: served.broker_id(1)}
        listed = await served.get(MOVES)
        assert [move["id"] for move in listed["moves"]] == [answer.body["id"]]
        pins = await served.get(PINS)
        assert (pins[FIRST]["broker"], pins[FIRST]["note"]) == (served.broker_id(1), "n")
        assert pins[FIRST]["until"] == answer.body["pinnedUntil"]
        assert (await served.ask("DELETE", f"{PINS}/{FIRST}")).status == 204
        assert (await served.ask("DELETE", f"{PINS}/{FIRST}")).status == 404
        unload = f"/admin/v2/namespaces/{FIRST}/unload?destinationBroker={served.broker_id(0)}"
        assert (await served.ask("PUT", unload)).status == 204
        assert served.owners() == {FIRST: served.broker_id(0)}
        assert len((await served.get(MOVES))["moves"]) == 2


@pytest.mark.parametrize("manager", ["ModularLoadManagerImpl", "ExtensibleLoadManagerImpl"])
async def test_an_outcome_names_the_clients_and_the_pause(manager: str) -> None:
    """With either load manager, also when the bundle was moved away from the broker before. The
    leader's records name the lives that the sources recorded.
    """
    async with serving(values={"loadManagerClassName": manager}) as served:
        await served.own(FIRST, at=0)
        for to in (1, 0, 1):
            body = {"bundle": FIRST, "destination": served.broker_id(to)}
            outcome = (await served.ask("POST", MOVES, body)).body["outcome"]
            assert (outcome["owner"], outcome["clientsClosed"]) == (served.broker_id(to), 0)
            assert outcome["pauseMs"] > 0
        records = [record for broker in served.brokers for record in broker.history.records]
        recorded = {
            (record.broker, record.life)
            for record in records
            if isinstance(record, OwnershipStep) and record.before == "Releasing"
        }
        moves = [record for record in records if isinstance(record, Decision)]
        assert len(recorded) == 3
        assert {(record.source, record.life) for record in moves} == recorded


@pytest.mark.parametrize("manager", ["ModularLoadManagerImpl", "ExtensibleLoadManagerImpl"])
async def test_a_pinned_bundle_comes_back_after_an_unload(manager: str) -> None:
    """To the broker of its pin, which follows an unload with a destination, as Pulsar's route has
    it, with either load manager.
    """
    topic = next(
        name
        for name in (f"persistent://acme/orders/{number}" for number in range(100))
        if topic_hash(name) < 0x40000000
    )
    async with serving(3, values={"loadManagerClassName": manager}) as served:
        await served.own(FIRST, at=0)
        here, *others = (served.broker_id(at) for at in range(3))
        body = {"bundle": FIRST, "destination": here, "pinSeconds": 60}
        assert (await served.ask("POST", MOVES, body)).status == 200
        unload = f"/admin/v2/namespaces/{FIRST}/unload"
        lookup = f"/lookup/v2/topic/{topic.replace('://', '/')}"

        async def owners() -> dict[str, str]:
            return served.owners()

        for to in (*others, here):
            assert (await served.ask("PUT", f"{unload}?destinationBroker={to}")).status == 204
            assert (await served.get(PINS))[FIRST]["broker"] == to
            at = [served.broker_id(number) for number in range(3)].index(to)
            assert (await served.ask("PUT", unload, at=at)).status == 204
            await served.ask("GET", lookup, headers={"Loadmanager-Follow": "true"})
            assert await eventually(owners, bool) == {FIRST: to}


async def test_requests_that_are_refused() -> None:
    """With the reason, and nothing is changed."""
    async with serving() as served:
        there = served.broker_id(1)
        for body, status in (
            ({"bundle": FIRST, "destination": "nobody:1"}, 409),
            ({"bundle": FIRST, "destination": there, "pinSeconds": 0}, 412),
            ({"bundle": FIRST, "destination": there, "pinSeconds": "2h"}, 400),
            ({"bundle": FIRST}, 400),
            ({"bundle": "acme/orders/0x1_0x2", "destination": there}, 412),
            ({"bundle": "acme/none/0x00000000_0xffffffff", "destination": there}, 404),
            ({"bundle": "x", "destination": there}, 412),
        ):
            answer = await served.ask("POST", MOVES, body)
            assert (answer.status, bool(answer.reason)) == (status, True), body
        for method, path, body, status in (
            ("DELETE", f"{MOVES}/1-7", None, 404),
            ("PUT", f"{MOVES}/pause", {}, 400),
            ("PUT", f"{MOVES}/pause", {"seconds": True}, 400),
            ("PUT", f"{MOVES}/pause", {"seconds": -1}, 412),
            ("PUT", f"{MOVES}/pause", {"seconds": 5, "note": 7}, 400),
            ("GET", f"{MOVES}?limit=0", None, 412),
            ("PUT", f"{CORDONS}/nobody:1", None, 404),
            ("DELETE", f"{CORDONS}/{there}", None, 404),
        ):
            answer = await served.ask(method, path, body)
            assert (answer.status, bool(answer.reason)) == (status, True), (path, body)
        assert await served.get(PINS) == {}


async def test_pause_and_cancel() -> None:
    """What waits is cancelled, one or all; the pause is listed and ends."""
    async with serving(3) as served:
        await served.own(FIRST, SECOND, at=1)
        pause = await served.ask("PUT", f"{MOVES}/pause", {"seconds": 600, "note": "look"})
        assert (pause.status, pause.body["note"]) == (200, "look")
        cordon = await served.ask("PUT", f"{CORDONS}/{served.broker_id(1)}?drain=true")
        assert (cordon.body["state"], cordon.body["total"]) == ("draining", 2)

        async def waiting() -> object:
            return (await served.get(MOVES))["waiting"]

        await eventually(waiting, lambda count: count == 2)
        moves = (await served.get(MOVES))["moves"]
        one = await served.ask("DELETE", f"{MOVES}/{moves[0]['id']}")
        assert (one.status, one.body) == (200, {"cancelled": 1})
        assert (await served.ask("DELETE", f"{MOVES}/{moves[0]['id']}")).status == 409
        assert (await served.ask("DELETE", MOVES)).body == {"cancelled": 1}
        assert (await served.ask("DELETE", f"{MOVES}/pause")).status == 204
        assert (await served.get(MOVES))["paused"] is None
        await drained(served)
        assert served.broker_id(1) not in served.owners().values()
        assert (await served.ask("DELETE", f"{CORDONS}/{served.broker_id(1)}")).status == 204
        assert await served.get(CORDONS) == []


async def test_merges() -> None:
    """Two neighbours in any order become one at the broker of the first; others are refused."""
    async with serving() as served:
        await served.own(FIRST, at=1)
        await served.own(SECOND, at=0)
        merges = "/loadmanager/v1/merges"
        first, second = (bundle.rpartition("/")[2] for bundle in (FIRST, SECOND))
        last = "0xc0000000_0xffffffff"
        for one, two, status in ((first, last, 412), (first, "0x1_0x2", 412), ("x", first, 412)):
            body = {"namespace": "acme/orders", "first": one, "second": two}
            assert (await served.ask("POST", merges, body)).status == status
        body = {"namespace": "acme/orders", "first": second, "second": first}
        answer = await served.ask("POST", merges, body)
        merged = "acme/orders/0x00000000_0x80000000"
        assert (answer.status, answer.body) == (200, {"merged": merged})
        assert served.owners() == {merged: served.broker_id(1)}
        order = f"/loadmanager/v1/peers/bundles/{merged}/merge?with={last}"
        assert (await served.ask("POST", order, at=0)).status == 409


async def drained(served: Served) -> None:
    """The one cordoned broker is empty."""

    async def state() -> object:
        return [cordon["state"] for cordon in await served.get(CORDONS)]

    await eventually(state, lambda states: states == ["drained"], within_s=30)
