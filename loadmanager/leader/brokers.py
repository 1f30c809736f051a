"""The live brokers and their load reports, read from their registrations in the store."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from loadmanager.engine.bundles.ranges import BundleRange, split_bundle_name
from loadmanager.engine.load.reports import (
    LocalBrokerData,
    NamespaceBundleStats,
    decode_broker_lookup_data,
    decode_local_broker_data,
)
from loadmanager.kit.addresses import BrokerAddress, is_address, read_listeners
from loadmanager.kit.clock import Clock
from loadmanager.kit.errors import BadInputError, CorruptDataError
from loadmanager.kit.logger import get_logger
from loadmanager.kit.metadata import paths
from loadmanager.kit.metadata.documents import Corrupt
from loadmanager.kit.metadata.leader import Leader
from loadmanager.kit.metadata.store import Change, ChangeKind, Store
from loadmanager.kit.names import NamespaceName, is_system_namespace

DELAYS_MAX = 8
RATE_MAX = 1e13
"""A greater rate of messages/s or bytes/s is corrupt: no machine reaches a tenth of it."""
DEPARTED_MAX = 1_000

log = get_logger("brokers")


@dataclass(frozen=True, slots=True)
class Departure:
    """A broker that is no longer registered."""

    broker: str
    at_ms: int
    session: int
    """That of its registration."""
    report: LocalBrokerData | None
    """Its last one."""
    address: BrokerAddress | None


class Brokers:
    """The last report of every live broker, kept current by a watch on `/loadbalance/brokers`.

    A corrupt report is left out until the broker publishes another one. The broker counts as
    registered nevertheless: it may own bundles, and its locks contain its address.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        corrupt: Corrupt | None = None,
        leads: Callable[[], bool] = lambda: False,
    ) -> None:
        """`leads`: whether this broker leads."""
        self._store = store
        self._clock = clock
        self._corrupt = corrupt or Corrupt()
        self.registered: set[str] = set()
        """brokerIds of the live brokers."""
        self.sessions: dict[str, int] = {}
        """brokerId → the session of its registration."""
        self.reports: dict[str, LocalBrokerData] = {}
        """brokerId → the last report, without the corrupt ones."""
        self.departed: dict[str, Departure] = {}
        """brokerId → how it was when it was last seen to leave; the last ones."""
        self.delays: dict[str, deque[int]] = {}
        """brokerId → ms from when its last reports were written, by its clock, to when this broker
        read them, by its own.
        """
        self._written_ms: dict[str, int] = {}
        """brokerId → when its last report was written, by its clock."""
        self._leads = leads
        self.listeners: list[Callable[[str, LocalBrokerData | None], None]] = []
        """Called with a brokerId and its new report, or None when the report is gone."""

    def _tell(self, event: str, **fields: object) -> None:
        """Log at info where this broker leads: one line in the cluster for an event is enough."""
        (log.info if self._leads() else log.debug)(event, **fields)

    async def on_change(self, change: Change) -> None:
        """Read the registrations that a change concerns."""
        if change.kind is ChangeKind.RESYNC:
            present = await self._store.children(paths.BROKERS)
            for broker_id in self.registered - set(present):
                self._forget(broker_id)
            for broker_id in present:
                await self._read(broker_id)
            return
        if change.path == paths.BROKERS:
            return
        broker_id = change.path[len(paths.BROKERS) + 1 :]
        if change.kind is ChangeKind.DELETED:
            self._forget(broker_id)
        else:
            await self._read(broker_id)

    async def _read(self, broker_id: str) -> None:
        path = paths.broker(broker_id)
        node = await self._store.get(path)
        if node is None:
            self._forget(broker_id)
            return
        if node.ephemeral_owner == 0:
            self._forget(broker_id)
            problem = "no session holds it, as that of a live broker would; delete the node"
            self._corrupt.add("report", path, CorruptDataError(f"{path} is corrupt: {problem}"))
            return
        self.sessions[broker_id] = node.ephemeral_owner
        if broker_id not in self.registered:
            self.registered.add(broker_id)
            self._tell("broker joined", peer=broker_id)
        with self._corrupt.left_out("report", path):
            self._set_report(broker_id, self._decoded(broker_id, node.value))
            return
        self._set_report(broker_id, None)

    def _decoded(self, broker_id: str, value: bytes) -> LocalBrokerData:
        """The report, checked. Names of bundles that the last report had are not checked again."""
        report = decode_local_broker_data(value)
        if report.broker_version_string is None:  # so in registrations of the extensible manager
            report.broker_version_string = decode_broker_lookup_data(value).broker_version
        last = self.reports.get(broker_id)
        checked = last.last_stats.keys() | set(last.bundles) if last else set[str]()
        check_bundles((report.last_stats.keys() | set(report.bundles)) - checked)
        check_figures(report)
        check_addresses(report)
        self._note_delay(broker_id, int(report.last_update))
        # A report from the future would count as fresh for too long.
        report.last_update = min(report.last_update, self._clock.now_ms())
        return report

    def _note_delay(self, broker_id: str, written_ms: int) -> None:
        if written_ms and self._written_ms.get(broker_id) != written_ms:
            self._written_ms[broker_id] = written_ms
            delays = self.delays.setdefault(broker_id, deque(maxlen=DELAYS_MAX))
            delays.append(self._clock.now_ms() - written_ms)

    def _set_report(self, broker_id: str, report: LocalBrokerData | None) -> None:
        if report is not None:
            self.reports[broker_id] = report
        elif self.reports.pop(broker_id, None) is None:
            return
        for listener in self.listeners:
            listener(broker_id, report)

    def _forget(self, broker_id: str) -> None:
        self._corrupt.mended(paths.broker(broker_id))
        session = self.sessions.pop(broker_id, 0)
        self.delays.pop(broker_id, None)
        self._written_ms.pop(broker_id, None)
        if broker_id in self.registered:
            self._remember(broker_id, session)
            self.registered.discard(broker_id)
            report = self.reports.get(broker_id)
            if report is not None and report.bundles:
                self._tell(
                    "broker left: it stops, or its session is lost; the next lookups place its "
                    "bundles",
                    peer=broker_id,
                    bundles=len(report.bundles),
                )
            else:
                self._tell("broker left", peer=broker_id)
            self._set_report(broker_id, None)

    def _remember(self, broker_id: str, session: int) -> None:
        self.departed.pop(broker_id, None)
        if len(self.departed) >= DEPARTED_MAX:
            del self.departed[next(iter(self.departed))]
        self.departed[broker_id] = Departure(
            broker_id,
            self._clock.now_ms(),
            session,
            self.reports.get(broker_id),
            self.address(broker_id),
        )

    def departures(self) -> list[Departure]:
        """Who left, the earliest first."""
        return sorted(self.departed.values(), key=lambda each: (each.at_ms, each.broker))

    def address(self, broker_id: str) -> BrokerAddress | None:
        """The address of a live broker; None without a report of it."""
        report = self.reports.get(broker_id)
        if report is None:
            return None
        return BrokerAddress(
            broker_id,
            report.pulsar_service_url or "",
            report.web_service_url or "",
            read_listeners(report.advertised_listeners),
            service_url_tls=report.pulsar_service_url_tls or "",
            web_url_tls=report.web_service_url_tls or "",
        )

    def of_leader(self, leader: Leader) -> BrokerAddress:
        """The address of the leader; without a report of it, the one with which it was elected."""
        return self.address(leader.broker_id) or BrokerAddress(
            leader.broker_id, "", leader.service_url
        )


