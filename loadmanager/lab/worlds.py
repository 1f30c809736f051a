"""Worlds that strategies are tried in: clusters of many shapes, and what goes wrong in them.

Each is a day of the simulator with brokers that use CPU when idle, and one trait: sensors that lie,
clients that go away, brokers that come, machines that are slow. `BROKER` is the one it is about.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from loadmanager.engine.load.columns import Array, Rows
from loadmanager.engine.policies.isolation import IsolationPolicy, matches_broker
from loadmanager.lab.day_rules import DayRules
from loadmanager.lab.days import (
    CORES,
    CPU_OF_A_CORE,
    SHOW_LESS,
    USAGE_OF_ALL,
    DayEvent,
    DayOfLoad,
    DaySize,
    Kind,
    Pattern,
    Swing,
    make_day,
)
from loadmanager.lab.measures import HOT, WARM_UP_MINUTES, Minute

MINUTES, BEGINS = 180, 60
"""Minutes of a world, and the one in which its event happens."""
IDLE = 0.05
SMALLER, USUAL_PART = 30.0, 1.6
"""How many times smaller small messages are, and how busy their broker is, as a multiple of what
others are.
"""
SETTLED = 0.05
"""A broker is where it belongs when it is this part of the mean away from it."""
AS_BEFORE = 1.1
"""The brokers are as even as before if their spread is at most so many times what it was."""


@dataclass(frozen=True, slots=True)
class Trial:
    """A world: what is special, and the day of a seed."""

    about: str
    day: Callable[[int], DayOfLoad]
    settles: Callable[[DayOfLoad, Sequence[Minute]], float] | None = None
    """The minutes that its event is felt, if it has one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialFigures:
    """What came of a strategy in a world."""

    spread: float
    """Standard deviation of the brokers' usage in points, mean over the minutes."""
    hot_minutes: int
    """Broker-minutes above 85 %."""
    hot_p99: float
    """Minutes above 85 % of the broker that has more of them than 99 % of all."""
    undone: float
    """Work that brokers could not do, in minutes of one broker."""
    moves: int
    moved: float
    """Traffic moved, as a part of all traffic."""
    pause_s: float
    settle_minutes: float | None
    """Minutes until the event is no longer felt, up to the end; see `Trial.settles`."""


def about_broker(brokers: int) -> str:
    """The broker that a world's event is about."""
    return f"broker-{brokers // 2:04d}:8080"


def _plain(
    seed: int,
    brokers: int = 10,
    each: int = 24,
    *,
    idle: float = IDLE,
    usage: float = USAGE_OF_ALL,
    unequal: bool = False,
    equal_bundles: bool = False,
) -> DayOfLoad:
    """A day without events, whose brokers use this part of their CPU on the mean."""
    shape = DaySize(
        brokers=brokers, bundles=brokers * each, minutes=MINUTES, unequal=unequal, events=False
    )
    day = make_day(seed, shape)
    assert isinstance(day.carried, Pattern)
    carried = day.carried
    if equal_bundles:
        carried = replace(carried, base=np.full(len(carried.base), carried.base.mean()))
    limits = sum(day.cores[name] for name in day.brokers) * CPU_OF_A_CORE
    cost = day.cost * (usage - idle) * limits / (carried.base * day.cost).sum()
    return replace(day, beside=idle, carried=carried, cost=cost)


def _with(day: DayOfLoad, *events: DayEvent) -> DayOfLoad:
    return replace(day, events=tuple(sorted(events, key=lambda event: event.minute)))


def _wrong(kind: Kind, brokers: int = 10) -> Callable[[int], DayOfLoad]:
    event = DayEvent(BEGINS, kind, about_broker(brokers))
    return lambda seed: _with(_plain(seed, brokers), event)


def _joins(
    brokers: int, each: int, idle: float = IDLE, *, newcomers: int = 1, equal_bundles: bool = False
) -> Callable[[int], DayOfLoad]:
    """Brokers come that have nothing; before, the others have it all."""

    def day(seed: int) -> DayOfLoad:
        plain = _plain(seed, brokers, each, idle=idle, equal_bundles=equal_bundles)
        names = [about_broker(brokers)] + [
            f"broker-{number:04d}:8080" for number in range(newcomers - 1)
        ]
        left = tuple(name for name in plain.brokers if name not in names)
        rng = np.random.default_rng([seed, 3])
        owners = tuple(left[at] for at in rng.integers(0, len(left), len(plain.bundles)).tolist())
        early = replace(plain, brokers=left, owners=owners)
        return _with(early, *(DayEvent(BEGINS, Kind.JOINS, name) for name in names))

    return day


