"""What runs the tasks of a day and answers questions about its records: Spark, or this process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class StoredTable:
    """Parquet files of one table."""

    files: Any
    """The file system, as fsspec makes it."""
    paths: Sequence[str]
    spark_urls: Sequence[str]
    """The same, as Spark spells them."""


class Engine(Protocol):
    """Raises errors of its own; `ConnectionError` when it is gone for good."""

    name: str

    def each(self, run: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
        """What comes of each item, a task each."""

    def define(self, name: str, schema: pa.Schema, stored: StoredTable | None) -> None:
        """Let queries name a table; None: it is empty."""

    def query(self, sql: str, **small: pa.Table) -> pa.Table:
        """The answer to a query, which is small. It is written in the SQL that Spark and DuckDB
        share; `percentile(x, share)` interpolates. `small`: tables that it names, too.
        """
