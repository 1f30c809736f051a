"""Which topics carried the traffic, of those that brokers recorded (their busiest)?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import DataFrame

from loadmanager.analysis.day import Day, Finding, mib
from loadmanager.analysis.questions import hot_bundles

NAME = "hot_topics"
ABOUT = (
    "Which topics carried the traffic? Brokers record their busiest topics only; share is of the "
    "bytes of all recorded topics."
)
ORDER = ("share DESC", "topic")


def table(day: Day) -> DataFrame:
    """A row a topic."""
    return hot_bundles.ranked(day.records("topic_load"), "topic")


def findings(rows: Sequence[Any], _day: Day) -> list[Finding]:
    """Topics that alone carry a large part and are not partitioned."""
    if len(rows) < 2:
        return []
    return [
        Finding(
            importance=35 + 50 * row.share,
            question=NAME,
            title=f"One topic carried {row.share:.0%} of the recorded traffic",
            text=f"{row.topic} had {mib(row.throughput_mean)} on average and "
            f"{mib(row.throughput_max)} at most. "
            "A topic is served by one broker at a time.",
            advice="It is a partition already: give the topic more of them."
            if "-partition-" in row.topic
            else "Partition it.",
            numbers={"share": row.share, "throughputMean": row.throughput_mean},
        )
        for row in rows
        if row.share >= hot_bundles.HOT_SHARE
    ]
