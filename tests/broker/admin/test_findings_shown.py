"""What a leader finds wrong, as its API, its events, its metrics and the command line tell it."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from pathlib import Path

import pytest
from aiohttp.test_utils import make_mocked_request
from broker.admin.serving import ORDERS, serving
from broker.admin.test_archive import in_folder
from cli.test_admin_command import Shell
from clusters.running import eventually, until
from leader.documents import a_move_shown
from msgspec import UNSET
from system.raw import a_send

from loadmanager.broker.admin.calls import Calls
from loadmanager.broker.admin.everybody import Everybody
from loadmanager.broker.admin.greatest_topics import GreatestTopicRoutes
from loadmanager.broker.messaging.subscription import SubscriptionType
from loadmanager.cli import main
from loadmanager.cli.admin.times import clock
from loadmanager.cli.admin.topics import young_notes
from loadmanager.engine.findings.uneven import Stay
from loadmanager.engine.strategies.plan import Plan, Skip, Unload
from loadmanager.kit.names import TopicName
from loadmanager.kit.system.clock import SystemClock
from loadmanager.leader.documents.decisions import of_cycle
from loadmanager.leader.documents.findings import SilentTopicsShown
from loadmanager.leader.events import EventQueue
from loadmanager.leader.findings import TermFindings, stays_of, usages_of
from loadmanager.testing.cluster import LoopTime

PAUSE_MS = 1_860_000
PATH = "/loadmanager/v1/findings"


class SetTime(LoopTime):
    """A clock that shows what a test sets."""

    def __init__(self) -> None:
        self.ms = 1_700_000_000_000

    def now_ms(self) -> int:
        return self.ms


def flap(findings: TermFindings) -> None:
    """The balancer moved a bundle there, back and there again."""
    now_ms = findings.load_manager.term.clock.now_ms()
    for number, way in enumerate((("b1", "b2"), ("b2", "b1"), ("b1", "b2"))):
        ended_at = now_ms - (2 - number) * PAUSE_MS
        move = a_move_shown(source=way[0], destination=way[1], ended_at=ended_at, outcome=None)
        findings.watch.flapping.moved(move)


async def _event(events: EventQueue) -> tuple[str, str]:
    """The next finding that began or ended."""
    while True:
        event = await events.next()
        assert event is not None
        if event[1] == "finding":
            data = json.loads(event[2])
            return str(data["state"]), str(data["finding"]["title"])


async def test_a_lost_broker_is_found_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before the leader looks, and no longer when it is back; and so it is recorded."""
    async with serving(brokers=2, values=in_folder(tmp_path)) as served:
        shell, name = Shell(served, capsys), served.broker_id(1)
        title = f"{name} was lost, and is not back"
        assert title not in (await shell.run("status"))[1]
        served.brokers[1].store.suspend()
        served.brokers[1].store.expire()
        answer = await eventually(
            lambda: served.get(PATH), lambda answer: len(answer["findings"]) == 1
        )
        (finding,) = answer["findings"]
        assert (finding["kind"], finding["about"], finding["title"]) == ("lost", name, title)
        assert f"found: {title}" in (await shell.run("status"))[1]
        assert (await shell.run("findings"))[1].splitlines()[0].startswith(title)
        served.brokers[1].store.resume()
        await eventually(lambda: served.get(PATH), lambda answer: answer["findings"] == [])

        async def recorded() -> list[tuple[str, str]]:
            answer = await served.get("/loadmanager/v1/archive/events?kind=finding")
            records = [event["record"] for event in answer["events"]]
            return [(it["event"], it["about"]) for it in records if it["what"] == "lost"]

        await eventually(recorded, lambda steps: steps == [("ended", name), ("began", name)])


