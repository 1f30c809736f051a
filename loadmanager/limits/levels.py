"""Levels of limits, their tuning and their reserves."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Level(enum.StrEnum):
    """The kind of thing that a limit belongs to."""

    BROKER = "broker"
    TOPIC = "topic"
    SUBSCRIPTION = "subscription"
    RESOURCE_GROUP = "resource group"


@dataclass(frozen=True, slots=True)
class Tuning:
    """The tuning of limits (see `ThrottlingSettings`)."""

    burst_ns: int
    """What an idle limit saves up, as time of its rate; at least one token."""
    debt_max_ns: int
    """Publish debt beyond this much time of the rate is forgiven."""
    resolution_ns: int


@dataclass(frozen=True, slots=True, eq=False)
class Reservation:
    """Tokens that are set aside for a ticket."""

    messages: int
    size_bytes: int
    expires_ns: int