def _pulses(seed: int) -> DayOfLoad:
    """All clients send three fifths for five minutes of ten, and a broker comes."""
    pulses = [Swing(minute=at, minutes=5, factor=0.6) for at in range(0, MINUTES, 10)]
    return replace(_joins(10, 24)(seed), changes=tuple(pulses))


def _parted(seed: int) -> DayOfLoad:
    """Policies leave half of the brokers to half of the tenants, which have a third of the load;
    one of these brokers comes later.
    """
    day = _plain(seed)
    assert isinstance(day.carried, Pattern)
    rng, newcomer = np.random.default_rng([seed, 8]), about_broker(10)
    groups = day.brokers[:5], day.brokers[5:]
    which = day.carried.tenants % 2
    policies: dict[str, IsolationPolicy] = {}
    owners = np.empty(len(day.bundles), object)
    for group, names in enumerate(groups):
        of_group = np.flatnonzero(which == group)
        left = [name for name in names if name != newcomer]
        owners[of_group] = rng.choice(left, len(of_group))
        tenants = sorted({day.bundles[at].partition("/")[0] for at in of_group.tolist()})
        policies[f"group-{group}"] = IsolationPolicy(
            namespaces=[f"{tenant}/.*" for tenant in tenants],
            primary=[name.partition(":")[0] for name in names],
        )
    work, share = day.carried.base * day.cost, (2 / 3, 1 / 3)
    base = day.carried.base.copy()
    for group in (0, 1):
        base[which == group] *= share[group] * work.sum() / work[which == group].sum()
    early = replace(
        day,
        carried=replace(day.carried, base=base),
        brokers=tuple(name for name in day.brokers if name != newcomer),
        owners=tuple(owners.tolist()),
        rules=(DayRules(minute=0, isolation=policies),),
    )
    return _with(early, DayEvent(BEGINS, Kind.JOINS, newcomer))


def _giants(seed: int) -> DayOfLoad:
    """Six of 20 brokers have one bundle each, nine tenths of a broker; and a broker comes."""
    day = _joins(20, 24)(seed)
    assert isinstance(day.carried, Pattern)
    base, owners, full = day.carried.base.copy(), list(day.owners), day.brokers[:6]
    for at, owner in enumerate(owners):
        owners[at] = day.brokers[6 + at % (len(day.brokers) - 6)] if owner in full else owner
    base *= 0.7
    for at, broker in enumerate(full):
        owners[at], base[at] = broker, 0.9 * CORES * CPU_OF_A_CORE / day.cost[at]
    return replace(day, carried=replace(day.carried, base=base), owners=tuple(owners))


def _all_on_one(brokers: int, each: int, *, usage: float = 0.25) -> Callable[[int], DayOfLoad]:
    def day(seed: int) -> DayOfLoad:
        plain = _plain(seed, brokers, each, usage=usage)
        return replace(plain, owners=(about_broker(brokers),) * len(plain.bundles))

    return day


def _by_messages(seed: int) -> DayOfLoad:
    day = _plain(seed)
    assert isinstance(day.carried, Pattern)
    base = day.carried.base
    each = 1 / day.message_bytes
    return replace(day, cost=each * (base * day.cost).sum() / (base * each).sum())


def _small_messages(seed: int) -> DayOfLoad:
    """Every fourth bundle sends messages of a thirtieth of the size, and as many of them, so that a
    byte costs thirty times as much CPU. They share namespaces with others, and have one broker.
    """
    day = _plain(seed, usage=0.5)
    assert isinstance(day.carried, Pattern)
    small = np.arange(len(day.bundles)) % 4 == 0
    times = np.where(small, SMALLER, 1.0)
    others = [name for name in day.brokers if name != about_broker(10)]
    owners = [
        about_broker(10) if is_small else others[at % len(others)]
        for at, is_small in enumerate(small.tolist())
    ]
    base, work = day.carried.base.copy(), day.carried.base * day.cost
    broker = USUAL_PART * work.sum() / len(day.brokers)
    base[small] *= broker / work[small].sum()
    base[~small] *= (work.sum() - broker) / work[~small].sum()
    return replace(
        day,
        carried=replace(day.carried, base=base / times),
        cost=day.cost * times,
        message_bytes=day.message_bytes / times,
        owners=tuple(owners),
    )


