"""The daemon's picture of a Pulsar cluster: its data, their age, and what is missing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from loadmanager.engine.load.manager import Manager
from loadmanager.engine.load.reports import LocalBrokerData
from loadmanager.engine.policies.isolation import IsolationPolicy
from loadmanager.kit.addresses import BrokerAddress
from loadmanager.kit.clock import Clock
from loadmanager.kit.reason import Reason
from loadmanager.steer.documents import Ages, PictureShown, WatchedBroker
from loadmanager.steer.own_balancing import OWN_BALANCING, switches_on
from loadmanager.steer.ports.cluster_reader import PoliciesReading


@dataclass(frozen=True, slots=True)
class LeftSilently:
    """A broker that was lost."""

    since_ms: int
    """When it was gone from the list."""
    bundles: frozenset[str]
    """Those of its last report."""


@dataclass(slots=True)
class Picture:
    """Implements `leader.ports.fleet.LiveBrokers` and `leader.ports.fleet.Policies`."""

    clock: Clock
    listeners: list[Callable[[str, LocalBrokerData | None], None]] = field(
        default_factory=list, init=False
    )
    """Called with a brokerId and its new report, or None when the broker is gone."""
    registered: set[str] = field(default_factory=set, init=False)
    """brokerIds that the cluster lists; one that died is listed until its session ends."""
    reports: dict[str, LocalBrokerData] = field(default_factory=dict, init=False)
    """brokerId → last report, `last_update` is when it was read; also an old one."""
    answering: set[str] = field(default_factory=set, init=False)
    """Brokers that answered when they were last read."""
    lost: dict[str, LeftSilently] = field(default_factory=dict, init=False)
    """Brokers that did not answer any more while they were listed, and are then gone from the list:
    one that stops in order is gone from it first.
    """
    leader: str | None = field(default=None, init=False)
    settings: Mapping[str, str] = field(default_factory=dict, init=False)
    """Settings of load balancing in force on the leader, or on another broker if it is unknown."""
    own: dict[str, list[str]] = field(default_factory=dict, init=False)
    """Broker → which of Pulsar's own switches are on there, as far as that was read."""
    policies: PoliciesReading = field(default_factory=PoliciesReading, init=False)
    brokers_ms: int | None = field(default=None, init=False)
    """When the list of brokers was last read; likewise the others."""
    settings_ms: int | None = field(default=None, init=False)
    policies_ms: int | None = field(default=None, init=False)
    uncovered: set[str] = field(default_factory=set, init=False)
    """Namespaces that brokers serve and whose policies have not been read."""
    problems: dict[str, str] = field(default_factory=dict, init=False)
    """Part → why it could not be read when it was last tried."""

    @property
    def isolation(self) -> Mapping[str, IsolationPolicy]:
        return self.policies.isolation

    @property
    def groups(self) -> Mapping[str, str]:
        return self.policies.groups

    @property
    def domains(self) -> Mapping[str, Sequence[str]]:
        return self.policies.domains

    def address(self, broker_id: str) -> BrokerAddress | None:
        """See the port. A broker that did not answer lately has none: nothing is moved there."""
        report = self.reports.get(broker_id)
        if report is None or broker_id not in self.answering:
            return None
        url = report.web_service_url or report.web_service_url_tls or ""
        return BrokerAddress(broker_id, report.pulsar_service_url or "", url)

    @property
    def cluster(self) -> str:
        return self.settings.get("clusterName", "")

    @property
    def extensible(self) -> bool:
        """True if the brokers run the extensible load manager."""
        return Manager.of(self.settings.get("loadManagerClassName")) is Manager.EXTENSIBLE

    def own_balancing(self) -> list[str]:
        """Pulsar's own switches that are on, somewhere."""
        on = {name for names in self.own.values() for name in names}
        on.update(switches_on(self.settings))
        return [name for name in OWN_BALANCING if name in on]

    def switched_off(self) -> list[str]:
        """Pulsar's own switches that are off, or not known."""
        read = "settings" not in self.problems and self.settings
        on = self.own_balancing() if read else []
        return [name for name in OWN_BALANCING if name not in on]

    def unread(self) -> dict[str, Reason]:
        """Listed brokers of which nothing is known → why."""
        return {
            broker: Reason("NoReport", self.problems.get(broker, "not read yet"))
            for broker in sorted(self.registered - self.reports.keys())
        }

    def missing(self, within_s: float) -> Reason | None:
        """Say which reading a decision lacks, or has only an older one of; None: it lacks none."""
        for part in ("brokers", "settings", "policies"):
            if (why := self.unknown(part, within_s)) is not None:
                return why
        if self.uncovered:
            problem = self.problems.get("policies", "not read yet")
            first = min(self.uncovered)
            return Reason("Incomplete", f"the policies of {first} are not known: {problem}")
        return None

    def unknown(self, part: str, within_s: float) -> Reason | None:
        """Why a part of this is not known, or only of more than so many seconds ago; else None."""
        read_ms = {
            "brokers": self.brokers_ms,
            "settings": self.settings_ms,
            "policies": self.policies_ms,
        }[part]
        oldest_ms = self.clock.now_ms() - within_s * 1000
        if read_ms is not None and read_ms >= oldest_ms:
            return None
        problem = self.problems.get(part, "not read lately")
        return Reason("Incomplete", f"the {part} are not known: {problem}")

    def shown(self) -> PictureShown:
        """For operators: ages in seconds, and what is missing."""
        now_ms = self.clock.now_ms()

        def age_s(read_ms: float | None) -> float | None:
            return None if read_ms is None else round(max(0.0, now_ms - read_ms) / 1000, 1)

        return PictureShown(
            cluster=self.cluster,
            manager="extensible" if self.extensible else "modular",
            leader=self.leader,
            pulsar_balances=self.own_balancing() if self.settings else None,
            age_seconds=Ages(
                brokers=age_s(self.brokers_ms),
                policies=age_s(self.policies_ms),
                settings=age_s(self.settings_ms),
            ),
            brokers={
                broker: WatchedBroker(
                    answers=broker in self.answering,
                    age_seconds=age_s(report.last_update) if report else None,
                    bundles=len(report.bundles) if report else None,
                    msg_rate_in=report.msg_rate_in if report else None,
                    msg_rate_out=report.msg_rate_out if report else None,
                    cpu_percent=round(report.cpu.percent, 1) if report else None,
                )
                for broker in sorted(self.registered)
                for report in [self.reports.get(broker)]
            },
            problems=dict(sorted(self.problems.items())),
        )