async def test_why_bundles_stay_is_what_the_last_cycle_says() -> None:
    """If that moved nothing; in the words of its decision."""
    async with serving(brokers=1) as served:
        leading = served.brokers[0].use.leading
        await until(lambda: isinstance(leading.findings, TermFindings))
        findings = leading.findings
        assert isinstance(findings, TermFindings)
        pinned = Skip("t/a/0x0_0x1", "Pinned", "to b1 until noon")
        unload = Unload("t/a/0x1_0x2", "b1", "b2", "Balance", {})
        for unloads in ((), (unload,)):
            plan = Plan("S", unloads, skipped=(pinned,))
            findings.load_manager.records.decisions.remember(
                "shed", partial(of_cycle, plan, None, UNSET), epoch=1, cycle=1
            )
            expected = [] if unloads else [Stay(pinned.what, "Pinned", "Pinned: to b1 until noon")]
            assert stays_of(findings.load_manager) == expected
        await until(lambda: usages_of(findings.load_manager).keys() == {served.broker_id(0)})


async def test_backlogs_of_all_brokers(capsys: pytest.CaptureFixture[str]) -> None:
    """Whoever is asked; the leader asks for them at each look, and passes small ones over."""
    async with serving(brokers=2) as served:
        broker = served.brokers[1]
        topics = [TopicName("persistent", ORDERS, name) for name in ("much", "little")]
        for topic, messages in zip(topics, (1_500, 10), strict=True):
            await broker.serve(topic)
            hosted = broker.parts.hosting.serving.open_topics.get(str(topic))
            assert hosted is not None
            for name in ("s1", "s2"):
                hosted.core.subscribe(name, SubscriptionType.SHARED, 0, durable=False)
            hosted.core.log.append(b"a batch", messages)
            end = hosted.core.log.end_id
            hosted.core.subscribe("none behind", SubscriptionType.SHARED, end, durable=False)
        await broker.measure()
        answer = await served.get("/loadmanager/v1/backlogs")
        assert answer["noAnswer"] == {}
        assert answer["brokers"][served.broker_id(0)] == []
        listed = answer["brokers"][served.broker_id(1)]
        assert [(it["topic"], it["subscription"], it["messages"]) for it in listed] == [
            (str(topics[0]), "s1", 1_500),
            (str(topics[0]), "s2", 1_500),
            (str(topics[1]), "s1", 10),
            (str(topics[1]), "s2", 10),
        ]
        assert (listed[0]["consumers"], listed[0]["ownConsumers"]) == (0, 0)
        leading = served.brokers[0].use.leading
        await until(lambda: leading.findings is not None)
        findings = leading.findings
        assert isinstance(findings, TermFindings)
        await findings.step()
        assert [*findings.watch._backlogs._looks] == [
            (str(topics[0]), "s1"),
            (str(topics[0]), "s2"),
        ]
        local = await served.get("/loadmanager/v1/backlogs?local=true")
        assert local["brokers"].keys() == {served.broker_id(0)}
        shell = Shell(served, capsys)
        status, out, _ = await shell.run("topics", "backlogs")
        first = [line.split()[1:3] for line in out.splitlines()[1:5]]
        assert (status, first) == (0, [["s1", "1500"], ["s2", "1500"], ["s1", "10"], ["s2", "10"]])
        assert str(topics[1]) in out
        status, out, _ = await shell.run("topics", "backlogs", "--least", "1000")
        assert str(topics[1]) not in out
        status, out, _ = await shell.run("topics", "backlogs", "--least", "9000")
        assert (status, out) == (0, "no topic has a backlog of 9,000 messages")
        core = broker.parts.hosting.serving.open_topics[str(topics[0])].core
        core.subscriptions["s1"].expire_until(core.log.end_id)
        await broker.measure()  # nothing is left, which is told: else nobody can tell
        answer = await served.get("/loadmanager/v1/backlogs?local=true", at=1)
        listed = [it for it in answer["brokers"][served.broker_id(1)] if it["subscription"] == "s1"]
        assert [it["messages"] for it in listed] == [10, 0]
        await findings.step()
        assert [*findings.watch._backlogs._looks] == [(str(topics[0]), "s2")]


