"""`loadmanager admin what-if`: the last hour with other brokers or other traffic."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import click

from loadmanager.cli.admin.archives import incomplete, now_ms
from loadmanager.cli.admin.asking import OWN, count_of, query
from loadmanager.cli.admin.brokers import AWAY
from loadmanager.cli.admin.client import AdminClient
from loadmanager.cli.admin.command import AdminCommand, Output
from loadmanager.cli.admin.status import headroom_text
from loadmanager.cli.admin.times import Moment, at_option, clock, until_of, until_option
from loadmanager.cli.changes import change_options
from loadmanager.cli.terminal import named
from loadmanager.kit.errors import BadInputError, LoadManagerError, OperationalError
from loadmanager.leader.documents.cluster import ClusterShown
from loadmanager.leader.documents.loss import LossShown, LostBundle, RemainingBroker

if TYPE_CHECKING:  # they take time
    from loadmanager.lab.days import DayOfLoad
    from loadmanager.lab.what_if import WhatIf

HOUR_MS = 3_600_000
BROKERS_MAX = 10_000
LOST_NAMED = 10
MOVES = """moves that were: bundles that had another owner at one look at the archives than at the
  look before; those that brokers took over from one that restarted are among them"""


NOT_REPORTED = "what the brokers use now is not known yet, so nothing is compared with it"


def _cluster_now(admin: AdminClient) -> ClusterShown | None:
    """The cluster as its leader sees it; None: nobody says."""
    try:
        return admin.get(f"{OWN}/cluster{query(limit=BROKERS_MAX)}", ClusterShown)
    except LoadManagerError:
        return None


def _reported(cluster: ClusterShown | None) -> float | None:
    """The mean usage of the brokers by their last reports, in percent; None: not known."""
    brokers = [] if cluster is None else cluster.brokers
    there = [each for each in brokers if each.state not in AWAY and each.usage is not None]
    used = [each.usage for each in there if each.usage is not None]
    return 100 * fmean(used) if used else None


def without_sensors(cluster: ClusterShown | None) -> list[str]:
    """Whose recorded usage says less than they use; empty: nobody's."""
    brokers = [] if cluster is None else cluster.brokers
    blind = sorted(it.broker for it in brokers if it.sensor is not None)
    if not blind:
        return []
    text = (
        f"what was recorded of {named(blind)} is what sensors showed that do not count: a replay "
    )
    return [f"{text}goes by that, and `brokers list` says what the model counts in its place"]


def _check_there(cluster: ClusterShown | None, wanted: WhatIf) -> None:
    """Raise `OperationalError` for a broker to be without that is gone already, or that nobody
    knows.
    """
    if cluster is None:
        return
    there = {it.broker for it in cluster.brokers}
    gone = {it.broker for it in cluster.absent}
    if unknown := sorted({*wanted.without} - there - gone):
        raise OperationalError(f"there is no broker {unknown[0]}; there are {named(there)}")
    for it in cluster.absent:
        if it.gone and it.broker in wanted.without:
            raise OperationalError(
                f"{it.broker} is not there: {it.how} since {clock(it.left_at)}, so that the "
                "cluster is without it now; `loadmanager admin status` says what became of its "
                "bundles"
            )


def _gone(cluster: ClusterShown | None, day: DayOfLoad) -> list[str]:
    """Brokers of a recorded time that are not there now."""
    if cluster is None:
        return []
    there = {each.broker for each in cluster.brokers if each.state not in AWAY}
    return sorted(day.cores.keys() - there) if there else []


def _counted(cluster: ClusterShown | None, day: DayOfLoad, wanted: WhatIf) -> list[str]:
    """Which brokers count with the change, and which do not because they are gone."""
    if cluster is None:
        return []
    left = sorted(day.cores.keys() - {*_gone(cluster, day), *wanted.lost(day)})
    more = [count_of(wanted.added, "new broker")] if wanted.added else []
    text = f"with the change these count: {' and '.join([*([named(left)] if left else []), *more])}"
    gone = [f"{it.broker} ({it.how} since {clock(it.left_at)})" for it in cluster.absent if it.gone]
    return [f"{text}; not there now, so that they do not count: {named(gone)}" if gone else text]


