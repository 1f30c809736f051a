"""Runs a tournament: each task is a day under a candidate, in this process or on Spark.

Results are kept by content, so that a task is paid for once: a file is named after the day, the
candidate's settings and the programs that decide, ours and third parties'. Several runs may share a
folder. A candidate that raises an error, or does not end, is left out.
"""

from __future__ import annotations

import difflib
import functools
import hashlib
import secrets
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, astuple, dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

import loadmanager
from loadmanager.engine.history.cycles import settings_document
from loadmanager.engine.load.reports import NUMBER_MAX
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.kit.errors import OperationalError
from loadmanager.kit.failures import first_line
from loadmanager.kit.private_files import make_folder, write_file
from loadmanager.kit.settings import Settings, spell
from loadmanager.kit.spark import FAILURES, session
from loadmanager.kit.zookeeper.java import find_java
from loadmanager.lab import candidates
from loadmanager.lab.closed_loop import run
from loadmanager.lab.day_files import dump, load
from loadmanager.lab.days import DayOfLoad, Pattern
from loadmanager.lab.measures import Measures, measure
from loadmanager.lab.results import Results
from loadmanager.leader import plugins
from loadmanager.leader.plugin_points import sources
from loadmanager.leader.strategy_keys import STRATEGY_KEYS, strategies_of

MS_PER_CYCLE, MS_PER_BROKER, MS_PER_BUNDLE = 1.0, 0.03, 0.001
"""What a minute of a day costs, measured (`python -m bench replay`). A bundle costs that in minutes
in which it carries something.
"""
TASKS_PER_CORE = 4
"""In one batch: after each one, progress is shown and results are kept."""
PATIENCE = 100
"""A task that takes so many times what it should, and a minute, is given up."""
OTHER_CODE = (
    "a worker of Spark has another version of loadmanager, or other plug-ins: install the same on "
    "all machines, or name them in --py-files"
)
ERROR_MAX = 500
"""Characters of an error that are told."""
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


class _Answer(msgspec.Struct):
    """The outcome of a task: measures, or an error."""

    measures: Measures | None = None
    error: str = ""


class Tournament:
    """Days that candidates are tried on; files go below `folder`."""

    def __init__(self, folder: Path, base: Settings) -> None:
        self.failed: dict[str, str] = {}
        """Candidate → the error that it raised."""
        self._folder = folder
        self._base = candidates.unweighted(base)
        self._program = program()
        self._days: dict[str, tuple[Path, float]] = {}
        """Date → the day's file, and the CPU seconds that it will take, about."""
        try:
            for part in ("days", "results"):
                make_folder(folder / part)
        except OSError as error:
            raise OperationalError(f"{folder}: {error.strerror}") from None

    @property
    def dates(self) -> list[str]:
        return list(self._days)

    def add(self, date: str, day: DayOfLoad) -> None:
        """A recorded day."""
        data = dump(day)
        path = self._folder / "days" / f"{hashlib.sha256(data).hexdigest()[:32]}.npz"
        if _content(path) != data:
            _write(path, data)
        self._days[date] = path, _seconds(day)

    def keys(self, candidate: str) -> dict[str, str]:
        """The candidate's settings. Raises `BadInputError`, `ConfigError`."""
        candidates.check_candidate(candidate)
        loaded = self._base.with_overrides(candidates.overrides(candidate))
        return settings_document(strategies_of(loaded))

    def tasks(self, tried: Iterable[str]) -> tuple[list[Task], dict[str, dict[str, Measures]]]:
        """The tasks left to do, the longest first, and the results that are already there:
        candidate → date → measures.
        """
        left: list[Task] = []
        results: dict[str, dict[str, Measures]] = {}
        for candidate in tried:
            keys = self.keys(candidate)
            for date, (path, seconds) in self._days.items():
                task = Task(candidate, date, keys, str(path), seconds)
                measures = self._stored(task)
                if measures is None:
                    left.append(task)
                else:
                    results.setdefault(candidate, {})[date] = measures
        return sorted(left, key=lambda task: (-task.seconds, task.candidate)), results

    def _stored(self, task: Task) -> Measures | None:
        """The kept result; None without one, or if no day can have measured that."""
        try:
            measures = msgspec.json.decode(self._result(task).read_bytes(), type=Measures)
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
            return None
        figures = [each for each in astuple(measures) if each is not None]
        return measures if all(0 <= each <= NUMBER_MAX for each in figures) else None

    def _result(self, task: Task) -> Path:
        content = msgspec.json.encode(
            [self._program, Path(task.day_file).stem, sorted(task.keys.items())]
        )
        return self._folder / "results" / f"{hashlib.sha256(content).hexdigest()[:32]}.json"

    def play(
        self, tried: Sequence[str], spark: Any | None = None, tell: Tell = lambda _done, _all: None
    ) -> Results:
        """Every candidate on every day, without those that fail; on Spark if a session is given.

        Raises `OperationalError` if the settings in force fail.
        """
        left, results = self.tasks(tried)
        answers = _here(left) if spark is None else _on_spark(spark, left, self._program)
        for done, (task, answer) in enumerate(answers, start=1):
            if answer.measures is None:
                self.failed[task.candidate] = f"{task.date}: {answer.error}"
            else:
                _write(self._result(task), msgspec.json.encode(asdict(answer.measures)))
                results.setdefault(task.candidate, {})[task.date] = answer.measures
            tell(done, len(left))
        if (why := self.failed.get(candidates.LIVE)) is not None:
            raise OperationalError(f"the settings in force cannot be replayed: {why}")
        return {name: days for name, days in results.items() if name not in self.failed}


