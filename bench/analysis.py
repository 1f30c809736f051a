"""The nightly job on a large history, in one process and on Spark, and the same aggregations in
DuckDB alone beside it.

`python -m bench analysis [--rows 0.1 0.9 10 50] [--no-spark] [--no-duckdb]` (millions); Spark in
local[2]. Histories are made from a seed, and kept in `bench/out` (50 million rows take 2 GB, and a
few minutes to make). DuckDB alone reads the same JSON lines and the same Parquet with two threads.
Memory is the highest resident size of all processes of a run. DuckDB alone does what costs it
something: the reading, and the aggregations of the loads.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil

from bench import _history as history

OUT = Path(__file__).parent / "out"
MILLION = 1_000_000


def main(argv: list[str]) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench analysis", description=__doc__)
    parser.add_argument(
        "--rows", type=float, nargs="+", default=[0.1, 0.9, 10, 50], help="millions"
    )
    parser.add_argument("--no-spark", action="store_true")
    parser.add_argument("--no-duckdb", action="store_true")
    args = parser.parse_args(argv)
    for millions in args.rows:
        rows = int(millions * MILLION)
        root = OUT / f"history-{rows}"
        if not root.exists():
            began_s = time.monotonic()
            history.large(root, rows)
            size = sum(path.stat().st_size for path in root.rglob("*.gz"))
            print(
                f"{rows:,} rows made in {time.monotonic() - began_s:.0f} s, {size / 1e6:.0f} "
                "MB compressed",
                flush=True,
            )
        _print("one process, the job", rows, _measured(_job(root, rows)))
        if not args.no_spark:
            spark = _job(root, rows, "--master", "local[2]")
            _print("Spark, the whole job", rows, _measured(spark))
        if not args.no_duckdb:
            code = [sys.executable, "-m", "bench._duckdb", str(root), str(OUT / f"duckdb-{rows}")]
            _print("DuckDB, a part of it", rows, _measured(code))
    return 0


def _job(root: Path, rows: int, *arguments: str) -> list[str]:
    output = OUT / f"analysis-{rows}"
    shutil.rmtree(output, ignore_errors=True)
    where = ["--history", str(root), "--output", str(output)]
    command = ["analyze", "--date", history.DATE, "--quiet", *where, *arguments]
    return [sys.executable, "-m", "loadmanager", *command]


def _print(what: str, rows: int, measured: tuple[float, float, int]) -> None:
    seconds, cpu_s, peak = measured
    print(
        f"{what:24} {rows:12,} rows {seconds:8.1f} s {cpu_s:8.1f} s of CPU "
        f"{rows / seconds:10,.0f} rows/s {peak / 2**20:8.0f} MiB",
        flush=True,
    )


def _measured(command: list[str]) -> tuple[float, float, int]:
    """Seconds, seconds of CPU, and the most memory that the process and its children had together,
    shared pages counted once (so that a fork does not count twice).
    """
    began_s = time.monotonic()
    process = subprocess.Popen(command)
    peak: list[int] = [0]
    cpu_s: dict[int, float] = {}
    watcher = threading.Thread(target=_watch, args=(process.pid, peak, cpu_s), daemon=True)
    watcher.start()
    if process.wait() != 0:
        raise SystemExit(f"{command[2]} ended with {process.returncode}")
    return time.monotonic() - began_s, sum(cpu_s.values()), peak[0]


def _watch(pid: int, peak: list[int], cpu_s: dict[int, float]) -> None:
    """Until the process ends; children may end at any moment."""
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        while True:
            memory = 0
            for one in [process, *process.children(recursive=True)]:
                with contextlib.suppress(psutil.NoSuchProcess):
                    cpu_s[one.pid] = sum(one.cpu_times()[:2])
                    memory += one.memory_full_info().pss
            process.cpu_times()
            peak[0] = max(peak[0], memory)
            time.sleep(0.25)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
