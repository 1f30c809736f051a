"""`loadmanager` itself: help, version, and errors at the start, each in one line."""

from __future__ import annotations

import importlib
import os
import socket
import subprocess
import sys
from pathlib import Path

import click
import pytest

from loadmanager import __version__
from loadmanager.cli import COMMANDS, main
from loadmanager.cli.admin import SUBJECTS
from loadmanager.cli.admin import command as admin


@pytest.mark.parametrize("where", [">&-", ">/dev/full"])
@pytest.mark.parametrize("words", ["--help", "config template", "admin use"])
def test_an_output_that_cannot_be_written(words: str, where: str) -> None:
    """One sentence and status 1, and no traceback."""
    said = subprocess.run(
        ["/bin/sh", "-c", f"exec {sys.executable} -m loadmanager {words} {where}"],
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert said.returncode == 1
    assert said.stderr.startswith("loadmanager: the standard output cannot be written: ")
    assert said.stderr.count("\n") == 1


def test_help_without_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    """The help names every command."""
    assert main([]) == 0
    said = capsys.readouterr().out
    assert all(f"\n  {command} " in said for command in COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_says_what_each_command_says(name: str) -> None:
    """The program's help is written without their modules."""
    command = importlib.import_module(f"loadmanager.cli.{name.replace('-', '_')}").command
    assert command.get_short_help_str() == COMMANDS[name]


@pytest.mark.parametrize("name", SUBJECTS)
def test_help_says_what_each_subject_says(name: str) -> None:
    """The help of `admin` is written without their modules, too."""
    command = admin.get_command(click.Context(admin), name)
    assert command is not None
    assert (command.name, command.get_short_help_str()) == (name, SUBJECTS[name][1])


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A shell asks the program for what comes next."""
    assert main(["completion", shell]) == 0
    assert "_LOADMANAGER_COMPLETE" in capsys.readouterr().out


def test_completion_of_a_command() -> None:
    """The names of commands and options."""
    asked = {"_LOADMANAGER_COMPLETE": "bash_complete", "COMP_WORDS": "loadmanager admin br"}
    done = subprocess.run(
        [Path(sys.executable).with_name("loadmanager")],
        env={**os.environ, **asked, "COMP_CWORD": "2"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["plain,brokers"]


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    """`--version` prints the version of the package."""
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"loadmanager {__version__}\n"


WRONG = """
nonsense
-x
--versio
admin
admin --url
admin nonsense
admin --json
admin brokers
admin brokers lst
admin brokers list extra
admin brokers list --jsn
admin brokers list --url
admin brokers list --url ftp://x
admin brokers list --url http://[
admin brokers list --url http://127.0.0.1:99999
admin brokers list --url http://ü:1
admin brokers list --timeout
admin brokers list --timeout nan
admin brokers list --timeout -1
admin brokers list --url nowhere.invalid --timeout 1
admin brokers health x:y
admin brokers report a/b
admin namespaces create
admin namespaces create x
admin namespaces create a/b/c/d
admin namespaces create a/b --bundles many
admin namespaces create a/b --bundles 2 --boundaries 0x0
admin namespaces delete ../..
admin bundles list x
admin bundles unload
admin bundles unload a/b
admin bundles unload a/b/c
admin bundles unload a/b/0x0_0xg
admin bundles split a/b/HOT --at middle
admin topics lookup
admin topics lookup persistent://a
admin topics lookup https://a/b/c
admin topics create a/b/c --partitions -1
admin topics stats a/b/c/d/e
admin limits set a/b rate --messages 1
admin limits set a/b publishRate
admin limits set a/b publishRate --messages 1.5
admin limits set a/b publishRate --period 2
admin limits show a
admin isolation set gold
admin isolation set gold --namespaces
admin isolation set gold --namespaces x y --primary z
admin decisions --limit x
admin drain
admin use a b
decide /nonexistent
decide /
decide --seed x
decide --set novalue
decide --set clusterNam=x
config
config check
config check /nonexistent
config check / --json
analyze --date yesterday
analyze --spark novalue
analyze --config /
broker --config /
broker --log-format xml
standalone --brokers x
standalone --config /
"""


@pytest.mark.parametrize("line", WRONG.strip().splitlines())
def test_what_is_typed_wrong_is_answered(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever is typed: status 1 or 2 and a sentence; never a traceback."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        port = nobody.getsockname()[1]
    words = line.split()
    if words[0] == "admin":
        words[1:1] = ["--url", f"127.0.0.1:{port}"]
    assert main(words) in (1, 2)
    out, err = capsys.readouterr()
    assert (out + err).strip()


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("admn", "Did you mean 'admin'?"),
        ("admin brokers lst", "Did you mean 'list'?"),
        ("admin brokers list --jsn", "Did you mean '--json'?"),
        ("decide --sed 1", "'--seed'"),
    ],
)
def test_a_misspelt_word_has_a_suggestion(
    line: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Commands and options."""
    assert main(line.split()) == 2
    assert hint in capsys.readouterr().err


def test_no_summary_is_cut_off(capsys: pytest.CaptureFixture[str]) -> None:
    """Of the program and of its subjects."""
    for words in (["--help"], ["admin", "--help"]):
        assert main(words) == 0
        assert "..." not in capsys.readouterr().out.partition("Commands:")[2]


def test_standalone_with_what_bootstrap_makes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its ports for TLS have the numbers of those without: the refusal says by whom each is needed,
    and what to give.
    """
    assert main(["tokens", "bootstrap", str(tmp_path / "secure"), "localhost"]) == 0
    words = ["standalone", "--data-dir", str(tmp_path / "data"), "--brokers", "1"]
    words += ["--config", str(tmp_path / "secure" / "broker" / "secure.conf")]
    capsys.readouterr()
    for more, said in (
        (
            [],
            "port 6650 is needed twice, by --pulsar-port and brokerServicePortTls, for standalone ",
        ),
        (["--pulsar-port", "6660"], "8080 is needed twice, by --http-port and webServicePortTls"),
    ):
        assert main([*words, *more]) == 2
        refusal = capsys.readouterr().err
        assert said in refusal
        assert "choose another --pulsar-port, --http-port" in refusal
    # With the ports that the page on security names, that check is passed, and the next one fails.
    more = ["--pulsar-port", "6660", "--http-port", "8090", "--set", "clusterNam=x"]
    assert main([*words, *more]) == 2
    assert "did you mean clusterName?" in capsys.readouterr().err


def test_a_subject_without_an_action_lists_the_actions(capsys: pytest.CaptureFixture[str]) -> None:
    """On standard error, with status 2."""
    assert main(["admin", "brokers"]) == 2
    said = capsys.readouterr().err
    assert all(f"\n  {action} " in said for action in ("list", "leader", "health", "report"))


@pytest.mark.parametrize(
    ("words", "status", "reason"),
    [
        (["--pulsar-port", "99999"], 2, "port 99999: 1 to 65535 is allowed"),
        (["--pulsar-port", "65534"], 2, "port 65536: 1 to 65535 is allowed"),
        (["--pulsar-port", "8080"], 2, "port 8080 is needed twice"),
        (["--brokers", "0"], 2, "--brokers 0: 1 to 64 is allowed"),
        (["--set", "webServicePort=1"], 2, "use --http-port"),
        (["--set", "clusterNam=x"], 2, "did you mean clusterName?"),
        (["--set", "authenticationEnabled=true"], 2, "needs authenticationProviders"),
        (["--set", "loadBalancerLoadSheddingStrategy=Sheder"], 2, "ThresholdShedder"),
        (["--set", "novalue"], 2, "key=value is expected"),
        (["--config", "/nonexistent"], 2, "No such file"),
    ],
)
def test_standalone_refuses(
    words: list[str], status: int, reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Bad options are refused in one line before anything starts."""
    assert main(["standalone", "--data-dir", str(tmp_path), *words]) == status
    said = capsys.readouterr().err
    assert (reason in said, said.count("\n")) == (True, 1), said


def test_a_data_directory_that_cannot_be_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The path is named, with the option that chooses another one."""
    (tmp_path / "file").touch()
    assert main(["standalone", "--data-dir", str(tmp_path / "file" / "data")]) == 1
    said = capsys.readouterr().err
    assert ("choose another --data-dir" in said, said.count("\n")) == (True, 1), said
