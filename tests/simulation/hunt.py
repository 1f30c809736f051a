"""`python -m simulation.hunt FIRST LAST`: run seeds until one fails.

Prints the number of seeds that passed before; exits with 1 if one failed.
"""

from __future__ import annotations

import sys

from simulation.simulate import Plan, run


def main(first: int, last: int) -> int:
    """Run the seeds."""
    for seed in range(first, last):
        outcome = run(Plan(seed=seed))
        if outcome.failure is not None:
            print(seed - first)
            print(f"{outcome.failure}\n{outcome.plan.line}", file=sys.stderr)
            return 1
    print(last - first)
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
