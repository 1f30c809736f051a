"""The program `loadmanager`, and `python -m loadmanager`."""

import os
import signal
import sys

INTERRUPTED = 130


def main() -> int:
    """Run the command of `sys.argv`; returns the exit status."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave)  # before all imports but these three
    from loadmanager.kit.system import first_signals, garbage

    if sys.argv[1:2] and sys.argv[1] in first_signals.SERVICES:
        # for a broker that no terminal runs, SIGHUP means to read its file again
        reads_again = sys.argv[1] == "broker" and not os.isatty(0)
        first_signals.end_at_once(hangup=not reads_again)
        if reads_again:
            first_signals.ignore_hangup()
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

    try:
        if signal.getsignal(signal.SIGINT) is _leave:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        return run()
    except KeyboardInterrupt:
        return INTERRUPTED


def _leave(*_: object) -> None:
    """Ctrl-C while there is nothing to end."""
    os._exit(INTERRUPTED)


if __name__ == "__main__":
    sys.exit(main())
