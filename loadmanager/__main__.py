"""The program `loadmanager`, and `python -m loadmanager`."""

import sys

from loadmanager.kit.system import garbage
from loadmanager.kit.system.first_signals import SERVICES, end_at_once


def main() -> int:
    """Run the command of `sys.argv`; returns the exit status."""
    if sys.argv[1:2] and sys.argv[1] in SERVICES:
        end_at_once()
    with garbage.not_now():
        try:
            from loadmanager.cli import main as run  # these imports take a while
        except ModuleNotFoundError as error:
            if (error.name or "").startswith("loadmanager"):
                raise
            print(
                f"loadmanager: the command line needs {error.name}, which is not installed: "
                "pip install 'loadmanager[broker]'",
                file=sys.stderr,
            )
            return 1

    return run()


if __name__ == "__main__":
    sys.exit(main())
