"""`loadmanager admin brokers …` and `drain`."""

from __future__ import annotations

from typing import Any

import click

from loadmanager.cli.admin.asking import (
    V2,
    ask_each,
    cluster_of,
    count_of_bundles,
    owned,
    unload_bundle,
)
from loadmanager.cli.admin.client import AdminClient
from loadmanager.cli.admin.command import AdminCommand, AdminGroup, Output
from loadmanager.cli.terminal import Cell, table, track
from loadmanager.core.errors import BadInputError, LoadManagerError, OperationalError

group = AdminGroup("brokers", help="Live brokers: list, leader, health, report.")
_broker = click.argument("broker", required=False)

RESOURCES = (
    ("cpu", "cpu %"),
    ("memory", "mem %"),
    ("directMemory", "direct %"),
    ("bandwidthIn", "in %"),
    ("bandwidthOut", "out %"),
)


@group.command("list")
def brokers_list(admin: AdminClient) -> Output:
    """List the live brokers, and mark the leader."""
    brokers, leader = admin.get(f"{V2}/brokers"), _leader(admin)
    data = [{"broker": broker, "leader": broker == leader} for broker in brokers]
    return Output(
        data,
        table(
            ("broker", "role"),
            [(broker, "leader" if broker == leader else "") for broker in brokers],
        ),
    )


def _leader(admin: AdminClient) -> str | None:
    try:
        return str(admin.get(f"{V2}/brokers/leaderBroker")["brokerId"])
    except OperationalError:
        return None  # 404: no broker leads now


@group.command("leader")
def brokers_leader(admin: AdminClient) -> Output:
    """Show the leader."""
    leader = admin.get(f"{V2}/brokers/leaderBroker")
    return Output(leader, f"{leader['brokerId']}  {leader['serviceUrl']}")


@group.command("health")
@_broker
def brokers_health(admin: AdminClient, broker: str | None) -> Output:
    """Check all brokers, or the named one; exit status 1 if a broker is not healthy."""
    brokers = [broker] if broker else admin.get(f"{V2}/brokers")
    health, _ = ask_each(admin, brokers, lambda at, _broker: _health(at))
    healthy = bool(health) and all(state == "ok" for state in health.values())
    return Output(health, table(("broker", "health"), list(health.items())), 0 if healthy else 1)


def _health(admin: AdminClient) -> str:
    try:
        return admin.text(f"{V2}/brokers/health")
    except LoadManagerError as error:
        return str(error).splitlines()[0]


@group.command("report")
@_broker
def brokers_report(admin: AdminClient, broker: str | None) -> Output:
    """Show the load reports of all brokers, or of the named one."""
    brokers = [broker] if broker else admin.get(f"{V2}/brokers")
    reports, missing = ask_each(admin, brokers, report_of)
    headers = (
        "broker",
        *(title for _, title in RESOURCES),
        "msg in/s",
        "msg out/s",
        "bundles",
        "topics",
    )
    rows = [_report_row(broker, report) for broker, report in reports.items()]
    return Output(reports, table(headers, rows), missing=missing)


def report_of(admin: AdminClient, _broker: str) -> dict[str, Any]:
    """The load report of a broker, of which `admin` is the client."""
    return dict(admin.get(f"{V2}/broker-stats/load-report"))


def _report_row(broker: str, report: dict[str, Any]) -> tuple[Cell, ...]:
    rates = (float(report.get("msgRateIn", 0)), float(report.get("msgRateOut", 0)))
    return (
        broker,
        *(_percent(report.get(name)) for name, _ in RESOURCES),
        *rates,
        report.get("numBundles"),
        report.get("numTopics"),
    )


def _percent(usage: dict[str, float] | None) -> float | None:
    return 100.0 * usage["usage"] / usage["limit"] if usage and usage.get("limit", 0) > 0 else None


@click.command(cls=AdminCommand)
@click.argument("broker")
@click.option("--stop", is_flag=True, help="stop the broker when its bundles are elsewhere")
def drain(admin: AdminClient, broker: str, stop: bool) -> Output:
    """Unload every bundle of a broker to the brokers with the fewest bundles.

    BROKER is host:port, as `brokers list` shows it.
    """
    brokers = admin.get(f"{V2}/brokers")
    if broker not in brokers:
        raise BadInputError(f"{broker} is not active; the brokers are {', '.join(brokers)}")
    cluster = cluster_of(admin)
    bundles, missing = ask_each(admin, brokers, lambda at, name: owned(at, cluster, name))
    if broker in missing:
        raise OperationalError(missing[broker])
    counts = {name: len(names) for name, names in bundles.items() if name != broker}
    if not counts:
        raise OperationalError(f"no other broker than {broker} can take its bundles")
    moves: list[dict[str, str]] = []
    for bundle in track(sorted(bundles[broker]), f"moving bundles off {broker}"):
        destination = min(counts, key=lambda name: (counts[name], name))
        unload_bundle(admin, bundle, destination)
        counts[destination] += 1
        moves.append({"bundle": bundle, "to": destination})
    if stop:
        admin.at(broker).send("POST", f"{V2}/brokers/shutdown")
    summary = f"{count_of_bundles(len(moves))} moved off {broker}; " + (
        "it stops now" if stop else "the leader may give it bundles again"
    )
    return Output(
        {"moves": moves, "stopped": stop},
        "\n".join([*(f"{move['bundle']} -> {move['to']}" for move in moves), summary]),
    )
