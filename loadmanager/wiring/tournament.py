"""Runs a tournament: each task is a day under a candidate, in this process or on Spark.

Results are kept by content, so that a task is paid for once: a file is named after the day, the
candidate's settings and the version of the program.
"""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgspec

import loadmanager
from loadmanager import settings
from loadmanager.adapters.zookeeper.embedded import find_java
from loadmanager.analysis.session import session
from loadmanager.core.errors import OperationalError
from loadmanager.core.history.cycles import settings_document
from loadmanager.core.strategies.settings import StrategySettings
from loadmanager.simulator import candidates
from loadmanager.simulator.closed_loop import run
from loadmanager.simulator.day_files import dump, load
from loadmanager.simulator.days import Day
from loadmanager.simulator.measures import Measures, measure
from loadmanager.simulator.tournament import Results
from loadmanager.wiring.plugins import register_plugins

MS_PER_CYCLE, MS_PER_BROKER, MS_PER_BUNDLE = 1.0, 0.03, 0.001
"""What a minute of a day costs, measured (`python -m bench replay`)."""
TASKS_PER_CORE = 4
"""In one batch: after each one, progress is shown and results are kept."""
Tell = Callable[[int, int], None]
"""Called with the tasks that are done, and all."""


@dataclass(frozen=True, slots=True)
class Task:
    """One day under one candidate."""

    candidate: str
    date: str
    keys: Mapping[str, str]
    """All keys of the candidate's strategies that differ from their defaults."""
    day_file: str
    seconds: float
    """CPU seconds that it will take, about."""


class Tournament:
    """Days that candidates are tried on; files go below `folder`."""

    def __init__(self, folder: Path, base: settings.Settings) -> None:
        self._folder = folder
        self._base = base
        self._days: dict[str, tuple[Path, Day]] = {}
        try:
            for part in ("days", "results"):
                (folder / part).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OperationalError(f"{folder}: {error.strerror}") from None

    @property
    def dates(self) -> list[str]:
        """The days."""
        return list(self._days)

    def add(self, date: str, day: Day) -> None:
        """A recorded day."""
        data = dump(day)
        path = self._folder / "days" / f"{hashlib.sha256(data).hexdigest()[:32]}.npz"
        if not path.exists():
            _write(path, data)
        self._days[date] = path, day

    def keys(self, candidate: str) -> dict[str, str]:
        """The candidate's settings. Raises `BadInputError`, `ConfigError`."""
        loaded = self._base.with_overrides(candidates.overrides(candidate))
        return settings_document(settings.strategies_of(loaded))

    def tasks(self, tried: Iterable[str]) -> tuple[list[Task], dict[str, dict[str, Measures]]]:
        """The tasks left to do, the longest first, and the results that are already there:
        candidate → date → measures.
        """
        left: list[Task] = []
        results: dict[str, dict[str, Measures]] = {}
        for candidate in tried:
            keys = self.keys(candidate)
            for date, (path, day) in self._days.items():
                task = Task(candidate, date, keys, str(path), _seconds(day))
                known = self._known(task)
                if known is None:
                    left.append(task)
                else:
                    results.setdefault(candidate, {})[date] = known
        return sorted(left, key=lambda task: (-task.seconds, task.candidate)), results

    def _known(self, task: Task) -> Measures | None:
        try:
            return msgspec.json.decode(self._result(task).read_bytes(), type=Measures)
        except (OSError, msgspec.MsgspecError):
            return None

    def _result(self, task: Task) -> Path:
        content = msgspec.json.encode(
            [loadmanager.__version__, Path(task.day_file).stem, sorted(task.keys.items())]
        )
        return self._folder / "results" / f"{hashlib.sha256(content).hexdigest()[:32]}.json"

    def play(
        self, tried: Sequence[str], spark: Any | None = None, tell: Tell = lambda _done, _all: None
    ) -> Results:
        """Every candidate on every day; on Spark if a session is given."""
        left, results = self.tasks(tried)
        answers = _here(left) if spark is None else _on_spark(spark, left)
        for done, (task, measures) in enumerate(answers, start=1):
            _write(self._result(task), msgspec.json.encode(asdict(measures)))
            results.setdefault(task.candidate, {})[task.date] = measures
            tell(done, len(left))
        return results


@contextmanager
def spark_session(master: str | None) -> Iterator[Any]:
    """A session for the tasks."""
    with session(master=master, java=find_java()) as spark:
        yield spark


def _seconds(day: Day) -> float:
    each_ms = MS_PER_CYCLE + MS_PER_BROKER * len(day.cores) + MS_PER_BUNDLE * len(day.bundles)
    return day.minutes * each_ms / 1000


def _here(tasks: Sequence[Task]) -> Iterator[tuple[Task, Measures]]:
    for task in tasks:
        yield task, _measured(task.day_file, task.keys)


def _on_spark(spark: Any, tasks: Sequence[Task]) -> Iterator[tuple[Task, Measures]]:
    """In batches that fill the cluster."""
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

    play = F.udf(_played, "string", useArrow=False)
    size = int(spark.sparkContext.defaultParallelism) * TASKS_PER_CORE
    for start in range(0, len(tasks), size):
        batch = tasks[start : start + size]
        rows = [
            (number, msgspec.json.encode(task.keys).decode(), task.day_file)
            for number, task in enumerate(batch)
        ]
        one_each = spark.sparkContext.parallelize(rows, len(rows))  # a partition is a task
        frame = spark.createDataFrame(one_each, "number int, keys string, day string")
        for row in frame.select("number", play("keys", "day").alias("told")).collect():
            yield batch[row["number"]], msgspec.json.decode(row["told"], type=Measures)


def _played(keys: str, day_file: str) -> str:
    """On a worker, which reads the day from where all machines see it, in a process of its own."""
    register_plugins()
    measures = _measured(day_file, msgspec.json.decode(keys, type=dict[str, str]))
    return msgspec.json.encode(asdict(measures)).decode()


def _measured(day_file: str, keys: Mapping[str, str]) -> Measures:
    day = load(Path(day_file).read_bytes())
    return measure(run(day, settings.parse(keys).leaf(StrategySettings)))


def _write(path: Path, data: bytes) -> None:
    """All or nothing: a killed run leaves no half file."""
    temporary = path.with_suffix(".tmp")
    try:
        temporary.write_bytes(data)
        temporary.replace(path)
    except OSError as error:
        raise OperationalError(f"{path}: {error.strerror}") from None


def conf_diff(
    before: Mapping[str, str], after: Mapping[str, str], name: str, text: str
) -> list[str]:
    """A unified diff of the broker.conf `text`, for `patch`, that changes these keys; a key that is
    missing has its default.
    """
    known = settings.known_keys()

    def value(keys: Mapping[str, str], key: str) -> str:
        return keys.get(key, settings.spell(known[key].default))

    keys = sorted(before.keys() | after.keys())
    left = {key: value(after, key) for key in keys if value(before, key) != value(after, key)}
    old, new = text.splitlines(), []
    present = {line.partition("=")[0].strip() for line in old}
    for line in old:
        key = line.partition("=")[0].strip()
        new.append(f"{key}={left[key]}" if key in left else line)
    new += [f"{key}={left[key]}" for key in left if key not in present]
    return list(difflib.unified_diff(old, new, name, name, lineterm=""))