def _slow(seed: int) -> DayOfLoad:
    day = _plain(seed, usage=0.45)
    return replace(day, slow=dict.fromkeys(day.brokers[::4], 2.0))


def _giant(seed: int) -> DayOfLoad:
    """One bundle is four fifths of a broker, which nothing can divide."""
    day = _plain(seed)
    assert isinstance(day.carried, Pattern)
    base, cost = day.carried.base.copy(), day.cost
    base[7] = 0.8 * CORES * CPU_OF_A_CORE / cost[7]
    return replace(day, carried=replace(day.carried, base=base))


def _flash(seed: int) -> DayOfLoad:
    """Thirty times a bundle has twenty times its traffic for five minutes."""
    day = _plain(seed)
    rng = np.random.default_rng([seed, 4])
    at = rng.integers(WARM_UP_MINUTES, MINUTES - 10, 30)
    which = rng.integers(0, len(day.bundles), 30)
    changes = [
        Swing(minute=minute, minutes=5, factor=20.0, bundles=np.array([bundle]))
        for minute, bundle in zip(at.tolist(), which.tolist(), strict=True)
    ]
    return replace(day, changes=tuple(changes))


def _late(seed: int) -> DayOfLoad:
    """A newcomer beside sensors that show for six minutes that it is empty."""
    return replace(_joins(10, 24, 0.2)(seed), late_minutes=6)


def _dips(seed: int) -> DayOfLoad:
    """All clients send a tenth for two minutes, and later nothing for six."""
    day = replace(_plain(seed), lag=0.8)
    dips = (
        Swing(minute=60, minutes=2, factor=0.1),
        Swing(minute=110, minutes=6, factor=0.001),
    )
    return replace(day, changes=dips)


def _stall(seed: int) -> DayOfLoad:
    """A third of the tenants send nothing for four minutes."""
    day = _plain(seed)
    assert isinstance(day.carried, Pattern)
    stalled: Rows = np.flatnonzero(day.carried.tenants % 3 == 0)
    return replace(day, changes=(Swing(minute=80, minutes=4, factor=0.001, bundles=stalled),))


def _rolling(brokers: int = 10, each: int = 24) -> Callable[[int], DayOfLoad]:
    def day(seed: int) -> DayOfLoad:
        plain = _plain(seed, brokers, each)
        events = [
            event
            for number, name in enumerate(plain.brokers)
            for event in (
                DayEvent(BEGINS + 8 * number, Kind.DIES, name),
                DayEvent(BEGINS + 8 * number + 2, Kind.JOINS, name),
            )
        ]
        return _with(plain, *(event for event in events if event.minute < MINUTES))

    return day


def _leave(seed: int) -> DayOfLoad:
    day = _plain(seed)
    return _with(day, *(DayEvent(BEGINS, Kind.DIES, name) for name in day.brokers[2:4]))


