"""Paths of nodes. Source of the rules: `PathUtils` of ZooKeeper 3.9."""

from __future__ import annotations

import re

from loadmanager.kit.zookeeper.embedded.codes import ErrorCode, RefusedRequestError

ROOT = "/"
_FORBIDDEN = re.compile(
    # Characters that cannot be shown, and all beyond the basic plane: Java sees them as surrogates.
    "[\0-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff\U00010000-\U0010ffff]|//|/$|/\\.{1,2}(/|$)"
)


def check_path(path: str) -> None:
    """Raise `RefusedRequestError` if no node can have this path."""
    if path != ROOT and (not path.startswith(ROOT) or _FORBIDDEN.search(path)):
        raise RefusedRequestError(ErrorCode.BAD_ARGUMENTS)


def parent_of(path: str) -> str:
    """The path of the parent. Raises `RefusedRequestError` for what cannot have any."""
    parent, slash, _ = path.rpartition(ROOT)
    if not slash or "\0" in path:
        raise RefusedRequestError(ErrorCode.BAD_ARGUMENTS)
    return parent or ROOT


def name_of(path: str) -> str:
    """The last part of a path."""
    return path.rpartition(ROOT)[2]


def child_of(path: str, name: str) -> str:
    """The path of a child."""
    return ROOT + name if path == ROOT else f"{path}/{name}"
