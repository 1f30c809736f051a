"""What was wrong at a moment, from the records of leaders; and when these are made."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from loadmanager.engine.findings.finding import KINDS, FindingShown, Kind
from loadmanager.engine.history.findings import FindingStep
from loadmanager.kit.units import HOUR_MS, MINUTE_MS

OTHER_FIGURES_MS = 10 * MINUTE_MS
"""A finding that goes on with figures that are nearly the same is recorded again after this."""
OTHER_WORDS_MS = 3 * MINUTE_MS
"""One that goes on with others, or in other words below its title; one with other words in its
title is recorded at the next look.
"""
MATERIAL = 0.25
"""A figure that changed by this part of the greater is another."""
SAME_WORDS_MS = HOUR_MS
"""One that goes on in the same words."""
AT_ONCE: tuple[Kind, ...] = ("lost",)
"""Kinds of which any change is recorded at once: owners of the bundles are there within seconds."""
RECORDED_MS = 2 * HOUR_MS
"""Whatever stands at a moment was recorded within this time before it."""
KNOWN_AT_ONCE: tuple[Kind, ...] = ("lost", "leader", "unserved")
"""Kinds that a leader knows at its first look, also of before its term."""
_FIGURE = re.compile(r"(?<![\w.:/-])\d[\d,]*(?:\.\d+)?(?=%|[.,;:)]?(?:\s|$))")
"""A number by itself: none in a name, an address or a moment."""
_Key = tuple[str, str]


@dataclass(slots=True)
class FindingRecords:
    """The records of one term, from one look of its leader to the next."""

    broker: str
    epoch: int
    _recorded: dict[_Key, FindingStep] = field(default_factory=dict, init=False)
    """The last records of what is wrong."""
    _looked_ms: int | None = field(default=None, init=False)
    """When it was recorded last that the leader looked; None: not yet."""

    def step(
        self, findings: Sequence[FindingShown], now_ms: int, only: Kind | None = None
    ) -> list[FindingStep]:
        """What to record of a look; `only`: it was looked for this kind alone."""
        steps, standing = list[FindingStep](), dict[_Key, FindingStep]()
        if only is None and not self._is_recorded(now_ms):
            self._looked_ms = now_ms
            steps.append(
                FindingStep(ts=now_ms, broker=self.broker, epoch=self.epoch, event="looked")
            )
        before = {key: it for key, it in self._recorded.items() if only in (None, key[0])}
        others = {key: it for key, it in self._recorded.items() if key not in before}
        for finding in findings:
            if only not in (None, finding.kind):
                continue
            last = before.pop((finding.kind, finding.about), None)
            step = self._step(finding, "began" if last is None else "again", now_ms)
            if last is None or _due(last, step):
                steps.append(step)
                last = step
            standing[finding.kind, finding.about] = last
        for last in before.values():
            steps.append(self._step(recorded(last), "ended", now_ms))
        self._recorded = others | standing
        return steps

    def _is_recorded(self, now_ms: int) -> bool:
        """Whether it is that the leader looked: what is older may be too old to be looked at."""
        return self._looked_ms is not None and now_ms - self._looked_ms < SAME_WORDS_MS

    def _step(self, finding: FindingShown, event: str, now_ms: int) -> FindingStep:
        return FindingStep(
            ts=now_ms,
            broker=self.broker,
            epoch=self.epoch,
            event=event,
            what=finding.kind,
            about=finding.about,
            since=finding.since,
            title=finding.title,
            text=finding.text,
            advice=finding.advice,
            command=finding.command,
        )


def _due(last: FindingStep, now: FindingStep) -> bool:
    before, after = (f"{it.text} {it.advice}" for it in (last, now))
    if (last.title, before) == (now.title, after):
        due_ms = SAME_WORDS_MS
    elif now.what in AT_ONCE or _words(last.title) != _words(now.title):
        due_ms = 0
    elif _words(before) != _words(after) or _differs(
        f"{last.title} {before}", f"{now.title} {after}"
    ):
        due_ms = OTHER_WORDS_MS
    else:
        due_ms = OTHER_FIGURES_MS
    return now.ts - last.ts >= due_ms


def _words(text: str) -> str:
    return _FIGURE.sub("", text)


def _differs(before: str, after: str) -> bool:
    """Whether a figure of texts in the same words is materially another."""
    pairs = zip(_figures(before), _figures(after), strict=False)
    return any(abs(was - now) > MATERIAL * max(was, now) for was, now in pairs)


def _figures(text: str) -> list[float]:
    return [float(each.replace(",", "")) for each in _FIGURE.findall(text)]


class RecordedFinding(FindingShown, kw_only=True):
    """What was wrong at a moment, in its last words before."""

    recorded_at: int
    """When its words and figures were so: later ones hardly differed, or for three minutes."""
    found_by: str
    """The leader that had found it."""


def recorded(step: FindingStep) -> RecordedFinding:
    """The finding that a record is of."""
    kind: Kind = next((each for each in KINDS if each == step.what), KINDS[0])
    return RecordedFinding(
        recorded_at=step.ts,
        found_by=step.broker,
        kind=kind,
        about=step.about,
        since=step.since,
        title=step.title,
        text=step.text,
        advice=step.advice,
        command=step.command,
    )


@dataclass(frozen=True, slots=True)
class FindingsThen:
    """What leaders had found wrong at a moment."""

    looked: bool
    """Whether the leader of then had looked; else it did not know yet what was wrong."""
    findings: list[RecordedFinding]
    """What stood in its term."""
    before: list[RecordedFinding]
    """What stood at the end of earlier terms, if they ended within the hour, and no later leader
    had found again.
    """


def findings_then(
    steps: Iterable[FindingStep], term: tuple[int, int] | None, at_ms: int
) -> FindingsThen:
    """What stood at a moment, of the steps of `RECORDED_MS` before it; `term`: that of then, and
    when it began, if that is recorded.
    """
    terms = dict[int, list[FindingStep]]()
    for step in sorted(steps, key=lambda it: it.ts):
        if step.ts <= at_ms:
            terms.setdefault(step.epoch, []).append(step)
    newest = max(terms, default=0)
    if term is None or newest > term[0]:
        term = (newest, terms[newest][0].ts if terms else at_ms)
    epoch, begun_ms = term
    now = _standing(terms.get(epoch, []))
    terms.setdefault(epoch, [])
    return FindingsThen(
        looked=_looked(terms[epoch]),
        findings=_ordered(now.values()),
        before=_ordered(_left_before(terms, begun_ms, at_ms)),
    )


def _left_before(
    terms: Mapping[int, Sequence[FindingStep]], begun_ms: int, at_ms: int
) -> list[RecordedFinding]:
    """What stood at the ends of terms before the last one, which began at `begun_ms`, and no later
    leader knows to be over: each looks anew.
    """
    left = dict[_Key, RecordedFinding]()
    epochs = sorted(terms)
    for epoch, later in pairwise(epochs):
        ended_ms = begun_ms if later == epochs[-1] else terms[later][0].ts
        if at_ms - ended_ms < HOUR_MS:
            left |= _standing(terms[epoch])
        left = {key: it for key, it in left.items() if not _knows(terms[later], it)}
    return list(left.values())


def _knows(steps: Sequence[FindingStep], finding: FindingShown) -> bool:
    """Whether a leader that recorded these knows whether it is so: it had found it, too, or finds
    such at its first look.
    """
    if finding.kind in KNOWN_AT_ONCE and _looked(steps):
        return True
    return any((step.what, step.about) == (finding.kind, finding.about) for step in steps)


def _looked(steps: Iterable[FindingStep]) -> bool:
    return any(step.event == "looked" for step in steps)


def _standing(steps: Iterable[FindingStep]) -> dict[_Key, RecordedFinding]:
    """What had begun and not ended, of the steps of one term, the oldest first."""
    standing = dict[_Key, RecordedFinding]()
    for step in steps:
        if step.event in ("began", "again"):
            standing[step.what, step.about] = recorded(step)
        elif step.event == "ended":
            standing.pop((step.what, step.about), None)
    return standing


def _ordered(findings: Iterable[RecordedFinding]) -> list[RecordedFinding]:
    return sorted(findings, key=lambda it: (KINDS.index(it.kind), it.about))
