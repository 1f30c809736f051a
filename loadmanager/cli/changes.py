"""The options that say what is different in a what-if; importing them takes no time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import click

from loadmanager.cli.options import Decorator, Finite


def _multiples(
    _context: click.Context, option: click.Parameter, texts: Sequence[str]
) -> dict[str, float | None]:
    """TENANT=TIMES, several times; a tenant alone has None: the traffic of --times is its."""
    tenants: dict[str, float | None] = {}
    for text in texts:
        name, equals, times = text.rpartition("=")
        if not equals and text:
            tenants[text] = None
            continue
        try:
            tenants[name] = Finite(0).convert(times, option, None)
        except click.BadParameter:
            name = ""
        if not name:
            raise click.BadParameter(f"{text}: TENANT=TIMES is expected, such as acme=2")
    return tenants


def change_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """The options that say what is different; they arrive as `change`."""
    options: list[Decorator] = [
        click.option(
            "--without",
            multiple=True,
            metavar="BROKER",
            help="without this broker; may be repeated",
        ),
        click.option(
            "--without-zone",
            "zones",
            multiple=True,
            metavar="DOMAIN",
            help="without the brokers of this failure domain; may be repeated",
        ),
        click.option(
            "--add",
            "added",
            default=0,
            type=click.IntRange(0, 1000),
            metavar="N",
            help="with so many more brokers of the usual size",
        ),
        click.option(
            "--times", default=1.0, type=Finite(0, 1000), metavar="X", help="X times the traffic"
        ),
        click.option(
            "--tenant",
            "tenants",
            multiple=True,
            metavar="TENANT[=X]",
            callback=_multiples,
            help="X times the traffic of a tenant; may be repeated; without =X, as many times as "
            "--times says",
        ),
        click.option(
            "--fewest", is_flag=True, help="find out how many brokers this needs at least"
        ),
        click.option(
            "--price",
            type=Finite(0),
            metavar="AMOUNT",
            help="what a broker costs an hour, to say what all cost a day; default: "
            "loadManagerBrokerHourPrice",
        ),
    ]
    for option in reversed(options):
        function = option(function)
    return function
