"""`loadmanager admin`, as an operator calls it, over HTTP, against complete brokers over a store in
memory.
"""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import msgspec
import pytest
from broker.admin.serving import ORDERS, Served, serving
from broker.admin.test_admin_access import secured
from broker.admin.test_admin_subscriptions import with_messages
from broker.admin.test_archive import in_folder
from clusters.running import eventually, until
from kit.security.certificates import Authority
from kit.security.tokens import ADMIN, token
from structlog.testing import capture_logs

from loadmanager.cli import main
from loadmanager.cli.admin.bundles import added_boundaries
from loadmanager.cli.admin.client import SilentError, while_it_lives
from loadmanager.cli.admin.goals import seconds_text
from loadmanager.cli.admin.restarting import how_drained
from loadmanager.cli.admin.topics import unread_note, unread_text
from loadmanager.engine.plans.order import Afterwards
from loadmanager.engine.plans.planner import REACHED
from loadmanager.kit.errors import OperationalError
from loadmanager.kit.names import TopicName
from loadmanager.kit.reason import Reason
from loadmanager.kit.sampler import Reading
from loadmanager.leader.documents.findings import BusyTopic
from loadmanager.leader.documents.moves import CordonShown
from loadmanager.leader.findings import TermFindings
from loadmanager.leader.goals import TermGoals

FIRST = "acme/orders/0x00000000_0x40000000"
SECOND = "acme/orders/0x40000000_0x80000000"


class Shell:
    """Calls the command and keeps what it printed."""

    def __init__(self, served: Served, capsys: pytest.CaptureFixture[str]) -> None:
        self.served = served
        self._capsys = capsys

    async def run(self, *words: str, at: int = 0) -> tuple[int, str, str]:
        """Exit status, standard output, standard error."""
        self._capsys.readouterr()
        with capture_logs():  # the brokers in this process log, too
            status = await asyncio.to_thread(
                main, ["admin", *words, "--url", self.served.url(at), "--timeout", "60"]
            )
        out, err = self._capsys.readouterr()
        return status, out.rstrip("\n"), err

    async def json(self, *words: str, at: int = 0) -> Any:
        """The output with --json, parsed."""
        status, out, err = await self.run(*words, "--json", at=at)
        assert status == 0, (out, err)
        return json.loads(out)


async def test_brokers(capsys: pytest.CaptureFixture[str]) -> None:
    """The list marks the leader; health and reports name all brokers; as tables and as JSON."""
    async with serving() as served:
        shell = Shell(served, capsys)
        status, out, _ = await shell.run("brokers", "list", at=1)
        header, *rows = out.splitlines()
        names = ["BROKER", "ROLE", "LOAD", "%", "DISK", "%", "BUNDLES", "MSG/S", "UPTIME"]
        assert (status, header.split()) == (0, [*names, "VERSION", "REPORT"])
        assert sorted(row.split()[0] for row in rows) == sorted(
            await shell.json("brokers", "health")
        )
        assert [row.split()[0] for row in rows if "leader" in row] == [served.broker_id(0)]
        assert (await shell.json("brokers", "leader"))["brokerId"] == served.broker_id(0)
        leads, term, *_ = (await shell.run("brokers", "leader"))[1].splitlines()
        assert leads.startswith(served.broker_id(0))
        assert term.startswith("term 1, since ")
        leader = await shell.json("brokers", "leader", at=1)
        assert (leader["term"], leader["since"] <= served.brokers[0].clock.now_ms()) == (1, True)
        assert (await shell.json("brokers", "report"))[served.broker_id(1)]["numBundles"] == 0
        assert (await shell.run("brokers", "report", served.broker_id(1)))[0] == 0
        for action in ("report", "health"):
            status, _, err = await shell.run("brokers", action, "foo")
            assert (status, "foo is not active; the brokers are 127.0.0.1:" in err) == (1, True)
        served.brokers[1].store.suspend()
        status, out, _ = await shell.run("brokers", "health")
        assert (status, "the metadata store does not answer" in out) == (1, True)
        assert f"{served.broker_id(1)} answered 503" in out


