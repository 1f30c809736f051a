"""A day as bytes, for tasks on other machines; equal days are equal bytes."""

from __future__ import annotations

import io
from dataclasses import asdict

import msgspec
import numpy as np

from loadmanager.lab.day_rules import DayRules
from loadmanager.lab.days import DayEvent, DayOfLoad, Kind, Pattern

ARRAYS = ("clients", "cost", "message_bytes", "carried")


class _Event(msgspec.Struct):
    minute: int
    kind: str
    broker: str


class _Rest(msgspec.Struct):
    """The fields that are not arrays."""

    seed: int
    minutes: int
    brokers: tuple[str, ...]
    cores: dict[str, float]
    bundles: tuple[str, ...]
    events: list[_Event]
    beside: float
    slow: dict[str, float]
    owners: tuple[str, ...]
    rules: tuple[DayRules, ...]


def dump(day: DayOfLoad) -> bytes:
    """A recorded day."""
    assert not isinstance(day.carried, Pattern), "a synthetic day is made from its seed"
    rest = _Rest(
        seed=day.seed,
        minutes=day.minutes,
        brokers=day.brokers,
        cores=dict(sorted(day.cores.items())),
        bundles=day.bundles,
        events=[_Event(**{**asdict(event), "kind": event.kind.value}) for event in day.events],
        beside=day.beside,
        slow=dict(sorted(day.slow.items())),
        owners=day.owners,
        rules=day.rules,
    )
    file = io.BytesIO()
    text = np.frombuffer(msgspec.json.encode(rest), np.uint8)
    np.savez(file, rest=text, **{name: getattr(day, name) for name in ARRAYS})
    return file.getvalue()


def load(data: bytes) -> DayOfLoad:
    """The day again."""
    with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
        rest = msgspec.json.decode(arrays["rest"].tobytes(), type=_Rest)
        return DayOfLoad(
            seed=rest.seed,
            minutes=rest.minutes,
            brokers=rest.brokers,
            cores=rest.cores,
            bundles=rest.bundles,
            events=tuple(
                DayEvent(each.minute, Kind(each.kind), each.broker) for each in rest.events
            ),
            beside=rest.beside,
            slow=rest.slow,
            owners=rest.owners,
            rules=rest.rules,
            clients=arrays["clients"],
            cost=arrays["cost"],
            message_bytes=arrays["message_bytes"],
            carried=arrays["carried"],
        )
