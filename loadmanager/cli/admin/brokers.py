"""`loadmanager admin brokers …`."""

from __future__ import annotations

from typing import Any

import click
from msgspec import to_builtins

from loadmanager.cli.admin.asking import OWN, V2, ask_each, brokers_of
from loadmanager.cli.admin.client import AdminClient, AnsweredError
from loadmanager.cli.admin.command import AdminGroup, Output
from loadmanager.cli.admin.restarting import (
    brokers_cordon,
    brokers_uncordon,
    cordons_of,
    progress_text,
)
from loadmanager.cli.admin.shapes import Report, Usage
from loadmanager.cli.terminal import Cell, table
from loadmanager.kit.errors import LoadManagerError, OperationalError
from loadmanager.leader.documents.cluster import LeaderBroker
from loadmanager.leader.documents.moves import CordonShown

group = AdminGroup("brokers", help="Live brokers: list, leader, health, report, cordon.")
_broker = click.argument("broker", required=False)


@group.command("list")
def brokers_list(admin: AdminClient) -> Output:
    """List the live brokers: which one leads, which ones are cordoned or drained, and how far."""
    brokers, leader = brokers_of(admin), _leader(admin)
    cordons = {} if leader is None else cordons_of(admin)
    names = sorted({*brokers, *cordons})
    data = [
        {
            "broker": broker,
            "leader": broker == leader,
            "active": broker in brokers,
            "cordon": to_builtins(cordons.get(broker)),
        }
        for broker in names
    ]
    rows = [(broker, "leader" if broker == leader else "") for broker in names]
    if not cordons:
        return Output(data, table(("broker", "role"), rows))
    states = [_cordon_text(broker in brokers, cordons.get(broker)) for broker in names]
    shown = [(*row, state) for row, state in zip(rows, states, strict=True)]
    return Output(data, table(("broker", "role", "cordon"), shown))


def _cordon_text(active: bool, cordon: CordonShown | None) -> str:
    if cordon is None:
        return ""
    note = f" ({cordon.note})" if cordon.note else ""
    away = "" if active or cordon.state == "stopped" else ", not active"
    return progress_text(cordon) + away + note


def _leader(admin: AdminClient) -> str | None:
    try:
        return admin.get(f"{V2}/brokers/leaderBroker", LeaderBroker).broker_id
    except AnsweredError:
        return None  # 404: no broker leads now


@group.command("leader")
def brokers_leader(admin: AdminClient) -> Output:
    """Show the leader."""
    leader, raw = admin.ask("GET", f"{V2}/brokers/leaderBroker", None, LeaderBroker)
    return Output(raw, f"{leader.broker_id}  {leader.service_url}")


@group.command("health")
@_broker
def brokers_health(admin: AdminClient, broker: str | None) -> Output:
    """Check all brokers, or the named one; exit status 1 if a broker is not healthy."""
    brokers = _named(admin, broker)
    health, _ = ask_each(admin, brokers, lambda at, _broker: _health(at))
    healthy = bool(health) and all(state == "ok" for state in health.values())
    return Output(health, table(("broker", "health"), list(health.items())), 0 if healthy else 1)


def _named(admin: AdminClient, broker: str | None) -> list[str]:
    """The broker that is named, or all. Raises `OperationalError` for one that is not active."""
    brokers = brokers_of(admin)
    if broker is not None and broker not in brokers:
        raise OperationalError(f"{broker} is not active; the brokers are {', '.join(brokers)}")
    return brokers if broker is None else [broker]


def _health(admin: AdminClient) -> str:
    try:
        return admin.text(f"{V2}/brokers/health")
    except LoadManagerError as error:
        return str(error).splitlines()[0]


@group.command("report")
@_broker
def brokers_report(admin: AdminClient, broker: str | None) -> Output:
    """Show the load reports of all brokers, or of the named one."""
    brokers = _named(admin, broker)
    reports, missing = ask_each(admin, brokers, report_of)
    headers = (
        "broker",
        *("cpu %", "mem %", "direct %", "in %", "out %"),
        "msg in/s",
        "msg out/s",
        "bundles",
        "topics",
    )
    rows = [_report_row(broker, report) for broker, (report, _) in reports.items()]
    raw = {broker: each for broker, (_, each) in reports.items()}
    return Output(raw, table(headers, rows), missing=missing)


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
