"""Runs a command of loadmanager in a process that ends with its parent, however that ends."""

from __future__ import annotations

import sys

from loadmanager.cli import main
from loadmanager.kit.system.first_signals import end_at_once
from loadmanager.kit.system.parent import stop_with_parent

if __name__ == "__main__":
    end_at_once(hangup=True)
    stop_with_parent()
    sys.exit(main(sys.argv[1:]))
