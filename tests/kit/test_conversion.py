"""Shapes, from several threads."""

from __future__ import annotations

import subprocess
import sys

THREADS = """
import sys, threading
import msgspec
from loadmanager.kit.conversion import converted

sys.setswitchinterval(1e-6)
for number in range(300):
    fields = [(f"a{each}", int | None, None) for each in range(20)]
    inner = msgspec.defstruct(f"Inner{number}", fields)
    lists = [(f"b{each}", list[inner], []) for each in range(9)]
    outer = msgspec.defstruct(f"Outer{number}", lists)
    together = threading.Barrier(3)

    def convert():
        together.wait()
        assert converted({"b1": [{"a1": 3}]}, outer).b1[0].a1 == 3

    threads = [threading.Thread(target=convert) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
"""


def test_threads_may_learn_a_shape_at_once() -> None:
    """`msgspec.convert` by itself crashes the process."""
    command = [sys.executable, "-c", THREADS]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
