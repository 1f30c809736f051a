"""Restarts under stock clients with stored topics, as Pulsar tests its load managers.

`python -m bench restarts [--publishers 200] [--rate 1000] [--set KEY=VALUE …]`: three brokers, a
producer for each topic, in one process. First all brokers are restarted at once: for how long was
each publisher without a receipt? Then one after the other: how long did messages wait for their
receipt, from when they were due? `--set loadManagerClassName=…` chooses the load manager;
`--pulsar modular` or `extensible` restarts the brokers of a real Pulsar instead, whose one bookie
does not wait for its disk. Exits with 1 when a message with a receipt was lost or came out of
order.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import cast

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from clients.pulsar import distribution
from fleet.real import MANAGERS, RealPulsar, a_real_pulsar
from system.campaign import Campaign
from system.fleet import NAMESPACE, Fleet

QUIET_S = 10.0
FOREVER = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}


def main(argv: list[str]) -> int:
    """Measure, and print a line for each figure."""
    parser = argparse.ArgumentParser(prog="python -m bench restarts", description=__doc__)
    parser.add_argument("--publishers", type=int, default=200)
    parser.add_argument("--rate", type=float, default=1000.0)
    parser.add_argument("--session", type=float, default=4.0, help="session timeout in seconds")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--pulsar", choices=MANAGERS, help="a real Pulsar with this load manager")
    args = parser.parse_args(argv)
    print("The clients tell of lost connections on the standard error.", flush=True)
    with tempfile.TemporaryDirectory(dir=".") as temporary:
        folder, more = Path(temporary).resolve(), dict(pair.split("=", 1) for pair in args.set)
        with (
            _pulsar(folder, args.pulsar, more)
            if args.pulsar
            else Fleet(
                folder,
                session_s=args.session,
                settings={"loadManagerStorageDirectory": str(folder / "topics"), **more},
            ) as fleet,
            Campaign(fleet, topics=args.publishers, rate=args.rate) as campaign,
        ):
            marks = [time.monotonic()]
            for step in (lambda: None, campaign.restart_all, campaign.restart_each):
                time.sleep(QUIET_S)
                step()
                time.sleep(QUIET_S)
                marks.append(time.monotonic())
            outcome = campaign.finish()
    print(
        f"{outcome.acknowledged} messages acknowledged, {outcome.rate:.0f} /s; lost "
        f"{len(outcome.lost)}, out of order {len(outcome.disorder)}, without a receipt at the end "
        f"{outcome.unanswered}, stored twice {outcome.stored_twice}"
    )
    quiet, _, rolling = zip(marks, marks[1:], strict=False)
    _print("publishers without a receipt, all brokers restarted, s", campaign.recovered_s(), 1.0)
    _print("latency before, ms", campaign.latencies_s(*quiet), 1e3)
    _print("latency in a rolling restart, ms", campaign.latencies_s(*rolling), 1e3)
    return int(bool(outcome.lost or outcome.disorder))


class RealFleet:
    """A real Pulsar with what `Campaign` needs of a `Fleet` to restart brokers."""

    def __init__(self, real: RealPulsar) -> None:
        self._real = real
        self.count = real.brokers
        self.service_url = lambda: real.service_url

    def process_of(self, index: int) -> subprocess.Popen[bytes]:
        """A broker's process."""
        return self._real.processes[f"broker{index}"]

    def alive(self, name: str) -> bool:
        """Whether `broker-n` runs."""
        return self.process_of(int(name.rpartition("-")[2])).poll() is None

    def signal(self, index: int, number: signal.Signals) -> None:
        """Send a signal to a broker."""
        os.killpg(self.process_of(index).pid, number)

    def terminate(self, index: int) -> None:
        """Stop a broker in order."""
        self.signal(index, signal.SIGTERM)
        self.process_of(index).wait(120)

    def start(self, index: int, *, wait: bool = True) -> None:
        """Start a broker that has stopped."""
        self._real.start_broker(index)
        if wait:
            self.wait_until_ready(index)

    def wait_until_ready(self, index: int) -> None:
        """Wait until a broker is healthy."""
        self._real.wait_broker(index)


@contextmanager
def _pulsar(folder: Path, manager: str, settings: dict[str, str]) -> Iterator[Fleet]:
    home, fields = distribution(), {"settings": {"brokerShutdownTimeoutMs": "10000"} | settings}
    with a_real_pulsar(home, folder, manager, **fields) as real:
        real.request("PUT", f"namespaces/{NAMESPACE}", {"bundles": {"numBundles": 16}})
        real.request("POST", f"namespaces/{NAMESPACE}/retention", FOREVER)
        yield cast(Fleet, RealFleet(real))


def _print(what: str, seconds: Sequence[float], scale: float) -> None:
    ordered = sorted(seconds)
    parts = {"p50": 0.5, "p99": 0.99, "p99.99": 0.9999}
    figures = {name: scale * ordered[int(len(ordered) * part)] for name, part in parts.items()}
    told = ", ".join(f"{name} {figure:.1f}" for name, figure in figures.items())
    print(f"{what}: {told}, max {scale * ordered[-1]:.1f} ({len(ordered)})")
