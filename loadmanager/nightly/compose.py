"""Puts the analysis together: what runs it, the job."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol

from loadmanager.engine.history import replay_error
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.kit.errors import ConfigError, OperationalError
from loadmanager.kit.failures import first_line
from loadmanager.kit.history.source import HistorySource
from loadmanager.kit.system.clock import SystemClock
from loadmanager.nightly.analysed_days import AnalysedDays
from loadmanager.nightly.compaction import compact
from loadmanager.nightly.day import Row
from loadmanager.nightly.engine import Engine
from loadmanager.nightly.forgetting import forget
from loadmanager.nightly.in_process import InProcess
from loadmanager.nightly.job import QUESTIONS, AnalysedDay, Job, Question
from loadmanager.nightly.late import late_days
from loadmanager.nightly.questions import calibration, forecasts, headroom
from loadmanager.nightly.questions.calibration import Calibrated
from loadmanager.nightly.questions.forecasts import ForecastsByModel, TrafficUsage
from loadmanager.nightly.questions.headroom import HeadroomByModel
from loadmanager.nightly.questions.tenant_costs import TenantCosts

IN_PROCESS_BYTES = 1 << 30
"""Compressed segments of a day; a larger one is for Spark."""
SUBMITTED = {"PYSPARK_GATEWAY_PORT", "PYSPARK_REMOTE_INIT_CONF_LEN"}
"""What spark-submit sets."""


class DayReplays(Protocol):
    """What replays days, and knows their costs."""

    def replayed(self, date: str) -> Row | None:
        """How far off a replay of a day is; None: it cannot be replayed."""

    def idle(self, date: str) -> float | None:
        """What brokers use without traffic, as a fraction; None: the day does not tell."""

    def usage_model(self, date: str) -> TrafficUsage | None:
        """What traffic makes brokers use; None: the day does not tell."""

    def costs(self, date: str) -> Sequence[Row]:
        """What each tenant cost; empty: it had no traffic, or it cannot be replayed."""


def _catch_up(job: Job, day: str) -> AnalysedDay | None:
    """Analyse a day whose segments came late; a failure is reported and stops nothing."""
    try:
        return job.run(day)
    except ConnectionError:
        raise
    except Exception as error:  # noqa: BLE001 - each engine raises its own
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
    max_days: int = 0,
    replays: DayReplays | None = None,
) -> list[AnalysedDay]:
    """Analyse one day, and before it those days whose segments changed since they were analysed.

    Everything that can be wrong with the arguments is said before anything starts. `configured`:
    the options of the command line that `strategies` come from. Days more than `max_days` before
    `date` are deleted; 0: none. `replays` replays days.
    """
    source = HistorySource(history)
    days = AnalysedDays(output, source.chosen(cluster))
    with days.alone():
        removed: list[str] = []
        if source.segments(days.cluster, date):  # else nobody knows whether this is a date at all
            removed = forget(days, source, date, max_days)
        dates = [*(late_days(days, source, date) if late else []), date]
        segments = [source.segments(days.cluster, day) for day in dates]
        if not any(segments):
            return []
        largest = max(sum(size for *_, size in listed) for listed in segments)
        asked = bool(master or spark_settings)
        with _engine(master, spark_settings, on_spark=asked or wants_spark(largest)) as engine:
            job = Job(
                engine,
                source,
                days,
                settings=strategies,
                configured=configured,
                quiet=quiet,
                questions=_questions(replays),
            )
            outcomes = [_catch_up(job, day) for day in dates[:-1]]
            outcomes.append(job.run(date, removed, now_ms=SystemClock().now_ms()))
            if replays is not None:
                rows = days.rows(calibration.NAME, date, None)
                days.write("calibration.prom", calibration.metrics(rows, days.cluster))
                if rows:  # else the last day that could be replayed stays
                    error = calibration.error_of(rows[0], date)
                    days.write(replay_error.FILE, replay_error.encode(error))
            _compact(engine, days, date)
            return [outcome for outcome in outcomes if outcome is not None]


def _questions(replays: DayReplays | None) -> list[Question]:
    """Those of every day, and those that a replay of it answers."""
    if replays is None:
        return list(QUESTIONS)
    by_model: dict[str, Question] = {
        headroom.NAME: HeadroomByModel(replays.idle),
        forecasts.NAME: ForecastsByModel(replays.usage_model),
    }
    asked = [by_model.get(question.NAME, question) for question in QUESTIONS]
    return [*asked, Calibrated(replays.replayed), TenantCosts(replays.costs)]


def _compact(engine: Engine, days: AnalysedDays, date: str) -> None:
    """A failure is said, and stops nothing: the next run tries again."""
    try:
        compact(engine, days, date)
    except ConnectionError:
        raise
    except Exception as error:  # noqa: BLE001 - each engine raises its own
        print(f"old days cannot be compacted: {first_line(error)}", file=sys.stderr)


def wants_spark(largest: int, environment: Mapping[str, str] = os.environ) -> bool:
    """Whether Spark analyses days of which the largest has so many bytes, if nobody asked for it:
    where it submitted this process, or one process would take too long.
    """
    return largest > IN_PROCESS_BYTES or bool(SUBMITTED & environment.keys())


@contextmanager
def _engine(master: str | None, settings: dict[str, str], *, on_spark: bool) -> Iterator[Engine]:
    if on_spark:
        with _spark(master, settings) as engine:
            yield engine
        return
    alone = InProcess()
    try:
        yield alone
    finally:
        alone.close()


@contextmanager
def _spark(master: str | None, settings: dict[str, str]) -> Iterator[Engine]:
    try:
        from loadmanager.kit.spark import FAILURES, session
        from loadmanager.kit.zookeeper.java import find_java
        from loadmanager.nightly.on_spark import OnSpark
    except ImportError as error:
        raise ConfigError(
            f"such a day needs Spark: pip install 'loadmanager[analysis]' ({error})"
        ) from None
    try:
        with session(master=master, java=find_java(), settings=settings) as spark:
            yield OnSpark(spark)
    except ConnectionError as error:
        raise OperationalError(
            f"Spark's Java process does not answer ({first_line(error)}): was it killed, or did "
            "memory run out? Then run it again"
        ) from None
    except FAILURES as error:
        raise OperationalError(
            f"{first_line(error)} (--spark spark.log.level=INFO tells more)"
        ) from None
