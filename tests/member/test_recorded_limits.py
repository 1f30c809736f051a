"""What a member records of its limits."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from clusters.members import a_fleet
from clusters.running import Written
from limits.driven import TOPIC, DrivenClock, a_broker
from member.test_reporting import FixedSampler, a_reporter

from loadmanager.engine.history.records import Throttle
from loadmanager.kit.tasks import LoopBusy
from loadmanager.limits.limit import Limit, Ticket, Waiter
from loadmanager.limits.policies import PublishRate, plain
from loadmanager.member.recorder import Recorder


class Producer:
    """A waiter."""

    name, topic = "p", str(TOPIC)

    def released(self, limit: Limit, now_ns: int) -> None:
        """It goes on."""


async def test_a_young_limit_is_recorded_with_how_long_it_stood() -> None:
    """A limit that is set 5 s before a sample of 60 s, a sample later, and set again after it was
    away: what it delivered before that does not count.
    """
    async with a_fleet(1) as fleet:
        (broker,) = fleet.brokers
        clock, history = DrivenClock(), Written(None)
        throttling = a_broker(clock)
        reporter = a_reporter(broker, FixedSampler())
        await reporter._build()
        recorder = Recorder(
            base=replace(broker.base, clock=clock),
            history=history,
            reporter=reporter,
            hosting=broker.tenant,
            ownership=broker.ownership,
            throttling=throttling,
            busy=LoopBusy(),
        )
        topic = throttling.topic(TOPIC, clock())
        rate = {"publishRate": plain(PublishRate(messages_per_s=50, bytes_per_s=-1))}

        async def sampled() -> tuple[float, int, int | None]:
            await recorder.sample()
            (limit,) = (it for it in history.records if isinstance(it, Throttle))
            history.records.clear()
            return round(limit.delivered_messages_per_s, 3), limit.interval_ms, limit.stood_ms

        async def young() -> tuple[float, int, int | None]:
            clock.forward_ms(55_000)
            throttling.set_topic_policies(TOPIC, rate, clock())
            (limit,) = (it for it in topic.own_limits() if it.active)
            ticket = Ticket(limit, cast("Waiter", Producer()))
            limit.charge(ticket, 240, 1, clock())
            clock.forward_ms(5_000)
            return await sampled()

        assert await young() == (4.0, 60_000, 5_000)
        clock.forward_ms(60_000)
        assert await sampled() == (0.0, 60_000, 60_000)
        throttling.set_topic_policies(TOPIC, {}, clock())
        await recorder.sample()
        history.records.clear()
        assert await young() == (4.0, 60_000, 5_000)
