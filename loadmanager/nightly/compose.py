"""Puts the analysis together: Java, Spark, the job."""

from __future__ import annotations

from py4j.protocol import Py4JNetworkError

from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.kit.errors import OperationalError
from loadmanager.kit.history.source import HistorySource
from loadmanager.kit.spark import FAILURES, first_line, session
from loadmanager.kit.zookeeper.java import find_java
from loadmanager.nightly.analysed_days import AnalysedDays
from loadmanager.nightly.job import AnalysedDay, Job


def _catch_up(job: Job, day: str) -> AnalysedDay | None:
    """Analyse a day whose segments came late; a failure is reported and stops nothing."""
    try:
        return job.run(day)
    except (*FAILURES, OperationalError) as error:
        return AnalysedDay(
            job.cluster,
            day,
            0,
            [f"its segments came late, and it cannot be analysed: {first_line(error)}"],
            [],
            "no report",
            0.0,
        )


def analyze(
    date: str,
    *,
    history: str,
    output: str,
    cluster: str | None,
    strategies: StrategySettings,
    configured: str,
    master: str | None,
    spark_settings: dict[str, str],
    late: bool,
    quiet: bool,
    records_days: int = 0,
) -> list[AnalysedDay]:
    """Analyse one day, and before it those days whose segments changed since they were analysed.

    Everything that can be wrong with the arguments is said before Spark starts. `configured`: the
    options of the command line that `strategies` come from. Of days so much older than `date`, the
    records are deleted; 0: of none.
    """
    source = HistorySource(history)
    days = AnalysedDays(output, source.chosen(cluster))
    try:
        with days.alone():
            dates = [*(days.late(date, source) if late else []), date]
            if not any(source.segments(days.cluster, day) for day in dates):
                return []
            with session(master=master, java=find_java(), settings=spark_settings) as spark:
                job = Job(
                    spark, source, days, settings=strategies, configured=configured, quiet=quiet
                )
                outcomes = [*(_catch_up(job, day) for day in dates[:-1]), job.run(date)]
                days.forget_old(date, records_days)
                return [outcome for outcome in outcomes if outcome is not None]
    except (Py4JNetworkError, ConnectionError) as error:
        raise OperationalError(
            f"Spark's Java process does not answer ({first_line(error)}): was it killed, or did "
            "memory run out? Then run it again"
        ) from None
    except FAILURES as error:
        raise OperationalError(
            f"{first_line(error)} (--spark spark.log.level=INFO tells more)"
        ) from None
