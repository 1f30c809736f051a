"""The commands of `loadmanager fleet` beside the daemon: one snapshot, and switching Pulsar's own
balancing on again.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from loadmanager.kit.errors import ConfigError, OperationalError
from loadmanager.kit.logger import get_logger
from loadmanager.kit.logs import configure
from loadmanager.kit.metadata.leader import Leader
from loadmanager.kit.system.clock import SystemClock
from loadmanager.kit.system.notify import notify
from loadmanager.kit.tasks import Scope, Steps, every
from loadmanager.steer.compose import CHECK_S
from loadmanager.steer.dead_man import DeadMan
from loadmanager.steer.files.note import FileNote
from loadmanager.steer.files.sign import SIGN
from loadmanager.steer.files.wishes_file import WishesFile
from loadmanager.steer.fleet_work import build_fleet_work
from loadmanager.steer.load_reports import reader_of
from loadmanager.steer.outside import FleetOutside
from loadmanager.steer.own_balancing import switch_on
from loadmanager.steer.pulsar.client import PulsarClient
from loadmanager.steer.pulsar.orders import AdminOrders
from loadmanager.steer.settings_file import ClusterSettings
from loadmanager.steer.snapshot_line import snapshot_line

SIGNS = 3
"""A daemon that has missed this many signs of life counts as silent, at the earliest."""

log = get_logger("fleet")


async def restore(cluster: ClusterSettings) -> None:
    """Switch Pulsar's own shedding and splitting on. Raises `OperationalError`."""
    configure("info", json=None, broker="fleet")
    await _restore(cluster)


async def _restore(cluster: ClusterSettings) -> None:
    async with PulsarClient(cluster.pulsar) as client:
        await switch_on(client, cluster.name)


def _forget(sign: Path) -> None:
    try:
        sign.unlink(missing_ok=True)
    except OSError as error:
        log.warning("the last sign of life stays", file=str(sign), error=error.strerror)


async def restore_when_silent(
    clusters: Sequence[ClusterSettings], data_dir: Path, seconds: float
) -> None:
    """Switch Pulsar's own on in each cluster whose daemon gives no sign of life for so long, until
    cancelled. Raises `ConfigError` if another daemon would take over, or the time is too short.
    """
    configure("info", json=None, broker="fleet")
    for cluster in clusters:
        if cluster.store is not None:
            raise ConfigError(
                f"cluster {cluster.name}: with metadataStoreUrl another daemon takes over; a timer "
                "on this host does not know whether it has"
            )
        least_s = SIGNS * cluster.fleet.read_interval_s
        if seconds < least_s:
            raise ConfigError(
                f"--when-silent {seconds:g}: cluster {cluster.name} gives a sign of life each "
                f"readIntervalSeconds; {least_s:g} or more is expected"
            )
    steps = Steps()
    async with Scope("dead-man") as scope:
        for cluster in clusters:
            sign = data_dir / cluster.name / SIGN
            timer = DeadMan(
                cluster=cluster.name,
                last_sign=partial(_touched_ns, sign),
                forget=partial(_forget, sign),
                restore=partial(_restore, cluster),
                clock=SystemClock(),
                silent_s=seconds,
            )
            step = f"dead-man-{cluster.name}"
            scope.spawn(every(lambda: CHECK_S, timer.step, step, steps), step)
        notify("READY=1")


def _touched_ns(path: Path) -> int | None:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return None


async def one_snapshot(cluster: ClusterSettings) -> dict[str, Any]:
    """Read a cluster once; returns its line for `decide`. Raises `OperationalError`."""
    try:
        return await _one_snapshot(cluster)
    except* OperationalError as errors:
        raise OperationalError("; ".join(map(str, errors.exceptions))) from None


async def _one_snapshot(cluster: ClusterSettings) -> dict[str, Any]:
    configure("warning", json=None, broker="fleet")
    async with PulsarClient(cluster.pulsar) as client, Scope("snapshot") as scope:
        clock, steps = SystemClock(), Steps()
        reader = reader_of(client, cluster, scope, steps)
        with_nothing = FleetOutside(
            me=Leader("snapshot", "", 1),
            reader=reader,
            orders=partial(AdminOrders, client, reader),
            wishes=WishesFile(Path("/nonexistent/wishes.json"), clock),
            note=FileNote(Path("/nonexistent/note.json")),
            clock=clock,
            rng=random.Random(0),  # noqa: S311 - nothing is chosen
            history=None,
        )
        work = build_fleet_work(cluster, with_nothing, scope, steps)
        await work.read()
        problems = work.picture.problems
        if not work.picture.answering:
            raise OperationalError("; ".join(problems.values()) or "the cluster has no broker")
        for part, why in problems.items():
            log.warning("left out", part=part, error=why)
        line = await snapshot_line(work.picture, reader)
        scope.cancel()
        return line
