"""The bundles that this broker serves; implements `member.ports.hosting`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence

from loadmanager.broker.protocol.hosted import BundleStats, OpenBundle, clients_of, divide, unite
from loadmanager.broker.protocol.serving import Serving
from loadmanager.kit.addresses import BrokerAddress
from loadmanager.kit.history.port import History, HistoryRecord
from loadmanager.kit.logger import get_logger
from loadmanager.kit.units import MIB
from loadmanager.member.ports.hosting import CountedTraffic, HostUsage, TopicTraffic, TrafficCounter

log = get_logger("protocol")


class BundleCounter:
    """Implements `member.ports.hosting.TrafficCounter`."""

    def __init__(self, serving: Serving) -> None:
        self._serving = serving

    def take_carried(self, bundle: str) -> dict[str, CountedTraffic]:
        """See the port."""
        opened = self._serving.open_bundles.get(bundle)
        topics = {} if opened is None else opened.topics
        return {name: hosted.take_carried() for name, hosted in topics.items()}

    def take_closed(self) -> dict[str, CountedTraffic]:
        """See the port."""
        closed, self._serving.topics.closed = self._serving.topics.closed, {}
        return closed


class HostedBundles:
    """Opens, fences and closes bundles with their topics."""

    def __init__(self, serving: Serving) -> None:
        self.serving = serving
        self.counter: TrafficCounter = BundleCounter(serving)
        self._unproven = False
        """Whether stored topics are served without the lease, or were a moment ago."""

    def record_clients(
        self, history: History, broker: str
    ) -> Callable[[], Sequence[HistoryRecord]]:
        """Record which clients come and leave from now on; called before the first connection.
        Returns what tells the refusals that are counted, and not recorded yet.
        """
        self.serving.clients.history, self.serving.clients.broker = history, broker
        return self.serving.clients.unrecorded

    async def open_bundle(self, bundle: str, life: int) -> None:
        """Serve a bundle from now on.

        What is left of an older life is closed first: its clients come back by themselves.
        """
        older = self.serving.open_bundles.get(bundle)
        if older is not None and older.life >= life:
            return
        if older is not None:
            await self.close_bundle(bundle, older.life, destination=None, timeout_s=0)
        now_ms = self.serving.clock.now_ms()
        self.serving.open_bundles.setdefault(bundle, OpenBundle(life, now_ms))

    def fence_bundle(self, bundle: str, life: int) -> None:
        """Serve nothing of a bundle from now on."""
        opened = self.serving.open_bundles.get(bundle)
        if opened is None or opened.life != life:
            return
        opened.fenced = True
        for hosted in opened.topics.values():
            hosted.fence(self.serving.clock.monotonic_ns())
        self.serving.resumer.settle()

    async def settle_bundle(self, bundle: str, life: int) -> None:
        """Answer what was sent before a bundle was fenced, and save its cursors."""
        opened = self.serving.open_bundles.get(bundle)
        if self.serving.storing is not None and opened is not None and opened.life == life:
            await self.serving.storing.settle(list(opened.topics.values()))

    async def close_bundle(
        self, bundle: str, life: int, *, destination: BrokerAddress | None, timeout_s: float
    ) -> int:
        """Tell the clients of a bundle and forget its topics."""
        opened = self.serving.open_bundles.get(bundle)
        if opened is None or opened.life != life:
            return 0
        self.fence_bundle(bundle, life)
        topics = self.serving.open_bundles.pop(bundle).topics
        deadline_s = self.serving.clock.monotonic_s() + timeout_s
        for index, hosted in enumerate(topics.values()):
            self.serving.attachments.close_all(hosted, destination)
            if index % 100 == 99:
                self.serving.dispatcher.deliver()
                await asyncio.sleep(0)
                if self.serving.clock.monotonic_s() > deadline_s:
                    log.warning(
                        "closing topics takes too long; the connections of the rest are closed",
                        bundle=bundle,
                    )
                    for rest in list(topics.values())[index + 1 :]:
                        rest.abort_clients()
                    break
        for name, hosted in topics.items():
            if self.serving.open_topics.get(name) is hosted:
                del self.serving.open_topics[name]
            self.serving.topics.forget(hosted)
        self.serving.dispatcher.deliver()
        return len(topics)

    def close_topic(self, topic: str, *, force: bool) -> bool:
        """Tell the clients of one topic and forget it."""
        return self.serving.topics.close(topic, force=force)

    def split_bundle(self, parent: str, life: int, children: list[str], children_life: int) -> None:
        """A bundle goes on as its children."""
        divide(self.serving.open_bundles, parent, life, children, children_life)

    def merge_bundles(self, parts: dict[str, int], merged: str, merged_life: int) -> None:
        """Bundles go on as one."""
        unite(self.serving.open_bundles, parts, merged, merged_life)

    def fence_all(self) -> None:
        """Stop serving everything, at once: connections are dropped, topics forgotten."""
        topics = list(self.serving.open_topics.values())
        for hosted in topics:
            hosted.fenced = hosted.silent = True
        self.serving.open_bundles.clear()
        self.serving.open_topics.clear()
        self.serving.dispatcher.clear()
        for connection in list(self.serving.attachments.connections):
            connection.abort()
        for hosted in topics:
            self.serving.topics.forget(hosted)
        self.serving.resumer.settle()

    def bundle_stats(self) -> BundleStats:
        """Traffic of each open bundle over the last stats period."""
        return BundleStats(self.serving.open_bundles)

    def topics(self, bundle: str) -> dict[str, TopicTraffic]:
        """Open topics of a bundle."""
        opened = self.serving.open_bundles.get(bundle)
        topics = {} if opened is None else opened.topics
        return {name: hosted.traffic for name, hosted in topics.items()}

    def clients(self, bundle: str) -> int:
        """Producers and consumers of a bundle."""
        opened = self.serving.open_bundles.get(bundle)
        return 0 if opened is None else clients_of(opened.topics)

    def usage(self) -> HostUsage:
        """Memory of topics, of unprocessed and unread bytes, and bytes on the wire."""
        serving, attachments = self.serving, self.serving.attachments
        outbound, settings = attachments.admission.outbound, serving.settings.value
        used_bytes = serving.memory.used_bytes + outbound.used_bytes
        used_bytes += sum(connection.unprocessed_bytes for connection in attachments.connections)
        if serving.storing is not None:
            used_bytes += serving.storing.cached_bytes
        limit_mb = settings.topics_memory_mb + max(settings.publish_buffer_mb, 0)
        return HostUsage(
            memory_used_bytes=used_bytes,
            memory_limit_bytes=limit_mb * MIB + outbound.limit_bytes,
            bytes_in_total=attachments.bytes_in,
            bytes_out_total=attachments.bytes_out,
            failures=serving.failures.count,
            refused_connections=attachments.admission.refused,
        )

    # ports.hosting.SelfChecking and SelfFencing

    async def trouble(self, *, tries: bool = False) -> str:
        """The storage cannot be written to."""
        storing = self.serving.storing
        return "" if storing is None else await storing.health.trouble(tries=tries)

    def fence_unproven(self, lives: Mapping[str, int]) -> Collection[str]:
        """Go on with the stored topics of these lives; the clients of others are told to come back.

        A bundle stays open even if it has no stored topic.
        """
        if self.serving.storing is None:
            self.fence_all()
            return ()
        proven = {
            bundle
            for bundle, opened in self.serving.open_bundles.items()
            if lives.get(bundle) == opened.life and not opened.fenced
        }
        for hosted in list(self.serving.open_topics.values()):
            if hosted.bundle not in proven or hosted.stored is None:
                self.serving.topics.end(hosted)
        for bundle in self.serving.open_bundles.keys() - proven:
            self.fence_bundle(bundle, self.serving.open_bundles[bundle].life)
            del self.serving.open_bundles[bundle]
        self._unproven = True
        look = self._look()
        try:
            self.serving.spawn(look, "look")
        except RuntimeError:  # this process ends, and has no tasks any more; all the same it fences
            look.close()
        self.serving.dispatcher.deliver()
        return proven

    async def _look(self) -> None:
        """While the lease is not held, look for marks of others in the storage."""
        if not self._unproven or self.serving.storing is None:
            return
        if self.serving.directory.lease.held(self.serving.clock.monotonic_s()):
            self._unproven = False
            self.serving.dispatcher.deliver()  # what waited for a proof
        else:
            await self.serving.storing.proof.look()
