"""Delivered against configured rates, with the stock client: accuracy per second, fairness,
dispatch, and the latency of a neighbour.

`python -m bench throttling` runs everything in about a quarter of an hour; `--part
publish|mixed|dispatch|neighbour` one part of it, `--only 1000` one limit, `--seconds` for how long
each. The server is the real protocol server, alone in a process on uvloop. Producers and consumers
are stock clients in another process, one connection each; two processes share many producers, and
those that batch at 50,000 msg/s. Stock clients beside the server on a small machine do not reach
every limit with single messages or a single producer; those cases send prebuilt frames, marked
`raw`. A batch is at most a hundredth of a second's limit, because a frame is accepted whole.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from typing import IO, TYPE_CHECKING, Any

from loadmanager.kit.units import MIB

if TYPE_CHECKING:
    from collections.abc import Iterator

TOPIC = "persistent://public/default/throttled"
NEIGHBOUR = "persistent://public/default/neighbour"
LIMITS = {
    "100": (100, -1),
    "1000": (1000, -1),
    "10000": (10_000, -1),
    "50000": (50_000, -1),
    "1MiB": (-1, MIB),
    "20MiB": (-1, 20 * MIB),
}
STOCK_MESSAGES_PER_S_MAX = 20_000
A_PROCESS_MAX = 10
"""Producers; many threads of one Python process hinder each other and offer less than the limit."""


def _line(stream: IO[str] | None) -> str:
    assert stream is not None
    line = stream.readline()
    if not line:
        raise SystemExit("a process of the benchmark ended unexpectedly")
    return line


class Server:
    """The server process."""

    def __init__(self) -> None:
        self.process = _start("bench._server")
        self.url = f"pulsar://127.0.0.1:{_line(self.process.stdout).strip()}"

    def begin(self, request: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()

    def end(self) -> Any:
        return json.loads(_line(self.process.stdout))

    def ask(self, request: dict[str, Any]) -> Any:
        self.begin(request)
        return self.end()


def _start(module: str, *args: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", module, *args],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


@contextmanager
def a_server(policies: dict[str, Any]) -> Iterator[Server]:
    """A fresh server with policies of topics."""
    server = Server()
    try:
        server.ask({"policies": policies})
        yield server
    finally:
        server.process.kill()
        server.process.wait()


@contextmanager
def a_load(server: Server, **request: Any) -> Iterator[subprocess.Popen[str]]:
    """A load process."""
    load = _start(
        "bench._load",
        json.dumps(
            {
                "url": server.url,
                "topic": TOPIC,
                "batch": 1,
                "sizes": [100],
                "producers": 1,
                **request,
            }
        ),
    )
    try:
        yield load
    finally:
        load.kill()
        load.wait()


def jain(shares: list[int]) -> float:
    """Jain's fairness index."""
    return (
        sum(shares) ** 2 / (len(shares) * sum(share * share for share in shares))
        if any(shares)
        else 0.0
    )


def _ratios(marks: list[list[float]], limit: tuple[int, int]) -> tuple[list[float], float]:
    """Delivered / configured in each second and over all, of messages or else bytes."""
    column, rate = (1, limit[0]) if limit[0] > 0 else (2, limit[1])
    each = [
        (after[column] - before[column]) / (after[0] - before[0]) / rate
        for before, after in zip(marks, marks[1:], strict=False)
    ]
    return each, (marks[-1][column] - marks[0][column]) / (marks[-1][0] - marks[0][0]) / rate


def _row(what: str, marks: list[list[float]], limit: tuple[int, int], fairness: float) -> bool:
    each, over_all = _ratios(marks, limit)
    fine = (
        abs(over_all - 1) <= 0.005
        and all(abs(second - 1) <= 0.05 for second in each)
        and (fairness >= 0.99)
    )
    print(
        f"{what:42} {over_all:8.4f} {each[0]:8.3f} {min(each):8.3f} {max(each):8.3f} "
        f"{fairness:8.4f} {'' if fine else '  <-- outside'}",
        flush=True,
    )
    return fine


