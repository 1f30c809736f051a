"""`loadmanager tokens bootstrap`: all that a secured cluster needs, made at once."""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import re
import secrets
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import click

from loadmanager.cli import credentials
from loadmanager.cli.credentials import (
    ALGORITHM,
    BROKERS,
    MONITORING,
    OPERATORS,
    OWN,
    WantedCredentials,
    content_of,
)
from loadmanager.kit.errors import BadInputError, OperationalError
from loadmanager.kit.private_files import FILE_MODE, make_folder, open_private
from loadmanager.kit.security.authority import Authority, check_host
from loadmanager.kit.security.tokens import create_pair, create_token, public_key_of
from loadmanager.kit.system.clock import SystemClock

DAYS_MAX = 3650
ROLE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@=+-]{0,99}")
"""A role that can name a file; `tokens create` makes tokens for others."""
RESTORE = "bring both back from one backup, or make all in a folder that is not there yet"
SETTINGS = """\
# Who comes must prove who he is, over TLS; roles may do what they are permitted to do.
authenticationEnabled=true
authenticationProviders=org.apache.pulsar.broker.authentication.AuthenticationProviderToken
authorizationEnabled=true
superUserRoles=broker,admin
authenticateMetricsEndpoint=true
tokenPublicKey=file://{at}/public.key
tokenPublicAlg=ES256
brokerClientAuthenticationPlugin=org.apache.pulsar.client.impl.auth.AuthenticationToken
brokerClientAuthenticationParameters=file://{at}/broker.token
# The numbers of the ports stay; nothing is served without TLS.
brokerServicePort=
webServicePort=
brokerServicePortTls=6650
webServicePortTls=8080
tlsCertificateFilePath={at}/broker.pem
tlsKeyFilePath={at}/broker.key
brokerClientTlsEnabled=true
brokerClientTrustCertsFilePath={at}/ca.pem
"""
ZOOKEEPER = """\
# metadataStoreUrl has the servers' port for TLS (secureClientPort).
loadManagerZooKeeperTlsEnabled=true
loadManagerZooKeeperTlsTrustCertsFilePath={at}/ca.pem
loadManagerZooKeeperTlsCertificateFilePath={at}/broker.pem
loadManagerZooKeeperTlsKeyFilePath={at}/broker.key
"""


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.argument("names", nargs=-1, metavar="[NAME...]")
@click.option("--role", "roles", multiple=True, help="a client's role; repeatable (default: app)")
@click.option(
    "--zookeeper", multiple=True, metavar="NAME", help="a server of ZooKeeper, for TLS; repeatable"
)
@click.option(
    "--days",
    type=click.IntRange(1, DAYS_MAX),
    help=f"until certificates and tokens end (default: {credentials.DAYS}, or as before)",
)
@click.option("--at", metavar="PATH", help="where brokers find FOLDER/broker, if not there")
@click.option(
    "--renew",
    is_flag=True,
    help="make all in FOLDER again but the authority and its keys; names, roles and servers that "
    "are given come in addition",
)
def bootstrap(
    folder: Path,
    names: tuple[str, ...],
    *,
    roles: tuple[str, ...],
    zookeeper: tuple[str, ...],
    days: int | None,
    at: str | None,
    renew: bool,
) -> int:
    """Make all that a secured cluster needs, unless it is there.

    NAME: each name or address by which a broker is reached; *.example.org stands for many.

    --renew needs no NAME: the files say for whom they were made. Remove a role's token first, and
    it gets none; remove broker.pem or zookeeper.pem, and the new one has the given names only
    (without both, give --days, too).

    \b
    FOLDER/authority   ca.key makes certificates and private.key tokens, for anybody:
                       keep both off the brokers. A token for each role.
    FOLDER/broker      what brokers read; append secure.conf to their broker.conf
    FOLDER/monitoring  for Prometheus: whom to trust, and a token for /metrics alone
    FOLDER/zookeeper   with --zookeeper: what its servers read
    """
    folder = folder.absolute()
    last = folder / "broker" / "broker.token"
    for role in roles:
        _check_role(role)
    for name in (*names, *zookeeper):
        check_host(name)
    _check_place("--at" if at else "FOLDER", at or str(folder))
    try:
        credentials.check_folders(folder)
        if last.exists() and not renew:
            click.echo(
                f"{last} is there: nothing was changed; --renew makes all but the authority again, "
                "and what is new"
            )
            return 0
        if not (names or renew):
            raise click.UsageError("Missing argument 'NAME': by which name is a broker reached?")
        credentials.check_keys(folder / "authority", renew=renew)
        if doubt := credentials.doubtful_ancestor(folder):
            click.echo(f"warning: {doubt}: others may put another {folder} in its place", err=True)
        with credentials.alone_in(folder):
            if last.exists() and not renew:
                raise OperationalError(f"{folder}: another run has made all meanwhile")
            credentials.check_keys(folder / "authority", renew=renew)
            now = dt.datetime.fromtimestamp(SystemClock().now_ms() / 1000, dt.UTC)
            keys = _keys(folder / "authority", now)
            if renew:
                wanted = credentials.with_earlier(folder, names, zookeeper, roles, days=days, at=at)
            else:
                days, at = days or credentials.DAYS, at or str(last.parent)
                wanted = WantedCredentials(folder, names, zookeeper, roles or ("app",), days, at)
            _make(wanted, keys, now)
    except OSError as error:
        raise OperationalError(f"{error.filename or folder}: {error.strerror}") from None
    _tell(wanted)
    return 0


