"""The folder of `loadmanager tokens bootstrap`: whether it is safe, what an earlier run made."""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from loadmanager.kit.errors import (
    BadInputError,
    ConfigError,
    NotAuthenticatedError,
    OperationalError,
)
from loadmanager.kit.files.properties import read_properties
from loadmanager.kit.private_files import make_folder
from loadmanager.kit.security.authority import Issued, check_host, read_issued
from loadmanager.kit.security.reading import read_file
from loadmanager.kit.security.settings import TokenSettings
from loadmanager.kit.security.tokens import TokenVerifier

ALGORITHM = "ES256"
DAYS = 365
OPERATORS, BROKERS, MONITORING = "admin", "broker", "monitoring"
OWN = (OPERATORS, BROKERS, MONITORING)
"""Roles whose tokens are always made."""
FOLDERS = ("authority", "broker", "monitoring", "zookeeper")
KEYS = (("ca.key", "ca.pem"), ("private.key", "public.key"))
FILE_BYTES_MAX = 1_000_000
"""A key, a certificate or a token is smaller."""
TRUST = "brokerClientTrustCertsFilePath"
ZOOKEEPER_TLS = "loadManagerZooKeeperTlsEnabled"
ENDED_S = 10**10
"""A token that ended so long ago still says whose it was."""


@dataclass(frozen=True, slots=True)
class WantedCredentials:
    """What credentials are to be made for."""

    folder: Path
    names: tuple[str, ...]
    zookeeper: tuple[str, ...]
    roles: tuple[str, ...]
    days: int
    at: str
    left: tuple[Path, ...] = ()
    """Tokens in FOLDER/authority whose role does not name their file: nobody makes them again."""


def check_folders(folder: Path) -> None:
    """Raises `OperationalError` if others could have put files there, or may put them there."""
    for each in (folder, *(folder / name for name in FOLDERS)):
        try:
            status = each.stat()
        except FileNotFoundError:
            continue
        mode = stat.S_IMODE(status.st_mode)
        if status.st_uid not in (os.geteuid(), 0):
            why = f"it belongs to user {status.st_uid}"
        elif mode & (stat.S_IWGRP | stat.S_IWOTH):
            why = f"its mode is {mode:04o}"
        else:
            continue
        raise OperationalError(
            f"{each}: {why}, so that others may put keys there; name a folder that is not there "
            "yet, or make this one yours (chown, chmod 700) if you know all that is in it"
        )


def doubtful_ancestor(folder: Path) -> str:
    """The folder above it in which others may put another one in its place, and why; empty if
    there is none. A sticky one, such as /tmp, is fine.
    """
    for above in folder.resolve().parents:
        if not above.exists():
            continue
        status = above.stat()
        mode = stat.S_IMODE(status.st_mode)
        if status.st_uid not in (os.geteuid(), 0):
            return f"{above} belongs to user {status.st_uid}"
        if mode & (stat.S_IWGRP | stat.S_IWOTH) and not mode & stat.S_ISVTX:
            return f"the mode of {above} is {mode:04o}"
    return ""


@contextlib.contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Make the folder, and keep other runs out of it. Raises `OperationalError` if there is one."""
    make_folder(folder)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise OperationalError(
                f"{folder}: another `tokens bootstrap` is making its files; try again when it is "
                "done"
            ) from None
        yield
    finally:
        os.close(descriptor)


def content_of(path: Path) -> bytes:
    """The content of a file. Raises `OSError`, also for a pipe, and `OperationalError` for more
    than keys, certificates and tokens have.
    """
    content = read_file(str(path), FILE_BYTES_MAX + 1)
    if len(content) > FILE_BYTES_MAX:
        raise OperationalError(f"{path} has more than {FILE_BYTES_MAX} bytes")
    return content


def check_keys(authority: Path, *, renew: bool) -> None:
    """Raises `OperationalError` if a key would be overwritten, or nothing is there to renew."""
    for pair in KEYS:
        missing = [authority / name for name in pair if not (authority / name).exists()]
        if len(missing) == len(pair) and not renew:
            continue
        if missing:
            there = next((authority / name for name in pair if (authority / name).exists()), None)
            advice = "without --renew all is made, in a folder that is not there yet"
            if there is not None:
                advice += f", or here if nothing has been made with {there} and you remove that"
            raise OperationalError(
                f"{missing[0]} is missing: bring it back from a backup; {advice}"
            )


def with_earlier(
    folder: Path,
    names: tuple[str, ...],
    zookeeper: tuple[str, ...],
    roles: tuple[str, ...],
    *,
    days: int | None,
    at: str | None,
) -> WantedCredentials:
    """What the files in a folder were made for, and these in addition; `days` and `at` replace what
    was. Raises `OperationalError` for what cannot be made again.
    """
    broker = _issued(folder / "broker" / "broker.pem")
    servers = _issued(folder / "zookeeper" / "zookeeper.pem")
    earlier, left = _roles(folder / "authority")
    settings = _settings(folder / "broker" / "secure.conf")
    names = _united(broker.hosts, names)
    zookeeper = _united(servers.hosts, zookeeper)
    days = days or broker.days or servers.days
    if not names:
        missing, advice = folder / "broker" / "broker.pem", "each NAME of a broker"
    elif settings.get(ZOOKEEPER_TLS) == "true" and not zookeeper:
        missing, advice = folder / "zookeeper" / "zookeeper.pem", "--zookeeper for each server"
    elif not days:
        missing, advice = folder / "broker" / "broker.pem", "--days, too"
    else:
        return WantedCredentials(
            folder,
            names,
            zookeeper,
            _united(earlier, roles),
            days,
            at or settings.get(TRUST, "").rpartition("/")[0] or str(folder / "broker"),
            left,
        )
    raise OperationalError(
        f"{missing}, which says for whom and how long it was made, is missing: give {advice}"
    )


def _united(first: tuple[str, ...], then: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*first, *then)))


def _settings(path: Path) -> dict[str, str]:
    if not path.exists():
        return {}
    content_of(path)  # it is a file
    try:
        return read_properties(path)
    except ConfigError as error:
        raise OperationalError(f"{error}; remove it to have a new one") from None


def _issued(path: Path) -> Issued:
    """What a certificate was made for; nothing if it is not there."""
    if not path.exists():
        return Issued((), 0)
    try:
        issued = read_issued(content_of(path))
        for host in issued.hosts:
            check_host(host)
    except BadInputError as error:
        advice = "remove it, and give all names again"
        raise OperationalError(f"{path} cannot be made again: {error}; {advice}") from None
    return issued


def _roles(authority: Path) -> tuple[tuple[str, ...], tuple[Path, ...]]:
    """The clients' roles that have a token in a file of their name; the files of other tokens."""
    key = f"file://{authority / 'public.key'}"
    verifier = TokenVerifier(
        TokenSettings(public_key=key, public_algorithm=ALGORITHM, clock_skew_s=ENDED_S)
    )
    roles, others = [], []
    for path in sorted(authority.glob("*.token")):
        if path.stem == OPERATORS:
            continue
        try:
            role = verifier.verify(content_of(path).decode()).role
        except (NotAuthenticatedError, UnicodeDecodeError):
            role = ""
        if role == path.stem and role not in OWN:
            roles.append(role)
        else:
            others.append(path)
    return tuple(roles), tuple(others)
