"""A cluster as its brokers tell it: leader, clocks, versions, settings, reports, their metrics."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from loadmanager.broker.settings import KEYS
from loadmanager.cli.admin.absences import absence_text, missing_text
from loadmanager.cli.admin.asking import count_of
from loadmanager.cli.admin.disks import fullest_text
from loadmanager.cli.admin.downtimes import Downtime, Lapse, lapses_of
from loadmanager.cli.admin.sentences import paused_text
from loadmanager.cli.admin.times import clock, span
from loadmanager.cli.compared_settings import by_key, by_value, differing
from loadmanager.cli.doctor import host
from loadmanager.cli.doctor.asking import BUNDLES_PER_BROKER_MIN, BrokerFacts, ClusterFacts
from loadmanager.cli.doctor.findings import Diagnosis, fine, problem, warning
from loadmanager.cli.terminal import named
from loadmanager.engine.history.lapses import Unproven, lapse_of
from loadmanager.engine.load.manager import Manager
from loadmanager.leader.documents.cluster import BrokerShown, ClusterShown

PART = "cluster"
DRIFT_WARNING_S, DRIFT_PROBLEM_S = 1.0, 10.0
REPORT_SLACK_S = 60.0
OPEN_FILES_SHARE_MAX = 0.8
CERTIFICATE_DAYS_MIN = 14
LATELY_MS = 3_600_000
"""Brokers that were lost within this time and are back are told of."""
FORGET = "if it is not to come back: loadmanager admin brokers forget {}"
OUTAGES_TOLD = 3
STORE_ADVICE = (
    "the logs of the metadata store's servers and of their hosts say why, or the network to them"
)
ARCHIVE_ADVICE = (
    "questions about that time are answered without it; the history may have it. Look at the disk "
    "and at who touches loadManagerHistoryDirectory; the broker's log says more"
)
BUSY_MAX = 0.8
SAME_KEYS = frozenset(("clusterName", "loadManagerStorageDirectory"))
"""Keys whose difference breaks something."""


def check(cluster: ClusterFacts) -> Iterator[Diagnosis]:
    """Findings about a cluster."""
    if cluster.failure:
        yield problem(
            PART,
            cluster.url,
            cluster.failure,
            cluster.advice,
        )
        return
    if not cluster.brokers:
        yield problem(
            PART,
            cluster.url,
            "no broker is registered, not even the one that answers: it cannot reach ZooKeeper, or "
            "waits for the session of an earlier process with its name to end",
            "look into its log, and at ZooKeeper",
        )
    for broker in cluster.brokers.values():
        if broker.failure:
            advice = "it is registered, and does not answer: look at its process and the network"
            yield problem(PART, broker.broker, broker.failure, advice)
    answering = {name: broker for name, broker in cluster.brokers.items() if not broker.failure}
    if not answering:
        return
    yield fine(PART, "brokers", f"{len(answering)} answer: {named(answering)}")
    yield from _leaders(answering)
    yield from _clocks(answering)
    yield from _settings(answering)
    yield from _check_leaders_view(cluster, answering)
    last = {it.broker: _until(it) for it in cluster.unproven}
    for broker in answering.values():
        yield from of_broker(broker, last.get(broker.broker, ""))
    for text in cluster.archives:
        yield warning(PART, "archive", text, ARCHIVE_ADVICE)
    yield from _store_outages(lapses_of(cluster.unproven))
    yield from _standstills(cluster.unproven)


def _until(it: Unproven) -> str:
    """When a session was proven again, if it is recorded that it was."""
    at = clock(it.until)
    return f", the last one until {at} at least" if it.is_open else f", last until {at}"


def _store_outages(lapses: Sequence[Lapse]) -> Iterator[Diagnosis]:
    """Those of the last day: its servers' own figures have no time in which they stood still."""
    of_store = [it for it in lapses if it.is_of_store]
    if not of_store:
        return
    before = len(of_store) - OUTAGES_TOLD
    more = f"; and {count_of(before, 'outage')} before" if before > 0 else ""
    yield warning(
        PART,
        "metadata store",
        "; ".join(map(str, reversed(of_store[-OUTAGES_TOLD:]))) + more,
        STORE_ADVICE,
    )


