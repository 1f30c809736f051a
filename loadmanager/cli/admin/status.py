"""`loadmanager admin status` and `top`: the cluster at a glance."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, TypeVar

import click
from msgspec import to_builtins

from loadmanager.cli.admin.absences import (
    News,
    loss_text,
    missing_text,
    news,
    recorded_losses,
    since_down,
)
from loadmanager.cli.admin.archives import events_of, now_ms
from loadmanager.cli.admin.asking import (
    OWN,
    V2,
    ask_each,
    brokers_of,
    count_of,
    query,
    traffic_text,
)
from loadmanager.cli.admin.brokers import UNTIL_THEN, health_of, silent_of
from loadmanager.cli.admin.client import AdminClient, AnsweredError, Lacking
from loadmanager.cli.admin.command import AdminCommand, Output
from loadmanager.cli.admin.disks import fullest_text
from loadmanager.cli.admin.downtimes import (
    STORE,
    Downtime,
    Lapse,
    lapse_lines,
    lapses_of,
    lately_down,
    receipts_kept,
)
from loadmanager.cli.admin.findings import summary
from loadmanager.cli.admin.held_clients import limits_that_held
from loadmanager.cli.admin.interruptions import todays_interruptions
from loadmanager.cli.admin.past_findings import found_before
from loadmanager.cli.admin.past_status import (
    TOP_BROKERS,
    TOP_BUNDLE_HEADERS,
    TOP_BUNDLES,
    TOP_DECISIONS,
    TOP_HEADERS,
    bar,
    status_at,
    top_at,
)
from loadmanager.cli.admin.sentences import lines_of, ordered, paused_text
from loadmanager.cli.admin.settings import SWITCHES, last_switch
from loadmanager.cli.admin.shapes import Document
from loadmanager.cli.admin.starting import NO_LEADER, Owning
from loadmanager.cli.admin.times import at_option, clock, span, time_of_day
from loadmanager.cli.admin.under_way import slow_moves_of
from loadmanager.cli.admin.who_left import LATELY_MS, who_left, with_records
from loadmanager.cli.terminal import Shown, show, table
from loadmanager.engine.history.lapses import unproven_of
from loadmanager.engine.history.members import MemberChange
from loadmanager.kit.errors import LoadManagerError
from loadmanager.kit.units import DAY_MS
from loadmanager.leader.documents.cluster import (
    BrokerShown,
    BundlesShown,
    ClusterShown,
    HeadroomShown,
)
from loadmanager.leader.documents.decisions import DecisionShown, DecisionsShown
from loadmanager.leader.documents.findings import FindingsShown
from loadmanager.leader.interruptions import EVENTS_MAX
from loadmanager.limits.report import ThrottledShown

T = TypeVar("T")

RESOURCES = {
    "cpu": "CPU",
    "directMemory": "direct memory",
    "bandwidthIn": "the network in",
    "bandwidthOut": "the network out",
}
AWAY = ("gone", "stopped")
REPORTS = "loadBalancerReportUpdateMaxIntervalMinutes"
"""A broker reports when its load changes, and at least so often; a minute more is late."""
STATISTICS = "statsUpdateFrequencyInSecs"
"""Brokers measure traffic over this time."""
REPORTED_MS = 10_000
NAMED_MAX = 5
HEALTH_S = 5.0
NOT_ACTIVE = "is not active"
"""How a broker says of another one that its session has ended."""
LATELY_GONE_MS = 60_000
"""A broker that is gone and has reported since then is named, although the leader has not recorded
yet how it left.
"""
ASKED_MAX = 5
"""Brokers that are asked who leads, if the one that was named does not know."""
NOBODY, SILENT = 503, 504
"""Statuses of a broker that knows no leader, and of one whose leader does not answer."""
PLACES = (
    "while nobody leads, bundles that no broker owns are not placed, and their clients wait: ask "
    "`loadmanager admin status` again in some seconds"
)
GOES_ON = (
    "stored topics that are open go on as long as no session is known to be over; until the store "
    "answers, nothing is opened, placed, moved, split or set"
)
DOES = {
    "observe": "this daemon watches, and neither plans nor moves anything",
    "advise": "this daemon says what to move, and moves nothing: `decisions`, `plans list`",
    "approve": "this daemon moves what somebody approves: `plans list`",
}
"""Mode of a daemon → what it does, if that is less than to balance by itself."""
MANY_TIMES = 100
CLEAR = "\x1b[H\x1b[2J"


def _cluster(admin: AdminClient) -> tuple[ClusterShown, Any]:
    return admin.ask("GET", f"{OWN}/cluster{query(limit=10_000)}", None, ClusterShown)


@click.command(cls=AdminCommand)
@click.option(
    "--over", "all_over", is_flag=True, help="a line for each loss, freeze and outage that is over"
)
@at_option
def status(admin: AdminClient, at: int | None, *, all_over: bool) -> Output:
    """Say in a few lines how the cluster is: who is missing, load, moves, limits, last decision.

    What is over of the last hour, such as the loss of a broker that is back, is counted in one
    line, and a crash of the whole cluster has its own for ten minutes; --over tells each, and all
    losses that are recorded of today. Without a leader it says why
    nobody leads, and what each broker says of itself; status 1. With --at, what the brokers
    recorded of then.
    """
    if at is not None:
        return status_at(admin, at)
    try:
        return _present(admin, each=all_over)
    except AnsweredError as error:
        if error.status not in NO_LEADER:
            raise
        other = _that_knows_the_leader(admin) if error.status == NOBODY else None
        if other is None:
            return _without_leader(admin, error)
    return _present(other, each=all_over)


def _that_knows_the_leader(admin: AdminClient) -> AdminClient | None:
    """Another broker, if it knows one while the broker that is asked does not: that stood still,
    say, and has lost its session.
    """
    for broker in brokers_of(admin)[:ASKED_MAX]:
        with contextlib.suppress(LoadManagerError):
            other = admin.at(broker, timeout_s=HEALTH_S)
            _cluster(other)
            return other
    return None


def _present(admin: AdminClient, *, each: bool) -> Output:
    """What the leader says."""
    cluster, raw = _cluster(admin)
    decisions = admin.get(f"{OWN}/decisions{query(limit=20)}", DecisionsShown).decisions
    throttled = _answer(admin, "throttled", ThrottledShown)
    absent, lapses, downs = who_left(admin, cluster.absent, cluster.at)
    absences = [*news(absent, cluster.at, LATELY_MS, lapses)]
    balancing = _balancing(cluster, _switched(admin, cluster))
    present = [it.broker for it in cluster.brokers if it.state not in AWAY]
    # The brokers beside a daemon are Pulsar's, which have no such question.
    silent = silent_of(admin, present) if cluster.fleet is None else {}
    lines = [*_store(cluster), *silent_lines(cluster, silent), *of_daemon(cluster)]
    if crashed := lately_down(downs, cluster.at):
        lines += [*crashed, *receipts_kept(admin)]
    lines += _status(
        cluster, absences, decisions, throttled, late_after_ms(admin), balancing=balancing
    )
    lines += _over(admin, cluster, absences, lapses, downs, each=each)
    lines += slow_moves_of(admin, ()) if cluster.moves.running else []
    lines += todays_interruptions(admin)
    findings = _answer(admin, "findings", FindingsShown)
    before = found_before(admin, cluster, findings)
    lacking = _lacking(admin)
    lines += [f"ARCHIVE: {line}" for line in lacking]
    if findings is not None:
        lines.append(summary(findings))
    lines += before.summary()
    data = {"noAnswer": silent, "lacking": lacking, "foundBefore": to_builtins(before.findings)}
    return Output({**raw, **data}, lines)


def _lacking(admin: AdminClient) -> list[str]:
    """That archives cannot be read or written, or lack something of the last day; it is no reason
    for another exit status here.
    """
    lines = admin.lacking.lines()
    admin.lacking = Lacking()
    return lines


def silent_lines(cluster: ClusterShown, silent: Mapping[str, str]) -> Iterator[str]:
    """The brokers that do not answer now, or are gone so lately that the leader has not recorded
    it: what follows counts them, or leaves them out.
    """
    for broker, why in sorted(silent.items())[:NAMED_MAX]:
        text = why.splitlines()[0].removeprefix(f"{broker} ")
        if text == NOT_ACTIVE:  # it was when the leader was asked
            yield f"{broker} is gone: its session has ended just now"
        else:
            yield f"{broker} does not answer now ({text}); its session had not ended when asked"
    if len(silent) > NAMED_MAX:
        yield f"{len(silent) - NAMED_MAX} more brokers do not answer now"
    recorded = {it.broker for it in cluster.absent if it.gone}
    for it in cluster.brokers:
        lately = it.report_age_ms is not None and it.report_age_ms <= LATELY_GONE_MS
        if it.state == "gone" and lately and it.broker not in recorded:
            yield f"{it.broker} is gone: its session has ended, the leader has not recorded how yet"


def _without_leader(admin: AdminClient, error: AnsweredError) -> Output:
    """What the brokers say themselves."""
    brokers = brokers_of(admin)
    asked = brokers
    if error.status == SILENT:  # it was waited for already
        asked = [broker for broker in brokers if f": {broker} " not in f": {error}"]
    said, silent = ask_each(admin, asked, lambda at, _: health_of(at), timeout_s=HEALTH_S)
    silent |= {broker: str(error) for broker in brokers if broker not in asked}
    health = {broker: said.get(broker) or silent[broker] for broker in brokers}
    owning, at_ms = Owning.of(admin, [it for it in asked if health[it] == "ok"]), now_ms()
    says = {
        broker: owning.text(broker, at_ms)
        if text == "ok"
        else text.partition(f"{broker} ")[2] or text
        for broker, text in health.items()
    }
    texts = [f"{broker}: {text}" for broker, text in says.items()]
    # A broker that is down says nothing of the store, and one that is well has its answers.
    without_store = any(STORE in text for text in says.values()) and "ok" not in health.values()
    lines = [f"NO BROKER LEADS NOW: {error}"]
    if error.status != NOBODY:
        lines = [f"THE LEADER DOES NOT ANSWER: {error}", UNTIL_THEN]
    if without_store:
        lines = [f"THE METADATA STORE DOES NOT ANSWER, so that no broker leads: {error}", GOES_ON]
    lines += [*texts, *([] if without_store else [PLACES]), "`loadmanager doctor` says more"]
    data = {"leader": None, "brokers": health, "bundles": owning.bundles}
    return Output(data, lines, status=1)


def late_after_ms(admin: AdminClient) -> float:
    """How old a load report of these brokers may be; a daemon's are never late."""
    minutes = _in_force(admin, REPORTS)
    return float("inf") if minutes is None else (minutes + 1) * 60_000