def _grows(seed: int) -> DayOfLoad:
    """Two bundles of three are not there at first; one after the other is created."""
    day = _plain(seed)
    rng = np.random.default_rng([seed, 7])
    new = rng.permutation(len(day.bundles))[: 2 * len(day.bundles) // 3]
    at = np.sort(rng.integers(1, MINUTES - 20, len(new)))
    opens = np.zeros(len(day.bundles), np.int64)
    opens[new] = at
    changes = [
        Swing(minute=0, minutes=minute, factor=0.0, bundles=np.array([bundle]))
        for bundle, minute in zip(new.tolist(), at.tolist(), strict=True)
    ]
    return replace(day, changes=tuple(changes), opens=tuple(opens.tolist()))


def _filled(day: DayOfLoad, minutes: Sequence[Minute]) -> float:
    """Minutes until the broker of the event, or which had everything, is as used as the others that
    policies leave to its bundles.
    """
    begins = day.events[0].minute if day.events else 0
    broker = day.events[0].broker if day.events else day.owners[0]
    for at in range(begins, len(minutes)):
        usage: Array = minutes[at].usage
        if broker not in minutes[at].live:
            continue
        here = float(usage[minutes[at].live.index(broker)])
        mean = float(usage[_peers(day, broker, minutes[at].live)].mean())
        if abs(here - mean) <= SETTLED * mean:
            return float(at - begins)
    return float(len(minutes) - begins)


def _peers(day: DayOfLoad, broker: str, live: Sequence[str]) -> list[int]:
    """The rows of the brokers that serve what this one does."""
    for policy in day.rules[0].isolation.values() if day.rules else ():
        if matches_broker(policy.primary, broker):
            return [row for row, name in enumerate(live) if matches_broker(policy.primary, name)]
    return list(range(len(live)))


def _as_even_as_before(day: DayOfLoad, minutes: Sequence[Minute]) -> float:
    """Minutes from the last event until the brokers are as even as before the first one: what their
    usage differs, as a part of its mean.
    """
    first, last = day.events[0].minute, day.events[-1].minute
    uneven = [float(minute.usage.std() / minute.usage.mean()) for minute in minutes]
    usual = float(np.mean(uneven[first - WARM_UP_MINUTES : first]))
    for at in range(last, len(minutes)):
        if uneven[at] <= AS_BEFORE * usual:
            return float(at - last)
    return float(len(minutes) - last)


WORLDS: Mapping[str, Trial] = {
    "plain": Trial("10 brokers, 240 bundles", _plain),
    "idle 20 %": Trial("brokers use 20 % when idle", lambda seed: _plain(seed, idle=0.2)),
    "messages": Trial("CPU goes by messages, whose sizes differ", _by_messages),
    "sizes": Trial("brokers of half, single and double size", lambda s: _plain(s, unequal=True)),
    "small messages": Trial("a fourth of the bundles sends small messages", _small_messages),
    "slow": Trial("every fourth machine at half its speed, unsaid", _slow),
    "late": Trial("sensors show 80 % of the minute before", lambda s: replace(_plain(s), lag=0.8)),
    "late 6 min": Trial("sensors show what was 6 minutes before; a tenth broker", _late, _filled),
    "steps": Trial("sensors show steps of 10 %", lambda s: replace(_plain(s), step=0.1)),
    "giant": Trial("one bundle is 80 % of a broker", _giant),
    "giants": Trial("6 of 20 brokers have one bundle each; one comes", _giants, _filled),
    "flash": Trial("30 bursts × 20 for 5 minutes", _flash),
    "dips": Trial("all clients away for 2, and for 6 minutes", _dips),
    "stall": Trial("a third of the tenants away for 4 minutes", _stall),
    "pulses": Trial("all send 60 % for 5 minutes of 10; a tenth broker", _pulses, _filled),
    "parted": Trial("isolation parts 5 + 5 brokers; one comes", _parted, _filled),
    "stuck low": Trial("a sensor shows 20 % for ever", _wrong(Kind.STUCK_LOW)),
    "sticks": Trial("a sensor shows for ever what it shows now", _wrong(Kind.STICKS)),
    "shows less": Trial("a sensor shows 30 points too little", _wrong(Kind.LOW)),
    "shows more": Trial("a sensor shows 40 points too much", _wrong(Kind.LIES)),
    "drifts": Trial("a sensor loses half a point a minute", _wrong(Kind.DRIFTS)),
    "unmoved": Trial("a sensor shows 25 % less for ever, with noise", _wrong(Kind.UNMOVED)),
    "jumps": Trial("a sensor shows 30 points too much or too little", _wrong(Kind.JUMPS)),
    "untrusted": Trial("a sensor says that it is not to be trusted", _wrong(Kind.UNTRUSTED)),
    "3 untrusted": Trial("the same, of 3 brokers", _wrong(Kind.UNTRUSTED, 3)),
    "join 3+1": Trial("a fourth broker; 15 % idle", _joins(4, 24, 0.15), settles=_filled),
    "join 9+1": Trial("a tenth broker; 20 % idle", _joins(10, 24, 0.2), settles=_filled),
    "join 40+3": Trial("3 more brokers of 43, 2,150 bundles", _joins(43, 50, newcomers=3), _filled),
    "join many": Trial(
        "20 brokers × 115 equal bundles, one empty", _joins(20, 115, equal_bundles=True), _filled
    ),
    "join 3+1 large": Trial(
        "a fourth broker; 1,000 bundles each", _joins(4, 1_000), settles=_filled
    ),
    "join 297+3": Trial(
        "3 more brokers of 300, 12,000 bundles", _joins(300, 40, newcomers=3), _filled
    ),
    "join 297+3 large": Trial(
        "3 more brokers of 300, 99,900 bundles", _joins(300, 333, newcomers=3), _filled
    ),
    "one has all": Trial(
        "3 brokers, 600 bundles, all on one", _all_on_one(3, 200), settles=_filled
    ),
    "tiny": Trial("3 brokers, 15 bundles", lambda seed: _plain(seed, 3, 5)),
    "grows": Trial("80 bundles, and 160 that are created one after the other", _grows),
    "leave": Trial("two of ten brokers die", _leave, _as_even_as_before),
    "rolling": Trial("ten brokers restart one after the other", _rolling(), _as_even_as_before),
}


def any_day(seed: int) -> DayOfLoad:
    """A day of a world that nobody chose: its shape, its brokers and what goes wrong by chance. In
    its last part, `newcomer_of` has been there for 40 minutes.
    """
    rng = np.random.default_rng([seed, 5])
    brokers = int(rng.integers(3, 17))
    each = int(np.exp(rng.uniform(np.log(8), np.log(120))))
    day = _plain(
        seed,
        brokers,
        each,
        idle=float(rng.uniform(0, 0.15)),
        usage=float(rng.uniform(0.25, 0.55)),
        unequal=bool(rng.random() < 0.3),
        equal_bundles=bool(rng.random() < 0.3),
    )
    if rng.random() < 0.4:
        assert isinstance(day.carried, Pattern)
        base, of_each = day.carried.base, 1 / day.message_bytes
        day = replace(day, cost=of_each * (base * day.cost).sum() / (base * of_each).sum())
    kinds = (None, *SHOW_LESS)
    wrong = kinds[int(rng.integers(len(kinds)))]
    liar = str(rng.choice(day.brokers))
    dip = Swing(
        minute=int(rng.integers(20, 80)),
        minutes=int(rng.integers(1, 6)),
        factor=float(rng.uniform(0.01, 0.4)),
    )
    events = [DayEvent(50, Kind.JOINS, newcomer_of(day))]
    if wrong is not None:
        events.insert(0, DayEvent(int(rng.integers(20, 50)), wrong, liar))
    return replace(
        day,
        minutes=100,
        events=tuple(events),
        lag=float(rng.choice([0.0, 0.8])),
        changes=(dip,) if rng.random() < 0.5 else (),
    )


def newcomer_of(day: DayOfLoad) -> str:
    """The broker that joins in `any_day`."""
    return f"broker-{len(day.cores) - 1:04d}:8080"


def figures(world: Trial, day: DayOfLoad, minutes: Sequence[Minute]) -> TrialFigures:
    """Sum up a world's minutes but for the first ones."""
    began = 0 if not day.events else WARM_UP_MINUTES
    measured = minutes[began:]
    usages = [minute.usage for minute in measured]
    return TrialFigures(
        spread=float(np.mean([usage.std() * 100 for usage in usages])),
        hot_minutes=sum(int((usage > HOT).sum()) for usage in usages),
        hot_p99=_hot_p99(measured),
        undone=float(sum(np.maximum(usage - 1, 0).sum() for usage in usages)),
        moves=sum(minute.moves for minute in measured),
        moved=sum(minute.moved_bytes_s / max(minute.carried, 1e-9) for minute in measured),
        pause_s=sum(minute.pause_s or 0.0 for minute in measured),
        settle_minutes=None if world.settles is None else world.settles(day, minutes),
    )


def _hot_p99(minutes: Sequence[Minute]) -> float:
    hot: Counter[str] = Counter()
    for minute in minutes:
        for broker, usage in zip(minute.live, minute.usage.tolist(), strict=True):
            hot[broker] += usage > HOT
    return float(np.percentile(list(hot.values()), 99)) if hot else 0.0
