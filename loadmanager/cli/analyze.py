"""`loadmanager analyze`: the nightly job over the history."""

from __future__ import annotations

import argparse
import re
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

from loadmanager import settings
from loadmanager.cli.options import add_command, add_config
from loadmanager.core.errors import BadInputError, ConfigError
from loadmanager.core.strategies.settings import StrategySettings
from loadmanager.wiring.plugins import register_plugins

NO_RECORDS, PARTLY, UNANSWERED = 4, 3, 5
EXAMPLES = """examples:
  loadmanager analyze                        yesterday, from data/history into data/analysis
  loadmanager analyze --date 2026-11-20 --history s3://bucket/history --output s3://bucket/analysis
  loadmanager analyze --date 2026-11-20 --master spark://head:7077 --spark spark.executor.memory=4g
  package=$(python -c 'import loadmanager; print(loadmanager.__path__[0])')
  spark-submit --master yarn "$package/__main__.py" analyze --date 2026-11-20

exit status: 0 done; 1 failed; 2 bad input or usage;
3 done, but part of the history could not be read (the report says what);
4 nothing was recorded that day;
5 done, but a question could not be answered (the report says which, and why)
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command's arguments."""
    parser = add_command(
        subparsers,
        "analyze",
        "the nightly report: a PySpark job over the recorded history",
        EXAMPLES,
    )
    parser.add_argument("--date", metavar="YYYY-MM-DD", help="the UTC day (default: yesterday)")
    parser.add_argument(
        "--history",
        default="data/history",
        metavar="URL",
        help="where the segments are: a folder or any fsspec URL (default data/history)",
    )
    parser.add_argument(
        "--output",
        default="data/analysis",
        metavar="URL",
        help="where tables and reports go (default data/analysis)",
    )
    parser.add_argument("--cluster", help="which cluster, when the history has several")
    add_config(parser, "broker.conf with the thresholds and the grace period in force")
    parser.add_argument(
        "--master", help="Spark master (default local[*]; under spark-submit what that says)"
    )
    parser.add_argument(
        "--spark",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a Spark setting; may be repeated",
    )
    parser.add_argument(
        "--no-late",
        action="store_true",
        help="do not analyse earlier days again whose segments came late",
    )
    parser.add_argument("--quiet", action="store_true", help="no progress on standard error")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Analyse one day, and days before it that changed."""
    date = _date(args.date)
    register_plugins()
    strategies = settings.load(args.config, settings.parse_overrides(args.set)).leaf(
        StrategySettings
    )
    spark_settings = dict(_pair(text) for text in args.spark)
    try:
        from loadmanager.wiring.analysis import analyze
    except ImportError as error:
        raise ConfigError(
            f"the analysis needs PySpark and fsspec: pip install 'loadmanager[analysis]' ({error})"
        ) from None
    outcomes = analyze(
        date,
        history=_url(args.history),
        output=_url(args.output),
        cluster=args.cluster,
        strategies=strategies,
        master=args.master,
        spark_settings=spark_settings,
        late=not args.no_late,
        quiet=args.quiet,
    )
    if not any(outcome.date == date for outcome in outcomes):
        print(
            f"loadmanager analyze: nothing was recorded on {date} below {args.history}",
            file=sys.stderr,
        )
    for outcome in outcomes:
        print(
            f"{outcome.date}: {outcome.rows:,} records in {outcome.seconds:.1f} s, "
            f"{len(outcome.findings)} findings"
        )
        for finding in outcome.findings[:5]:
            print(f"  {finding.importance:3.0f}  {finding.title}")
        for problem in outcome.problems:
            print(f"  !    {problem}")
        print(f"  {outcome.report}")
    if any(outcome.failed for outcome in outcomes):
        return UNANSWERED
    if any(outcome.problems for outcome in outcomes):
        return PARTLY
    return 0 if any(outcome.date == date and outcome.rows for outcome in outcomes) else NO_RECORDS


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


def _pair(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator:
        raise BadInputError(f"--spark {text}: key=value is expected")
    return name, value
