"""Each command of `admin` that shows something shows a past moment; and help loads little."""

from __future__ import annotations

import subprocess
import sys

import click
import pytest
from cli.test_hostile_brokers import words_of

from loadmanager.cli import main
from loadmanager.cli.admin import command as admin

CHANGES = {
    "brokers cordon", "brokers uncordon", "brokers forget", "tenants create", "tenants update",
    "tenants delete", "namespaces create", "namespaces delete", "namespaces unload",
    "bundles move", "bundles merge", "bundles pin", "bundles unpin", "bundles unload",
    "bundles split", "topics create", "topics delete", "topics unload", "limits set",
    "limits remove", "groups set", "groups delete", "groups join", "groups leave",
    "isolation set", "isolation delete", "settings set", "settings unset", "plans execute",
    "plans approve", "goals propose", "goals approve", "goals stop", "roles disconnect",
    "tokens refuse", "tokens allow", "moves cancel", "moves pause", "moves resume", "drain",
    "rolling-restart", "undo", "use",
}  # fmt: skip
"""Commands that change something. `undo` shows what it would do, by --since."""
OTHER_MEANING = {"bundles split", "goals approve"}
"""Where --at says where to split, and when to begin."""
COMMANDS = sorted(words_of(admin))


def _takes_a_moment(words: str) -> bool:
    found: click.Command | None = admin
    for name in words.split():
        assert isinstance(found, click.Group)
        found = found.get_command(click.Context(found), name)
    assert found is not None
    return any("--at" in param.opts for param in found.params)


@pytest.mark.parametrize("words", COMMANDS)
def test_what_shows_something_shows_a_past_moment(
    words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """It has --at; what changes something refuses it, with the reason."""
    if words not in CHANGES:
        assert _takes_a_moment(words)
        return
    if words in OTHER_MEANING:
        assert _takes_a_moment(words)
        return
    assert main(["admin", *words.split(), "--at", "03:12"]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert f"{words} cannot show a past moment: it changes what is now" in said


def test_no_name_is_left_of_a_command_that_is_gone() -> None:
    """Every name in the list is a command."""
    assert {*CHANGES} <= {*COMMANDS}


@pytest.mark.parametrize("subject", ["topics", "limits", "namespaces", "settings"])
def test_help_of_a_subject_loads_neither_tables_nor_records(subject: str) -> None:
    """It is asked for often, and by completion."""
    code = (
        "import sys; from loadmanager.cli import main; "
        f"assert main(['admin', '{subject}', '--help']) == 0; "
        "loaded = {'rich', 'numpy', 'aiohttp', 'loadmanager.cli.doctor'} & {*sys.modules}; "
        "assert not loaded, loaded"
    )
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)
