"""`loadmanager config`: what a broker.conf says, without starting anything."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from loadmanager import settings
from loadmanager.core.errors import ConfigError
from loadmanager.wiring.plugins import register_plugins

EXAMPLES = """examples:
  loadmanager config check /etc/pulsar/broker.conf
  loadmanager config check broker.conf --set loadBalancerSheddingIntervalMinutes=0.5 --json
  loadmanager config template > broker.conf
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command's arguments."""
    parser = subparsers.add_parser(
        "config",
        help="check a broker.conf, or print one with every default",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    check = actions.add_parser(
        "check",
        help="what is set, unknown (nearest name), out of range or contradictory; exit status 2 "
        "if it cannot be used",
    )
    check.add_argument("file", type=Path, metavar="FILE")
    check.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="override a key; may be repeated",
    )
    check.add_argument("--json", action="store_true", help="print JSON")
    actions.add_parser(
        "template", help="print a broker.conf with every key, its default and a comment"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Check a file or print the template."""
    if args.action == "template":
        sys.stdout.write(settings.template())
        return 0
    problems: list[str] = []
    loaded = None
    try:
        register_plugins()
        loaded = settings.load(args.file, settings.parse_overrides(args.set))
        settings.check(loaded)
    except ConfigError as error:
        problems = str(error).split("; ")
    if args.json:
        print(json.dumps({"ok": not problems, "problems": problems, **_facts(loaded)}, indent=2))
        return 2 if problems else 0
    if loaded is None or problems:
        print(
            f"{args.file}: cannot be used",
            *(f"  {problem}" for problem in problems),
            sep="\n",
            file=sys.stderr,
        )
        return 2
    _print_facts(args.file, loaded)
    return 0


def _facts(loaded: settings.Settings | None) -> dict[str, object]:
    if loaded is None:
        return {}
    return {
        "set": dict(sorted(loaded.given.items())),
        "unknown": {item.name: item.nearest for item in loaded.unknown},
    }


def _print_facts(file: Path, loaded: settings.Settings) -> None:
    defaults = settings.load().runtime()
    changed = {
        name: text
        for name, text in sorted(loaded.given.items())
        if loaded.runtime()[name] != defaults[name]
    }
    print(
        f"{file}: can be used; {len(loaded.given)} keys set, {len(changed)} of them differ "
        "from the default"
    )
    for name, text in changed.items():
        print(f"  {name} = {text}   (default {defaults[name] or 'empty'})")
    if loaded.unknown:
        near = [item for item in loaded.unknown if item.nearest]
        print(
            f"unknown and ignored: {len(loaded.unknown)} keys: "
            f"{', '.join(item.name for item in loaded.unknown)}"
        )
        for item in near:
            print(f"  {item.name}: did you mean {item.nearest}?")