def measured_after_ms(admin: AdminClient) -> float:
    """How long after a bundle came its figures are those of a whole period of statistics: such a
    period begins anew within one, and reports follow within seconds; 0: not known.
    """
    period_s = _in_force(admin, STATISTICS)
    return 0.0 if period_s is None else 2_000 * period_s + REPORTED_MS


def _in_force(admin: AdminClient, key: str) -> float | None:
    """A number of the configuration in force; None: a daemon, or a broker that does not say."""
    try:
        return float(admin.get(f"{V2}/brokers/configuration/runtime", Document)[key])
    except (LoadManagerError, KeyError, ValueError):
        return None


def _answer(admin: AdminClient, what: str, shape: type[T]) -> T | None:
    """None: a daemon beside a Pulsar cluster, and a broker of an earlier version, do not know."""
    try:
        return admin.get(f"{OWN}/{what}", shape)
    except AnsweredError:
        return None


def _status(
    cluster: ClusterShown,
    absences: Iterable[News],
    decisions: Sequence[DecisionShown],
    throttled: ThrottledShown | None,
    late_ms: float,
    *,
    balancing: str,
) -> Iterator[str]:
    live = [broker for broker in cluster.brokers if broker.state not in AWAY]
    if missing := missing_text(len(live), cluster.expected):
        yield missing
    yield from (it.text for it in absences if it.over_ms is None)
    loads = [broker.usage for broker in live if broker.usage is not None]
    load = f", load {min(loads):.0%} to {max(loads):.0%}{modelled_count(live)}" if loads else ""
    rate = sum(broker.rate or 0 for broker in live)
    size = sum(broker.throughput or 0 for broker in live) / (1 << 20)
    brokers, bundles = count_of(len(live), "broker"), count_of(cluster.bundles, "bundle")
    awaited = f" ({cluster.awaited} more placed, not yet served)" if cluster.awaited else ""
    owned = f"{brokers}, {bundles} with an owner{awaited}{load}"
    yield f"{owned}, {traffic_text(rate, size)}"
    if disks := fullest_text(live):
        yield disks
    ages = [broker.report_age_ms for broker in live if broker.report_age_ms is not None]
    reported = f": loads as reported up to {span(max(ages))} before" if ages else ""
    yield f"as of {clock(cluster.at)}{reported}"
    if cluster.headroom is not None:
        errors = [it.model_error for it in live if it.model_error is not None]
        unserved = _unserved(cluster)
        without = f"; without the traffic of {unserved}" if unserved else ""
        yield headroom_text(cluster.headroom, errors) + without
        if cluster.replay.date is not None:
            yield cluster.replay.text
    late = [broker.broker for broker in live if (broker.report_age_ms or 0) > late_ms]
    if late:
        yield f"late with the report: {', '.join(late[:NAMED_MAX])}"
    kept_back = [f"{it.broker} is {it.state}{_note(it)}" for it in live if it.cordon is not None]
    if kept_back:
        more = f"; {len(kept_back) - NAMED_MAX} more" if len(kept_back) > NAMED_MAX else ""
        yield f"no new bundles: {'; '.join(kept_back[:NAMED_MAX])}{more}"
    leader = cluster.leader
    since = f"since {clock(leader.since)} ({span(cluster.at - leader.since)})"
    cycles = count_of(cluster.cycles, "cycle")
    yield f"{leader.broker} leads, term {leader.epoch}, {since}; {cycles}"
    yield balancing
    if throttled is not None:
        yield from limits_that_held(throttled)
    shed = next((each for each in decisions if each.kind == "shed"), None)
    if shed is not None:
        yield f"last cycle: {' '.join(line.strip() for line in lines_of(shed)[:2])}"


