"""`loadmanager bill`: what each tenant used, and what that cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click
import msgspec

from loadmanager.broker import settings
from loadmanager.cli.options import URL, Command, Finite, config, tell_left_out
from loadmanager.cli.recorded import recorded
from loadmanager.cli.terminal import Shown, show, table
from loadmanager.cli.what_if import price_in
from loadmanager.engine.load.price import PriceSettings
from loadmanager.lab.bill import Bill, TenantUse, bills

EXAMPLES = """examples:
  loadmanager bill data/history --price 0.4
  loadmanager bill s3://bucket/history --date 2026-11-20 --date 2026-11-21 --json
"""
LEGEND = """core h: hours of one core for a tenant's traffic, by the model of load that is fitted to
  each day; broker h: its part of the hours of all brokers, divided as the core hours are,
  so that idle brokers are paid by all; clients: the most at once; stored GB d: what its
  topics had stored, gigabytes times days. Small messages cost more for each byte if the
  day shows it; what costs more otherwise is told apart from slow brokers once bundles
  have moved."""
STORED_LEAST = (
    "stored GB d is the least: what closed topics hold is not recorded (a topic without clients "
    "since its broker started is closed) on"
)
BY_TRAFFIC = (
    "by traffic (bytes) and without core h, for the model explains less than half of the usage"
)
HEADERS = ("core h", "broker h", "part %", "GB", "clients", "stored GB d")
DAYS_OF_A_MONTH = 30


@click.command(cls=Command, epilog=EXAMPLES)
@click.argument("history", type=URL)
@click.option("--date", "dates", multiple=True, metavar="YYYY-MM-DD", help="this day; default: all")
@click.option("--cluster", help="which cluster, when the history has several")
@config()
@click.option(
    "--price",
    type=Finite(0),
    metavar="AMOUNT",
    help="what a broker costs an hour; default: loadManagerBrokerHourPrice",
)
@click.option("--json", "as_json", is_flag=True, help="all figures, for programs")
def command(
    config: Path | None,
    overrides: dict[str, str],
    *,
    history: str,
    dates: Sequence[str],
    cluster: str | None,
    price: float | None,
    as_json: bool,
) -> int:
    """Say what each tenant used of the brokers in each month, and what that cost.

    By the CPU that its traffic takes, as learned from the recorded usage, and not by its bytes.
    """
    base = settings.KEYS.load(config, overrides)
    tell_left_out()
    price = price_in(base) if price is None else price
    prices = None if price is None else Prices(price, base.leaf(PriceSettings).gigabyte_month)
    days = recorded(history, cluster, dates, base)
    made = bills((date, day.recording) for date, day in sorted(days.items()))
    if as_json:
        documents = {month: _document(bill, prices) for month, bill in made.items()}
        print(msgspec.json.encode(documents).decode())
    else:
        for month, bill in made.items():
            show(*_shown(month, bill, prices))
        show(LEGEND.splitlines())
    return 0


@dataclass(frozen=True, slots=True)
class Prices:
    """What brokers and storage cost."""

    broker_hour: float
    gigabyte_month: float

    def amount(self, used: TenantUse) -> float:
        """What a tenant's use costs."""
        stored = (used.stored_gigabyte_days or 0.0) / DAYS_OF_A_MONTH
        return used.broker_hours * self.broker_hour + stored * self.gigabyte_month


def _ranked(bill: Bill) -> list[tuple[str, TenantUse]]:
    return sorted(bill.tenants.items(), key=lambda item: (-item[1].broker_hours, item[0]))


def _shown(month: str, bill: Bill, prices: Prices | None) -> Iterator[Shown]:
    rows: list[list[str | float | int | None]] = []
    for name, used in _ranked(bill):
        part = 100 * used.broker_hours / bill.broker_hours if bill.broker_hours else 0.0
        row: list[str | float | int | None] = [name]
        row += [round(each, 2) for each in (used.core_hours, used.broker_hours, part)]
        stored = used.stored_gigabyte_days
        row += [
            round(used.gigabytes, 3),
            used.clients,
            None if stored is None else round(stored, 3),
        ]
        rows.append(row if prices is None else [*row, f"{prices.amount(used):.2f}"])
    headers = (month, *HEADERS, *(() if prices is None else ("amount",)))
    yield table(headers, rows)
    days = f"days: {bill.days}; broker-hours: {bill.broker_hours:.1f}"
    if bill.error is not None:
        days += f"; usage by the model is up to {100 * bill.error:.1f} points off"
    lines = [days]
    if bill.by_traffic:
        lines.append(f"{BY_TRAFFIC}: {', '.join(bill.by_traffic)}")
    if bill.open_only:
        lines.append(f"{STORED_LEAST} {', '.join(bill.open_only)}")
    if bill.left_out:
        lines.append(f"left out, for no traffic is recorded: {', '.join(bill.left_out)}")
    yield lines


def _document(bill: Bill, prices: Prices | None) -> Mapping[str, Any]:
    stored_of = "open topics" if bill.open_only else "all topics"
    document = {**asdict(bill), "stored_of": stored_of}
    if prices is not None:
        for name, used in bill.tenants.items():
            document["tenants"][name]["amount"] = prices.amount(used)
    return document
