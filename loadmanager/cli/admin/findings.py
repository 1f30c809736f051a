"""`loadmanager admin findings`: what the leader finds wrong, now or at a moment."""

from __future__ import annotations

from collections.abc import Iterator

import click
from msgspec import to_builtins

from loadmanager.cli.admin.asking import OWN, count_of, query
from loadmanager.cli.admin.client import AdminClient
from loadmanager.cli.admin.command import AdminCommand, Output
from loadmanager.cli.admin.past_findings import finding_lines, findings_at, found_before
from loadmanager.cli.admin.times import at_option, clock, span, time_of_day
from loadmanager.leader.documents.cluster import ClusterShown
from loadmanager.leader.documents.findings import FindingsShown

KNOWS_LOST = "it knows of a broker that dies once its session is over"


@click.command(cls=AdminCommand)
@at_option
def findings(admin: AdminClient, at: int | None) -> Output:
    """Show what the leader finds wrong now: sensors, limits, clocks, flapping, leaders, hot topics,
    backlogs that grow, bundles that nobody serves, brokers that are lost.

    It looks once a minute; of a lost broker it says so once its session is over. A new leader knows
    the leaders of before and who left, and begins anew with all else: what takes an hour to find
    takes an hour again. So in the first hour of its term what leaders before had found is told,
    too, if it is not known to be over (backlogs and hot topics for a quarter of it). With --at,
    what leaders had found by then, also those before, if their terms had ended within the hour;
    each as of when it was recorded last, which it is anew as its words or figures change much.
    """
    if at is not None:
        return findings_at(admin, at)
    answer, raw = admin.ask("GET", f"{OWN}/findings", None, FindingsShown)
    cluster = admin.get(f"{OWN}/cluster{query(limit=1)}", ClusterShown)
    before = found_before(admin, cluster, answer)
    data = {**raw, "before": to_builtins(before.findings)}
    return Output(data, [*_lines(answer), *before.lines(answer.at)])


def _lines(answer: FindingsShown) -> Iterator[str]:
    for finding in answer.findings:
        yield from finding_lines(finding, answer.at)
    if not answer.findings:
        yield summary(answer)
    if answer.looked_at is not None:
        yield f"as of {clock(answer.looked_at)}, {span(answer.at - answer.looked_at)} ago"


def summary(answer: FindingsShown) -> str:
    """One line: how much is wrong, and the first of it."""
    if answer.looked_at is None and not answer.findings:
        return "this leader has not looked yet for what is wrong: it does once a minute"
    if answer.looked_at is not None and not answer.findings:
        ago = span(answer.at - answer.looked_at)
        return f"the leader found nothing wrong at its last look, {ago} ago; {KNOWS_LOST}"
    first, more = answer.findings[0], len(answer.findings) - 1
    beside = [f"and {count_of(more, 'other')}: loadmanager admin findings"] if more else []
    if first.kind != "lost" and answer.looked_at is not None:  # a loss is looked at when asked
        ago = span(answer.at - answer.looked_at)
        beside.insert(0, f"as of {time_of_day(answer.looked_at)}, {ago} ago")
    return f"found: {first.title}" + (f" ({'; '.join(beside)})" if beside else "")
