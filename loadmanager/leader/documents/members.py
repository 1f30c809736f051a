"""Brokers that left, for as long as they are remembered. Times are milliseconds since the epoch."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from loadmanager.kit.model import Shape
from loadmanager.kit.units import HOUR_MS

HowLeft = Literal["stopped", "drained", "lost"]
"""`stopped`: in order. `drained`: the same, and all its bundles had been moved away before. `lost`:
its session ended without a word: it was killed, frozen or cut off.
"""
ANSWERS = "answers, without a session"
"""The sign of a broker that only lost its session, or whose successor answers."""
MAYBE_ANSWERS = "answered without a session, or another process did in its place"
"""The same of one that is not back: which process answered, is known only then."""
REPLACED = "had ended: another process answered in its place"
RETURN_MS_MAX = 600_000
"""Clients of a bundle that come later than this after it was served again are new ones."""
LOSSES_MAX = 20
"""Earlier losses of a broker that are told with the last one."""
NO_ANSWER, LATER = "did not answer", "; later it "
"""How the sign of a broker begins that may be frozen, and what stands before what it did later."""


class AbsentBroker(Shape):
    """A broker that left, also when it is back."""

    broker: str
    left_at: int
    how: HowLeft
    sign: str = ""
    """What it did when it was asked after its session was lost, such as `did not answer within 5
    s`, and what it did later, if that is something else; empty: it was not asked.
    """
    version: str | None = None
    started_at: int | None = None
    """When its process began."""
    bundles: int = 0
    """Those that it owned when it left."""
    placed: int = 0
    """Those of them that are served again."""
    placed_at: int | None = None
    """When the last one of these was; null: none is."""
    placed_exact: bool = False
    """Whether that is by what the owners recorded; else the leader saw it then, by their next
    reports, and it was so at the latest.
    """
    waiting: list[str] = msgspec.field(default_factory=list)
    """The first ones of those that are not: the next lookup places each."""
    clients: int | None = None
    """Producers and consumers of the bundles that it owned, as it had last published them; null: it
    had not.
    """
    clients_at: int | None = None
    """When it had published that, without those that came or went later; null: not known."""
    clients_back: int = 0
    """Those of them that are served again: each bundle's present clients, at most as many as it
    had.
    """
    clients_waited_ms: float | None = None
    """From `leftAt` until the last of those was served."""
    clients_waited_mean_ms: float | None = None
    """The same for all of these, on the mean."""
    unheard_ms: int | None = None
    """Of a lost broker: its clients may have waited for so much longer, because the session of a
    broker ends so long after its last sign, at most: later where the metadata store gave no answer.
    """
    store_silent: bool = False
    """Whether the metadata store had given the leader no answer when its session ended: that was no
    fault of the broker.
    """
    back_at: int | None = None
    """When it came back; null: it has not."""
    same_process: bool = False
    """Whether it was the same process that came back."""
    restarts: int = 0
    """How often another process came back, as long as it is remembered."""
    lost_before: list[int] = msgspec.field(default_factory=list)
    """When it was lost before, the oldest first: each an hour before the next one at most."""
    lost_by_store: list[int] = msgspec.field(default_factory=list)
    """Those of them for which the metadata store gave no answer."""

    @property
    def gone(self) -> bool:
        """Whether it is not back."""
        return self.back_at is None

    @property
    def sign_told(self) -> str:
        """Its sign, without the claim that it answered if another process may have done so."""
        if self.gone:
            return self.sign.replace(ANSWERS, MAYBE_ANSWERS)
        return self.sign if self.same_process else self.sign.replace(ANSWERS, REPLACED)

    def lost_after(self, at_ms: int) -> int | None:
        """When it was lost first after a moment; None: it was not."""
        losses = [*self.lost_before, self.left_at] if self.how == "lost" else []
        return next((it for it in losses if it >= at_ms), None)

    def losses_until(self, at_ms: int) -> list[int]:
        """Those that one of then follows within an hour: a process that ends again and again, say;
        the last ones.
        """
        if self.how != "lost" or at_ms - self.left_at > HOUR_MS:
            return []
        return [*self.lost_before, self.left_at][-LOSSES_MAX:]


def first_lost_after(absent: Iterable[AbsentBroker], broker: str, at_ms: int) -> int | None:
    """When a broker was lost first after a moment; None: it was not, as far as these say."""
    times = (it.lost_after(at_ms) for it in absent if it.broker == broker)
    return min((it for it in times if it is not None), default=None)


class MembersShown(Shape):
    """Who is there, and who is not."""

    at: int
    present: list[str]
    expected: int
    """How many brokers there should be (`loadManagerExpectedBrokers`); 0: nobody said."""
    absent: list[AbsentBroker]
    """Those that left in the last days, the last one first; also those that are back, and the
    losses of those that have stopped in order since.
    """
