"""`loadmanager tokens`: keys and JSON web tokens, as `pulsar tokens` makes them."""

from __future__ import annotations

import base64
import re
import secrets
import sys
from pathlib import Path

import click

from loadmanager.cli.bootstrap import bootstrap
from loadmanager.cli.options import CommandGroup
from loadmanager.engine.policies.permissions import check_role
from loadmanager.kit.errors import BadInputError, NotAuthenticatedError, OperationalError
from loadmanager.kit.private_files import open_private
from loadmanager.kit.security.settings import TokenSettings
from loadmanager.kit.security.tokens import (
    PUBLIC_ALGORITHMS,
    SECRET_ALGORITHMS,
    TokenVerifier,
    create_pair,
    create_secret,
    create_token,
    expiry,
    read_key,
)
from loadmanager.kit.system.clock import SystemClock

EXAMPLES = """examples:
  loadmanager tokens bootstrap /etc/loadmanager/secure broker-1.example.org broker-2.example.org
  loadmanager tokens create-key secret.key
  loadmanager tokens create --subject admin --secret-key file://$PWD/secret.key --expires 30d
  loadmanager tokens create-key private.key public.key --algorithm ES256
  loadmanager tokens create --subject app --private-key file://$PWD/private.key --algorithm ES256
  loadmanager tokens validate --secret-key file://$PWD/secret.key - < admin.token

Brokers need, in broker.conf: authenticationEnabled=true,
authenticationProviders=org.apache.pulsar.broker.authentication.AuthenticationProviderToken,
tokenSecretKey=file:///path (or tokenPublicKey), brokerClientAuthenticationPlugin and
brokerClientAuthenticationParameters (their own token), superUserRoles, authorizationEnabled=true.
"""
UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800, "y": 31_536_000}
TOKEN_CHARACTERS_MAX = 100_000
FILE = click.Path(path_type=Path)

command = CommandGroup("tokens", help="Make and check keys and tokens.", epilog=EXAMPLES)
command.add_command(bootstrap)


def _write(path: Path, content: bytes) -> None:
    """Write a new file that only its owner can read. Raises `OperationalError`."""
    try:
        with open_private(path, "xb") as file:
            file.write(content)
    except FileExistsError:
        raise OperationalError(f"{path} exists; delete it, or name another file") from None
    except OSError as error:
        raise OperationalError(f"{path} cannot be written: {error.strerror}") from None


@command.command("create-key")
@click.argument("file", type=FILE)
@click.argument("public", type=FILE, required=False)
@click.option("--algorithm", type=click.Choice(PUBLIC_ALGORITHMS), default="RS256")
@click.option("--base64", "as_text", is_flag=True, help="write text instead of bytes")
def create_key(file: Path, public: Path | None, algorithm: str, *, as_text: bool) -> int:
    """Make a secret key, or with PUBLIC a private and a public one."""
    if public is None:
        secret = create_secret()
        _write(file, base64.b64encode(secret) if as_text else secret)
        click.echo(f"{file}: a secret key; brokers need it as tokenSecretKey")
        return 0
    if public.exists():
        raise OperationalError(f"{public} exists; delete it, or name another file")
    pair = create_pair(algorithm)
    for path, key in zip((file, public), pair, strict=True):
        _write(path, base64.b64encode(key) if as_text else key)
    click.echo(f"{file}: keep it to yourself; {public}: brokers need it as tokenPublicKey")
    return 0


def _seconds(text: str) -> float:
    matched = re.fullmatch(r"([1-9][0-9]{0,8})([smhdwy])", text)
    if matched is None:
        raise click.BadParameter(f"{text}: a number and s, m, h, d, w or y is expected, as 30d")
    return int(matched[1]) * UNITS_S[matched[2]]


@command.command()
@click.option("--subject", required=True, metavar="ROLE", help="whose token this is")
@click.option("--secret-key", metavar="KEY", help="file:///path, or data:;base64,…")
@click.option("--private-key", metavar="KEY", help="the same, for a pair of keys")
@click.option("--algorithm", type=click.Choice((*SECRET_ALGORITHMS, *PUBLIC_ALGORITHMS)))
@click.option(
    "--expires", type=_seconds, metavar="TIME", help="from now on, as 30d (default never)"
)
def create(
    subject: str,
    secret_key: str | None,
    private_key: str | None,
    *,
    algorithm: str | None,
    expires: float | None,
) -> int:
    """Make a token, and print it.

    It has an id of its own, by which it can be refused: `tokens validate` shows it, and `admin
    tokens refuse` takes it.
    """
    secret = _is_first_of_two(secret_key, private_key, "--secret-key", "--private-key")
    key = read_key(secret_key or private_key or "", "the key")
    now_s = SystemClock().now_ms() / 1000
    token = create_token(
        check_role(subject),
        key,
        algorithm=algorithm or ("HS256" if secret else "RS256"),
        expires_s=None if expires is None else now_s + expires,
        token_id=secrets.token_hex(16),
    )
    click.echo(token)
    return 0


@command.command()
@click.argument("token")
@click.option("--secret-key", metavar="KEY", help="file:///path, or data:;base64,…")
@click.option("--public-key", metavar="KEY", help="the same, for a pair of keys")
@click.option("--algorithm", type=click.Choice(PUBLIC_ALGORITHMS), default="RS256")
def validate(token: str, secret_key: str | None, public_key: str | None, algorithm: str) -> int:
    """Check a token as a broker does; prints its role, until when it counts, and its id.

    TOKEN may be -, to read it from standard input: arguments are shown to all who list processes.
    """
    if token == "-":
        token = sys.stdin.read(TOKEN_CHARACTERS_MAX).strip()
    _is_first_of_two(secret_key, public_key, "--secret-key", "--public-key")
    settings = TokenSettings(
        secret_key=secret_key or "", public_key=public_key or "", public_algorithm=algorithm
    )
    try:
        identity = TokenVerifier(settings).verify(token)
    except NotAuthenticatedError as error:
        raise OperationalError(str(error)) from None
    click.echo(f"role {identity.role}, expires {expiry(identity)}, id {identity.token_id}")
    return 0


def _is_first_of_two(first: str | None, second: str | None, *names: str) -> bool:
    """True if the first is given, False if the second is. Raises `BadInputError` unless exactly one
    is.
    """
    if (first is None) == (second is None):
        raise BadInputError(f"one of {names[0]} and {names[1]} is needed")
    return first is not None
