"""How well the nightly report tells the stories of made-up days: told, half, missed, and false.

`python -m bench stories [NAME …] [--cards]` makes each day from a seed, analyses it, and prints a
table; `--cards` prints the cards of each report, too.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

from bench._stories import STORIES, judge, tell
from loadmanager.kit.spark import session
from loadmanager.kit.zookeeper.java import find_java

SETTINGS = {"spark.driver.memory": "1g"}


def main(argv: list[str]) -> int:
    """Print a line a story, and how many there are of each verdict."""
    parser = argparse.ArgumentParser(prog="python -m bench stories", description=__doc__)
    parser.add_argument("names", nargs="*", help="all unless named")
    parser.add_argument("--cards", action="store_true")
    args = parser.parse_args(argv)
    chosen = [story for story in STORIES if not args.names or story.name in args.names]
    counts: dict[str, int] = {}
    print("| story | verdict | false cards |\n|---|---|---|")
    with (
        tempfile.TemporaryDirectory() as folder,
        session(master="local[1]", java=find_java(), settings=SETTINGS) as spark,
    ):
        pasts: dict[Any, Path] = {}
        for story in chosen:
            report = tell(story, spark, Path(folder), pasts)
            verdict, false = judge(story, report)
            counts[verdict] = counts.get(verdict, 0) + 1
            counts["false"] = counts.get("false", 0) + len(false)
            print(f"| {story.about} | {verdict} | {'; '.join(false)} |", flush=True)
            if args.cards:
                for card in report["findings"]:
                    print(f"  {card['importance']:.0f} {card['title']}\n     {card['text']}")
                    print(f"     {card['advice']} {card['effects']}")
    print(", ".join(f"{verdict} {count}" for verdict, count in sorted(counts.items())))
    return 0
