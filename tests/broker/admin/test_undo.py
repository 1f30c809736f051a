"""`/loadmanager/v1/undo`: changes, wishes and moves, and all that it refuses."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from broker.admin.serving import Answer, Served, serving
from broker.admin.test_admin_access import secured
from broker.admin.test_archive import a_decision, in_folder, recorded_in, written
from broker.admin.test_audit import as_role, changes
from clusters.running import eventually, until
from kit.security.tokens import ADMIN, VALUES, token, verifier
from msgspec import structs
from structlog.testing import capture_logs

from loadmanager.cli import main
from loadmanager.cli.admin.undo import fields_of
from loadmanager.engine.history.members import MemberChange
from loadmanager.engine.history.records import AuditedChange
from loadmanager.kit.audit import change_id
from loadmanager.kit.system.clock import SystemClock
from loadmanager.kit.text import moment
from loadmanager.leader.documents.undo import UndoStep
from loadmanager.leader.move_notes import moves_note, moves_noted

UNDO = "/loadmanager/v1/undo"
NAMESPACE = "/admin/v2/namespaces/acme/orders"
RATE = f"{NAMESPACE}/publishRate"
SETTINGS = "/admin/v2/brokers/configuration"
KEY = "loadBalancerSheddingEnabled"
GROUPS = "/admin/v2/resourcegroups"
MOVES = "/loadmanager/v1/moves"
PINS = "/loadmanager/v1/pins"
CORDONS = "/loadmanager/v1/cordons"
FIRST, SECOND = "acme/orders/0x00000000_0x40000000", "acme/orders/0x40000000_0x80000000"


async def do(served: Served, method: str, path: str, body: Any = None, *, at: int = 0) -> str:
    """An operator's change; its id, that of the first document if it changed several."""
    before = {each["id"] for each in await changes(served)}
    answer = await served.ask(method, path, body, at=at)
    assert answer.status in (200, 204), answer
    made = [each for each in await changes(served) if each["id"] not in before]
    assert len({each["id"] for each in made}) == len(made) > 0
    return str(made[-1]["id"])


async def plan(served: Served, *ids: str) -> dict[str, Any]:
    """What undoing would do."""
    shown: dict[str, Any] = await served.get(f"{UNDO}?ids={','.join(ids)}")
    return shown


async def undo(served: Served, *ids: str, seal: str = "") -> Answer:
    """Have the present plan carried out, or that with a seal."""
    seal = seal or (await plan(served, *ids))["seal"]
    return await served.ask("POST", UNDO, {"ids": list(ids), "seal": seal})


async def why_not(served: Served, *ids: str) -> str:
    """Why something cannot be undone; nothing is done then."""
    shown = await plan(served, *ids)
    assert not shown["steps"]
    answer = await undo(served, *ids, seal=shown["seal"])
    assert answer.status == 409
    assert answer.reason.startswith("nothing is undone: ")
    (refused,) = shown["cannot"]
    return str(refused["why"])


async def rate(served: Served) -> int | None:
    """The publish limit of the namespace."""
    body = (await served.ask("GET", RATE)).body
    return body["publishThrottlingRateInMsg"] if body else None


def a_rate(messages: int) -> dict[str, int]:
    """A publish limit."""
    return {"publishThrottlingRateInMsg": messages}


