"""The nightly job in this process: tasks in threads (Arrow lets go of the interpreter while it
reads, parses and writes), queries by DuckDB.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds

from loadmanager.nightly.engine import StoredTable

THREADS_MAX = 4
"""Each task may take half a gigabyte."""
SETTINGS: dict[str, Any] = {
    "threads": 1,
    "memory_limit": "2GB",
    "temp_directory": "",
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
}
"""One thread: sums of floating-point numbers depend on their order. Nothing is fetched, and nothing
is written but the results.
"""


class InProcess:
    """An engine for days that one machine reads within minutes. Raises `duckdb.Error`."""

    name = "this process"

    def __init__(self) -> None:
        self._db = duckdb.connect(config=SETTINGS)
        self._db.execute("CREATE MACRO percentile(x, share) AS quantile_cont(x, share)")
        self._db.execute("CREATE MACRO size(x) AS len(x)")

    def each(self, run: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
        """What comes of each item, a task each."""
        if len(items) < 2:
            return [run(item) for item in items]
        pool = ThreadPoolExecutor(min(THREADS_MAX, os.cpu_count() or 1))
        try:
            return list(pool.map(run, items))
        finally:
            pool.shutdown(cancel_futures=True)

    def define(self, name: str, schema: pa.Schema, stored: StoredTable | None) -> None:
        """Let queries name a table; None: it is empty."""
        if stored is None:
            self._db.register(name, schema.empty_table())
            return
        fs, paths = stored.files, list(stored.paths)
        self._db.register(name, ds.dataset(paths, schema, format="parquet", filesystem=fs))

    def query(self, sql: str, **small: pa.Table) -> pa.Table:
        """The answer to a query."""
        for name, table in small.items():
            self._db.register(name, table)
        answer: pa.Table = self._db.sql(sql).to_arrow_table()
        return answer

    def close(self) -> None:
        """Let go of its memory."""
        self._db.close()
