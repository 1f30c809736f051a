"""What a member records of its limits."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from clusters.members import Broker, a_fleet
from clusters.running import Written
from limits.driven import TOPIC, DrivenClock, a_broker
from member.test_reporting import FixedSampler, a_reporter

from loadmanager.engine.history.records import Throttle
from loadmanager.kit.tasks import LoopBusy
from loadmanager.limits.broker import BrokerThrottling
from loadmanager.limits.limit import Limit, Ticket, Waiter
from loadmanager.limits.policies import PublishRate, plain
from loadmanager.member.recorder import Recorder


class Producer:
    """A waiter."""

    name, topic, has_more = "p", str(TOPIC), True

    def released(self, limit: Limit, now_ns: int) -> None:
        """It goes on."""


def a_recorder(
    broker: Broker, clock: DrivenClock, history: Written, throttling: BrokerThrottling
) -> Recorder:
    """The recorder of a member, with a clock that the test drives."""
    return Recorder(
        base=replace(broker.base, clock=clock),
        history=history,
        reporter=a_reporter(broker, FixedSampler()),
        hosting=broker.tenant,
        ownership=broker.ownership,
        throttling=throttling,
        busy=LoopBusy(),
    )


async def test_what_a_limit_did_until_it_was_removed_is_recorded() -> None:
    """With the wait that the removal ended, in the same sample as others; one that is set again
    within it has one record; one that did nothing since the last sample has none.
    """
    async with a_fleet(1) as fleet:
        (broker,) = fleet.brokers
        clock, history = DrivenClock(), Written(None)
        throttling = a_broker(clock)
        recorder = a_recorder(broker, clock, history, throttling)
        await recorder.reporter._build()
        topic = throttling.topic(TOPIC, clock())
        rate = {"publishRate": plain(PublishRate(messages_per_s=50, bytes_per_s=-1))}

        async def sampled() -> list[Throttle]:
            history.records.clear()
            await recorder.sample()
            return [it for it in history.records if isinstance(it, Throttle)]

        throttling.set_topic_policies(TOPIC, rate, clock())
        clock.forward_ms(60_000)
        (first,) = await sampled()
        (limit,) = (it for it in topic.own_limits() if it.active)
        ticket = Ticket(limit, cast("Waiter", Producer()))
        clock.forward_ms(10_000)
        limit.charge(ticket, 400, 1, clock())
        assert limit.hold(ticket, clock())
        clock.forward_ms(10_000)
        throttling.set_topic_policies(TOPIC, {}, clock())
        clock.forward_ms(20_000)
        (last,) = await sampled()
        assert (last.ts, last.interval_ms, last.stood_ms) == (first.ts + 40_000, 40_000, 20_000)
        assert (last.held, last.waited_ms, last.queue_length) == (1, 10_000, 0)
        assert (last.configured_messages_per_s, last.delivered_messages_per_s) == (50, 10)
        assert await sampled() == []
        throttling.set_topic_policies(TOPIC, rate, clock())
        clock.forward_ms(60_000)
        await sampled()
        limit.charge(ticket, 400, 1, clock())
        assert limit.hold(ticket, clock())
        clock.forward_ms(10_000)
        throttling.set_topic_policies(TOPIC, {}, clock())
        clock.forward_ms(10_000)
        throttling.set_topic_policies(TOPIC, rate, clock())
        limit.charge(ticket, 80, 1, clock())
        clock.forward_ms(20_000)
        (again,) = await sampled()
        assert (again.interval_ms, again.stood_ms) == (40_000, 30_000)
        assert (again.held, again.waited_ms, again.delivered_messages_per_s) == (1, 10_000, 12)
        clock.forward_ms(1_000)
        throttling.set_topic_policies(TOPIC, {}, clock())
        assert await sampled() == []


async def test_a_young_limit_is_recorded_with_how_long_it_stood() -> None:
    """A limit that is set 5 s before a sample of 60 s, a sample later, and set again after it was
    away: what it delivered before that does not count.
    """
    async with a_fleet(1) as fleet:
        (broker,) = fleet.brokers
        clock, history = DrivenClock(), Written(None)
        throttling = a_broker(clock)
        recorder = a_recorder(broker, clock, history, throttling)
        await recorder.reporter._build()
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


async def test_what_limits_did_since_the_last_record_is_told_and_recorded_later() -> None:
    """Also of one that was removed meanwhile: what is told takes nothing from the next record."""
    async with a_fleet(1) as fleet:
        (broker,) = fleet.brokers
        clock, history = DrivenClock(), Written(None)
        throttling = a_broker(clock)
        recorder = a_recorder(broker, clock, history, throttling)
        await recorder.reporter._build()
        assert recorder.limits is not None
        topic = throttling.topic(TOPIC, clock())
        rate = {"publishRate": plain(PublishRate(messages_per_s=50, bytes_per_s=-1))}
        throttling.set_topic_policies(TOPIC, rate, clock())
        (limit,) = (it for it in topic.own_limits() if it.active)
        clock.forward_ms(60_000)
        await recorder.sample()
        ticket = Ticket(limit, cast("Waiter", Producer()))
        clock.forward_ms(10_000)
        limit.charge(ticket, 400, 1, clock())
        assert limit.hold(ticket, clock())
        clock.forward_ms(10_000)
        throttling.set_topic_policies(TOPIC, {}, clock())
        for _ in range(2):
            (present,) = await recorder.limits.present()
            assert (present.interval_ms, present.held, present.waited_ms) == (20_000, 1, 10_000)
        history.records.clear()
        clock.forward_ms(20_000)
        await recorder.sample()
        (later,) = (it for it in history.records if isinstance(it, Throttle))
        assert (later.interval_ms, later.held, later.waited_ms) == (40_000, 1, 10_000)
        assert await recorder.limits.present() == []
