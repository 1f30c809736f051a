"""`loadmanager admin find`: where a client, a producer, a consumer or a subscription is."""

from __future__ import annotations

import click

from loadmanager.broker.ports.topics import ClientsFound
from loadmanager.cli.admin.asking import OWN, count_of, query
from loadmanager.cli.admin.client import AdminClient
from loadmanager.cli.admin.command import AdminCommand, Output
from loadmanager.cli.admin.times import clock
from loadmanager.cli.terminal import table


@click.command(cls=AdminCommand)
@click.argument("text", metavar="TEXT")
@click.option(
    "--limit", type=click.IntRange(1, 200), default=20, metavar="N", help="at most N [default: 20]"
)
def find(admin: AdminClient, text: str, limit: int) -> Output:
    """Find producers, consumers and subscriptions by a part of their name, of their client's
    address or of its role: on which topic they are, and which broker serves it.

    Those with exactly this name come first. `history` of the bundle tells what became of it.
    """
    path = f"{OWN}/clients{query(find=text, limit=limit)}"
    answer, raw = admin.ask("GET", path, None, ClientsFound)
    rows = [
        (
            each.kind,
            each.name if each.subscription is None else f"{each.name} of {each.subscription}",
            each.client,
            each.topic,
            each.bundle,
            each.broker,
            None if each.since is None else clock(each.since),
        )
        for each in answer.clients
    ]
    headers = ("kind", "name", "client", "topic", "bundle", "broker", "since")
    shown = table(headers, rows) if rows else "nobody who is connected has this name or address"
    notes = []
    if answer.total > len(rows):
        notes.append(f"and {answer.total - len(rows)} more: a longer text, or --limit")
    if not answer.all_searched:
        notes.append("a broker has so many clients that it did not look at all of them")
    if answer.not_asked:
        notes.append(f"{count_of(answer.not_asked, 'broker')} not asked")
    return Output(raw, (shown, *notes), status=0 if rows else 1, missing=answer.no_answer)
