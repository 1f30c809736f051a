"""`loadmanager decide`: recorded load reports in, decisions with their reasons out."""

from __future__ import annotations

import argparse
import random
import sys

import msgspec

from loadmanager import settings
from loadmanager.cli.options import add_command, add_config
from loadmanager.core.errors import BadInputError, ConfigError
from loadmanager.core.strategies import registry
from loadmanager.core.strategies.plan_document import plan_document
from loadmanager.core.strategies.settings import StrategySettings
from loadmanager.core.strategies.splitting.settings import SplitSettings
from loadmanager.simulator.deciding import Deciding
from loadmanager.simulator.explaining import explain
from loadmanager.simulator.lines import decode_line
from loadmanager.wiring.plugins import register_plugins

EXAMPLES = """examples:
  loadmanager decide < cycles.jsonl > decisions.jsonl
  loadmanager decide --set loadBalancerLoadSheddingStrategy=AvgShedder --explain < cycles.jsonl
  curl -s http://localhost:8080/admin/v2/broker-stats/load-report |
    jq -c '{now: .lastUpdate, brokers: {(.brokerId): .}}' | loadmanager decide

One JSON object a line in, one a line out. Lines are consecutive cycles of one leader.
A malformed line ends the run with status 2.
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command's arguments."""
    parser = add_command(
        subparsers,
        "decide",
        "what a strategy would do with recorded load reports, and why",
        EXAMPLES,
    )
    add_config(parser)
    parser.add_argument("--seed", type=int, default=0, help="fixes every random choice (default 0)")
    parser.add_argument(
        "--explain",
        action="store_true",
        help="for a person: brokers as bars before and after, and the numbers",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Decide line by line."""
    register_plugins()
    base = settings.load(args.config, settings.parse_overrides(args.set))
    deciding = Deciding(random.Random(args.seed))  # noqa: S311 - reproducible, not secret
    sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]  # question marks on a terminal without these characters
    loaded = base
    _warn("settings", base.unknown)
    checked = _checked(base)
    for number, raw in enumerate(sys.stdin.buffer, start=1):
        if not raw.strip():
            continue
        try:
            line = decode_line(raw)
            if line.config:
                before = loaded.unknown
                loaded = loaded.with_overrides(
                    {key: settings.spell(value) for key, value in line.config.items()}
                )
                _warn(f"line {number}", loaded.unknown[len(before) :])
            if line.failure_domains and "failureDomainsEnabled" not in loaded.given:
                # Failure domains in a line count, unless a setting says otherwise.
                loaded = loaded.with_overrides({"failureDomainsEnabled": "true"})
            checked = checked if loaded is checked else _checked(loaded)
            document = plan_document(
                deciding.decide(line, loaded.leaf(StrategySettings), loaded.leaf(SplitSettings))
            )
        except (BadInputError, ConfigError) as error:
            sys.stdout.flush()
            print(f"loadmanager decide: line {number}: {error}", file=sys.stderr)
            return 2
        if args.explain:
            sys.stdout.write(explain(number, line, document))
        else:
            sys.stdout.buffer.write(msgspec.json.encode({"now": line.now, **document}) + b"\n")
            sys.stdout.buffer.flush()
    return 0


def _checked(loaded: settings.Settings) -> settings.Settings:
    """The settings; raises `ConfigError` if their strategies are unknown or do not go together."""
    strategies = loaded.leaf(StrategySettings)
    registry.check(strategies.shedder, strategies.placement)
    return loaded


def _warn(where: str, unknown: tuple[settings.Unknown, ...]) -> None:
    if unknown:
        print(
            f"loadmanager decide: {where}: unknown keys are ignored: "
            f"{settings.unknown_text(unknown)}",
            file=sys.stderr,
        )
