"""`loadmanager admin brokers …`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence, Set
from typing import Any, NamedTuple
from urllib.parse import quote

import click

from loadmanager.cli.admin.absences import absence_text, missing_text
from loadmanager.cli.admin.archives import LoadsOfAll, listed_at, loads_at, now_ms
from loadmanager.cli.admin.asking import OWN, V2, ask_each, brokers_of, query
from loadmanager.cli.admin.client import AdminClient, AnsweredError
from loadmanager.cli.admin.command import AdminGroup, Output, done
from loadmanager.cli.admin.downtimes import (
    STORE,
    gone_at,
    lapses_at,
    lost_lines,
    outage_now,
    say_down,
    say_unknown,
    silent_at,
)
from loadmanager.cli.admin.leaders import LeaderThen, changes_text, last_led, leader_then
from loadmanager.cli.admin.names_then import nothing_then
from loadmanager.cli.admin.past_owners import bundles_at, carried_by, doubt_of, doubts_of
from loadmanager.cli.admin.past_wishes import DocumentThen, cordons_then
from loadmanager.cli.admin.restarting import brokers_cordon, brokers_uncordon, progress_text
from loadmanager.cli.admin.shapes import Report, Usage
from loadmanager.cli.admin.standing import Standing, Stands
from loadmanager.cli.admin.starting import NO_LEADER
from loadmanager.cli.admin.times import at_option, clock, span
from loadmanager.cli.admin.who_left import who_left
from loadmanager.cli.terminal import Cell, Shown, table
from loadmanager.engine.history.archived import BROKER
from loadmanager.engine.history.members import MemberChange
from loadmanager.engine.history.records import BrokerLoad
from loadmanager.kit.errors import LoadManagerError, OperationalError
from loadmanager.kit.units import DAY_MS
from loadmanager.leader.documents.cluster import BrokerShown, ClusterShown, LeaderBroker
from loadmanager.leader.documents.last_seen import BrokerSeen, LastSeen
from loadmanager.leader.documents.members import AbsentBroker
from loadmanager.leader.documents.moves import CordonShown
from loadmanager.leader.owners_then import PastBundle, figures

group = AdminGroup("brokers", help="Live brokers: list, leader, health, report, cordon, forget.")
AWAY = ("gone", "stopped")
SIGN_S = 2.0
"""A broker that does not answer for so long is said not to."""
NOBODY = 404
"""The answer of a broker that knows of no leader to who asks for its name."""
UNTIL_THEN = (
    "another broker leads once its session is over; until then nobody decides what moves or splits"
)
_broker = click.argument("broker", required=False)


@group.command("list")
@at_option
def brokers_list(admin: AdminClient, at: int | None) -> Output:
    """List the brokers with load, how full the fullest of their disks is, bundles, uptime, version
    and age of the report: which one leads, which ones do not answer now, are cordoned or drained,
    and how far; and those that left in the last days.

    With --at, the loads that the brokers recorded then, and which one led.
    """
    if at is not None:
        return _brokers_at(admin, at)
    try:
        cluster, raw = admin.ask("GET", f"{OWN}/cluster{query(limit=10_000)}", None, ClusterShown)
    except AnsweredError as error:
        return _without_leader(admin, error)
    present = [it.broker for it in cluster.brokers if it.state not in AWAY]
    # The brokers beside a daemon are Pulsar's, which have no such question.
    silent = silent_of(admin, present) if cluster.fleet is None else {}
    rows = [_broker_row(it, cluster.at, silent.get(it.broker)) for it in cluster.brokers]
    loads = ("load %", "disk %", "bundles", "msg/s")
    headers = ("broker", "role", *loads, "uptime", "version", "report", "")
    absent, lapses, _ = who_left(admin, cluster.absent, cluster.at)
    gone = [
        (absence.broker, "gone", *[None] * 7, absence_text(absence, cluster.at, lapses))
        for absence in still_gone(absent, present)
    ]
    names = {row[0] for row in gone}
    rows = [row for row in rows if row[0] not in names or row[1] != "gone"]
    parts: list[Shown] = [table(headers, [*rows, *gone])]
    if missing := missing_text(len(present), cluster.expected):
        parts.append(missing)
    data = [
        {
            **fields,
            "active": broker.state not in AWAY,
            **({"problem": why} if (why := silent.get(broker.broker)) else {}),
        }
        for broker, fields in zip(cluster.brokers, raw["brokers"], strict=True)
    ]
    data += [
        {"broker": absence.broker, "leader": False, "active": False, "absence": fields}
        for absence, fields in zip(cluster.absent, raw.get("absent", []), strict=True)
        if absence in still_gone(cluster.absent, present)
    ]
    return Output(data, tuple(parts))


def still_gone(absent: Iterable[AbsentBroker], present: Collection[str]) -> list[AbsentBroker]:
    """Those that left and are not there: the leader notes that one is back some time after it is
    registered.
    """
    return [it for it in absent if it.gone and it.broker not in present]


def silent_of(admin: AdminClient, brokers: Sequence[str]) -> dict[str, str]:
    """Broker → why it does not answer now, although its session lasts: it may have died a moment
    ago, or be frozen.
    """
    return ask_each(
        admin, brokers, lambda at, _: at.text(f"{V2}/brokers/version"), timeout_s=SIGN_S
    )[1]


def _broker_row(broker: BrokerShown, now_ms: int, silent: str | None) -> tuple[Cell, ...]:
    role = "leader" if broker.leader else "gone" if broker.state in AWAY else ""
    state = "" if broker.state == "active" else str(broker.state)
    if broker.cordon is not None:
        state = _cordon_text(broker.state not in AWAY, broker.cordon)
    if broker.sensor is not None:
        state = "; ".join(filter(None, [modelled_text(broker), state]))
    if silent is not None:
        state = "; ".join(filter(None, [_silent_text(broker.broker, silent), state]))
    return (
        broker.broker,
        role,
        None if broker.usage is None else 100 * broker.usage,
        max((disk.percent for disk in broker.disks), default=None),
        broker.bundles,
        broker.rate,
        None if broker.started_at is None else span(now_ms - broker.started_at),
        broker.version,
        None if broker.report_age_ms is None else span(broker.report_age_ms),
        state,
    )


def modelled_text(broker: BrokerShown) -> str:
    """That a broker's load is that of the model, and why."""
    error = "" if broker.model_error is None else f" (± {100 * broker.model_error:.0f})"
    code = "" if broker.sensor is None else broker.sensor.code
    return f"load by the model{error}: {code}"


