"""Options that several commands have."""

from __future__ import annotations

import argparse
import textwrap
from pathlib import Path


def add_command(
    subparsers: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    text: str,
    examples: str = "",
    *,
    parents: tuple[argparse.ArgumentParser, ...] = (),
) -> argparse.ArgumentParser:
    """A command with a help text, and perhaps examples below its options."""
    return subparsers.add_parser(
        name,
        help=text,
        description=textwrap.fill(f"{text[0].upper()}{text[1:]}.", 80),
        epilog=examples,
        parents=parents,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def add_config(parser: argparse.ArgumentParser, text: str = "broker.conf") -> None:
    """--config and --set."""
    parser.add_argument("--config", type=Path, metavar="FILE", help=text)
    add_set(parser)


def add_set(parser: argparse.ArgumentParser) -> None:
    """--set."""
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="override a key of broker.conf; may be repeated",
    )


def add_log_format(parser: argparse.ArgumentParser) -> None:
    """--log-format."""
    parser.add_argument(
        "--log-format",
        choices=("console", "json"),
        help="default: console on a terminal, JSON otherwise",
    )
