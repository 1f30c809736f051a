"""Who was interrupted, and for how long, from records of clients and of lost brokers."""

from __future__ import annotations

from typing import Any

from loadmanager.engine.history.clients import CLOSED_HERE, HUNG_UP, ClientStep
from loadmanager.engine.history.waits import (
    UNSURE_MS,
    Interrupted,
    Loss,
    Standstill,
    interruptions_of,
    worst_first,
)

TOPIC = "persistent://acme/orders/t"


def _step(ts: int, event: str, broker: str, name: str = "p", **more: Any) -> ClientStep:
    fields: dict[str, Any] = {"what": "producer", "topic": TOPIC, "client": f"10.0.0.1:{ts}"}
    return ClientStep(ts=ts, broker=broker, event=event, name=name, **{**fields, **more})


def _told(waits: list[Interrupted], now_ms: int = 100_000) -> list[tuple[str, int, int, str]]:
    return [(it.client.name, it.since, it.waited_ms(now_ms), it.back) for it in waits]


def test_a_move_interrupts_and_a_client_that_closes_does_not() -> None:
    """From when its broker closed it until another one served it; that it has no word of later."""
    steps = [
        _step(1, "attached", "b1", "p"),
        _step(2, "attached", "b1", "q"),
        _step(3, "attached", "b1", "closes"),
        _step(1_000, "left", "b1", "p", reason=CLOSED_HERE, destination="b2"),
        _step(1_001, "left", "b1", "q", reason=CLOSED_HERE, destination="b2"),
        _step(1_002, "left", "b1", "closes", reason="its client closed it"),
        _step(1_400, "attached", "b2", "p"),
    ]
    waits = interruptions_of(steps, [])
    assert _told(waits) == [("p", 1_000, 400, "b2"), ("q", 1_001, 98_999, "")]
    assert [it.client.name for it in worst_first(waits, 100_000)] == ["q", "p"]


def test_who_waits_for_a_move_waits_since_the_source_stopped_serving() -> None:
    """It is told only once the destination has the bundle, which may take long."""
    left = _step(9_000, "left", "b1", reason=CLOSED_HERE, destination="b2", fenced_ms=8_500)
    steps = [_step(1, "attached", "b1"), left, _step(9_050, "attached", "b2")]
    assert _told(interruptions_of(steps, [])) == [("p", 500, 8_550, "b2")]


def test_a_client_of_another_topic_or_subscription_is_another_one() -> None:
    """Only the same one comes back."""
    steps = [
        _step(1, "attached", "b1", subscription="s"),
        _step(9, "left", "b1", subscription="s", reason=CLOSED_HERE),
        _step(10, "attached", "b2", subscription="other"),
        _step(11, "attached", "b2", subscription="s", topic="persistent://acme/orders/u"),
    ]
    assert _told(interruptions_of(steps, []), 109) == [("p", 9, 100, "")]


def test_a_lost_broker_interrupts_all_that_it_had() -> None:
    """Those that had not left it, also if the process that comes back serves them; those that have
    another owner before the loss is recorded.
    """
    steps = [
        _step(1, "attached", "b1", "p"),
        _step(2, "attached", "b1", "soon"),
        _step(3, "attached", "b1", "gone"),
        _step(4, "attached", "b2", "elsewhere"),
        _step(5, "left", "b1", "gone", reason="its client closed it"),
        _step(49_000, "attached", "b2", "soon"),
        _step(53_000, "attached", "b1", "p"),
    ]
    waits = interruptions_of(steps, [Loss("b1", 50_000, 6_000)])
    assert sorted(_told(waits)) == [("p", 50_000, 3_000, "b1"), ("soon", 49_000, 0, "b2")]
    assert all(it.lost and it.unheard_ms == 6_000 for it in waits)