def modelled_count(brokers: Iterable[BrokerShown]) -> str:
    """How many of the loads are the model's, since their sensors do not count; empty: none."""
    count = sum(each.sensor is not None for each in brokers)
    return f" ({count} by the model: `brokers list` says why)" if count else ""


def _over(
    admin: AdminClient,
    cluster: ClusterShown,
    absences: Iterable[News],
    lapses: Sequence[Lapse],
    downs: Sequence[Downtime],
    *,
    each: bool,
) -> list[str]:
    """What is over: a line if that is one thing or all are wanted, else how many there were."""
    back = [(it.over_ms, it.text) for it in absences if it.over_ms is not None]
    others = [it for it in downs if not it.is_fresh(cluster.at)]
    lines = [*map(str, others), *lapse_lines(lapses), *(text for _, text in back)]
    if each:
        lines += _earlier_losses(admin, cluster, downs)
    if each or len(lines) < 2:
        return lines
    ends = [*(it.end for it in others), *(it.end for it in lapses), *(ms for ms, _ in back)]
    total = len(others) + len(lapses) + len(back)
    last = f"{total} losses, freezes and outages are over, the last one since {clock(max(ends))}"
    return [f"{last}: `loadmanager admin status --over` tells each"]


def _earlier_losses(
    admin: AdminClient, cluster: ClusterShown, downs: Sequence[Downtime]
) -> Iterator[str]:
    """Those of today that the leader does not tell: it remembers the last absence of a broker."""
    since_ms = cluster.at - cluster.at % DAY_MS
    try:
        events = events_of(admin, (MemberChange.kind,), since_ms=since_ms, limit=EVENTS_MAX).events
    except LoadManagerError:  # without archives
        return
    recent = [it for it in cluster.absent if it.gone or cluster.at - it.left_at <= LATELY_MS]
    changes = [event.record_as(MemberChange) for event in reversed(events)]
    lapses = lapses_of(unproven_of(changes))
    losses = [
        loss
        for loss in recorded_losses(sorted(changes, key=lambda it: it.ts))
        # what the leader tells is recorded later
        if all(loss.left_at < it.left_at for it in recent if it.broker == loss.broker)
    ]
    for it in since_down(with_records(admin, losses, cluster.at), downs):
        yield loss_text(it, cluster.at, lapses)


