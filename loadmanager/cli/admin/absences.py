"""Brokers that are not there, in sentences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from loadmanager.cli.admin.asking import OWN, count_of
from loadmanager.cli.admin.client import AdminClient, AnsweredError
from loadmanager.cli.admin.sentences import few_of, waits_text
from loadmanager.cli.admin.times import clock, span
from loadmanager.kit.errors import OperationalError
from loadmanager.leader.documents.members import LATER, NO_ANSWER, AbsentBroker, MembersShown

NAMED_MAX = 3
NOT_OURS = 404
"""The answer of what has no such route: a daemon, and a broker of Pulsar."""
HOW = {"stopped": "stopped in order", "drained": "drained and stopped", "lost": "lost"}


def absence_text(absence: AbsentBroker, now_ms: int) -> str:
    """When and how a broker left, and what became of its bundles; without its name."""
    ago = span(now_ms - absence.left_at)
    text = f"{HOW.get(absence.how, absence.how)} {ago} ago ({clock(absence.left_at)})"
    if absence.how == "lost":
        text += ", its session ended without a word"
        if absence.unheard_ms:
            text += f" up to {span(absence.unheard_ms)} after its last sign"
        if absence.sign:
            first, later, then = absence.sign.partition(LATER)
            text += f"; asked then, it {first}{meaning_of(first)}"
            text += f"{later}{then}{meaning_of(then)}"
    texts = [bundles_text(absence) + clients_text(absence), _back(absence)]
    return "; ".join(filter(None, (text, *texts)))


def meaning_of(sign: str) -> str:
    """What follows from what a lost broker did when it was asked."""
    if sign.startswith(NO_ANSWER):
        return " (frozen, or cut off)"
    return " (its process has ended, or its host is away)" if "reached" in sign else ""


def bundles_text(absence: AbsentBroker) -> str:
    """What became of its bundles."""
    count, left = absence.bundles, absence.bundles - absence.placed
    if not count:
        return "it owned no bundle"
    owned = count_of(count, "bundle")
    if left:
        some = absence.waiting[:NAMED_MAX]
        more = f" and {left - len(some)} more" if left > len(some) else ""
        named = f": {', '.join(some)}{more}" if some else ""
        return f"{owned}, {left} without an owner until the next lookup{named}"
    return f"{owned} placed after {span((absence.placed_at or 0) - absence.left_at)}"


def clients_text(absence: AbsentBroker) -> str:
    """What became of the clients of its bundles; empty if it had not published any."""
    text = clients_waited(absence)
    return f"; {text}" if text else ""


class Waiting(Protocol):
    """The clients of a broker that left; see `AbsentBroker`."""

    clients: int | None
    clients_waited_ms: float | None
    clients_waited_mean_ms: float | None
    unheard_ms: int | None

    @property
    def clients_back(self) -> int | None:
        """Those that are served again."""
        ...


def clients_waited(absence: Waiting) -> str:
    """How many are back, and how long they waited; empty if there were none."""
    if not absence.clients:
        return ""
    back, clients = absence.clients_back or 0, count_of(absence.clients, "client")
    missing = back < absence.clients
    text = f"{few_of(back)} of {clients} back" if missing else f"{clients} waited"
    if absence.clients_waited_ms is None:
        return text if missing else f"{clients} back"
    waited = waits_text(absence.clients_waited_ms, absence.clients_waited_mean_ms, back)
    text += f", who waited {waited}" if missing else f" {waited}"
    if absence.unheard_ms:
        text += f" since it was lost, and up to {span(absence.unheard_ms)} before"
    return text


def _back(absence: AbsentBroker) -> str:
    if absence.back_at is None:
        return ""
    away = span(absence.back_at - absence.left_at)
    how = "the same process" if absence.same_process else "restarted"
    return f"back after {away}, {how}"


def missing_text(present: int, expected: int) -> str:
    """How many brokers are fewer than expected; empty if none."""
    fewer = expected - present
    if fewer <= 0:
        return ""
    verb = "is" if fewer == 1 else "are"
    return f"{fewer} of {count_of(expected, 'expected broker')} {verb} not there"


def news(absent: Sequence[AbsentBroker], now_ms: int, within_ms: int) -> Iterator[str]:
    """Those that are gone, and those that left or came back lately."""
    for absence in absent:
        if absence.gone or now_ms - absence.left_at <= within_ms:
            yield f"{absence.broker} {absence_text(absence, now_ms)}"


def uncounted(admin: AdminClient, no_answer: Mapping[str, str]) -> dict[str, str]:
    """Broker → why its topics are in no answer of all brokers: it gave none, or it left, and nobody
    serves its bundles yet.
    """
    try:
        absent = admin.get(f"{OWN}/members", MembersShown).absent
    except OperationalError as error:
        if isinstance(error, AnsweredError) and error.status == NOT_OURS:
            return dict(no_answer)
        unknown = f"whether bundles of lost brokers have no owner: {error}"
        return {**no_answer, "the leader": unknown}
    missing = dict(no_answer)
    for absence in absent:
        left = absence.bundles - absence.placed
        if left and absence.broker not in missing:
            how, some = HOW.get(absence.how, absence.how), absence.waiting[:NAMED_MAX]
            more = f" and {left - len(some)} more" if left > len(some) else ""
            text = f"{how}, and {left} of its bundles without an owner: {', '.join(some)}{more}"
            missing[absence.broker] = text
    return missing
