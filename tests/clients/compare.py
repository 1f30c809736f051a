"""Two answers, compared leaf by leaf, and the differences that are listed with their reasons."""

from __future__ import annotations

import fnmatch
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

MISSING = "(nothing)"
VARIES = re.compile(
    r"(Rate|Throughput|Timestamp|Time|Age|Seconds)(In|Out|s|Seconds|InBacklogs?)?$"
    r"|^(timestamp|address|connectedSince|clientVersion|producerName|ownerBroker|ledgerId|averageMsgSize)$"
    r"|^lastConsumed|^earliestMsg|^oldestBacklog|^(cpu|memory|directMemory|bandwidth(In|Out))$"
)
"""Figures of time, addresses and names that a broker makes up: only their types are compared."""


@dataclass(frozen=True)
class Difference:
    """One leaf of one case that is not equal."""

    case: str
    path: str
    """Keys of the leaf, joined by dots; empty for an answer that is one value."""
    pulsar: str
    ours: str

    def text(self) -> str:
        """For a person."""
        return f"{self.case} [{self.path}]\n    Pulsar: {self.pulsar}\n    ours:   {self.ours}"


@dataclass
class Expected:
    """A difference that is meant: in these cases, at these paths, ours is so, because `why`.

    Cases and paths are patterns with *; `ours` is a regular expression of our whole value. Each
    case must have such a difference.
    """

    cases: tuple[str, ...]
    why: str
    paths: tuple[str, ...] = ("*",)
    ours: str = ".*"
    seen: set[str] = field(default_factory=set)

    def explains(self, difference: Difference) -> bool:
        """True if it is this one; remembers the case."""
        if not any(fnmatch.fnmatchcase(difference.path, path) for path in self.paths):
            return False
        if re.fullmatch(self.ours, difference.ours, re.DOTALL) is None:
            return False
        found = [one for one in self.cases if fnmatch.fnmatchcase(difference.case, escaped(one))]
        self.seen.update(found)
        return bool(found)

    def unseen(self) -> list[str]:
        """Cases without such a difference."""
        return [one for one in self.cases if one not in self.seen]


def escaped(pattern: str) -> str:
    """Brackets are no special characters here."""
    return pattern.replace("[", "[[]")


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Every leaf with its path. The order of lines of a text does not count."""
    if isinstance(value, dict) and value:
        for key in sorted(value):
            below = f"{path}.{key}" if path else key
            if VARIES.search(key) and not isinstance(value[key], dict | list):
                yield below, type_of(value[key])
            else:
                yield from leaves(value[key], below)
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        for number, item in enumerate(value):
            yield from leaves(item, f"{path}.{number}")
    elif isinstance(value, str):
        yield path, "\n".join(sorted(value.splitlines()))
    else:
        yield path, json.dumps(value, sort_keys=True, ensure_ascii=False)


def type_of(value: Any) -> str:
    """The name of a JSON type."""
    return "number" if isinstance(value, int | float) else type(value).__name__


def differences(pulsar: dict[str, Any], ours: dict[str, Any]) -> list[Difference]:
    """The differences of all cases. Of commands with another status, nothing else is compared."""
    found = []
    for case in [*pulsar, *(case for case in ours if case not in pulsar)]:
        one = dict(leaves(pulsar.get(case, MISSING)))
        other = dict(leaves(ours.get(case, MISSING)))
        same_status = one.get("status") == other.get("status")
        for path in sorted(one.keys() | other.keys()) if same_status else ["status"]:
            values = one.get(path, MISSING), other.get(path, MISSING)
            if values[0] != values[1]:
                found.append(Difference(case, path, *values))
    return found


def unexplained(
    found: Iterable[Difference], expected: Sequence[Expected]
) -> tuple[list[Difference], list[str]]:
    """The differences that no row explains; and the cases of rows without their difference, with
    the reasons.
    """
    left = [one for one in found if not [row for row in expected if row.explains(one)]]
    return left, [f"{one} ({row.why})" for row in expected for one in row.unseen()]
