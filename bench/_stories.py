"""Stories of made-up days, and how well a report tells each: told, half, missed; or a card that
says what is not so.
"""

from __future__ import annotations

import json
import random
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from bench import _history as history
from bench._made_days import Behaviour, Cluster, bundle_of, date_of, space_of
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.kit.history.layout import day_start_ms
from loadmanager.kit.history.source import HistorySource
from loadmanager.nightly.analysed_days import AnalysedDays, Manifest
from loadmanager.nightly.day import Day
from loadmanager.nightly.engine import Engine
from loadmanager.nightly.facts import Facts
from loadmanager.nightly.ingest import Ingest
from loadmanager.nightly.job import Job
from loadmanager.nightly.questions import broker_usage, hot_bundles, hot_topics, hourly

Report = dict[str, Any]
Card = dict[str, Any]
PAST = (broker_usage, hot_bundles, hot_topics, hourly)
"""Of days before, what later days look at."""
WEEKEND = 0.3


@dataclass(frozen=True, kw_only=True)
class Story:
    """What happens on a day, and what the report must say of it.

    `title` finds the card; `says` are what its words must hold: who was hurt, how long, by what,
    what to do. All patterns. A story without `title` is one that needs nobody: `never` are titles
    that would be false. Cards of `also` are true beside the story.
    """

    name: str
    about: str
    make: Callable[[Path], None]
    day: int = 0
    past: Callable[[Path], None] | None = None
    """Makes the days before, which are analysed first."""
    title: str = ""
    says: tuple[str, ...] = ()
    first: bool = False
    """Whether the card must be the first."""
    also: tuple[str, ...] = ()
    check: Callable[[Report], bool] | None = None
    """What else must be so."""


def judge(story: Story, report: Report) -> tuple[str, list[str]]:
    """The verdict, and the titles of cards that are false. Told, half or missed; a day that needs
    nobody is told, or false if a card or a number says otherwise.
    """
    cards: list[Card] = report["findings"]
    own = [card for card in cards if story.title and re.search(story.title, card["title"])]
    false = [
        card["title"]
        for card in cards
        if card not in own and not any(re.search(also, card["title"]) for also in story.also)
    ]
    right = story.check is None or story.check(report)
    if not story.title:
        return "told" if right and not false else "false", false
    if not own:
        effects = [text for card in cards for text in card["effects"]]
        hidden = any(re.search(story.title, text) for text in effects)
        return "half" if hidden else "missed", false
    whole = right and any(_says(card, story.says) for card in own)
    whole = whole and (not story.first or cards[0] in own) and len(own) == 1
    return "told" if whole else "half", false


def _says(card: Card, says: Sequence[str]) -> bool:
    words = " ".join((card["title"], card["text"], card["advice"], *card["effects"]))
    return all(re.search(each, words) for each in says)


def tell(story: Story, engine: Engine, folder: Path, pasts: dict[Any, Path]) -> Report:
    """The report of the story's day. `pasts`: analysed days before, which stories share."""
    if story.past is not None:
        if story.past not in pasts:
            pasts[story.past] = folder / f"past-{len(pasts)}"
            _past(story.past, engine, pasts[story.past])
        shutil.copytree(pasts[story.past], folder / story.name)
    root = folder / story.name
    story.make(root / "history")
    days, source = _analysed(root)
    Job(engine, source, days, settings=StrategySettings(), quiet=True).run(date_of(story.day))
    reports = root / f"analysis/cluster={history.CLUSTER}/reports"
    report: Report = json.loads((reports / f"{date_of(story.day)}.json").read_text())
    return report


def _past(make: Callable[[Path], None], engine: Engine, root: Path) -> None:
    """Days before, with those tables only that later days look at."""
    make(root / "history")
    days, source = _analysed(root)
    for date in source.dates(history.CLUSTER):
        draft, listing = days.draft(date), source.day(history.CLUSTER, date)
        ingest = Ingest(engine, source, days, draft, date)
        ingest.run(listing)
        facts = Facts(ingest, StrategySettings(), day_start_ms(date))
        day = Day(history.CLUSTER, date, facts, StrategySettings(), days.rows)
        for question in PAST:
            answer: Any = question.table(day)
            if isinstance(answer, list):
                columns = [(name, of_type) for name, (of_type, _) in question.COLUMNS.items()]
                answer = pa.Table.from_pylist(answer, pa.schema(columns))
            draft.write_table(question.NAME, answer)
            day.answers[question.NAME] = answer.to_pylist()
        days.commit(date, Manifest(tuple(listing.listed), files=draft.publish()))


