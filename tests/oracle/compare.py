"""Pulsar's classes and ours on the same seeded cases: `make test-oracle SEED=… CASES=… PULSAR=…`.

Answers are equal, or differ as the list of deviations says, which is checked: with the deviation
undone in a copy of our source, the answers are equal. Anything else is unexplained, and the exit
status is 1.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import combinations
from operator import itemgetter
from pathlib import Path
from typing import Any

import maven
from oracle import cases, ours
from oracle.deviations import DEVIATIONS, Deviation, copy_without
from oracle.minimal import minimal

HERE = Path(__file__).parent
BUILD = HERE.parents[1] / "build" / "oracle"
VERSIONS = ("4.0", "4.2")
TOLERANCE = 1e-9
"""Relative: sums of floating-point numbers in another order."""
PROCESSES_MAX = 40
"""So many copies of our source answer at a time."""
COMPARING = ("-Xmx1g", "-XX:TieredStopAtLevel=1", "-Xshare:off")
"""Java's options for many short cases."""


class Answering:
    """A process that answers a case a line."""

    def __init__(self, command: list[str], **environment: str) -> None:
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment},
        )

    def answer(self, case: dict[str, Any]) -> dict[str, Any]:
        """The cycles of a case, decided. Raises `RuntimeError` when the process has died."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(case) + "\n")
        process.stdin.flush()
        line = process.stdout.readline()
        if not line:
            raise RuntimeError(f"no answer to {case['id']}")
        return dict(json.loads(line))

    def close(self) -> None:
        """End the process."""
        self._process.communicate()


def build(version: str, main: str = "Oracle", options: tuple[str, ...] = COMPARING) -> list[str]:
    """The command that runs a class of the harness on a version of Pulsar, which Maven downloads
    once.
    """
    directory = BUILD / version
    classpath = directory / "classpath.txt"
    sources = [*HERE.glob("*.java"), HERE / "pom.xml"]
    newest = max(path.stat().st_mtime for path in sources)
    if not classpath.exists() or classpath.stat().st_mtime < newest:
        directory.mkdir(parents=True, exist_ok=True)
        properties = f"-Dpulsar.version={version}", f"-Dtarget={directory}"
        output = f"-Dmdep.outputFile={classpath}"
        maven.run(*properties, output, "compile", "dependency:build-classpath", folder=HERE)
        classpath.touch()
    log = f"-Dlog4j2.configurationFile={HERE / 'log4j2.properties'}"
    jars = f"{directory / 'classes'}:{classpath.read_text().strip()}"
    return ["java", *options, log, "-cp", jars, main]


def same(pulsars: Any, our: Any) -> bool:
    """True if two answers are equal, up to rounding, the order of splits and that of the brokers
    from which bundles move; TransferShedder's moves have no order.
    """
    if isinstance(pulsars, dict):
        return pulsars.keys() == our.keys() and all(
            same(_in_order(key, value), _in_order(key, our[key])) for key, value in pulsars.items()
        )
    if isinstance(pulsars, list):
        return (
            isinstance(our, list)
            and len(pulsars) == len(our)
            and all(same(one, other) for one, other in zip(pulsars, our, strict=True))
        )
    if isinstance(pulsars, float) or isinstance(our, float):
        return bool(abs(pulsars - our) <= TOLERANCE * max(1.0, abs(pulsars), abs(our)))
    return bool(pulsars == our)


def _in_order(key: str, value: Any) -> Any:
    if key == "splits" or (key == "unloads" and any(len(move) > 3 for move in value)):
        return sorted(value)
    return sorted(value, key=itemgetter(0)) if key == "unloads" else value


def first_difference(pulsars: dict[str, Any], our: dict[str, Any]) -> str:
    """The first difference of two answers."""
    for number, (one, other) in enumerate(zip(pulsars["cycles"], our["cycles"], strict=True)):
        for key in one:
            if not same({key: one[key]}, {key: other.get(key)}):
                return f"cycle {number}, {key}: Pulsar {_unlike(one[key], other.get(key))}"
    return "nothing"


def _unlike(one: Any, other: Any) -> str:
    if isinstance(one, dict) and isinstance(other, dict):
        for key in sorted(one.keys() | other.keys()):
            if not same(one.get(key), other.get(key)):
                return f"{key}: {_unlike(one.get(key), other.get(key))}"
    if isinstance(one, list) and isinstance(other, list):
        only = [item for item in one if item not in other]
        return f"only {only}, ours only {[item for item in other if item not in one]}"
    return f"{one}, ours {other}"


class Explaining:
    """A search for the listed deviations that make a difference."""

    def __init__(self, version: str) -> None:
        self._version = version
        self._directory = tempfile.TemporaryDirectory(prefix="oracle-")
        self._undone: dict[tuple[Deviation, ...], Answering] = {}
        self._copies = 0

    def explain(self, case: dict[str, Any], pulsars: dict[str, Any]) -> tuple[Deviation, ...]:
        """Deviations that make all of the difference, none of which can be left out; empty if
        others make it, too.
        """
        able = tuple(
            deviation for deviation in DEVIATIONS if deviation.concerns(case, self._version)
        )

        def explained(by: tuple[Deviation, ...]) -> bool:
            return same(pulsars, self.without(by).answer(case))

        for one in able:
            if explained((one,)):
                return (one,)
        for some in [able, *combinations(able, 2)]:
            if explained(some):
                needed = some
                for one in some:
                    fewer = tuple(other for other in needed if other is not one)
                    needed = fewer if explained(fewer) else needed
                return needed
        return ()

    def without(self, deviations: tuple[Deviation, ...]) -> Answering:
        """Our side, with these deviations undone."""
        if deviations not in self._undone:
            if len(self._undone) == PROCESSES_MAX:
                self._undone.pop(next(iter(self._undone))).close()
            self._copies += 1
            target = Path(self._directory.name) / str(self._copies)
            copy_without(deviations, target)
            self._undone[deviations] = Answering(
                [sys.executable, str(HERE / "ours.py")], PYTHONPATH=str(target)
            )
        return self._undone[deviations]

    def close(self) -> None:
        """End the processes."""
        for process in self._undone.values():
            process.close()
        self._directory.cleanup()


@dataclass
class Row:
    """One line of the table."""

    family: str
    cases: int = 0
    cycles: int = 0
    acting: int = 0
    equal: int = 0
    deviations: Counter[str] = field(default_factory=Counter)
    unexplained: list[str] = field(default_factory=list)

    def text(self) -> str:
        """For a person."""
        named = ", ".join(f"{name} ×{count}" for name, count in sorted(self.deviations.items()))
        return (
            f"{self.family:31}{self.cases:6}{self.cycles:7}{self.acting:7}{self.equal:6}"
            f"{sum(self.deviations.values()):6}{len(self.unexplained):6}  {named}"
        )


HEAD = f"{'family':31}{'cases':>6}{'cycles':>7}{'acting':>7}{'equal':>6}{'devi.':>6}{'unex.':>6}"


@contextmanager
def answering(command: list[str]) -> Iterator[Answering]:
    """A process for as long as it is needed."""
    process = Answering(command)
    try:
        yield process
    finally:
        process.close()


def main() -> int:
    """Make cases, compare, print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cases", type=int, default=100, help="of each family")
    parser.add_argument("--pulsar", default="4.2.4", help="the version to run")
    parser.add_argument("--family", action="append", choices=sorted(cases.FAMILIES))
    parser.add_argument("--save", type=Path, help="append cases that differ to this file")
    parser.add_argument(
        "--vectors", action="store_true", help="write Pulsar's answers to the minimal cases"
    )
    given = parser.parse_args()
    if given.cases < 1:
        parser.error("with no case, nothing would be compared; give at least one")
    if not given.pulsar.startswith(VERSIONS):
        parser.error(f"cases are made for Pulsar {' and '.join(VERSIONS)} only")
    if (why := maven.missing()) is not None:
        parser.error(f"Pulsar's classes cannot run here: {why}")
    if given.vectors:
        return write_vectors(given.pulsar)
    explaining = Explaining(given.pulsar)
    rows: list[Row] = []
    print(f"Pulsar {given.pulsar}, seed {given.seed}\n{HEAD}")
    with answering(build(given.pulsar)) as pulsar:
        for family in given.family or cases.FAMILIES:
            row = Row(family)
            rows.append(row)
            for number in range(given.cases):
                case = cases.make(family, given.seed, number, given.pulsar)
                _compare(case, pulsar, explaining, row, given.save)
            print(row.text(), flush=True)
            for difference in row.unexplained[:5]:
                print(f"    {difference[:700]}")
    explaining.close()
    total = Row("sum")
    for row in rows:
        total.cases, total.cycles = total.cases + row.cases, total.cycles + row.cycles
        total.acting, total.equal = total.acting + row.acting, total.equal + row.equal
        total.unexplained += row.unexplained
        total.deviations["all"] += sum(row.deviations.values())
    print(total.text())
    return 1 if total.unexplained else 0