async def test_limits_and_settings() -> None:
    """Each change is undone by its id, several at once as if one after the other, and an undo as
    any other change. The audit log says who undid what.
    """
    async with secured() as served:
        first = await do(served, "POST", RATE, a_rate(10))
        second = await do(served, "POST", RATE, a_rate(20))
        shown = await plan(served, second)
        (step,) = shown["steps"]
        assert (step["id"], step["of"]) == (second, "/admin/policies/acme/orders")
        words = "set publishRate of acme/orders: publishThrottlingRateInMsg 20 (was 10)"
        assert step["what"].startswith(words)
        assert not shown["needless"]
        for name, messages in (("now", 20), ("then", 10)):
            by_cluster = json.loads(step[name])["publishMaxMessageRate"]
            assert by_cluster["standalone"]["publishThrottlingRateInMsg"] == messages
        assert await rate(served) == 20
        assert (await undo(served, second)).status == 200
        assert await rate(served) == 10
        undone = (await changes(served))[0]
        assert (undone["what"], undone["role"]) == (f"POST {UNDO}", ADMIN)
        assert undone["note"] == f"undoes {second}"
        assert (await undo(served, undone["id"])).status == 200
        assert await rate(served) == 20
        again = (await changes(served))[0]["id"]
        assert (await plan(served, again, undone["id"]))["needless"]
        nothing = await undo(served, again, undone["id"])
        assert (nothing.status, await rate(served)) == (409, 20)
        assert nothing.reason == "nothing is undone: what it comes to is there already"

        # The limit was changed since, and by whom.
        why = await why_not(served, first)
        assert why.startswith("publishMaxMessageRate is not as this change left it; admin changed")
        assert f"({again}: POST {UNDO})" in why

        # All of it, in one document: as it was before the first.
        everything = (first, second, undone["id"], again)
        answer = await undo(served, *everything)
        assert [step["id"] for step in answer.body["steps"]] == [*reversed(everything)]
        assert await rate(served) is None

        # A limit with an end: both documents of the request.
        await do(served, "POST", f"{RATE}?forSeconds=600", a_rate(10))
        ids = [each["id"] for each in (await changes(served))[:2]]
        assert (await undo(served, *ids)).status == 200
        assert (await rate(served), await served.get("/loadmanager/v1/limit-ends")) == (None, [])

        # Of the two, the limit alone: its end ends nothing any more.
        await do(served, "POST", f"{RATE}?forSeconds=600", a_rate(10))
        (limit,) = [
            each["id"] for each in (await changes(served))[:2] if "limit-ends" not in each["path"]
        ]
        assert (await undo(served, limit)).status == 200
        assert (await rate(served), await served.get("/loadmanager/v1/limit-ends")) == (None, [])

        key = await do(served, "POST", f"{SETTINGS}/{KEY}/false")
        group = await do(served, "PUT", f"{GROUPS}/gold", {"publishRateInMsgs": 1})
        joined = await do(served, "POST", f"{NAMESPACE}/resourcegroup/gold")
        why = await why_not(served, group)
        assert why == "acme/orders is in this resource group"
        assert (await undo(served, group, key, joined)).status == 200
        assert await served.get(f"{SETTINGS}/values") == {}
        assert await served.get(GROUPS) == []
        joined, *_ = [each["id"] for each in await changes(served) if "policies" in each["path"]]
        assert await why_not(served, joined) == "resource group gold does not exist any more"


async def test_what_somebody_else_did_in_between() -> None:
    """A plan that is another one by now is not carried out; of two undos at once, one is."""
    async with secured() as served:
        changed = await do(served, "POST", RATE, a_rate(10))
        old = (await plan(served, changed))["seal"]
        dispatch = f"{NAMESPACE}/dispatchRate"
        await do(served, "POST", dispatch, {"dispatchThrottlingRateInMsg": 5})
        assert (await plan(served, changed))["seal"] == old  # another field of the same document
        answers = await asyncio.gather(*(undo(served, changed, seal=old) for _ in range(3)))
        assert sorted(answer.status for answer in answers) == [200, 409, 409]
        assert await rate(served) is None
        limit = (await served.ask("GET", dispatch)).body
        assert limit["dispatchThrottlingRateInMsg"] == 5

        changed = await do(served, "POST", RATE, a_rate(10))
        other = await do(served, "POST", f"{SETTINGS}/{KEY}/false")
        seal = (await plan(served, changed, other))["seal"]
        await do(served, "POST", RATE, a_rate(11))
        answer = await undo(served, changed, other, seal=seal)
        assert answer.status == 409
        assert "no longer" in answer.reason
        assert await served.get(f"{SETTINGS}/values") == {KEY: "false"}


