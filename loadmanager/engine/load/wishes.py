"""Who gets nothing for a while, or keeps what it has: pins, cordons, a pause and ends of limits of
operators; what brokers themselves refuse; and what moves cost. All are stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Annotated, Any

import msgspec

from loadmanager.engine.bundles.ranges import BundleRange
from loadmanager.kit.errors import BadInputError

NOTE_MAX = 500
HOLD_S_MAX = 366 * 86_400.0
"""Nothing is pinned or paused for longer than a year."""


class Pin(msgspec.Struct, frozen=True, rename="camel"):
    """A bundle stays at a broker until a time (ms since the epoch)."""

    broker: str
    until_ms: int
    note: str = ""
    by: str = ""
    """Who ordered it: a role, or an address; so in what follows."""


class Cordon(msgspec.Struct, frozen=True, rename="camel"):
    """A broker gets no new bundle; with `drain`, its bundles leave it, too."""

    since_ms: int
    drain: bool = False
    total: int = 0
    """Bundles that it had when its drain began."""
    note: str = ""
    until_restart_of: int = 0
    """When the broker's process began (ms since the epoch): the cordon ends when a later one
    registers. 0: it stays until somebody ends it.
    """
    by: str = ""


class Pause(msgspec.Struct, frozen=True, rename="camel"):
    """No queued move begins before a time (ms since the epoch)."""

    until_ms: int
    note: str = ""
    by: str = ""
    since_ms: int | None = None
    """None in what earlier versions stored."""


class LimitEnd(msgspec.Struct, frozen=True, rename="camel"):
    """A limit was set for a time: until a time (ms since the epoch)."""

    until_ms: int
    of: str
    """The stored document that has the limit."""
    path: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]
    """The nested field that is the limit."""
    before: Any
    """What it is afterwards; null: not set."""
    after: Any
    """What was set: if it is something else by then, it stays."""


LIMIT_NAMES = {
    "publishMaxMessageRate": "publishRate",
    "topicDispatchRate": "dispatchRate",
    "clusterSubscribeRate": "subscribeRate",
}
"""Field of a namespace's policies → the name of the limit; others are named as their field."""
EVERY_BUNDLE = "*"
"""A broker that refuses this refuses all."""


@dataclass(frozen=True, slots=True)
class Wishes:
    """The pins, cordons, refusals and costs that count now."""

    pins: Mapping[str, Pin] = field(default_factory=dict)
    """Bundle → its pin."""
    cordons: Mapping[str, Cordon] = field(default_factory=dict)
    """brokerId → its cordon."""
    refusals: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """brokerId → the bundles that it could not open a moment ago; see `EVERY_BUNDLE`."""
    costs: Mapping[str, float] = field(default_factory=dict)
    """Bundle → how many seconds a move of it takes now, as its owner says; others take none."""
    copies: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Bundle → the brokers that have a copy of it: a move there costs nothing."""
    _ranges: dict[str, list[tuple[BundleRange, Pin]]] = field(
        default_factory=dict, init=False, compare=False, repr=False
    )
    """Namespace → its pinned ranges, the narrowest first."""

    def __post_init__(self) -> None:
        for bundle, pin in self.pins.items():
            namespace, _, span = bundle.rpartition("/")
            with suppress(BadInputError):
                self._ranges.setdefault(namespace, []).append((BundleRange.parse(span), pin))
        for ranges in self._ranges.values():
            ranges.sort(key=lambda pinned: pinned[0].upper - pinned[0].lower)

    def __bool__(self) -> bool:
        return bool(self.pins or self.cordons or self.refusals or self.costs)

    def pin_of(self, bundle: str) -> Pin | None:
        """The pin of a bundle, or of the bundle that it was a part of before a split."""
        pin = self.pins.get(bundle)
        if pin is not None or not self._ranges:
            return pin
        namespace, _, span = bundle.rpartition("/")
        ranges = self._ranges.get(namespace)
        if ranges is None:
            return None
        with suppress(BadInputError):
            part = BundleRange.parse(span)
            for whole, pin in ranges:
                if whole.lower <= part.lower and part.upper <= whole.upper:
                    return pin
        return None

    def refuses(self, broker: str, bundle: str | None) -> bool:
        """True if a broker could not open a bundle a moment ago, or any at all."""
        return self.refuses_it(broker, bundle) or self.refuses_it(broker, EVERY_BUNDLE)

    def refuses_it(self, broker: str, bundle: str | None) -> bool:
        """True if it is this bundle that the broker could not open."""
        return bundle in self.refusals.get(broker, ())

    def cost(self, bundle: str, destination: str | None) -> float:
        """How many seconds it takes to move a bundle there."""
        cost = self.costs.get(bundle, 0.0)
        return 0.0 if cost and destination in self.copies.get(bundle, ()) else cost

    def keep(self, bundle: str, broker: str) -> Pin | None:
        """The pin that keeps a bundle at this broker."""
        pin = self.pin_of(bundle) if self.pins else None
        return pin if pin is not None and pin.broker == broker else None


NO_WISHES = Wishes()


def check_hold(seconds: float) -> float:
    """Raise `BadInputError` for a duration that is not positive, or too long."""
    if not 0 < seconds <= HOLD_S_MAX:
        raise BadInputError(
            f"a duration of more than 0 s and at most {HOLD_S_MAX / 86_400:g} days is expected"
        )
    return seconds