def _store(cluster: ClusterShown) -> list[str]:
    """That the metadata store does not answer, if it does not."""
    silent_ms = cluster.store_silent_ms
    if silent_ms is None:
        return []
    return [f"THE METADATA STORE HAS NOT ANSWERED THE LEADER FOR {span(silent_ms)}: {GOES_ON}"]


def _note(broker: BrokerShown) -> str:
    about = "" if broker.cordon is None else ordered(broker.cordon)
    return f" ({about})" if about else ""


def _unserved(cluster: ClusterShown) -> str:
    """The bundles whose clients nobody serves now, in words; empty: none."""
    if not cluster.awaited:
        return ""
    return f"{count_of(cluster.awaited, 'bundle')} that nobody serves yet"


def headroom_text(room: HeadroomShown, errors: Sequence[float]) -> str:
    """How much more the brokers could carry; `errors`: of the model of usage, for each broker."""
    resource = RESOURCES.get(room.resource, room.resource)
    basis = []
    if room.measurable:
        text = f"if the load were even, {resource} would be below {room.below_percent:g}% up to "
        text += f"{_times(room.times)} the traffic"
        without_one = room.times_without_one
    else:
        text = f"if the load were even, no broker would be above {room.below_percent:g}% up to at "
        text += f"least {_times(room.at_least)} the traffic"
        without_one = room.at_least_without_one
        basis.append(
            f"the traffic uses {room.carried_percent:.1f}% of {resource} on the mean, which is too "
            "little to tell how much more than that"
        )
    only = "only " if without_one < 1 else ""
    lost = f"{only}{_times(without_one)} it" if without_one else "and no other broker has room"
    text += f", {lost} if the broker with most room is lost"
    text = _when(room) + text
    if room.cordoned:
        verb = "counts" if room.cordoned == 1 else "count"
        basis.append(f"{count_of(room.cordoned, 'cordoned broker')} {verb} as full")
    if errors and room.measurable:
        basis.append(f"the model of usage is {100 * fmean(errors):.1f} points off on the mean")
    return f"{text} ({'; '.join(basis)})" if basis else text


