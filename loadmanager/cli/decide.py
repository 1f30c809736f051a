"""`loadmanager decide`: recorded load reports in, decisions with their reasons out."""

from __future__ import annotations

import random
import sys
from pathlib import Path
from textwrap import fill
from typing import BinaryIO

import click
import msgspec

from loadmanager.broker import settings
from loadmanager.cli.options import Command, config, tell_left_out
from loadmanager.engine.strategies.plan_document import PlanShown
from loadmanager.engine.strategies.splitting.settings import SplitSettings
from loadmanager.kit.errors import BadInputError, ConfigError
from loadmanager.kit.model import encoded
from loadmanager.kit.settings import Unknown, spell, unknown_text
from loadmanager.kit.text import printable
from loadmanager.lab.deciding import Deciding
from loadmanager.lab.explaining import explain as explained
from loadmanager.lab.lines import LINE_KEYS, decode_line, unknown_keys
from loadmanager.leader.strategy_keys import strategies_of

EXAMPLES = f"""examples:
  loadmanager decide cycles.jsonl > decisions.jsonl
  loadmanager decide --set loadBalancerLoadSheddingStrategy=AvgShedder --explain cycles.jsonl
  curl -s http://localhost:8080/admin/v2/broker-stats/load-report |
    jq -c '{{now: .lastUpdate, brokers: {{(.brokerId): .}}}}' | loadmanager decide

One JSON object a line in, one a line out. Lines are consecutive cycles of one leader.
A malformed line ends the run with status 2. The keys of a line, of which it needs
the first; any other is named once on standard error, and ignored:
{fill(", ".join(LINE_KEYS), 80, initial_indent="  ", subsequent_indent="  ")}
"""


@click.command(cls=Command, epilog=EXAMPLES)
@click.argument("file", type=click.File("rb"), default="-")
@config()
@click.option("--seed", default=0, help="fixes every random choice")
@click.option(
    "--explain",
    is_flag=True,
    help="for a person: brokers as bars before and after, and the numbers",
)
def command(
    file: BinaryIO, config: Path | None, overrides: dict[str, str], seed: int, explain: bool
) -> int:
    """Say what a strategy would do with recorded load reports, and why.

    Reads FILE, or standard input without one.
    """
    base = settings.KEYS.load(config, overrides)
    tell_left_out()
    deciding = Deciding(random.Random(seed))  # noqa: S311 - reproducible, not secret
    sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]  # question marks on a terminal without these characters
    loaded, warned = base, set[str]()
    _warn("settings", base.unknown)
    strategies_of(base)  # says what is wrong before the first line comes
    if file.isatty():
        click.echo("one JSON object a line, Ctrl-D ends; --help has examples", err=True)
    decided = False
    for number, raw in enumerate(file, start=1):
        if not raw.strip():
            continue
        decided = True
        try:
            line = decode_line(raw)
            unknown = [key for key in unknown_keys(raw) if key not in warned]
            if unknown:
                warned.update(unknown)
                _say(number, "not of a line, and ignored", unknown)
            if line.config:
                before = loaded.unknown
                loaded = loaded.with_overrides(
                    {key: spell(value) for key, value in line.config.items()}
                ).with_overrides(overrides)
                _warn(f"line {number}", loaded.unknown[len(before) :])
            if line.failure_domains and "failureDomainsEnabled" not in loaded.given:
                # Failure domains in a line count, unless a setting says otherwise.
                loaded = loaded.with_overrides({"failureDomainsEnabled": "true"})
            strategies = strategies_of(loaded)
            plan = deciding.decide(line, strategies, loaded.leaf(SplitSettings))
            shown = PlanShown.of(plan)
        except (BadInputError, ConfigError) as error:
            sys.stdout.flush()
            print(f"loadmanager decide: line {number}: {error}{_hint(raw)}", file=sys.stderr)
            return 2
        if explain:
            text = explained(number, line, shown, strategies.weights)
            sys.stdout.write("\n".join(map(printable, text.split("\n"))))
        else:
            sys.stdout.buffer.write(
                encoded({"now": line.now, **msgspec.structs.asdict(shown)}) + b"\n"
            )
            sys.stdout.buffer.flush()
    if not decided:
        print("loadmanager decide: there was no line to decide", file=sys.stderr)
    return 0


def _say(number: int, what: str, keys: list[str]) -> None:
    names = ", ".join(printable(key[:80]) for key in keys[:10])
    others = f" and {len(keys) - 10} others" if len(keys) > 10 else ""
    print(f"loadmanager decide: line {number}: {what}: {names}{others}", file=sys.stderr)


def _hint(raw: bytes) -> str:
    """Advice for a document that is printed on several lines; empty for other lines."""
    if raw.strip() not in (b"{", b"["):
        return ""
    return "; one JSON object a line is expected: `jq -c .` puts each document on one line"


def _warn(where: str, unknown: tuple[Unknown, ...]) -> None:
    if unknown:
        print(
            f"loadmanager decide: {where}: unknown keys are ignored: {unknown_text(unknown)}",
            file=sys.stderr,
        )
