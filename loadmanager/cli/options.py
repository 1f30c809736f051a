"""Help with examples, and options that several commands share."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click

from loadmanager.kit.system import garbage


class Command(click.Command):
    """A command whose help ends with its epilog as it is written, and is not cut in lists."""

    def get_short_help_str(self, limit: int = 45) -> str:
        """The first sentence of the help."""
        return super().get_short_help_str(max(limit, 200))

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the epilog."""
        if self.epilog:
            formatter.write(f"\n{self.epilog}")


class CommandGroup(Command, click.Group):
    """A command of commands."""

    command_class = Command
    group_class = type

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order of their definition."""
        return list(self.commands)


class Later(NamedTuple):
    """A command that is imported when it runs."""

    module: str
    about: str
    """What a list of commands says of it: the first sentence of its help."""
    name: str = "command"
    """Its name in the module."""


class LaterGroup(CommandGroup):
    """A command of commands that are imported when they run, because imports take time."""

    def __init__(self, name: str, later: Mapping[str, Later], **attributes: Any) -> None:
        super().__init__(name, **attributes)
        self.later = later
        for each, command in later.items():  # they stand for those that `get_command` imports
            self.add_command(click.Command(each, help=command.about))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command."""
        later = self.later.get(cmd_name)
        if later is None:
            return None
        with garbage.not_now():
            command: click.Command = getattr(importlib.import_module(later.module), later.name)
        command.name = cmd_name
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, later.about) for name, later in self.later.items()])


class Finite(click.FloatRange):
    """A range of numbers, without `nan` and infinity."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number."""
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is no number to work with.", param, ctx)
        return number


Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


class Named(click.Path):
    """A path or URL that is not empty: that would be the working folder."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path."""
        if value == "":
            self.fail("it is empty; the working folder is '.'", param, ctx)
        return super().convert(value, param, ctx)


FILE, URL = Named(path_type=Path), Named()


class SvgPath(click.Path):
    """A file for an SVG picture."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path; another kind of picture is refused, since SVG is what is written."""
        if not str(value).lower().endswith(".svg"):
            self.fail(f"{value}: pictures are SVG; name a file that ends in .svg", param, ctx)
        return super().convert(value, param, ctx)


def config(text: str = "broker.conf") -> Decorator:
    """--config and --set."""
    option = click.option("--config", type=FILE, metavar="FILE", help=text)
    return lambda function: option(overrides(function))


def _parsed(_ctx: click.Context, _option: click.Parameter, texts: Sequence[str]) -> dict[str, str]:
    from loadmanager.broker import settings

    return settings.KEYS.parse_overrides(list(texts))


overrides: Decorator = click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    callback=_parsed,
    help="override a key of broker.conf; may be repeated",
)


def host_and_port(_ctx: click.Context, _option: click.Parameter, text: str) -> tuple[str, int]:
    """The callback of an option that takes `host:port`."""
    host, _, port = text.rpartition(":")
    if not host or not (port.isascii() and port.isdecimal()) or int(port[:6]) > 65535:
        raise click.BadParameter(f"{text}: host:port is expected")
    return host.strip("[]"), int(port)


def tell_left_out() -> None:
    """Name the plug-ins that cannot be used, on standard error."""
    from loadmanager.leader.plugins import left_out

    for why in left_out().values():
        click.echo(f"left out: {why}", err=True)


log_format: Decorator = click.option(
    "--log-format",
    type=click.Choice(("console", "json")),
    help="default: console on a terminal, JSON otherwise",
)
