"""Puts the analysis together: Java, Spark, the job."""

from __future__ import annotations

from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from loadmanager.adapters.zookeeper.embedded import find_java
from loadmanager.analysis.ingest import first_line
from loadmanager.analysis.job import Job, Outcome
from loadmanager.analysis.segments import Source
from loadmanager.analysis.session import session
from loadmanager.core.errors import OperationalError
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
    except (PySparkException, Py4JError, OSError) as error:
        raise OperationalError(f"{first_line(error)} (--spark spark.log.level=INFO tells more)") from None
    finally:
        source.close()