def _standstills(times: Sequence[Unproven]) -> Iterator[Diagnosis]:
    """Brokers that stood still in the last day."""
    for name in sorted({it.broker for it in times if it.stood_ms}):
        its = [it for it in times if it.broker == name and it.stood_ms]
        longest, last = max(it.stood_ms for it in its), max(it.until for it in its)
        yield warning(
            PART,
            name,
            f"it stood still {count_of(len(its), 'time')} in the last day, for {span(longest)} at "
            f"most, last until {clock(last)}",
            "it was frozen, or got no CPU: look at its machine, and at what else runs there",
        )


def _leaders(answering: Mapping[str, BrokerFacts]) -> Iterator[Diagnosis]:
    leaders = {broker.leader for broker in answering.values()}
    leading = [name for name, broker in answering.items() if broker.value("loadmanager_leader")]
    settings_of = {name: broker.settings for name, broker in answering.items()}
    managers = by_key(settings_of).get("loadManagerClassName", {})
    kinds = {Manager.of(value) for value in managers}
    if len(kinds) > 1:
        yield warning(
            PART,
            "loadManagerClassName",
            f"brokers run two load managers, each with a leader of its own: {by_value(managers)}",
            "that is meant while you change the manager; else give all of them the same",
        )
    elif len(leading) > 1:
        yield problem(
            PART,
            "leader",
            f"{named(leading)} each believe that they lead",
            "look again in a moment: a deposed leader notices when its term ends. Orders of an "
            "earlier term are refused; if it stays, restart the one that the others do not follow",
        )
    elif leaders == {None}:
        yield problem(
            PART,
            "leader",
            "no broker leads: nothing is placed, shed or split by it",
            "look for `leading` and `campaign` in the logs, and at ZooKeeper",
        )
    elif len(leaders) > 1:
        leader_names = sorted(str(leader) for leader in leaders)
        text = f"brokers know different leaders: {', '.join(leader_names)}"
        yield problem(PART, "leader", text, "look again in a moment; then at ZooKeeper's latency")
    else:
        yield fine(PART, "leader", str(next(iter(leaders))))


def _clocks(answering: Mapping[str, BrokerFacts]) -> Iterator[Diagnosis]:
    clocks = {
        name: broker.clock_s for name, broker in answering.items() if broker.clock_s is not None
    }
    if not clocks:
        return
    ahead = max(clocks, key=lambda name: (clocks[name][0], name))
    behind = min(clocks, key=lambda name: (clocks[name][1], name))
    apart_s = clocks[ahead][0] - clocks[behind][1]
    if apart_s > DRIFT_WARNING_S:
        made = problem if apart_s > DRIFT_PROBLEM_S else warning
        yield made(
            PART,
            "clocks",
            f"the clock of {ahead} is {apart_s:.1f} s ahead of that of {behind}, at least: ages of "
            "reports and times in the history are wrong by that",
            "synchronise them (chrony, systemd-timesyncd)",
        )
    else:
        widest_s = max(high - low for low, high in clocks.values())
        text = f"agree, as far as answers within {widest_s * 1000:.0f} ms can tell"
        yield fine(PART, "clocks", text)


def _settings(answering: Mapping[str, BrokerFacts]) -> Iterator[Diagnosis]:
    differ = differing({name: broker.settings for name, broker in answering.items()})
    for key, values in differ.items():
        if key == "loadManagerClassName":
            continue
        made = problem if key in SAME_KEYS else warning
        text = f"brokers have different values: {by_value(values)}"
        yield made(PART, key, text[:500], _same(key))
    if not differ and len(answering) > 1:
        yield fine(PART, "settings", f"the same on all {len(answering)} brokers")


def _same(key: str) -> str:
    declared = KEYS.by_name().get(key)
    if declared is not None and declared.key.dynamic:
        return f"give all the same, in their files or by POST /admin/v2/brokers/configuration/{key}"
    return "give all the same, and restart those that have another one"


def _was_down(down: Downtime) -> Diagnosis:
    if down.in_order:
        return fine(PART, "cluster", str(down))
    advice = "the logs of the brokers and of their hosts say why"
    return warning(PART, "cluster", str(down), advice)