def _silent_text(broker: str, why: str) -> str:
    why = why.splitlines()[0].removeprefix(f"{broker} ")
    return f"NO ANSWER NOW: {why}"


def _without_leader(admin: AdminClient, error: AnsweredError) -> Output:
    """What any broker knows: the reports that it has seen last, and which brokers answer now."""
    try:
        last = admin.ask("GET", f"{OWN}/last-seen{query(limit=10_000)}", None, LastSeen)[0]
    except AnsweredError:  # of an earlier version, or to somebody who may not see it
        last = None
    reported = [] if last is None else last.brokers
    names = [it.broker for it in reported] or brokers_of(admin)
    silent = silent_of(admin, names)
    data: list[dict[str, Any]] = [
        {"broker": name, "leader": False, "active": True}
        | ({"problem": silent[name]} if name in silent else {})
        for name in names
    ]
    rows = [_seen_row(it, last, silent.get(it.broker)) for it in reported] or [
        (name, "", *[None] * 5, _silent_text(name, silent[name]) if name in silent else "")
        for name in names
    ]
    lines = [f"no leader says more: {error}", "cordons and brokers that left are not known"]
    if last is not None and last.store_silent_ms is not None:
        lines.append(
            f"{last.by} has seen this before the {STORE} stopped answering, "
            f"{span(last.store_silent_ms)} ago"
        )
    headers = ("broker", "role", "load %", "bundles", "msg/s", "version", "report", "")
    shown = (table(headers, rows), lines)
    return Output(data, shown, status=1 if error.status in NO_LEADER else 0)


def _seen_row(broker: BrokerSeen, last: LastSeen | None, silent: str | None) -> tuple[Cell, ...]:
    role = ""
    if last is not None and broker.broker == last.leader:
        role = "leader" if last.leads else "led"
    figures: tuple[Cell, ...] = (None,) * 3
    age_ms = None
    if (report := broker.report) is not None:
        usage, age_ms = report.usage, report.report_age_ms
        figures = (None if usage is None else 100 * usage, report.bundles, report.rate)
    return (
        broker.broker,
        role,
        *figures,
        broker.version,
        None if age_ms is None else span(age_ms),
        "" if silent is None else _silent_text(broker.broker, silent),
    )


class BrokersThen(NamedTuple):
    """The brokers of a moment."""

    rows: list[dict[str, Any]]
    """Of each its figures (None: not known), how many bundles it owned, whether it led, how it was
    `gone`, how it was `lost` about then, and its `cordon`.
    """
    past: LoadsOfAll
    """What is missing of this."""
    bundles: list[PastBundle]
    """With their owners of then."""


