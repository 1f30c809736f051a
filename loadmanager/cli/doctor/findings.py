"""The doctor's findings: each has a level, a place, an observation and advice."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum


class Severity(Enum):
    """The severity of a finding, the worst first."""

    PROBLEM = "problem"
    """Something does not work, or soon will not."""
    WARNING = "warning"
    """It works, and not as one would expect."""
    FINE = "fine"
    """It was looked at, and is as it should be."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One finding. `advice` says what to do; it is empty for what is fine."""

    level: Severity
    part: str
    """host, ZooKeeper, cluster or configuration."""
    subject: str
    """A broker, a server, a key."""
    text: str
    advice: str = ""


def problem(part: str, subject: str, text: str, advice: str) -> Diagnosis:
    """Something does not work."""
    return Diagnosis(Severity.PROBLEM, part, subject, text, advice)


def warning(part: str, subject: str, text: str, advice: str) -> Diagnosis:
    """Something is not as one would expect."""
    return Diagnosis(Severity.WARNING, part, subject, text, advice)


def fine(part: str, subject: str, text: str) -> Diagnosis:
    """Something is as it should be."""
    return Diagnosis(Severity.FINE, part, subject, text)


def ordered(findings: Iterable[Diagnosis]) -> list[Diagnosis]:
    """The worst first; in the order in which they were made otherwise."""
    levels = list(Severity)
    return sorted(findings, key=lambda finding: levels.index(finding.level))
