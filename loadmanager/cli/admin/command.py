"""The frame of every `loadmanager admin …` command: its options, its client, its output."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import click

from loadmanager.cli.admin import contexts
from loadmanager.cli.admin.client import AdminClient, AnsweredError, TlsFiles
from loadmanager.cli.admin.now_only import asks_for_a_moment, refusal
from loadmanager.cli.options import Command, CommandGroup
from loadmanager.kit.errors import OperationalError
from loadmanager.kit.text import printable

URL = "http://localhost:8080"
ELSEWHERE = (
    "--json prints JSON. --url, --token, --timeout and --tls-… say where and who: see "
    "`loadmanager admin --help`."
)
TIMEOUT_S = 60.0
NOT_FOUND = 404


@dataclass(frozen=True, slots=True)
class Output:
    """The text that a command prints, and its exit status."""

    data: Any
    """Printed with --json."""
    shown: Any
    """Printed without --json: a line, a list of lines, a table, or a tuple of these."""
    status: int = 0
    missing: dict[str, str] = field(default_factory=dict)
    """Broker → why it did not answer: what it would have said is left out."""


def done(text: str, **data: Any) -> Output:
    """The output of a command that did something."""
    return Output({"done": text, **data}, text)


def pair(text: str) -> tuple[str, str]:
    """The key and the value of `--set KEY=VALUE`. Raises `click.UsageError`."""
    name, separator, value = text.partition("=")
    if not separator or not name.strip():
        raise click.UsageError(f"--set {text}: KEY=VALUE is expected")
    return name.strip(), value.strip()


def unchanged(text: str, **data: Any) -> Output:
    """The output of a command that did nothing, because it is so already."""
    return Output({"unchanged": text, **data}, f"{text}: nothing was done", status=1)


def listed(
    data: Any, headers: Sequence[str], rows: Sequence[Sequence[Any]], nothing: str
) -> Output:
    """A table of rows, or a text that says that there are none."""
    from loadmanager.cli.terminal import table

    return Output(data, table(headers, rows) if rows else nothing)


def _seconds(text: str | float) -> float:
    with contextlib.suppress(ValueError):
        if 0 < float(text) < float("inf"):
            return float(text)
    raise click.BadParameter(f"{text}: more than 0 seconds are expected")


def _keep(ctx: click.Context, option: click.Parameter, value: Any) -> None:
    """Remember an option for the command: the last place where it stands counts."""
    if value:
        ctx.meta[f"loadmanager.{option.name}"] = value


class _WithOptions(Command):
    """Takes the options that may stand before or after the subject, or after the action."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        *own, last = super().get_params(ctx)  # the last one is --help
        return [*own, *_OPTIONS, last]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the command's own options; those of the connection only for `admin` itself."""
        hidden = _OPTIONS if ctx.parent is not None and ctx.parent.parent is not None else ()
        records = [
            record
            for param in self.get_params(ctx)
            if param not in hidden and (record := param.get_help_record(ctx)) is not None
        ]
        with formatter.section("Options"):
            formatter.write_dl(records)
        if hidden:
            formatter.write_paragraph()
            formatter.write_text(ELSEWHERE)
        if isinstance(self, click.Group):
            self.format_commands(ctx, formatter)


def _token(ctx: click.Context, option: click.Parameter, value: str | None) -> None:
    """A token, or the file with one: `file:///path`."""
    if value and value.startswith("file:"):
        path = Path(value.removeprefix("file:").removeprefix("//"))
        try:
            value = path.read_text().strip()
        except UnicodeDecodeError:
            raise click.BadParameter(f"{path} has no token: it is not text") from None
        except OSError as error:
            raise click.BadParameter(f"{path} cannot be read: {error.strerror}") from None
        if not value:
            raise click.BadParameter(f"{path} is empty")
    if value and (not value.isascii() or not value.isprintable()):
        raise click.BadParameter("a token is one line of printable ASCII characters")
    if value and "/" in value and Path(value).is_file():
        raise click.BadParameter("this is the name of a file: file:///path reads the token from it")
    _keep(ctx, option, value)