def test_a_frozen_broker_closes_what_it_had_when_it_goes_on() -> None:
    """That is neither a new interruption nor the end of one."""
    steps = [
        _step(1, "attached", "b1", "p"),
        _step(2, "attached", "b1", "q"),
        _step(1_500, "attached", "b2", "p"),
        _step(30_000, "left", "b1", "p", reason=CLOSED_HERE),
        _step(30_001, "left", "b1", "q", reason=CLOSED_HERE),
        _step(31_000, "attached", "b2", "q"),
    ]
    waits = interruptions_of(steps, [Loss("b1", 1_000)])
    assert sorted(_told(waits)) == [("p", 1_000, 500, "b2"), ("q", 1_000, 30_000, "b2")]


def test_a_broker_that_stood_still_interrupted_those_that_it_had_then() -> None:
    """For as long as it did; whoever came or left meanwhile is interrupted by nothing else."""
    steps = [
        _step(1, "attached", "b1", "p"),
        _step(2, "attached", "b2", "elsewhere"),
        _step(3, "attached", "b1", "closes"),
        _step(7_000, "left", "b1", "closes", reason="its client closed it"),
        _step(7_001, "attached", "b1", "new"),
    ]
    waits = interruptions_of(steps, [], [Standstill("b1", 2_000, 7_000)])
    assert _told(waits) == [("p", 2_000, 5_000, "b1"), ("closes", 2_000, 5_000, "b1")]
    assert [(it.lost, it.stood) for it in waits] == [(False, True)] * 2


def test_a_client_that_may_have_ended_unrecorded_does_not_count() -> None:
    """Where steps were recorded by their number only since its own last one; unless it comes soon,
    or its broker closed it.
    """
    steps = [
        *(_step(10, "attached", "b1", name) for name in ("gone", "back", "late", "closed")),
        _step(11, "attached", "b2", "elsewhere"),
        ClientStep(ts=20, broker="b1", event="unrecorded", times=306),
        _step(20, "attached", "b1", "after"),
        _step(30, "left", "b1", "closed", reason=CLOSED_HERE),
        _step(2_000, "attached", "b2", "back"),
        _step(1_000 + UNSURE_MS + 1, "attached", "b2", "late"),
    ]
    waits = interruptions_of(steps, [Loss("b1", 1_000)], [Standstill("b1", 100, 900)])
    told = {(it.client.name, it.stood): it.unsure for it in waits}
    assert told == {
        ("closed", False): False, ("back", False): False, ("after", False): False,
        ("gone", False): True, ("late", False): True, ("after", True): False,
        ("gone", True): True, ("back", True): True, ("late", True): True,
    }  # fmt: skip


CLOSED_IT = "its client closed it"


def _try(begin: int, lasted: int, broker: str, messages: int = 0, **more: Any) -> list[ClientStep]:
    """An attachment, and its end."""
    at = f"10.0.0.1:{begin}"
    end: dict[str, Any] = {"reason": CLOSED_IT, "client": at, "attached_ms": lasted, **more}
    return [
        _step(begin, "attached", broker, client=at),
        _step(begin + lasted, "left", broker, messages=messages, **end),
    ]


def test_a_client_that_only_tries_to_come_back_waits_on() -> None:
    """One that leaves soon without a message, again and again, in the same moment even: until it
    stays, or has a message.
    """
    lost = [_step(1, "attached", "b1")], [Loss("b1", 1_000, 6_000)]
    tries = [*_try(40_000, 30_000, "b2"), *_try(71_000, 0, "b2"), *_try(75_000, 30_000, "b3")]
    last = _step(110_000, "attached", "b2")

    def told(*steps: ClientStep, now_ms: int = 1_000_000) -> list[tuple[str, int, int, str]]:
        waits = interruptions_of([*lost[0], *steps], lost[1], as_of_ms=now_ms)
        assert all(it.lost for it in waits if it.since == 1_000)
        return _told(waits, now_ms)

    assert told(*tries) == [("p", 1_000, 999_000, "")]
    assert told(*tries, last) == [("p", 1_000, 109_000, "b2")]
    (again,) = interruptions_of([*lost[0], *tries, last], lost[1], as_of_ms=199_000)
    assert (again.back_at, again.again_at, again.again) == (None, 110_000, "b2")
    served = _try(110_000, 9_000, "b2", messages=1)
    assert told(*tries, *served) == [("p", 1_000, 109_000, "b2")]
    idle = _try(110_000, 90_000, "b2")
    assert told(*tries, *idle) == [("p", 1_000, 109_000, "b2")]
    (waits,) = interruptions_of([*lost[0], *tries, last], lost[1], as_of_ms=1_000_000)
    assert [broker for broker, _ in waits.tried] == ["b2", "b2", "b3"]


