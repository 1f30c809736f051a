"""Command lines of `loadmanager` that pages and deployment files show: parsed, not run."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from functools import cache

import click

from loadmanager import cli
from loadmanager.broker import settings

SEPARATORS = {"|", "||", "&&", ";", "&", ">", ">>", "<", "2>"}

_root = cache(cli.build)


def check(words: Sequence[str]) -> dict[str, object]:
    """Assert that `loadmanager` has this command with these options and keys; returns the options.

    `words` do not begin with `loadmanager`.
    """
    try:
        options = _options(list(words))
    except click.exceptions.Exit:  # --help
        return {}
    except click.ClickException as error:
        raise AssertionError(f"not understood: {words}: {error.format_message()}") from None
    overrides = options.get("overrides") or {}
    assert isinstance(overrides, dict)
    assert not settings.KEYS.load(None, overrides).unknown, words
    return options


def _options(words: list[str]) -> dict[str, object]:
    command: click.Command = _root()
    context = command.make_context("loadmanager", words)
    while isinstance(command, click.Group):
        left = [*context._protected_args, *context.args]
        if not left and command.invoke_without_command:
            break
        name, found, rest = command.resolve_command(context, left)
        assert found is not None
        command, context = found, found.make_context(name, rest, parent=context)
    return dict(context.params)


def simple_commands(text: str) -> Iterator[list[str]]:
    """The words of each command of a line of a shell."""
    substituted = re.sub(r"\$\(date[^()]*\)", "2026-11-20", text)
    lexer = shlex.shlex(substituted, posix=True, punctuation_chars="|&;<>")
    lexer.whitespace_split = True
    words: list[str] = []
    for word in (*lexer, ";"):
        if word in SEPARATORS:
            if words:
                yield words
            words = []
        else:
            words.append(word)