def brokers_then(admin: AdminClient, at_ms: int, leader: LeaderThen) -> BrokersThen:
    """What is recorded of brokers at a moment; `leader`: who led then."""
    past = loads_at(admin, at_ms, "broker_load")
    say_down(admin, at_ms, past)
    in_rows = lost_lines(past.lost)
    past.notes = [note for note in past.notes if note not in in_rows]
    bundles, of_bundles = bundles_at(admin, at_ms)
    past.missing |= of_bundles.missing
    past.notes += doubts_of(bundles)
    owned = Counter(it.owner for it in bundles)
    data = _loads_of(past, Standing.of(admin, past, at_ms, BrokerLoad.kind), bundles)
    gone, cordons = gone_at(leader.events.events, at_ms), _cordons_at(admin, at_ms)
    for name, text in silent_at(admin, past, at_ms).items():
        gone.setdefault(name, text)
    if data:
        data += _gone_lately(leader, gone.keys() - {row["broker"] for row in data}, at_ms)
    for row in data:
        if bundles:
            row["bundles"] = owned[row["broker"]]
        last = leader.led is not None and row["broker"] == leader.led.of
        row["leader"] = last and not leader.lost
        row["gone"] = gone.get(row["broker"], "")
        row["cordon"] = cordons.get(row["broker"], "")
        row["lost"] = past.lost.get(row["broker"], "")
        lost = _lost_then(row["lost"], led=last and leader.lost)
        state = row["gone"] or lost or row["cordon"]
        row["state"] = state if row["gone"] else "; ".join(filter(None, (state, row["doubt"])))
    return BrokersThen(data, past, bundles)


def _loads_of(
    past: LoadsOfAll, standing: Standing, bundles: Sequence[PastBundle]
) -> list[dict[str, Any]]:
    """A row for each broker: its load by the record that stands best for the moment, and the
    traffic of the bundles that it owned then, if that of all is known.
    """
    rows = list[dict[str, Any]]()
    for loads in past.loads:
        for name in sorted(loads.figures):
            best = standing.broker(name) or Stands(loads)
            is_known = name not in past.unknown
            of = figures(best.loads, name) if is_known else dict.fromkeys(BROKER)
            carried = carried_by(name, best, bundles) if is_known else None
            doubt = doubt_of(name, best, bundles) if is_known else ""
            rows.append({"broker": name, "at": best.loads.ts, **of, **(carried or {})})
            rows[-1]["doubt"] = doubt
    standing.say(past, BrokerLoad.kind)
    return rows


def _gone_lately(leader: LeaderThen, names: Set[str], at_ms: int) -> list[dict[str, Any]]:
    """Rows without loads for those of some brokers that left within the day before a moment."""
    changes = (it for it in leader.events.events if at_ms - DAY_MS < it.ts <= at_ms)
    lately = {it.record_as(MemberChange).of for it in changes}
    return [
        {"broker": name, "at": None, **dict.fromkeys(BROKER), "doubt": ""}
        for name in sorted(names & lately)
    ]


def _lost_then(lost: str, *, led: bool) -> str:
    head = "it had led, and was lost about then" if led else "lost about then" if lost else ""
    return f"{head}: {lost}" if lost else head


def _brokers_at(admin: AdminClient, at_ms: int) -> Output:
    leader = leader_then(admin, at_ms)
    data, past, _ = brokers_then(admin, at_ms, leader)
    rows = [
        (
            row["broker"],
            "leader" if row["leader"] else "",
            *_loads_then(row),
            row["state"],
        )
        for row in data
    ]
    headers = ("broker", "role", "load %", "bundles", "msg/s", "recorded", "")
    if leader.lost or leader.led is None:
        past.notes.insert(0, leader.text)
    return listed_at(data, headers, rows, past)


def _loads_then(row: dict[str, Any]) -> tuple[Cell, ...]:
    """Load, bundles, messages/s, and when these were recorded."""
    if row["gone"]:
        return (None, None, None, clock(row["at"]) if row["at"] else None)
    bundles = None if row["bundles"] is None else round(row["bundles"])
    if row["usage"] is None:
        return (None, bundles, None, None)
    rate = row["msg_rate_in"] + row["msg_rate_out"]
    return (100 * row["usage"], bundles, rate, clock(row["at"]))


def _cordons_at(admin: AdminClient, at_ms: int) -> dict[str, str]:
    """Broker → its cordon at a moment in words, as far as that is recorded."""
    try:
        cordons = cordons_then(admin, at_ms)
    except OperationalError:  # of a daemon
        return {}
    return {broker: _cordon_then(it) for broker, it in cordons.items()}