def _check_leaders_view(
    cluster: ClusterFacts, answering: Mapping[str, BrokerFacts]
) -> Iterator[Diagnosis]:
    """Findings about what the leader sees."""
    leaders_view = cluster.leaders_view
    if leaders_view is None:
        if any(broker.leader for broker in answering.values()):
            text = f"does not tell what it sees: {cluster.why_no_view}"
            yield warning(PART, "leader", text, "look at the leader's process and its log")
        return
    brokers = leaders_view.brokers
    versions = {each.version for each in brokers if each.version}
    if len(versions) > 1:
        text = f"brokers have different versions: {', '.join(sorted(versions))}"
        yield warning(PART, "versions", text, "finish the upgrade")
    yield from map(_was_down, cluster.downtimes)
    yield from _absences(leaders_view, lapses_of(cluster.unproven))
    for each in brokers:
        yield from _report(each, answering)
    if not cluster.disks and (fullest := fullest_text(brokers)):
        yield fine(PART, "disks", fullest)
    for finding in cluster.disks:
        yield warning(PART, "disks", f"{finding.title}. {finding.text}", finding.advice)
    if leaders_view.paused:
        advice = "loadmanager admin moves resume lets them go on"
        yield warning(PART, "moves", paused_text(leaders_view.paused), advice)
    bundles, active = cluster.few_bundles, len(brokers)
    if active > 1 and bundles is not None and bundles < BUNDLES_PER_BROKER_MIN * active:
        yield warning(
            PART,
            "bundles",
            f"the namespaces with load have {bundles}, for {active} brokers: load can hardly be "
            "spread evenly",
            "create namespaces with more bundles, or split the hot ones "
            "(loadmanager admin bundles split)",
        )


def _absences(cluster: ClusterShown, lapses: Sequence[Lapse]) -> Iterator[Diagnosis]:
    """Brokers that left; `lapses`: of which their losses may be consequences."""
    present = sum(broker.state not in ("gone", "stopped") for broker in cluster.brokers)
    if missing := missing_text(present, cluster.expected):
        text = f"{missing} (loadManagerExpectedBrokers)"
        yield problem(PART, "brokers", text, "start those that are missing, or change the number")
    for absence in cluster.absent:
        text = absence_text(absence, cluster.at, lapses)
        if not absence.gone:
            if cluster.at - absence.left_at <= LATELY_MS and absence.how == "lost":
                lapse = lapse_of(lapses, absence.broker, absence.left_at)
                of_store = lapse is not None and lapse.is_of_store
                advice = STORE_ADVICE if of_store else "its log and its host say why"
                yield warning(PART, absence.broker, f"was {text}", advice)
        elif absence.how == "lost":
            advice = f"look at its process and its host; {FORGET.format(absence.broker)}"
            yield problem(PART, absence.broker, text, advice)
        elif absence.bundles > absence.placed:
            yield warning(PART, absence.broker, text, "clients bring them back by their lookups")
        else:
            yield fine(PART, absence.broker, text)


def _report(each: BrokerShown, answering: Mapping[str, BrokerFacts]) -> Iterator[Diagnosis]:
    name, state = each.broker, each.state
    if state == "unreadable":
        text = "its load report cannot be read; it gets no bundles"
        yield problem(PART, name, text, "it writes another one soon; else restart it")
    elif state == "stopped":
        text = "is drained and stopped; it stays cordoned when it comes back"
        yield fine(PART, name, text)
    elif state in ("cordoned", "draining", "drained"):
        advice = f"loadmanager admin brokers uncordon {name} lets it have bundles"
        yield warning(PART, name, f"is {state}: it gets no new bundle", advice)
    settings = answering[name].settings if name in answering else {}
    longest = settings.get("loadBalancerReportUpdateMaxIntervalMinutes", "15")
    age_s = (each.report_age_ms or 0) / 1000
    if age_s > _number(longest) * 60 + REPORT_SLACK_S:
        yield problem(
            PART,
            name,
            f"its load report is {age_s:.0f} s old, and it should publish one every {longest} min",
            "look for failures of the step `report` in its log",
        )


def _number(text: str) -> float:
    """A number in a broker's settings; without one, infinity: nothing is known to be too much."""
    try:
        return float(text)
    except ValueError:
        return float("inf")


