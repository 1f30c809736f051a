"""A real Pulsar in the place of a `Fleet`, for the same clients and the same faults."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from clients.pulsar import distribution
from clusters.processes import NAMESPACE, Fleet
from steer.real import RealPulsar, a_real_pulsar

FOREVER = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}


class RealFleet:
    """A real Pulsar with what `Campaign` and the benches need of a `Fleet`."""

    def __init__(self, real: RealPulsar) -> None:
        self._real = real
        self.count = real.brokers - real.later
        first = ",".join(f"127.0.0.1:{port}" for port in real.binary[: self.count])
        self.service_url = lambda: f"pulsar://{first}"

    def process_of(self, index: int) -> subprocess.Popen[bytes]:
        """A broker's process."""
        return self._real.processes[f"broker{index}"]

    def alive(self, name: str) -> bool:
        """True if `broker-n` runs."""
        return self.process_of(int(name.rpartition("-")[2])).poll() is None

    def signal(self, index: int, number: signal.Signals) -> None:
        """Send a signal to a broker."""
        os.killpg(self.process_of(index).pid, number)

    def terminate(self, index: int) -> None:
        """Stop a broker in order."""
        self.signal(index, signal.SIGTERM)
        self.process_of(index).wait(120)

    def start(self, index: int, *, wait: bool = True) -> None:
        """Start a broker that does not run."""
        self._real.start_broker(index)
        if wait:
            self.wait_until_ready(index)

    def wait_until_ready(self, index: int) -> None:
        """Wait until a broker is healthy."""
        self._real.wait_broker(index)

    def get(self, index: int, path: str) -> Any:
        """The answer of a broker's admin API."""
        return self._real.request("GET", path.removeprefix("/admin/v2/"), index=index)

    def owned(self, index: int) -> set[str]:
        """The bundles in `ownedNamespaces` of a broker."""
        path = f"brokers/c1/{self._real.broker(index)}/ownedNamespaces"
        return set(self._real.request("GET", path, index=index))


@contextmanager
def a_pulsar(
    folder: Path, manager: str, settings: dict[str, str], *, bundles: int = 16, **fields: Any
) -> Iterator[Fleet]:
    """A running cluster whose namespace has so many bundles; `fields` are those of `RealPulsar`."""
    settings = {"brokerShutdownTimeoutMs": "10000"} | settings
    with a_real_pulsar(distribution(), folder, manager, settings=settings, **fields) as real:
        real.request("PUT", f"namespaces/{NAMESPACE}", {"bundles": {"numBundles": bundles}})
        real.request("POST", f"namespaces/{NAMESPACE}/retention", FOREVER)
        yield cast(Fleet, RealFleet(real))
