"""argv → one function.

Each command is a module with `add_parser` and `run`; run returns the exit status.

Exit status: 0 done, 1 the operation failed, 2 bad input or usage.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence

from loadmanager.core.errors import BadInputError, ConfigError, OperationalError

COMMANDS = ("standalone", "broker", "config", "admin", "decide", "analyze")
"""Modules of this package, in the order of `--help`."""

DESCRIPTION = "A live load manager with Apache Pulsar's concepts, names and wire formats."


def build_parser(commands: Sequence[str] = COMMANDS) -> argparse.ArgumentParser:
    """The parser with the given commands; each module is imported only then, so that one command
    does not pay for the others.
    """
    parser = argparse.ArgumentParser(prog="loadmanager", description=DESCRIPTION)
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name in commands:
        importlib.import_module(f"loadmanager.cli.{name}").add_parser(subparsers)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; errors that are the user's or the world's become one line on standard error
    and an exit status.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    named = arguments[0] if arguments else ""
    args = build_parser((named,) if named in COMMANDS else COMMANDS).parse_args(arguments)
    try:
        status: int = args.run(args)
    except (ConfigError, BadInputError) as error:
        print(f"loadmanager {args.command}: {error}", file=sys.stderr)
        return 2
    except OperationalError as error:
        print(f"loadmanager {args.command}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader (head, less) went away: not an error of ours. Keep the interpreter from
        # flushing into the closed pipe.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return status