def _check_place(name: str, path: str) -> None:
    """It is written into secure.conf."""
    if not path.isprintable() or "\\" in path:
        raise BadInputError(
            f"{name} {path!r}: secure.conf names it, so that it has no control characters and no "
            "backslashes"
        )


def _check_role(role: str) -> None:
    if role in OWN:
        raise BadInputError(f"--role {role}: {', '.join(OWN)} have tokens of their own")
    if not ROLE.fullmatch(role):
        raise BadInputError(
            f"--role {role!r}: a file is named by it, so that it has letters, digits and _.@=+- "
            "only; `loadmanager tokens create` makes tokens for other roles"
        )


def _tell(wanted: WantedCredentials) -> None:
    folders = ["authority", "broker", "monitoring", *(["zookeeper"] if wanted.zookeeper else [])]
    *first, last = [str(wanted.folder / name) for name in folders]
    click.echo(f"made {', '.join(first)} and {last}")
    click.echo(f"brokers: {', '.join(wanted.names)}")
    if wanted.zookeeper:
        click.echo(f"ZooKeeper: {', '.join(wanted.zookeeper)}")
    click.echo(f"roles: {', '.join(sorted((*OWN, *wanted.roles)))}")
    for path in wanted.left:
        click.echo(f"left as it is, for it is no token of the role that its name says: {path}")
    click.echo(f"certificates and tokens end in {wanted.days} days; --renew makes new ones")


@dataclass(frozen=True, slots=True)
class _Keys:
    """What is never made again; `private` signs tokens."""

    authority: Authority
    private: bytes
    public: bytes


def _make(wanted: WantedCredentials, keys: _Keys, now: dt.datetime) -> None:
    """Make all files, once all is known to be right; the broker's token is the last one: with it
    everything is there.
    """
    folder = wanted.folder
    authority, private, public = keys.authority, keys.private, keys.public
    made = {
        folder / "authority" / "ca.key": authority.key,
        folder / "authority" / "ca.pem": authority.certificate,
        folder / "authority" / "private.key": private,
        folder / "authority" / "public.key": public,
    }
    files = {path: content for path, content in made.items() if not path.exists()}
    certificate, key = authority.issue("broker", wanted.names, now, wanted.days)
    settings = SETTINGS + (ZOOKEEPER if wanted.zookeeper else "")
    files |= {
        folder / "broker" / "broker.key": key,
        folder / "broker" / "broker.pem": certificate,
        folder / "broker" / "ca.pem": authority.certificate,
        folder / "broker" / "public.key": public,
        folder / "broker" / "secure.conf": settings.format(at=wanted.at).encode(),
    }
    if wanted.zookeeper:
        certificate, key = authority.issue("zookeeper", wanted.zookeeper, now, wanted.days)
        files[folder / "zookeeper" / "zookeeper.pem"] = key + certificate
        files[folder / "zookeeper" / "ca.pem"] = authority.certificate
    token = _tokens(private, now + dt.timedelta(days=wanted.days))
    for role in (OPERATORS, *wanted.roles):
        files[folder / "authority" / f"{role}.token"] = token(role)
    monitoring = folder / "monitoring"
    files[monitoring / "monitoring.token"] = token(MONITORING)
    files[monitoring / "ca.pem"] = authority.certificate
    files[folder / "broker" / "broker.token"] = token(BROKERS)
    for path, content in files.items():
        # Prometheus runs as another user, and its files open nothing but /metrics.
        _write(path, content, 0o644 if path.parent == monitoring else FILE_MODE)
    monitoring.chmod(0o755)


def _tokens(key: bytes, end: dt.datetime) -> Callable[[str], bytes]:
    """Makes a token for a role, until `end`."""

    def token(role: str) -> bytes:
        made = create_token(
            role,
            key,
            algorithm=ALGORITHM,
            expires_s=end.timestamp(),
            token_id=secrets.token_hex(16),
        )
        return made.encode() + b"\n"

    return token


def _keys(folder: Path, now: dt.datetime) -> _Keys:
    """Those of an earlier run, or new ones."""
    return _Keys(_authority(folder, now), *_token_keys(folder))


def _authority(folder: Path, now: dt.datetime) -> Authority:
    certificate, key = folder / "ca.pem", folder / "ca.key"
    if not certificate.exists():
        return Authority.create("authority of loadmanager", now)
    try:
        return Authority(content_of(certificate), content_of(key))
    except BadInputError as error:
        raise OperationalError(f"{key} and {certificate}: {error}; {RESTORE}") from None


def _token_keys(folder: Path) -> tuple[bytes, bytes]:
    private, public = folder / "private.key", folder / "public.key"
    if not public.exists():
        return create_pair(ALGORITHM)
    try:
        pair = content_of(private), content_of(public)
        same = public_key_of(pair[0]) == public_key_of(pair[1])
    except BadInputError as error:
        raise OperationalError(f"{private} and {public}: {error}; {RESTORE}") from None
    if not same:
        raise OperationalError(f"{private} and {public} are no pair; {RESTORE}")
    return pair


def _write(path: Path, content: bytes, mode: int) -> None:
    """Write a file, completely or not at all. One that is there already hands on its mode, owner
    and group: whoever was let to read it still may.
    """
    make_folder(path.parent)
    new = path.with_name(path.name + ".new")
    new.unlink(missing_ok=True)  # of a run that was killed; it may also be a link
    with open_private(new, "xb") as file:
        file.write(content)
        if path.exists():
            status = path.stat()
            mode = stat.S_IMODE(status.st_mode)
            with contextlib.suppress(PermissionError):  # then it is ours
                os.fchown(file.fileno(), status.st_uid, status.st_gid)
        os.fchmod(file.fileno(), mode)
    new.replace(path)