def _analysed(root: Path) -> tuple[AnalysedDays, HistorySource]:
    days = AnalysedDays(str(root / "analysis"), history.CLUSTER)
    return days, HistorySource(str(root / "history"))


def _weekday(day: int) -> int:
    """Day 0 is a Friday, which is 4."""
    return (day + 4) % 7


def _of_week(day: int) -> Callable[[int, int], float]:
    """Sixteen of 24 namespaces rest at the weekend."""
    rests = _weekday(day) >= 5
    return lambda space, _minute: WEEKEND if rests and space < 16 else 1.0


def _days(root: Path, days: Sequence[int], behaviour: Callable[[int], Behaviour]) -> None:
    """Days with a sample every half an hour: enough for what is compared later."""
    cluster = Cluster(root, every=30)
    for day in days:
        cluster.loads(day, behaviour(day))
    cluster.write()


def week(root: Path) -> None:
    """The days before Friday, Saturday and Monday, and the same a week before."""
    _days(root, (-7, -6, -4, -1, 0, 2), lambda day: Behaviour(traffic=_of_week(day)))


def _quiet(root: Path, day: int = 0) -> None:
    cluster = Cluster(root)
    cluster.loads(day, Behaviour(traffic=_of_week(day)))
    cluster.write()


# A limit that holds for half a day.

GROUP = "resource group heavy"


def half_a_day(root: Path) -> None:
    """From eight to six a limit of each of twelve brokers holds its clients for 24 s a minute."""
    cluster = Cluster(root, brokers=12)
    cluster.loads(0)
    for minute in range(0, 1440, cluster.every):
        held = 480 <= minute < 1080
        for broker in range(12):
            waits = {"held": 200, "waitedMs": 120_000.0, "deliveredMessagesPerS": 1000.0}
            cluster.limit(0, broker, minute + 4, GROUP, "resource group", **waits if held else {})
    cluster.write()


def crawling(root: Path) -> None:
    """From nine to five a limit of 20 messages/s makes one producer on each of twelve brokers wait
    48 ms for each message: for nearly all the time.
    """
    cluster = Cluster(root, brokers=12)
    cluster.loads(0)
    fields = {"configuredMessagesPerS": 20.0, "deliveredMessagesPerS": 3.0}
    waits = {"held": 6000, "waitedMs": 288_000.0, "deliveredMessagesPerS": 20.0, "queueLength": 1}
    for minute in range(0, 1440, cluster.every):
        more = fields | waits if 540 <= minute < 1020 else fields
        for broker in range(12):
            cluster.limit(0, broker, minute + 4, GROUP, "resource group", **more)
    cluster.write()


def used_up(root: Path) -> None:
    """For four hours a limit lets no more than itself through on each of four brokers, and makes
    each of many messages wait for 31 ms: somebody is held for a quarter of the time.
    """
    cluster = Cluster(root)
    cluster.loads(0)
    waits = {"held": 2600, "waitedMs": 80_600.0, "deliveredMessagesPerS": 1000.0, "queueLength": 6}
    for minute in range(0, 1440, cluster.every):
        for broker in range(4):
            more = waits if 510 <= minute < 750 else {}
            cluster.limit(0, broker, minute + 4, GROUP, "resource group", **more)
    cluster.write()


def short_waits(root: Path) -> None:
    """A limit makes each of many messages wait for a moment, and one holds for some minutes."""
    cluster = Cluster(root)
    cluster.loads(0)
    for minute in range(0, 1440, cluster.every):
        waits = {"held": 5000, "waitedMs": 75_000.0}
        cluster.limit(0, 0, minute + 4, "persistent://t/n00/a publish", "topic", **waits)
        few = {"held": 20, "waitedMs": 60_000.0} if 600 <= minute < 620 else {}
        cluster.limit(0, 1, minute + 4, "persistent://t/n00/b publish", "topic", **few)
    cluster.write()


