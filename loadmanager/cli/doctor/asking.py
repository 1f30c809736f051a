"""Requests of the doctor to the brokers of a cluster, each within a time limit."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from prometheus_client.parser import text_string_to_metric_families

from loadmanager.broker.admin.documents import BundlesData
from loadmanager.cli.admin.absences import since_down
from loadmanager.cli.admin.archives import now_ms
from loadmanager.cli.admin.asking import OWN, V2, ask_each, brokers_of, namespace_path
from loadmanager.cli.admin.client import AdminClient, AnsweredError
from loadmanager.cli.admin.downtimes import Downtime, downtimes, unproven
from loadmanager.cli.admin.shapes import Document
from loadmanager.cli.admin.who_left import with_records
from loadmanager.engine.findings.finding import FindingShown
from loadmanager.engine.history.lapses import Unproven
from loadmanager.kit.errors import LoadManagerError
from loadmanager.kit.units import DAY_MS
from loadmanager.leader.documents.cluster import BundlesShown, ClusterShown, LeaderBroker
from loadmanager.leader.documents.findings import FindingsShown

BROKERS_MAX = 1_000
BUNDLES_PER_BROKER_MIN = 4
"""With fewer, load can hardly be spread evenly."""
SERIES = frozenset(
    (
        "loadmanager_corrupt_data_total",
        "loadmanager_disk_free_bytes",
        "loadmanager_disk_size_bytes",
        "loadmanager_event_loop_busy_ratio",
        "loadmanager_fenced_total",
        "loadmanager_history_dropped_records_total",
        "loadmanager_leader",
        "loadmanager_rejected_dynamic_values",
        "loadmanager_report_age_seconds",
        "loadmanager_sensor_trusted",
        "loadmanager_session_lease_seconds",
        "loadmanager_time_seconds",
        "loadmanager_tls_certificate_ends_seconds",
        "loadmanager_tls_refused_changes_total",
        "process_max_fds",
        "process_open_fds",
        "pulsar_lb_step_failures_total",
    )
)
"""What the doctor reads of a metrics page."""
LABELS = ("certificate", "kind", "folder", "sensor", "step")
"""One of them tells the samples of a metric apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerFacts:
    """The answers of one broker, or the reason why it gave no answer."""

    broker: str
    failure: str = ""
    leader: str | None = None
    """The broker that leads, as this one knows."""
    settings: Mapping[str, str] = field(default_factory=dict)
    metrics: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Metric → label → value; the label is empty for a metric of one sample."""
    no_metrics: str = ""
    """Why it did not tell its metrics."""
    clock_s: tuple[float, float] | None = None
    """How far its clock is ahead of ours, in seconds: it lies between these."""

    def value(self, metric: str, label: str = "") -> float | None:
        """One sample."""
        return self.metrics.get(metric, {}).get(label)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFacts:
    """The answers of a cluster."""

    url: str
    failure: str = ""
    """Why it told nothing."""
    advice: str = "start a broker, or name another one with --url"
    """What to do about that."""
    brokers: Mapping[str, BrokerFacts] = field(default_factory=dict)
    left_out: int = 0
    leaders_view: ClusterShown | None = None
    """What the leader sees; None: it did not answer."""
    why_no_view: str = ""
    """Why not."""
    downtimes: Sequence[Downtime] = ()
    """When the whole cluster was down, in the last day."""
    unproven: Sequence[Unproven] = ()
    """When brokers could not prove their sessions in the last day, the oldest first."""
    archives: Sequence[str] = ()
    """What archives say that they lack, and who cannot read its own."""
    disks: Sequence[FindingShown] = ()
    """Those that the leader finds nearly full, or full soon."""
    few_bundles: int | None = None
    """The bundles of all namespaces with load, if few have load; None otherwise."""


def read(admin: AdminClient) -> ClusterFacts:
    """Ask one broker who else there is, then all of them."""
    try:
        names = sorted(brokers_of(admin))
    except LoadManagerError as error:
        advice = _advice(admin, error)
        return ClusterFacts(url=admin.url, failure=str(error), advice=advice)
    brokers, _ = ask_each(admin, names[:BROKERS_MAX], _ask)
    downs = downtimes(admin, now_ms() - DAY_MS)
    leaders_view, why, bundles = None, "", None
    try:
        leaders_view = admin.get(f"{OWN}/cluster?limit={BROKERS_MAX}", ClusterShown)
        absent = with_records(admin, leaders_view.absent, leaders_view.at)
        leaders_view.absent = [*since_down(absent, downs)]
        bundles = _few_bundles(admin, leaders_view.bundles, len(names))
    except LoadManagerError as error:
        why = str(error)
    return ClusterFacts(
        url=admin.url,
        brokers=brokers,
        left_out=max(0, len(names) - BROKERS_MAX),
        leaders_view=leaders_view,
        why_no_view=why,
        downtimes=downs,
        unproven=unproven(admin, now_ms() - DAY_MS),
        archives=admin.lacking.lines(),
        disks=_disks(admin),
        few_bundles=bundles,
    )


def _disks(admin: AdminClient) -> list[FindingShown]:
    try:
        shown = admin.get(f"{OWN}/findings", FindingsShown)
    except LoadManagerError:  # without a leader
        return []
    return [finding for finding in shown.findings if finding.kind == "disk"]


def _few_bundles(admin: AdminClient, loaded: int, brokers: int) -> int | None:
    """A namespace with load may have bundles without."""
    few = BUNDLES_PER_BROKER_MIN * brokers
    if not 0 < loaded < few:
        return None
    bundles = admin.get(f"{OWN}/bundles?limit={few}", BundlesShown).bundles
    namespaces = sorted({each.bundle.rpartition("/")[0] for each in bundles})
    asked = (admin.get(f"{namespace_path(name)}/bundles", BundlesData) for name in namespaces)
    return sum(each.num_bundles for each in asked)


def _advice(admin: AdminClient, error: Exception) -> str:
    """Advice for a port that does not say which brokers there are."""
    if not isinstance(error, AnsweredError):
        if "--tls-trust-certs" in str(error):
            return "name the file with those who vouch for it: --tls-trust-certs FILE"
        if " TLS" in str(error):
            return "name the port as it is: --url http://… without TLS, https://… with it"
        return "start a broker, or name another one with --url"
    if error.status in (401, 403):
        return "give the token of a superuser: --token file:///path, or LOADMANAGER_TOKEN"
    if error.status == 404:
        try:
            admin.send("GET", f"{OWN}/cluster?limit=1")
        except LoadManagerError:
            return "something else than a broker listens there: name a broker's port with --url"
        return "this is the port of `loadmanager fleet`, which is not a broker: name one with --url"
    return "look into the log of that broker, or name another one with --url"


def _ask(at: AdminClient, name: str) -> BrokerFacts:
    try:
        return _answers_of(at, name)
    except LoadManagerError as error:
        return BrokerFacts(broker=name, failure=str(error))


def _answers_of(at: AdminClient, name: str) -> BrokerFacts:
    settings = at.get(f"{V2}/brokers/configuration/runtime", Document)
    try:
        leader = at.get(f"{V2}/brokers/leaderBroker", LeaderBroker).broker_id
    except LoadManagerError:
        leader = None  # 404: it knows of none
    metrics: dict[str, dict[str, float]] = {}
    clock_s, failure = None, ""
    try:
        before_s, page, after_s = _now_s(), at.text("/metrics"), _now_s()
        metrics = parse(page)
        server_s = metrics.get("loadmanager_time_seconds", {}).get("")
        clock_s = None if server_s is None else (server_s - after_s, server_s - before_s)
    except (LoadManagerError, ValueError) as error:
        failure = str(error)
    return BrokerFacts(
        broker=name,
        leader=leader,
        settings={str(key): str(value) for key, value in settings.items()},
        metrics=metrics,
        no_metrics=failure,
        clock_s=clock_s,
    )


def _now_s() -> float:
    return time.time_ns() / 1e9


def parse(page: str) -> dict[str, dict[str, float]]:
    """The samples of `SERIES` on a metrics page. Raises `ValueError`."""
    lines = [line for line in page.splitlines() if re.split(r"[{ ]", line, maxsplit=1)[0] in SERIES]
    samples: dict[str, dict[str, float]] = {}
    for family in text_string_to_metric_families("\n".join(lines) + "\n"):
        for sample in family.samples:
            label = next((sample.labels[name] for name in LABELS if name in sample.labels), "")
            samples.setdefault(sample.name, {})[label] = sample.value
    return samples
