"""`loadmanager completion`: lines for a shell, with which it completes commands and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from loadmanager.cli.options import Command

EPILOG = """examples:
  loadmanager completion bash >> ~/.bashrc
  loadmanager completion zsh >> ~/.zshrc
  loadmanager completion fish > ~/.config/fish/completions/loadmanager.fish
"""


@click.command(cls=Command, epilog=EPILOG)
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
@click.pass_context
def command(ctx: click.Context, shell: str) -> int:
    """Print what makes a shell complete commands and options; bash needs version 4.4."""
    kind = get_completion_class(shell)
    assert kind is not None
    root = ctx.find_root().command
    made = kind(root, {}, "loadmanager", "_LOADMANAGER_COMPLETE")
    click.echo(made.source_template % made.source_vars())
    return 0