def check_bundles(names: Iterable[str]) -> None:
    """Raise `BadInputError` unless all are names of bundles, in Pulsar's spelling.

    The namespaces of Pulsar's heartbeats and SLA monitors may have three parts.
    """
    for bundle in names:
        namespace, bundle_range = split_bundle_name(bundle)
        if str(BundleRange.parse(bundle_range)) != bundle_range:
            raise BadInputError(
                f"invalid bundle {bundle!r}: its range is not spelled 0x00000000_0xffffffff"
            )
        if not is_system_namespace(namespace):
            NamespaceName.parse(namespace)


def check_figures(report: LocalBrokerData) -> None:
    """Raise `BadInputError` for a rate or count that is negative or impossibly high."""
    loads: list[tuple[str, LocalBrokerData | NamespaceBundleStats]] = [
        ("the broker", report),
        *report.last_stats.items(),
    ]
    for what, figures in loads:
        if not (
            0 <= figures.msg_rate_in <= RATE_MAX
            and 0 <= figures.msg_rate_out <= RATE_MAX
            and 0 <= figures.msg_throughput_in <= RATE_MAX
            and 0 <= figures.msg_throughput_out <= RATE_MAX
        ):
            raise BadInputError(f"{what} has an impossible rate: 0 to {RATE_MAX:g} is possible")
    for name, count in (("numTopics", report.num_topics), ("numBundles", report.num_bundles)):
        if count < 0:
            raise BadInputError(f"{name} is {count}")


def check_addresses(report: LocalBrokerData) -> None:
    """Raise `BadInputError` for an address that is missing, or not a URL of its kind."""
    if not (report.web_service_url or report.web_service_url_tls):
        raise BadInputError("webServiceUrl is missing")
    if not (report.pulsar_service_url or report.pulsar_service_url_tls):
        raise BadInputError("pulsarServiceUrl is missing")
    for url, schemes in (
        (report.web_service_url, ("http", "https")),
        (report.web_service_url_tls, ("http", "https")),
        (report.pulsar_service_url, ("pulsar", "pulsar+ssl")),
        (report.pulsar_service_url_tls, ("pulsar", "pulsar+ssl")),
    ):
        if url and not is_address(url, schemes):
            raise BadInputError(f"{url[:80]!r}: an address {schemes[0]}://host:port is expected")
