"""`loadmanager tokens bootstrap`: all that a secured cluster needs, made at once."""

from __future__ import annotations

import datetime as dt
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from loadmanager.engine.policies.permissions import check_role
from loadmanager.kit.errors import OperationalError
from loadmanager.kit.private_files import make_folder, open_private
from loadmanager.kit.security.authority import Authority
from loadmanager.kit.security.tokens import create_pair, create_token
from loadmanager.kit.system.clock import SystemClock

ALGORITHM = "ES256"
OPERATORS, BROKERS, MONITORING = "admin", "broker", "monitoring"
DAYS_MAX = 3650
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


@dataclass(frozen=True, slots=True)
class _Wanted:
    folder: Path
    names: Sequence[str]
    zookeeper: Sequence[str]
    roles: Sequence[str]
    days: int
    at: str


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("--role", "roles", multiple=True, help="a client's role; repeatable (default: app)")
@click.option(
    "--zookeeper", multiple=True, metavar="NAME", help="a server of ZooKeeper, for TLS; repeatable"
)
@click.option(
    "--days",
    type=click.IntRange(1, DAYS_MAX),
    default=365,
    help="until certificates and tokens end",
)
@click.option("--at", metavar="PATH", help="where brokers find FOLDER/broker, if not there")
@click.option("--renew", is_flag=True, help="make all but the authority and its keys anew")
def bootstrap(
    folder: Path,
    names: tuple[str, ...],
    *,
    roles: tuple[str, ...],
    zookeeper: tuple[str, ...],
    days: int,
    at: str | None,
    renew: bool,
) -> int:
    """Make all that a secured cluster needs, unless it is there.

    NAME: each name or address by which a broker is reached; *.example.org stands for many.

    \b
    FOLDER/authority   ca.key makes certificates and private.key tokens, for anybody:
                       keep both off the brokers. A token for each role.
    FOLDER/broker      what brokers read; append secure.conf to their broker.conf
    FOLDER/monitoring  for Prometheus: whom to trust, and a token for /metrics alone
    FOLDER/zookeeper   with --zookeeper: what its servers read
    """
    folder = folder.absolute()
    last = folder / "broker" / "broker.token"
    if last.exists() and not renew:
        click.echo(
            f"{last} is there: nothing was changed; --renew makes all but the authority anew"
        )
        return 0
    wanted = _Wanted(folder, names, zookeeper, roles or ("app",), days, at or str(last.parent))
    try:
        _make(wanted)
    except OSError as error:
        raise OperationalError(f"{error.filename or folder}: {error.strerror}") from None
    click.echo(f"made {folder}/authority, {folder}/broker and {folder}/monitoring")
    click.echo(f"certificates and tokens end in {days} days; --renew makes new ones")
    return 0


def _make(wanted: _Wanted) -> None:
    """Make all files; the broker's token is the last one: with it everything is there."""
    folder = wanted.folder
    now = dt.datetime.fromtimestamp(SystemClock().now_ms() / 1000, dt.UTC)
    authority = _authority(folder / "authority", now)
    key = _token_key(folder / "authority")

    def token(role: str) -> bytes:
        ends_s = (now + dt.timedelta(days=wanted.days)).timestamp()
        made = create_token(
            check_role(role),
            key,
            algorithm=ALGORITHM,
            expires_s=ends_s,
            token_id=secrets.token_hex(16),
        )
        return made.encode() + b"\n"

    certificate, private = authority.issue("broker", wanted.names, now, wanted.days)
    settings = SETTINGS + (ZOOKEEPER if wanted.zookeeper else "")
    _write(folder / "broker" / "broker.key", private)
    _write(folder / "broker" / "broker.pem", certificate)
    _write(folder / "broker" / "ca.pem", authority.certificate)
    _write(folder / "broker" / "public.key", (folder / "authority" / "public.key").read_bytes())
    _write(folder / "broker" / "secure.conf", settings.format(at=wanted.at).encode())
    if wanted.zookeeper:
        certificate, private = authority.issue("zookeeper", wanted.zookeeper, now, wanted.days)
        _write(folder / "zookeeper" / "zookeeper.pem", private + certificate)
        _write(folder / "zookeeper" / "ca.pem", authority.certificate)
    for role in (OPERATORS, *wanted.roles):
        _write(folder / "authority" / f"{role}.token", token(role))
    monitoring = folder / "monitoring"
    _write(monitoring / "monitoring.token", token(MONITORING))
    _write(monitoring / "ca.pem", authority.certificate)
    # Prometheus runs as another user, and both files open nothing but /metrics.
    monitoring.chmod(0o755)
    for file in monitoring.iterdir():
        file.chmod(0o644)
    _write(folder / "broker" / "broker.token", token(BROKERS))


def _authority(folder: Path, now: dt.datetime) -> Authority:
    """The authority of an earlier run, or a new one."""
    certificate, key = folder / "ca.pem", folder / "ca.key"
    if certificate.exists():
        return Authority(certificate.read_bytes(), key.read_bytes())
    made = Authority.create("authority of loadmanager", now)
    _write(key, made.key)
    _write(certificate, made.certificate)
    return made


def _token_key(folder: Path) -> bytes:
    """The key that signs tokens, of an earlier run, or a new one."""
    private, public = folder / "private.key", folder / "public.key"
    if not public.exists():
        for path, key in zip((private, public), create_pair(ALGORITHM), strict=True):
            _write(path, key)
    return private.read_bytes()


def _write(path: Path, content: bytes) -> None:
    """Write a file that only its owner can read, completely or not at all."""
    make_folder(path.parent)
    new = path.with_name(path.name + ".new")
    with open_private(new, "wb") as file:
        file.write(content)
    new.replace(path)
