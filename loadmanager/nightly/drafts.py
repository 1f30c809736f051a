"""The files of a day while a run writes them: whoever lists folders does not see them yet."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from loadmanager.kit.history.layout import partition


class DayDraft:
    """What one run, or one attempt of it, writes of a day, in folders and under names of its own:
    what a killed one left, and what its tasks may still write, is never taken for another's.
    """

    def __init__(self, files: Any, root: str, date: str) -> None:
        self._files = files
        self._root = root
        self._date = date
        self._run = uuid4().hex[:8]
        self.paths: list[str] = []
        """The files that belong to the day."""

    def path(self, what: str, kind: str, number: int) -> str:
        """Where to write records or sums; `paths` takes those that are worth it."""
        return f"{self._folder(f'{what}/{partition(kind, self._date)}')}/{number:05}.parquet"

    def write_table(self, question: str, table: pa.Table) -> None:
        """Store the table of a question, in one file."""
        path = f"{self._folder(f'tables/{question}/date={self._date}')}/table.parquet"
        with self._files.open(path, "wb") as file:
            pq.write_table(table, file)
        self.paths.append(path)

    def _folder(self, place: str) -> str:
        folder = f"{self._root}/{place}/_{self._run}"
        self._files.makedirs(folder, exist_ok=True)
        return folder

    def publish(self) -> list[str]:
        """Move the files to where all readers look, each with the run in its name; returns where
        they are, below the root. A manifest names them next.
        """
        published = []
        for path in self.paths:
            folder, _, name = path.rpartition("/")
            target = (
                f"{folder.rpartition('/')[0]}/{name.removesuffix('.parquet')}-{self._run}.parquet"
            )
            self._files.mv(path, target)
            published.append(target[len(self._root) + 1 :])
        return published


def put_in_place(files: Any, part: str, path: str) -> None:
    """Let a file take the name of another one, which goes. On HDFS, which replaces no file, there
    is none of that name for a moment.
    """
    try:
        files.mv(part, path)
    except OSError:
        if not files.exists(path):
            raise
    if files.exists(part):
        files.rm(path)
        files.mv(part, path)
