"""argv → the function of one command.

Each command is a module with a click command named `command`, which returns the exit status.

Exit status: 0 done, 1 nothing was done, 2 the command line or a file is wrong.
"""

from __future__ import annotations

import errno
import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any

import click

from loadmanager import __doc__ as description
from loadmanager import __version__
from loadmanager.cli.options import CommandGroup
from loadmanager.kit.errors import BadInputError, ConfigError, OperationalError
from loadmanager.kit.system.ending import end_at_once
from loadmanager.kit.system.parent import stop_with_parent

COMMANDS = (
    "standalone",
    "demo",
    "broker",
    "fleet",
    "config",
    "admin",
    "doctor",
    "decide",
    "replay",
    "tournament",
    "tokens",
    "analyze",
)
"""Modules of this package, in the order of `--help`."""


SERVICES = ("standalone", "broker", "fleet")
"""They may run without a standard output."""
UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)


class _Root(CommandGroup):
    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; wrong input and failed operations become a line on standard error."""
        try:
            return super().invoke(ctx)
        except (ConfigError, BadInputError, OperationalError) as error:
            click.echo(f"loadmanager {ctx.invoked_subcommand}: {error}", err=True)
            return 1 if isinstance(error, OperationalError) else 2


def build(commands: Sequence[str] = COMMANDS) -> click.Group:
    """The program with the given commands. Imports their modules only: imports take time."""
    root = _Root(
        "loadmanager",
        help=description,
        context_settings={
            "help_option_names": ["-h", "--help"],
            "max_content_width": 100,
            "show_default": True,
        },
    )
    for name in commands:
        root.add_command(importlib.import_module(f"loadmanager.cli.{name}").command, name)
    return click.version_option(__version__, message="%(prog)s %(version)s")(root)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command, or print the help without one; returns the exit status."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if argv is None and arguments[:1] and arguments[0] in SERVICES:
        end_at_once()
        if "--stop-with-parent" in arguments:  # before anything that may hang
            stop_with_parent()
    if sys.stdout is None and arguments[:1] and arguments[0] not in SERVICES:
        return _unwritable("it is closed")
    root = build(arguments[:1] if arguments[:1] and arguments[0] in COMMANDS else COMMANDS)
    try:
        status: int = root.main(
            arguments or ["--help"], prog_name="loadmanager", standalone_mode=False
        )
        if sys.stdout is not None:
            sys.stdout.flush()
        return status
    except OSError as error:
        if error.filename is not None or error.errno not in UNWRITABLE:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what is left of the output goes nowhere
        return _unwritable(os.strerror(error.errno))
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.Abort:  # Ctrl-C
        return 130


def _unwritable(reason: str) -> int:
    click.echo(f"loadmanager: the standard output cannot be written: {reason}", err=True)
    return 1
