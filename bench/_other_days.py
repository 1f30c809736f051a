"""Ten days made apart from `bench/_stories.py`: another generator, with other names, sizes and
rhythms, and clusters that are even only by chance.

Namespaces follow Zipf's law and have the hours of an office, of evenings, of a nightly batch, of a
cron job, or none; they differ from hour to hour by noise that stays for a while. Brokers have two
sizes; CPU goes by bytes and by messages. Each day has nine days before.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bench import _history as history
from bench._made_days import date_of
from bench._stories import WANTS, Report, Story, judge

MINUTES = 1440
TENANTS = ("bank", "clips", "fleet-eu", "search", "shop", "telemetry", "wallet")
RHYTHMS = ("office", "evening", "batch", "cron", "flat")
EDGES = ("0x00000000", "0x38000000", "0x71000000", "0xb4000000", "0xffffffff")
LEVEL = 0.34
"""The mean usage of all brokers at the usual traffic."""
PAST = range(-9, 0)
MESSAGE_COST = 400.0
"""Bytes that cost as much as a message."""


@dataclass(kw_only=True)
class Day:
    """What happens. Minutes count from the day's begin; brokers and namespaces are numbers."""

    traffic: Callable[[int, int], float] = lambda _space, _minute: 1.0
    size: Callable[[int, int], float] = lambda _space, _minute: 1.0
    cost: Callable[[int, int], float] = lambda _broker, _minute: 1.0
    away: Callable[[int, float], bool] = lambda _broker, _minute: False
    shows: Callable[[int, int, float], float] = lambda _broker, _minute, used: used
    """Broker, minute, usage → what its sensor shows."""
    owner: Callable[[str, int, int], int | None] = lambda _bundle, _minute, broker: broker
    """Bundle, minute, usual broker → its broker."""
    clock_s: Callable[[int], float] = lambda _broker: 0.0
    rests: bool = False
    """Whether the offices are closed."""


@dataclass(frozen=True)
class Space:
    """A namespace."""

    name: str
    mean: float
    """Bytes/s."""
    message: float
    rhythm: str
    bundles: tuple[str, ...]


