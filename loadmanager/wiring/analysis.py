"""Puts the analysis together: Java, Spark, the job."""

from __future__ import annotations

from typing import Any

from loadmanager.adapters.zookeeper.embedded import find_java
from loadmanager.analysis.job import Job, Outcome
from loadmanager.analysis.segments import Source
from loadmanager.analysis.session import session
from loadmanager.core.strategies.settings import StrategySettings


def analyze(
    date: str,
    *,
    history: str,
    output: str,
    cluster: str | None,
    strategies: StrategySettings,
    master: str | None,
    spark_settings: dict[str, str],
    late: bool,
    quiet: bool,
) -> list[Outcome]:
    """Analyse one day, and before it those days whose segments changed since they were analysed."""
    source = Source(history)
    try:
        with session(master=master, java=find_java(), settings=spark_settings) as spark:
            job = Job(spark, source, output, cluster=cluster, settings=strategies, quiet=quiet)
            days: list[Any] = [*(job.late(date) if late else []), date]
            return [outcome for day in days if (outcome := job.run(day)) is not None]
    finally:
        source.close()
