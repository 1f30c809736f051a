"""argv → the function of one command.

Each command is a module with a click command named `command`, which returns the exit status.

Exit status: 0 done, 1 nothing was done, 2 the command line or a file is wrong.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from typing import Any

import click

from loadmanager import __version__
from loadmanager.cli.options import Later, LaterGroup
from loadmanager.kit.errors import BadInputError, ConfigError, OperationalError
from loadmanager.kit.system.first_signals import SERVICES
from loadmanager.kit.system.parent import stop_with_parent

HELP = """Run brokers that balance their load, with the concepts, names and formats of Apache
Pulsar; look at running clusters, and change them.

`loadmanager demo` shows what it does. `loadmanager standalone` runs a cluster on this machine;
`loadmanager admin status`, in another terminal, says how it is.
"""
COMMANDS = {
    "standalone": "Run a metadata store and several brokers on this machine.",
    "store": "Run a metadata store alone, for sharded services on this machine.",
    "demo": "Show a cluster that balances a skewed load, and say what to look at.",
    "broker": "Run one broker in the foreground.",
    "fleet": "Watch Pulsar clusters, say what to move and why, and move it when allowed to.",
    "initialize-cluster-metadata": "Make the first namespaces of a new cluster.",
    "config": "Check a broker.conf, or print one.",
    "admin": "Look at a running cluster and change it.",
    "doctor": "Say what is wrong with this host, its cluster and the settings, and what to do.",
    "decide": "Say what a strategy would do with recorded load reports, and why.",
    "replay": "Try strategies on the same days, and compare them.",
    "what-if": "Say what recorded days would have been with other brokers or other traffic.",
    "bill": "Say what each tenant used of the brokers in each month, and what that cost.",
    "tournament": "Try many settings on recorded days, rank them, and recommend what is clearly "
    "better.",
    "tokens": "Make and check keys and tokens.",
    "analyze": "Write the nightly report over the recorded history: in this process, or on Spark.",
    "completion": "Print what makes a shell complete commands and options; bash needs version 4.4.",
}
"""Modules of this package, in the order of `--help`, and what it says of each."""


UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)


class _Root(LaterGroup):
    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; wrong input and failed operations become a line on standard error."""
        try:
            return super().invoke(ctx)
        except (ConfigError, BadInputError, OperationalError) as error:
            click.echo(f"loadmanager {ctx.invoked_subcommand}: {error}", err=True)
            return 1 if isinstance(error, OperationalError) else 2


def build() -> click.Group:
    """The program."""
    root = _Root(
        "loadmanager",
        {
            name: Later(f"{__name__}.{name.replace('-', '_')}", about)
            for name, about in COMMANDS.items()
        },
        help=HELP,
        context_settings={
            "help_option_names": ["-h", "--help"],
            "max_content_width": 100,
            "show_default": True,
        },
    )
    return click.version_option(__version__, message="%(prog)s %(version)s")(root)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command, or print the help without one; returns the exit status."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    service = argv is None and arguments[:1] and arguments[0] in SERVICES
    if service and "--stop-with-parent" in arguments:  # before anything that may hang
        stop_with_parent()
    # A service may run without a standard output.
    if sys.stdout is None and arguments[:1] and arguments[0] not in SERVICES:
        return _unwritable("it is closed")
    root = build()
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
