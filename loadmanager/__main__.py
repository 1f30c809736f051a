"""The program `loadmanager`, and `python -m loadmanager`."""

import sys

from loadmanager.kit.system import garbage
from loadmanager.kit.system.first_signals import SERVICES, end_at_once


def main() -> int:
    """Run the command of `sys.argv`; returns the exit status."""
    if sys.argv[1:2] and sys.argv[1] in SERVICES:
        end_at_once()
    with garbage.not_now():
        from loadmanager.cli import main as run  # these imports take a while

    return run()


if __name__ == "__main__":
    sys.exit(main())
