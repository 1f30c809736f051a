"""Which topics carried the traffic, of those that brokers recorded (their busiest)?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from loadmanager.engine.findings import words
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
    over,
)
from loadmanager.nightly.facts import total
from loadmanager.nightly.hurt import NOBODY
from loadmanager.nightly.questions import hot_bundles

NAME = "hot_topics"
ABOUT = (
    "Which topics carried the traffic? In and out together. Brokers record their busiest topics "
    "only."
)
COLUMNS: Columns = {
    "topic": (TEXT, "the topic"),
    **hot_bundles.TOTALS,
    "backlog_max": (WHOLE, "most messages that waited for a subscription"),
    "bundle": (TEXT, "the last bundle that it was recorded in"),
    "share": (NUMBER, "its part of the bytes of all bundles, recorded topics or not"),
    **hot_bundles.QUANTILES,
}
MOST_OF_BUNDLE = 0.8
"""A topic that carries so much of its bundle is why the bundle is hot."""


def table(day: Day) -> pa.Table:
    """A row a topic."""
    facts = day.facts
    everything = max(total(facts.bundles["bytes"]), total(facts.topics["bytes"]))
    return hot_bundles.ranked(
        facts.topics,
        "topic",
        "bundle",
        "bundle",
        busiest=facts.busiest_topics,
        all_bytes=everything,
    )


def findings(rows: Sequence[Any], day: Day) -> list[Finding]:
    """Topics that alone carry as much as a broker."""
    limit = hot_bundles.hot_share(day)
    if len(rows) < 2 or not is_busy(day):
        return []
    carried: dict[str, float] = {}
    if "hot_bundles" in day.answers:
        carried = {row["bundle"]: row["bytes"] for row in day.answers["hot_bundles"]}
    findings = []
    for row in rows:
        if row.share < limit:
            continue
        part = over(row.bytes, carried.get(row.bundle, 0.0)) or 0.0
        most = part >= MOST_OF_BUNDLE
        partition = "-partition-" in row.topic
        findings.append(
            Finding(
                importance=36 + 20 * row.share,
                question=NAME,
                title=words.carried(row.topic, row.share),
                text=f"This topic had {mib(row.throughput_mean)} in and out on average and "
                f"{mib(row.throughput_max)} at most; an even share of a broker is {limit:.0%}. "
                f"It is {min(part, 1.0):.0%} of its bundle {row.bundle}. "
                f"{words.ONE_TOPIC}"
                + busiest_hour(day.facts.of_one(day.facts.busiest_topics, "topic", row.topic)),
                advice="It is a partition already: give the topic more of them."
                if partition
                else words.PARTITION,
                hurt=f"{NOBODY} by itself: clients of this topic and their neighbours, once its "
                "broker is too busy",
                numbers={"share": row.share, "throughputMean": row.throughput_mean},
                where=row.topic,
                plot="bundles",
                commands=command("loadmanager admin topics partitions", row.topic),
                explains=[f"topic {row.topic}", f"only topic of {row.bundle}"]
                + ([f"bundle {row.bundle}"] if most else []),
            )
        )
    return findings
