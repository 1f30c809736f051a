"""`loadmanager analyze`: the nightly job over the history."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from shlex import quote
from typing import Any

import click

from loadmanager.broker import settings
from loadmanager.cli.calibrations import Replays
from loadmanager.cli.options import URL, Command, config
from loadmanager.cli.recorded import reader
from loadmanager.engine.strategies import registry
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.kit.errors import BadInputError, ConfigError
from loadmanager.kit.history.settings import AnalysisSettings
from loadmanager.kit.private_files import UMASK
from loadmanager.kit.text import printable

OUTPUT = "data/analysis"
NO_RECORDS, PARTLY, UNANSWERED = 4, 3, 5
EXAMPLES = """examples:
  loadmanager analyze                        yesterday, from data/history into data/analysis
  loadmanager analyze --master 'local[*]'    the same on Spark, on this machine
  loadmanager analyze --date 2026-11-20 --history s3://bucket/history --output s3://bucket/analysis
  loadmanager analyze --date 2026-11-20 --master spark://head:7077 --spark spark.executor.memory=4g
  package=$(python -c 'import loadmanager; print(loadmanager.__path__[0])')
  spark-submit --master yarn "$package/__main__.py" analyze --date 2026-11-20

exit status: 0 done; 1 failed; 2 bad input or usage;
3 done, but part of the history could not be read (the report says what);
4 nothing was recorded that day;
5 done, but a question could not be answered (the report says which, and why)
"""


@click.command(cls=Command, epilog=EXAMPLES)
@click.option("--date", metavar="YYYY-MM-DD", help="the UTC day (default: yesterday)")
@click.option(
    "--history",
    default="data/history",
    type=URL,
    metavar="URL",
    help="where the segments are: a folder or any fsspec URL",
)
@click.option(
    "--output",
    default=OUTPUT,
    type=URL,
    metavar="URL",
    help="where tables and reports go",
)
@click.option("--cluster", help="which cluster, when the history has several")
@config("broker.conf with the thresholds and the grace period in force")
@click.option(
    "--master",
    help="the Spark master (default: none, this process analyses days of up to 1 GiB of compressed "
    "segments, and Spark in local[*] larger ones; under spark-submit what that says)",
)
@click.option(
    "--spark",
    "spark_settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="a setting of Spark, which runs then; may be repeated",
)
@click.option(
    "--no-late",
    is_flag=True,
    help="do not analyse earlier days again whose segments came late",
)
@click.option(
    "--replay",
    is_flag=True,
    help="also replay the day with the settings that were in force, and say how far off that is, "
    "and what each tenant's traffic cost",
)
@click.option("--quiet", is_flag=True, help="no progress on standard error")
def command(
    *,
    date: str | None,
    history: str,
    output: str,
    config: Path | None,
    overrides: dict[str, str],
    no_late: bool,
    spark_settings: tuple[str, ...],
    replay: bool,
    **options: Any,
) -> int:
    """Write the nightly report over the recorded history: in this process, or on Spark."""
    day = _date(date)
    configured = settings.KEYS.load(config, overrides)
    strategies = configured.leaf(StrategySettings)
    try:
        from loadmanager.nightly.compose import analyze
    except ImportError as error:
        raise ConfigError(
            f"the analysis needs pyarrow and DuckDB: pip install 'loadmanager[report]' ({error})"
        ) from None
    if output == OUTPUT:
        os.umask(UMASK)  # Spark's, too; who may read an --output is up to whoever asks for it
    replays = Replays(_url(history), options["cluster"], configured) if replay else None
    outcomes = analyze(
        day,
        history=_url(history),
        output=_url(output),
        strategies=strategies,
        configured=_configured(config, overrides),
        spark_settings=dict(map(_pair, spark_settings)),
        late=not no_late,
        max_days=configured.leaf(AnalysisSettings).max_days,
        replays=replays,
        **options,
    )
    if not any(outcome.date == day for outcome in outcomes):
        print(f"loadmanager analyze: {_nothing(day, history, options['cluster'])}", file=sys.stderr)
    for outcome in outcomes:
        print(
            f"{outcome.date}: {outcome.rows:,} records in {outcome.seconds:.1f} s, "
            f"{len(outcome.findings)} findings"
        )
        for finding in outcome.findings[:5]:
            print(f"  {finding.importance:3.0f}  {printable(finding.title)}")
        for problem in outcome.problems:
            print(f"  !    {printable(problem)}")
        for sentence in outcome.removed:
            print(f"  -    {printable(sentence)}")
        print(f"  {outcome.report}")
    if any(outcome.failed for outcome in outcomes):
        return UNANSWERED
    if any(outcome.problems for outcome in outcomes):
        return PARTLY
    return 0 if any(outcome.date == day and outcome.rows for outcome in outcomes) else NO_RECORDS


def _nothing(day: str, history: str, cluster: str | None) -> str:
    """Why there is nothing of a day."""
    source = reader().history(_url(history))
    gone: str = source.why_gone(source.chosen(cluster), day)
    return gone or f"nothing was recorded on {day} below {history}"


def _date(text: str | None) -> str:
    if text is None:
        return (datetime.now(UTC) - timedelta(days=1)).strftime("%Y-%m-%d")
    try:
        return datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC).strftime("%Y-%m-%d")
    except ValueError:
        raise BadInputError(f"--date {text}: a day such as 2026-11-20 is expected") from None


def _url(text: str) -> str:
    """An fsspec URL; a plain path is made absolute, because Spark has a working
    folder of its own.
    """
    if re.match(r"file:/+", text):
        return re.sub(r"file:/+", "file:///", text)
    return text if re.match(r"[a-z0-9+.-]+://", text) else str(Path(text).resolve())


def _configured(config: Path | None, overrides: Mapping[str, str]) -> str:
    """The options that strategies have their settings from, for commands in the report; the rest of
    --set is nobody's business there.
    """
    keys, leaves = settings.KEYS.by_name(), (StrategySettings, *registry.own_settings())
    words = [] if config is None else ["--config", str(config.resolve())]
    for key, text in overrides.items():
        if key in keys and keys[key].leaf in leaves:
            words += ["--set", f"{key}={text}"]
    return "".join(f"{quote(word)} " for word in words)


def _pair(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator:
        raise BadInputError(f"--spark {text}: key=value is expected")
    return name, value
