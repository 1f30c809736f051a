"""The brokers that get certain bundles next (Pulsar's unload affinity)."""

from __future__ import annotations

from dataclasses import dataclass, field

from loadmanager.kit.clock import Clock

PREFERENCE_MS_MAX = 60_000


@dataclass(frozen=True, slots=True)
class Preferred:
    """Bundle → the broker of its next placement.

    Deviation: keyed by the bundle's whole name, and forgotten after a minute.
    """

    clock: Clock
    _brokers: dict[str, tuple[str, int]] = field(default_factory=dict)

    def set(self, bundle: str, broker_id: str) -> None:
        """The next placement of this bundle goes to this broker."""
        now_ms = self.clock.now_ms()
        for old in [
            name for name, (_, at_ms) in self._brokers.items() if not _counts(at_ms, now_ms)
        ]:
            del self._brokers[old]
        self._brokers[bundle] = (broker_id, now_ms)

    def take(self, bundle: str) -> str | None:
        """The broker of this placement, once."""
        broker_id, at_ms = self._brokers.pop(bundle, (None, 0))
        return broker_id if _counts(at_ms, self.clock.now_ms()) else None

    def forget(self, bundle: str) -> None:
        """The next placement is free."""
        self._brokers.pop(bundle, None)


def _counts(at_ms: int, now_ms: int) -> bool:
    return now_ms - at_ms <= PREFERENCE_MS_MAX