@contextmanager
def spark_session(master: str | None) -> Iterator[Any]:
    """A session for the tasks. Raises `OperationalError` if Spark fails, also while it stops."""
    try:
        with session(master=master, java=find_java()) as spark:
            yield spark
    except FAILURES as error:
        raise OperationalError(f"Spark: {first_line(error)}") from None


def _seconds(day: DayOfLoad) -> float:
    assert not isinstance(day.carried, Pattern), "a tournament is of recorded days"
    cycles_ms = day.minutes * (MS_PER_CYCLE + MS_PER_BROKER * len(day.cores))
    return (cycles_ms + MS_PER_BUNDLE * int(np.count_nonzero(day.carried))) / 1000


def _here(tasks: Sequence[Task]) -> Iterator[tuple[Task, _Answer]]:
    for task in tasks:
        yield task, _measured(task.day_file, task.keys)


def _on_spark(spark: Any, tasks: Sequence[Task], ours: str) -> Iterator[tuple[Task, _Answer]]:
    """In batches that fill the cluster. Raises `OperationalError` if Spark fails."""
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

    play = F.udf(_played, "string", useArrow=False)
    size = int(spark.sparkContext.defaultParallelism) * TASKS_PER_CORE
    for start in range(0, len(tasks), size):
        batch = tasks[start : start + size]
        rows = [
            (number, msgspec.json.encode(task.keys).decode(), task.day_file, ours)
            for number, task in enumerate(batch)
        ]
        try:
            one_each = spark.sparkContext.parallelize(rows, len(rows))  # a partition is a task
            frame = spark.createDataFrame(
                one_each, "number int, keys string, day string, ours string"
            )
            played = frame.select("number", play("keys", "day", "ours").alias("told")).collect()
        except FAILURES as error:
            raise OperationalError(f"Spark: {first_line(error)}") from None
        for row in played:
            yield batch[row["number"]], msgspec.json.decode(row["told"], type=_Answer)


def _played(keys: str, day_file: str, ours: str) -> str:
    """On a worker, which reads the day from where all machines see it, in a process of its own.
    With other code than whoever asks (`ours`), its answer would say nothing.
    """
    if _program_here() != ours:
        answer = _Answer(error=OTHER_CODE)
    else:
        answer = _measured(day_file, msgspec.json.decode(keys, type=dict[str, str]))
    return msgspec.json.encode(answer).decode()


def _measured(day_file: str, keys: Mapping[str, str], seconds_max: float | None = None) -> _Answer:
    day, candidate = (
        load(Path(day_file).read_bytes()),
        STRATEGY_KEYS.parse(keys).leaf(StrategySettings),
    )
    try:
        with _at_most(seconds_max or 60 + PATIENCE * _seconds(day)):
            return _Answer(measure(run(day, candidate)))
    except Exception as error:  # noqa: BLE001 - whatever a strategy raises costs its candidate only
        return _Answer(error=f"{type(error).__name__}: {error}"[:ERROR_MAX])


@contextmanager
def _at_most(seconds: float) -> Iterator[None]:
    """Raises `TimeoutError` after so long, and again each minute, in the main thread, where tasks
    run: a strategy may never end.
    """

    def expired(*_: object) -> None:
        raise TimeoutError(f"a day was not over after {seconds:.0f} s")

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.signal(signal.SIGALRM, expired)
    timer = signal.setitimer(signal.ITIMER_REAL, seconds, 60)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, *timer)
        signal.signal(signal.SIGALRM, handler)


def program() -> str:
    """A hash of the code that decides and measures, that of plug-ins included: after a change, no
    result is known.
    """
    code = hashlib.sha256(loadmanager.__version__.encode())
    ours = {f"loadmanager.{part}" for part in ("engine", "lab", "kit")}
    for source in sources(ours | plugins.packages()):
        code.update(source.encode())
    return code.hexdigest()


_program_here = functools.cache(program)


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None


def _write(path: Path, data: bytes) -> None:
    """All or nothing: a killed run leaves no half file, and another run writes its own."""
    temporary = path.with_suffix(f".{secrets.token_hex(8)}.tmp")
    try:
        write_file(temporary, data)
        temporary.replace(path)
    except OSError as error:
        raise OperationalError(f"{path}: {error.strerror}") from None


def conf_diff(
    before: Mapping[str, str], after: Mapping[str, str], name: str, text: str
) -> list[str]:
    """A unified diff of the broker.conf `text`, for `patch`, that changes these keys; a key that is
    missing has its default.
    """
    key_of = STRATEGY_KEYS.by_name()

    def value(keys: Mapping[str, str], key: str) -> str:
        return keys.get(key, spell(key_of[key].default))

    keys = sorted(before.keys() | after.keys())
    left = {key: value(after, key) for key in keys if value(before, key) != value(after, key)}
    old, new = text.splitlines(), []
    present = {line.partition("=")[0].strip() for line in old}
    for line in old:
        key = line.partition("=")[0].strip()
        new.append(f"{key}={left[key]}" if key in left else line)
    new += [f"{key}={left[key]}" for key in left if key not in present]
    return list(difflib.unified_diff(old, new, name, name, lineterm=""))