def _head(what: str) -> None:
    print(f"\n{what:42} {'all':>8} {'first s':>8} {'min s':>8} {'max s':>8} {'Jain':>8}")


def _publish_policy(limit: tuple[int, int]) -> dict[str, Any]:
    return {
        TOPIC: {
            "publishRate": {
                "publishThrottlingRateInMsg": limit[0],
                "publishThrottlingRateInByte": limit[1],
            }
        }
    }


def _dispatch_policy(limit: tuple[int, int]) -> dict[str, Any]:
    return {
        "dispatchRate": {
            "dispatchThrottlingRateInMsg": limit[0],
            "dispatchThrottlingRateInByte": limit[1],
        }
    }


def _size_of(limit: tuple[int, int]) -> int:
    return 100 if limit[0] > 0 else (1024 if limit[1] <= MIB else 10_240)


def _batch_of(limit: tuple[int, int]) -> int:
    return max(2, (limit[0] if limit[0] > 0 else limit[1] // (_size_of(limit) + 20)) // 100)


def _senders(limit: tuple[int, int], batch: int, producers: int) -> tuple[str, int]:
    """The clients and the number of their processes that offer more than the limit."""
    if limit[0] <= STOCK_MESSAGES_PER_S_MAX:
        return "stock", 1 if producers <= A_PROCESS_MAX else 2
    return ("stock", 2) if batch > 1 and producers > 1 else ("raw", 1)


def publish(args: argparse.Namespace) -> bool:
    """Limits × batching × producers."""
    _head("publish: limit, frames, producers")
    fine = True
    for name, limit in _chosen(args):
        for batch in (1, _batch_of(limit)):
            for producers in args.producers:
                mode, processes = _senders(limit, batch, producers)
                with a_server(_publish_policy(limit)) as server, ExitStack() as loads:
                    server.begin({"measure": args.seconds, "topic": TOPIC})
                    for _ in range(processes):
                        load = a_load(
                            server,
                            mode=mode,
                            producers=producers // processes,
                            batch=batch,
                            sizes=[_size_of(limit)],
                        )
                        loads.enter_context(load)
                    figures = server.end()
                shares = [share[0] for share in figures["producers"]]
                fine &= _row(
                    f"{name}/s, {mode}, batches of {batch}, {producers}",
                    figures["marks"],
                    limit,
                    jain(shares),
                )
    return fine


def mixed(args: argparse.Namespace) -> bool:
    """Ten producers, half with messages ten times as large."""
    _head("publish, sizes 100 B and 1000 B: limit")
    fine = True
    for name, limit in (("1000", LIMITS["1000"]), ("1MiB", LIMITS["1MiB"])):
        with a_server(_publish_policy(limit)) as server:
            server.begin({"measure": args.seconds, "topic": TOPIC})
            with a_load(server, mode="stock", producers=10, sizes=[100, 1000]):
                figures = server.end()
        shares = [share[0 if limit[0] > 0 else 1] for share in figures["producers"]]
        fine &= _row(f"{name}/s, stock, 10 producers", figures["marks"], limit, jain(shares))
    return fine


def dispatch(args: argparse.Namespace) -> bool:
    """Limits × consumers, from a backlog and from live producers."""
    _head("dispatch: limit, consumers, backlog")
    fine = True
    for name, limit in _chosen(args):
        for consumers in (1, 10):
            for backlog in (True, False):
                figures = _dispatch_once(args, limit, consumers, backlog=backlog)
                fine &= _row(
                    f"{name}/s, {consumers}, {'backlog' if backlog else 'as it comes'}",
                    figures["marks"],
                    limit,
                    jain(figures["consumers"]),
                )
    return fine


def _dispatch_once(
    args: argparse.Namespace, limit: tuple[int, int], consumers: int, *, backlog: bool
) -> Any:
    size = _size_of(limit)
    per_s = limit[0] if limit[0] > 0 else limit[1] // size
    publishing = (int(per_s * 1.05), -1)
    policies = {} if backlog else _publish_policy(publishing)
    with a_server({TOPIC: {**_dispatch_policy(limit), **policies.get(TOPIC, {})}}) as server:
        if backlog:
            with a_load(server, mode="consume", producers=1) as holder:
                _line(holder.stdout)  # the subscription keeps later messages
            with a_load(
                server, mode="raw", count=per_s * (args.seconds + 5), sizes=[size]
            ) as filling:
                _line(filling.stdout)
            server.begin({"measure": args.seconds, "topic": TOPIC, "direction": "out"})
            with a_load(server, mode="consume", producers=consumers):
                return server.end()
        with a_load(server, mode="consume", producers=consumers) as reading:
            _line(reading.stdout)
            server.begin({"measure": args.seconds, "topic": TOPIC, "direction": "out"})
            with a_load(server, mode="raw", producers=2, sizes=[size]):
                return server.end()


def neighbour(args: argparse.Namespace) -> bool:
    """Send-to-receipt time on a topic without limit, with and without a heavily throttled topic
    beside it, in turns.

    The server has a processor to itself and the clients have the others, and the throttled
    producers do not read their receipts, so that on a small machine this measures the broker and
    not a contest for processor time.
    """
    processors = sorted(os.sched_getaffinity(0))
    alone: list[float] = []
    beside: list[float] = []
    for _ in range(args.turns):
        for times_us, throttled in ((alone, False), (beside, True)):
            with a_server(_publish_policy((1000, -1))) as server:
                os.sched_setaffinity(server.process.pid, processors[:1])
                # clients started from here inherit it
                os.sched_setaffinity(0, processors[1:] or processors)
                if throttled:
                    with a_load(server, mode="raw", producers=10, drain=False) as heavy:
                        _line(heavy.stdout)
                        times_us.extend(_pings(server))
                else:
                    times_us.extend(_pings(server))
    os.sched_setaffinity(0, processors)
    print(f"\n{'unthrottled topic, send to receipt (µs)':42} {'p50':>8} {'p90':>8} {'p99':>8}")
    quantiles = {}
    for what, times_us in (("alone", alone), ("beside 10 producers held at 1000 msg/s", beside)):
        percentiles = quantiles[what] = statistics.quantiles(times_us, n=100)
        print(f"{what:42} {percentiles[49]:8.0f} {percentiles[89]:8.0f} {percentiles[98]:8.0f}")
    ratio = quantiles["beside 10 producers held at 1000 msg/s"][98] / quantiles["alone"][98]
    print(f"p99 ratio {ratio:.2f}{'' if ratio <= 1.2 else '  <-- outside'}")
    return ratio <= 1.2


def _pings(server: Server) -> list[float]:
    with a_load(server, mode="ping", topic=NEIGHBOUR, count=2000) as load:
        times_us: list[float] = json.loads(_line(load.stdout))
    return times_us[200:]


def _chosen(args: argparse.Namespace) -> list[tuple[str, tuple[int, int]]]:
    return [(name, limit) for name, limit in LIMITS.items() if not args.only or name in args.only]


def main(argv: list[str]) -> int:
    """Run the parts; returns 1 when a figure breaks a promise of the project."""
    parser = argparse.ArgumentParser(prog="python -m bench throttling", description=__doc__)
    parts = {"publish": publish, "mixed": mixed, "dispatch": dispatch, "neighbour": neighbour}
    parser.add_argument("--part", choices=parts, action="append")
    parser.add_argument(
        "--only", choices=LIMITS, action="append", help="limits to run; all by default"
    )
    parser.add_argument("--producers", type=int, nargs="+", default=[1, 10, 50])
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--turns", type=int, default=4, help="of the neighbour part")
    args = parser.parse_args(argv)
    results = [run(args) for name, run in parts.items() if not args.part or name in args.part]
    return 0 if all(results) else 1
