"""`loadmanager` itself: help, version, and errors at the start, each in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from loadmanager import __version__
from loadmanager.cli import COMMANDS, main


def test_help_without_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    """The help names every command."""
    assert main([]) == 0
    said = capsys.readouterr().out
    assert all(f"\n    {command}" in said for command in COMMANDS)


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    """`--version` prints the version of the package."""
    with pytest.raises(SystemExit) as caught:
        main(["--version"])
    assert (caught.value.code, capsys.readouterr().out) == (0, f"loadmanager {__version__}\n")


@pytest.mark.parametrize(
    ("words", "status", "reason"),
    [
        (["--pulsar-port", "99999"], 2, "port 99999: 1 to 65535 is allowed"),
        (["--pulsar-port", "65534"], 2, "port 65536: 1 to 65535 is allowed"),
        (["--pulsar-port", "8080"], 2, "port 8080 is needed twice"),
        (["--brokers", "0"], 2, "--brokers 0: 1 to 64 is allowed"),
        (["--set", "webServicePort=1"], 2, "use --http-port"),
        (["--set", "clusterNam=x"], 2, "did you mean clusterName?"),
        (["--set", "authenticationEnabled=true"], 2, "does not ask clients who they are"),
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