def _cordon_then(cordon: DocumentThen) -> str:
    since, by = cordon.fields.get("sinceMs"), cordon.fields.get("by")
    text = f"{clock(since)} by {by}" if since and by else cordon.changed
    return f"cordoned since {text}" + (", to be drained" if cordon.fields.get("drain") else "")


def _cordon_text(active: bool, cordon: CordonShown | None) -> str:
    if cordon is None:
        return ""
    by = f"ordered by {cordon.by}" if cordon.by else ""
    note = f" ({about})" if (about := "; ".join(filter(None, (cordon.note, by)))) else ""
    away = "" if active or cordon.state == "stopped" else ", not active"
    return progress_text(cordon) + away + note


@group.command("leader")
@at_option
def brokers_leader(admin: AdminClient, at: int | None) -> Output:
    """Show the leader, the number of its term, which grows with each change, since when, who led
    before, and how often that changed in the last day. With --at, who led then.

    Status 1 if it does not answer: it is the one whose session is not known to be over yet.
    """
    if at is not None:
        led, text, events, lost = leader_then(admin, at)
        led = None if lost else led
        lines = [text, *lapses_at(admin, at), *outage_now(admin, at)]
        data = {} if led is None else {"brokerId": led.of, "term": led.epoch, "since": led.ts}
        return Output(data, lines, status=int(led is None), missing=events.missing)
    try:
        leader, raw = admin.ask("GET", f"{V2}/brokers/leaderBroker", None, LeaderBroker)
    except AnsweredError as error:
        if error.status != NOBODY:
            raise
        return _nobody_leads(admin, error)
    lines = [f"{leader.broker_id}  {leader.service_url}"]
    try:
        cluster = admin.get(f"{OWN}/cluster{query(limit=1)}", ClusterShown)
    except AnsweredError as error:
        if error.status not in NO_LEADER:
            return Output(raw, lines)
        lines += [f"IT DOES NOT LEAD NOW: {error}", UNTIL_THEN]
        return Output({**raw, "why": str(error)}, lines, status=1)
    term = cluster.leader
    if term.broker != leader.broker_id:  # meanwhile
        lines = [f"{term.broker}  {term.url}"]
        raw = {**raw, "brokerId": term.broker, "serviceUrl": term.url}
    since = f"since {clock(term.since)} ({span(cluster.at - term.since)})"
    lines.append(f"term {term.epoch}, {since}")
    lines += changes_text(admin, term, cluster.at)
    return Output({**raw, "term": term.epoch, "since": term.since}, lines)


def _nobody_leads(admin: AdminClient, error: AnsweredError) -> Output:
    """Why nobody is known to lead, and who did last."""
    try:
        admin.get(f"{OWN}/cluster{query(limit=1)}", ClusterShown)
        why = str(error)  # somebody leads by now
    except OperationalError as unanswered:
        why = str(unanswered)
    head = "NO BROKER LEADS NOW"
    if STORE in why:
        head = "THE METADATA STORE DOES NOT ANSWER, so that no broker is known to lead"
    led, text = last_led(admin, now_ms())
    last = None if led is None else {"brokerId": led.of, "term": led.epoch, "since": led.ts}
    return Output({"why": why, "last": last}, [f"{head}: {why}", text], status=1)


@group.command("health")
@_broker
@at_option
def brokers_health(admin: AdminClient, broker: str | None, at: int | None) -> Output:
    """Check all brokers, or the named one; exit status 1 if a broker is not healthy. With --at,
    what is recorded of then: who was not there, stood still or could not prove its session, and
    what the leader had found wrong with it.
    """
    if at is not None:
        from loadmanager.cli.admin.past_health import health_at  # it needs this module

        return health_at(admin, broker, at)
    brokers = _named(admin, broker)
    health, missing = ask_each(admin, brokers, lambda at, _broker: health_of(at))
    if "ok" not in health.values():
        _check_own(admin)
    health |= missing
    if broker is None:
        health |= _lost(admin)
    healthy = bool(health) and all(state == "ok" for state in health.values())
    return Output(health, table(("broker", "health"), list(health.items())), 0 if healthy else 1)


def _lost(admin: AdminClient) -> dict[str, str]:
    """The brokers that were lost and are not back, as far as a leader says so."""
    try:
        cluster = admin.get(f"{OWN}/cluster{query(limit=1)}", ClusterShown)
    except OperationalError:
        return {}
    absent, lapses, _ = who_left(admin, cluster.absent, cluster.at)
    return {
        absence.broker: absence_text(absence, cluster.at, lapses)
        for absence in absent
        if absence.gone and absence.how == "lost"
    }


