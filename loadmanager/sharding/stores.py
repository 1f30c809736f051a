"""Where the members of a service find each other: ZooKeeper, or a store that somebody else brings.

A package with an entry point in the group `loadmanager.stores` brings one: its name is the scheme
of the URLs, and it is called with the URL and the session timeout in seconds. It returns an
asynchronous context manager over a store that passes `loadmanager.testing.store_contract`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from loadmanager.kit.errors import BadInputError
from loadmanager.kit.metadata.store import Store
from loadmanager.leader.plugin_points import plug_ins

GROUP = "loadmanager.stores"
ZOOKEEPER = "zk"
SESSION_S = 10.0

Connect = Callable[[str, float], AbstractAsyncContextManager[Store]]


def brought(url: str) -> Connect | None:
    """What connects to the store of a URL; None: it is ZooKeeper. Raises `BadInputError` for what
    is no URL of a store, and for a scheme that nobody brings; `ConfigError` if what brings it
    cannot be loaded.
    """
    scheme, separator, rest = url.partition("://")
    if separator and rest:
        if scheme == ZOOKEEPER:
            _check_path(url, rest.partition("/")[2].strip("/"))
            return None
        for point in plug_ins(GROUP, scheme):
            connect: Connect = point.load()
            return connect
    raise BadInputError(
        f"a store such as zk://host:2181/path is expected, not {url!r}; no installed package "
        f"brings another one for {scheme!r} (entry points {GROUP})"
    )


def _check_path(url: str, path: str) -> None:
    if not path:
        raise BadInputError(
            f"{url!r} has no path: name the service, as in zk://host:2181/rooms. The root is where "
            "others are, too: brokers, or another service"
        )
    if not path.isprintable() or {"", ".", ".."}.intersection(path.split("/")):
        raise BadInputError(f"{url!r}: a path has names between its slashes, none of . and ..")


def zookeeper_url(url: str) -> str:
    """As broker.conf spells it."""
    return f"zk:{url.partition('://')[2]}"
