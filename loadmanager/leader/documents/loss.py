"""Where the bundles of lost brokers would go.

Rates are messages/s, throughputs bytes/s, in and out together.
"""

from __future__ import annotations

import msgspec

from loadmanager.kit.model import Shape


class LostBundle(Shape):
    """A bundle that would need another owner."""

    bundle: str
    broker: str
    """Its owner."""
    destination: str | None
    """Where the next lookup would place it; null: no broker qualifies."""
    rate: float | None
    throughput: float | None
    pinned_to: str | None
    """Its pin, which counts while that broker may serve the bundle."""
    rules: list[str]
    """What leaves only some brokers to it: codes such as Isolation, AntiAffinity, Cordoned."""


class LossDestination(Shape):
    """What a broker would take over."""

    broker: str
    bundles: int
    rate: float
    throughput: float


class RemainingBroker(Shape):
    """A broker that would be left, by the model of what traffic costs."""

    broker: str
    usage: float
    """Of its most used resource now, as a fraction."""
    usage_after: float
    """The same with the bundles that it would take over."""
    usage_error: float
    """The mean error of the model for this broker."""


class LossShown(Shape):
    """Where placement would send the bundles of some brokers if these were lost now, the busiest
    bundle first, each counting as placed for the next: lookups in another order may place some of
    them elsewhere. Nothing is moved.
    """

    at: int
    brokers: list[str]
    total: int
    """Their bundles, of which `bundles` has the busiest ones, as many as `limit` allows."""
    bundles: list[LostBundle]
    destinations: list[LossDestination]
    """Of all their bundles, in order of name."""
    homeless: int
    """For so many of them no broker qualifies."""
    remaining: list[RemainingBroker] = msgspec.field(default_factory=list)
    """The other brokers, in order of name; empty: nothing says what their traffic costs."""
    overloaded_percent: float = 100.0
    """A broker above this is overloaded (`loadBalancerBrokerOverloadedThresholdPercentage`)."""
