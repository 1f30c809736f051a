"""`loadmanager config`, as a user calls it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from loadmanager.cli import main


def test_check_of_a_good_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It prints the keys that are set and the unknown ones, with the nearest name; the exit status
    is 0.
    """
    path = tmp_path / "broker.conf"
    path.write_text(
        "loadBalancerSheddingIntervalMinutes=2\nloadBalancerSheddingIntervalMinut=1\nwebServicePort=8080\n"
    )
    assert main(["config", "check", str(path)]) == 0
    said = capsys.readouterr().out
    assert "loadBalancerSheddingIntervalMinutes = 2   (default 1)" in said
    assert "did you mean loadBalancerSheddingIntervalMinutes?" in said


def test_check_of_a_bad_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Problems are listed, as text and as JSON; the exit status is 2."""
    path = tmp_path / "broker.conf"
    path.write_text("webServicePort=http\n")
    assert main(["config", "check", str(path)]) == 2
    assert "webServicePort = 'http'" in capsys.readouterr().err
    assert main(["config", "check", str(path), "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["problems"]


def test_a_password_in_a_value_is_not_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """ZooKeeper's password has no place in its address; a refusal does not repeat it."""
    path = tmp_path / "broker.conf"
    for url in ("zk:user:SECRET@host:2181", "user:SEC/RET@host", "zk://user:SECRET@host:1/root"):
        path.write_text(f"metadataStoreUrl={url}\n")
        assert main(["config", "check", str(path)]) == 2
        assert main(["broker", "--config", str(path)]) == 2
        said = "".join(capsys.readouterr())
        assert "*****@host" in said
        assert "SEC" not in said


@pytest.mark.parametrize("mode", [0o604, 0o640])
def test_a_secret_that_everybody_can_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], mode: int
) -> None:
    """Whoever checks the file is told; a group that may read is the operator's choice."""
    secret, path = tmp_path / "zookeeper.auth", tmp_path / "broker.conf"
    secret.write_text("user:password\n")
    secret.chmod(mode)
    path.write_text(f"loadManagerZooKeeperAuthFile={secret}\n")
    assert main(["config", "check", str(path)]) == 0
    assert (f"chmod o-r {secret}" in capsys.readouterr().out) == (mode == 0o604)


def test_check_of_values_that_cannot_act_together(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Unknown strategies and contradictions are found without starting anything."""
    path = tmp_path / "broker.conf"
    path.write_text(
        "loadBalancerLoadSheddingStrategy=Sheder\nloadBalancerAvgShedderLowThreshold=50\n"
    )
    assert main(["config", "check", str(path), "--json"]) == 2
    assert len(json.loads(capsys.readouterr().out)["problems"]) == 2
    assert main(["config", "check", str(path)]) == 2
    assert "is above loadBalancerAvgShedderHighThreshold" in capsys.readouterr().err


def test_a_replaced_key_names_what_replaces_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its old default, which files of earlier versions have, is accepted; nothing else."""
    path = tmp_path / "broker.conf"
    path.write_text("loadManagerBalancedMovePrice=0.004\n")
    assert main(["config", "check", str(path)]) == 0
    assert "accepted, without effect: 1" in capsys.readouterr().out
    path.write_text("loadManagerBalancedMovePrice=0.001\n")
    assert main(["config", "check", str(path)]) == 2
    text = capsys.readouterr().err
    assert "= 0.001: it does nothing any more; loadManagerBalancedDifferencePercent" in text
    assert "accepted" not in text


@pytest.mark.parametrize(
    "command",
    [
        ["decide", "--set", "loadManagerBalancedMovePrice=0.5", "cluster.json"],
        ["replay", "--try", "BalancedShedder,loadManagerBalancedMovePrice=0.5", "--days", "1"],
    ],
    ids=["decide", "replay"],
)
def test_trying_a_replaced_key_is_refused(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """In the words of `config check`: what it would do instead, is nothing."""
    assert main(command) == 2
    assert "= 0.5: it does nothing any more; loadManagerBalanced" in capsys.readouterr().err


def test_check_shows_all_problems(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Bad values, unknown strategies, contradictions and unknown keys are shown together; a value
    that cannot be parsed takes no part in contradictions.
    """
    path = tmp_path / "broker.conf"
    path.write_text(
        "webServicePort=http\nloadBalancerLoadSheddingStrategy=Sheder\n"
        "loadBalancerAvgShedderLowThreshold=50\n"
        "loadBalancerReportUpdateMinIntervalMillis=10000000\n"
        "loadBalancerReportUpdateMaxIntervalMinutes=soon\nloadBalancerSheddingIntervalMinut=1\n"
    )
    assert main(["config", "check", str(path), "--json"]) == 2
    shown = json.loads(capsys.readouterr().out)
    keys = [problem.split()[0] for problem in shown["problems"]]
    assert keys == [
        "loadBalancerReportUpdateMaxIntervalMinutes",
        "webServicePort",
        "loadBalancerLoadSheddingStrategy",
        "loadBalancerAvgShedderLowThreshold",
    ]
    assert shown["unknown"] == {
        "loadBalancerSheddingIntervalMinut": "loadBalancerSheddingIntervalMinutes"
    }
    assert main(["config", "check", str(path)]) == 2
    said = capsys.readouterr().err
    assert all(problem in said for problem in shown["problems"])
    assert "did you mean loadBalancerSheddingIntervalMinutes?" in said


def test_check_tells_typos_from_keys_of_pulsar(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Keys of Pulsar that do nothing here are listed, with reasons where there are any, and are
    not called unknown.
    """
    path = tmp_path / "broker.conf"
    path.write_text(
        "managedLedgerDefaultAckQuorum=2\nloadBalancerDebugModeEnabled=true\nwebServicPort=1\n"
    )
    assert main(["config", "check", str(path), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["unknown"] == {"webServicPort": "webServicePort"}
    assert shown["ignored"] == ["managedLedgerDefaultAckQuorum"]
    assert list(shown["withoutEffect"]) == ["loadBalancerDebugModeEnabled"]
    assert main(["config", "check", str(path)]) == 0
    said = capsys.readouterr().out
    for line in ("only Pulsar has them: 1", "without effect: 1", "did you mean webServicePort?"):
        assert line in said, line


def test_missing_file(capsys: pytest.CaptureFixture[str]) -> None:
    """A missing file is an error on standard error, not a traceback."""
    assert main(["config", "check", "/nonexistent/broker.conf"]) == 2
    assert "No such file" in capsys.readouterr().err


def test_broker_refuses_bad_settings(capsys: pytest.CaptureFixture[str]) -> None:
    """A broker with a value out of range does not start and says why."""
    assert main(["broker", "--set", "webServicePort=-1"]) == 2
    assert (
        "webServicePort = '-1': a whole number from 0 to 65535 is allowed"
        in capsys.readouterr().err
    )
    assert main(["broker", "--set", "loadBalancerLoadSheddingStrategy=Nonsense"]) == 2
    assert "ThresholdShedder" in capsys.readouterr().err
