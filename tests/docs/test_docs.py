"""The documentation is true as far as a machine can tell: generated pages are current, links and
commands work, and the code that pages name exists.
"""

from __future__ import annotations

import importlib
import importlib.util
import itertools
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import command_lines
import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

from loadmanager.broker import settings
from loadmanager.steer.http.fleet_routes import FleetRoutes

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
ROOT_PAGES = sorted(ROOT.glob("*.md"))
WRITTEN = [
    *ROOT_PAGES,
    *sorted(path for path in DOCS.rglob("*.md") if "_build" not in path.parts),
]
PAGES = pytest.mark.parametrize("page", WRITTEN, ids=lambda page: str(page.relative_to(ROOT)))

CODE_NAME = re.compile(r"loadmanager(\.\w+)+:\w+(\.\w+)*")
PATH = re.compile(r"[\w.-]+(/[\w.-]+)*(/|\.py|\.txt|\.toml|\.conf|\.service|\.timer|\.yml|\.yaml)")
COLUMNS = 100


@cache
def _generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_generate", DOCS / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@cache
def _tokens(page: Path) -> list[Token]:
    """All tokens of a page, those within paragraphs, too."""
    blocks = MarkdownIt().enable("table").parse(page.read_text())
    return [token for block in blocks for token in (block, *(block.children or ()))]


def _inline_code(page: Path) -> Iterator[str]:
    return (token.content for token in _tokens(page) if token.type == "code_inline")


def test_reference_pages_are_current() -> None:
    """The committed pages are what `python docs/generate.py` writes.

    In a process of its own, where no test has registered a strategy.
    """
    checked = _run(DOCS / "generate.py", "--check")
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert {page.name for page in (DOCS / "reference").glob("*.md")} == {
        *(name for name in _generator().pages() if name.endswith(".md")),
        "index.md",
    }


def _run(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )


@pytest.mark.slow
def test_every_page_builds(tmp_path: Path) -> None:
    """Sphinx finds no broken link, no broken anchor, and no page that nothing leads to."""
    built = _run(
        *("-m", "sphinx", "-n", "-W", "--keep-going", "-q", "-b", "html"),
        *("-d", tmp_path / "doctrees", DOCS, tmp_path / "html"),
    )
    assert built.returncode == 0, built.stderr


@PAGES
def test_links_lead_somewhere(page: Path) -> None:
    """A relative link names a file of the project, and a heading of it."""
    for token in _tokens(page):
        target = str(token.attrs.get("href", ""))
        if token.type != "link_open" or re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        linked = (page.parent / path).resolve() if path else page
        assert linked.exists(), target
        if anchor:
            assert anchor in _anchors(linked), target


def _anchors(page: Path) -> set[str]:
    tokens = _tokens(page)
    titles = [
        following.content
        for token, following in zip(tokens, tokens[1:], strict=False)
        if token.type == "heading_open"
    ]
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


@PAGES
def test_lines_are_short(page: Path) -> None:
    """Prose has 100 columns; only links and code may need more."""
    fenced = False
    for line in page.read_text().splitlines():
        fenced ^= line.lstrip().startswith("```")
        if not fenced and "](" not in line:
            assert len(line) <= COLUMNS, line


@pytest.mark.parametrize("name", ["Makefile", "pyproject.toml"])
def test_lines_of_tools_are_short(name: str) -> None:
    """Files of the tools have 100 columns, too; a tab counts as one."""
    for line in (ROOT / name).read_text().splitlines():
        assert len(line) <= COLUMNS, line


def test_the_readme_is_short() -> None:
    """A newcomer reads it in three minutes, a whole program included."""
    lines = (ROOT / "README.md").read_text().splitlines()
    assert len(lines) <= 160
    assert max(map(len, lines)) <= COLUMNS


@PAGES
def test_named_code_exists(page: Path) -> None:
    """`module:name` in a page is importable, and a path in a page is there."""
    for text in _inline_code(page):
        if CODE_NAME.fullmatch(text):
            module, _, qualname = text.partition(":")
            target: Any = importlib.import_module(module)
            for name in qualname.split("."):
                fields = getattr(target, "__annotations__", {})
                target = fields[name] if name in fields else getattr(target, name)
        elif "/" in text[:-1] and PATH.fullmatch(text) and page.name != "CHANGELOG.md":
            places = (ROOT, ROOT / "loadmanager", page.parent)
            assert any((place / text).exists() for place in places), text


