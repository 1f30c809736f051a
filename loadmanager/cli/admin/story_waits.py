"""How long clients had to wait, in the stories of clients and of what they use: `history`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from loadmanager.cli.admin.archives import now_ms
from loadmanager.cli.admin.asking import count_of
from loadmanager.cli.admin.causes import Causes, is_of_name
from loadmanager.cli.admin.client import AdminClient
from loadmanager.cli.admin.client_steps import Waits, ends_of_brokers, interrupted_between
from loadmanager.cli.admin.downtimes import Stood
from loadmanager.cli.admin.held_sums import HeldSum, sums_of
from loadmanager.cli.admin.held_then import AGO_MS, held_between
from loadmanager.cli.admin.interruptions import between_text
from loadmanager.cli.admin.times import clock, span, span_between
from loadmanager.engine.history.clients import ClientStep
from loadmanager.engine.history.waits import Interrupted
from loadmanager.kit.errors import LoadManagerError
from loadmanager.leader.interruptions import AFTER_MS

SHORT_MS = 1_000
"""An interruption of a client that was no standstill and no loss, and shorter, is told by the lines
about where it was attached.
"""


@dataclass(frozen=True, slots=True)
class StoryWaits:
    """Those of some clients in a time."""

    dated: Sequence[tuple[int, list[str]]] = ()
    """In the story of a client: when each began, and its lines."""
    sums: Sequence[str] = ()
    """In that of a topic, bundle, namespace or tenant, with the commands that tell more."""


def waits_of_client(
    admin: AdminClient, name: str, times: tuple[int, int], *, with_holds: bool
) -> StoryWaits:
    """What is told of a client of this name, address or role; `with_holds`: its story has no
    records of those.
    """

    def is_it(step: ClientStep) -> bool:
        return name in (step.name, step.client, step.address, step.subscription, *step.roles)

    try:
        by_name, waits, holds = _ask(admin, is_it, times)
        causes = Causes.of(admin, by_name, waits, times)
    except LoadManagerError:  # without archives
        return StoryWaits()
    long = [it for it in waits if it.stood or it.lost or it.waited_ms(times[1]) >= SHORT_MS]
    dated = [(it.since, [f"{clock(it.since)}  {_sentence(it, causes)}"]) for it in long]
    if with_holds:
        dated += [
            (int(first := min(it.times)[0]), [f"{clock(first)}  {_hold_text(it)}"]) for it in holds
        ]
    return StoryWaits(dated=dated)


def waits_of_all(admin: AdminClient, name: str, times: tuple[int, int]) -> StoryWaits:
    """What is told of the clients of a topic, bundle, namespace or tenant."""
    about = name if "://" in name or "_0x" in name else f"://{name}/"
    try:
        _, waits, holds = _ask(admin, lambda step: is_of_name(step, about), times)
    except LoadManagerError:
        return StoryWaits()
    return StoryWaits(sums=list(_sums(about, waits, holds, times)))


def _ask(
    admin: AdminClient, is_it: Callable[[ClientStep], bool], times: tuple[int, int]
) -> tuple[Waits, list[Interrupted], list[HeldSum]]:
    """Who of these was interrupted, and for how long limits held connections that they used."""
    begin_ms, end_ms = times
    by_name = interrupted_between(admin, begin_ms, end_ms)
    waits = [it for it in by_name.waits if is_it(it.client)]
    used = {(it.broker, it.client) for it in by_name.steps if is_it(it)}
    if not used:
        return by_name, waits, []
    ends = ends_of_brokers(admin, begin_ms - AGO_MS, end_ms + AFTER_MS)
    holds = held_between(admin, begin_ms, end_ms + AFTER_MS, ends)
    own = [it for it in holds if (it.broker, it.client) in used]
    stood = Stood.between(admin, begin_ms, end_ms) if own else Stood({})
    return by_name, waits, sums_of(own, begin_ms, end_ms, stood)


def _sentence(it: Interrupted, causes: Causes) -> str:
    """How long a client waited, and why."""
    step, waited_ms = it.client, it.waited_ms(causes.as_of_ms)
    within = f" of {step.subscription}" if step.subscription else ""
    lasted = span_between(waited_ms, waited_ms + it.unheard_ms)
    why = "; ".join(filter(None, (causes.because(it), causes.course(it), causes.why_not_yet(it))))
    end = "" if it.came_at is not None else ", and is not back"
    verb = "waited" if it.came_at is not None else "waits"
    who = f"{step.what} {step.name}{within} on {step.topic}"
    return f"{who} {verb} for {lasted}{end}, because of {step.broker}: {why}"


def _hold_text(it: HeldSum) -> str:
    again = "" if len(it.times) == 1 else f", {len(it.times)} times"
    end = max(end for _, end in it.times)
    return (
        f"connection {it.client} was held at {it.broker} until {clock(end)}, for "
        f"{span(it.held_ms)} in all{again}, by {', '.join(sorted(it.limits))}"
    )


def _sums(
    about: str, waits: Sequence[Interrupted], holds: Sequence[HeldSum], times: tuple[int, int]
) -> Iterator[str]:
    begin_ms, end_ms = times
    times_given = f"--since {_given(begin_ms)}"
    if now_ms() - end_ms > AFTER_MS:
        times_given += f" --until {_given(end_ms)}"
    if waits:
        command = f"`loadmanager admin interrupted {about} {times_given}` names each"
        yield f"{between_text(waits, begin_ms, end_ms, end_ms)}: {command}"
    if holds:
        longest = holds[0]
        command = f"`loadmanager admin limits list --clients {times_given}` names each"
        yield (
            f"limits held {count_of(len(holds), 'connection')} of its clients then, for "
            f"{span(sum(it.held_ms for it in holds))} in all, {longest.client} for "
            f"{span(longest.held_ms)} (by {', '.join(sorted(longest.limits))}): {command}"
        )


def _given(at_ms: int) -> str:
    """A time as options take it."""
    return clock(at_ms).replace(" ", "T")
