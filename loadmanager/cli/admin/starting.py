"""Brokers whose process is young: what they own and who waits for them is known only later."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from loadmanager.cli.admin.archives import now_ms
from loadmanager.cli.admin.asking import OWN, ask_each, brokers_of, cluster_of, count_of, owned
from loadmanager.cli.admin.client import AdminClient, AnsweredError
from loadmanager.cli.admin.shapes import Started
from loadmanager.cli.admin.times import span
from loadmanager.engine.history.members import MemberChange
from loadmanager.kit.errors import LoadManagerError
from loadmanager.leader.documents.members import MembersShown

YOUNG_MS = 60_000
"""A process that began so lately may have replaced one whose session has not ended yet."""
ANSWER_S = 2.0
NO_LEADER = (502, 503, 504)
"""The leader that a broker knows cannot be reached; it knows none; the leader does not answer."""


def start_of(at: AdminClient) -> int:
    """When the process of a broker began, by its own clock."""
    return at.get(f"{OWN}/load-report", Started)["startTimestamp"]


@dataclass(frozen=True, slots=True)
class Owning:
    """What brokers say of themselves; of one that does not say something it is not known."""

    started: Mapping[str, int] = field(default_factory=dict)
    bundles: Mapping[str, int] = field(default_factory=dict)
    """Broker → how many it owns."""

    @classmethod
    def of(cls, admin: AdminClient, brokers: Sequence[str]) -> Owning:
        """Ask each."""
        started, _ = ask_each(admin, brokers, lambda at, _: start_of(at), timeout_s=ANSWER_S)
        try:
            cluster = cluster_of(admin)
        except LoadManagerError:
            return cls(started)
        bundles, _ = ask_each(
            admin, brokers, lambda at, name: len(owned(at, cluster, name)), timeout_s=ANSWER_S
        )
        return cls(started, bundles)

    def text(self, broker: str, at_ms: int) -> str:
        """Of a broker that is well while nobody leads."""
        count = self.bundles.get(broker)
        serves = "it serves the bundles that it owns"
        if count is not None:
            serves = f"it serves {count_of(count, 'bundle')}" if count else "it owns no bundle"
        started_ms = self.started.get(broker, 0)
        if not is_young(started_ms, at_ms):
            return f"it is well; {serves}"
        began = f"it was started {span(max(0, at_ms - started_ms))} ago"
        if count == 0:
            serves = "owns nothing yet"
            return f"{began}, and {serves}; what it owned before is placed once a broker leads"
        return f"{began}; {serves}"


def is_young(started_ms: int, at_ms: int) -> bool:
    """Whether a process began lately; 0: when it did is not known."""
    return started_ms > 0 and at_ms - started_ms < YOUNG_MS


def unrecorded_losses(
    admin: AdminClient, changes: Sequence[MemberChange], *, lasts: bool
) -> list[str]:
    """That brokers may have been lost of which nobody has recorded it yet; none: no sign of it.
    `changes`: what is recorded of brokers. `lasts`: whether it is asked of the present.
    """
    try:
        brokers = brokers_of(admin) if lasts else []
    except LoadManagerError:  # a daemon's
        return []
    if not brokers:
        return []
    started, silent = ask_each(admin, brokers, lambda at, _: start_of(at), timeout_s=ANSWER_S)
    whys = [] if _leads(admin) else ["no broker leads now"]
    whys += _whys(started, silent, changes, now_ms())
    text = (
        "NOT ALL MAY BE RECORDED YET: whom the loss of a broker interrupted is known once its "
        "session has ended and a leader has recorded that"
    )
    return [f"{text}; {'; '.join(whys)}: ask again in some seconds"] if whys else []


def _whys(
    started: Mapping[str, int],
    silent: Mapping[str, str],
    changes: Sequence[MemberChange],
    at_ms: int,
) -> Iterator[str]:
    """`started`, `silent`: of the brokers whose sessions last."""
    for broker, why in sorted(silent.items()):
        text = why.splitlines()[0].removeprefix(f"{broker} ")
        yield f"{broker} does not answer ({text})"
    for broker, started_ms in sorted(started.items()):
        ended = (it for it in changes if it.of == broker and it.event in ("left", "stops"))
        if is_young(started_ms, at_ms) and all(started_ms - it.ts > YOUNG_MS for it in ended):
            yield f"{broker} was started {span(max(0, at_ms - started_ms))} ago"


def _leads(admin: AdminClient) -> bool:
    """False if nobody leads."""
    try:
        admin.get(f"{OWN}/members", MembersShown)  # a name may be that of one that leads no more
    except AnsweredError as error:
        return error.status not in NO_LEADER
    except LoadManagerError:
        return True
    return True
