"""What is recorded of findings, and what they were at a moment, across terms."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from loadmanager.engine.findings.finding import FindingShown, Kind
from loadmanager.engine.findings.recorded import RECORDED_MS, FindingRecords, findings_then
from loadmanager.engine.history.findings import FindingStep
from loadmanager.kit.units import HOUR_MS, MINUTE_MS

DAY = 24 * HOUR_MS


def a_finding(about: str, text: str = "as it was", kind: Kind = "clock") -> FindingShown:
    """Something that is wrong."""
    return FindingShown(kind=kind, about=about, since=1, title=about, text=text, advice="do it")


def events(steps: list[FindingStep]) -> list[tuple[str, str]]:
    """What happened to what."""
    return [(step.event, step.about) for step in steps]


def test_beginnings_changes_and_ends_are_recorded() -> None:
    """Other words after three minutes, the same ones after an hour, as that it is looked; nothing
    while nothing changes.
    """
    records = FindingRecords("b1", 7)
    one = a_finding("b2")
    assert events(records.step([one], DAY)) == [("looked", ""), ("began", "b2")]
    assert records.step([one], DAY + 59 * MINUTE_MS) == []
    assert events(records.step([one], DAY + HOUR_MS)) == [("looked", ""), ("again", "b2")]
    other = a_finding("b2", "worse")
    assert records.step([other], DAY + HOUR_MS + 2 * MINUTE_MS) == []
    (again,) = records.step([other], DAY + HOUR_MS + 3 * MINUTE_MS)
    assert (again.event, again.text, again.epoch, again.broker) == ("again", "worse", 7, "b1")
    steps = records.step([a_finding("b3")], DAY + 2 * HOUR_MS)
    assert events(steps) == [("looked", ""), ("began", "b3"), ("ended", "b2")]
    assert FindingRecords("b1", 8).step([], DAY)[0].event == "looked"


@pytest.mark.parametrize(
    ("title", "text", "minutes"),
    [
        ("it stands", "1,000 messages of 127.0.0.1:8080 at 2026-11-30T21:34:13Z", 1),
        ("it grows by 700", "1,000 messages of 127.0.0.1:8080 at 2026-11-30T21:34:13Z", 3),
        ("it grows by 1,000", "1,500 messages of 127.0.0.1:8080 at 2026-11-30T21:34:13Z", 3),
        ("it grows by 1,000", "1,000 messages of 127.0.0.1:8080 at 2026-11-30T21:40:13Z", 3),
        ("it grows by 800", "1,200 messages of 127.0.0.1:8080 at 2026-11-30T21:34:13Z", 10),
    ],
    ids=["title", "its figure", "figure", "moment", "nearly the same"],
)
def test_how_soon_a_change_is_recorded(title: str, text: str, minutes: int) -> None:
    """The sooner, the more the earlier words are wrong; what is shown of a moment says when."""
    records = FindingRecords("b1", 7)
    first = "1,000 messages of 127.0.0.1:8080 at 2026-11-30T21:34:13Z"
    it = replace(a_finding("b2", first), title="it grows by 1,000")
    other = replace(it, title=title, text=text)
    steps = records.step([it], DAY)
    for minute in range(1, 11):
        steps += records.step([other], DAY + minute * MINUTE_MS)
    recorded = [step.ts - DAY for step in steps if step.event == "again"]
    assert recorded == [minutes * MINUTE_MS]
    for minute, of_ms in ((minutes, DAY + minutes * MINUTE_MS), (minutes - 0.1, DAY)):
        (then,) = findings_then(steps, (7, DAY), round(DAY + minute * MINUTE_MS)).findings
        assert then.recorded_at == of_ms


def test_what_becomes_of_a_lost_broker_is_recorded_at_once() -> None:
    """Within seconds its bundles have owners again: what was said before is wrong then."""
    records = FindingRecords("b1", 7)
    records.step([a_finding("b2", kind="lost")], DAY, "lost")
    served = a_finding("b2", "all are served", kind="lost")
    (again,) = records.step([served], DAY + 1_000, "lost")
    assert (again.event, again.text) == ("again", "all are served")
    assert records.step([served], DAY + 2_000, "lost") == []


def test_one_kind_may_be_looked_for_alone() -> None:
    """What else stands is as it was; it is no look for all, of which nothing is said before one."""
    records = FindingRecords("b1", 7)
    lost = a_finding("b9", kind="lost")
    steps = records.step([lost], DAY, "lost")
    assert events(steps) == [("began", "b9")]
    then = findings_then(steps, (7, DAY), DAY)
    assert (then.looked, [it.about for it in then.findings]) == (False, ["b9"])
    both = records.step([a_finding("b2"), lost], DAY + MINUTE_MS)
    assert events(both) == [("looked", ""), ("began", "b2")]
    assert events(records.step([], DAY + 2 * MINUTE_MS, "lost")) == [("ended", "b9")]
    assert events(records.step([], DAY + 3 * MINUTE_MS)) == [("ended", "b2")]


def test_that_nothing_is_wrong_is_known_hours_after_a_term_began() -> None:
    """By the records of the last two hours, which are those that are asked for."""
    records = FindingRecords("b1", 7)
    steps = [step for hour in range(9) for step in records.step([], DAY + hour * HOUR_MS)]
    now = DAY + 8 * HOUR_MS + 59 * MINUTE_MS
    recent = [step for step in steps if step.ts >= now - RECORDED_MS]
    assert findings_then(recent, (7, DAY), now).looked


def test_a_moment_of_one_term() -> None:
    """What had begun and not ended, in its last words; the order of the records does not count."""
    records = FindingRecords("b1", 7)
    steps = records.step([a_finding("b2"), a_finding("t/n", kind="flapping")], DAY)
    steps += records.step([a_finding("b2", "worse")], DAY + 10 * MINUTE_MS)
    steps.reverse()
    then = findings_then(steps, (7, DAY), DAY + 9 * MINUTE_MS)
    assert [(it.kind, it.about, it.text) for it in then.findings] == [
        ("clock", "b2", "as it was"),
        ("flapping", "t/n", "as it was"),
    ]
    then = findings_then(steps, (7, DAY), DAY + 10 * MINUTE_MS)
    assert [(it.about, it.text) for it in then.findings] == [("b2", "worse")]
    assert (then.looked, then.before) == (True, [])
    assert findings_then(steps, (7, DAY), DAY - 1).looked is False


def test_a_term_that_is_over_ends_what_stood_in_it() -> None:
    """It is told beside what the next leader has found, for an hour; not what that one has found,
    too, nor what ended before.
    """
    first = FindingRecords("b1", 7)
    steps = first.step([a_finding("b2"), a_finding("b3"), a_finding("b4")], DAY)
    steps += first.step([a_finding("b2"), a_finding("b3")], DAY + MINUTE_MS)
    begun = DAY + 2 * MINUTE_MS
    then = findings_then(steps, (8, begun), begun + 1)
    assert (then.looked, then.findings) == (False, [])
    assert [(it.found_by, it.about) for it in then.before] == [("b1", "b2"), ("b1", "b3")]
    steps += FindingRecords("b5", 8).step([a_finding("b3")], begun + MINUTE_MS)
    for term in ((8, begun), None):  # the same where terms are not recorded
        then = findings_then(steps, term, begun + 2 * MINUTE_MS)
        assert (then.looked, [it.about for it in then.findings]) == (True, ["b3"])
        assert [it.about for it in then.before] == ["b2"]
    then = findings_then(steps, (8, begun), begun + HOUR_MS)
    assert ([it.about for it in then.findings], then.before) == (["b3"], [])
    then = findings_then(steps, (7, DAY), begun)
    assert ([it.about for it in then.findings], then.before) == (["b2", "b3"], [])


def test_what_stood_before_several_short_terms_is_not_forgotten() -> None:
    """The leaders between may not have led long enough to find it: it is told for an hour after the
    term in which it stood, unless one of them found it and saw its end.
    """
    steps = FindingRecords("b1", 1).step([a_finding("b2"), a_finding("b3")], DAY)
    second = FindingRecords("b2", 2)
    steps += second.step([a_finding("b3")], DAY + MINUTE_MS)
    steps += second.step([], DAY + 2 * MINUTE_MS)
    begun = DAY + 4 * MINUTE_MS
    for more in ([], FindingRecords("b4", 4).step([], begun + MINUTE_MS)):
        then = findings_then([*steps, *more], (4, begun), begun + MINUTE_MS)
        assert [(it.found_by, it.about) for it in then.before] == [("b1", "b2")]
    assert findings_then(steps, (4, begun), DAY + MINUTE_MS + HOUR_MS).before == []


def test_what_a_leader_sees_at_its_first_look_is_not_told_of_the_one_before() -> None:
    """Who is lost, say: until it has looked that may be so still."""
    steps = FindingRecords("b1", 1).step([a_finding("b2"), a_finding("b3", kind="lost")], DAY)
    begun = DAY + MINUTE_MS
    then = findings_then(steps, (2, begun), begun)
    assert [it.about for it in then.before] == ["b3", "b2"]
    steps += FindingRecords("b4", 2).step([], begun + MINUTE_MS)
    then = findings_then(steps, (2, begun), begun + MINUTE_MS)
    assert [it.about for it in then.before] == ["b2"]
