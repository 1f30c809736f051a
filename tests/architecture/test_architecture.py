"""The rules of ARCHITECTURE.md that a machine can check."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

from loadmanager import __version__, settings

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "loadmanager"


def test_import_contracts() -> None:
    """No room imports what it may not."""
    result = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout


def test_broker_conf_is_the_template() -> None:
    """config/broker.conf holds exactly every key that is honoured, with its default (`make
    broker-conf` writes it).
    """
    assert (ROOT / "config" / "broker.conf").read_text() == settings.template()


def test_broker_conf_parses_to_the_defaults() -> None:
    """A broker that starts from config/broker.conf has the defaults."""
    loaded = settings.load(ROOT / "config" / "broker.conf")
    assert loaded.by_leaf == settings.load().by_leaf
    assert loaded.unknown == ()


def test_core_has_no_coroutines() -> None:
    """Core decides; it never waits."""
    for path in sorted((PACKAGE / "core").rglob("*.py")):
        found = [
            node
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.AsyncFunctionDef | ast.Await)
        ]
        assert not found, path


STARTERS = {
    "as_completed",
    "call_at",
    "call_later",
    "create_task",
    "ensure_future",
    "gather",
    "run_coroutine_threadsafe",
    "TaskGroup",
    "wait_for",
}
"""Calls that start a task or a timer. Only runtime/tasks.py may use them, which names and
supervises what it starts.
"""
STARTS = {
    ("runtime/tasks.py", "TaskGroup"): "here every task is made",
    ("runtime/tasks.py", "create_task"): "here every task is made",
    ("adapters/admin/connections.py", "call_later"): "hangs up, which cannot fail",
    ("adapters/memory/store.py", "call_later"): "heartbeats in memory, where nothing can fail",
    ("adapters/protocol/dispatcher.py", "call_later"): "a topic that fails costs its clients only",
    ("adapters/protocol/resumer.py", "call_later"): "set again whatever raises",
    ("adapters/protocol/turns.py", "call_later"): "a connection that fails is told of",
    ("adapters/metrics/page.py", "call_at"): "forgets a page, which cannot fail",
    ("runtime/tasks.py", "gather"): "waits for both, and raises what the first one raised",
    ("analysis/job.py", "gather"): "another gather: that of the plots",
}


def test_nothing_runs_unsupervised() -> None:
    """Tasks and timers are started only where their failures are handled."""
    found = set()
    for path in sorted(PACKAGE.rglob("*.py")):
        name = str(path.relative_to(PACKAGE))
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module == "asyncio":
                found.update((name, alias.name) for alias in node.names if alias.name in STARTERS)
            elif isinstance(node, ast.Attribute) and node.attr in STARTERS:
                found.add((name, node.attr))
    assert found == STARTS.keys()


def test_modules_and_functions_stay_small() -> None:
    """No module of more than 500 lines, no function of more than 70."""
    for path in sorted(PACKAGE.rglob("*.py")):
        if path.name.endswith("_pb2.py"):
            continue
        text = path.read_text()
        assert text.count("\n") <= 500, path
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                assert (node.end_lineno or 0) - node.lineno < 70, f"{path}: {node.name}"


def test_nothing_of_our_own_is_patched() -> None:
    """Tests use the fakes that ship with the package, never patches of our own code."""
    banned = ("mock" + ".patch", "monkey" + "patch.setattr", "Magic" + "Mock")
    for path in sorted((ROOT / "tests").rglob("*.py")):
        assert not [word for word in banned if word in path.read_text()], path


def test_an_sdist_holds_what_the_readme_links_to() -> None:
    """Every relative link of README.md leads to a file that MANIFEST.in includes."""
    manifest = (ROOT / "MANIFEST.in").read_text().split()
    links = re.findall(r"\]\(([^)#:]+)[^)]*\)", (ROOT / "README.md").read_text())
    assert links
    for link in links:
        assert (ROOT / link).exists(), link
        assert Path(link).parts[0] in manifest, link


def test_the_changelog_begins_with_the_version() -> None:
    """The newest section is that of the version, or of what comes after it."""
    headings = re.findall(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert __version__ in headings[:2]
    assert headings[0] in (__version__, "Unreleased")


def test_constraints_name_no_host() -> None:
    """The constraints file pins versions and names no host."""
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        assert line.startswith("#") or ("==" in line and "/" not in line and "@" not in line), line