def by_reports(cluster: ClusterShown | None, change: WhatIf) -> list[str]:
    """What the last reports say of another multiple of the traffic, as `status` does; also whether
    it fits, if nothing else changes.
    """
    room = None if cluster is None else cluster.headroom
    if change.times == 1.0 or room is None:
        return []
    said = headroom_text(room, [])
    if replace(change, times=1.0) != type(change)():
        return [said]
    most, without_one = room.at_least, room.at_least_without_one
    if room.measurable:
        most, without_one = room.times, room.times_without_one
    fits = "is too much for these brokers" if room.measurable else "may be too much"
    if change.times <= most:
        fits = "fits" if change.times <= without_one else "fits while no broker is lost"
    return [f"traffic × {change.times:g} {fits}: {said}"]


def _losses(
    admin: AdminClient, lost: Sequence[str], cluster: ClusterShown | None
) -> tuple[Any, list[str]]:
    """Where the bundles of brokers would go if these were lost now: as JSON, and for people."""
    brokers = "&".join(urlencode({"broker": each}) for each in lost)
    try:
        loss, raw = admin.ask("GET", f"{OWN}/losses?{brokers}&limit=10000", None, LossShown)
    except LoadManagerError as error:
        return None, [f"where the bundles of {', '.join(lost)} would go is not said: {error}"]
    brokers_now = () if cluster is None else cluster.brokers
    reported = {
        it.broker: it.usage for it in brokers_now if it.usage is not None and it.sensor is None
    }
    return raw, list(losses_text(loss, reported))


def losses_text(
    loss: LossShown, reported: Mapping[str, float] = MappingProxyType({})
) -> Iterator[str]:
    """Where the bundles would go, for people; `reported`: broker → its usage by its last report."""
    of = f"of {', '.join(loss.brokers)} now"
    if not loss.total:
        yield f"{of}: no bundle, so that none needs another owner"
        return
    yield f"{of}: {count_of(loss.total, 'bundle')}, which placement would send"
    for there in loss.destinations:
        size = there.throughput / (1 << 20)
        count = count_of(there.bundles, "bundle")
        yield f"  {count} to {there.broker} ({there.rate:,.0f} messages/s, {size:,.2f} MiB/s)"
    yield from _verdict(loss, reported)
    if loss.homeless:
        yield f"  {count_of(loss.homeless, 'bundle')} NOWHERE: no other broker qualifies"
    for each in loss.bundles[:LOST_NAMED]:
        yield f"  {each.bundle} to {each.destination or 'nobody'}{_why(each, loss.brokers)}"
    if len(loss.bundles) > LOST_NAMED:
        yield f"  and {loss.total - LOST_NAMED} more, less busy ones: --json has them"
    away = sum(each.pinned_to in loss.brokers for each in loss.bundles)
    if away:
        yield f"{count_of(away, 'bundle')} pinned to a lost broker: such a pin does not count then"
    ruled = sum(bool(each.rules) for each in loss.bundles)
    if ruled:
        yield f"rules leave only some brokers to {count_of(ruled, 'bundle')}"


def _verdict(loss: LossShown, reported: Mapping[str, float]) -> Iterator[str]:
    """What the other brokers would use then, the most used one first, and whether that is too
    much.
    """
    yield (
        "  each counts as placed for the next, the busiest first: lookups in another order may "
        "place some elsewhere"
    )
    after = sorted(loss.remaining, key=lambda it: (-it.usage_after, it.broker))
    if not after:
        yield (
            "  what the others would use then is not known: no cycle of this leader has looked "
            "yet, or no sensor says what traffic costs"
        )
        return
    limit = loss.overloaded_percent
    used = [(it, _used_then(it, reported.get(it.broker))) for it in after]
    over = [it for it, then in used if 100 * then > limit]
    if over:
        yield f"OVERLOADED THEN, above {limit:g}%: {count_of(len(over), 'broker')}"
    else:
        yield f"of {count_of(len(after), 'other broker')}, none would be above {limit:g}%:"
    for it, then in used[:LOST_NAMED]:
        error = f", which is {100 * it.usage_error:.1f} points off on the mean"
        adds = f"these bundles add {100 * (it.usage_after - it.usage):.1f} points by the model"
        last = reported.get(it.broker)
        now = f"{100 * it.usage:.1f}% by the model" if last is None else f"{100 * last:.1f}% now"
        yield f"  {it.broker}: {then:.0%} then: {now}, and {adds}{error}"
    unmeasured = sum(each.rate is None for each in loss.bundles)
    if unmeasured:
        count = count_of(unmeasured, "bundle")
        yield f"  the traffic of {count} is not measured yet: it counts as none"
    if len(after) > LOST_NAMED:
        yield f"  and {len(after) - LOST_NAMED} more, less used ones: --json has them"


