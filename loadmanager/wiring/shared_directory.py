"""Checks at the start of a broker that its storage is the directory that all brokers share."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import structlog

from loadmanager.adapters.files.mark import DirectoryMark
from loadmanager.adapters.files.worker import Worker
from loadmanager.core.errors import OperationalError, said
from loadmanager.ports.store import Store
from loadmanager.runtime.shared import paths
from loadmanager.runtime.tasks import sleep

WAIT_S = 1.0
MARGIN_S = 5.0
"""Brokers that have died are gone by a session timeout and this."""

Run = Callable[[Callable[[], Any]], Awaitable[Any]]
"""Runs a call that may block. Raises `OSError`, as `TimeoutError` is one."""

log = structlog.get_logger("storage")


async def require_shared(
    store: Store, directory: DirectoryMark, me: str, timeout_s: float = 60.0
) -> None:
    """Return once the directory has the mark that the metadata store names, or no other broker
    runs: that is then as good as any, and is marked if it has no mark. The first broker of a
    cluster chooses the mark.

    Raises `OperationalError` if it is another directory than that of the brokers which run. A
    directory that fails, or does not answer within `timeout_s`, is not checked; the log says so.
    """
    worker = Worker("mark")

    async def run(call: Callable[[], Any]) -> Any:
        async with asyncio.timeout(timeout_s):
            return await worker.run(call)

    try:
        await _require(store, directory, me, run)
    except OSError as error:
        log.warning(
            "the directory could not be checked", file=str(directory.path), error=said(error)
        )
    finally:
        worker.close()


async def _require(store: Store, directory: DirectoryMark, me: str, run: Run) -> None:
    if await store.get(paths.STORAGE) is None and not await _choose(store, directory, run):
        return
    waited_s, wait_s = 0.0, store.session_timeout_s + MARGIN_S
    while True:
        node = await store.get(paths.STORAGE)
        wanted = "" if node is None else node.value.decode()
        mark = await run(directory.read)
        others = sorted(set(await store.children(paths.BROKERS)) - {me})
        if mark is None and not others:
            await run(partial(directory.leave, wanted))
            log.info("the directory is marked as the one that all brokers share", mark=wanted)
            return
        if mark == wanted:
            return
        problem = _problem(directory, mark, wanted, others)
        if not others:
            log.warning(problem)
            return
        if waited_s >= wait_s:
            raise OperationalError(problem)
        if not waited_s:
            log.warning(f"waiting to start: {problem}", within_s=wait_s)
        await sleep(WAIT_S)
        waited_s += WAIT_S


async def _choose(store: Store, directory: DirectoryMark, run: Run) -> bool:
    """Choose the mark of the cluster; a mark that is there is kept.

    False if there are stored topics, but not in this directory: another broker chooses.
    """
    mark = await run(directory.read)
    if mark is None:
        if await _has_topics(store) and not await run(directory.has_topics):
            log.warning(
                "topics are stored, but none in loadManagerStorageDirectory: is it the directory "
                "that all brokers share?",
                directory=str(directory.path.parent),
            )
            return False
        # Of brokers that begin at once, one marks the directory, and all take that mark.
        mark = await run(partial(directory.leave, secrets.token_hex(8)))
    if await store.create(paths.STORAGE, mark.encode()):
        log.info("the directory is marked as the one that all brokers share", mark=mark)
    return True


async def _has_topics(store: Store) -> bool:
    for tenant in await store.children(paths.LOGS):
        for namespace in await store.children(f"{paths.LOGS}/{tenant}"):
            if await store.children(f"{paths.LOGS}/{tenant}/{namespace}"):
                return True
    return False


def _problem(directory: DirectoryMark, mark: str | None, wanted: str, others: list[str]) -> str:
    has = "no mark" if mark is None else f"the mark {mark}"
    return (
        f"loadManagerStorageDirectory = {directory.path.parent} is not the directory that the "
        f"brokers of this cluster share{f' ({others[0]} runs)' if others else ''}: mount that one "
        f"there. It has {has} instead of {wanted}. If it is the right one, for example because "
        f"somebody has emptied it: echo {wanted} > {directory.path}"
    )