def write_vectors(version: str) -> int:
    """Pulsar's answers to the minimal cases, with which `test_vectors.py` compares ours."""
    with (
        answering(build(version)) as pulsar,
        (HERE / "vectors" / f"{version}.jsonl").open("w") as to,
    ):
        for one in minimal():
            if version in one.versions:
                case = one.case()
                line = {"deviation": one.deviation, "pulsar": pulsar.answer(case), "case": case}
                print(json.dumps(line), file=to)
    return 0


def _compare(
    case: dict[str, Any], pulsar: Answering, explaining: Explaining, row: Row, save: Path | None
) -> None:
    pulsars, our = pulsar.answer(case), ours.answer(case)
    row.cases += 1
    row.cycles += len(case["cycles"])
    row.acting += any(any(cycle.values()) for cycle in pulsars["cycles"])
    if same(pulsars, our):
        row.equal += 1
        return
    deviations = explaining.explain(case, pulsars)
    name = " + ".join(deviation.name for deviation in deviations)
    if deviations:
        row.deviations[name] += 1
    else:
        row.unexplained.append(f"{case['id']} {first_difference(pulsars, our)}")
    if save is not None:
        with save.open("a") as file:
            print(json.dumps({"deviation": name, "pulsar": pulsars, "case": case}), file=file)


if __name__ == "__main__":
    sys.exit(main())
