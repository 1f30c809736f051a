"""Which clients were interrupted, by name, and how long each waited, from the records of clients
and of brokers that were lost or stood still.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass, field
from math import inf

from loadmanager.engine.history.clients import CLOSED_HERE, HUNG_UP, ClientStep

BY_BROKER = (CLOSED_HERE, HUNG_UP)
"""Reasons for which a client left that did not want to."""
TAKEN_MS = 10_000
"""Bundles of a lost broker may have new owners before it is recorded as lost, by at most so much.
"""
TRIED_MS = 90_000
"""A client that comes back, and leaves within this time without a message, only tried to: it waited
for the answer in vain, for 30 s, say, because a limit holds its connection. Its broker reads both
late, and maybe slowly.
"""
GIVES_UP_MS = 25_000
"""A client that waited for longer may have given up, after 30 s as a rule, when its broker reads
what it had sent: that it comes, and that it leaves.
"""
GIVEN_UP_MS = 10_000
"""The broker has read the second within this time after the first, as a rule."""
UNSURE_MS = 600_000
"""A client that may have ended before its broker was lost, and comes within this time, had not."""
Key = tuple[str, str, str, str]
"""What it is, its name, its topic and its subscription: the same when it comes again."""


@dataclass(frozen=True, slots=True)
class Loss:
    """A broker whose session ended."""

    broker: str
    ts: int
    unheard_ms: int = 0
    """Its last sign was at most so long before."""


@dataclass(frozen=True, slots=True)
class Standstill:
    """A time in which the process of a broker stood still, and did not lose its session."""

    broker: str
    begin: int
    end: int


@dataclass(slots=True)
class Interrupted:
    """A producer or consumer that a broker no longer served, without having closed it."""

    client: ClientStep
    """As it was attached or left last."""
    since: int
    lost: bool
    """Whether its broker was lost; else it gave the topic up, or stood still."""
    unheard_ms: int = 0
    """It may have waited for so much longer."""
    back_at: int | None = None
    """None: it was not seen to be back."""
    back: str = ""
    """The broker that serves it since."""
    over: str = ""
    """Its connection there."""
    stood: bool = False
    """Whether its broker stood still, and served it on afterwards."""
    unsure: bool = False
    """Whether it is not known that it was still there: steps of clients of its broker were recorded
    by their number only since its own last one, and it did not come soon after. It does not count.
    """
    again_at: int | None = None
    """Of one that is not back: when it was attached again, if it still is. Whether it stays is not
    sure.
    """
    again: str = ""
    """The broker to which it is attached since."""
    tried: list[tuple[str, str]] = field(default_factory=list, init=False)
    """The brokers to which it came meanwhile, and its connection there, each without a message and
    for less than `TRIED_MS`, or until now: it was not back.
    """

    def until(self, at_ms: int) -> Interrupted:
        """As it was at a moment: not back yet, if it came later."""
        if (self.came_at or 0) <= at_ms:
            return self
        then = copy(self)
        then.back_at, then.back, then.over = None, "", ""
        then.again_at, then.again = None, ""
        return then

    @property
    def came_at(self) -> int | None:
        """When it was attached again, also if it is not sure that it stays; None: it is away."""
        return self.again_at if self.back_at is None else self.back_at

    def waited_ms(self, now_ms: int) -> int:
        """How long it waited, or waits."""
        return max(0, (self.came_at or now_ms) - self.since)


def key_of(step: ClientStep) -> Key:
    """What is the same when a client comes again; a producer without a name keeps the one that its
    first broker gave it.
    """
    return step.what, step.name, step.topic or "", step.subscription or ""


@dataclass(slots=True)
class _Timeline:
    present: dict[Key, ClientStep] = field(default_factory=dict)
    before: dict[Key, ClientStep] = field(default_factory=dict)
    """How those were attached before, that were attached again without having left."""
    open: dict[Key, Interrupted] = field(default_factory=dict)
    came: dict[Key, Interrupted] = field(default_factory=dict)
    """The last interruption of those that are attached again; these may turn out to be tries."""
    all: list[Interrupted] = field(default_factory=list)
    gaps: dict[str, int] = field(default_factory=dict)
    """Broker → until when it had recorded steps by their number only, the last time."""

    def attached(self, step: ClientStep) -> None:
        key = key_of(step)
        self.before.pop(key, None)
        if (last := self.present.get(key)) is not None:
            self.before[key] = last
        self.present[key] = step
        self._back(key, step)

    def _back(self, key: Key, step: ClientStep) -> None:
        if (waits := self.open.pop(key, None)) is not None:
            waits.back_at, waits.back = max(step.ts, waits.since), step.broker
            waits.over = step.client
            waits.unsure = waits.unsure and step.ts - waits.since > UNSURE_MS
            self.came[key] = waits

    def left(self, step: ClientStep) -> None:
        key = key_of(step)
        there = self.present.get(key)
        if self._only_tried(key, step):
            self._waits_on(key)
            if there is None or (there.broker, there.client) == (step.broker, step.client):
                self._gone(key)
            else:
                self._back(key, there)  # it tries again already
            return
        if there is not None and there.broker != step.broker and there.ts <= step.ts:
            return  # it is at another broker by now: this one closed what was left of it
        waits = self.open.get(key)
        if waits is not None and waits.lost and waits.client.broker == step.broker:
            return  # one that was frozen closes those that it had when it was lost
        self._gone(key)
        if step.reason in BY_BROKER:
            since_ms = step.ts - (step.fenced_ms or 0)
            self._interrupted(key, Interrupted(step, since_ms, lost=False))
        else:
            self.open.pop(key, None)

    def _gone(self, key: Key) -> None:
        self.present.pop(key, None)
        self.before.pop(key, None)

    def _only_tried(self, key: Key, step: ClientStep) -> bool:
        """Whether the attachment that ends here, by which a client seemed to be back, was a try. A
        broker that ends the first one interrupts a client that was back, as far as anyone knows.
        """
        waits = self.came.get(key)
        if waits is None or (waits.back, waits.over) != (step.broker, step.client):
            return False
        if step.messages != 0 or (step.reason in BY_BROKER and not waits.tried):
            return False
        lasted_ms = step.attached_ms
        return self._is_short(waits, step.ts) if lasted_ms is None else lasted_ms < TRIED_MS

    @staticmethod
    def _is_short(waits: Interrupted, at_ms: float) -> bool:
        return at_ms - (waits.back_at or 0) < TRIED_MS

    def _waits_on(self, key: Key) -> None:
        """It is gone again, or may be: where it seemed to be back, it only tried to."""
        waits = self.open[key] = self.came.pop(key)
        waits.tried.append((waits.back, waits.over))
        waits.back_at, waits.back, waits.over = None, "", ""

    def lost(self, loss: Loss) -> None:
        for key, step in list(self.present.items()):
            last = self.before.get(key)
            if step.broker == loss.broker:
                del self.present[key]
                came = self.came.get(key)
                if came is not None and came.tried and self._is_short(came, loss.ts):
                    self._waits_on(key)
                    continue
                waits = Interrupted(step, loss.ts, True, loss.unheard_ms)
                waits.unsure = self._may_have_left(step)
                self._interrupted(key, waits)
            elif last is not None and last.broker == loss.broker and loss.ts - step.ts <= TAKEN_MS:
                del self.before[key]
                self._interrupted(key, Interrupted(last, step.ts, True, loss.unheard_ms))
                self._back(key, step)

    def stood(self, still: Standstill) -> None:
        for step in self.present.values():
            if step.broker == still.broker:
                at, by = still.end, still.broker
                waited = Interrupted(step, still.begin, lost=False, back_at=at, back=by, stood=True)
                waited.unsure = self._may_have_left(step)
                self.all.append(waited)

    def _may_have_left(self, step: ClientStep) -> bool:
        """Whether that may be among the steps that its broker recorded by their number only."""
        return self.gaps.get(step.broker, step.ts) > step.ts

    def _interrupted(self, key: Key, interrupted: Interrupted) -> None:
        self.came.pop(key, None)
        self.open[key] = interrupted
        self.all.append(interrupted)

    def end(self, as_of_ms: float) -> None:
        """Those that tried in vain, and came again a moment ago, may only try once more; those that
        came after they may have given up may leave at once.
        """
        for key, waits in list(self.came.items()):
            came_ms = waits.back_at or 0
            if key not in self.present:
                continue
            at, by = waits.back_at, waits.back
            if waits.tried and self._is_short(waits, as_of_ms):
                self._waits_on(key)
            elif came_ms - waits.since > GIVES_UP_MS and as_of_ms - came_ms < GIVEN_UP_MS:
                waits.back_at, waits.back, waits.over = None, "", ""
            if waits.back_at is None:
                waits.again_at, waits.again = at, by


def interruptions_of(
    steps: Iterable[ClientStep],
    losses: Sequence[Loss],
    stood: Iterable[Standstill] = (),
    as_of_ms: float = inf,
) -> list[Interrupted]:
    """The interruptions that the records tell, the oldest first, with those that are `unsure`;
    `as_of_ms`: the records are those until then.

    A client is back with the first attachment that has a message or lasts, and not with one that it
    leaves within 90 s without a message; nor with the next one, until it has lasted so long; nor
    with one after more than 25 s, until it has lasted for ten: it may have given up by then. Such a
    one is attached again (`again_at`). A client that its broker closed, and that closed itself
    meanwhile, is not told to be back.
    """
    timeline = _Timeline()
    dated: list[tuple[int, int, ClientStep | Loss | Standstill]] = [
        (step.ts, _rank(step), step) for step in steps
    ]
    dated += [(loss.ts, 1, loss) for loss in losses]
    dated += [(still.begin, 3, still) for still in stood]
    for _, _, it in sorted(dated, key=lambda each: each[:2]):
        if isinstance(it, Loss):
            timeline.lost(it)
        elif isinstance(it, Standstill):
            timeline.stood(it)
        elif it.event == "attached":
            timeline.attached(it)
        elif it.event == "unrecorded":
            timeline.gaps[it.broker] = it.ts
        else:
            timeline.left(it)
    timeline.end(as_of_ms)
    return timeline.all


def _rank(step: ClientStep) -> int:
    """The order of what was at one time: who leaves does so before it comes again, but not before
    it came.
    """
    if step.event == "attached":
        return 2
    return 4 if step.attached_ms == 0 else 0


def attached_at(
    steps: Iterable[ClientStep], losses: Sequence[Loss], at_ms: int
) -> list[ClientStep]:
    """The clients that were attached at a moment, as they came last; `losses`: those before it."""
    there = dict[Key, ClientStep]()
    for step in sorted(steps, key=lambda it: (it.ts, it.event == "attached")):
        if step.ts > at_ms:
            break
        last = there.get(key_of(step))
        if step.event == "attached":
            there[key_of(step)] = step
        elif step.event == "left" and (last is None or last.broker == step.broker):
            there.pop(key_of(step), None)
    lost = {(loss.broker, loss.ts) for loss in losses if loss.ts <= at_ms}
    return [
        step
        for step in there.values()
        if not any(broker == step.broker and ts >= step.ts for broker, ts in lost)
    ]


def worst_first(waits: Iterable[Interrupted], now_ms: int) -> list[Interrupted]:
    """Those that are away first, then those that may not stay, then by how long they waited."""

    def rank(it: Interrupted) -> tuple[bool, bool, int, Key]:
        is_back = it.back_at is not None
        return it.came_at is not None, is_back, -it.waited_ms(now_ms), key_of(it.client)

    return sorted(waits, key=rank)
