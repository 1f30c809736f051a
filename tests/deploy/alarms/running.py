"""Fires and resolves alerts on a live cluster, cause by cause."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from clusters.standalone import wait_for
from deploy.alarms.causes import Cause, Unable
from deploy.alarms.quicker import GROUPS, Alerts, groups, watching
from deploy.alarms.scene import Daemon, Harmed, Scene, small_disk, topic

FIRES_S, RESOLVES_S = 200.0, 200.0
"""No rule needs as long, even on a busy machine."""
SETTLES_S = 240.0
JOBS = "loadmanager", "loadmanager-fleet"


@dataclass
class Result:
    """What became of a cause: seconds until each of its alerts fired, and then resolved; or why it
    could not be brought about.
    """

    cause: Cause
    fired_s: dict[str, float] = field(default_factory=dict)
    resolved_s: dict[str, float] = field(default_factory=dict)
    also: set[str] = field(default_factory=set)
    unable: str = ""
    problem: str = ""

    @property
    def good(self) -> bool:
        """True if all fired and resolved."""
        every = set(self.cause.alerts)
        return not self.problem and set(self.fired_s) == every == set(self.resolved_s)


@contextlib.contextmanager
def scene(folder: Path) -> Iterator[Scene]:
    """A running cluster, a daemon, and a Prometheus with the quicker rules."""
    fleet = Harmed(folder)
    with contextlib.ExitStack() as stack:
        stack.enter_context(small_disk(fleet.disk))
        stack.enter_context(fleet)
        daemon = stack.enter_context(Daemon(folder / "fleet"))
        brokers = [fleet.broker_id(index) for index in range(fleet.count)]
        jobs = dict(zip(JOBS, (brokers, [f"127.0.0.1:{daemon.port}"]), strict=True))
        alerts = stack.enter_context(watching(folder / "quick", groups(), jobs))
        made = Scene(fleet, daemon, alerts, folder)
        _wait(lambda: alerts.has_value("count(up == 1) == 4"), "all are scraped", SETTLES_S)
        yield made


def _wait(condition: object, what: str, timeout_s: float) -> None:
    def holds() -> bool:
        try:
            return bool(condition())  # type: ignore[operator]
        except OSError:
            return False  # Prometheus starts

    wait_for(holds, what, timeout_s)


def run(cause: Cause, at: Scene) -> Result:
    """Bring a cause about, wait until its alerts fire, remove it, and wait until they resolve."""
    result, wanted = Result(cause), set(cause.alerts)
    try:
        _wait(lambda: not at.alerts.firing() & wanted, "none fires before", SETTLES_S)
        with cause.do(at):
            _times(at.alerts, wanted, result.fired_s, result.also, FIRES_S, fires=True)
        _times(at.alerts, wanted, result.resolved_s, result.also, RESOLVES_S, fires=False)
    except Unable as reason:
        result.unable = str(reason)
    except Exception as error:  # noqa: BLE001 — the others go on, on a new cluster
        result.problem = f"{type(error).__name__}: {error}"
    return result


def _times(
    alerts: Alerts,
    wanted: set[str],
    times_s: dict[str, float],
    also: set[str],
    timeout_s: float,
    *,
    fires: bool,
) -> None:
    """Note when each alert fires, or no longer does; those that never do are left out."""
    began_s = time.monotonic()

    def all_did() -> bool:
        firing = alerts.firing()
        also.update(firing - wanted)
        for name in wanted - times_s.keys():
            if (name in firing) == fires:
                times_s[name] = time.monotonic() - began_s
        return times_s.keys() == wanted

    with contextlib.suppress(AssertionError):
        _wait(all_did, "all did", timeout_s)


def quiet(folder: Path, *, seconds: float) -> tuple[set[str], set[str], set[str]]:
    """Let a cluster with traffic be for a while, and restart its brokers one after the other, under
    the rules as they are. Gives the pages and the tickets that fired, and the pages that had still
    to fire at the end.
    """
    fleet = Harmed(folder)
    with contextlib.ExitStack() as stack:
        stack.enter_context(fleet)
        brokers = [fleet.broker_id(index) for index in range(fleet.count)]
        daemon = stack.enter_context(Daemon(folder / "fleet"))
        jobs = dict(zip(JOBS, (brokers, [f"127.0.0.1:{daemon.port}"]), strict=True))
        alerts = stack.enter_context(watching(folder / "calm", GROUPS, jobs))
        _wait(lambda: alerts.has_value("count(up == 1) == 4"), "all are scraped", SETTLES_S)
        began_s = time.monotonic()
        with fleet.sending(topic("calm"), 100, 0.05):
            _let_be(alerts, seconds)
            for index in range(fleet.count):
                fleet.terminate(index)
                fleet.start(index)
            _let_be(alerts, seconds)
            lasted_s = time.monotonic() - began_s
            pages, tickets = (alerts.fired(lasted_s, each) for each in ("page", "ticket"))
            paging = {
                rule["alert"]
                for group in GROUPS
                for rule in group["rules"]
                if rule["labels"]["severity"] == "page"
            }
            return pages, tickets, alerts.firing("pending") & paging


def _let_be(alerts: Alerts, seconds: float) -> None:
    """Watch for so many seconds of Prometheus's samples."""
    lasts = f"count_over_time(up[{round(seconds)}s]) > {0.8 * seconds:g}"
    until_s = time.monotonic() + seconds
    _wait(
        lambda: time.monotonic() > until_s and alerts.has_value(lasts), "time passes", 10 * seconds
    )


def all_causes(causes: Sequence[Cause], folder: Path) -> Iterator[Result]:
    """The results of causes, on one cluster; on a new one after a cause that failed."""
    left, number = list(causes), 0
    while left:
        number += 1
        place = folder / f"cluster-{number}"
        place.mkdir(parents=True)
        with scene(place) as at:
            while left:
                result = run(left.pop(0), at)
                yield result
                if result.problem:
                    break
