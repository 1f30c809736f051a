"""The process of the daemon: all its clusters, until a signal ends them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence

from loadmanager.kit.logger import get_logger
from loadmanager.kit.logs import configure
from loadmanager.kit.system import open_files
from loadmanager.kit.system.ending import Ending
from loadmanager.kit.system.notify import notify
from loadmanager.kit.tasks import Scope, Steps, every
from loadmanager.leader.plugins import warn_of_left_out
from loadmanager.steer.clusters import FleetClusters
from loadmanager.steer.compose import ClusterDaemon
from loadmanager.steer.options import FleetOptions
from loadmanager.steer.settings_file import ClusterSettings

AGAIN_S = 15.0
"""A cluster whose tasks ended by a bug starts again after this time."""
STOP_S = 80.0
"""A stop takes so long at most."""

log = get_logger("fleet")


def run_fleet(clusters: Sequence[ClusterSettings], options: FleetOptions) -> int:
    """Run until a signal comes; returns the exit status.

    Raises `ConfigError` or `OperationalError` when it cannot start.
    """
    json = None if options.log_format is None else options.log_format == "json"
    configure(options.log_level, json=json, broker="fleet")
    warn_of_left_out()
    open_files.raise_limit()
    with Ending(lambda: STOP_S) as ending:
        return asyncio.run(_Daemon(clusters, options).run(ending))


class _Daemon:
    def __init__(self, clusters: Sequence[ClusterSettings], options: FleetOptions) -> None:
        self._options = options
        self._stop, together = asyncio.Event(), FleetClusters()
        self._steps = Steps()
        cap = open_files.connections_cap()
        if cap:  # half of the files are for HTTP, the same number for each cluster
            cap = max(1, cap // (2 * len(clusters)))
        self._clusters = [
            ClusterDaemon(
                settings,
                options,
                port=options.listen[1] and options.listen[1] + number,
                connections_cap=cap,
                together=together,
            )
            for number, settings in enumerate(clusters)
        ]

    async def run(self, ending: Ending) -> int:
        ending.listen(self._stop.set)
        with contextlib.ExitStack() as stack:
            for cluster in self._clusters:
                cluster.listen(stack)
            async with Scope("fleet") as scope:
                for cluster in self._clusters:
                    step = f"cluster-{cluster.name}"
                    scope.spawn(every(lambda: AGAIN_S, cluster.run_once, step, self._steps), step)
                notify("READY=1")
                await self._stop.wait()
                notify("STOPPING=1")
                log.info("stopping")
                scope.cancel()
        log.info("stopped")
        return 0