def young_limit(root: Path) -> None:
    """A limit is set two minutes before a sample of ten minutes; its clients want more for a while.

    Its first record counts what it let through in these two minutes over all ten.
    """
    cluster = Cluster(root, every=10)
    cluster.loads(0)
    name, waits = "persistent://t/n00/a publish", {"held": 50, "waitedMs": 600_000.0}
    cluster.limit(0, 0, 609, name, "topic", deliveredMessagesPerS=200.0, **waits)
    for minute in range(619, 640, 10):
        cluster.limit(0, 0, minute, name, "topic", deliveredMessagesPerS=1000.0, **waits)
    for minute in range(649, 1440, 10):
        cluster.limit(0, 0, minute, name, "topic")
    cluster.write()


# A broker at half its speed.


def _slow(day: int) -> Behaviour:
    """From Monday on, a byte costs b3 twice; by and by it has half of its bundles."""
    slow = day >= -4

    def owner(space: int, half: int, _minute: int) -> int:
        usual = (2 * space + half) % 6
        return (0, 1, 2, 4)[space // 3 % 4] if slow and usual == 3 and space < 12 else usual

    def cost(broker: int, _minute: int) -> float:
        return 2.0 if slow and broker == 3 else 1.0

    return Behaviour(traffic=_of_week(day), cost=cost, owner=owner)


def slow_past(root: Path) -> None:
    """The days before."""
    _days(root, range(-6, 0), _slow)


def slow(root: Path) -> None:
    """The Friday."""
    cluster = Cluster(root)
    cluster.loads(0, _slow(0))
    cluster.write()


# A leak.


def _leak(day: int) -> Behaviour:
    usual = _of_week(-3)  # no weekend, so that the leak is all that changes

    def traffic(space: int, minute: int) -> float:
        return usual(space, minute) * (1.04 ** (day + 8) if space == 3 else 1.0)

    return Behaviour(traffic=traffic)


def leak_past(root: Path) -> None:
    """The days before."""
    _days(root, range(-8, 0), _leak)


def leak(root: Path) -> None:
    """The ninth day."""
    cluster = Cluster(root)
    cluster.loads(0, _leak(0))
    cluster.write()


# Namespaces.


def again(root: Path) -> None:
    """A namespace is deleted at ten and made again a quarter of an hour later."""
    cluster = Cluster(root)

    def owner(space: int, half: int, minute: int) -> int | None:
        return None if space == 5 and 600 <= minute < 615 else cluster.usual_owner(space, half)

    cluster.loads(0, Behaviour(owner=owner))
    space = space_of(5)
    for half in (0, 1):
        broker = cluster.usual_owner(5, half)
        cluster.released(0, broker, 600, bundle_of(5, half), "operator")
        cluster.acquired(0, broker, 615, bundle_of(5, half))
    path = f"/admin/v2/namespaces/{space}"
    stored = {"path": f"/admin/policies/{space}"}
    cluster.change(0, 0, 600, f"DELETE {path}", before="{}", after=None, **stored)
    cluster.change(0, 0, 614, f"PUT {path}", before=None, after="{}", **stored)
    cluster.write()


def larger(root: Path) -> None:
    """From six on the messages of one namespace are twice as large, as many as before."""
    cluster = Cluster(root)

    def grown(space: int, minute: int) -> float:
        return 2.0 if space == 7 and minute >= 360 else 1.0

    behaviour = Behaviour(
        traffic=lambda space, minute: grown(space, minute) * _of_week(0)(space, minute),
        size=lambda space, minute: 1024.0 * grown(space, minute),
    )
    cluster.loads(0, behaviour)
    cluster.write()


def nine_times(root: Path) -> None:
    """From eight on a tenant sends twelve times as much; two brokers are overloaded by that."""
    cluster = Cluster(root)
    behaviour = Behaviour(
        traffic=lambda space, minute: 12.0 if space == 9 and minute >= 480 else 1.0
    )
    cluster.loads(0, behaviour)
    cluster.write()


def burst(root: Path) -> None:
    """From one to four a tenant sends eight times as much, which does not double its day."""
    cluster = Cluster(root)
    behaviour = Behaviour(
        traffic=lambda space, minute: 8.0 if space == 9 and 780 <= minute < 960 else 1.0
    )
    cluster.loads(0, behaviour)
    cluster.write()


def month(root: Path, days: int) -> None:
    """Days on which nothing happens, of tenants who are never quite the same from hour to hour and
    from day to day, on machines of two sizes; one broker is drained and restarted each fifth day.
    """
    cluster = Cluster(root, every=10)
    for day in range(days):
        rng = random.Random(f"month {day}")
        usual = _of_week(day)
        of_day = [rng.lognormvariate(0, 0.08) for _ in range(24)]
        of_hour = [[rng.lognormvariate(0, 0.12) for _ in range(24)] for _ in range(24)]

        def traffic(
            space: int,
            minute: int,
            usual: Any = usual,
            of_day: Any = of_day,
            of_hour: Any = of_hour,
        ) -> float:
            return float(usual(space, minute) * of_day[space] * of_hour[space][minute // 60])

        behaviour = Behaviour(traffic=traffic, cost=lambda broker, _: 0.7 if broker < 2 else 1.0)
        if day % 5 == 4:
            broker = day // 5 % 6
            behaviour.away = lambda other, minute, broker=broker: (  # type: ignore[misc]
                other == broker and 700 <= minute < 710
            )
            _restarted(cluster, day, broker)
        cluster.loads(day, behaviour)
    cluster.write()


def few_bundles(root: Path) -> None:
    """Three namespaces of two bundles each, which lie evenly on three brokers: nobody is hurt."""
    cluster = Cluster(root, brokers=3, spaces=3, scale=3.0)
    cluster.loads(0)
    cluster.write()


def _restarted(cluster: Cluster, day: int, broker: int) -> None:
    """A broker is stopped in order, and has its bundles back ten minutes later."""
    for space in range(24):
        for half in (0, 1):
            if cluster.usual_owner(space, half) == broker:
                other, bundle = f"b{(broker + 1) % 6}", bundle_of(space, half)
                cluster.released(day, broker, 700, bundle, "stop", destination=other)
                cluster.acquired(day, (broker + 1) % 6, 700.0002, bundle)
                cluster.released(
                    day, (broker + 1) % 6, 708, bundle, "operator", destination=f"b{broker}"
                )
                cluster.acquired(day, broker, 708.0002, bundle)


def reports_of(engine: Engine, root: Path) -> Iterator[tuple[str, Report]]:
    """The reports of all days of a history, one after the other."""
    days, source = _analysed(root)
    for date in source.dates(history.CLUSTER):
        Job(engine, source, days, settings=StrategySettings(), quiet=True).run(date)
        path = root / f"analysis/cluster={history.CLUSTER}/reports/{date}.json"
        yield date, json.loads(path.read_text())


def saturday(root: Path) -> None:
    """As every Saturday."""
    _quiet(root, 1)


def monday(root: Path) -> None:
    """As every Monday."""
    _quiet(root, 3)


def quiet(root: Path) -> None:
    """Nothing happens."""
    _quiet(root)


# Brokers that go.


def _short_day(root: Path, **how: Any) -> Cluster:
    """Six hours with a sample a minute."""
    cluster = Cluster(root, brokers=5, every=1)
    cluster.loads(0, Behaviour(end=360, **how))
    return cluster


def contradiction(root: Path) -> None:
    """b1 acquires a bundle that b0 never released: that record was dropped. b0 was always there."""
    cluster = _short_day(root)
    cluster.acquired(0, 0, 1, "t/n00/x")
    cluster.acquired(0, 1, 200, "t/n00/x")
    cluster.write()


def _all_stop(root: Path, cause: str | None) -> None:
    cluster = _short_day(root, away=lambda _broker, minute: 180 <= minute < 192)
    for space in range(24):
        for half in (0, 1):
            broker, bundle = cluster.usual_owner(space, half), bundle_of(space, half)
            if cause:
                cluster.released(0, broker, 180, bundle, cause)
            cluster.acquired(0, broker, 192.2, bundle)
    cluster.write()


def all_crashed(root: Path) -> None:
    """The power fails for twelve minutes."""
    _all_stop(root, None)


def all_crashed_between_samples(root: Path) -> None:
    """The power fails at three for ten minutes, with a sample every five; brokers record that they
    start, and own their bundles 15 s later.
    """
    cluster = Cluster(root, brokers=5)
    cluster.loads(0, Behaviour(end=360, away=lambda _broker, minute: 180 <= minute < 190))
    for broker in range(5):
        cluster.add(0, "member", broker, 190.02, {"of": f"b{broker}", "event": "starts"})
    for space in range(24):
        for half in (0, 1):
            cluster.acquired(0, cluster.usual_owner(space, half), 190.25, bundle_of(space, half))
    cluster.write()


def all_stopped(root: Path) -> None:
    """All brokers are stopped in order, and started twelve minutes later."""
    _all_stop(root, "stop")


def short_crash(root: Path) -> None:
    """b2 records the end of a split, is killed two seconds later, and others have its bundles after
    four more. Its last load is 40 s older.
    """
    cluster = _short_day(root, away=lambda broker, minute: broker == 2 and minute >= 180)
    last = 179 + 3 / 6
    cluster.step(0, 2, last + 38 / 60, "t/n00/y", ("Free", "Owned"), parent="t/n00/z")
    for space in range(24):
        for half in (0, 1):
            if cluster.usual_owner(space, half) == 2:
                cluster.acquired(0, 3, last + 44 / 60, bundle_of(space, half))
    cluster.acquired(0, 3, last + 44 / 60, "t/n00/y")
    cluster.write()


def zone(root: Path) -> None:
    """Two of five brokers crash at once; others have their bundles up to 40 s after their loads."""
    cluster = _short_day(root, away=lambda broker, minute: broker in (1, 2) and minute >= 180)
    for space in range(24):
        for half in (0, 1):
            if cluster.usual_owner(space, half) in (1, 2):
                cluster.acquired(0, 3 + half, 180, bundle_of(space, half))
    cluster.write()


def one_stopped(root: Path) -> None:
    """One broker is stopped in order and started again."""
    cluster = _short_day(root, away=lambda broker, minute: broker == 2 and 180 <= minute < 190)
    for space in range(24):
        for half in (0, 1):
            if cluster.usual_owner(space, half) == 2:
                cluster.released(0, 2, 180, bundle_of(space, half), "stop", destination="b3")
                cluster.acquired(0, 3, 180.0002, bundle_of(space, half))
    cluster.write()


def drain(root: Path) -> None:
    """An operator drains b1: the others are busier, as they must be."""
    cluster = Cluster(root, brokers=4, scale=0.4)

    def owner(space: int, half: int, minute: int) -> int:
        usual = (2 * space + half) % 4
        return (0, 2, 3)[space % 3] if usual == 1 and minute >= 700 else usual

    cluster.loads(0, Behaviour(owner=owner))
    for space in range(24):
        if cluster.usual_owner(space, 0) != 1 and cluster.usual_owner(space, 1) != 1:
            continue
        half = 0 if cluster.usual_owner(space, 0) == 1 else 1
        bundle, to, life = bundle_of(space, half), (0, 2, 3)[space % 3], 100 + space
        ids = {"life": life, "destination": f"b{to}"}
        cluster.released(0, 1, 700, bundle, "leader", **ids)
        cluster.acquired(0, to, 700.0002, bundle, cause="leader", life=life + 1000)
        move = {"action": "move", "move": f"m{space}", "author": "drain", "state": "done"}
        move |= {"bundle": bundle, "source": "b1", "destination": f"b{to}", "life": life}
        cluster.decision(0, 0, 700.01, strategy="", pauseMs=20.0, **move)
    cluster.write()


def rolling_restart(root: Path) -> None:
    """Six brokers are drained, restarted and filled again, one after the other in 54 minutes; each
    leads when its turn comes, and has its bundles back by an operator's moves.
    """
    cluster = Cluster(root, every=1, scale=0.6)
    begins = [600 + 9 * broker for broker in range(6)]

    def owner(space: int, half: int, minute: int) -> int:
        usual = cluster.usual_owner(space, half)
        gone = begins[usual] <= minute < begins[usual] + 6
        return (usual + 1 + space % 5) % 6 if gone else usual

    def away(broker: int, minute: int) -> bool:
        return begins[broker] + 2 <= minute < begins[broker] + 5

    cluster.loads(0, Behaviour(begin=480, end=840, owner=owner, away=away))
    spaces = [(space, half) for space in range(24) for half in (0, 1)]
    for broker, begin in enumerate(begins):
        after = (broker + 1) % 6
        mine = [each for each in spaces if cluster.usual_owner(*each) == broker]
        for number, (space, half) in enumerate(mine):
            other, at = owner(space, half, begin), begin + 0.03 * number
            _moved(cluster, (space, half), (broker, other), (at, broker), "drain")
            _moved(cluster, (space, half), (other, broker), (at + 6, after), "operator")
        left = {"of": f"b{broker}", "event": "left", "how": "drained", "unheardMs": 200}
        cluster.add(0, "member", after, begin + 2.01, left)
        leads = {"of": f"b{after}", "event": "leads", "epoch": broker + 2, "before": f"b{broker}"}
        cluster.add(0, "member", after, begin + 2, leads)
        cluster.add(0, "member", broker, begin + 5, {"of": f"b{broker}", "event": "starts"})
    cluster.write()


def _moved(
    cluster: Cluster,
    bundle: tuple[int, int],
    brokers: tuple[int, int],
    when: tuple[float, int],
    author: str,
) -> None:
    """A bundle moves from a broker to another; `when`: the minute, and who leads then."""
    name, (source, to), (minute, leader) = bundle_of(*bundle), brokers, when
    cause = "operator" if author == "operator" else "leader"
    cluster.released(0, source, minute, name, cause, destination=f"b{to}")
    cluster.acquired(0, to, minute + 0.0003, name, cause="leader")
    move = {"action": "move", "move": f"m{name}-{minute}", "author": author, "state": "done"}
    move |= {"bundle": name, "source": f"b{source}", "destination": f"b{to}"}
    cluster.decision(0, leader, minute + 0.01, strategy="", epoch=leader + 1, pauseMs=20.0, **move)


# Splits, leaders, trivial loads, long intervals.


def useless_splits(root: Path) -> None:
    """Three bundles are split, and one child has everything."""
    cluster = Cluster(root)
    cluster.loads(0, Behaviour(owner=lambda space, half, _: _unsplit(cluster, space, half)))
    for space in range(3):
        low, parent = f"{space_of(space)}/0x00000000_0x40000000", bundle_of(space, 0)
        high, broker = f"{space_of(space)}/0x40000000_0x80000000", cluster.usual_owner(space, 0)
        cluster.step(0, broker, 60, parent, ("Owned", "Splitting"), cause="split")
        for child in (low, high):
            cluster.step(0, broker, 60, child, ("Free", "Owned"), cause="split", parent=parent)
        cluster.step(0, broker, 60, parent, ("Splitting", "Free"), cause="split")
        for minute in range(60, 1440, cluster.every):
            for child, rate in ((low, 0.0), (high, 1000.0)):
                load = {"bundle": child, "msgRateIn": rate, "msgThroughputIn": rate * 1024}
                load |= {"intervalMs": cluster.every * 60_000, "topics": 4}
                cluster.add(0, "bundle_load", broker, minute + 2, load)
    cluster.write()


def _unsplit(cluster: Cluster, space: int, half: int) -> int | None:
    return None if space < 3 and half == 0 else cluster.usual_owner(space, half)


def _terms(root: Path, begins: Sequence[float], stopped: bool = False) -> None:
    cluster = Cluster(root)
    cluster.loads(0)
    for number, begin in enumerate(begins):
        end = begins[number + 1] if number + 1 < len(begins) else 1440
        for minute in range(int(begin) + 2, int(end), 5):
            more = {"epoch": number + 1, "action": "skip", "what": "b0"}
            cluster.decision(0, number % 2, minute, **more)
        if stopped and number + 1 < len(begins):
            cluster.released(0, number % 2, end, f"t/n00/of-b{number % 2}-{number}", "stop")
    cluster.write()


def leaders(root: Path) -> None:
    """The leader changes five times within an hour, and nobody stopped one."""
    _terms(root, (0, 600, 610, 622, 635, 650))


def two_leaders(root: Path) -> None:
    """The leader changes once in the morning and once in the evening."""
    _terms(root, (0, 400, 1100))


def trivial(root: Path) -> None:
    """One bundle has most of next to nothing."""
    cluster = Cluster(root, scale=0.0005)
    cluster.loads(0, Behaviour(traffic=lambda space, _minute: 40.0 if space == 4 else 1.0))
    cluster.write()


INTERVAL = 10


def _skewed(day: int) -> Behaviour:
    """b0's clock is seven seconds ahead of where its samples would be in step with the others."""
    return Behaviour(traffic=_of_week(-3), ahead_s=lambda broker: 127.0 if broker == 0 else -120.0)


def _long(root: Path, days: Sequence[int]) -> None:
    cluster = Cluster(root, every=INTERVAL)
    for day in days:
        cluster.loads(day, _skewed(day))
    cluster.write()


def long_past(root: Path) -> None:
    """Days with a sample every ten minutes, at which brokers fall into different five minutes."""
    _long(root, range(-2, 0))


def long_intervals(root: Path) -> None:
    """One more."""
    _long(root, [0])


def _foretold(report: Report) -> bool:
    """The cluster is foretold to use what its brokers use together."""
    used = sum(row["mean"] for row in report["tables"]["broker_usage"]["rows"])
    rows = report["tables"]["forecasts"]["rows"]
    (cluster,) = (row for row in rows if row["kind"] == "cluster")
    return bool(abs(cluster["mean_tomorrow"] / used - 1) < 0.05)


WANTS = "bundles and wants"
"""True of a namespace that carries more than the others."""
STORIES = (
    Story(
        name="limit",
        about="a limit holds for ten hours on each of 12 brokers",
        make=half_a_day,
        title="heavy .*held clients",
        says=(
            "12 brokers",
            r"client-hours",
            r"4\.0 hours",
            "from 08:0. to 1[78]:",
            "raise the limit",
        ),
    ),
    Story(
        name="limit-crawling",
        about="a limit makes producers wait 48 ms for each message, from nine to five",
        make=crawling,
        title="heavy .*held clients",
        says=(
            "12 brokers",
            r"7\.7 hours",
            r"92\.2 client-hours",
            "48 ms each",
            "from 09:0. to 1[67]:",
            "raise the limit",
        ),
    ),
    Story(
        name="limit-used-up",
        about="a limit is used up for four hours, with waits of 31 ms",
        make=used_up,
        title="heavy .*held clients",
        says=("4 brokers", r"4\.3 client-hours", "31 ms each", "from 08:3. to 12:", "raise"),
    ),
    Story(
        name="slow-broker",
        about="a broker at half its speed for five days",
        make=slow,
        past=slow_past,
        title=r"b3 .*(slow|costs|speed)",
        says=(r"2\.\d times|[12]\.9 times|half", "since|days", "machine|host"),
    ),
    Story(
        name="leak",
        about="a namespace grows by 4 % a day for nine days",
        make=leak,
        past=leak_past,
        title="t/n03 grows",
        says=(r"4(\.\d)?% a day", "days", "Ask|Find"),
        also=("Full in",),
    ),
    Story(
        name="namespace-again",
        about="a namespace is deleted and made again",
        make=again,
        past=week,
        title="t/n05 was deleted",
        says=("10:00", "made again", "ops", "14 minutes"),
    ),
    Story(
        name="size-doubled",
        about="messages are twice as large, at the same rate",
        make=larger,
        past=week,
        title=r"t/n07.*larger",
        says=("twice|2.0 times", "rate", "Ask|ask"),
        also=(WANTS,),
    ),
    Story(
        name="noisy-tenant",
        about="a tenant sends twelve times as much: first, with its effects",
        make=nine_times,
        past=week,
        title="t/n09 had|1 namespace doubled",
        says=("b0 was overloaded", "b1 was overloaded", "08:|since", "limit"),
        first=True,
        also=(WANTS, "one broker fewer"),
    ),
    Story(
        name="burst",
        about="a tenant sends eight times as much for three hours",
        make=burst,
        past=week,
        title=r"t/n09 had [78]\.\d times",
        says=("from 13:00 to 16:00", "limit"),
        also=(WANTS, "one broker fewer"),
    ),
    Story(
        name="saturday",
        about="as every Saturday",
        make=saturday,
        day=1,
        past=week,
        also=(WANTS,),
    ),
    Story(name="monday", about="as every Monday", make=monday, day=3, past=week),
    Story(name="quiet", about="a Friday on which nothing happens", make=quiet, past=week),
    Story(
        name="few-bundles",
        about="namespaces of few bundles, which lie evenly",
        make=few_bundles,
        check=lambda report: all(
            row["wanted"] > row["bundles"] for row in report["tables"]["namespaces"]["rows"]
        ),
    ),
    Story(
        name="contradiction",
        about="a contradictory ownership record, and no silence",
        make=contradiction,
    ),
    Story(
        name="all-crashed",
        about="all brokers crash for twelve minutes: one card, first",
        make=all_crashed,
        title="whole cluster|crashed at",
        says=("5 brokers", "1[123] minutes", "03:00|02:59", "publish", "power|hosts"),
        first=True,
    ),
    Story(
        name="all-crashed-between-samples",
        about="all brokers crash for ten minutes, between two samples",
        make=all_crashed_between_samples,
        title="whole cluster was down at 02:59 for 11 minutes",
        says=("5 brokers", "for up to 11 minutes", "the last at 03:10", "publish"),
        first=True,
    ),
    Story(
        name="all-stopped",
        about="all brokers are stopped at a time: one card, first",
        make=all_stopped,
        title="whole cluster|was stopped at",
        says=("5 brokers", "1[123] minutes", "03:00|02:59", "publish", "one by one"),
        first=True,
    ),
    Story(
        name="short-crash",
        about="a crash of six seconds, 40 s after the last load report",
        make=short_crash,
        title="b2 crashed",
        says=(r"\b[56] s\b", "without an owner"),
    ),
    Story(
        name="zone",
        about="two brokers crash at once: one card",
        make=zone,
        title="crashed at",
        says=("2 brokers", "02:59|03:00", r"\d+ bundles without", r"[34]0 s", "share"),
        first=True,
    ),
    Story(
        name="one-stopped",
        about="one broker is stopped in order",
        make=one_stopped,
        title="b2 was stopped",
    ),
    Story(
        name="drain",
        about="a drain, which is nobody's bad move",
        make=drain,
    ),
    Story(
        name="rolling-restart",
        about="six brokers are drained and restarted, one after the other",
        make=rolling_restart,
        check=lambda report: all(
            row["orderly"] for row in report["tables"]["leaders"]["rows"] if row["before"]
        ),
    ),
    Story(name="young-limit", about="a limit younger than a sample", make=young_limit),
    Story(name="short-waits", about="waits of a moment, and of some minutes", make=short_waits),
    Story(
        name="useless-splits",
        about="three splits that divided nothing",
        make=useless_splits,
        title="3 of 3 splits",
        says=("100%", "t/n0[012]", "flow_or_qps"),
    ),
    Story(
        name="leaders",
        about="the leader changes five times within an hour",
        make=leaders,
        title="leader changed 5 times",
        says=("b0", "10:0|10:5", "log"),
    ),
    Story(name="two-leaders", about="two changes of the leader in a day", make=two_leaders),
    Story(name="trivial", about="one bundle has most of next to nothing", make=trivial),
    Story(
        name="long-intervals",
        about="a forecast from samples every ten minutes, in no step",
        make=long_intervals,
        past=long_past,
        check=_foretold,
    ),
)
