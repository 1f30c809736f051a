"""Which tenant had how much traffic?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from loadmanager.nightly.day import NUMBER, TEXT, WHOLE, Columns, Day, Finding, Row, over
from loadmanager.nightly.trusted import by_broker

NAME = "tenants"
ABOUT = (
    "Which tenant had how much traffic? All of this goes by bytes, and not by what they cost the "
    "brokers: that is in tenant_costs, with `analyze --replay`, and `loadmanager bill` says it of "
    "months, with prices."
)
COLUMNS: Columns = {
    "tenant": (TEXT, "the tenant"),
    "namespaces": (WHOLE, "its namespaces with load"),
    "bytes": (NUMBER, "bytes of the day, in and out"),
    "messages": (NUMBER, "messages of the day, in and out"),
    "share": (NUMBER, "its part of all bytes"),
    "broker_hours": (NUMBER, "its part of the hours of all brokers, were all bytes alike"),
    "connection_hours": (NUMBER, "producers and consumers, times the hours that they were there"),
    "busiest_hour_ts": (WHOLE, "the hour in which it carried most"),
    "busiest_hour_bytes_per_s": (NUMBER, "its bytes/s in that hour, in and out"),
}


def table(day: Day) -> list[Row]:
    tenants: dict[str, list[Row]] = {}
    for row in day.facts.namespaces_by_hour:
        tenants.setdefault(row["namespace"].partition("/")[0], []).append(row)
    everything = sum(row["bytes"] for rows in tenants.values() for row in rows)
    steps = [step for steps in by_broker(day.facts.brokers).values() for step in steps]
    broker_hours = sum(step["interval_ms"] for step in steps) / 3_600_000
    tenant_rows = [_row(tenant, rows, everything, broker_hours) for tenant, rows in tenants.items()]
    return sorted(tenant_rows, key=lambda row: (-row["share"], row["tenant"]))


def _row(tenant: str, rows: Sequence[Row], everything: float, broker_hours: float) -> Row:
    hours: dict[int, float] = {}
    for row in rows:
        hours[row["hour"]] = hours.get(row["hour"], 0.0) + row["bytes"]
    busiest = max(hours, key=lambda hour: (hours[hour], -hour))
    bytes_ = sum(hours.values())
    share = over(bytes_, everything) or 0.0
    return {
        "tenant": tenant,
        "namespaces": len({row["namespace"] for row in rows}),
        "bytes": bytes_,
        "messages": sum(row["messages"] for row in rows),
        "share": share,
        "broker_hours": share * broker_hours,
        "connection_hours": sum(row["connection_hours"] for row in rows),
        "busiest_hour_ts": busiest,
        "busiest_hour_bytes_per_s": hours[busiest] / 3600,
    }


def findings(_rows: Sequence[Any], _day: Day) -> list[Finding]:
    """Empty: a bill is no finding."""
    return []