async def test_what_cannot_be_undone() -> None:
    """Each says why; neither does a request without ids or with too many do anything."""
    async with secured() as served:
        for method, path, body, why in (
            ("PUT", "/admin/v2/tenants/new", {"allowedClusters": ["standalone"]}, "a tenant was"),
            ("PUT", "/admin/v2/namespaces/acme/more", None, "a namespace was made"),
            ("PUT", "/admin/v2/persistent/acme/orders/t", None, "a topic or a subscription"),
            ("PUT", f"{NAMESPACE}/unload", None, "it is an order"),
        ):
            made = await do(served, method, path, body)
            newest = [each["id"] for each in await changes(served)]
            ids = newest[: newest.index(made) + 1]
            reasons = [each["why"] for each in (await plan(served, *ids))["cannot"]]
            assert any(reason.startswith(why) for reason in reasons), (path, reasons)
        unknown = change_id(1, 1, "nobody:1")
        assert await why_not(served, unknown) == "no broker that answers has a change of this id"
        assert "neither" in await why_not(served, "x")
        assert "another leader's term" in await why_not(served, "999-1")
        assert "another leader's term" in await why_not(served, "1-a7")
        assert "no decision of this id" in await why_not(served, "1-999")
        for ids in ("", ",".join(f"1-{number}" for number in range(101))):
            assert (await served.ask("GET", f"{UNDO}?ids={ids}")).status == 412
        for body in ({}, {"ids": [], "seal": "x"}, {"ids": ["c-1-100"]}):
            assert (await served.ask("POST", UNDO, body)).status == 400
        for role, status in (("boss", 403), ("reader", 403), (ADMIN, 200)):
            path = f"{UNDO}?ids={unknown}"
            assert (await served.ask("GET", path, headers=as_role(role))).status == status
            if role != ADMIN:
                answer = await served.ask("POST", UNDO, body, headers=as_role(role))
                assert answer.status == 403


async def moved_to(served: Served, bundle: str, index: int) -> None:
    """Wait until a broker owns a bundle."""

    async def owner() -> str | None:
        return served.owners().get(bundle)

    await eventually(owner, lambda owner: owner == served.broker_id(index), 60)


async def test_wishes_and_moves() -> None:
    """A pin, a pause and a cordon end or come back; bundles go back where they came from, unless
    something is against it. The id may be of another broker.
    """
    async with serving(2, values=VALUES, verifier=verifier(), token=token(ADMIN)) as served:
        await served.own(FIRST, SECOND, at=0)
        there, back = served.broker_id(1), served.broker_id(0)
        body = {"bundle": FIRST, "destination": there, "pinSeconds": 600}
        moved = await do(served, "POST", MOVES, body)
        shown = await plan(served, moved)
        assert [(step["of"], step["now"], step["then"]) for step in shown["steps"][1:]] == [
            (FIRST, there, back)
        ]
        decision = (await served.get("/loadmanager/v1/decisions?limit=1"))["decisions"][0]["id"]
        assert "pinned" in await why_not(served, decision)
        answer = await undo(served, moved)
        assert (len(answer.body["moves"]), answer.body["notQueued"]) == (1, {})
        await moved_to(served, FIRST, 0)
        assert await served.get(PINS) == {}
        undone = (await changes(served))[0]["id"]
        assert f"{FIRST}" in str(await plan(served, undone))
        assert (await undo(served, undone)).status == 200
        await moved_to(served, FIRST, 1)
        assert (await served.get(PINS))[FIRST]["broker"] == there
        assert "it moved" in await why_not_move(served, SECOND)

        cordoned = await do(served, "PUT", f"{CORDONS}/{there}?drain=false")
        paused = await do(served, "PUT", f"{MOVES}/pause", {"seconds": 600})
        await do(served, "DELETE", f"{MOVES}/pause")
        resumed = (await changes(served))[0]["id"]
        assert "not as this change" in await why_not(served, paused)
        assert (await undo(served, resumed, cordoned)).status == 200
        assert await served.get(CORDONS) == []
        assert (await served.get(MOVES))["paused"] is not None

        quota = f"/admin/v2/resource-quotas/{SECOND}"
        before = await served.get(quota)
        first = await do(served, "POST", quota, {"msgRateIn": 7})
        second = await do(served, "POST", quota, {"msgRateIn": 9})
        assert (await undo(served, second)).status == 200
        assert (await served.get(quota))["msgRateIn"] == 7
        undone = (await changes(served))[0]["id"]
        assert (await undo(served, first, second, undone)).status == 200
        assert await served.get(quota) == before

        elsewhere = await do(served, "POST", f"{SETTINGS}/{KEY}/false", at=1)
        assert (await changes(served))[0]["broker"] == there
        assert (await undo(served, elsewhere)).status == 200
        assert await served.get(f"{SETTINGS}/values") == {}
        redirected = await served.ask("POST", UNDO, {"ids": [elsewhere], "seal": "x"}, at=1)
        assert redirected.status == 307


