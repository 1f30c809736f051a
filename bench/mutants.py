"""Mutation tests of engine/strategies: how many small edits of the code its tests notice.

`python -m bench mutants [--sample 400 --seed 1]` runs mutmut (configured in pyproject.toml) over a
random sample of all mutants, or over all of them without `--sample`, and writes
`tests/mutation_score.json`. `mutmut show NAME` prints the edit of a survivor. The tests run in one
process; a sample of 400 takes some ten minutes.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[1]
MUTANTS = ROOT / "mutants"
ROOM = MUTANTS / "loadmanager" / "engine" / "strategies"
SCORE = ROOT / "tests" / "mutation_score.json"
SURVIVED, NO_TESTS = 0, 33
"""mutmut's exit codes; any other one means that a test failed, crashed or took too long."""


def main(argv: list[str]) -> int:
    """Run the mutants, print the score by module and store it."""
    parser = argparse.ArgumentParser(prog="python -m bench mutants", description=__doc__)
    parser.add_argument("--sample", type=int, help="mutants to run (default: all)")
    parser.add_argument("--seed", type=int, default=1, help="chooses the sample")
    args = parser.parse_args(argv)
    # mutmut keeps results of earlier runs, also when tests were added since.
    shutil.rmtree(MUTANTS, ignore_errors=True)
    if args.sample is None:
        _mutmut("run", "--max-children", "1")
        chosen = sorted(_exit_codes())
    else:
        _mutmut("run", "--max-children", "1", "loadmanager.engine.strategies.memories.*")
        chosen = sorted(random.Random(args.seed).sample(sorted(_exit_codes()), args.sample))
        _mutmut("run", "--max-children", "1", *chosen)
    codes = _exit_codes()
    modules: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    survivors = []
    for name in chosen:
        module = name.removeprefix("loadmanager.engine.strategies.").rpartition(".")[0]
        killed = codes[name] not in (None, SURVIVED, NO_TESTS)
        modules[module][0] += killed
        modules[module][1] += 1
        if not killed:
            survivors.append(name)
    killed = len(chosen) - len(survivors)
    score = {
        "command": "python -m bench mutants " + " ".join(argv),
        "mutants": len(codes),
        "run": len(chosen),
        "killed": killed,
        "percent": round(100 * killed / len(chosen), 1),
        "modules": {name: f"{modules[name][0]} of {modules[name][1]}" for name in sorted(modules)},
        "survivors": survivors,
    }
    SCORE.write_text(json.dumps(score, indent=2) + "\n")
    for name, text in score["modules"].items():  # type: ignore[attr-defined]
        print(f"{name:40} {text}")
    print(f"killed {killed} of {len(chosen)} mutants ({score['percent']} %)")
    return 0


def _mutmut(*arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "mutmut", *arguments], cwd=ROOT, check=True)


def _exit_codes() -> dict[str, int | None]:
    """Mutant → exit code of its tests; None: not run."""
    codes: dict[str, int | None] = {}
    for path in ROOM.rglob("*.meta"):
        codes.update(json.loads(path.read_text())["exit_code_by_key"])
    return codes
