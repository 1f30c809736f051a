"""The number of connections that the limit of open files allows."""

from __future__ import annotations

import subprocess
import sys

import pytest

from loadmanager.kit.system import open_files

RAISED = """
import resource
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
hard = min(hard, 300) if hard != resource.RLIM_INFINITY else 300
resource.setrlimit(resource.RLIMIT_NOFILE, (128, hard))
from loadmanager.kit.system import open_files
open_files.raise_limit()
soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
print(soft == hard, open_files.connections_cap() == open_files.cap_of(hard))
"""


@pytest.mark.parametrize(
    ("files", "connections", "http"),
    [(256, 192, 32), (1024, 922, 51), (100_000, 90_000, 5_000), (10, 1, 4)],
)
def test_a_reserve_is_kept(files: int, connections: int, http: int) -> None:
    """A tenth, and at least 64, is kept from clients; half of it is for HTTP, the rest for the
    metadata store and the history.
    """
    assert open_files.cap_of(files) == connections
    assert open_files.http_cap_of(files) == http


def test_the_soft_limit_is_raised_to_the_hard_one() -> None:
    """The soft limit of the shell is raised to the hard limit."""
    done = subprocess.run(
        [sys.executable, "-c", RAISED], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["True", "True"]
