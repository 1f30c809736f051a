"""Whoever waits for what all share is told who uses most of it."""

from __future__ import annotations

import pytest
from broker.admin.serving import ORDERS, serving
from broker.admin.test_admin_subscriptions import RECEIPT
from cli.test_admin_command import Shell
from system.raw import a_send

from loadmanager.cli.admin.greatest_user import user_text
from loadmanager.kit.names import TopicName
from loadmanager.leader.documents.findings import BusyTopic


def busy(topic: str, bytes_in: float) -> BusyTopic:
    """A topic that is published to."""
    return BusyTopic(
        topic=topic, bundle="b", rate_in=bytes_in / 100, rate_out=0.0, bytes_in=bytes_in,
        bytes_out=0.0, producers=1, consumers=0,
    )  # fmt: skip


def test_only_who_stands_out_is_named() -> None:
    """With the tenant, and the part of the whole; of several alike nobody is to blame."""
    greedy, modest = busy("persistent://a/n/greedy", 9_000), busy("persistent://b/n/modest", 1_000)
    assert user_text("broker publish rate", "b0:8080", [modest, greedy]) == (
        "broker publish rate: persistent://a/n/greedy of tenant a uses most of it: 90 messages/s, "
        "90% of the bytes that those who share it publish at b0:8080"
    )
    assert user_text("broker publish rate", "b0:8080", [modest, modest]) == ""
    assert user_text("broker publish rate", "b0:8080", []) == ""


async def test_a_victim_of_the_brokers_limit(capsys: pytest.CaptureFixture[str]) -> None:
    """`limits why` of a topic that is held beside a greedy one names that."""
    limit = {"brokerPublisherThrottlingMaxMessageRate": "20"}
    async with serving(brokers=1, values=limit) as served:
        victim, greedy = (TopicName("persistent", ORDERS, name) for name in ("victim", "greedy"))
        (broker,) = served.brokers
        for topic, size in ((victim, 10), (greedy, 5_000)):
            await broker.serve(topic)
            client = await served.cluster.connect(await broker.listen())
            await client.produce(topic)
            for number in range(8):
                await client.send(a_send(number, b"x" * size))
            for _ in range(8):
                await client.take_of(RECEIPT)
        await broker.measure()
        _, out, _ = await Shell(served, capsys).run("limits", "why", str(victim))
        assert f"broker publish rate: {greedy} of tenant acme uses most of it" in out
