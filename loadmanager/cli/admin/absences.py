"""Brokers that are not there, in sentences."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from msgspec.structs import replace

from loadmanager.cli.admin.asking import OWN, count_of
from loadmanager.cli.admin.client import AdminClient, AnsweredError
from loadmanager.cli.admin.downtimes import Downtime, Lapse
from loadmanager.cli.admin.sentences import few_of, waits_text
from loadmanager.cli.admin.times import clock, span, time_of_day
from loadmanager.engine.history.lapses import lapse_of
from loadmanager.engine.history.members import MemberChange, left_at_of, unheard_of
from loadmanager.kit.errors import OperationalError
from loadmanager.leader.documents.members import (
    ANSWERS,
    LATER,
    MAYBE_ANSWERS,
    NO_ANSWER,
    REPLACED,
    RETURN_MS_MAX,
    AbsentBroker,
    MembersShown,
)
from loadmanager.leader.interruptions import down_before

NAMED_MAX = 3
TOGETHER_MS = 4_000
"""Brokers that one partition cuts off lose their sessions one after the other, an eighth of a
session timeout apart at most, which is that of their heartbeats.
"""
SAME_MS = 1_000
"""Times that differ by more are told of each broker."""
NOT_OURS = 404
"""The answer of what has no such route: a daemon, and a broker of Pulsar."""
SEVERAL = (
    ("asked then, it answers, without a session", "asked then, they answer, without sessions"),
    (f"{LATER}answers, without a session", "; later they answer, without sessions"),
    ("it answered without a session", "they answered without sessions"),
    ("or another process did in its place", "or other processes did in their places"),
    ("it had ended: another process", "they had ended: other processes"),
    ("answered in its place", "answered in their places"),
    ("asked then, it ", "asked then, they "),
    (LATER, "; later they "),
    ("its process has ended, or its host is", "their processes have ended, or their hosts are"),
)
"""What is told of one broker that was asked, and of several."""
HOW = {"stopped": "stopped in order", "drained": "drained and stopped", "lost": "lost"}


def absence_text(absence: AbsentBroker, now_ms: int, lapses: Sequence[Lapse] = ()) -> str:
    """When and how a broker left, and what became of its bundles; without its name. `lapses`: of
    which its loss may be a consequence.
    """
    texts = [bundles_text(absence) + clients_text(absence, now_ms), _back(absence)]
    left = _left_text(absence, now_ms, _lapse_of(absence, lapses))
    return "; ".join(filter(None, (left, *texts)))


def _lapse_of(absence: AbsentBroker, lapses: Iterable[Lapse]) -> Lapse | None:
    lost = absence.how == "lost"
    return lapse_of(lapses, absence.broker, absence.left_at) if lost else None


def _left_text(
    absence: AbsentBroker, now_ms: int, lapse: Lapse | None, *, several: bool = False
) -> str:
    """When and how it left, and why, if that is known; `several`: it stands for others, too."""
    ago = span(now_ms - absence.left_at)
    text = f"{HOW.get(absence.how, absence.how)} {ago} ago ({clock(absence.left_at)})"
    if absence.how != "lost":
        return text
    if absence.lost_before and not several:
        often = 1 + len(absence.lost_before)
        text += f", {often} times since {clock(absence.lost_before[0])}"
    if lapse is not None:
        text += f": {lapse.of(absence.broker, several=several)}"
    else:
        text += f", {'their sessions' if several else 'its session'} ended without a word"
        if absence.unheard_ms:
            last = "their last signs" if several else "its last sign"
            text += f" up to {span(absence.unheard_ms)} after {last}"
    if absence.sign:
        first, later, then = absence.sign_told.partition(LATER)
        text += f"; asked then, it {first}{meaning_of(first)}"
        text += f"{later}{then}{meaning_of(then)}"
    return _of_several(text) if several else text


def _of_several(text: str) -> str:
    """What is told of one broker, told of several."""
    for single, many in SEVERAL:
        text = text.replace(single, many)
    return text


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
    most = "" if absence.placed_exact else " at most"
    return f"{owned} placed after {span((absence.placed_at or 0) - absence.left_at)}{most}"


def clients_text(absence: AbsentBroker, now_ms: int) -> str:
    """What became of the clients of its bundles; empty if it had not published any."""
    text = clients_waited(absence, over=_is_over(absence, now_ms))
    if absence.clients_back < (absence.clients or 0):
        text += f" ({names_missing(absence.left_at, absence.broker)})"
    return f"; {text}" if text else ""


def names_missing(since_ms: int, *broker: str) -> str:
    """Which command tells more of clients that are not back."""
    names = "".join(f"{it} " for it in broker)
    since = clock(since_ms).replace(" ", "T")
    command = f"loadmanager admin interrupted {names}--since {since}"
    return f"`{command}` names those missing that are recorded"


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


def _is_over(absence: AbsentBroker, now_ms: int) -> bool:
    """Whether nobody counts its clients any more."""
    counted_ms = max(absence.left_at, absence.placed_at or 0) + RETURN_MS_MAX
    return absence.placed == absence.bundles and now_ms > counted_ms


def clients_waited(absence: Waiting, *, over: bool = False) -> str:
    """How many are back, and how long they waited; empty if there were none. `over`: they are not
    counted any more, and others may have come later.
    """
    if not absence.clients:
        return ""
    back, clients = absence.clients_back or 0, count_of(absence.clients, "client")
    missing = back < absence.clients
    within = f" within {span(RETURN_MS_MAX)}" if over else ""
    text = f"{few_of(back)} of {clients} back{within}" if missing else f"{clients} waited"
    if absence.clients_waited_ms is None:
        return text if missing else f"{clients} back"
    waited = waits_text(absence.clients_waited_ms, absence.clients_waited_mean_ms, back)
    if absence.unheard_ms:
        most, before = span(absence.clients_waited_ms + absence.unheard_ms), absence.unheard_ms
        waited = f"up to {most}: {waited} since it was lost, and up to {span(before)} before"
    return text + (f", who waited {waited}" if missing else f" {waited}")


def _back(absence: AbsentBroker) -> str:
    if absence.back_at is None:
        return ""
    away = span(absence.back_at - absence.left_at)
    how = "the same process" if absence.same_process else "restarted"
    return f"the broker is back after {away}, {how}"


def missing_text(present: int, expected: int) -> str:
    """How many brokers are fewer than expected; empty if none."""
    fewer = expected - present
    if fewer <= 0:
        return ""
    verb = "is" if fewer == 1 else "are"
    return f"{fewer} of {count_of(expected, 'expected broker')} {verb} not there"


def sign_of(change: MemberChange, changes: Iterable[MemberChange]) -> str:
    """What a lost broker did when it was asked, by a record of that; `changes`: of all members, as
    far as they are known, by which it may have been another process that answered.
    """
    if change.how != ANSWERS:
        return f"{change.how}{meaning_of(change.how)}"
    own = [it for it in changes if it.of == change.of]
    began = (it.started_at or 0 for it in own if it.event == "starts")
    if change.started_at is not None and any(
        change.started_at < began_ms <= change.ts for began_ms in began
    ):
        return REPLACED
    back = [it for it in own if it.event in ("back", "left") and it.ts >= change.ts]
    first = min(back, key=lambda it: it.ts, default=None)
    if first is None or first.event != "back":
        return MAYBE_ANSWERS
    return change.how if first.same_process else REPLACED


def recorded_losses(changes: Iterable[MemberChange]) -> list[AbsentBroker]:
    """The losses of brokers that leaders recorded, the oldest first, with what came of each;
    `changes`: the oldest first.
    """
    losses, latest = list[AbsentBroker](), dict[str, AbsentBroker]()
    before = dict[str, AbsentBroker]()
    for change in changes:
        if change.event == "left":
            latest.pop(change.of, None)
        if change.event == "left" and change.how == "lost":
            loss = AbsentBroker(
                broker=change.of,
                left_at=left_at_of(change),
                how="lost",
                bundles=change.bundles,
                unheard_ms=unheard_of(change),
            )
            if (earlier := before.get(change.of)) is not None:
                loss.lost_before = earlier.losses_until(loss.left_at)
            losses.append(loss)
            latest[change.of] = before[change.of] = loss
        elif (of := latest.get(change.of)) is not None:
            _came(of, change)
    return losses


def loss_text(loss: AbsentBroker, now_ms: int, lapses: Sequence[Lapse] = ()) -> str:
    """What is recorded of a loss; not whether its bundles are served by now. `lapses`: of which it
    may be a consequence.
    """
    bundles = bundles_text(loss)
    if loss.placed < loss.bundles:
        bundles = f"it owned {count_of(loss.bundles, 'bundle')}"
    left = _left_text(loss, now_ms, _lapse_of(loss, lapses))
    texts = (left, bundles + clients_text(loss, now_ms), _back(loss))
    return f"{loss.broker} {'; '.join(filter(None, texts))}"


def _came(loss: AbsentBroker, change: MemberChange) -> None:
    """Note what a record says of a loss."""
    took_ms = change.took_ms or 0
    if change.event == "sign":
        loss.sign = change.how
    elif change.event == "later":  # an earlier version did not record the sign
        loss.sign = f"{loss.sign or NO_ANSWER}{LATER}{change.how}"
    elif change.event == "placed":
        loss.placed, loss.placed_at = loss.bundles, loss.left_at + took_ms
    elif change.event == "clients":
        loss.clients, loss.clients_back = change.clients, change.clients_back or 0
        loss.clients_at = change.clients_at
        loss.clients_waited_ms = change.clients_waited_ms
        loss.clients_waited_mean_ms = change.clients_waited_mean_ms
        loss.unheard_ms = change.unheard_ms
    elif change.event == "back" and loss.back_at is None:
        loss.back_at, loss.same_process = loss.left_at + took_ms, bool(change.same_process)


def since_down(absent: Iterable[AbsentBroker], downs: Sequence[Downtime]) -> Iterator[AbsentBroker]:
    """Brokers that left, of which those were lost when the whole cluster went down, and not when
    their sessions were over, whose sessions ended while it was down.
    """
    for it in absent:
        down = down_before(downs, it.left_at) if it.how == "lost" else None
        if down is None:
            yield it
            continue
        earlier = it.left_at - down.begin
        waits = (it.clients_waited_ms, it.clients_waited_mean_ms)
        longest, mean = (None if each is None else each + earlier for each in waits)
        yield replace(
            it,
            left_at=down.begin,
            unheard_ms=None,
            clients_waited_ms=longest,
            clients_waited_mean_ms=mean,
        )


def nobody_asks(absence: AbsentBroker) -> bool:
    """Whether a broker and all of its clients are back: a bundle of it that has no owner had no
    client, and the next lookup places it. False if nobody knows how many clients there were.
    """
    clients = absence.clients
    return not absence.gone and clients is not None and absence.clients_back >= clients


class News(NamedTuple):
    """Brokers that left, in one line."""

    text: str
    over_ms: int | None
    """Since when it is over: they are back, their bundles are served, as far as anybody asks for
    them, and their clients are back, or not counted any more; None: it is not.
    """


def news(
    absent: Sequence[AbsentBroker], now_ms: int, within_ms: int, lapses: Sequence[Lapse] = ()
) -> Iterator[News]:
    """Those that are gone, and those that left or came back lately; those that left together in
    the same way, as by one partition, in one line. `lapses`: of which losses may be consequences.
    """
    lately = [it for it in absent if it.gone or now_ms - it.left_at <= within_ms]
    for together in _together(lately):
        ends = [_over_ms(it, now_ms) for it in together]
        over_ms = None if None in ends else max(filter(None, ends))
        if len(together) == 1:
            text = f"{together[0].broker} {absence_text(together[0], now_ms, lapses)}"
        else:
            text = _together_text(together, now_ms, lapses)
        yield News(text, over_ms)


def _over_ms(absence: AbsentBroker, now_ms: int) -> int | None:
    """Since when nothing of it lasts."""
    missing = absence.clients_back < (absence.clients or 0)
    if absence.gone or (absence.placed < absence.bundles and not nobody_asks(absence)):
        return None
    if missing and not _is_over(absence, now_ms):
        return None
    return max(absence.back_at or 0, absence.placed_at or 0)


def _together(absent: Sequence[AbsentBroker]) -> list[list[AbsentBroker]]:
    """Groups of one cause: they left at about the same time in the same way, and all are back, or
    none is.
    """
    groups, latest = list[list[AbsentBroker]](), dict[object, list[AbsentBroker]]()
    for it in sorted(absent, key=lambda each: (-each.left_at, each.broker)):
        cause = it.how, it.sign, it.gone, it.same_process
        group = latest.get(cause)
        if group is None or group[-1].left_at - it.left_at > TOGETHER_MS:
            group = latest[cause] = []
            groups.append(group)
        group.append(it)
    return groups


def _together_text(absent: Sequence[AbsentBroker], now_ms: int, lapses: Sequence[Lapse]) -> str:
    times = [it.left_at for it in absent]
    each = max(times) - min(times) > SAME_MS
    names = [
        f"{it.broker} ({time_of_day(it.left_at)})" if each else it.broker
        for it in sorted(absent, key=lambda it: it.broker)
    ]
    more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
    first, causes = absent[0], [_lapse_of(it, lapses) for it in absent]
    lapse = causes[0] if all(it is causes[0] for it in causes) else None
    texts = [_left_text(first, now_ms, lapse, several=True)]
    bundles, left = sum(it.bundles for it in absent), sum(it.bundles - it.placed for it in absent)
    owner = f", {left} without an owner until the next lookup" if left else ""
    texts.append(f"{count_of(bundles, 'bundle')} in all{owner}")
    if clients := sum(it.clients or 0 for it in absent):
        back = sum(min(it.clients_back, it.clients or 0) for it in absent)
        longest = max((it.clients_waited_ms or 0.0) + (it.unheard_ms or 0) for it in absent)
        waited = f", who waited {span(longest)} at most" if longest else ""
        few = few_of(back) if back < clients else str(back)
        over = back < clients and all(_is_over(it, now_ms) for it in absent)
        within = f" within {span(RETURN_MS_MAX)}" if over else ""
        who = f" ({names_missing(min(times))})" if back < clients else ""
        texts.append(f"{few} of {count_of(clients, 'client')} back{within}{waited}{who}")
    if not first.gone:
        away = max((it.back_at or 0) - it.left_at for it in absent)
        how = "the same processes" if first.same_process else "restarted"
        texts.append(f"the brokers are back after {span(away)} at most, {how}")
    return f"{', '.join(names[:NAMED_MAX])}{more} {'; '.join(texts)}"


class Uncounted(NamedTuple):
    """Of which topics no broker told."""

    missing: dict[str, str]
    """Broker → why: it gave no answer, or it left, and nobody serves its bundles yet, for which
    clients may wait.
    """
    notes: list[str]
    """Which bundles nobody asks for."""


def uncounted(admin: AdminClient, no_answer: Mapping[str, str]) -> Uncounted:
    """Of which topics an answer of all brokers does not tell."""
    try:
        absent = admin.get(f"{OWN}/members", MembersShown).absent
    except OperationalError as error:
        if isinstance(error, AnsweredError) and error.status == NOT_OURS:
            return Uncounted(dict(no_answer), [])
        unknown = f"whether bundles of lost brokers have no owner: {error}"
        return Uncounted({**no_answer, "the leader": unknown}, [])
    missing, notes = dict(no_answer), list[str]()
    for absence in absent:
        left = absence.bundles - absence.placed
        if not left or absence.broker in missing:
            continue
        some = absence.waiting[:NAMED_MAX]
        more = f" and {left - len(some)} more" if left > len(some) else ""
        names = f"{', '.join(some)}{more}"
        if nobody_asks(absence):
            notes.append(f"not counted, because nobody asks for them: the topics of {names}")
            continue
        how = HOW.get(absence.how, absence.how)
        missing[absence.broker] = f"{how}, and {left} of its bundles without an owner: {names}"
    return Uncounted(missing, notes)