async def why_not_move(served: Served, bundle: str) -> str:
    """Why a move that was undone by hand is not undone once more."""
    body = {"bundle": bundle, "destination": served.broker_id(1)}
    moved = await do(served, "POST", MOVES, body)
    hand = {"bundle": bundle, "destination": served.broker_id(0)}
    await do(served, "POST", MOVES, hand)
    return "it moved: " + await why_not(served, moved)


async def at_a_terminal(
    served: Served, capsys: pytest.CaptureFixture[str], *words: str
) -> tuple[int, str]:
    """`loadmanager admin undo …`: its status, and what it says."""
    capsys.readouterr()
    with capture_logs():
        status = await asyncio.to_thread(main, ["admin", "undo", *words, "--url", served.url()])
    told = capsys.readouterr()
    return status, told.out + told.err


async def test_at_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """The plan, then exactly that plan; it never says that it did what it did not."""

    async with serving(1) as served:

        async def say(*words: str) -> tuple[int, str]:
            return await at_a_terminal(served, capsys, *words)

        # What made the namespace: each part is named, and none is undone.
        status, text = await say("--since", "1970-01-01")
        assert (status, text.count("cannot be undone: ")) == (1, 3)
        assert text.endswith("nothing was undone\n")
        assert "what the balancer moved is not in it" in text
        assert "what the balancer moved" in (await say("--since", "1s ago", "--role", "x"))[1]

        changed = await do(served, "POST", RATE, a_rate(10))
        status, text = await say(changed)
        assert status == 0
        assert f"{changed}  set publishRate of acme/orders: " in text
        assert "\n    /admin/policies/acme/orders" in text
        assert "publishMaxMessageRate: {" in text
        assert "→ not set" in text
        assert "nothing is done yet" in text
        assert await rate(served) == 10
        seal = (await plan(served, changed))["seal"]
        status, text = await say(changed, "--plan", "x")
        assert (status, await rate(served)) == (1, 10)
        assert f"the plan is {seal} now, and not x any more" in text
        status, text = await say(changed, "--plan", seal)
        assert (status, await rate(served)) == (0, None)
        assert text.endswith("1 change undone\n")
        status, text = await say(changed, "--yes")
        assert (status, await rate(served)) == (1, None)
        assert "publishMaxMessageRate is not as this change left it" in text
        assert text.endswith("nothing was undone\n")

        assert (await say("--since", "1970-01-01", "--role", "nobody"))[0] == 1
        other = await do(served, "POST", RATE, a_rate(10))
        status, text = await say("--since", "1970-01-01", "--yes", "--json")
        steps = [step["id"] for step in json.loads(text)["steps"]]
        assert (status, steps[0], steps[-1], len(steps)) == (1, other, changed, 3)
        for words in (
            [],
            [other, "--since", "1970-01-01"],
            [other, "--role", "x"],
            [other, "--plan", "x"],
        ):
            status, _ = await say(*words, *(["--yes"] if "--plan" in words else []))
            assert status == 2


async def test_moves_only(capsys: pytest.CaptureFixture[str]) -> None:
    """All moves since a time, the newest first, and nothing that was stored since."""
    async with serving(2) as served:
        await served.own(FIRST, at=0)
        await do(served, "POST", RATE, a_rate(10))
        for index in (1, 0, 1):
            await do(
                served, "POST", MOVES, {"bundle": FIRST, "destination": served.broker_id(index)}
            )
        words = ("--moves", "--since", "1970-01-01")
        status, text = await at_a_terminal(served, capsys, *words)
        ids = [line.split()[0] for line in text.splitlines() if line.endswith("  move")]
        assert (status, ids) == (0, ["1-m3", "1-m2", "1-m1"]), text
        assert "publishMaxMessageRate" not in text
        assert " --moves --plan " in text
        status, text = await at_a_terminal(served, capsys, *words, "--yes")
        assert (status, "1 move queued" in text) == (0, True), text
        await moved_to(served, FIRST, 0)
        assert await rate(served) == 10
        back = "back where it was, 1 bundle: nothing to undo"
        await eventually(
            lambda: at_a_terminal(served, capsys, *words), lambda answer: back in answer[1]
        )
        assert (await at_a_terminal(served, capsys, "--moves", "1-m1"))[0] == 2


