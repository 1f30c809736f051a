"""What bound the leader on a recorded day beside its settings: isolation, anti-affinity, pins,
cordons, and what brokers refused, as its recorded cycles say.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

import msgspec

from loadmanager.engine.history.cycles import FORMAT, Cycle
from loadmanager.engine.load.wishes import NO_WISHES, Cordon, Pin, Wishes
from loadmanager.engine.policies.isolation import IsolationPolicies, IsolationPolicy
from loadmanager.kit.units import MINUTE_MS

CHANGING = ("isolation", "groups", "failure_domains")
"""Fields of a cycle that are there when they have changed."""
CHANGES_MAX = 10_000
"""Later changes of one day are left out."""


class DayRules(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """In force from a minute of the day on."""

    minute: int
    isolation: dict[str, IsolationPolicy] = {}
    groups: dict[str, str] = {}
    """Namespace → anti-affinity group."""
    failure_domains: dict[str, list[str]] = {}
    pins: dict[str, Pin] = {}
    cordons: dict[str, Cordon] = {}
    refusals: dict[str, frozenset[str]] = {}

    @cached_property
    def policies(self) -> IsolationPolicies:
        """Its isolation policies, which keep what matched."""
        return IsolationPolicies(self.isolation)

    @cached_property
    def wishes(self) -> Wishes:
        """Its pins, cordons and refusals."""
        if not (self.pins or self.cordons or self.refusals):
            return NO_WISHES
        return Wishes(self.pins, self.cordons, self.refusals)

    @property
    def drained(self) -> list[str]:
        """Brokers that are to be emptied."""
        return sorted(name for name, cordon in self.cordons.items() if cordon.drain)


NO_RULES = DayRules(minute=0)


def rules_of(cycles: Iterable[Cycle], start_ms: int) -> tuple[DayRules, ...]:
    """The rules of a day that begins then, by the recorded cycles, in order of time. What the first
    cycles say counts from the beginning.
    """
    terms: dict[tuple[str, int], dict[str, Any]] = {}
    rules: list[DayRules] = []
    for cycle in cycles:
        if cycle.format > FORMAT or len(rules) >= CHANGES_MAX:
            continue
        of_term = terms.setdefault((cycle.broker, cycle.epoch), {})
        for name in CHANGING:
            if (value := getattr(cycle, name)) is not None:
                of_term[name] = value
        if len(of_term) < len(CHANGING):
            continue  # the history begins in the middle of this term
        minute = max((cycle.ts - start_ms) // MINUTE_MS, 0) if rules else 0
        now = DayRules(
            minute=minute,
            pins=cycle.pins,
            cordons=cycle.cordons,
            refusals=cycle.refusals,
            **of_term,
        )
        before = msgspec.structs.replace(rules[-1] if rules else NO_RULES, minute=minute)
        if now != before:
            rules.append(now)
    return tuple(rules)


def in_force(rules: Sequence[DayRules], minute: int) -> DayRules:
    """Those of a minute."""
    return next((each for each in reversed(rules) if each.minute <= minute), NO_RULES)
