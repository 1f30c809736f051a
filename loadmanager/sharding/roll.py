"""What the members of a service say of themselves in the store, and which store it is.

Two members with one address would take each other's orders. A member that finds its address taken
asks, by a node that a running member deletes at once: a member that was killed does not answer, and
is waited for.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from contextlib import suppress

import msgspec

from loadmanager.kit.addresses import BrokerAddress
from loadmanager.kit.errors import OperationalError
from loadmanager.kit.logger import get_logger
from loadmanager.kit.metadata import paths
from loadmanager.kit.metadata.store import Change, ChangeKind, Store, StoreAwayError
from loadmanager.kit.tasks import sleep

ASK_S, POLL_S = 1.0, 0.05

log = get_logger("member")


class _Said(msgspec.Struct, frozen=True):
    eager: bool


class Roll:
    """A watch on `paths.SERVICE` must call `on_change`. `begin_anew` is called when the store is
    another one than before: it writes what a service needs.
    """

    def __init__(
        self,
        store: Store,
        me: BrokerAddress,
        *,
        eager: bool,
        begin_anew: Callable[[], Awaitable[None]],
    ) -> None:
        self._store, self._me, self._begin_anew = store, me, begin_anew
        self._said = _Said(eager)
        self._path = f"{paths.SERVICE_MEMBERS}/{paths.encode(me.broker_id)}"
        self._questions = f"{paths.SERVICE_DOUBLES}/{paths.encode(me.broker_id)}"
        self.running = False
        """Set once this member is registered: from then on, it answers doubles."""
        self.store_identity = ""
        """Of the store: another one has tokens of its own."""

    async def on_change(self, change: Change) -> None:
        """See whether the store is the same, and answer a member with the same address."""
        deleted = change.kind is ChangeKind.DELETED
        if change.kind is ChangeKind.RESYNC or (deleted and change.path == paths.SERVICE):
            await self._identify()
            await self._sign()
            for name in await self._store.children(self._questions):
                await self._answer(name)
        elif deleted and change.path == self._path:
            await self._sign()
        elif not deleted and change.path.startswith(f"{self._questions}/"):
            await self._answer(paths.last(change.path))

    async def _identify(self) -> None:
        fresh = os.urandom(16).hex()
        created = await self._store.create(paths.SERVICE, fresh.encode())
        node = None if created else await self._store.get(paths.SERVICE)
        identity = fresh if node is None else node.value.decode("ascii", "replace")
        before, self.store_identity = self.store_identity, identity
        if created and not before:
            log.info("the store was empty: a new service begins", tokens="from the beginning")
        elif before and before != identity:
            log.error(
                "the store is another one than before, or was emptied: tokens begin again. A "
                "database that has seen greater ones refuses what members write now: let it forget "
                "them, or bring the store back",
                identity=identity,
                before=before,
            )
            await self._begin_anew()

    async def _sign(self) -> None:
        value = msgspec.json.encode(self._said)
        await self._store.create(self._path, value, ephemeral=True)

    async def compare(self) -> None:
        """Say so if others say something else."""
        names = await self._store.children(paths.SERVICE_MEMBERS)
        others = await self._store.get_many([f"{paths.SERVICE_MEMBERS}/{name}" for name in names])
        for name, node in zip(names, others, strict=True):
            if node is None or paths.decode(name) == self._me.broker_id:
                continue
            if node.value != msgspec.json.encode(self._said):
                log.warning(
                    "all members of a service must say the same of eager: whichever leads decides",
                    here=self._said.eager,
                    other=paths.decode(name),
                )
                return

    async def _answer(self, session: str) -> None:
        if self.running and session != f"{self._store.session_id:x}":
            await self._store.delete(f"{self._questions}/{session}")

    async def ask(self) -> None:
        """If another session has this member's address, ask whether it runs.

        Raises `OperationalError` if it does.
        """
        node = await self._store.get(paths.broker(self._me.broker_id))
        if node is None or node.ephemeral_owner in (0, self._store.session_id):
            return
        question = f"{self._questions}/{self._store.session_id:x}"
        await self._store.create(question, b"", ephemeral=True)
        for _ in range(round(ASK_S / POLL_S)):
            await sleep(POLL_S)
            if await self._store.get(question) is None:
                address = self._me.web_url or self._me.web_url_tls
                raise OperationalError(
                    f"another member with the address {address} is running: give each member an "
                    "address of its own, or stop that one"
                )
        await self._store.delete(question)

    async def keep_asking(self) -> None:
        """`ask`, again and again."""
        while True:
            with suppress(StoreAwayError):
                await self.ask()
            await sleep(ASK_S)