async def test_what_is_undone_already_is_offered_no_plan(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A plan that would be refused is not offered, with or without --yes."""
    async with serving(1) as served:
        changed = await do(served, "POST", RATE, a_rate(10))
        assert (await undo(served, changed)).status == 200
        undone = (await changes(served))[0]["id"]
        for words in ((), ("--yes",)):
            status, text = await at_a_terminal(served, capsys, changed, undone, *words)
            assert (status, "nothing is done yet" in text) == (1, False)
            assert text.endswith(
                "nothing is left to undo: what these steps come to is there already\n"
            )
        assert await rate(served) is None


async def test_where_a_bundle_is_now_and_where_steps_bring_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """These are not the same. That records do not reach back is told, and is no failure."""
    async with serving(3, values=in_folder(tmp_path)) as served:
        first, second, third = (served.broker_id(index) for index in range(3))
        await served.own(FIRST, at=0)
        for destination in (second, third, first):
            await do(served, "POST", MOVES, {"bundle": FIRST, "destination": destination})
        shown = await plan(served, "1-m3", "1-m1")
        (step,), (refused,) = shown["steps"], shown["cannot"]
        assert (step["id"], step["now"], step["then"]) == ("1-m3", first, third)
        assert refused["id"] == "1-m1"
        now = f"it is at {first} now, and the steps before this one bring it to {third}"
        assert refused["why"] == f"{now}: this was a move to {second}"
        await do(served, "POST", MOVES, {"bundle": FIRST, "destination": second})
        words = ("--moves", "--since", "1970-01-01", "--yes")
        status, text = await at_a_terminal(served, capsys, *words)
        assert "recorded nothing before" in text
        assert (status, "1 move queued" in text) == (0, True), text
        await moved_to(served, FIRST, 0)


async def test_moves_that_cancel_out_and_a_pause_are_told(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Nothing is left out without a word; a pause holds the balancer, and not the undo."""
    async with serving(2) as served:
        await served.own(FIRST, SECOND, at=0)
        for bundle, index in ((FIRST, 1), (SECOND, 1), (FIRST, 0)):
            await do(
                served, "POST", MOVES, {"bundle": bundle, "destination": served.broker_id(index)}
            )
        words = ("--moves", "--since", "1970-01-01")
        _, text = await at_a_terminal(served, capsys, *words)
        assert "moves pause` holds it" in text
        lines = text.splitlines()
        at = lines.index("1-m3 and 1-m1  2 moves")
        assert (
            lines[at + 1] == f"    {FIRST} was moved back to where it was: no move is left to undo"
        )
        assert [line.split()[0] for line in lines if line.endswith("  move")] == ["1-m2"]
        assert "paused" not in text
        await do(served, "PUT", f"{MOVES}/pause", {"seconds": 600, "note": "look"})
        status, text = await at_a_terminal(served, capsys, *words, "--yes")
        assert (status, "1 move queued" in text) == (0, True), text
        (paused,) = [
            line for line in text.splitlines() if line.startswith("moves are paused until")
        ]
        assert "(look; by 127.0.0.1)" in paused
        assert "not this undo" in paused
        assert paused.endswith("`loadmanager admin moves resume` ends it")
        assert "moves pause` holds it" not in text
        await moved_to(served, SECOND, 0)


async def test_what_a_loss_took_elsewhere_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """Where each such bundle is, since when, and that the broker was lost to which it was moved;
    also of a bundle whose moves cancel out.
    """
    async with serving(3) as served:
        lost, other = served.broker_id(1), served.broker_id(2)
        await served.own(FIRST, at=0)
        await served.own(SECOND, at=1)
        moved = await do(served, "POST", MOVES, {"bundle": FIRST, "destination": lost})
        for destination in (other, lost):
            await do(served, "POST", MOVES, {"bundle": SECOND, "destination": destination})
        served.brokers[1].store.suspend()
        served.brokers[1].store.expire()
        since = await eventually(
            lambda: why_not(served, moved), lambda why: f"{lost} was lost at" in why, within_s=20
        )
        nobody = rf"nobody owns it now, since {lost} was lost at \S+Z: its next lookup places it"
        assert re.fullmatch(nobody, since)
        await served.own(FIRST, SECOND, at=2)
        why = await eventually(
            lambda: why_not(served, moved), lambda why: ", since" in why, within_s=20
        )
        now = rf"it is at {other} now, since \S+Z, and not at {lost} any more"
        assert re.fullmatch(rf"{now}, which was lost at \S+Z", why)
        _, text = await at_a_terminal(served, capsys, "--moves", "--since", "1970-01-01")
        told = rf"    {SECOND} is at {other} now, since .+, and not at {lost} any more, which was "
        assert re.search(told, text), text
        assert "was moved back to where it was: no move is left to undo" in text


def test_grants_in_words() -> None:
    """Who may do what afterwards, in the namespace, on a topic and of a subscription."""
    now, then = (
        json.dumps({"auth_policies": policies})
        for policies in (
            {
                "namespace_auth": {"app": ["produce", "consume"]},
                "destination_auth": {"persistent://acme/orders/t": {"bob": ["consume"]}},
                "subscription_auth_roles": {"s": ["app"]},
            },
            {"namespace_auth": {"app": ["consume"], "eve": ["produce"]}},
        )
    )
    step = UndoStep(id="c", what="POST", of="/admin/policies/acme/orders", now=now, then=then)
    assert list(fields_of(step)) == [
        "app may no longer produce in the namespace",
        "eve may produce in the namespace again",
        "bob may no longer consume on persistent://acme/orders/t",
        "any role that may consume may use subscription s",
    ]


async def test_what_a_crash_of_all_brokers_took_elsewhere_is_told(tmp_path: Path) -> None:
    """No leader was there to record it: the archives tell that the broker was lost with all."""
    async with serving(2, values=in_folder(tmp_path)) as served:
        await served.own(FIRST, at=1)
        lost, other = served.broker_id(0), served.broker_id(1)
        now = SystemClock().now_ms()
        crash = now - 3_600_000
        move = a_decision(
            crash - 60_000, "move", bundle=FIRST, move="0-1", source="127.0.0.1:2",
            destination=lost, owner=lost, state="done", author="operator",
            ended_at=crash - 60_000,
        )  # fmt: skip
        of = {"broker": lost, "of": lost, "event": "starts"}
        starts = [MemberChange(ts=ts, **of) for ts in (crash - 90_000, crash + 20_000)]
        await written(served, 0, structs.replace(move, epoch=0, ids=["0-1"]), *starts)
        recorded_in(tmp_path, [(1, crash - 90_000, crash), (2, crash + 20_000, now + 60_000)])
        why = await why_not(served, "0-1")
        at = moment(crash + 12_000)
        assert why.startswith(f"it is at {other} now")
        assert why.endswith(f", and not at {lost} any more, which was lost at {at}")


async def test_moves_of_earlier_terms(tmp_path: Path) -> None:
    """A cycle by the id that an archive gives it, and a change whose leader is gone: bundles go
    back that are where they were moved to; one that moved again since is said to be so.
    """
    async with serving(2, values=in_folder(tmp_path)) as served:
        await served.own(FIRST, at=1)
        await served.own(SECOND, at=0)
        back, there = served.broker_id(0), served.broker_id(1)
        now, head = SystemClock().now_ms(), {"source": back}
        moved = {"state": "done", "author": "cycle", "destination": there, "owner": there}
        records = [
            *(a_decision(now, "unload", bundle=each, **head) for each in (FIRST, SECOND)),
            a_decision(now, "move", bundle=FIRST, move="0-1", **head, **moved),
            a_decision(now, "move", bundle=SECOND, move="0-2", **head, **moved),
        ]
        other = structs.replace(records[-1], move="0-3", cycle=4)
        of_term_0 = (structs.replace(each, epoch=0, cycle=3) for each in records)
        await written(served, 1, *of_term_0, structs.replace(other, epoch=0))
        path = "/loadmanager/v1/archive/events?kind=decision.unload"
        number = (await served.get(path, at=1))["events"][0]["id"]
        shown = await plan(served, f"0-a{number}")
        assert [(step["of"], step["now"], step["then"]) for step in shown["steps"]] == [
            (FIRST, there, back)
        ]
        (refused,) = shown["cannot"]
        assert (refused["of"], refused["why"]) == (
            SECOND,
            f"it is back at {back} already",
        )
        assert (await undo(served, f"0-a{number}")).status == 200
        await moved_to(served, FIRST, 0)
        assert "no archive that answers" in await why_not(served, "0-a999")

        ordered = await do(served, "POST", MOVES, {"bundle": FIRST, "destination": there})
        archive = served.brokers[0].archive
        assert archive is not None
        kind = ["decision.move"]

        async def is_archived() -> bool:
            found = await archive.ask(lambda it: it.events(kind, FIRST, now, 2 * now, 9))
            return len(found.events) == 2  # the undo's and this one

        await eventually(is_archived, bool, within_s=30)
        served.brokers[0].store.expire()
        served.brokers[0].store.resume()

        async def planned() -> dict[str, Any]:
            answer = await served.ask("GET", f"{UNDO}?ids={ordered}", at=1)
            return answer.body if answer.status == 200 else {}

        shown = await eventually(planned, lambda it: bool(it.get("steps")), within_s=30)
        assert [(step["of"], step["now"], step["then"]) for step in shown["steps"]] == [
            (FIRST, there, back)
        ]


async def test_decisions_that_other_brokers_archives_have(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the id that the leader of then gave: brokers are asked for their archives over HTTP. A
    record that cannot be read is left out, and the answer says so; so is a broker that is gone.
    """
    async with serving(3, values=in_folder(tmp_path / "<broker>")) as served:
        await served.own(FIRST, SECOND, at=1)
        back, there = served.broker_id(0), served.broker_id(1)
        now, head = SystemClock().now_ms(), {"source": back}
        moved = {"state": "done", "author": "cycle", "destination": there, "owner": there, **head}
        records = [
            a_decision(now, "unload", bundle=FIRST, ids=["0-7"], **head),
            a_decision(now, "move", bundle=FIRST, move="0-m1", ids=["0-8", "0-7"], **moved),
            a_decision(now, "move", bundle=SECOND, move="0-m9", ids=["0-9"], **moved),
            a_decision(now, "place", bundle=SECOND, ids=["0-10"]),
            a_decision(now, "split", bundle=SECOND, ids=["0-11"]),
            a_decision(now, "unload", bundle=SECOND, ids=["0-12"], **head),
            a_decision(now, "move", bundle=SECOND, move="0-3", ids=["0-13"], **moved),
        ]
        # A move ends when other cycles have begun.
        records[1] = structs.replace(records[1], cycle=records[0].cycle + 1)
        await written(served, 1, *(structs.replace(each, epoch=0) for each in records[:2]))
        await written(served, 2, *(structs.replace(each, epoch=0) for each in records[2:]))
        of_id = {"0-7": FIRST, "0-8": FIRST, "0-9": SECOND, "0-m1": FIRST, "0-m9": SECOND}
        for id_, bundle in of_id.items():
            shown = await plan(served, id_)
            assert [(step["id"], step["of"]) for step in shown["steps"]] == [(id_, bundle)]
            assert (shown["cannot"], shown["notes"]) == ([], [])
        assert "no archive that answers has" in await why_not(served, "0-1")
        assert "had no owner before" in await why_not(served, "0-10")
        assert "are not put together or divided again" in await why_not(served, "0-11")
        assert "the end of a move that it ordered" in await why_not(served, "0-12")
        assert "no archive that answers has" in await why_not(served, "0-99")
        _damage(tmp_path / "2", "0-3")
        for ids, steps in ((("0-13",), 0), (("0-9", "0-13"), 1)):
            shown = await plan(served, *ids)
            assert (len(shown["steps"]), len(shown["cannot"])) == (steps, 1)
            (note,) = shown["notes"]
            assert note.startswith(f"a record is left out: {served.broker_id(2)}: an archive has a")

        status, text = await at_a_terminal(served, capsys, "0-7", "0-13", "--yes")
        assert (status, f"{FIRST} moves from {there} back to {back}" in text) == (1, True)
        assert f"not all is here: {note}" in text
        await moved_to(served, FIRST, 0)
        await served.servers[2].stop()
        shown = await plan(served, "0-9")
        assert f"{served.broker_id(2)} did not answer" in shown["cannot"][0]["why"]


async def test_all_since_a_time_before_the_brokers_started(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is missing then, and the command that the plan names does what it shows."""
    values = VALUES | {"superUserRoles": f"{ADMIN},alice"} | in_folder(tmp_path / "<broker>")
    async with serving(2, values=values, verifier=verifier(), token=token(ADMIN)) as served:
        path = f"{SETTINGS}/{KEY}/false"
        assert (await served.ask("POST", path, headers=as_role("alice"), at=1)).status == 204
        words = ("--since", "1h", "--role", "alice", "--token", token(ADMIN))

        async def planned() -> tuple[int, str]:
            return await at_a_terminal(served, capsys, *words)

        status, text = await eventually(planned, lambda it: "nothing is done" in it[1], within_s=30)
        assert (status, "not all is here" in text) == (0, False)
        pasted = shlex.split(text.partition("admin undo ")[2].partition("`")[0])
        assert (pasted[0], pasted[2:5]) == ("--since", ["--role", "alice", "--plan"])
        status, text = await at_a_terminal(served, capsys, *pasted, "--token", token(ADMIN))
        assert (status, "1 change undone" in text) == (0, True)


def _damage(folder: Path, move: str) -> None:
    """Have the record of a move in an archive be of another shape."""
    for path in folder.rglob("*.sqlite"):
        with closing(sqlite3.connect(path)) as db, db:
            record = "CAST(record AS TEXT)"
            text = f"UPDATE event SET record = replace({record}, ?, ?) WHERE {record} LIKE ?"
            done = db.execute(text, ('"epoch":0', '"epoch":[]', f'%"move":"{move}"%'))
            assert done.rowcount == 1


def test_a_note_names_the_moves() -> None:
    """Each, or of many the first and the last; also beside other words."""
    for count in (1, 3, 200, 201, 9_000):
        for form in ("7-m", "7-"):  # as this version and the one before it name moves
            ids = [f"{form}{number}" for number in range(5, 5 + count)]
            assert moves_noted(f"undoes c-1; {moves_note(ids)}; more") == ids
            assert len(moves_note(ids)) < 2_200
    assert moves_note([]) == ""
    assert moves_noted(None) == moves_noted("removes 3") == []


async def test_a_plan_that_an_earlier_leader_carried_out(tmp_path: Path) -> None:
    """The change names the moves that it ordered, which archives have; without names, it is said
    that the plan is gone.
    """
    async with serving(2, values=in_folder(tmp_path / "<broker>")) as served:
        await served.own(FIRST, SECOND, at=1)
        back, there, now = served.broker_id(0), served.broker_id(1), SystemClock().now_ms()
        moved = {"state": "done", "author": "plan", "source": back, "owner": there}
        moves = [
            a_decision(now, "move", bundle=bundle, move=move, **moved)
            for bundle, move in ((FIRST, "0-1"), (SECOND, "0-2"))
        ]
        ordered, unnamed = (
            AuditedChange(
                ts=now + number,
                broker=there,
                role="",
                address="127.0.0.1",
                over="http",
                what="POST /loadmanager/v1/plans/0-p1/execute",
                id=change_id(now + number, number, there),
                note=note,
            )
            for number, note in ((1, moves_note(["0-1", "0-2"])), (2, None))
        )
        await written(served, 1, *(structs.replace(each, epoch=0) for each in moves))
        await written(served, 1, ordered, unnamed)
        shown = await plan(served, ordered.id or "")
        assert shown["cannot"] == []
        assert {(step["of"], step["now"], step["then"]) for step in shown["steps"]} == {
            (FIRST, there, back),
            (SECOND, there, back),
        }
        assert "there is no plan 0-p1" in await why_not(served, unnamed.id or "")
        assert (await undo(served, ordered.id or "")).status == 200
        await moved_to(served, FIRST, 0)


async def test_a_change_that_only_an_archive_has(tmp_path: Path) -> None:
    """A broker's own, or one that a broker left beside it that is gone."""
    values = in_folder(tmp_path)
    async with serving(2, values=values) as served:
        archive = served.brokers[1].archive
        assert archive is not None
        made = await do(served, "POST", f"{SETTINGS}/{KEY}/false", at=1)
        await until(lambda: archive.written > 0, within_s=60)
    async with serving(1, values=values) as served:
        (refused,) = (await plan(served, made))["cannot"]
        assert (refused["of"], refused["why"]) == (
            "/admin/configuration",
            "it is not as this change left it",
        )
        await do(served, "POST", f"{SETTINGS}/{KEY}/false")
        (step,) = (await plan(served, made))["steps"]
        assert (step["id"], step["now"], step["then"]) == (made, f'{{"{KEY}":"false"}}', "{}")
