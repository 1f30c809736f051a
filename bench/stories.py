"""How well the nightly report tells the stories of made-up days: told, half, missed, and false.

`python -m bench stories [NAME …] [--cards]` makes each day from a seed, analyses it, and prints a
table; `--cards` prints the cards of each report, too. `--quiet-days 30` analyses so many days in a
row on which nothing happens, and prints every card: each is false. `--other` has ten days of
another generator (`bench/_other_days.py`), each with its stories.
"""

from __future__ import annotations

import argparse
import re
import tempfile
from pathlib import Path
from typing import Any

from bench._other_days import DAYS, OtherDay
from bench._stories import STORIES, WANTS, Story, judge, month, reports_of, tell
from loadmanager.nightly.in_process import InProcess

TRUE = f"{WANTS}|was stopped"
"""Titles that are true of a quiet day, too."""


def main(argv: list[str]) -> int:
    """Print a line a story, and how many there are of each verdict."""
    parser = argparse.ArgumentParser(prog="python -m bench stories", description=__doc__)
    parser.add_argument("names", nargs="*", help="all unless named")
    parser.add_argument("--cards", action="store_true")
    parser.add_argument("--quiet-days", type=int, default=0, metavar="N")
    parser.add_argument("--other", action="store_true")
    args = parser.parse_args(argv)
    if args.quiet_days:
        return _quiet(args.quiet_days)
    if args.other:
        return _other([day for day in DAYS if not args.names or day.name in args.names], args.cards)
    chosen = [story for story in STORIES if not args.names or story.name in args.names]
    counts: dict[str, int] = {}
    print("| story | verdict | false cards |\n|---|---|---|")
    engine = InProcess()
    with tempfile.TemporaryDirectory() as folder:
        pasts: dict[Any, Path] = {}
        for story in chosen:
            report = tell(story, engine, Path(folder), pasts)
            verdict, false = judge(story, report)
            counts[verdict] = counts.get(verdict, 0) + 1
            counts["false cards"] = counts.get("false cards", 0) + len(false)
            print(f"| {story.about} | {verdict} | {'; '.join(false)} |", flush=True)
            if args.cards:
                _print_cards(report)
    print(", ".join(f"{verdict} {count}" for verdict, count in sorted(counts.items())))
    return 0


def _quiet(days: int) -> int:
    """Print the cards of days on which nothing happens, and how many there are."""
    count = 0
    engine = InProcess()
    with tempfile.TemporaryDirectory() as folder:
        month(Path(folder) / "history", days)
        for date, report in reports_of(engine, Path(folder)):
            cards = [card for card in report["findings"] if not re.search(TRUE, card["title"])]
            count += len(cards)
            for card in cards:
                print(f"{date} {card['importance']:.0f} {card['title']}: {card['text']}")
    print(f"{count} false cards on {days} days")
    return 0


def _print_cards(report: dict[str, Any]) -> None:
    for card in report["findings"]:
        print(f"  {card['importance']:.0f} {card['title']}\n     {card['text']}")
        print(f"     {card['advice']} {card['effects']}")


def _other(days: list[OtherDay], cards: bool) -> int:
    """Print a line for each of these days, and how many stories have which verdict."""
    counts = dict.fromkeys(("told", "half", "missed", "false cards"), 0)
    engine = InProcess()
    print("| day | stories | false cards |\n|---|---|---|")
    for day in days:
        lived = Story(name=day.name, about=day.name, make=day.make, past=day.past)
        with tempfile.TemporaryDirectory() as folder:
            report = tell(lived, engine, Path(folder), {})
        verdicts, false = day.judged(report)
        for verdict in verdicts.values():
            counts[verdict] += 1
        counts["false cards"] += len(false)
        texts = [f"{about}: {verdict}" for about, verdict in verdicts.items()]
        print(f"| {day.name} | {'; '.join(texts)} | {'; '.join(false)} |", flush=True)
        if cards:
            _print_cards(report)
    print(", ".join(f"{verdict} {count}" for verdict, count in counts.items()))
    return 0