CREDENTIALS: tuple[click.Parameter, ...] = (
    click.Option(
        ["--token"],
        expose_value=False,
        envvar="LOADMANAGER_TOKEN",
        callback=_token,
        metavar="TOKEN",
        help="who you are: file:///path of a token, or a token, which others on this machine can "
        "then see among the processes; LOADMANAGER_TOKEN keeps it from them",
    ),
    click.Option(
        ["--tls-trust-certs"],
        expose_value=False,
        envvar="LOADMANAGER_TLS_TRUST_CERTS",
        callback=_keep,
        metavar="FILE",
        help="the authorities that signed the brokers' certificates (PEM; default: as `admin use` "
        "says, else those that the system trusts)",
    ),
    click.Option(
        ["--tls-cert"],
        expose_value=False,
        envvar="LOADMANAGER_TLS_CERT",
        callback=_keep,
        metavar="FILE",
        help="your certificate, for brokers that ask for one (PEM)",
    ),
    click.Option(
        ["--tls-key"],
        expose_value=False,
        envvar="LOADMANAGER_TLS_KEY",
        callback=_keep,
        metavar="FILE",
        help="its private key, if it is in a file of its own (PEM)",
    ),
)
"""Who asks, and whom it trusts: `client` reads them."""
_OPTIONS: tuple[click.Parameter, ...] = (
    click.Option(
        ["--url"],
        expose_value=False,
        callback=_keep,
        help="HTTP address of any broker, or of several with commas, of which the first that "
        "answers is asked; or unix:/path of a daemon's socket (default: as `admin use` says, else "
        f"{URL})",
    ),
    *CREDENTIALS,
    click.Option(["--json"], is_flag=True, expose_value=False, callback=_keep, help="print JSON"),
    click.Option(
        ["--timeout"],
        type=_seconds,
        metavar="S",
        expose_value=False,
        callback=_keep,
        help=f"seconds to wait for an answer (default {TIMEOUT_S:g})",
    ),
)


def given_url() -> str | None:
    """The value of --url in the running command."""
    return _given("url") or None


def given_trust() -> str:
    """The value of --tls-trust-certs in the running command; empty: not given."""
    return _given("tls_trust_certs")


def _given(name: str) -> str:
    text: str = click.get_current_context().meta.get(f"loadmanager.{name}", "")
    return text


def given_token() -> str:
    """The token of the running command; empty: none."""
    return _given("token")


def client(url: str, *, timeout_s: float, trust: str, anonymous: bool = False) -> AdminClient:
    """A client with the `CREDENTIALS` of the running command; `trust` stands in for a missing one.
    `anonymous`: it does not say who it is.

    Raises `BadInputError` as `AdminClient` does.
    """
    files = TlsFiles(given_trust() or trust)
    if not anonymous:
        files = TlsFiles(files.trust, _given("tls_cert"), _given("tls_key"))
    token = "" if anonymous else given_token()
    return AdminClient(url, timeout_s=timeout_s, token=token, tls=files)


def _first_that_answers(admins: Sequence[AdminClient]) -> AdminClient:
    """The first client whose broker gives a sign, or the last; of one, none is asked for."""
    *others, last = admins
    for admin in others:
        if admin.answers():
            return admin
        click.echo(f"loadmanager admin: {admin.url} does not answer: the next is asked", err=True)
    return last


class AdminCommand(_WithOptions):
    """Its function takes an `AdminClient` and the arguments, and returns an `Output`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Say of a command that has no --at why that is so."""
        if asks_for_a_moment(args) and not any("--at" in param.opts for param in self.params):
            raise click.UsageError(refusal(ctx.command_path.partition(" admin ")[2]), ctx)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> int:
        """Send the command's requests, and print its output."""
        from loadmanager.cli.terminal import show

        assert self.callback is not None
        since, until = ctx.params.get("since"), ctx.params.get("until")
        if since is not None and until is not None and since > until:
            raise click.UsageError("--since is after --until: that is no time", ctx)
        stored = contexts.load()
        ask = partial(
            client,
            timeout_s=ctx.meta.get("loadmanager.timeout", TIMEOUT_S),
            trust=stored.trust_of(given_url()),
        )
        admin = _first_that_answers(
            [ask(url) for url in (given_url() or stored.url or URL).split(",")]
        )
        try:
            output: Output = ctx.invoke(self.callback, admin, **ctx.params)
        except OperationalError as error:  # its text may have names that others chose
            _say_lacking(admin)
            text = str(error)
            if isinstance(error, AnsweredError) and error.status == NOT_FOUND:
                from loadmanager.cli.admin.nearest import hints_of

                text += hints_of(admin, text)
            raise OperationalError(printable(text)) from None
        if "loadmanager.json" in ctx.meta:
            click.echo(json.dumps(output.data, indent=2))
        else:
            show(*(output.shown if isinstance(output.shown, tuple) else [output.shown]))
        lacks = _say_lacking(admin, output.missing)
        return output.status or (1 if lacks else 0)


def _say_lacking(admin: AdminClient, missing: Mapping[str, str] | None = None) -> bool:
    """Say who did not answer, and what archives that were asked lack; returns whether something is
    missing now.
    """
    left_out = {**admin.lacking.unread, **(missing or {})}
    for broker, reason in left_out.items():
        click.echo(f"loadmanager admin: {printable(f'{broker} is left out: {reason}')}", err=True)
    for text in admin.lacking.times:
        click.echo(f"loadmanager admin: not all is here: {printable(text)}", err=True)
    return bool(left_out) or any(admin.lacking.times.values())


class AdminGroup(_WithOptions, CommandGroup):
    """A subject, with its actions."""

    command_class = AdminCommand
    group_class = type
