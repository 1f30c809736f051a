"""`loadmanager config`: check a broker.conf without starting a broker, or print a new one."""

from __future__ import annotations

import json
import sys
import textwrap
from pathlib import Path
from typing import TextIO

import click

from loadmanager.broker import settings
from loadmanager.cli.doctor import configuration
from loadmanager.cli.doctor.findings import ordered
from loadmanager.cli.options import FILE, CommandGroup, overrides, tell_left_out
from loadmanager.kit.errors import ConfigError
from loadmanager.kit.settings import HIDDEN, Settings
from loadmanager.leader import plugins

EXAMPLES = """examples:
  loadmanager config check /etc/pulsar/broker.conf
  loadmanager config check broker.conf --set loadBalancerSheddingIntervalMinutes=0.5 --json
  loadmanager config template > broker.conf
"""


command = CommandGroup("config", help="Check a broker.conf, or print one.", epilog=EXAMPLES)


@command.command()
def template() -> int:
    """Print a broker.conf: every key with a comment and its default."""
    sys.stdout.write(settings.KEYS.template())
    return 0


@command.command()
@click.argument("file", type=FILE)
@overrides
@click.option("--json", "as_json", is_flag=True, help="print JSON")
def check(file: Path, overrides: dict[str, str], as_json: bool) -> int:
    """Print which keys are set, ignored, misspelt, out of range or contradictory.

    Also what `loadmanager doctor` says of it. Exit status 2 if a broker would refuse the file.
    """
    try:
        loaded, problems = settings.examine(file, overrides)
        texts = [problem.text for problem in problems]
    except ConfigError as error:
        loaded, texts = settings.KEYS.load(), [str(error)]
    if as_json:
        document = {
            "ok": not texts,
            "problems": texts,
            "set": loaded.given_shown(),
            "unknown": {key.name: key.nearest for key in loaded.unknown if not key.of_others},
            "plugInsLeftOut": list(plugins.left_out().values()),
            "withoutEffect": loaded.without_effect(),
            "ignored": sorted(key.name for key in loaded.unknown if key.of_others),
        }
        print(json.dumps(document, indent=2))
    else:
        _print_problems(file, texts)
        if texts:
            tell_left_out()
        if not texts:
            _print_changes(file, loaded)
            _print_advice(loaded)
        _print_ignored(loaded, sys.stderr if texts else sys.stdout)
    return 2 if texts else 0


def _print_problems(file: Path, problems: list[str]) -> None:
    if problems:
        print(f"{file}: cannot be used", file=sys.stderr)
        for problem in problems:
            print(f"  {problem}", file=sys.stderr)


def _print_changes(file: Path, loaded: Settings) -> None:
    defaults, values = settings.KEYS.load().runtime(), loaded.runtime()
    changed = [
        name
        for name in sorted(loaded.given.keys() - loaded.without_effect().keys())
        if values[name] != defaults[name]
    ]
    print(
        f"{file}: can be used; keys set: {len(loaded.given)}, different from the default: "
        f"{len(changed)}"
    )
    for name in changed:
        shown = values[name] if values[name] == HIDDEN else loaded.given[name]
        print(f"  {name} = {shown}   (default {defaults[name] or 'empty'})")


def _print_advice(loaded: Settings) -> None:
    """Print the doctor's findings about settings with which a broker starts, but for keys listed
    below.
    """
    listed = {key.name for key in loaded.unknown} | loaded.without_effect().keys()
    for finding in ordered(configuration.check(loaded)):
        if finding.advice and finding.subject not in listed:
            print(f"{finding.level.value}: {finding.subject}: {finding.text}; {finding.advice}")


def _print_ignored(loaded: Settings, file: TextIO) -> None:
    unknown = [key for key in loaded.unknown if not key.of_others]
    ignored = sorted(key.name for key in loaded.unknown if key.of_others)
    without_effect = loaded.without_effect()
    if unknown:
        print(f"unknown, neither a key of this broker nor of Pulsar: {len(unknown)}", file=file)
    for key in unknown:
        hint = f": did you mean {key.nearest}?" if key.nearest else ""
        print(f"  {key.name}{hint}", file=file)
    if without_effect:
        print(f"accepted, without effect: {len(without_effect)}", file=file)
    for name, reason in without_effect.items():
        print(f"  {name}: {reason}", file=file)
    if ignored:
        print(f"ignored, because only Pulsar has them: {len(ignored)}", file=file)
        print(
            textwrap.fill(", ".join(ignored), 98, initial_indent="  ", subsequent_indent="  "),
            file=file,
        )
