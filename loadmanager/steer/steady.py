"""A check that the machine's clock was not set: ages and deadlines count by it."""

from __future__ import annotations

from loadmanager.kit.clock import Clock
from loadmanager.kit.errors import OperationalError
from loadmanager.kit.tasks import sleep

STEP_S = 2.0
"""A clock that is set by less is only corrected."""


class Steady:
    """Compares the clock with the one that never goes back."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._difference_s = self._difference()

    def _difference(self) -> float:
        return self._clock.now_ms() / 1000 - self._clock.monotonic_s()

    def check(self) -> None:
        """Raises `OperationalError` if the clock was set since the last time."""
        before_s, self._difference_s = self._difference_s, self._difference()
        step_s = self._difference_s - before_s
        if abs(step_s) > STEP_S:
            raise OperationalError(
                f"the clock was set by {step_s:+.0f} s: the cluster is read anew"
            )

    async def watch(self, interval_s: float) -> None:
        """Check at intervals, until cancelled or the clock was set: what is known would look too
        new then, or too old. Raises `OperationalError`.
        """
        while True:
            await sleep(interval_s)
            self.check()
