"""Who may do what: ACLs with the schemes world, auth, digest and ip, as in ZooKeeper 3.9."""

from __future__ import annotations

import base64
import hashlib
import ipaddress
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from loadmanager.kit.zookeeper.embedded.codes import ErrorCode, Permission, RefusedRequestError


class AclIdentity(NamedTuple):
    """As whom a connection is known, or whom an entry of an ACL permits something."""

    scheme: str | None
    id: str | None


class AclEntry(NamedTuple):
    """`permissions` are bits of `Permission`."""

    permissions: int
    identity: AclIdentity


Acl = tuple[AclEntry, ...]

ENTRIES_MAX = 1000
"""Entries of an ACL."""
ANYONE = AclIdentity("world", "anyone")
OPEN_ACL: Acl = (AclEntry(Permission.ALL, ANYONE),)
READ_ONLY_ACL: Acl = (AclEntry(Permission.READ, ANYONE),)


def digest_of(credentials: bytes) -> AclIdentity:
    """The identity of somebody who has sent `user:password`."""
    text = credentials.decode("utf-8", "replace")
    digest = hashlib.sha1(text.encode(), usedforsecurity=False).digest()  # as ZooKeeper's clients
    return AclIdentity("digest", f"{text.partition(':')[0]}:{base64.b64encode(digest).decode()}")


def expanded(entries: Iterable[AclEntry], identities: Sequence[AclIdentity]) -> Acl:
    """The ACL of a node that somebody with these identities makes: `auth` stands for them.

    Raises `RefusedRequestError` for an ACL that is empty or has an unknown scheme or identity.
    """
    acl: list[AclEntry] = []
    for entry in dict.fromkeys(entries):
        scheme, text = entry.identity
        if entry.identity == ANYONE:
            acl.append(entry)
        elif scheme == "auth":
            mine = [identity for identity in identities if identity.scheme == "digest"]
            if not mine:
                raise RefusedRequestError(ErrorCode.INVALID_ACL)
            acl += [AclEntry(entry.permissions, identity) for identity in mine]
        elif text is not None and _valid(scheme, text):
            acl.append(entry)
        else:
            raise RefusedRequestError(ErrorCode.INVALID_ACL)
    if not 0 < len(acl) <= ENTRIES_MAX:
        raise RefusedRequestError(ErrorCode.INVALID_ACL)
    return shared(tuple(acl))


@lru_cache(maxsize=256)
def shared(acl: Acl) -> Acl:
    """The same object for equal ACLs: most nodes of a tree have equal ones."""
    return acl


def _valid(scheme: str | None, text: str) -> bool:
    if scheme == "digest":
        return len(text.rstrip(":").split(":")) == 2
    return scheme == "ip" and _network(text) is not None


def check_access(acl: Acl, permission: int, identities: Sequence[AclIdentity]) -> None:
    """Raise `RefusedRequestError` unless the ACL permits one of these identities one of the
    permissions. An empty one permits everything.
    """
    bits = int(permission)  # a flag's & is slow, and each event asks for each of its watchers
    if acl and not any(
        entry.permissions & bits and _matches(entry.identity, identities) for entry in acl
    ):
        raise RefusedRequestError(ErrorCode.NO_AUTH)


def _matches(wanted: AclIdentity, identities: Sequence[AclIdentity]) -> bool:
    if wanted == ANYONE:
        return True
    if wanted.scheme == "ip":
        network = _network(wanted.id or "")
        addresses = [identity.id or "" for identity in identities if identity.scheme == "ip"]
        return network is not None and any(_address_in(text, network) for text in addresses)
    return wanted in identities


def without_digests(acl: Acl) -> Acl:
    """As shown to those who may read but not change it: users without their digests."""
    return tuple(
        AclEntry(permissions, AclIdentity("digest", f"{(text or '').partition(':')[0]}:x"))
        if scheme == "digest"
        else AclEntry(permissions, AclIdentity(scheme, text))
        for permissions, (scheme, text) in acl
    )


_Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def _network(text: str) -> _Network | None:
    """`address` or `address/bits`."""
    address, slash, bits = text.partition("/")
    if slash and not (bits.isascii() and bits.isdecimal()):
        return None  # a netmask is no number of bits
    try:
        return ipaddress.ip_network(text if "%" not in address else "", strict=False)
    except ValueError:
        return None


def _address_in(text: str, network: _Network) -> bool:
    try:
        return ipaddress.ip_address(text) in network
    except ValueError:
        return False
