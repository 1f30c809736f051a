"""`python -m simulation.hunt FIRST LAST [MANAGER|stored|storage [KIND …]]`: run seeds until one
fails.

With kinds of events, only those happen. Prints the number of seeds that passed before; exits with 1
if one failed.
"""

from __future__ import annotations

import sys

from simulation import storage, stored
from simulation.simulate import Plan, run
from simulation.world import SimulationError


def main(first: int, last: int, what: str, kinds: tuple[str, ...]) -> int:
    """Run the seeds: with stored topics, with the storage alone, or under a load manager."""
    alone = {"stored": stored.run, "storage": storage.run}
    for seed in range(first, last):
        if what in alone:
            try:
                alone[what](seed)
            except SimulationError as error:
                print(seed - first)
                print(error, file=sys.stderr)
                return 1
            continue
        outcome = run(Plan(seed=seed, manager=what, kinds=kinds))
        if outcome.failure is not None:
            print(seed - first)
            print(f"{outcome.failure}\n{outcome.plan.line}", file=sys.stderr)
            return 1
    print(last - first)
    return 0


if __name__ == "__main__":
    what, *chosen = [*sys.argv[3:], *(["modular"] if len(sys.argv) == 3 else [])]
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]), what, tuple(chosen)))
