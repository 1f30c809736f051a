"""How many clients were interrupted today, in a sentence: the leader counts them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from loadmanager.cli.admin.asking import OWN, count_of
from loadmanager.cli.admin.client import AdminClient
from loadmanager.cli.admin.times import clock, span, span_between, time_of_day
from loadmanager.cli.terminal import named
from loadmanager.engine.history.waits import Interrupted
from loadmanager.kit.errors import LoadManagerError
from loadmanager.leader.documents.interruptions import InterruptionsShown

BY_LEADERS = "as leaders counted, and not by the records of each client"


def sentence(total: InterruptionsShown) -> str:
    """What there was."""
    parts = [count_of(total.moves, "move")]
    parts += [f"{count_of(total.failed, 'move')} failed"] if total.failed else []
    if total.lost > total.lost_brokers > 0:
        brokers = count_of(total.lost_brokers, "broker")
        parts.append(f"{total.lost} losses of {brokers}")
    elif total.lost:
        parts.append(f"{count_of(total.lost, 'broker')} lost")
    parts += [f"{count_of(total.stood, 'standstill')} of brokers"] if total.stood else []
    by = f" ({BY_LEADERS})" if total.by_leaders else ""
    parts.append(f"{count_of(total.clients, 'interruption')} of clients{by}")
    if total.sum_ms:
        until = "" if total.by_leaders else " until attached again"
        longest = span_between(total.longest_ms, total.longest_most_ms)
        in_all = span_between(total.sum_ms, total.sum_most_ms)
        least = " at least" if total.unheard_ms else ""
        parts += [f"longest {longest}{until}", f"in all {in_all}{least}"]
    if total.unheard_ms:
        parts.append(f"up to {span(total.unheard_ms)} more before a broker counted as lost")
    if total.attached:
        parts.append(f"{total.attached} of them attached again, not sure to stay")
    if missing := total.clients - total.back - total.attached:
        parts.append(f"{missing} of them not seen to be back")
    if total.unsure:
        parts.append(f"{total.unsure} unsure: nobody knows whether these were still there")
    if total.lacking:
        parts.append(lacking_text(total))
    return f"today since {time_of_day(total.since)}: {', '.join(parts)}"


def lacking_text(total: InterruptionsShown) -> str:
    """That there may have been more; empty: all is recorded, as far as archives know."""
    if not total.lacking:
        return ""
    return f"NOT ALL IS RECORDED: the archives of {named(total.lacking)} lack records of this time"


def longest_of(waits: Iterable[Interrupted]) -> str:
    """How long the longest wait of those that are back was, or from … to … of a lost broker's
    client; empty if none is.
    """
    took = [(it.waited_ms(0), it.unheard_ms) for it in waits if it.back_at is not None]
    if not took:
        return ""
    least, most = max(ms for ms, _ in took), max(ms + unheard for ms, unheard in took)
    return span_between(least, most)


def between_text(waits: Sequence[Interrupted], begin_ms: int, end_ms: int, as_of_ms: int) -> str:
    """How many clients were interrupted in a time, and for how long at most."""
    when = f"from {clock(begin_ms)} to {clock(end_ms)}"
    if not waits:
        return f"no client is recorded that was interrupted {when}"
    back = [it for it in waits if it.back_at is not None]
    again = sum(it.back_at is None and it.came_at is not None for it in waits)
    missing = len(waits) - len(back) - again
    text = f"{count_of(len(waits), 'interruption')} of clients {when}"
    if back:
        longest = longest_of(back)
        text += f": those that are back were attached again after {longest} at most"
    if again:
        text += f"; {again} {'is' if again == 1 else 'are'} attached again, not sure to stay"
    if missing:
        text += f"; {missing} {'is' if missing == 1 else 'are'} not seen to be attached again"
    return text


def todays_interruptions(admin: AdminClient) -> list[str]:
    """Those since midnight (UTC), or since there are records, in a sentence; none without
    archives, and before anything was moved or lost, stood still, or interrupted a client.
    """
    try:
        total = admin.get(f"{OWN}/interruptions", InterruptionsShown)
    except LoadManagerError:
        return []
    if not (
        total.moves or total.failed or total.lost or total.stood or total.clients or total.unsure
    ):
        return (
            [f"today since {time_of_day(total.since)}: {text}"]
            if (text := lacking_text(total))
            else []
        )
    since = clock(total.since).replace(" ", "T")
    names = f"`loadmanager admin interrupted --since {since}` names them"
    return [f"{sentence(total)}: {names}" if total.clients else sentence(total)]
