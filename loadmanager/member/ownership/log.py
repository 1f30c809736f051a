"""The ownership log: when this broker began and ceased to own each bundle, and why.

Times are on a clock that all processes of a machine share, so that the logs of several brokers show
whether two of them ever owned a bundle at once.
"""

from __future__ import annotations

from loadmanager.engine.history.members import MemberChange
from loadmanager.engine.history.records import OwnershipStep
from loadmanager.engine.ownership.states import BundleState, Transition
from loadmanager.kit import tracing
from loadmanager.kit.clock import Clock
from loadmanager.kit.history.port import History
from loadmanager.kit.logger import get_logger
from loadmanager.kit.metadata.lease import Lease
from loadmanager.leader.ports.mover import Released
from loadmanager.member.move_pauses import Pauses

EVENTS = {
    BundleState.OWNED: "bundle acquired",
    BundleState.RELEASING: "bundle releasing",
    BundleState.FREE: "bundle released",
}

RELEASED_MAX = 1_000

log = get_logger("ownership")


class OwnershipLog:
    """Logs transitions of bundles, and records them in the history, if there is one."""

    def __init__(
        self, *, broker_id: str, clock: Clock, lease: Lease, history: History | None
    ) -> None:
        self._broker_id = broker_id
        self._clock = clock
        self._lease = lease
        self._history = history
        self.pauses = Pauses()
        self._released: dict[str, Released] = {}
        """Bundle → its last release here, the newest last."""

    def released(self, bundle: str) -> Released | None:
        """The pause and the life of a bundle's last release. None: a new life has begun since, or
        it is not among the last `RELEASED_MAX`.
        """
        return self._released.get(bundle)

    def on_transition(self, step: Transition) -> None:
        """A bundle changed its state on this broker."""
        if self._history is not None:
            self._record(self._history, step)
        if step.before is BundleState.FREE:
            self._released.pop(step.bundle, None)
        if step.pause_ms is not None:
            if step.destination is not None:
                self.pauses.add(step.pause_ms, tracing.traceparent())
            self._released[step.bundle] = Released(pause_ms=step.pause_ms, life=step.life)
            if len(self._released) > RELEASED_MAX:
                del self._released[next(iter(self._released))]
        event = EVENTS.get(step.after)
        if event is None or (
            step.before is BundleState.ASSIGNING and step.after is BundleState.FREE
        ):
            return
        log.info(
            event,
            bundle=step.bundle,
            state_before=step.before.value,
            reason=step.reason,
            destination=step.destination,
            pause_ms=None if step.pause_ms is None else round(step.pause_ms, 1),
            # A paused process wakes up long after it ceased to own anything: the proof of its
            # session ended then.
            monotonic_s=min(self._clock.monotonic_s(), self._lease.proven_until_s),
        )

    def silent(self, silent_s: float) -> None:
        """The store has given no answer for so long: recorded now, because this process may have
        ended when it answers again.
        """
        self._record_of_session("unanswered", silent_s)

    def proven(self, unproven_s: float, unanswered_s: float) -> None:
        """The session of this broker was not proven for so long, and is again; the store had given
        its last answer so long before.
        """
        self._record_of_session("proven", unanswered_s, took_ms=round(1000 * unproven_s))

    def _record_of_session(
        self, event: str, unanswered_s: float, took_ms: int | None = None
    ) -> None:
        if self._history is not None:
            self._history.append(
                MemberChange(
                    ts=self._clock.now_ms(),
                    broker=self._broker_id,
                    of=self._broker_id,
                    event=event,
                    took_ms=took_ms,
                    unheard_ms=round(1000 * unanswered_s) or None,
                )
            )

    def _record(self, history: History, step: Transition) -> None:
        history.append(
            OwnershipStep(
                ts=self._clock.now_ms(),
                broker=self._broker_id,
                bundle=step.bundle,
                before=step.before.value,
                after=step.after.value,
                reason=step.reason,
                cause=step.cause.value,
                parent=step.parent,
                destination=step.destination,
                pause_ms=step.pause_ms,
                life=step.life,
            )
        )
