"""`loadmanager admin limits why`: whom limits hold, and why."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress

import click

from loadmanager.cli.admin.archives import incomplete, now_ms
from loadmanager.cli.admin.asking import V2, count_of, partitions_of, topic_path
from loadmanager.cli.admin.client import AdminClient, AnsweredError
from loadmanager.cli.admin.client_steps import attached_then, ends_of_brokers, interrupted_between
from loadmanager.cli.admin.command import Output
from loadmanager.cli.admin.greatest_user import greatest_users
from loadmanager.cli.admin.held_clients import held_for_others, may_wait_anywhere, waiting_since
from loadmanager.cli.admin.held_then import AGO_MS, held_between
from loadmanager.cli.admin.names_then import nothing_then
from loadmanager.cli.admin.past_limits import limits_at, limits_set_then
from loadmanager.cli.admin.shapes import Document, HeldSubscription, ThrottlingOfTopic
from loadmanager.cli.admin.times import at_option, clock
from loadmanager.cli.admin.where_set import rate_text, where_set
from loadmanager.kit.errors import LoadManagerError, OperationalError
from loadmanager.kit.names import TopicName
from loadmanager.kit.units import HOUR_MS
from loadmanager.limits.tracker import HoldCause

DISPATCH_LIMITS = ("dispatchRate", "subscriptionDispatchRate")
NOT_THERE = 404


@click.argument("topic")
@at_option
def limits_why(admin: AdminClient, topic: str, at: int | None) -> Output:
    """Say why a topic's producers are slow, the slowest first; and which connections to its broker
    are held by limits of other topics, because whatever uses one of them waits. Of a partitioned
    topic, for each partition that is open, of the first 100. With --at, what its own limits held
    then, what was set for it and its namespace, and which of its connections limits held; `limits
    list --at` has all limits.
    """
    if at is not None:
        return _why_then(admin, TopicName.parse(topic), at)
    reports: dict[str, object] = {}
    lines = list[str]()
    for name in partitions_of(admin, topic):
        try:
            reports[name], of_one = _why_held(admin, name)
        except AnsweredError as error:
            if error.status != NOT_THERE:
                raise
        else:
            lines += [f"{name}:", *(f"  {line}" for line in of_one)]
    if reports:
        return Output({"partitions": reports}, lines)
    return Output(*_why_of(admin, topic))


def _why_then(admin: AdminClient, topic: TopicName, at_ms: int) -> Output:
    """What a topic's own limits held at a moment, and which connections of its clients were held
    then, by these or others.
    """
    own = limits_at(admin, None, at_ms, of=topic)
    rates = _set_then(admin, topic, at_ms)
    were_set = [
        f"was set for {target} then: "
        + "; ".join(f"{name} {rate_text(rate)}" for name, rate in sorted(of.items()))
        for target, of in rates.items()
    ]
    attached, notes, missing = attached_then(admin, at_ms)
    uses = Counter((it.broker, it.client) for it in attached if it.topic == str(topic))
    begin_ms, end_ms = at_ms - HOUR_MS, at_ms + HOUR_MS
    holds = held_between(admin, begin_ms, end_ms, ends_of_brokers(admin, begin_ms - AGO_MS, end_ms))
    lines = [
        f"connection {it.client} to {it.broker} was held since {clock(it.begin)} by "
        f"{it.limits_between(at_ms, at_ms) or 'limits'}: "
        f"{count_of(uses[it.broker, it.client], 'client')} of this topic used it"
        for it in holds
        if (it.broker, it.client) in uses and it.begin <= at_ms <= it.end
    ]
    nobody = [] if uses else ["nobody was attached to it then, as far as it is recorded"]
    if nobody and not own.data:
        nobody.append(nothing_then(admin, str(topic), at_ms))
    data = {"limits": own.data, "set": rates, "connections": lines}
    parts = (were_set, *own.shown, lines or nobody, *incomplete(notes))
    status = 0 if own.data or lines or were_set else 1
    return Output(data, parts, status=status, missing=own.missing | missing)


def _set_then(admin: AdminClient, topic: TopicName, at_ms: int) -> dict[str, dict[str, Document]]:
    """Topic and namespace → the limits that were set for it at a moment; of a topic that is not
    there now, nobody knows.
    """
    stored = dict[str, dict[str, Document]]()
    for target in (str(topic.partitioned_topic), str(topic.namespace)):
        with suppress(AnsweredError):
            if rates := limits_set_then(admin, target, at_ms).data:
                stored[target] = rates
    return stored


def _why_of(admin: AdminClient, topic: str) -> tuple[object, list[str]]:
    """Why a topic without partitions is slow; or why others may not come to be attached to it."""
    try:
        return _why_held(admin, topic)
    except AnsweredError as error:
        if error.status != NOT_THERE:
            raise
        more = filter(None, (_not_back(admin, topic), may_wait_anywhere(admin)))
        raise OperationalError("; ".join((str(error), *more))) from None


def _not_back(admin: AdminClient, topic: str) -> str:
    """How many of a topic's clients wait since a move, a loss or a standstill of the last hour."""
    name, end_ms = str(TopicName.parse(topic)), now_ms()
    try:
        waits = interrupted_between(admin, end_ms - HOUR_MS, end_ms).waits
    except LoadManagerError:  # without archives, or of a daemon
        return ""
    count = sum(it.came_at is None and it.client.topic == name for it in waits)
    if not count:
        return ""
    are = "is" if count == 1 else "are"
    return (
        f"{count_of(count, 'client')} of it {are} not seen to be back: `loadmanager admin "
        f"interrupted {name}` says since when, and why"
    )


def _why_held(admin: AdminClient, topic: str) -> tuple[object, list[str]]:
    """What its broker says. Raises `AnsweredError`."""
    report, raw = admin.ask("GET", f"{V2}/{topic_path(topic)}/throttling", None, ThrottlingOfTopic)
    lines = [
        f"{producer['producer']}: {producer['why']} (its connection was held for "
        f"{producer['heldSeconds']:.1f} s since it was attached here)"
        for producer in report["producers"]
    ]
    lines += [
        f"subscription {name}: {_hold_text(state)}"
        for name, state in report["subscriptions"].items()
    ]
    if not lines:
        nobody = "the topic has neither producers nor consumers"
        lines = ["; ".join(filter(None, (nobody, _not_back(admin, topic))))]
    others, at_ms = report.get("heldForOthers", []), now_ms()
    lines += held_for_others(others, at_ms)
    lines += waiting_since(admin, str(TopicName.parse(topic)), others, at_ms)
    causes = {cause for each in report["producers"] for cause in each.get("heldSecondsByCause", {})}
    lines += greatest_users(admin, str(TopicName.parse(topic)), causes)
    states = report["subscriptions"].values()
    of = ["publishRate"] if HoldCause.TOPIC_PUBLISH_RATE in causes else []
    of += DISPATCH_LIMITS if any(state["throttledTimes"] for state in states) else []
    lines += where_set(admin, topic, of)
    return raw, lines


def _hold_text(state: HeldSubscription) -> str:
    times = ", ".join(
        f"{count_of(times, 'time')} by the limit of {limit}"
        for limit, times in state["throttledTimes"].items()
    )
    now = "held now" if state["held"] else "not held now"
    if clients := state.get("heldConnections", []):
        more = f" and {len(clients) - 1} more" if len(clients) > 1 else ""
        own = "held now, and" if state["held"] else "no limit of its own holds it now, but"
        now = (
            f"{own} limits hold the connection {clients[0]}{more} of its consumers: what they "
            "acknowledge and ask for is not read meanwhile"
        )
    return f"{now}; was held so far {times}" if times else now