def _used_then(broker: RemainingBroker, reported: float | None) -> float:
    """What a broker would use: what it reported, and what comes by the model."""
    if reported is None:
        return broker.usage_after
    return reported + broker.usage_after - broker.usage


def _why(bundle: LostBundle, lost: Sequence[str]) -> str:
    parts = [] if bundle.rate is None else [f"{bundle.rate:,.0f} messages/s"]
    if bundle.pinned_to is not None:
        there = "there" if bundle.pinned_to == bundle.destination else f"to {bundle.pinned_to}"
        parts.append("pinned to a lost one" if bundle.pinned_to in lost else f"pinned {there}")
    parts += [f"only some may: {', '.join(bundle.rules)}"] if bundle.rules else []
    return f" ({'; '.join(parts)})" if parts else ""


@click.command("what-if", cls=AdminCommand)
@click.option(
    "--since",
    type=Moment(),
    help="go by the loads since then: 2h, 'yesterday 09:00'; default: an hour before --until",
)
@until_option
@at_option
@change_options
def what_if(
    admin: AdminClient, since: int | None, until: int | None, at: int | None, **change: Any
) -> Output:
    """Say how the last hour, or a time before it, would have been with other brokers or other
    traffic.

    The settings in force decide, in a simulator of the loads that the brokers recorded. Of brokers
    that are lost, it is also said where their present bundles would go: with their pins, isolation
    and other rules, which the simulator does not know. --at means the hour before that time.
    """
    return lived_again(admin, since, until_of(at, until), **change)


def lived_again(
    admin: AdminClient,
    since: int | None,
    until: int | None,
    *,
    fewest: bool,
    price: float | None,
    **change: Any,
) -> Output:
    """What a time would have been with a change; see `what_if`."""
    from loadmanager.cli.admin.lately import recorded_lately  # they take time
    from loadmanager.cli.what_if import WhatIfAnswer, legend, price_in, wanted_change

    wanted = wanted_change(with_fewest=fewest, **change)
    end_ms = now_ms() if until is None else until
    begin_ms = end_ms - HOUR_MS if since is None else since
    if begin_ms >= end_ms:
        raise BadInputError(f"--since {clock(begin_ms)} is not before {clock(end_ms)}")
    cluster = _cluster_now(admin) if until is None else None
    reported = _reported(cluster)
    _check_there(cluster, wanted)
    try:
        lately = recorded_lately(admin, begin_ms, end_ms)
        day = lately.day.recording.day
        answer = WhatIfAnswer(
            lately.day,
            wanted,
            with_fewest=fewest,
            present=lately.present,
            reported=reported,
            gone=_gone(cluster, day),
        )
    except LoadManagerError as error:
        if until is not None or not wanted.without:
            raise
        losses, texts = _losses(
            admin, wanted.without, cluster
        )  # where bundles go needs no recorded load
        kind = BadInputError if isinstance(error, BadInputError) else OperationalError
        raise kind("\n".join([str(error), *(texts if losses else ())])) from None
    price = price_in(lately.settings) if price is None else price
    notes = legend(answer.rows()) if answer.has_figures else []
    notes += [] if lately.present else MOVES.splitlines()
    lines = [*_counted(cluster, day, wanted), *lately.recorded]
    of_now = by_reports(cluster, wanted)
    lines += of_now if answer.has_figures else ()
    lines += without_sensors(cluster)
    lines += [NOT_REPORTED] if until is None and reported is None else []
    lost = wanted.lost(day) if until is None else ()
    losses, texts = _losses(admin, lost, cluster) if lost else (None, [])
    parts = lines, notes, texts, *incomplete(lately.notes)
    first = [] if answer.has_figures or not of_now else [of_now]
    document = {**answer.document(price), "losses": losses, "byReports": of_now}
    shown = (*first, *answer.shown(lately.title, price), *parts)
    return Output(document, shown, missing=lately.missing)
