"""Checks at the start of a broker that its storage is the directory that all brokers share."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Protocol

from loadmanager.kit.errors import OperationalError, said
from loadmanager.kit.logger import get_logger
from loadmanager.kit.metadata import paths
from loadmanager.kit.metadata.store import Store
from loadmanager.kit.tasks import sleep

WAIT_S = 1.0
MARGIN_S = 5.0
"""Brokers that have died are gone by a session timeout and this."""

_COPY = (
    "loadManagerStorageDirectory is not the directory of {broker}, which runs but has not locked "
    "its file brokers/{broker} there. Is it a copy, or are locks not passed on between machines? "
    "If {broker} runs without loadManagerStorageDirectory or in version 0.3.0: delete that file"
)

_WAITING = (
    "waiting to start: a registered broker has not locked its file in loadManagerStorageDirectory; "
    "if it has died, its session ends in this time"
)

log = get_logger("storage")


class DirectoryWithId(Protocol):
    """A directory with its id. Coroutines raise `OSError`, also when there is no answer in time."""

    @property
    def path(self) -> Path:
        """The file with the id."""
        ...

    def id_in(self, data: bytes) -> str | None:
        """The id in a file or a node; None if something else is in it."""
        ...

    async def read(self) -> str | None:
        """The id; None without a file."""
        ...

    async def give(self, new: str | None) -> str:
        """Give the directory this id (None: one that no other directory has), unless it has one;
        returns the one that it has.
        """
        ...

    async def has_topics(self) -> bool:
        """Whether topics are stored in the directory."""
        ...


class DirectoryLocks(Protocol):
    """A file for each broker in the directory. Coroutines raise `OSError`."""

    async def hold(self, broker: str) -> bool:
        """Keep the file of this broker locked; false if another process has locked it."""
        ...

    async def is_held(self, broker: str) -> bool:
        """False if a broker has a file that no process has locked."""
        ...


async def require_original(store: Store, locks: DirectoryLocks, me: str) -> None:
    """Lock the file of this broker, and return if all brokers that run have locked theirs. In a
    copy of the directory, they have not.

    Raises `OperationalError` for a copy, after the time in which a broker that has died is gone. If
    the directory fails, or does not answer in time, this is logged, and nothing is checked.
    """
    wait_s = store.session_timeout_s + MARGIN_S
    waited_s: dict[str, float] = {}
    try:
        while True:
            locked = await locks.hold(me)
            others = sorted(set(await store.children(paths.BROKERS)) - {me})
            free = [broker for broker in others if not await locks.is_held(broker)]
            if locked and not free:
                return
            # Each broker has its own time: another one may die meanwhile.
            waited_s = {broker: waited_s.get(broker, 0.0) for broker in [*free, me]}
            for broker in free:
                if waited_s[broker] >= wait_s:
                    raise OperationalError(_COPY.format(broker=broker))
                if not waited_s[broker]:
                    log.warning(_WAITING, peer=broker, within_s=wait_s)
            if not free and waited_s[me] >= wait_s:
                log.warning("another process with this broker's name uses the directory", broker=me)
                return
            await sleep(WAIT_S)
            waited_s = {broker: for_s + WAIT_S for broker, for_s in waited_s.items()}
    except OSError as error:
        log.warning("the locks of the other brokers could not be checked", error=said(error))


async def require_shared(store: Store, directory: DirectoryWithId, me: str) -> None:
    """Return if the directory has the id that is in the metadata store. One without an id gets it
    if no other broker runs. The first broker of a cluster chooses the id.

    Raises `OperationalError` for another directory, or one whose id cannot be read, after some
    time, in which it may be mounted. If the directory fails, or does not answer in time, or if the
    metadata store has something else for an id, this is logged, and nothing is checked.
    """
    try:
        await _require(store, directory, me)
    except OSError as error:
        log.warning(
            "the directory could not be checked", file=str(directory.path), error=said(error)
        )


async def _require(store: Store, directory: DirectoryWithId, me: str) -> None:
    wanted = await _id_of_cluster(store, directory) or await _choose(store, directory)
    if wanted is None:
        return
    waited_s, wait_s = 0.0, store.session_timeout_s + MARGIN_S
    while True:
        present = await _present(directory)
        others = sorted(set(await store.children(paths.BROKERS)) - {me})
        if present is None and not others:
            await directory.give(wanted)
            log.info("the directory has the id of the cluster's storage now", id=wanted)
            return
        if present == wanted:
            return
        problem = _problem(directory, present, wanted, others)
        if waited_s >= wait_s:
            raise OperationalError(problem)
        if not waited_s:
            log.warning(f"waiting to start: {problem}", within_s=wait_s)
        await sleep(WAIT_S)
        waited_s += WAIT_S


async def _present(directory: DirectoryWithId) -> str | None:
    """The id of the directory, None without one, or why it cannot be read."""
    try:
        return await directory.read()
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EISDIR):
            raise
        return f"unreadable ({said(error)})"


async def _id_of_cluster(store: Store, directory: DirectoryWithId) -> str | None:
    """The stored id; None if none was chosen yet."""
    node = await store.get(paths.STORAGE)
    if node is None:
        return None
    id_ = directory.id_in(node.value)
    if id_ is None:
        raise OSError(errno.EINVAL, f"there is no id in the node {paths.STORAGE}")
    return id_


async def _choose(store: Store, directory: DirectoryWithId) -> str | None:
    """Choose the id of the cluster's storage: that of the directory, if it has one.

    None if there are stored topics, but not in this directory: another broker chooses.
    """
    chosen = await directory.read()
    if chosen is None:
        if await _has_topics(store) and not await directory.has_topics():
            log.warning(
                "topics are stored, but none in loadManagerStorageDirectory: is it the directory "
                "that all brokers share?",
                directory=str(directory.path.parent),
            )
            return None
        # Of brokers that begin at once, one gives the directory its id, and all take that one.
        chosen = await directory.give(None)
    elif not await _has_topics(store) and await directory.has_topics():
        raise OperationalError(
            f"loadManagerStorageDirectory = {directory.path.parent} has topics, and the metadata "
            "store knows of none: is it another cluster's? Each needs one of its own. If the "
            f"metadata store was emptied, and the topics are not needed: rm {directory.path}"
        )
    if await store.create(paths.STORAGE, chosen.encode()):
        log.info("the id of the cluster's storage is chosen", id=chosen)
    return await _id_of_cluster(store, directory)


async def _has_topics(store: Store) -> bool:
    for tenant in await store.children(paths.LOGS):
        for namespace in await store.children(f"{paths.LOGS}/{tenant}"):
            if await store.children(f"{paths.LOGS}/{tenant}/{namespace}"):
                return True
    return False


def _problem(
    directory: DirectoryWithId, present: str | None, wanted: str, others: list[str]
) -> str:
    has = "It has no shared.id" if present is None else f"Its shared.id is {present}"
    return (
        f"loadManagerStorageDirectory = {directory.path.parent} is not the directory that the "
        f"brokers of this cluster share{f' ({others[0]} runs)' if others else ''}: mount that one "
        f"there. {has}, that of the cluster is {wanted}. If it is the right one, for example "
        f"because somebody has emptied it: echo {wanted} > {directory.path}"
    )
