"""What a task does that makes one Parquet file of several. It is sent to executors, as those of
`reading`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from loadmanager.nightly.reading import complete_file, dictionary_columns

ROWS_AT_ONCE = 500_000
"""Rows of a group, in memory at once. Of more, columns become smaller: see `COMPRESSION`."""
COMPRESSION = "zstd"
"""With the larger groups, records take half of the bytes."""


@dataclass(frozen=True)
class MergeTask:
    """Files of one schema that become one, in their order."""

    files: Any
    sources: Sequence[str]
    target: str
    rows_at_once: int = ROWS_AT_ONCE


def run(task: MergeTask) -> None:
    """Write the file."""
    with task.files.open(task.sources[0], "rb") as first:
        schema = pq.read_schema(first)
    with (
        complete_file(task.files, task.target) as file,
        pq.ParquetWriter(
            file, schema, compression=COMPRESSION, use_dictionary=dictionary_columns(schema)
        ) as writer,
    ):
        for table in _groups(task):
            writer.write_table(table, row_group_size=task.rows_at_once)


def _groups(task: MergeTask) -> Iterator[pa.Table]:
    waiting: list[pa.Table] = []
    for source in task.sources:
        with task.files.open(source, "rb") as opened, pq.ParquetFile(opened) as file:
            for number in range(file.num_row_groups):
                waiting.append(file.read_row_group(number, use_threads=False))
                if sum(map(len, waiting)) >= task.rows_at_once:
                    yield pa.concat_tables(waiting)
                    waiting = []
    if waiting:
        yield pa.concat_tables(waiting)
