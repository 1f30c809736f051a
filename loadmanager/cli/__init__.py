"""argv → the function of one command.

Each command is a module with `add_parser` and `run`; `run` returns the exit status.

Exit status: 0 done, 1 the operation failed, 2 bad input or usage.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence

from loadmanager import __doc__ as description
from loadmanager import __version__
from loadmanager.core.errors import BadInputError, ConfigError, OperationalError

COMMANDS = ("standalone", "broker", "config", "admin", "decide", "analyze")
"""Modules of this package, in the order of `--help`."""


def build_parser(commands: Sequence[str] = COMMANDS) -> argparse.ArgumentParser:
    """The parser of the given commands. Imports their modules only: imports take time."""
    parser = argparse.ArgumentParser(prog="loadmanager", description=description)
    parser.add_argument("--version", action="version", version=f"loadmanager {__version__}")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND")
    for name in commands:
        importlib.import_module(f"loadmanager.cli.{name}").add_parser(subparsers)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command, or print the help without one; returns the exit status.

    Wrong input and failed operations become one line on standard error.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    command = arguments[0] if arguments else ""
    parser = build_parser((command,) if command in COMMANDS else COMMANDS)
    args = parser.parse_args(arguments)
    if args.command is None:
        parser.print_help()
        return 0
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
        # The reader (head, less) closed the pipe. Keep the interpreter from flushing into it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return status
