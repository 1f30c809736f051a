"""Since when a topic or a bundle is silent, by its owner and by what is recorded."""

from __future__ import annotations

from pathlib import Path

import pytest
from broker.admin.serving import ORDERS, serving
from broker.admin.test_admin_subscriptions import T, with_messages
from broker.admin.test_archive import MINUTE, in_folder, written
from broker.messaging.test_subscriptions import a_topic
from cli.test_admin_command import Shell

from loadmanager.broker.admin.topic_stats import total
from loadmanager.broker.messaging.segments import ANY_TIME, Sent
from loadmanager.cli.admin.silence import last_traffic, silent_since
from loadmanager.cli.admin.times import clock
from loadmanager.engine.history.clients import ClientStep
from loadmanager.engine.history.records import BundleLoad, TopicLoad
from loadmanager.kit.history.archive_answers import ArchivedPoint, ArchivedSeries
from loadmanager.kit.names import TopicName
from loadmanager.kit.system.clock import SystemClock
from loadmanager.leader.owners_then import in_bundle

CLIENTS_CLOCK_MS = 1_008
"""The publish time of the last message of `with_messages`."""


def a_series(rates: dict[int, float]) -> ArchivedSeries:
    """Recorded loads, by the ends of their times."""
    points = [ArchivedPoint(ts=ts, span_ms=60, broker="b", figures=[9.0, rate])
              for ts, rate in rates.items()]  # fmt: skip
    columns = ["msg_rate_out", "msg_rate_in"]
    return ArchivedSeries(part="b", recorded=[], columns=columns, points=points)


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ([], (None, None)),
        ([{100: 0.0}], (None, None)),
        ([{100: 1.0}], (100, None)),
        ([{100: 1.0, 200: 0.0, 300: 0.0}], (100, 200)),
        ([{100: 1.0, 200: 0.0}, {250: 2.0, 310: 0.0}], (250, 310)),
    ],
)
def test_the_last_traffic_is_that_of_any_broker(
    parts: list[dict[int, float]], expected: tuple[int | None, int | None]
) -> None:
    """With the next record, which shows that there was none any more."""
    assert last_traffic([a_series(each) for each in parts]) == expected


def test_who_published_a_moment_ago_is_not_silent() -> None:
    """The next message may be on its way."""
    now = SystemClock().now_ms()
    assert silent_since(now - 1_000) == []
    (line,) = silent_since(now - 120 * MINUTE)
    assert line.startswith(f"SILENT since {clock(now - 120 * MINUTE)} (2 h)")


async def test_a_topic_that_fell_silent_says_since_when(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By its own records, else by those of its bundle; with its last client."""
    now = SystemClock().now_ms() // 1000 * 1000
    last, next_ms = now - 20 * MINUTE, now - 19 * MINUTE
    async with serving(values=in_folder(tmp_path)) as served:
        shell, a = Shell(served, capsys), served.broker_id(0)
        await served.brokers[0].serve(T)
        (bundle,) = served.owners()
        names = (TopicName("persistent", ORDERS, f"quiet-{number}") for number in range(100))
        quiet = next(str(name) for name in names if in_bundle(name, bundle))
        for ts, rate in ((last, 2.0), (next_ms, 0.0)):
            head = {"ts": ts, "broker": a, "interval_ms": MINUTE, "bundle": bundle}
            await written(
                served, 0, TopicLoad(**head, topic=str(T), msg_rate_in=rate),
                BundleLoad(**head, msg_rate_in=rate),
            )  # fmt: skip
        left = ClientStep(
            ts=last + 5_000, broker=a, event="left", client="10.0.0.9:7", what="producer",
            name="p1", topic=str(T), bundle=bundle, reason="its client closed it",
        )  # fmt: skip
        await written(served, 0, left)
        silent = f"SILENT since {clock(last)} (20 min): the next record, of {clock(next_ms)}, "
        who = f"the last one, producer p1 from 10.0.0.9:7, left at {clock(left.ts)}"
        for words in (("topics", "stats", str(T)), ("find", str(T))):
            out = (await shell.run(*words))[1]
            assert f"{silent}is without a message to it" in out, out
            assert who in out
        for words in (("bundles", "show", str(T)), ("history", str(T))):
            assert f"{silent}is without a message to it" in (await shell.run(*words))[1]
        of_bundle = f"{silent}is without a message to bundle {bundle}"
        for name in (bundle, quiet):
            for words in (("bundles", "show", name), ("history", name)):
                assert of_bundle in (await shell.run(*words))[1]
        assert "it was silent" not in (await shell.run("history", str(T)))[1]
        for ts, rate in ((now - 18 * MINUTE, 0.0), (now - 17 * MINUTE, 3.0)):
            head = {"ts": ts, "broker": a, "interval_ms": MINUTE, "bundle": bundle}
            await written(served, 0, TopicLoad(**head, topic=str(T), msg_rate_in=rate))
        _, out, _ = await shell.run("history", str(T))
        first, some = clock(next_ms), clock(now - 17 * MINUTE)
        over = f"it was silent: its records from {first} to {clock(now - 18 * MINUTE)} are without"
        assert f"{over} a message; that of {some} has some again" in out
        at = ("--at", clock(last + 5_000).replace(" ", "T"))
        for words in (("bundles", "show", bundle, *at), ("history", bundle, *at)):
            assert "SILENT" not in (await shell.run(*words))[1]


async def test_the_owner_knows_when_the_last_message_came() -> None:
    """By its own clock, whatever the clients say."""
    async with with_messages() as (served, _):
        stats = await served.get("/admin/v2/persistent/acme/orders/t/stats")
        found = await served.get(f"/loadmanager/v1/clients?find={T}")
        assert CLIENTS_CLOCK_MS < stats["lastPublishTimeStamp"] <= served.brokers[0].clock.now_ms()
        assert found["topics"][0]["published"] == stats["lastPublishTimeStamp"]


def test_a_topic_that_is_opened_again_knows_the_last_message_of_before() -> None:
    """By what is stored of its producers, as their clients said it."""
    topic = a_topic()
    assert topic.last_published_ms == 0
    topic.remember("unknown", Sent(3, ANY_TIME), 0.0)
    assert topic.last_published_ms == 0
    topic.remember("left", Sent(7, 5_000), 0.0)
    publisher = topic.attach_publisher("p", 0)
    assert topic.last_published_ms == 5_000
    topic.publish(publisher, 1, b"x", 1, published_ms=6_000)
    assert topic.last_published_ms == 6_000


def test_partitions_fell_silent_with_the_last_of_them() -> None:
    """Times do not add up."""
    parts = [{"msgInCounter": 2, "lastPublishTimeStamp": at} for at in (7_000, 9_000)]
    assert total(parts) == {"msgInCounter": 4, "lastPublishTimeStamp": 9_000}
