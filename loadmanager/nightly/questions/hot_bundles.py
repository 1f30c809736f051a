"""Which bundles carried the traffic?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from loadmanager.engine.findings import words
from loadmanager.engine.findings.hot_topics import BROKERS_WORTH
from loadmanager.nightly.day import (
    NUMBER,
    TEXT,
    WHOLE,
    Columns,
    Day,
    Finding,
    busiest_hour,
    command,
    is_busy,
    mib,
    namespace_of,
)
from loadmanager.nightly.facts import total
from loadmanager.nightly.hurt import NOBODY

NAME = "hot_bundles"
ABOUT = (
    "Which bundles carried the traffic? In and out together, which is about twice what producers "
    "published where every message is consumed once. Percentiles are exact, of the 200 busiest."
)
TOTALS: Columns = {
    "samples": (WHOLE, "records of its load"),
    "bytes": (NUMBER, "bytes of the day, in and out"),
    "throughput_mean": (NUMBER, "mean bytes/s in and out while it was recorded"),
    "throughput_max": (NUMBER, "highest bytes/s of a sample"),
    "rate_mean": (NUMBER, "mean messages/s in and out"),
    "rate_max": (NUMBER, "highest messages/s of a sample"),
    "last_ts": (WHOLE, "its last record"),
}
QUANTILES: Columns = {
    "throughput_p50": (NUMBER, "bytes/s that half of the samples did not exceed"),
    "throughput_p95": (NUMBER, "bytes/s that 95% of the samples did not exceed"),
}
COLUMNS: Columns = {
    "bundle": (TEXT, "the bundle"),
    **TOTALS,
    "topics_max": (WHOLE, "most topics that it had at a time"),
    "owner": (TEXT, "the last broker that recorded its load"),
    "share": (NUMBER, "its part of the bytes of all bundles"),
    **QUANTILES,
}


def table(day: Day) -> pa.Table:
    """A row a bundle."""
    facts = day.facts
    return ranked(facts.bundles, "bundle", "broker", "owner", busiest=facts.busiest_bundles)


def ranked(
    totals: pa.Table,
    name: str,
    place: str,
    last_place: str,
    *,
    busiest: Sequence[dict[str, Any]],
    all_bytes: float | None = None,
) -> pa.Table:
    """Traffic by `name`, the busiest first and with percentiles; `place`: the last one it had.

    `all_bytes`: what shares are of; None: of the sum.
    """
    extra = [column for column in ("topics_max", "backlog_max") if column in totals.column_names]
    sums = totals.group_by(name).aggregate(
        [
            *((column, "sum") for column in ("samples", "bytes", "throughput_sum", "rate_sum")),
            *((column, "max") for column in ("throughput_max", "rate_max", "last_ts", *extra)),
        ]
    )
    last = totals.sort_by([("last_ts", "descending"), (place, "ascending")])
    last = last.group_by(name, use_threads=False).aggregate([(place, "first")])
    everything = total(sums["bytes_sum"]) if all_bytes is None else all_bytes
    samples = pc.cast(sums["samples_sum"], pa.float64())
    ranking = pa.table(
        {
            name: sums[name],
            "samples": sums["samples_sum"],
            "bytes": sums["bytes_sum"],
            "throughput_mean": pc.divide(sums["throughput_sum_sum"], samples),
            "throughput_max": sums["throughput_max_max"],
            "rate_mean": pc.divide(sums["rate_sum_sum"], samples),
            "rate_max": sums["rate_max_max"],
            "last_ts": sums["last_ts_max"],
            **{column: sums[f"{column}_max"] for column in extra},
            "share": pc.divide(sums["bytes_sum"], everything)
            if everything > 0
            else pc.multiply(sums["bytes_sum"], 0.0),
        }
    )
    ranking = ranking.join(last.rename_columns([name, last_place]), name)
    whole = [row for row in busiest if row["step"] is None]
    quantiles = pa.table(
        {
            name: pa.array([row[name] for row in whole], pa.string()),
            "throughput_p50": pa.array([row["quantiles"][0] for row in whole], pa.float64()),
            "throughput_p95": pa.array([row["quantiles"][1] for row in whole], pa.float64()),
        }
    )
    return ranking.join(quantiles, name).sort_by([("share", "descending"), (name, "ascending")])


def hot_share(day: Day) -> float:
    """The share of the traffic that would keep one broker busy, were it divided evenly."""
    brokers = len({row["broker"] for row in day.facts.brokers})
    return BROKERS_WORTH / max(brokers, 1)


def findings(rows: Sequence[Any], day: Day) -> list[Finding]:
    """Bundles that alone carry as much as a broker, if brokers had something to do."""
    limit = hot_share(day)
    if len(rows) < 2 or not is_busy(day):
        return []
    return [
        Finding(
            importance=35 + 20 * row.share,
            question=NAME,
            title=words.carried(row.bundle, row.share),
            text=f"This bundle had {mib(row.throughput_mean)} in and out on average and "
            f"{mib(row.throughput_max)} at most, with {row.topics_max} topics; an even share of a "
            f"broker is {limit:.0%}. No broker can have less than its largest bundle."
            + busiest_hour(day.facts.of_one(day.facts.busiest_bundles, "bundle", row.bundle)),
            advice="Split it."
            if row.topics_max > 1
            else "A single topic carries it, which no split can divide: partition the topic.",
            hurt=f"{NOBODY} by itself: clients of {namespace_of(row.bundle)} and their neighbours, "
            "once its broker is too busy",
            numbers={
                "share": row.share,
                "throughputMean": row.throughput_mean,
                "throughputP95": row.throughput_p95,
                "topics": row.topics_max,
            },
            where=row.bundle,
            plot="bundles",
            commands=command("loadmanager admin bundles split", row.bundle)
            if row.topics_max > 1
            else [],
            explains=[f"bundle {row.bundle}"],
            causes=[
                f"growth of {namespace_of(row.bundle)}",
                f"only topic of {row.bundle}",
                f"boundaries of {namespace_of(row.bundle)}",
            ],
        )
        for row in rows
        if row.share >= limit
    ]