@PAGES
def test_commands_are_understood(page: Path) -> None:
    """Commands that pages show exist with these options; so do the paths that they ask for."""
    for command in _commands(page):
        for words in command_lines.simple_commands(command):
            _check(words, command)


def _commands(page: Path) -> Iterator[str]:
    """Every line of a shell, without its prompt; and inline code that begins as a command."""
    for token in _tokens(page):
        if token.type == "fence" and token.info in ("sh", "bash", "console"):
            text = token.content.replace("\\\n", " ")
            for line in text.splitlines():
                if token.info != "console":
                    yield line
                elif line.startswith("$ "):
                    yield line[2:]
        elif token.type == "code_inline" and re.match(r"(loadmanager|make) [^…]+$", token.content):
            yield from {token.content} - _command_names()  # a name alone is not a command to run


def test_the_page_on_security_says_where_its_command_is() -> None:
    """Before it names it without a path: a clone has it in `.venv` alone."""
    commands = list(_commands(DOCS / "howto" / "secure.md"))
    bare = next(i for i, line in enumerate(commands) if line.startswith("loadmanager "))
    assert commands[:bare][-2:] == ["make install-run", "export PATH=$PWD/.venv/bin:$PATH"]


@cache
def _command_names() -> set[str]:
    return {context.command_path for context in _generator().commands()}


def _check(words: list[str], command: str) -> None:
    while words and re.match(r"\w+=", words[0]):
        words = words[1:]
    program, rest = (Path(words[0]).name, words[1:]) if words else ("", [])
    if program == "loadmanager" and rest[:1] != ["--version"]:
        command_lines.check(rest)
    elif program == "make":
        targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        assert all(word in targets for word in rest if "=" not in word), command
    elif program.startswith("python") and rest[:2] == ["-m", "bench"] and len(rest) > 2:
        assert (ROOT / "bench" / f"{rest[2]}.py").exists(), command
    elif program.startswith("python") and rest and rest[0].endswith(".py"):
        assert (ROOT / rest[0]).exists(), command
    elif program == "curl":
        _check_request(rest, command)


def _check_request(words: list[str], command: str) -> None:
    url = next(word for word in words if word.startswith("http"))
    method = next((words[i + 1] for i, word in enumerate(words) if word == "-X"), "GET")
    assert "-d" not in words or "application/json" in command, f"it gets 415: {command}"
    path = re.sub(r"^https?://[^/]+|\?.*$", "", url)
    if path == "/kitchen":  # a room of examples/rooms.py
        return
    fleet: Any = None  # nothing is asked of it
    if (method, path) in {(route.method, route.path) for route in FleetRoutes(fleet).routes()}:
        return
    for route in _generator().routes():
        if route.method == method:
            known = route.resource.get_info()
            if known.get("path") == path or (
                "pattern" in known and known["pattern"].fullmatch(path)
            ):
                return
    pytest.fail(f"no such route: {command}")


@PAGES
def test_settings_are_known(page: Path) -> None:
    """Lines of broker.conf in a page have keys and values that a broker accepts."""
    for token in _tokens(page):
        if token.type == "fence" and token.info == "properties":
            pairs = [line for line in token.content.splitlines() if line and line[0] != "#"]
            assert not settings.KEYS.load(None, settings.KEYS.parse_overrides(pairs)).unknown, pairs


def test_each_dependency_has_its_reason() -> None:
    """ARCHITECTURE.md says what each package is for; those of `bench` are summed up there."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = {**project["optional-dependencies"], "": project["dependencies"], "bench": []}
    reasons = (ROOT / "ARCHITECTURE.md").read_text().partition("## Dependencies")[2].lower()
    for requirement in itertools.chain.from_iterable(extras.values()):
        name = re.split(r"[<>=;\[ ]", requirement)[0]
        if name != "loadmanager":  # an extra of ours that another one brings
            assert name.removeprefix("pytest-").removeprefix("types-") in reasons, name
