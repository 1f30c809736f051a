"""Has neighbouring bundles merged: brings them to one broker, and orders the merge there."""

from __future__ import annotations

from dataclasses import dataclass, field

from loadmanager.engine.bundles.ranges import split_bundle_name
from loadmanager.engine.moves.move import Author, MoveState
from loadmanager.engine.strategies.plan import Plan, Skip, Unload
from loadmanager.engine.strategies.splitting import merging
from loadmanager.engine.strategies.splitting.merging import MergeMemory, MergeSettings
from loadmanager.kit.conf import Live
from loadmanager.kit.errors import ConflictError, LoadManagerError, OperationalError
from loadmanager.kit.logger import get_logger
from loadmanager.kit.names import NamespaceName
from loadmanager.leader.load_manager import LoadManager
from loadmanager.leader.moves import Moves
from loadmanager.leader.ports.peers import Peers

TASK = "BundleMergerTask"
FAILED_AGAIN_MS = 600_000
"""A pair whose merge failed is left alone for so long."""

log = get_logger("merging")


@dataclass(slots=True, kw_only=True)
class Merging:
    """The merges of one term."""

    moves: Moves
    peers: Peers
    load_manager: LoadManager
    settings: Live[MergeSettings]
    memory: MergeMemory = field(default_factory=MergeMemory, init=False)
    failed_ms: dict[tuple[str, str], int] = field(default_factory=dict, init=False)
    """Pair → when its merge failed."""

    async def merge(self, left: str, right: str, reason: str, *, epoch: int | None) -> str:
        """Merge two neighbours, the lower one first; returns the name of the new bundle.

        Moves the second one to the broker of the first if need be; acquires what nobody owns.
        Raises `ConflictError` for a pinned bundle, `OperationalError` if they cannot be merged now.
        """
        wishes = self.moves.cluster.wishes.now()
        for bundle in (left, right):
            if pin := wishes.pin_of(bundle):
                raise ConflictError(f"{bundle} is pinned to {pin.broker}")
        owners = [await self.moves.orders.owner(bundle) for bundle in (left, right)]
        if owners == [None, None] and epoch is not None:
            raise OperationalError("nobody owns them any more")
        at = owners[0] or owners[1] or await self.load_manager.place(left)
        address = self.moves.cluster.brokers.address(at)
        if address is None:
            raise OperationalError(f"{at}, which is to merge the bundles, is not active")
        for bundle, owner in zip((left, right), owners, strict=True):
            if owner is None:
                await self.peers.acquire_bundle(address, bundle, epoch=epoch)
            elif owner != at:
                move = await self.moves.move(Unload(bundle, owner, at, "Merge"), Author.MERGE)
                if move.state is not MoveState.DONE:
                    text = move.outcome.text if move.outcome else "unknown"
                    raise OperationalError(f"{bundle} did not get to {at}: {text}")
        merged = await self.peers.merge_bundles(address, left, right, epoch=epoch)
        log.info("bundles merged", left=left, right=right, bundle=merged, owner=at, reason=reason)
        self.load_manager.merged(left, right, merged, at, reason)
        return merged

    async def step(self) -> None:
        """Merge what has stayed idle for long enough; nothing while moves are paused."""
        settings = self.settings.value
        if not settings.enabled:
            self.memory = MergeMemory()
            return
        if self.moves.cluster.wishes.pause() is not None:
            return
        now_ms = self.moves.term.clock.now_ms()
        wishes = self.moves.cluster.wishes.now()
        stats = {
            bundle: traffic
            for report in self.moves.cluster.brokers.reports.values()
            for bundle, traffic in report.last_stats.items()
            if wishes.pin_of(bundle) is None and self.moves.queue.move_of(bundle) is None
        }
        namespaces = {split_bundle_name(left)[0] for left, _ in merging.neighbours(stats)}
        counts = {
            name: await self.moves.cluster.bundle_count(NamespaceName.parse(name))
            for name in sorted(namespaces)
        }
        merges, self.memory = merging.choose(
            stats, counts, now_ms, (self.load_manager.splits.value, settings), self.memory
        )
        self.failed_ms = {
            pair: at_ms
            for pair, at_ms in self.failed_ms.items()
            if at_ms > now_ms - FAILED_AGAIN_MS
        }
        for merge in merges:
            pair = merge.left, merge.right
            if pair in self.failed_ms:
                continue
            try:
                await self.merge(*pair, merge.reason, epoch=self.moves.term.epoch)
            except LoadManagerError as error:
                self.failed_ms[pair] = now_ms
                skip = Skip(merge.left, "NotMerged", f"with {merge.right}: {error}")
                self.load_manager.record_plan(Plan(TASK, skipped=(skip,)))
                log.warning(
                    "bundles were not merged", left=pair[0], right=pair[1], error=str(error)
                )