def of_broker(broker: BrokerFacts, last_unproven: str = "") -> Iterator[Diagnosis]:
    """Findings from the metrics of one broker; `last_unproven`: when its session was not proven."""
    if broker.no_metrics:
        advice = "a token that may read metrics is needed if authenticateMetricsEndpoint=true"
        yield warning(PART, broker.broker, f"no metrics: {broker.no_metrics}", advice)
        return
    if broker.value("loadmanager_session_lease_seconds") == 0:
        text = "cannot prove its ZooKeeper session: it serves only stored topics that are open"
        yield problem(PART, broker.broker, text, "look at ZooKeeper, and at the network to it")
    yield from _resources(broker)
    for metric, text, advice in COUNTED:
        counts = {label: value for label, value in broker.metrics.get(metric, {}).items() if value}
        if counts:
            which = f" ({named(filter(None, counts))})" if any(counts) else ""
            last = last_unproven if metric == FENCED else ""
            number = f"{sum(counts.values()):g}{which}{last}"
            yield warning(PART, broker.broker, f"{text}: {number}", advice)
    blind = [
        sensor
        for sensor, trusted in broker.metrics.get("loadmanager_sensor_trusted", {}).items()
        if not trusted
    ]
    if blind:
        advice = (
            "loadBalancerOverrideBrokerNicSpeedGbps for an unknown speed; else its log says why"
        )
        text = f"sensors that drive no decision: {named(blind)}"
        yield warning(PART, broker.broker, text, advice)


FENCED = "loadmanager_fenced_total"
COUNTED = (
    (
        FENCED,
        "times since its start without a proven session, when at most open stored topics went on",
        "look at ZooKeeper's latency, and for pauses of the machine",
    ),
    (
        "loadmanager_corrupt_data_total",
        "corrupt nodes that were left out since its start",
        "its log names each; mend or delete the node",
    ),
    (
        "loadmanager_rejected_dynamic_values",
        "stored dynamic settings that cannot be used",
        "its log names them; delete them by DELETE /admin/v2/brokers/configuration/KEY",
    ),
    (
        "loadmanager_history_dropped_records_total",
        "records of the history that were dropped since its start",
        "its log says why: a disk that is full or slow, or not writable",
    ),
    (
        "loadmanager_tls_refused_changes_total",
        "changed files of certificates that could not be used, so that those before are in force",
        "its log says what is wrong with them",
    ),
    (
        "pulsar_lb_step_failures_total",
        "failures of periodic steps since its start",
        "its log has the reasons, with tracebacks",
    ),
)
"""Metric that should be 0, what a value means, what to do."""


def _resources(broker: BrokerFacts) -> Iterator[Diagnosis]:
    opened, most = broker.value("process_open_fds"), broker.value("process_max_fds")
    if opened and most and opened > OPEN_FILES_SHARE_MAX * most:
        text = f"{opened:g} of {most:g} file descriptors are in use"
        yield problem(PART, broker.broker, text, "raise the limit of open files (LimitNOFILE=)")
    busy = broker.value("loadmanager_event_loop_busy_ratio")
    if busy is not None and busy > BUSY_MAX:
        advice = "move load away from it, or add brokers: one can use one core for its clients"
        yield warning(PART, broker.broker, f"its event loop is {busy:.0%} busy", advice)
    now_s = broker.value("loadmanager_time_seconds")
    for which, ends_s in broker.metrics.get("loadmanager_tls_certificate_ends_seconds", {}).items():
        days = (ends_s - now_s) / 86_400 if now_s else CERTIFICATE_DAYS_MIN
        if days < CERTIFICATE_DAYS_MIN:
            made = problem if days < 1 else warning
            text = f"the certificate {which} " + (
                f"ends in {days:.1f} days" if days > 0 else f"ended {-days:.1f} days ago"
            )
            advice = "write the new one over its files: the broker takes it without a restart"
            yield made(PART, broker.broker, text, advice)
    for folder, free in broker.metrics.get("loadmanager_disk_free_bytes", {}).items():
        size = broker.value("loadmanager_disk_size_bytes", folder)
        if size and math.isfinite(size) and math.isfinite(free):
            finding = host.disk(PART, f"{broker.broker}, {folder}", int(free), int(size))
            if finding.advice:
                yield finding
