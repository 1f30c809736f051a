"""The job's reading and its main aggregations in DuckDB: JSON lines → Parquet, then every question
that costs something. In a process of its own.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import duckdb

from loadmanager.kit.history.layout import COMPRESSED, cluster_folder, partition

RECORD = (
    "v BIGINT, ts BIGINT, broker VARCHAR, intervalMs BIGINT, msgRateIn DOUBLE, msgRateOut "
    "DOUBLE, msgThroughputIn DOUBLE, msgThroughputOut DOUBLE"
)
USED = 'STRUCT("usage" DOUBLE, "limit" DOUBLE)'
COLUMNS = {
    "bundle_load": f"{RECORD}, bundle VARCHAR, topics BIGINT, producers BIGINT, consumers BIGINT",
    "topic_load": f"{RECORD}, topic VARCHAR, bundle VARCHAR, producers BIGINT, consumers BIGINT, "
    "backlogMessages BIGINT",
    "broker_load": f'{RECORD}, "usage" DOUBLE, cpu {USED}, memory {USED}, directMemory {USED}, '
    f"bandwidthIn {USED}, bandwidthOut {USED}, "
    "bundles BIGINT, topics BIGINT, producers BIGINT, consumers BIGINT, faults VARCHAR[]",
    "ownership": 'v BIGINT, ts BIGINT, broker VARCHAR, bundle VARCHAR, "before" VARCHAR, "after" '
    "VARCHAR, reason VARCHAR, "
    "destination VARCHAR, pauseMs DOUBLE",
}
BYTES = "(msgThroughputIn + coalesce(msgThroughputOut, 0))"
RANKED = f"""
WITH totals AS (
  SELECT {{name}} AS name, count(*) n, sum({BYTES} * intervalMs / 1000) AS bytes,
    avg({BYTES}), max({BYTES}),
    avg(msgRateIn), max(msgRateIn) FROM {{table}} GROUP BY 1
), busiest AS (SELECT name FROM totals ORDER BY bytes DESC LIMIT 200),
percentiles AS (
  SELECT {{name}} AS name, quantile_cont({BYTES}, [0.5, 0.95]) FROM {{table}}
  WHERE {{name}} IN (SELECT name FROM busiest) GROUP BY 1
) SELECT count(*) FROM totals LEFT JOIN percentiles USING (name)
"""
QUESTIONS = {
    "broker_usage": 'SELECT broker, count(*), avg("usage"), quantile_cont("usage", [0.5, 0.95, '
    '0.99]), max("usage") FROM broker_load GROUP BY 1',
    "imbalance": "SELECT b, stddev_pop(u), max(u) / avg(u) FROM "
    '(SELECT ts - ts % 300000 b, broker, avg("usage") u FROM broker_load GROUP BY 1, 2) GROUP BY 1',
    "hot_bundles": RANKED.format(name="bundle", table="bundle_load"),
    "hot_topics": RANKED.format(name="topic", table="topic_load"),
    "namespaces": f"""
SELECT regexp_extract(bundle, '^[^/]*/[^/]*') AS ns, count(*), sum(bytes), max(bytes)
FROM (SELECT bundle, sum({BYTES} * intervalMs / 1000) AS bytes, max(ts)
  FROM bundle_load GROUP BY 1) GROUP BY 1""",
    "heat map": f"""
SELECT bundle, (ts / 900000)::BIGINT, avg({BYTES}) FROM bundle_load WHERE bundle IN
(SELECT bundle FROM bundle_load GROUP BY 1 ORDER BY sum({BYTES}) DESC LIMIT 40) GROUP BY 1, 2""",
}


def main(root: Path, output: Path) -> None:
    """Read, store and ask; prints a line for each."""
    output.mkdir(parents=True, exist_ok=True)
    base = duckdb.connect()
    base.execute("SET threads = 2")
    began_s = time.monotonic()
    for kind, columns in COLUMNS.items():
        files = root / cluster_folder("*") / partition(kind, "*") / f"*{COMPRESSED}"
        spec = _spec(columns)
        base.execute(
            f"COPY (SELECT * FROM read_json('{files}', format = 'newline_delimited', columns = "
            f"{spec}, ignore_errors = true)) "
            f"TO '{output / kind}.parquet' (FORMAT parquet)"
        )
        base.execute(f"CREATE VIEW {kind} AS SELECT * FROM read_parquet('{output / kind}.parquet')")
    print(f"  DuckDB reading {time.monotonic() - began_s:8.1f} s", file=sys.stderr)
    for name, sql in QUESTIONS.items():
        began_s = time.monotonic()
        base.execute(sql).fetchall()
        print(f"  DuckDB {name:12} {time.monotonic() - began_s:6.1f} s", file=sys.stderr)


def _spec(columns: str) -> str:
    """`name TYPE, …`, the form of read_json."""
    parts, depth, start = [], 0, 0
    for at, char in enumerate(columns + ","):
        depth += (char == "(") - (char == ")")
        if char == "," and depth == 0:
            name, kind = columns[start:at].strip().split(" ", 1)
            name = name.strip('"')
            parts.append(f"'{name}': '{kind}'")
            start = at + 1
    return "{" + ", ".join(parts) + "}"


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