def test_a_client_that_may_have_given_up_is_not_back_at_once() -> None:
    """Its broker reads late that it comes, and a moment after that that it left; until then nobody
    knows. One that comes soon has not given up.
    """
    steps = [_step(1, "attached", "b1"), *_try(41_000, 900, "b2")]
    for read, now_ms in ((2, 41_001), (2, 41_800), (3, 42_000)):
        waits = interruptions_of(steps[:read], [Loss("b1", 1_000)], as_of_ms=now_ms)
        until_ms = 41_000 if read == 2 else now_ms
        assert _told(waits, now_ms) == [("p", 1_000, until_ms - 1_000, "")]
        again = (waits[0].back_at, waits[0].again_at, waits[0].again)
        assert again == (None, *((41_000, "b2") if read == 2 else (None, "")))
        assert waits[0].until(40_999).came_at is None
    stays = [*steps[:1], _step(41_000, "attached", "b2")]
    waits = interruptions_of(stays, [Loss("b1", 1_000)], as_of_ms=51_000)
    assert _told(waits) == [("p", 1_000, 40_000, "b2")]
    assert waits[0].tried == []
    soon = [*steps[:1], _step(3_000, "attached", "b2")]
    waits = interruptions_of(soon, [Loss("b1", 1_000)], as_of_ms=3_001)
    assert _told(waits) == [("p", 1_000, 2_000, "b2")]


def test_a_try_ends_also_after_the_next_one_began() -> None:
    """A broker that reads late notices late that its client gave up, and has gone elsewhere."""
    (first, gave_up), second = _try(40_000, 30_000, "b2"), _step(65_000, "attached", "b3")
    steps = [_step(1, "attached", "b1"), first, second, gave_up]
    (waits,) = interruptions_of(steps, [Loss("b1", 1_000)], as_of_ms=200_000)
    assert (waits.back, waits.back_at, len(waits.tried)) == ("b3", 65_000, 1)
    (waits,) = interruptions_of(steps, [Loss("b1", 1_000)], as_of_ms=100_000)
    assert waits.back_at is None


def test_an_idle_client_is_back_until_it_is_interrupted_again() -> None:
    """Also if that is soon, by its broker. One that had tried before waits on, without another
    interruption, whether its broker closes it or is lost.
    """
    by_broker = {"reason": CLOSED_HERE}
    steps = [_step(1, "attached", "b1"), *_try(2_000, 8_000, "b2", **by_broker)]
    back = _step(11_000, "attached", "b3")
    waits = interruptions_of([*steps, back], [Loss("b1", 1_000)], as_of_ms=12_000)
    assert _told(waits) == [("p", 1_000, 1_000, "b2"), ("p", 10_000, 1_000, "b3")]
    tried = [_step(1, "attached", "b1"), *_try(2_000, 8_000, "b2")]
    closed = _try(11_000, 1_000, "b2", reason=HUNG_UP)
    waits = interruptions_of([*tried, *closed], [Loss("b1", 1_000)])
    assert _told(waits) == [("p", 1_000, 99_000, "")]
    waits = interruptions_of([*tried, back], [Loss("b1", 1_000), Loss("b3", 15_000)])
    assert _told(waits) == [("p", 1_000, 99_000, "")]
