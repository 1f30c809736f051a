"""Of which brokers the loads of a moment are not known, whatever is recorded next to it; and which
were lost about then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from loadmanager.engine.history.lapses import SessionLapse
from loadmanager.engine.history.members import MemberChange, left_at_of, unheard_of
from loadmanager.kit.history.archive_answers import ArchivedLoads
from loadmanager.kit.units import MINUTE_MS

MEANS_MS = 900_000
"""Archives keep the means of so long a time once it is a day ago."""
LOSS_MS = 60_000
"""A session that no heartbeat keeps is over after this time, however long its timeout."""


def unknown_loads(
    loads: Iterable[ArchivedLoads],
    lapses: Sequence[SessionLapse],
    later: Sequence[MemberChange],
    at_ms: int,
    clock: Callable[[int], str],
) -> dict[str, str]:
    """Broker → why its recorded loads are not of a moment; `later`: what was recorded of members
    after it, the oldest first; `clock`: a time in words.

    A broker records each minute what it has measured last. What it
    recorded after an outage says nothing of the time within the outage, or before; and what was
    recorded before the moment does not stand for it if the next record was lost with the process.
    """
    unknown = dict[str, str]()
    for it in sorted(loads, key=lambda each: each.ts):
        unknown.pop(it.broker, None)
        if it.span_ms >= MEANS_MS:
            continue
        if it.ts < at_ms:
            if _ended_without_record(it, later):
                unknown[it.broker] = f"what it recorded after {clock(it.ts)} was lost with it"
            continue
        own = [lapse for lapse in lapses if it.broker in lapse.brokers and lapse.is_unproven]
        touched = [lapse for lapse in own if lapse.since <= it.ts and at_ms <= lapse.end]
        # What was recorded in the same outage is of it.
        if any(at_ms < lapse.since or lapse.end < it.ts for lapse in touched):
            unknown[it.broker] = (
                f"an outage or standstill lies between then and the next record, of {clock(it.ts)}"
            )
    return unknown


def _ended_without_record(last: ArchivedLoads, later: Iterable[MemberChange]) -> bool:
    """Whether the process that recorded these loads was killed before it recorded the next."""
    change = next(
        (it for it in later if it.of == last.broker and it.event in ("left", "starts", "stops")),
        None,
    )
    if change is None or change.event == "stops" or change.how in ("stopped", "drained"):
        return False
    return left_at_of(change) - last.ts <= max(last.span_ms, MINUTE_MS) + LOSS_MS


def lost_about(
    later: Iterable[MemberChange],
    at_ms: int,
    last_sign: Callable[[str, int, int], int],
    clock: Callable[[int], str],
) -> dict[str, str]:
    """Broker → when its last sign was and when its session ended, of those whose last sign was
    before a moment, and whose loss was recorded after it; `later`: what was recorded of members
    then, the oldest first; `last_sign`: of a broker that was heard of at a time, and whose session
    ended at another.
    """
    lost = dict[str, str]()
    for change in later:
        unheard_ms, left_ms = unheard_of(change), left_at_of(change)
        if change.event != "left" or change.how != "lost" or unheard_ms is None:
            continue
        if change.of in lost or left_ms - unheard_ms >= at_ms:
            continue
        sign_ms = last_sign(change.of, left_ms - unheard_ms, left_ms)
        if sign_ms < at_ms:
            ended = f"its session ended at {clock(left_ms)}"
            lost[change.of] = f"{sign_text(sign_ms, clock)} and {ended}"
    return lost


def sign_text(sign_ms: int, clock: Callable[[int], str]) -> str:
    """When a broker gave its last sign."""
    return f"its last sign was at {clock(sign_ms)}"