@pytest.mark.parametrize("command", ["backlogs", "busiest", "silent"])
async def test_topics_that_nobody_serves(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Their broker was lost: it is named with its bundles, and nothing is said of all topics."""
    async with serving(brokers=2) as served:
        topic, lost = TopicName("persistent", ORDERS, "some"), served.broker_id(1)
        await served.brokers[1].serve(topic)
        shell, reports = Shell(served, capsys), served.brokers[0].use.brokers.reports
        assert (await shell.run("topics", command))[0] == 0
        await until(lambda: bool(lost in reports and reports[lost].bundles))
        await served.servers[1].stop()
        served.brokers[1].store.suspend()
        served.brokers[1].store.expire()
        status, out, err = await eventually(
            lambda: shell.run("topics", command), lambda answer: "left out" in answer[2]
        )
        assert (status, out.split()[:5]) == (1, ["no", "topic", "that", "was", "counted"])
        assert f"{lost} is left out: lost, and 1 of its bundles without an owner: " in err


async def test_a_young_process_says_that_topics_may_not_be_open_again() -> None:
    """For a minute."""
    async with serving(brokers=1) as served:
        use, time = served.brokers[0].use, SetTime()
        everybody = Everybody(use, Calls())
        routes = GreatestTopicRoutes(use, everybody, time)

        async def young() -> dict[str, int]:
            request = make_mocked_request("GET", "/loadmanager/v1/silent-topics")
            answer = json.loads((await routes.silent(request)).text or "")
            return dict(answer["young"])

        time.ms += 3_000
        assert await young() == {served.broker_id(0): 3_000}
        time.ms += 57_000
        assert await young() == {}


def test_how_topics_of_a_young_process_are_told() -> None:
    """They are not said to be counted."""
    young = SilentTopicsShown(at=1, young={"b1:1": 3_000})
    (line,) = young_notes(young)
    assert line.startswith("b1:1 was started 3.0 s ago: topics that were open before may not be")
    assert young_notes(SilentTopicsShown(at=1)) == []


async def test_which_topics_fell_silent(capsys: pytest.CaptureFixture[str]) -> None:
    """Whoever is asked, without their names: those first that did so last, not those to which
    somebody publishes; and those with a producer that never published.
    """
    async with serving(brokers=2) as served:
        names = ("long ago", "lately", "busy", "waits", "nobody's")
        topics = {name: TopicName("persistent", ORDERS, name.replace(" ", "-")) for name in names}
        now_ms, ago_ms = SystemClock().now_ms(), {"long ago": 7_200_000, "lately": 300_000}
        broker = served.brokers[1]
        for name, topic in topics.items():
            await broker.serve(topic)
            hosted = broker.parts.hosting.serving.open_topics.get(str(topic))
            assert hosted is not None
            if name in ago_ms:
                hosted.published_ms = now_ms - ago_ms[name]
            if name in ("busy", "waits"):
                client = await served.cluster.connect(await broker.listen())
                await client.produce(topic)
            if name == "busy":
                await client.send(a_send(0, b"x"))
                await until(lambda hosted=hosted: hosted.core.messages_in == 1)
        await broker.measure()
        shell = Shell(served, capsys)
        status, out, _ = await shell.run("topics", "silent")
        shown = [line.split()[0] for line in out.splitlines()[1:4]]
        assert (status, shown) == (0, [str(topics[it]) for it in ("lately", "long ago", "waits")])
        assert " 5 min " in out
        assert "silent: without a message for 60 s; one that fell silent later is not listed" in out
        assert "no message came since the topic was opened" in out
        assert str(topics["busy"]) not in out
        assert str(topics["nobody's"]) not in out
        status, out, _ = await shell.run("topics", "silent", "--since", "1h", "--limit", "1")
        assert str(topics["lately"]) in out
        assert "and 1 more" in out
        status, out, _ = await shell.run("topics", "silent", "--at", "1h ago")
        shown = [line.split()[0] for line in out.splitlines()[1:3]]
        assert (status, shown) == (0, [str(topics["long ago"]), str(topics["waits"])])
        assert "60 min" in out  # it was silent for then
        _, out, _ = await shell.run("find", "acme/orders/l")  # a part of two names
        rows = {line.split()[0]: line for line in out.splitlines() if line.strip()}
        assert rows["TOPIC"].endswith("SILENT SINCE")
        for name, it_ms in ago_ms.items():
            assert rows[str(topics[name])].rstrip().endswith(clock(now_ms - it_ms))


async def test_the_busiest_topics_of_all_brokers(capsys: pytest.CaptureFixture[str]) -> None:
    """Whoever is asked; those without traffic are passed over."""
    async with serving(brokers=2) as served:
        topics = [TopicName("persistent", ORDERS, name) for name in ("some", "much", "none")]
        for topic, messages, at in zip(topics, (3, 30, 0), (0, 1, 1), strict=True):
            broker = served.brokers[at]
            await broker.serve(topic)
            client = await served.cluster.connect(await broker.listen())
            await client.produce(topic)
            for number in range(messages):
                await client.send(a_send(number, b"x" * 1_000))
                await client.take_of(7)
        for broker in served.brokers:
            await broker.measure()
        answer = await served.get("/loadmanager/v1/busiest-topics")
        assert {
            broker: [each["topic"] for each in those] for broker, those in answer["brokers"].items()
        } == {served.broker_id(0): [str(topics[0])], served.broker_id(1): [str(topics[1])]}
        (much,) = answer["brokers"][served.broker_id(1)]
        assert (much["subscriptions"], isinstance(much["storedBytes"], int)) == (0, True)
        status, out, _ = await Shell(served, capsys).run("topics", "busiest")
        lines = [line.split() for line in out.splitlines()[1:3]]
        assert (status, [line[0] for line in lines]) == (0, [str(topics[1]), str(topics[0])])
        assert all(float(line[3]) > 0 for line in lines)  # a small rate, too
        assert f"no subscription is to read it: {topics[1]}, {topics[0]}" in out
        _, out, _ = await Shell(served, capsys).run("topics", "busiest", "--limit", "1")
        assert out.splitlines()[-1] == "and 1 more"


async def test_a_finding_from_its_beginning_to_its_end(capsys: pytest.CaptureFixture[str]) -> None:
    """A bundle that moved back and forth: shown, told and counted; then it stays where it is. Only
    the leader knows; it asked every broker for its limits.
    """
    async with serving(brokers=2) as served:
        broker = served.brokers[0]
        leading = broker.use.leading
        await until(lambda: leading.findings is not None)
        findings = leading.findings
        assert isinstance(findings, TermFindings)
        assert (await served.ask("GET", PATH, at=1)).status == 307
        assert await served.get(PATH) | {"at": 0} == {"at": 0, "lookedAt": None, "findings": []}
        events = broker.use.events.listen(None)
        flap(findings)
        await findings.step()
        (finding,) = (await served.get(PATH))["findings"]
        assert finding["kind"] == "flapping"
        assert await _event(events) == ("began", finding["title"])
        words = ["--url", str(served.url(1))]
        assert await asyncio.to_thread(main, ["admin", "status", *words]) == 0
        assert f"found: {finding['title']}" in capsys.readouterr().out
        assert await asyncio.to_thread(main, ["admin", "findings", *words]) == 0
        out = capsys.readouterr().out
        assert "A pin keeps a bundle where it is." in out
        assert out.splitlines()[-1].startswith("as of ")
        page = await served.get("/metrics")
        lines = [it for it in page.splitlines() if it.startswith("loadmanager_findings{")]
        assert [it[-3:] for it in lines if 'kind="flapping"' in it] == ["1.0"]
        assert [it[-3:] for it in lines if 'kind="clock"' in it] == ["0.0"]
        assert "loadmanager_findings{" not in await served.get("/metrics", at=1)
        assert leading.holds is not None
        assert sorted(await leading.holds()) == sorted(served.broker_id(at) for at in (0, 1))
        key = "loadBalancerSheddingGracePeriodMinutes"
        assert (await served.ask("POST", f"/admin/v2/brokers/configuration/{key}/1")).status == 204
        strategies = findings.load_manager.strategies
        await until(lambda: strategies.value.grace_period_minutes == 1)
        await findings.step()
        assert await _event(events) == ("ended", finding["title"])
        assert (await served.get(PATH))["findings"] == []