@dataclass
class OtherWorld:
    """A cluster that is the same on each day of a seed."""

    root: Path
    seed: int
    count: int = 6
    every: int = 3
    """Minutes from sample to sample."""
    lines: dict[tuple[int, str, int], list[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Make the brokers and namespaces, and give the bundles to brokers, the largest first."""
        rng = random.Random(f"other {self.seed}")
        self.brokers = [f"10.31.{self.seed}.{number + 10}:8080" for number in range(self.count)]
        self.cores = [4.0 if number % 3 else 8.0 for number in range(self.count)]
        self.idle = [rng.uniform(0.03, 0.1) for _ in self.brokers]
        self.phases = [rng.uniform(0, self.every) for _ in self.brokers]
        names = [f"{tenant}/{kind}" for tenant in TENANTS for kind in ("in", "out", "dlq")]
        rng.shuffle(names)
        self.spaces = [
            Space(
                name,
                1e6 * (rank + 1) ** -0.9,
                rng.lognormvariate(math.log(900), 1.0),
                RHYTHMS[rank % len(RHYTHMS)],
                tuple(f"{name}/{low}_{high}" for low, high in zip(EDGES, EDGES[1:], strict=False)),
            )
            for rank, name in enumerate(names)
        ]
        shares = (0.4, 0.3, 0.2, 0.1)
        self.share = {
            bundle: share
            for space in self.spaces
            for bundle, share in zip(space.bundles, rng.sample(shares, 4), strict=True)
        }
        work = {
            bundle: self.share[bundle] * space.mean * (1 + MESSAGE_COST / space.message)
            for space in self.spaces
            for bundle in space.bundles
        }
        self.scale = LEVEL * sum(self.cores) / sum(work.values())
        loads = [0.0] * self.count
        self.usual: dict[str, int] = {}
        for bundle in sorted(work, key=lambda name: (-work[name], name)):
            broker = min(range(self.count), key=lambda at: (loads[at] / self.cores[at], at))
            self.usual[bundle] = broker
            loads[broker] += work[bundle]

    def space(self, rank: int) -> str:
        """The name of a namespace; 0 is the largest."""
        return self.spaces[rank].name

    def of(self, broker: int) -> list[str]:
        """The bundles that a broker usually has."""
        return [bundle for bundle, owner in self.usual.items() if owner == broker]

    def add(self, day: int, kind: str, broker: int, minute: float, **fields: Any) -> None:
        """A record."""
        line = history.compact(fields, day * MINUTES + minute, self.brokers[broker])
        self.lines.setdefault((day, kind, broker), []).append(line)

    def write(self) -> None:
        """Seal all segments."""
        for (day, kind, broker), lines in self.lines.items():
            history.write(self.root, kind, self.brokers[broker], lines, date=date_of(day))

    def live(self, day: int, how: Day, every: int | None = None) -> None:
        """A day; `every`: another interval of samples."""
        rng, every = random.Random(f"{self.seed} on {day}"), every or self.every
        of_day = [rng.lognormvariate(0, 0.05) for _ in self.spaces]
        drift = [0.0] * len(self.spaces)
        for minute in range(0, MINUTES, every):
            carried: list[list[tuple[str, float, float]]] = [[] for _ in self.brokers]
            for rank, space in enumerate(self.spaces):
                drift[rank] = 0.97 * drift[rank] + rng.gauss(0, 0.02)
                value = space.mean * of_day[rank] * math.exp(drift[rank])
                value *= _rhythm(space.rhythm, minute, how.rests) * how.traffic(rank, minute)
                message = space.message * how.size(rank, minute)
                for bundle in space.bundles:
                    broker = how.owner(bundle, minute, self.usual[bundle])
                    if broker is not None:
                        part = value * self.share[bundle] * rng.uniform(0.95, 1.05)
                        carried[broker].append((bundle, part, part / message))
            for broker, bundles in enumerate(carried):
                at = minute + self.phases[broker] * every / self.every
                if not how.away(broker, at):
                    self._report(day, broker, at, bundles, how, rng, every)

    def _report(
        self,
        day: int,
        broker: int,
        at: float,
        bundles: Sequence[tuple[str, float, float]],
        how: Day,
        rng: random.Random,
        every: int,
    ) -> None:
        work = sum(value + MESSAGE_COST * rate for _, value, rate in bundles)
        used = (
            self.idle[broker] + how.cost(broker, int(at)) * self.scale * work / self.cores[broker]
        )
        used = min(how.shows(broker, int(at), used * rng.gauss(1, 0.02)), 1.0)
        at += how.clock_s(broker) / 60
        limit, span = 100 * self.cores[broker], {"intervalMs": every * history.MINUTE_MS}
        nothing = {"usage": 0.0, "limit": 100.0}
        sums = {
            "msgRateIn": sum(rate for _, _, rate in bundles),
            "msgThroughputIn": sum(value for _, value, _ in bundles),
        }
        rest = dict.fromkeys(("memory", "directMemory", "bandwidthIn", "bandwidthOut"), nothing)
        cpu = {"usage": used * limit, "limit": limit}
        fields: dict[str, Any] = {**span, "usage": used, "cpu": cpu, **rest, **sums}
        self.add(day, "broker_load", broker, at, bundles=len(bundles), **fields)
        for bundle, value, rate in bundles:
            load = {"bundle": bundle, "msgRateIn": rate, "msgThroughputIn": value}
            self.add(day, "bundle_load", broker, at, **span, **load, topics=3, producers=2)

    def handed_over(self, minute: float, bundle: str, source: int, to: int, how: Day) -> None:
        """The leader moves a bundle on the day; each broker records by its own clock."""
        life = int(minute * 1000)
        ends = {"life": life, "destination": self.brokers[to], "cause": "leader", "reason": "x"}
        at = minute + how.clock_s(source) / 60
        self.step(source, at, bundle, ("Owned", "Releasing"), **ends)
        self.step(source, at + 0.002, bundle, ("Releasing", "Free"), pauseMs=90.0, **ends)
        self.acquired(minute + 0.001 + how.clock_s(to) / 60, bundle, to, life + 1)

    def acquired(self, minute: float, bundle: str, broker: int, life: int | None = None) -> None:
        """A broker comes to own a bundle on the day, by its clock."""
        why = {"cause": "lookup", "reason": "x", "life": life}
        self.step(broker, minute, bundle, ("Free", "Assigning"), **why)
        self.step(broker, minute, bundle, ("Assigning", "Owned"), **why)

    def step(
        self, broker: int, minute: float, bundle: str, states: tuple[str, str], **more: Any
    ) -> None:
        """A record of ownership on the day."""
        before, after = states
        self.add(0, "ownership", broker, minute, bundle=bundle, before=before, after=after, **more)


def _rhythm(rhythm: str, minute: int, rests: bool) -> float:
    hour = minute / 60
    match rhythm:
        case "office":
            return (0.15 if rests else 1.0) * (0.3 + 1.4 * math.exp(-(((hour - 13) / 4) ** 4)))
        case "evening":
            return 0.6 + 1.2 * math.exp(-(((hour - 20.5) / 2) ** 2))
        case "batch":
            return 2.5 if 1 <= hour < 3.5 else 0.7
        case "cron":
            return 1.8 if minute % 60 < 9 else 0.9
    return 1.0


def rests(day: int) -> bool:
    """Whether a day is one of a weekend. Day 0 is a Friday."""
    return (day + 4) % 7 >= 5


Happens = Callable[[OtherWorld, int], Day]
"""A world and a day → how that goes; records beside loads are added for day 0."""


def _ordinary(_world: OtherWorld, day: int) -> Day:
    return Day(rests=rests(day))


def _crash(world: OtherWorld, day: int) -> Day:
    """Broker 2 is killed at 14:03, 20 s after a load; others have its bundles 31 s after that."""
    if day:
        return _ordinary(world, day)
    last = 843 + world.phases[2]
    killed, taken = last + 20 / 60, last + 51 / 60
    world.step(2, killed - 1 / 60, "shop/in/0x1", ("Free", "Owned"), cause="lookup", reason="x")
    for number, bundle in enumerate(world.of(2)):
        world.acquired(taken + number / 600, bundle, (0, 1, 3, 4, 5)[number % 5])
    others = {name: (0, 1, 3, 4, 5)[number % 5] for number, name in enumerate(world.of(2))}
    return Day(
        away=lambda broker, minute: broker == 2 and killed <= minute < 852,
        owner=lambda name, minute, usual: others.get(name, usual) if minute > last else usual,
    )


def _limit(world: OtherWorld, day: int) -> Day:
    """From eleven to two, a publish limit of a topic holds eight clients."""
    if not day:
        for minute in range(0, MINUTES, world.every):
            holds = 660 <= minute < 840
            waits = {"held": 400, "waitedMs": 8.0 * world.every * 60_000} if holds else {}
            world.add(
                0,
                "throttle",
                1,
                minute + 2,
                intervalMs=world.every * history.MINUTE_MS,
                limit=f"persistent://{world.space(4)}/raw publish",
                level="topic",
                configuredMessagesPerS=500.0,
                configuredBytesPerS=-1.0,
                deliveredMessagesPerS=499.0 if holds else 180.0,
                deliveredBytesPerS=0.0,
                **waits,
            )
    return _ordinary(world, day)


def _noisy(world: OtherWorld, day: int) -> Day:
    """The third namespace sends ten times as much for three hours."""
    how = _ordinary(world, day)
    return replace(
        how,
        traffic=lambda space, minute: 10.0 if not day and space == 2 and 780 <= minute < 960 else 1,
    )


def _stuck(world: OtherWorld, day: int) -> Day:
    """The sensor of broker 4 shows 31 % from six in the morning on."""
    if day:
        return _ordinary(world, day)
    return Day(shows=lambda broker, minute, used: 0.31 if broker == 4 and minute >= 360 else used)


def _skewed(world: OtherWorld, day: int) -> Day:
    """The clock of broker 5 is 25 s ahead; twenty bundles are handed over, to and fro."""
    if day:
        return _ordinary(world, day)
    how = Day(clock_s=lambda broker: 25.0 if broker == 5 else 0.0)
    moved: dict[str, tuple[float, int]] = {}
    mine, rest = world.of(5), [name for name, owner in world.usual.items() if owner != 5]
    for number in range(10):
        minute = 60.0 + 120 * number + 0.5
        out = mine[number] if number < len(mine) else mine[0]
        if out not in moved:
            world.handed_over(minute, out, 5, number % 5, how)
            moved[out] = (minute, number % 5)
        back = rest[7 * number]
        world.handed_over(minute + 30, back, world.usual[back], 5, how)
        moved[back] = (minute + 30, 5)

    def owner(name: str, minute: int, usual: int) -> int:
        at, to = moved.get(name, (math.inf, usual))
        return to if minute >= at else usual

    return replace(how, owner=owner)


def _slow(world: OtherWorld, day: int) -> Day:
    """From three days before on, broker 1 needs 2.2 times as much."""
    how = _ordinary(world, day)
    return replace(how, cost=lambda broker, _: 2.2 if broker == 1 and day >= -3 else 1.0)


def _remade(world: OtherWorld, day: int) -> Day:
    """Somebody deletes a namespace at 16:20 and makes it again half an hour later; in the morning,
    the messages of another one become a third as large, at the same rate.
    """
    if day:
        return _ordinary(world, day)
    space = world.spaces[6]
    path, stored = f"/admin/v2/namespaces/{space.name}", {"path": f"/admin/policies/{space.name}"}
    who = {"role": "erin", "address": "10.9.9.9", "over": "http"}
    gone: dict[str, Any] = {"before": "{}", "after": None, **stored, **who}
    made: dict[str, Any] = {"before": None, "after": "{}", **stored, **who}
    world.add(0, "change", 0, 980, what=f"DELETE {path}", **gone)
    world.add(0, "change", 0, 1010, what=f"PUT {path}", **made)
    for bundle in space.bundles:
        broker = world.usual[bundle]
        ends = {"cause": "operator", "reason": "x"}
        world.step(broker, 980, bundle, ("Owned", "Releasing"), **ends)
        world.step(broker, 980.001, bundle, ("Releasing", "Free"), pauseMs=20.0, **ends)
        world.acquired(1011, bundle, broker)

    def owner(name: str, minute: int, usual: int) -> int | None:
        return None if name in space.bundles and 980 <= minute < 1011 else usual

    def smaller(rank: int, minute: int) -> float:
        return 1 / 3 if rank == 1 and minute >= 300 else 1.0

    return Day(owner=owner, traffic=smaller, size=smaller)


def _leaders(world: OtherWorld, day: int) -> Day:
    """The leader changes six times in 50 minutes; a namespace grows by 6 % a day."""
    if not day:
        begins = (0, 540, 549, 557, 566, 578, 590, MINUTES)
        for number, (begin, end) in enumerate(zip(begins, begins[1:], strict=False)):
            for minute in range(begin + 1, end, 4):
                skip = {"action": "skip", "what": world.brokers[0], "reason": "x", "cycle": minute}
                more = {"epoch": number + 3, "strategy": "ThresholdShedder", **skip}
                world.add(0, "decision", number % 3, minute, **more)
    how = _ordinary(world, day)
    return replace(how, traffic=lambda space, _: 1.06 ** (day + 9) if space == 9 else 1.0)


def _there_and_back(world: OtherWorld, day: int) -> Day:
    """The leader moves one bundle between brokers 0 and 3 eight times in an hour."""
    if day:
        return _ordinary(world, day)
    bundle = world.of(0)[3]
    moves = [(600 + 7 * number, number % 2 == 0) for number in range(8)]
    how = Day()
    for minute, out in moves:
        world.handed_over(minute, bundle, *((0, 3) if out else (3, 0)), how)

    def owner(name: str, minute: int, usual: int) -> int:
        before = [out for at, out in moves if at <= minute]
        return 3 if name == bundle and before and before[-1] else usual

    return replace(how, owner=owner)


@dataclass(frozen=True)
class OtherDay:
    """A day, and the stories that its report must tell."""

    name: str
    seed: int
    happens: Happens
    stories: tuple[Story, ...] = ()
    also: tuple[str, ...] = ()
    """Titles that are true beside them."""

    def judged(self, report: Report) -> tuple[dict[str, str], list[str]]:
        """The verdict on each story, and the titles of cards that are false."""
        titles = (*ALSO, *self.also, *(story.title for story in self.stories))
        false = [
            card["title"]
            for card in report["findings"]
            if not any(re.search(title, card["title"]) for title in titles)
        ]
        return {story.about: judge(story, report)[0] for story in self.stories}, false

    def past(self, root: Path) -> None:
        """The days before."""
        world = OtherWorld(root, self.seed)
        for day in PAST:
            world.live(day, self.happens(world, day), every=15)
        world.write()

    def make(self, root: Path) -> None:
        """The day."""
        world = OtherWorld(root, self.seed)
        world.live(0, self.happens(world, 0))
        world.write()


def _story(about: str, title: str, *says: str) -> Story:
    return Story(name=about, about=about, make=lambda _root: None, title=title, says=says)


def _name(seed: int, rank: int) -> str:
    return OtherWorld(Path(), seed).space(rank)


ALSO = (WANTS, "one broker fewer", "^Full in", "The load was uneven")
"""True of such clusters beside any story: nobody balances them, and tenants have other hours."""
DAYS = (
    OtherDay("ordinary", 1, _ordinary),
    OtherDay(
        "crash",
        2,
        _crash,
        (_story("a crash of 32 s", r"31\.2|10\.31\.2\.12.* crashed", "14:0", r"3[0-3](\.\d)? s"),),
    ),
    OtherDay(
        "limit",
        3,
        _limit,
        (_story("a limit for three hours", f"{_name(3, 4)}/raw.* held", "11:0", "client-hours"),),
    ),
    OtherDay(
        "noisy",
        4,
        _noisy,
        (_story("ten times the traffic", f"{_name(4, 2)} (had|doubled)|doubled", "13:|overload"),),
    ),
    OtherDay(
        "stuck",
        5,
        _stuck,
        (_story("a stuck sensor", r"cpu of 10\.31\.5\.14.*one value", "hours", "06:0"),),
    ),
    OtherDay(
        "clock",
        6,
        _skewed,
        (_story("a clock", r"clock of 10\.31\.6\.15", "2[45].* s", "ahead"),),
        ("did not help", r"31\.6\.15:8080 was overloaded"),  # moved at random, most of it to there
    ),
    OtherDay("slow", 7, _slow, (_story("a slow broker", r"10\.31\.7\.11.*costs", r"2\.\d times"),)),
    OtherDay(
        "remade",
        8,
        _remade,
        (
            _story("made again", f"{_name(8, 6)} was deleted", "16:20", "erin", "30 minutes"),
            _story("smaller messages", f"{_name(8, 1)}.*smaller", "rate"),
        ),
    ),
    OtherDay(
        "leaders",
        9,
        _leaders,
        (
            _story("six leaders", "leader changed 6 times", "09:"),
            _story("6 % a day", f"{_name(9, 9)} grows", r"[4-7](\.\d)?% a day"),
        ),
    ),
    OtherDay("back-and-forth", 10, _there_and_back, (_story("back and forth", "back and forth"),)),
)
