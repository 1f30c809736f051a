"""A dead man's timer: switches Pulsar's own balancing on when the daemon has fallen silent.

It runs as a process of its own, for a daemon that was killed cannot do it. Only a daemon that moves
bundles gives signs of life, so that the timer of one that never did switches nothing on. After it
has fired it waits for the next sign.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from loadmanager.kit.clock import Clock
from loadmanager.kit.logger import get_logger

log = get_logger("fleet")


@dataclass(slots=True, kw_only=True)
class DeadMan:
    """The timer of one cluster."""

    cluster: str
    last_sign: Callable[[], int | None]
    """Another value after each sign of life; None: there is none, or it cannot be read. One that is
    gone without `forget` is silence.
    """
    forget: Callable[[], None]
    restore: Callable[[], Awaitable[None]]
    """Switches Pulsar's own on. Raises `OperationalError` if that failed."""
    clock: Clock
    silent_s: float
    _sign: int | None = field(default=None, init=False)
    _since_s: float = field(default=0.0, init=False)
    _fired: int | None = field(default=None, init=False)
    """The sign after which it has fired, also if that could not be forgotten."""

    async def step(self) -> None:
        """Look, and switch Pulsar's own on if there was no sign for too long. The time counts from
        the first look, by the monotonic clock. Raises what `restore` does; the next step tries
        again.
        """
        sign, now_s = self.last_sign() or self._sign, self.clock.monotonic_s()
        if sign != self._sign:
            if self._sign is None and sign != self._fired:
                log.info("a daemon steers this cluster", cluster=self.cluster)
            self._sign, self._since_s = sign, now_s
        if sign is None or now_s - self._since_s < self.silent_s:
            return
        if sign == self._fired:
            return
        log.error("the daemon is silent", cluster=self.cluster, seconds=self.silent_s)
        await self.restore()
        self._fired, self._sign = sign, None
        self.forget()