async def test_a_broker_that_does_not_answer_is_listed_so(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It has died a moment ago, or is frozen, and its session lasts."""
    async with serving(2) as served:
        shell, name = Shell(served, capsys), served.broker_id(1)
        assert "NO ANSWER" not in (await shell.run("brokers", "list"))[1]
        await served.servers[1].stop()
        rows = (await shell.run("brokers", "list"))[1].splitlines()
        assert ["NO ANSWER NOW: " in row for row in rows if row.startswith(name)] == [True]
        assert ["NO ANSWER NOW: " in row for row in rows if not row.startswith(name)] == [
            False,
            False,
        ]
        listed = {it["broker"]: it for it in await shell.json("brokers", "list")}
        assert "problem" in listed[name]
        assert "problem" not in listed[served.broker_id(0)]
        _, out, _ = await shell.run("status")
        first, second = out.splitlines()[:2]
        assert first.startswith(f"{name} does not answer now (cannot be reached: ")
        assert first.endswith("); its session had not ended when asked")
        assert second.startswith("2 brokers, ")
        assert [*(await shell.json("status"))["noAnswer"]] == [name]


async def test_a_leader_that_does_not_answer_is_listed_so(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The others know who leads, and what it and they have reported last."""
    async with serving(2) as served:
        shell, name = Shell(served, capsys), served.broker_id(0)
        await until(lambda: len(served.brokers[1].use.brokers.reports) == 2)
        await served.servers[0].stop()
        status, out, _ = await shell.run("brokers", "list", at=1)
        rows = {row.split()[0]: row for row in out.splitlines() if row.startswith("127.0.0.1")}
        assert status == 1
        assert "leader" in rows[name]
        assert "NO ANSWER NOW: cannot be reached" in rows[name]
        assert "NO ANSWER" not in rows[served.broker_id(1)]
        assert "LOAD %" in out.upper()
        assert "no leader says more" in out


@pytest.mark.parametrize("manager", ["ModularLoadManagerImpl", "ExtensibleLoadManagerImpl"])
async def test_how_full_disks_are(manager: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The list and the status name the fullest; the leader finds it within a minute."""
    async with serving(2, values={"loadManagerClassName": manager}) as served:
        shell = Shell(served, capsys)
        served.brokers[1].sampler.disks = {
            "topics": Reading(930 * 1024, 1000 * 1024),
            "history, store": Reading(1024, 2 * 1024),
        }
        name = served.broker_id(1)

        async def disks() -> list[dict[str, Any]]:
            listed = {it["broker"]: it for it in await shell.json("brokers", "list")}
            return list(listed[name].get("disks", []))

        fullest, other = await eventually(disks, bool, within_s=20)
        assert (fullest["stored"], fullest["usedBytes"]) == ("topics", 930 << 30)
        assert (other["stored"], other["sizeBytes"]) == ("history, store", 2 << 30)
        _, out, _ = await shell.run("brokers", "list")
        header, *rows = out.splitlines()
        row = next(line for line in rows if line.startswith(name))
        end = header.index("DISK %") + len("DISK %")
        assert row[:end].split()[-1] == "93.0"
        status = (await shell.run("status"))[1]
        assert (
            f"the fullest disk is that of {name} with its topics: 93% full, 70.0 GiB free" in status
        )
        leading = served.brokers[0].use.leading
        assert isinstance(leading.findings, TermFindings)
        await leading.findings.step()
        told = (await shell.json("findings"))["findings"]
        (finding,) = [it for it in told if it["kind"] == "disk"]
        assert finding["title"] == f"The disk of {name} with its topics is 93% full"
        assert finding["title"] in (await shell.run("status"))[1]


async def test_a_leader_that_cannot_be_reached(capsys: pytest.CaptureFixture[str]) -> None:
    """Its process has ended, and its session is not known to be over: it is no good leader."""
    async with serving(2) as served:
        shell = Shell(served, capsys)
        await served.servers[0].stop()
        status, out, _ = await shell.run("brokers", "leader", at=1)
        assert (status, out.splitlines()[0].split()[0]) == (1, served.broker_id(0))
        assert "IT DOES NOT LEAD NOW: " in out
        assert f"{served.broker_id(0)} cannot be reached: connection refused" in out
        status, out, _ = await shell.run("brokers", "leader", "--json", at=1)
        assert (status, "cannot be reached" in json.loads(out)["why"]) == (1, True)
        status, out, _ = await shell.run("status", at=1)
        assert (status, out.startswith("THE LEADER DOES NOT ANSWER: ")) == (1, True)
        assert f"{served.broker_id(1)}: it is well; it owns no bundle" in out


async def test_options_may_stand_anywhere(capsys: pytest.CaptureFixture[str]) -> None:
    """Before the subject, between subject and action, after the action; an action keeps them."""
    async with serving() as served:
        url = served.url(0)
        with capture_logs():
            for words in (
                ["--json", "--url", url, "brokers", "list"],
                ["brokers", "--json", "--url", url, "list"],
                ["brokers", "list", "--json", "--url", url],
                ["--url", url, "brokers", "--json", "list"],
            ):
                capsys.readouterr()
                assert await asyncio.to_thread(main, ["admin", *words]) == 0, words
                assert len(json.loads(capsys.readouterr().out)) == 2, words


@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf", "soon"])
def test_a_timeout_is_more_than_0(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A wrong one is refused as usage, with what is expected."""
    assert main(["admin", "--timeout", text, "brokers", "list"]) == 2
    assert f"{text}: more than 0 seconds are expected" in capsys.readouterr().err


async def test_namespaces(capsys: pytest.CaptureFixture[str]) -> None:
    """Create with its tenant, look, list, unload, delete; a wrong request is refused with status 1
    and the broker's reason.
    """
    async with serving(values={"forceDeleteNamespaceAllowed": "true"}) as served:
        shell = Shell(served, capsys)
        status, out, _ = await shell.run(
            "namespaces", "create", "shop/cart", "--bundles", "2", "--create-tenant"
        )
        assert (status, out) == (0, "shop/cart created with 2 bundles")
        assert await shell.json("namespaces", "list") == [
            "acme/orders",
            "public/default",
            "shop/cart",
        ]
        assert await shell.json("namespaces", "list", "shop") == ["shop/cart"]
        assert (await shell.run("namespaces", "bundles", "shop/cart"))[1].split() == [
            "0x00000000_0x80000000",
            "0x80000000_0xffffffff",
        ]
        assert (await shell.json("namespaces", "policies", "shop/cart"))["bundles"][
            "numBundles"
        ] == 2
        assert (
            await shell.run(
                "namespaces", "create", "acme/b", "--boundaries", "0x00000000,0x10000000,0xffffffff"
            )
        )[0] == 0
        assert (await shell.json("namespaces", "bundles", "acme/b"))["boundaries"][
            1
        ] == "0x10000000"
        await served.own("shop/cart/0x00000000_0x80000000", at=1)
        assert (await shell.run("namespaces", "unload", "shop/cart"))[0] == 0
        assert (await shell.run("namespaces", "delete", "shop/cart", "--force"))[0] == 0
        for words, expected, said in (
            (("create", "acme/orders"), 1, "exists already"),
            (("create", "acme/c", "--bundles", "0"), 1, "from 1 to 50000"),
            (("delete", "acme/none"), 1, "does not exist"),
            (("policies", "no-slash"), 2, "tenant/namespace"),
        ):
            status, _, err = await shell.run("namespaces", *words)
            assert (status, said in err) == (expected, True), (words, err)


async def test_tenants(capsys: pytest.CaptureFixture[str]) -> None:
    """Create, change one of two lists, list, delete; what does nothing says so."""
    async with serving() as served:
        shell = Shell(served, capsys)
        assert (await shell.run("tenants", "create", "shop", "--admin-role", "ann"))[0] == 0
        assert (await shell.run("tenants", "update", "shop", "--admin-role", "bob"))[0] == 0
        shop = {"adminRoles": ["bob"], "allowedClusters": ["standalone"]}
        assert (await shell.json("tenants", "list"))["shop"] == shop
        for words, expected, said in (
            (("create", "shop"), 1, "already exist"),
            (("create", "mall", "--cluster", "west"), 1, "Clusters do not exist"),
            (("update", "shop"), 2, "nothing to change"),
            (("update", "mall", "--admin-role", "ann"), 1, "does not exist"),
            (("delete", "acme"), 1, "namespaces"),
        ):
            status, _, err = await shell.run("tenants", *words)
            assert (status, said in err) == (expected, True), (words, err)
        assert (await shell.run("tenants", "delete", "shop"))[:2] == (0, "shop deleted")
        assert "shop" not in await shell.json("tenants", "list")


async def test_topics_are_found_by_a_part_of_their_name(capsys: pytest.CaptureFixture[str]) -> None:
    """Those that are open, and those that are stored and not open."""
    topic, closed = (f"persistent://acme/orders/{name}" for name in ("found-open", "found-closed"))
    async with serving() as served:
        shell = Shell(served, capsys)
        await served.brokers[0].serve(TopicName.parse(topic))
        assert (await shell.run("topics", "create", closed))[0] == 0
        assert (await shell.run("topics", "unload", closed))[0] == 0
        status, out, _ = await shell.run("find", "FOUND-")
        rows = {line.split()[0]: line for line in out.splitlines() if line.startswith("persistent")}
        assert (status, rows.keys()) == (0, {topic, closed})
        assert served.broker_id(0) in rows[topic]
        assert "not open" in rows[closed]
        assert "topics stats" not in out
        for name in (topic, topic.partition("://")[2]):
            _, out, _ = await shell.run("find", name)
            assert f"who publishes and reads it: `loadmanager admin topics stats {topic}`" in out
        short, full = [
            await shell.run("bundles", "show", name) for name in ("acme/orders/found-open", topic)
        ]
        assert short[1].split(",")[0] == full[1].split(",")[0]
        status, out, err = await shell.run("decisions", "--bundle", topic)
        assert (status, out, err) == (1, "no decision that is still kept matches", "")
        assert (await shell.json("find", "orders/found-c"))["storedTopics"] == [closed]
        assert (await shell.run("find", "acme/nothing/found"))[0] == 1


async def test_settings(capsys: pytest.CaptureFixture[str]) -> None:
    """A key is set for all brokers, listed, and left to each broker.conf again."""
    key = "loadBalancerSheddingEnabled"
    async with serving() as served:
        shell = Shell(served, capsys)
        status, out, _ = await shell.run("settings", "list")
        assert (status, out.splitlines()[0]) == (0, "no key is set")
        assert "the settings in force are the same on 2 brokers" in out
        assert (await shell.run("settings", "set", key, "false"))[0] == 0
        same = await shell.run("settings", "set", key, "false")
        assert same[:2] == (1, f"{key} is false on all brokers already: nothing was done")
        assert await shell.json("settings", "list", at=1) == {key: "false"}
        every = await shell.json("settings", "list", "--all")
        changed = {name: every[key].pop(name) for name in ("changedAt", "changedBy", "before")}
        assert every[key] == {"value": "false", "from": "settings set", "default": "true"}
        assert (changed["changedBy"], changed["before"]) == ("127.0.0.1", None)
        assert isinstance(changed["changedAt"], int)
        split = every["loadBalancerAutoBundleSplitEnabled"]
        assert split == {"value": "true", "from": "default", "default": "true"}
        conf = every["loadBalancerReportUpdateMinIntervalMillis"]
        assert (conf["value"] is not None, conf["from"]) == (True, "--set")
        assert (await shell.run("settings", "unset", key))[0] == 0
        for words, expected, said in (
            (("unset", key), 1, "nothing was changed"),
            (("set", "clusterName", "x"), 1, "clusterName"),
            (("set", key, "perhaps"), 1, "perhaps"),
        ):
            status, _, err = await shell.run("settings", *words)
            assert (status, said in err) == (expected, True), (words, err)


async def test_what_settings_were(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each key that is not the default, with the default, who set it, when, and what it was; those
    that were unset; and in the audit log what each was before. With archives and without.
    """
    key, other = "loadBalancerSheddingGracePeriodMinutes", "loadBalancerSheddingEnabled"
    for values in ({}, in_folder(tmp_path)):
        async with serving(values=values) as served:
            shell = Shell(served, capsys)
            for value in ("5", "7"):
                assert (await shell.run("settings", "set", key, value))[0] == 0
            assert "balancing is on: " in (await shell.run("status"))[1]
            assert (await shell.run("settings", "set", other, "false"))[0] == 0

            async def whether_it_balances(shell: Shell = shell) -> str:
                return (await shell.run("status"))[1]

            out = await eventually(
                whether_it_balances, lambda it: "IS OFF since" in it, within_s=20
            )
            assert f" by 127.0.0.1 ({other}, which was not set)" in out
            assert (await shell.run("settings", "unset", other))[0] == 0
            out = await eventually(whether_it_balances, lambda it: "is on since" in it, within_s=20)
            assert f" by 127.0.0.1 ({other}, which was false): " in out

            async def audited(shell: Shell = shell) -> str:
                return (await shell.run("audit"))[1]

            out = await eventually(audited, lambda text: "gave " in text, within_s=20)
            for words in (
                f"set {key} to 5 (was not set)",
                f"set {key} to 7 (was 5)",
                f"gave {other} back to broker.conf (was false)",
            ):
                assert words in out
            _, out, _ = await shell.run("settings", "list")
            header, row, *_ = out.splitlines()
            names = ["KEY", "VALUE", "DEFAULT", "BEFORE", "SET", "BY", "AT"]
            assert header.split() == names
            assert row.split()[:5] == [key, "7", "30", "5", "127.0.0.1"]
            assert f"{other} was false until " in out
            assert ", unset by 127.0.0.1" in out
            conf = "loadBalancerReportUpdateMinIntervalMillis "
            own = next(it for it in out.splitlines() if it.startswith(conf))
            assert own.split()[-1] == "--set"


async def test_groups(capsys: pytest.CaptureFixture[str]) -> None:
    """Limits that are not given stay; a namespace joins and leaves."""
    async with serving() as served:
        shell = Shell(served, capsys)
        assert (await shell.run("groups", "set", "gold", "--publish-messages", "10"))[0] == 0
        assert (await shell.run("groups", "set", "gold", "--dispatch-bytes", "20"))[0] == 0
        gold = (await shell.json("groups", "list"))["gold"]
        assert (gold["publishRateInMsgs"], gold["dispatchRateInBytes"]) == (10, 20)
        assert (await shell.run("groups", "join", "acme/orders", "gold"))[0] == 0
        for words in (("join", "acme/orders", "gold"), ("set", "gold", "--dispatch-bytes", "20")):
            status, out, _ = await shell.run("groups", *words)
            assert (status, "already: nothing was done" in out) == (1, True)
        for words, expected, said in (
            (("set", "gold"), 2, "give a limit"),
            (("join", "acme/orders", "lead"), 1, "lead"),
            (("delete", "gold"), 1, "in use"),
        ):
            status, _, err = await shell.run("groups", *words)
            assert (status, said in err) == (expected, True), (words, err)
        assert (await shell.run("groups", "leave", "acme/orders"))[1] == "acme/orders left gold"
        assert (await shell.run("groups", "leave", "acme/orders"))[0] == 1
        assert (await shell.run("groups", "delete", "gold"))[0] == 0
        assert (await shell.run("groups", "list"))[1] == "no resource group"


async def test_topics_are_created_and_deleted(capsys: pytest.CaptureFixture[str]) -> None:
    """With and without partitions; unloading what is open."""
    async with serving() as served:
        shell = Shell(served, capsys)
        status, out, _ = await shell.run("topics", "create", "acme/orders/one")
        assert (status, out.endswith(" serves it")) == (0, True)
        assert list(served.brokers[0].throttling.topics) or served.brokers[1].throttling.topics
        assert (await shell.run("topics", "create", "acme/orders/two", "--partitions", "2"))[0] == 0
        assert len(await shell.json("topics", "list", "acme/orders")) == 3
        for words, expected, said in (
            (("create", "acme/orders/one"), 1, "already exists"),
            (("create", "acme/orders/two", "--partitions", "2"), 1, "already exists"),
            (("create", "acme/orders/x", "--partitions", "-1"), 1, "partitions"),
            (("create", "non-persistent://acme/orders/x"), 1, "attached"),
            (("delete", "acme/orders/none"), 1, "not found"),
        ):
            status, _, err = await shell.run("topics", *words)
            assert (status, said in err) == (expected, True), (words, err)
        assert (await shell.run("topics", "unload", "acme/orders/one"))[0] == 0
        for name in ("one", "two"):
            assert (await shell.run("topics", "delete", f"acme/orders/{name}"))[0] == 0
        assert await shell.json("topics", "list", "acme/orders") == []
        assert (await shell.run("topics", "list", "acme/orders"))[1] == "no topic in acme/orders"


async def test_bundles(capsys: pytest.CaptureFixture[str]) -> None:
    """The list spans all brokers; unload and split follow the redirect to the owner with method and
    body.
    """
    async with serving() as served:
        shell = Shell(served, capsys)
        await served.own(FIRST, at=1)
        await served.own("acme/orders/0x40000000_0x80000000", at=0)
        listed = await shell.json("bundles", "list", "acme/orders")
        assert [row["owner"] for row in await shell.json("bundles", "list")][:4] == [
            row["owner"] for row in listed
        ]
        assert [row["owner"] for row in listed] == [
            served.broker_id(1),
            served.broker_id(0),
            None,
            None,
        ]
        assert (await shell.run("bundles", "list", "acme/orders"))[1].splitlines()[1].split()[
            :2
        ] == [FIRST, served.broker_id(1)]
        how = ("--at", "0x10000000")
        assert (await shell.run("bundles", "split", FIRST, *how, "--algorithm", "x"))[0] == 2
        status, _, error = await shell.run("bundles", "split", FIRST, *how)
        assert (status, "is not split: specified_positions_divide needs two" in error) == (1, True)
        await served.open_two_topics("0x00000000_0x40000000", at=1)
        by_load = ("--algorithm", "flow_or_qps_equally_divide")
        status, _, error = await shell.run("bundles", "split", FIRST, *by_load)
        assert (status, "loadBalancerNamespaceBundleMaxMsgRate" in error) == (1, True)
        split = await shell.json("bundles", "split", FIRST, *how)
        assert split["boundaries"] == ["0x10000000"]
        low = "acme/orders/0x00000000_0x10000000"
        assert served.owners()[low] == served.broker_id(1)
        assert (await shell.run("bundles", "unload", low))[0] == 0
        assert low not in served.owners()
        await served.own(low, at=0)
        assert (await shell.run("bundles", "unload", low, "--to", served.broker_id(1), at=1))[
            0
        ] == 0
        assert served.owners()[low] == served.broker_id(1)
        assert (await shell.run("bundles", "unload", low, "--to", "nobody:1"))[0] == 1
        assert (await shell.run("bundles", "split", FIRST, "--at", "middle"))[0] == 2
        for name, at, why in (
            (low, "0x10000000", "--at 0x10000000 does not lie between"),
            (low, "0", "the boundaries of the bundle, 0x00000000_0x10000000"),
            (low, "0xf0000000", "--at 0xf0000000 does not lie between"),
            ("acme/orders/HOT", "0x1", "--at needs the bundle that it lies in, not HOT"),
        ):
            status, _, error = await shell.run("bundles", "split", name, "--at", "0x1", "--at", at)
            assert (status, why in error) == (2, True), error
        largest = await shell.json("bundles", "split", "acme/orders/LARGEST", "--unload")
        parent = largest["bundle"].removeprefix("acme/orders/")
        assert parent.split("_")[0] < largest["boundaries"][0] < parent.split("_")[1]


def test_the_boundaries_of_a_split_are_awaited() -> None:
    """The asked broker hears of them a moment after the owner wrote them."""
    before, after = ["0x00000000", "0xffffffff"], ["0x00000000", "0x80000000", "0xffffffff"]
    answers = iter([before, before, after])
    assert added_boundaries(lambda: next(answers), before) == ["0x80000000"]


async def test_an_unload_without_an_owner_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    """The output of an unload names the former owner, or says that there was none; the range may be
    in capitals.
    """
    async with serving() as served:
        shell = Shell(served, capsys)
        await served.own(FIRST, at=1)
        already = await shell.run("bundles", "unload", FIRST, "--to", served.broker_id(1))
        text = f"{FIRST} is at {served.broker_id(1)} already: nothing to unload"
        assert already[:2] == (1, text)
        upper = FIRST.replace("0x4", "0X4")
        assert (await shell.run("bundles", "unload", upper))[:2] == (
            0,
            f"{upper} unloaded from {served.broker_id(1)}; the next lookup places it",
        )
        status, out, _ = await shell.run("bundles", "unload", FIRST)
        assert (status, out) == (1, f"{FIRST} has no owner: nothing to unload")
        status, out, _ = await shell.run("bundles", "unload", FIRST, "--json")
        assert (status, json.loads(out)) == (1, {"unloaded": False})
        there = await shell.run("bundles", "unload", FIRST, "--to", served.broker_id(1))
        assert there[1].endswith(
            f"nothing to unload; the next lookup places it on {served.broker_id(1)}"
        )
        unload = await shell.run("namespaces", "unload", "acme/orders")
        assert unload[:2] == (1, "acme/orders: no bundle has an owner: nothing to unload")
        await served.own(FIRST, at=1)
        assert (await shell.json("namespaces", "unload", "acme/orders"))["unloaded"] == [FIRST]


async def test_limits_of_an_idle_namespace(capsys: pytest.CaptureFixture[str]) -> None:
    """They are set and not in use: the list says where they are shown, and has them while a topic
    is open.
    """
    async with serving(1) as served:
        shell = Shell(served, capsys)
        set_ = await shell.run("limits", "set", "acme/orders", "publishRate", "--messages", "7")
        assert set_[0] == 0
        status, said, _ = await shell.run("limits", "list")
        assert (status, said.partition(":")[0]) == (0, "no limits are in use")
        assert said.endswith("`limits show TENANT/NAMESPACE` has what is set")
        shown = await shell.run("limits", "show", "acme/orders")
        assert "publishThrottlingRateInMsg=7" in shown[1]
        await served.open_two_topics("0x00000000_0x40000000")
        assert "acme/orders" in (await shell.run("limits", "list"))[1]


async def test_a_broker_that_does_not_answer_costs_its_rows(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Tables of all brokers show the others, say who is missing, and exit with 1."""
    async with serving() as served:
        shell = Shell(served, capsys)
        await served.own(FIRST, at=0)
        gone = served.broker_id(1)
        await served.servers[1].stop()
        for words in (("brokers", "report"), ("bundles", "list"), ("limits", "list")):
            status, out, err = await shell.run(*words)
            said = f"{gone} is left out: {gone} cannot be reached: "
            assert (status, said in err) == (1, True), (words, err)
            assert gone not in out
        rows = [line.split() for line in (await shell.run("bundles", "list"))[1].splitlines()]
        owners = {row[0]: row[1] for row in rows if row[0].startswith("acme/orders/")}
        assert owners.pop(FIRST) == served.broker_id(0)
        assert set(owners.values()) == {"?"}  # the other one may own them
        for words in (("bundles", "unload", min(owners)), ("namespaces", "unload", "acme/orders")):
            assert "no owner" not in (await shell.run(*words))[1]


async def test_a_peer_that_answers_something_else_costs_its_rows(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """An answer 200 that is not JSON is as good as none."""

    class Web(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"<html>")

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    async with serving() as served:
        shell = Shell(served, capsys)
        gone = served.broker_id(1)
        await served.servers[1].stop()
        port = int(gone.rpartition(":")[2])
        with ThreadPoolExecutor() as pool, HTTPServer(("127.0.0.1", port), Web) as other:
            pool.submit(other.serve_forever)
            status, out, err = await shell.run("brokers", "report")
            other.shutdown()
        assert (status, f"{gone} is left out" in err, "did not answer with JSON" in err) == (
            1,
            True,
            True,
        )
        assert served.broker_id(0) in out


async def test_changing_nothing_fails(capsys: pytest.CaptureFixture[str]) -> None:
    """A limit or a policy that does not exist is not reported as removed, nor one as set that was
    so before.
    """
    async with serving() as served:
        shell = Shell(served, capsys)
        assert (await served.ask("PUT", "/admin/v2/persistent/acme/orders/t")).status == 204
        for of in ("acme/orders", "acme/orders/t"):
            removal = ("limits", "remove", of, "publishRate")
            status, out, err = await shell.run(*removal)
            assert (status, out, "nothing was removed" in err) == (1, "", True)
            assert (await shell.run("limits", "set", of, "publishRate", "--messages", "5"))[0] == 0
            assert (await shell.run(*removal))[:2] == (0, f"publishRate of {of} removed")
        await shell.run("limits", "set", "acme/orders", "publishRate", "--messages", "5")
        _, _, err = await shell.run("limits", "remove", "acme/orders/t", "publishRate")
        there = "it has that of acme/orders: `limits remove acme/orders publishRate`"
        assert err.strip().endswith(
            f"acme/orders/t has no publishRate of its own: nothing was removed; {there}"
        )
        deletion = ("isolation", "delete", "gold")
        status, out, err = await shell.run(*deletion)
        assert (status, out, "gold does not exist" in err) == (1, "", True)
        set_ = ("isolation", "set", "gold", "--namespaces", "gold/.*", "--primary", ".*")
        assert (await shell.run(*set_))[0] == 0
        said = "isolation policy gold is so already: nothing was done"
        assert (await shell.run(*set_))[:2] == (1, said)
        assert (await shell.run(*set_, "--unload", "all_matching"))[0] == 0
        assert (await shell.run(*set_))[0] == 0
        assert (await shell.run(*deletion))[:2] == (0, "isolation policy gold deleted")


async def test_topics(capsys: pytest.CaptureFixture[str]) -> None:
    """Lookups through any broker end at the owner, for short and full names and for names that must
    be encoded.
    """
    async with serving() as served:
        shell = Shell(served, capsys)
        found = await shell.json("topics", "lookup", "acme/orders/a b/c", at=1)
        assert found["topic"] == "persistent://acme/orders/a b/c"
        assert found["httpUrl"] in (served.url(0), served.url(1))
        assert f"acme/orders/{found['bundle']}" in served.owners()
        for topic, why in (
            ("persistent://acme/orders/a b/c", "no such topic here"),
            ("persistent://acme/orders/t-partition-1", "no such topic here"),
            ("non-persistent://acme/orders/t", "nobody has it open"),
        ):
            status, out, _ = await shell.run("topics", "lookup", topic)
            first, _, header, row = out.splitlines()
            assert (status, first) == (0, f"{why}: it would be served by")
            assert (header.split()[0], row.startswith(topic)) == ("TOPIC", True)
            assert (await shell.json("topics", "lookup", topic))["exists"] is False
        assert await shell.json("topics", "list", "acme/orders") == []
        status, _, err = await shell.run("topics", "partitions", "acme/orders/t")
        assert (status, "Topic persistent://acme/orders/t not found" in err) == (1, True)
        assert (await shell.run("topics", "create", "acme/orders/t", "--partitions", "3"))[0] == 0
        assert (await shell.run("topics", "partitions", "acme/orders/t"))[1] == "3"
        assert len(await shell.json("topics", "list", "acme/orders")) == 3
        found = await shell.json("topics", "lookup", "acme/orders/t", at=1)
        names = [f"persistent://acme/orders/t-partition-{number}" for number in range(3)]
        assert [each["topic"] for each in found["partitions"]] == names
        for each in found["partitions"]:
            owner = served.owners()[f"acme/orders/{each['bundle']}"]
            assert each["httpUrl"] == f"http://{owner}"
        (_, out, _) = await shell.run("topics", "lookup", names[1])
        assert len(out.splitlines()) == 2
        beyond = "acme/orders/t-partition-3"
        assert (await shell.run("topics", "lookup", beyond))[1].startswith("no such topic here: ")
        assert (await shell.run("topics", "create", "acme/orders/one"))[0] == 0
        (_, out, _) = await shell.run("topics", "lookup", "acme/orders/one")
        assert len(out.splitlines()) == 2
        stats = (await shell.run("topics", "stats", "acme/orders/t"))[1]
        assert stats.startswith("3 partitions, in sum:\n")
        status, _, err = await shell.run("limits", "why", "acme/orders/none")
        assert (status, "Topic persistent://acme/orders/none not found" in err) == (1, True)
        assert (await shell.run("topics", "stats", "acme/orders/none"))[0] == 1


async def test_topic_stats(capsys: pytest.CaptureFixture[str]) -> None:
    """Figures, then a table of subscriptions and one of producers."""
    async with with_messages() as (served, _):
        status, out, _ = await Shell(served, capsys).run("topics", "stats", "acme/orders/t")
        figures, subscriptions, producers = out.split("\n\n")
        assert status == 0
        told = {name: rest for name, *rest in map(str.split, figures.splitlines()[:20])}
        assert told["msgInCounter"] == ["11"]
        assert told["msgRateIn"][1:] == ["messages/s"]
        assert told["msgThroughputIn"][1:] == ["bytes/s"]
        assert told["storageSize"][1:] == ["bytes"]
        assert told["publishRateLimitedTimes"] == ["0"]
        assert subscriptions.splitlines()[1].split() == ["s", "None", "9", "0", "0.0", "0"]
        assert producers.splitlines()[0].split()[:3] == ["PRODUCER", "ADDRESS", "ACCESS"]


def test_what_no_subscription_is_to_read() -> None:
    """Is in no backlog: `topics stats` says so, and `topics busiest` while it grows."""
    assert unread_text({}, 2048).startswith("no subscription is to read the 2,048 bytes that are ")
    assert unread_text({}, 0) == unread_text({"s": {}}, 2048) == ""

    def topic(name: str, subscriptions: int | None, stored_bytes: int | None) -> BusyTopic:
        rates = dict.fromkeys(("rate_in", "rate_out", "bytes_in", "bytes_out"), 1.0)
        return BusyTopic(
            topic=name, bundle="b", producers=1, consumers=0,
            subscriptions=subscriptions, stored_bytes=stored_bytes, **rates,
        )  # fmt: skip

    read = [topic("read", 1, 9), topic("in memory", 0, 0), topic("earlier version", None, None)]
    assert unread_note(read) == []
    more = [topic(f"t{number}", 0, 9) for number in range(5)]
    (note,) = unread_note([*read, *more])
    assert note == "stored, and no subscription is to read it: t0, t1, t2 and 2 more"


async def test_decisions_dry_run(capsys: pytest.CaptureFixture[str]) -> None:
    """Any broker redirects these commands to the leader."""
    async with serving() as served:
        shell = Shell(served, capsys)
        assert (await shell.run("decisions", at=1))[1] == "no decision yet"
        await shell.run("topics", "lookup", "acme/orders/t")
        (decision,) = (await shell.json("decisions", "--limit", "1", at=1))["decisions"]
        assert (decision["kind"], decision["bundle"].rpartition("/")[0]) == ("place", "acme/orders")
        decided = datetime.fromtimestamp(decision["ts"] // 1000, UTC)
        head, *fields = (await shell.run("decisions"))[1].splitlines()
        placed = f"{decision['bundle']} placed on {decision['broker']}"
        assert head == f"{decided:%Y-%m-%d %H:%M:%S}Z  {decision['id']}  {placed}"
        assert fields[0].strip() == "one of 2 equally good brokers"
        dry = (await shell.run("dry-run", at=1))[1]
        assert "0 bundles would move" in dry
        assert "paused" not in dry
        assert (await shell.json("dry-run"))["paused"] is None
        assert (await shell.run("moves", "pause", "10m", "--note", "look"))[0] == 0
        *_, paused, advice = (await shell.run("dry-run", at=1))[1].splitlines()
        assert paused.startswith("moves are paused until ")
        assert " (look; by 127.0.0.1), since " in paused
        assert advice.endswith("`loadmanager admin moves resume` ends the pause")
        assert (await shell.json("dry-run"))["paused"]["note"] == "look"


async def test_goals(capsys: pytest.CaptureFixture[str]) -> None:
    """What is reached needs no order; a goal is one; limits and times are said as people do."""
    async with serving() as served:
        shell = Shell(served, capsys)
        assert (await shell.run("goals", "list", at=1))[1] == "no goal was proposed yet"

        async def proposed(*options: str) -> tuple[int, str, str]:
            return await shell.run("goals", "propose", *options, at=1)

        # until the leader knows the load
        _, out, _ = await eventually(lambda: proposed("--even", "99"), lambda done: done[0] == 0)
        assert "is reached already: nothing has to be moved" in out
        for wrong in ((), ("--even", "5", "--spare"), ("--even", "5", "--by", "noon")):
            assert (await shell.run("goals", "propose", *wrong))[0] == 2
        for option in ("--even", "--max-traffic", "--max-clients", "--max-client-seconds"):
            for number in ("nan", "inf", "-1"):
                status, _, err = await shell.run("goals", "propose", "--spare", option, number)
                assert (status, f"Invalid value for '{option}'" in err) == (2, True)
        status, _, err = await shell.run("goals", "propose", "--fill", "nobody:1")
        assert (status, "nobody:1 is not active" in err) == (1, True)
        status, _, err = await shell.run("goals", "propose", "--spare", "--window", "noon")
        assert (status, "Mon-Fri 22:00-06:00 Europe/Berlin" in err) == (1, True)
        names = list((await served.brokers[0].use.namespaces.bundles(ORDERS)).names)
        await served.own(*names, at=1)
        reports = served.brokers[0].use.brokers.reports
        await until(lambda: set(names) <= set(reports[served.broker_id(1)].bundles))
        empty = ("--empty", served.broker_id(1), "--max-moves", "2", "--by", "2h", "--note", "why")
        # until its report has the bundles
        _, out, _ = await eventually(
            lambda: proposed(*empty, "--stay", names[0]), lambda done: done[0] == 0
        )
        assert "2 moves; ends at its limits, before the goal: that of moves" in out
        assert "it takes about " in out
        end = "the looks by which it ends 60 s, at most: none is measured yet in this term"
        assert end in out
        assert "the model's usages were off by " in out
        bounds = ("to be done by 20", "at most 2 moves", f"stay: {names[0]}", "note: why")
        assert [text for text in bounds if text not in out] == []
        (goal, _) = (await shell.json("goals", "list"))["goals"]
        assert f"approve with: loadmanager admin goals approve {goal['id']}" in out
        assert goal["limits"]["stay"] == [names[0]]
        status, out, _ = await shell.run("goals", "approve", goal["id"], "--at", "1h")
        assert (status, "is approved and carried out from 20" in out) == (0, True)
        assert "that were shown may be made, within its limits" in out
        assert "; what was planned does not reach it, and it goes on as far as fresh" in out
        assert f"{served.broker_id(1)} is cordoned: it takes no bundles" in out
        assert "it takes about " in out
        status, out, _ = await shell.run("goals", "show", goal["id"])
        assert "approved" in out
        assert [text for text in (*bounds, "no move before 20") if text not in out] == []
        assert "at most 2 moves; stay: " in " ".join((await shell.run("goals", "list"))[1].split())
        assert "it takes about " in out
        assert "the pause of a client counts as 1 s: assumed" in out
        assert "the model's usages were off by " in out
        status, out, _ = await shell.run("goals", "stop", goal["id"])
        assert (status, f"goal {goal['id']} is stopped; 0 moves made" in out) == (0, True)
        assert f"loadmanager admin brokers uncordon {goal['goal']['broker']}" in out
        assert (await shell.run("goals", "stop", goal["id"]))[0] == 1
        assert (await shell.run("brokers", "uncordon", served.broker_id(1)))[0] == 0
        status, out, _ = await proposed(*empty, "--from", "1h", "--approve")
        assert (status, " is approved and carried out from 20" in out) == (0, True)
        assert f"{served.broker_id(1)} is cordoned: it takes no bundles" in out
        (other,) = (it for it in (await shell.json("goals", "list"))["goals"] if it["id"] in out)
        assert (await shell.run("goals", "stop", other["id"]))[0] == 0
        for verb in ("show", "approve", "stop"):
            for nothing in ("", ".", ".."):
                status, _, err = await shell.run("goals", verb, nothing)
                assert (status, "is no goal: `goals list` has their ids" in err) == (2, True)
        await says_what_came_later(served, shell, goal["id"])


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0 s"), (0.272, "0.272 s"), (2.596, "2.6 s"), (1234.5, "1234 s")]
)
def test_short_waits_are_not_rounded_to_nothing(seconds: float, text: str) -> None:
    """Four clients of 68 ms wait, too."""
    assert seconds_text(seconds) == text


async def says_what_came_later(served: Served, shell: Shell, order_id: str) -> None:
    """Of a goal that was not reached any more some minutes after its end."""
    (goals,) = (
        broker.use.leading.operations.goals
        for broker in served.brokers
        if broker.use.leading.operations is not None
    )
    assert isinstance(goals, TermGoals)
    wishes = goals.moves.cluster.wishes
    order = wishes.goals[order_id]
    after = Afterwards((order.ended_ms or 0) + 1, 0.1, 0.54, reached=False, error=0.03)
    ended = msgspec.structs.replace(order, ended=REACHED, afterwards=after)
    await wishes.set_goal(order_id, ended, ())
    for command in (("list",), ("show", order_id)):
        _, out, _ = await shell.run("goals", *command)
        words = " ".join(out.split())
        assert "Reached: the goal is reached; no longer so at 1970-" in words
        off = "54.0 points, by usages that were off by 3.0 points on the mean"
        assert (off in words) is (command[0] == "show")
        assert (
            "54.0 points from the mean" not in words
        )  # it has bundles again: that is another goal
    whole = msgspec.structs.replace(order.promise, reached=True, ends=REACHED)
    stopped = msgspec.structs.replace(
        ended, ended=Reason("Stopped", "by an operator"), promise=whole
    )
    await wishes.set_goal(order_id, stopped, ())
    for command in (("list",), ("show", order_id)):
        _, out, _ = await shell.run("goals", *command)
        assert "Stopped: by an operator" in " ".join(out.split())
        assert "no longer so" not in " ".join(out.split())  # it never was
    assert "2 moves promised, to reach the goal" in out
    assert "reaches the goal" not in out
    assert "when sensors had settled" in out
    reached_again = msgspec.structs.replace(ended, ended_ms=after.at_ms + 1)
    await wishes.set_goal(order_id, reached_again, ())
    _, out, _ = await shell.run("goals", "show", order_id)
    assert "when sensors had settled" not in out
    again = msgspec.structs.replace(ended, state="approved", ended=None, ended_ms=None)
    await wishes.set_goal(order_id, again, ())
    _, out, _ = await shell.run("goals", "show", order_id)
    assert "approved: goes on: it had ended as reached; no longer so at 1970-" in out


async def test_drain(capsys: pytest.CaptureFixture[str]) -> None:
    """Every bundle of the broker moves elsewhere, and it stays cordoned; with --stop it is told to
    stop; an unknown broker and the last broker are refused.
    """
    async with serving(3) as served:
        shell = Shell(served, capsys)
        names = list((await served.brokers[0].use.namespaces.bundles(ORDERS)).names)
        await served.own(*names, at=1)
        assert (await shell.run("drain", served.broker_id(1)))[0] == 0
        again = await shell.run("drain", served.broker_id(1))
        assert (again[0], "is drained already: nothing was done" in again[1]) == (1, True)
        done = await shell.json("drain", served.broker_id(1), "--stop")
        assert (done["state"], done["moved"], done["left"]) == ("drained", len(names), 0)
        assert sorted(served.owners().values()) == sorted(
            [served.broker_id(0), served.broker_id(2)] * 2
        )
        assert served.brokers[1].stopped_with == [0]
        assert (await shell.run("drain", "nobody:1"))[0] == 1
    async with serving(1) as served:
        assert (await Shell(served, capsys).run("drain", served.broker_id(0)))[0] == 1


async def test_a_drain_names_what_is_pinned(capsys: pytest.CaptureFixture[str]) -> None:
    """It moves all the same, and the pin is left. One that is pinned there and is elsewhere is not
    named: the drain does not move it.
    """
    async with serving(2) as served:
        shell, there = Shell(served, capsys), served.broker_id(1)
        await served.own(FIRST, SECOND, at=1)
        await shell.run("bundles", "pin", FIRST, "2h", "--note", "big")
        status, out, _ = await shell.run("drain", there, "--no-wait")
        told = "(big; by 127.0.0.1): the drain moves it all the same, and leaves the pin"
        first, second = out.splitlines()
        assert (status, first.startswith(f"{FIRST} is pinned to {there} until ")) == (0, True)
        assert first.endswith(told)
        assert second.startswith(f"{there} drains")
        here = served.broker_id(0)
        await until(lambda: served.owners() == {FIRST: here, SECOND: here})
        status, _, err = await shell.run("drain", there, "--note", "again")
        assert (status, "is pinned" in err) == (0, False)
        assert set(served.owners().values()) == {here}
        assert (await shell.json("bundles", "pins"))[FIRST]["broker"] == there
        await shell.run("brokers", "uncordon", there)
        await shell.run("bundles", "pin", SECOND, "2h", "--note", "big")
        status, _, err = await shell.run("drain", here)
        assert (status, f"{SECOND} is pinned to {here}" in err, told in err) == (0, True, True)
        assert FIRST not in err


async def test_a_drain_says_that_moves_are_paused(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing of it goes on before the pause is over, unless there is nothing to move."""
    async with serving(2) as served:
        shell, there = Shell(served, capsys), served.broker_id(1)
        await served.own(FIRST, at=1)
        await shell.run("moves", "pause", "2h", "--note", "release")
        status, out, _ = await shell.run("drain", there, "--no-wait")
        drains, paused = out.splitlines()
        assert (status, drains.startswith(f"{there} drains")) == (0, True)
        assert paused.startswith("moves are paused until ")
        assert "(release; by 127.0.0.1), since " in paused
        assert paused.endswith(
            ": this drain waits for its end, or for `loadmanager admin moves resume`"
        )
        await shell.run("moves", "resume")
        await until(lambda: served.owners() == {FIRST: served.broker_id(0)})
        status, out, _ = await shell.run("drain", there, "--no-wait", "--note", "again")
        assert (status, "paused" in out) == (0, False)


async def test_a_drain_outlives_the_absence_of_a_leader(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The command says what is wrong, asks again, and waits for the end of the drain: from its
    first question on, and no longer than it is told to.
    """
    async with serving(3) as served:
        names = list((await served.brokers[0].use.namespaces.bundles(ORDERS)).names)
        await served.own(*names, at=1)
        served.brokers[0].store.suspend()
        hasty = ("drain", served.broker_id(1), "--within", "1s")
        status, _, err = await Shell(served, capsys).run(*hasty, at=1)
        assert (status, "; asking again" in err) == (1, True)
        shell, told = Shell(served, capsys), ""
        draining = asyncio.create_task(shell.run("drain", served.broker_id(1), at=1))
        while "; asking again" not in told and not draining.done():
            await asyncio.sleep(0.05)
            told += capsys.readouterr().err
        assert "answered 503" in told
        served.brokers[0].store.resume()
        status, out, err = await draining
        assert (status, "is drained: 4 bundles moved" in out) == (0, True), (out, err)


async def test_a_move_with_a_pin(capsys: pytest.CaptureFixture[str]) -> None:
    """It is done when the command ends; the pin is listed with its end, and removed."""
    async with serving() as served:
        shell = Shell(served, capsys)
        await served.own(FIRST, at=0)
        there = served.broker_id(1)
        status, out, _ = await shell.run("bundles", "move", FIRST, "--to", there, "--pin", "2h")
        assert (
            status,
            out.startswith(f"{FIRST} moved from {served.broker_id(0)} to {there}, p"),
        ) == (
            0,
            True,
        )
        assert "; pinned until " in out
        assert served.owners() == {FIRST: there}
        assert (await shell.json("bundles", "pins", at=1))[FIRST]["broker"] == there
        _, out, _ = await eventually(
            lambda: shell.run("bundles", "pins"),
            lambda done: [FIRST, there, there] == done[1].splitlines()[1].split()[:3],
        )
        assert "NOW AT" in out.splitlines()[0]
        assert (await shell.run("bundles", "unpin", FIRST))[0] == 0
        assert (await shell.run("bundles", "unpin", FIRST))[0] == 1
        assert (await shell.run("bundles", "pins"))[1] == "no bundle is pinned"
        status, out, _ = await shell.run("bundles", "pin", FIRST, "90s", "--note", "hot")
        assert (status, f"{FIRST} stays at {there}; pinned until " in out) == (0, True)
        assert (await shell.json("bundles", "pins"))[FIRST]["note"] == "hot"
        _, out, _ = await shell.run("bundles", "pin", FIRST, "60s")
        assert f"; before, it was pinned to {there} until " in out
        assert out.endswith("(hot; by 127.0.0.1)")
        await shell.run("moves", "pause", "5m", "--note", "freeze")
        _, out, _ = await shell.run("moves", "pause", "1m")
        assert "; before, moves were paused until " in out
        assert " (freeze; by 127.0.0.1), since " in out
        assert (await shell.run("moves", "resume"))[0] == 0
        assert (await shell.run("bundles", "pin", SECOND, "90s"))[0] == 1
        status, out, _ = await shell.run("bundles", "move", FIRST, "--to", there)
        assert (status, out.startswith(f"{there} owns it already; still pinned until ")) == (
            1,
            True,
        )
        assert (await shell.run("bundles", "move", FIRST, "--to", there, "--pin", "soon"))[0] == 2
        assert (await shell.run("bundles", "move", FIRST, "--to", "nobody:1"))[0] == 1


async def test_a_pin_is_not_forgotten_over_a_move(capsys: pytest.CaptureFixture[str]) -> None:
    """Moves and unloads to another broker take the pin along; each says so, and so does an unload
    after which the bundle comes back.
    """
    async with serving() as served:
        shell = Shell(served, capsys)
        await served.own(FIRST, at=0)
        here, there = served.broker_id(0), served.broker_id(1)
        assert (await shell.run("bundles", "pin", FIRST, "2h"))[0] == 0
        _, out, _ = await shell.run("bundles", "move", FIRST, "--to", there)
        assert "; still pinned until " in out
        _, out, _ = await shell.run("bundles", "unload", FIRST, "--to", here)
        assert f"unloaded from {there} to {here}; pinned to {here} until " in out
        _, out, _ = await shell.run("bundles", "unload", FIRST)
        assert f"the next lookup places it; pinned to {here} until " in out
        assert (await shell.run("bundles", "unpin", FIRST))[0] == 0
        await served.own(FIRST, at=0)
        assert "pin" not in (await shell.run("bundles", "unload", FIRST))[1]


async def test_moves(capsys: pytest.CaptureFixture[str]) -> None:
    """Listed with their outcomes; paused, cancelled, resumed; what does nothing says so."""
    async with serving() as served:
        shell = Shell(served, capsys)
        await served.own(FIRST, at=0)
        await shell.run("bundles", "move", FIRST, "--to", served.broker_id(1))
        header, row = (await shell.run("moves", "list", at=1))[1].splitlines()
        assert header.split()[:3] == ["ID", "STATE", "BUNDLE"]
        assert (row.split()[1], "operator" in row, row.endswith("moved")) == ("done", True, True)
        assert (await shell.run("moves", "resume"))[:2] == (1, "moves were not paused")
        assert "at most 366 days is" in (await shell.run("moves", "pause", "367d"))[2]
        assert (await shell.run("moves", "pause", "10m", "--note", "look"))[0] == 0
        for words in (("moves", "list"), ("status",)):
            out = (await shell.run(*words))[1]
            assert "moves are paused until " in out
            assert " (look; by 127.0.0.1), since " in out
        await shell.run("drain", served.broker_id(1), "--no-wait")
        async with asyncio.timeout(60):
            while (await shell.json("moves", "list"))["waiting"] == 0:
                await asyncio.sleep(0.05)
        assert "left, moves are paused" in (await shell.run("brokers", "list"))[1]
        drained = f"no new bundles: {served.broker_id(1)} is draining (by 127.0.0.1)"
        assert drained in (await shell.run("status"))[1]
        cordon = await shell.run("brokers", "cordon", served.broker_id(1))
        assert (cordon[0], "cordoned already, and drains: nothing" in cordon[1]) == (1, True)
        assert " waits since 1970-01-01 " in (await shell.run("moves", "list"))[1]
        waiting = (await shell.json("moves", "list"))["moves"][0]["id"]
        status, out, _ = await shell.run("moves", "cancel", waiting)
        assert (status, out.startswith("1 move cancelled; a drain queues its moves")) == (0, True)
        assert f"brokers uncordon {served.broker_id(1)}`" in out
        nothing = await shell.run("moves", "cancel", "--all")
        assert nothing[:2] == (1, "no move waits: nothing to cancel")
        assert (await shell.run("moves", "cancel"))[0] == 2
        assert (await shell.run("moves", "resume"))[:2] == (0, "moves go on")


async def test_merge(capsys: pytest.CaptureFixture[str]) -> None:
    """Two neighbours become one; no neighbours are refused."""
    async with serving() as served:
        shell = Shell(served, capsys)
        first, second, third = (
            "0x00000000_0x40000000",
            "0x40000000_0x80000000",
            "0x80000000_0xc0000000",
        )
        done = await shell.run("bundles", "merge", "acme/orders", first, second)
        merged = "acme/orders/0x00000000_0x80000000"
        assert done[:2] == (0, f"{first} and {second} are {merged} now")
        assert list(served.owners()) == [merged]
        assert (await shell.run("bundles", "merge", "acme/orders", first, third))[0] == 1


async def test_cordon(capsys: pytest.CaptureFixture[str]) -> None:
    """Shown in the list of brokers, with a note; undone once."""
    async with serving() as served:
        shell = Shell(served, capsys)
        there = served.broker_id(1)
        assert (await shell.run("brokers", "cordon", there, "--note", "disk"))[0] == 0
        status, out, _ = await shell.run("brokers", "cordon", there)
        assert (status, out) == (1, f"{there} is cordoned already: nothing was done")
        listed = {item["broker"]: item for item in await shell.json("brokers", "list")}
        assert (listed[there]["cordon"]["state"], listed[there]["active"]) == ("cordoned", True)
        assert f"{there}" in (await shell.run("brokers", "list"))[1]
        assert "cordoned (disk; ordered by 127.0.0.1)" in (await shell.run("brokers", "list"))[1]
        await shell.run("topics", "lookup", "acme/orders/t")
        assert set(served.owners().values()) <= {served.broker_id(0)}
        assert (await shell.run("brokers", "uncordon", there))[0] == 0
        assert (await shell.run("brokers", "uncordon", there))[0] == 1
        assert (await shell.run("brokers", "cordon", "nobody:1"))[0] == 1


async def test_a_rolling_restart_that_fails(capsys: pytest.CaptureFixture[str]) -> None:
    """It stops at the broker, leaves it cordoned, and says what to do; what cannot begin is refused
    before anything is done.
    """
    async with serving() as served:
        shell = Shell(served, capsys)
        await served.own(FIRST, at=1)
        there = served.broker_id(1)
        restart = ("rolling-restart", there, "--command", "false {broker}", "--within", "20s")
        status, out, err = await shell.run(*restart)
        assert f"stopped at {there}: the command ended with status 1" in out, err
        assert status == 1
        assert f"brokers uncordon {there}" in out
        assert out.endswith(f"restarted: none; failed: {there}; not begun: none")
        assert f"running false {there}" in err
        assert served.owners() == {FIRST: served.broker_id(0)}
        status, _, err = await shell.run(*restart)
        assert (status, "is cordoned already" in err) == (1, True)
        assert (await shell.run("rolling-restart", "nobody:1"))[0] == 1
        await shell.run("brokers", "uncordon", there)
        never = ("rolling-restart", there, "--command", "true", "--within", "2s", "--json")
        status, out, _ = await shell.run(*never)
        told = json.loads(out)
        assert (status, told["failed"], told["restarted"]) == (1, there, [])
        assert "is not back and ready after 2 s: it was not restarted" in told["error"]
        await shell.run("brokers", "uncordon", there)
        both = ("rolling-restart", "--command", "true", "--within", "3s")
        restarting, err = asyncio.create_task(shell.run(*both)), ""
        while "running true" not in err and not restarting.done():
            await asyncio.sleep(0.05)
            err += capsys.readouterr().err
        await served.servers[1].stop()
        status, out, _ = await restarting
        assert f"{there} is not back and ready after 3 s: it does not answer. Something must" in out
        assert out.endswith(f"restarted: none; failed: {there}; not begun: {served.broker_id(0)}")


@pytest.mark.parametrize(
    ("total", "moved", "active", "text"),
    [
        (0, 0, True, "b had no bundles: nothing was moved"),
        (2, 2, True, "b is drained: 2 bundles moved"),
        (4, 5, True, "b is drained: 5 bundles moved, 1 more than it had when its drain began"),
        (9, 2, True, "b is drained: it had 9 bundles when its drain began"),
        (9, 0, False, "b is gone: it had 9 bundles when its drain began, and what was left then"),
    ],
)
def test_how_a_drain_ended(total: int, moved: int, *, active: bool, text: str) -> None:
    """A leader that took over knows how many bundles there were, not how many moved before."""
    progress = CordonShown(
        broker="b",
        since=1,
        note="",
        until_restart=False,
        state="drained",
        active=active,
        total=total,
        moved=moved,
    )
    assert how_drained("b", progress).startswith(text)


def test_nobody_there(capsys: pytest.CaptureFixture[str]) -> None:
    """One line that says what to do and status 1; status 2 for a URL that is not HTTP."""
    with socket.create_server(("127.0.0.1", 0)) as sock:
        port = sock.getsockname()[1]
    assert main(["admin", "brokers", "list", "--url", f"http://127.0.0.1:{port}"]) == 1
    said = capsys.readouterr().err
    assert f"no answer from http://127.0.0.1:{port}" in said
    assert ("--url" in said, said.count("\n")) == (True, 1)
    for url in ("ftp://x", "http://", "http://127.0.0.1:99999"):
        assert main(["admin", "brokers", "list", "--url", url]) == 2
        assert "http://host:port or unix:/path is expected" in capsys.readouterr().err


def test_a_port_that_does_not_speak_http(capsys: pytest.CaptureFixture[str]) -> None:
    """The port of the binary protocol: one line says which port is needed, status 1."""
    with socket.create_server(("127.0.0.1", 0)) as sock:
        url = f"http://127.0.0.1:{sock.getsockname()[1]}"
        with ThreadPoolExecutor() as pool:
            status = pool.submit(main, ["admin", "brokers", "list", "--url", url])
            connection, _ = sock.accept()
            with connection:
                connection.recv(1)
                connection.sendall(b"\0\0\0\x55 nonsense\r\n")
            assert status.result() == 1
    said = capsys.readouterr().err
    assert ("does not speak HTTP" in said, said.count("\n")) == (True, 1)
    assert "is not known" not in said


def test_a_broker_that_ends_before_it_answers(capsys: pytest.CaptureFixture[str]) -> None:
    """Then nobody knows whether it did what it was asked, and the error says so."""
    with socket.create_server(("127.0.0.1", 0)) as sock:
        url = f"http://127.0.0.1:{sock.getsockname()[1]}"
        with ThreadPoolExecutor() as pool:
            status = pool.submit(main, ["admin", "brokers", "list", "--url", url])
            for _ in range(2):  # the second one looks whether the port speaks TLS
                connection, _ = sock.accept()
                connection.recv(1 << 16)
                connection.close()
            assert status.result() == 1
    assert "whether it did what it was asked is not known" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ["--url", "{}", "brokers", "list"],
        ["brokers", "list", "--url", "{}"],
        ["--url", "x", "brokers", "list", "--url", "{}"],
    ],
)
def test_the_url_may_stand_anywhere(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """`--url` may stand before the subject or after the action; the one after the action counts."""
    with socket.create_server(("127.0.0.1", 0)) as sock:
        port = sock.getsockname()[1]
    assert main(["admin", *(word.format(f"http://127.0.0.1:{port}") for word in words)]) == 1
    assert f"no answer from http://127.0.0.1:{port}" in capsys.readouterr().err


def test_a_silent_server(capsys: pytest.CaptureFixture[str]) -> None:
    """A broker that accepts and never answers: the wait ends, and the message says how to wait
    longer.
    """
    with socket.create_server(("127.0.0.1", 0)) as sock:
        assert (
            main(
                [
                    "admin",
                    "brokers",
                    "list",
                    "--url",
                    f"127.0.0.1:{sock.getsockname()[1]}",
                    "--timeout",
                    "0.1",
                ]
            )
            == 1
        )
    assert "--timeout" in capsys.readouterr().err


def test_an_order_without_an_answer(capsys: pytest.CaptureFixture[str]) -> None:
    """May still be carried out, and a question changes nothing."""
    later = "It may still do what it was asked"
    with socket.create_server(("127.0.0.1", 0)) as sock:
        where = ("--url", f"127.0.0.1:{sock.getsockname()[1]}", "--timeout", "0.1")
        for words, is_order in ((("moves", "pause", "5m"), True), (("status",), False)):
            assert main(["admin", *words, *where]) == 1
            assert (later in capsys.readouterr().err) is is_order


def test_a_frozen_broker_is_not_waited_for() -> None:
    """An answer may take long while there are signs of life; without any it is given up."""
    signs, answered = iter([True, True, False]), threading.Event()
    try:
        with pytest.raises(SilentError):
            while_it_lives(answered.wait, lambda: next(signs), patience_s=0.01)
        assert not list(signs)
    finally:
        answered.set()
    assert while_it_lives(lambda: "an answer", lambda: False) == "an answer"
    with pytest.raises(OperationalError, match="refused"):
        while_it_lives(partial(_raise, OperationalError("refused")), lambda: False)


def _raise(error: Exception) -> None:
    raise error


async def test_the_first_of_several_that_answers(capsys: pytest.CaptureFixture[str]) -> None:
    """Is asked; who does not answer is named."""
    async with serving() as served:
        urls = f"http://127.0.0.1:1,{served.brokers[1].address.web_url}"
        words = ["admin", "brokers", "leader", "--url", urls]
        status = await asyncio.to_thread(main, words)
        captured = capsys.readouterr()
    assert (status, served.broker_id(0) in captured.out) == (0, True)
    assert "http://127.0.0.1:1 does not answer: the next is asked" in captured.err


async def test_who_answers_is_no_refused_request(capsys: pytest.CaptureFixture[str]) -> None:
    """Which of several brokers answers is asked without a token, and needs none."""
    async with secured() as served:
        urls = f"{served.url()},http://127.0.0.1:1"
        words = ["admin", "brokers", "leader", "--url", urls, "--token", token(ADMIN)]
        assert await asyncio.to_thread(main, words) == 0
        assert served.broker_id(0) in capsys.readouterr().out
        refused = [
            (sample.labels, sample.value)
            for sample in served.servers[0].samples()
            if sample.name == "loadmanager_authentication_failures" and sample.value
        ]
    assert not refused


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    """Examples are shown, and usage errors are status 2."""
    for words, status in ((["--help"], 0), (["bundles"], 2), (["bundles", "unload"], 2)):
        assert main(["admin", *words]) == status
    assert "examples:" in capsys.readouterr().out


async def test_named_clusters(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cluster gets a name by its URL, and later commands go to it unless they have --url."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))

    async def say(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        status = await asyncio.to_thread(main, ["admin", *words])
        return status, *capsys.readouterr()

    async with serving() as served:
        with capture_logs():
            assert (await say("use", "staging"))[0] == 1
            status, out, _ = await say("use", "staging", "--url", served.url(0))
            assert (status, out) == (0, f"staging ({served.url(0)}) is in use now\n")
            assert served.broker_id(1) in (await say("brokers", "list"))[1]
            several = f"http://127.0.0.1:1,{served.url(1)}"
            assert (await say("use", "staging", "--url", several))[0] == 0
            assert served.broker_id(0) in (await say("brokers", "list"))[1]
            assert (await say("use", "staging", "--url", served.url(0)))[0] == 0
            assert (await say("use", "nowhere", "--url", "127.0.0.1:1"))[0] == 0
            assert (await say("brokers", "list"))[0] == 1
            assert (await say("brokers", "list", "--url", served.url(0)))[0] == 0
            assert json.loads((await say("use", "--json"))[1]) == {
                "urls": {"staging": served.url(0), "nowhere": "http://127.0.0.1:1"},
                "current": "nowhere",
                "trusts": {},
            }
            trusted = Authority(tmp_path / "tls").trust
            trust = ("--tls-trust-certs", str(trusted))
            assert (await say("use", "secure", "--url", "https://127.0.0.1:1", *trust))[0] == 0
            assert json.loads((await say("use", "--json"))[1])["trusts"] == {"secure": str(trusted)}
            assert (await say("use", "secure", "--remove"))[0] == 0
            assert (await say("use", "nowhere"))[0] == 0
            for wrong in ("", "a b", "-", "../x", "ü\n"):
                assert (await say("use", wrong, "--url", "127.0.0.1:1"))[0] == 2, wrong
            assert (await say("use", "--url", "127.0.0.1:1"))[0] == 2
            assert (await say("use", "--remove"))[0] == 2
            assert (await say("use", "nowhere", "--remove"))[0] == 0
            assert (await say("use", "nowhere", "--remove"))[0] == 1
            assert "nowhere" not in (await say("use"))[1]
            (tmp_path / "loadmanager/contexts.json").write_text("{")
            status, _, err = await say("brokers", "list")
            assert (status, "mend the file or delete it" in err) == (2, True)
