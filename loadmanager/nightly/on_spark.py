"""The nightly job on Spark: a cluster reads, or this machine with Java."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JNetworkError
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from loadmanager.kit.failures import first_line
from loadmanager.kit.history import blocks
from loadmanager.nightly import merging, reading
from loadmanager.nightly.engine import StoredTable

PROCESSES_MAX = 4
"""On one machine, however many cores it has: each may take half a gigabyte."""

for _travels in (reading, merging, blocks):
    cloudpickle.register_pickle_by_value(_travels)


class OnSpark:
    """An engine for days of any size. Raises what Spark raises."""

    name = "Spark"

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def each(self, run: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
        """What comes of each item, a task each."""
        if not items:
            return []
        context = self._spark.sparkContext
        at_once = PROCESSES_MAX if context.master.startswith("local") else len(items)
        spread = context.parallelize(items, min(len(items), at_once))
        try:
            results: list[Any] = spread.map(run).collect()
        except Py4JNetworkError as error:
            raise ConnectionError(first_line(error)) from error
        return results

    def define(self, name: str, schema: pa.Schema, stored: StoredTable | None) -> None:
        """Let queries name a table; None: it is empty."""
        typed = from_arrow_schema(schema)
        if stored is None:
            table = self._spark.createDataFrame([], typed).limit(0)  # no task looks for rows
        else:
            table = self._few(self._spark.read.schema(typed).parquet(*stored.spark_urls))
        table.createOrReplaceTempView(name)

    def _few(self, table: DataFrame) -> DataFrame:
        """On one machine in one partition, so that no query shuffles it."""
        alone = self._spark.conf.get("spark.sql.shuffle.partitions") == "1"
        return table.coalesce(1) if alone else table

    def query(self, sql: str, **small: pa.Table) -> pa.Table:
        """The answer to a query."""
        try:
            for name, rows in small.items():
                self._spark.createDataFrame(rows).createOrReplaceTempView(name)
            answer: pa.Table = self._spark.sql(sql).toArrow()
        except Py4JNetworkError as error:
            raise ConnectionError(first_line(error)) from error
        return answer
