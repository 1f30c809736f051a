"""Records of brokers that come, go and lead, most of them by the leader."""

from __future__ import annotations

from typing import ClassVar

from loadmanager.engine.history.records import Record

UNTIL = "so far"
"""`how` of clients for whom nobody waits any longer."""


class MemberChange(Record, kw_only=True):
    """A broker started, stops, left, came back or leads, what it had owned is served again, or it
    stood still, or the metadata store did not answer it, or its session was not proven for a while.
    """

    kind: ClassVar[str] = "member"
    of: str
    """The broker."""
    event: str
    """`left`, `sign` (a lost broker was asked, right after), `later` (of a lost broker that had
    not answered is known how it went on), `back`, `placed` (all its bundles are served again),
    `clients` (the clients of its bundles are back, or were waited for ten minutes, or until it left
    again), `starts` (by itself), `stops` (by itself: it stops in order, and has told the others
    so), `leads` (its term begins), `unanswered` (by itself: the metadata store has given it no
    answer for some seconds; `proven` follows when that is over, unless its process ended before),
    `proven` (by itself: its session is proven again, or the store answers again after
    `unanswered`) or `stood` (by itself: its process had stood still for two seconds or longer:
    frozen, or without a CPU).
    """
    how: str = ""
    """Of `left`: `stopped`, `drained` or `lost`. Of `sign`: what it did when it was asked.
    Of `later`: what it did when asked again. Of `clients`: empty, or `so far`, if they were not
    waited for any longer.
    """
    left_at: int | None = None
    """Of `left`: when its session was over, ms since the epoch, by the leader's clock; this was
    recorded up to some seconds later. None: a version before wrote this.
    """
    version: str | None = None
    started_at: int | None = None
    """When its process began, milliseconds since the epoch."""
    bundles: int = 0
    """Those that it had owned."""
    took_ms: int | None = None
    """Of `placed`: until the last one was served. Of `later`: for how long it had not answered
    since it left. Of `back`: how long it was away. Of `proven`: for how long its session was
    not; 0: it was proven all the time. Of `stood`: for how long it had stood still.
    """
    same_process: bool | None = None
    """Of `back`: false if it was restarted."""
    clients: int | None = None
    """Of `clients`, as the next four: those that its bundles had, as it had last published. Of
    `stood`: those that it has, by its last report.
    """
    clients_at: int | None = None
    """When it had published that, ms since the epoch: some may have ended by themselves after."""
    clients_back: int | None = None
    """Those of them that were served again."""
    clients_waited_ms: float | None = None
    """From when it left until the last of those was served."""
    clients_waited_mean_ms: float | None = None
    """The same for all of these, on the mean."""
    unheard_ms: int | None = None
    """Of `clients`: they may have waited for so much longer, because the session of a lost broker
    ends so long after its last sign, at most: later where the metadata store gave no answer.
    Of `left`: its last sign was at most so long ago.
    Of `proven`: so long before its session was not proven any more, it had sent the last heartbeat
    that the metadata store answered; for so long there was no answer, if `tookMs` is 0.
    Of `unanswered`: so long ago the metadata store had given its last answer.
    """
    epoch: int | None = None
    """Of `leads`: its term."""
    before: str | None = None
    """Of `leads`: who led before, if that is known."""


def left_at_of(change: MemberChange) -> int:
    """When the session of a broker that left was over."""
    return change.ts if change.left_at is None else change.left_at


def unheard_of(change: MemberChange) -> int | None:
    """How long before that its last sign was, at most; None: not known."""
    if change.unheard_ms is None:
        return None
    return max(0, change.unheard_ms - (change.ts - left_at_of(change)))


MEMBER_KINDS: dict[str, type[Record]] = {MemberChange.kind: MemberChange}