def _named(admin: AdminClient, broker: str | None) -> list[str]:
    """The broker that is named, or all. Raises `OperationalError` for one that is not active."""
    brokers = brokers_of(admin)
    if broker is not None and broker not in brokers:
        raise OperationalError(f"{broker} is not active; the brokers are {', '.join(brokers)}")
    return brokers if broker is None else [broker]


def _check_own(admin: AdminClient) -> None:
    """Raise `OperationalError` at a daemon: Pulsar's brokers do not answer what ours do."""
    try:
        fleet = admin.get(f"{OWN}/cluster{query(limit=1)}", ClusterShown).fleet
    except OperationalError:  # no leader, say
        return
    if fleet is not None:
        text = f"the brokers of {fleet} are Pulsar's, which this command cannot ask"
        raise OperationalError(f"{text}: `brokers list` has what the daemon read of them")


def health_of(admin: AdminClient) -> str:
    """`ok`, or why a broker is not healthy."""
    try:
        return admin.text(f"{V2}/brokers/health")
    except LoadManagerError as error:
        return str(error).splitlines()[0]


@group.command("report")
@_broker
@at_option
def brokers_report(admin: AdminClient, broker: str | None, at: int | None) -> Output:
    """Show the load reports of all brokers, or of the named one; with --at, the loads that were
    recorded then.
    """
    headers = (
        "broker",
        *("cpu %", "mem %", "direct %", "in %", "out %"),
        "msg in/s",
        "msg out/s",
        "bundles",
        "topics",
    )
    if at is not None:
        past = loads_at(admin, at, "broker_load")
        say_unknown(admin, at, past)
        standing = Standing.of(admin, past, at, BrokerLoad.kind)
        stand = {name: standing.broker(name) for it in past.loads for name in it.figures}
        data = [
            {"broker": name, "at": best.loads.ts, **figures(best.loads, name)}
            for name, best in sorted(stand.items())
            if best is not None and broker in (None, name)
        ]
        past.notes += [
            f"{name}: {doubt_of(name, best, ())}"
            for name, best in sorted(stand.items())
            if best is not None and best.moved
        ]
        standing.say(past, BrokerLoad.kind)
        if broker is not None and not data:
            past.notes.append(nothing_then(admin, broker, at))
        return listed_at(data, headers, [_loads_row(it) for it in data], past)
    brokers = _named(admin, broker)
    reports, missing = ask_each(admin, brokers, report_of)
    if not reports:
        _check_own(admin)
    rows = [_report_row(broker, report) for broker, (report, _) in reports.items()]
    raw = {broker: each for broker, (_, each) in reports.items()}
    return Output(raw, table(headers, rows), missing=missing)


def _loads_row(of: dict[str, Any]) -> tuple[Cell, ...]:
    resources = ("cpu", "memory", "direct_memory", "bandwidth_in", "bandwidth_out")
    limits = [(of[f"{name}_usage"], of[f"{name}_limit"]) for name in resources]
    return (
        of["broker"],
        *(100.0 * used / limit if limit > 0 else None for used, limit in limits),
        of["msg_rate_in"],
        of["msg_rate_out"],
        round(of["bundles"]),
        round(of["topics"]),
    )


def report_of(admin: AdminClient, _broker: str) -> tuple[Report, Any]:
    """The load report of a broker, of which `admin` is the client, and the whole as it came."""
    return admin.ask("GET", f"{OWN}/load-report", None, Report)


def _report_row(broker: str, report: Report) -> tuple[Cell, ...]:
    return (
        broker,
        _percent(report.get("cpu")),
        _percent(report.get("memory")),
        _percent(report.get("directMemory")),
        _percent(report.get("bandwidthIn")),
        _percent(report.get("bandwidthOut")),
        float(report.get("msgRateIn", 0)),
        float(report.get("msgRateOut", 0)),
        report.get("numBundles"),
        report.get("numTopics"),
    )


def _percent(usage: Usage | None) -> float | None:
    return 100.0 * usage["usage"] / usage["limit"] if usage and usage["limit"] > 0 else None


group.command("cordon")(brokers_cordon)
group.command("uncordon")(brokers_uncordon)


@group.command("forget")
@click.argument("broker")
def brokers_forget(admin: AdminClient, broker: str) -> Output:
    """Forget a broker that left and is not to come back: it is no longer told of."""
    admin.send("DELETE", f"{OWN}/members/{quote(broker, safe=':')}")
    return done(f"{broker} is forgotten")