def _when(room: HeadroomShown) -> str:
    """Of when headroom is: of cycles, which may have seen another load than that of now."""
    if room.since is None:
        return ""
    if room.looks > 1:
        until = "" if room.last is None else f" to {time_of_day(room.last)}"
        return f"by the median of {room.looks} cycles from {time_of_day(room.since)}{until}, "
    return f"by the cycle at {time_of_day(room.since)}, "


def _times(factor: float) -> str:
    return f"{factor:.1f} times" if factor <= MANY_TIMES else f"more than {MANY_TIMES} times"


def _switched(admin: AdminClient, cluster: ClusterShown) -> str:
    """Since when and by whom balancing is on or off, if somebody switched it."""
    if (switch := last_switch(admin, SWITCHES)) is not None:
        key, last = switch
        was = "not set" if last.before is None else last.before
        return f" since {clock(last.ts)} by {last.who} ({key}, which was {was})"
    if cluster.balancing:
        return ""
    if cluster.fleet is not None:
        return f" (see {SWITCHES[1]} in the daemon's configuration)"
    return f" (see {' and '.join(SWITCHES)} in `settings list --all`)"


def of_daemon(cluster: ClusterShown) -> Iterator[str]:
    """Why a daemon moves nothing, and what its mode does if that is less than to act."""
    if cluster.hold is not None:
        nothing = "DECIDED" if cluster.mode == "advise" else "MOVED"
        yield f"NOTHING IS {nothing} NOW: {cluster.hold}"
    if cluster.mode in DOES:
        yield f"mode {cluster.mode}: {DOES[cluster.mode]}"


def _balancing(cluster: ClusterShown, switched: str) -> str:
    """Whether bundles are moved by themselves."""
    if cluster.mode in DOES:
        return f"this daemon moves nothing by itself: its mode is {cluster.mode}"
    if not cluster.balancing:
        paused = "" if cluster.paused is None else f"; {paused_text(cluster.paused)}"
        return f"BALANCING IS OFF{switched}{paused}"
    moves = cluster.moves
    if cluster.paused is not None:
        now = paused_text(cluster.paused)
    elif cluster.hold is not None:
        code = cluster.hold.partition(":")[0]
        return (
            f"balancing waits ({code}): {count_of(moves.running, 'move')} under way, "
            f"{moves.waiting} wait"
        )
    elif moves.running or moves.waiting:
        now = f"{count_of(moves.running, 'move')} under way, {moves.waiting} wait"
    else:
        now = f"no move waits or is under way ({cluster.shedder} decides)"
    return f"balancing is on{switched}: {now}"


@click.command(cls=AdminCommand)
@click.option(
    "--every",
    "interval_s",
    type=click.FloatRange(0.5, 3600),
    default=2.0,
    metavar="S",
    help="seconds between two looks",
)
@click.option("--count", type=click.IntRange(1), metavar="N", help="end after N looks")
@at_option
def top(admin: AdminClient, interval_s: float, count: int | None, at: int | None) -> Output:
    """Show the busiest brokers and bundles and the last decisions, again and again.

    Ctrl-C ends it. With --json each look is a line. With --at one look, as it was then.
    """
    if at is not None:
        return top_at(admin, at)
    raw = "loadmanager.json" in click.get_current_context().meta
    looks, late_ms = 0, late_after_ms(admin)
    try:
        while count is None or looks < count:
            if looks:
                time.sleep(interval_s)
            look = _Look.of(admin)
            if raw:
                click.echo(json.dumps(look.document))
            else:
                parts = list(_top(look, late_ms))
                if sys.stdout.isatty():
                    click.echo(CLEAR, nl=False)
                show(*parts)
            looks += 1
    except KeyboardInterrupt:
        pass
    return Output({"looks": looks}, f"{count_of(looks, 'look')} taken")


@dataclass(frozen=True, slots=True)
class _Look:
    """What `top` shows of one moment."""

    cluster: ClusterShown
    decisions: Sequence[DecisionShown]
    hottest: BundlesShown
    absences: Sequence[News]
    document: Mapping[str, Any]
    """The cluster, the decisions and the bundles as they came."""

    @classmethod
    def of(cls, admin: AdminClient) -> _Look:
        cluster, of_cluster = _cluster(admin)
        path = f"{OWN}/decisions{query(limit=TOP_DECISIONS)}"
        decided, of_decisions = admin.ask("GET", path, None, DecisionsShown)
        path = f"{OWN}/bundles{query(limit=TOP_BUNDLES, sort='rate')}"
        hottest, of_bundles = admin.ask("GET", path, None, BundlesShown)
        document = {
            "at": cluster.at,
            "cluster": of_cluster,
            "bundles": of_bundles["bundles"],
            "decisions": of_decisions["decisions"],
        }
        absent = with_records(admin, cluster.absent, cluster.at)
        absences = [*news(absent, cluster.at, LATELY_MS)]
        return cls(cluster, decided.decisions, hottest, absences, document)


def _top(look: _Look, late_ms: float) -> Iterator[Shown]:
    cluster = look.cluster
    lines = _status(cluster, look.absences, (), None, late_ms, balancing=_balancing(cluster, ""))
    above = [*_store(cluster), *of_daemon(cluster)]
    yield [f"{time_of_day(cluster.at)}", *above, *lines]
    order = sorted(cluster.brokers, key=lambda it: (-(it.usage or 0), it.broker))
    yield table(TOP_HEADERS, [_row(broker) for broker in order[:TOP_BROKERS]])
    rows = [
        (bundle.bundle, bundle.owner, bundle.rate, (bundle.throughput or 0) / (1 << 20))
        for bundle in look.hottest.bundles
    ]
    yield table(TOP_BUNDLE_HEADERS, rows) if rows else "no bundle has an owner"
    yield [lines_of(decision)[0] for decision in look.decisions] or ["no decision yet"]


def _row(broker: BrokerShown) -> tuple[str | float | int | None, ...]:
    usage = broker.usage or 0.0
    cpu = None if broker.resources is None else broker.resources.cpu.fraction
    return (
        broker.broker,
        bar(usage),
        f"{usage:.0%}" if broker.sensor is None else f"{usage:.0%} (model)",
        None if cpu is None else 100 * cpu,
        broker.bundles,
        broker.rate,
        None if broker.throughput is None else broker.throughput / (1 << 20),
    )
