"""`loadmanager tokens bootstrap`: what it makes again, and what it refuses. `tests/deploy` runs
clusters with what it makes.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

import jwt
import pytest
from cli.piped import here

from loadmanager.kit.security.authority import read_issued

NAMES = ("broker-1.example.org", "*.example.org", "192.0.2.1", "::1")
FIRST = (*NAMES, "--zookeeper", "zk-1", "--role", "shop", "--days", "30", "--at", "/run/secrets")


def _run(*words: object) -> tuple[int, str, str]:
    done = here("tokens", "bootstrap", *map(str, words))
    return done.returncode, done.stdout, done.stderr


def _files(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a first run makes; tests copy it."""
    folder = tmp_path_factory.mktemp("first") / "secure"
    status, out, err = _run(folder, *FIRST)
    assert status == 0, err
    assert f"made {folder}/authority, " in out
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    """A copy."""
    return shutil.copytree(made, tmp_path / "secure")


def test_all_but_the_authority_is_made_again(folder: Path) -> None:
    """For the same names, servers, roles and days, in the same place, without saying so again."""
    before = _files(folder)
    status, out, err = _run(folder, "--renew")
    assert status == 0, err
    after = _files(folder)
    assert after.keys() == before.keys()
    same = {name for name in after if after[name] == before[name]}
    authority = {f"authority/{name}" for name in ("ca.key", "ca.pem", "private.key", "public.key")}
    copies = {"broker/ca.pem", "monitoring/ca.pem", "zookeeper/ca.pem", "broker/public.key"}
    assert same == authority | copies | {"broker/secure.conf"}
    assert (
        b"loadManagerZooKeeperTlsKeyFilePath=/run/secrets/broker.key" in after["broker/secure.conf"]
    )
    for name, hosts in (("broker/broker.pem", NAMES), ("zookeeper/zookeeper.pem", ("zk-1",))):
        issued = read_issued(after[name])
        assert (issued.hosts, issued.days) == (hosts, 30)
    assert f"brokers: {', '.join(NAMES)}\n" in out
    assert "ZooKeeper: zk-1\nroles: admin, broker, monitoring, shop\n" in out
    assert "end in 30 days" in out


def test_what_is_given_comes_in_addition(folder: Path) -> None:
    """Names, servers, roles; a new time replaces the old one. What ended counts, too."""
    assert (
        _run(folder, "b-2", "--renew", "--role", "app", "--zookeeper", "zk-2", "--days", "2")[0]
        == 0
    )
    assert read_issued((folder / "broker/broker.pem").read_bytes()).hosts == (*NAMES, "b-2")
    servers = read_issued((folder / "zookeeper/zookeeper.pem").read_bytes())
    assert (servers.hosts, servers.days) == (("zk-1", "zk-2"), 2)
    key = (folder / "authority/private.key").read_bytes()
    ended = here(
        *("tokens", "create", "--subject", "old", "--algorithm", "ES256", "--expires", "1s"),
        *("--private-key", f"file://{folder / 'authority/private.key'}"),
    )
    claims = jwt.decode(ended.stdout.strip(), options={"verify_signature": False})
    (folder / "authority/old.token").write_text(ended.stdout)
    assert _run(folder, "--renew")[0] == 0
    for role in ("app", "old", "shop"):
        token = (folder / f"authority/{role}.token").read_text().strip()
        now = jwt.decode(token, options={"verify_signature": False})
        assert (now["sub"], now["exp"] > claims["exp"] + 80_000) == (role, True)
    assert (folder / "authority/private.key").read_bytes() == key


def test_what_is_removed_is_not_made_again(folder: Path) -> None:
    """A role's token; the names of a certificate, which must be given then."""
    (folder / "authority/shop.token").unlink()
    (folder / "broker/broker.pem").unlink()
    status, _, err = _run(folder, "--renew")
    assert (status, "broker.pem, which says for whom" in err) == (1, True), err
    assert _run(folder, "b-9", "--renew")[0] == 0
    assert read_issued((folder / "broker/broker.pem").read_bytes()).hosts == ("b-9",)
    assert not (folder / "authority/shop.token").exists()
    (folder / "zookeeper/zookeeper.pem").unlink()
    status, _, err = _run(folder, "--renew")
    assert (status, "give --zookeeper for each server" in err) == (1, True), err


def test_other_tokens_are_left_as_they_are(folder: Path) -> None:
    """Those of another key, and those whose file does not have their role's name."""
    shop = (folder / "authority/shop.token").read_text()
    for name, text in (("laptop", shop), ("notes", "remember the milk"), ("broker", shop)):
        (folder / f"authority/{name}.token").write_text(text)
    status, out, _ = _run(folder, "--renew")
    assert status == 0
    for name in ("laptop", "broker"):
        assert (folder / f"authority/{name}.token").read_text() == shop
        assert f"says: {folder}/authority/{name}.token" in out
    assert (folder / "authority/notes.token").read_text() == "remember the milk"


@pytest.mark.parametrize(
    "name",
    [
        *(
            "",
            " ",
            "http://broker-1",
            "broker-1:8080",
            "broker 1",
            "a..b",
            "-a",
            "a/b",
            "256.1.1.1",
        ),
        *("*", "*.example", "a.*.org", "a" * 64, "a." * 127 + "ab", "bröker", "a\nb"),
    ],
)
def test_names_that_no_certificate_can_be_for(name: str, tmp_path: Path) -> None:
    """Are refused before anything is made, for brokers and for ZooKeeper."""
    for words in (["--", name], ["b", "--zookeeper", name]):
        status, _, err = _run(tmp_path / "new", *words)
        assert (status, "is neither a name nor an address" in err) == (2, True), err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("role", "said"),
    [
        ("../../evil", "letters, digits"),
        ("a/b", "letters, digits"),
        ("", "letters, digits"),
        ("a\nb", "letters, digits"),
        ("-x", "letters, digits"),
        ("broker", "tokens of their own"),
        ("admin", "tokens of their own"),
        ("monitoring", "tokens of their own"),
    ],
)
def test_roles_that_cannot_name_a_file(role: str, said: str, folder: Path) -> None:
    """Or whose token is another one; at the first run and later."""
    before = _files(folder.parent)
    for words in ([folder.parent / "new", "b"], [folder, "--renew"]):
        status, _, err = _run(*words, f"--role={role}")
        assert (status, said in err) == (2, True), err
    assert _files(folder.parent) == before


@pytest.mark.parametrize("name", ["ca.key", "ca.pem", "private.key", "public.key"])
def test_keys_that_do_not_belong_together(name: str, folder: Path, tmp_path: Path) -> None:
    """Brokers would trust nothing of what is made: nothing is."""
    assert _run(tmp_path / "other", "b")[0] == 0
    shutil.copy(tmp_path / "other/authority" / name, folder / "authority" / name)
    before = _files(folder)
    status, _, err = _run(folder, "--renew")
    assert (status, "from one backup" in err) == (1, True), err
    (folder / "authority" / name).write_text("x")
    assert _run(folder, "--renew")[0] == 1
    (folder / "authority" / name).unlink()
    status, _, err = _run(folder, "--renew")
    assert (status, f"{name} is missing: bring it back" in err) == (1, True), err
    # Nor is the other one of the pair written over when the broker's token is gone, too.
    (folder / "broker/broker.token").unlink()
    status, _, err = _run(folder, "b")
    assert (status, f"{name} is missing" in err) == (1, True), err
    after = _files(folder)
    assert after == {key: before[key] for key in after}


def test_nothing_to_renew(tmp_path: Path) -> None:
    """A folder that was misspelt gets no authority of its own."""
    status, _, err = _run(tmp_path / "secrue", "b", "--renew")
    assert (status, "without --renew all is made" in err) == (1, True), err
    status, _, err = _run(tmp_path / "new")
    assert (status, "Missing argument 'NAME'" in err) == (2, True), err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("place", ["", "authority", "broker", "monitoring", "zookeeper"])
@pytest.mark.parametrize("mode", [0o777, 0o770, 0o702])
def test_a_folder_that_others_may_write_to(place: str, mode: int, folder: Path) -> None:
    """Somebody else may have put keys there. Others may read it: its files have modes of their
    own.
    """
    (folder / place).chmod(mode)
    before = _files(folder)
    status, _, err = _run(folder, "--renew")
    assert (status, f"its mode is {mode:04o}" in err) == (1, True), err
    assert _files(folder) == before
    (folder / place).chmod(0o755)
    assert _run(folder, "--renew")[0] == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="this is not root, who alone gives files away")
@pytest.mark.parametrize("place", ["", "authority"])
def test_a_folder_of_somebody_else(place: str, folder: Path) -> None:
    """Has somebody else's keys."""
    os.chown(folder / place, 12_345, -1)
    status, _, err = _run(folder, "--renew")
    assert (status, "it belongs to user 12345" in err) == (1, True), err


def test_only_what_prometheus_needs_is_opened(folder: Path) -> None:
    """What else is in its folder keeps its mode."""
    (folder / "monitoring/mine").write_text("x")
    (folder / "monitoring/mine").chmod(0o600)
    assert _run(folder, "--renew")[0] == 0
    modes = {path.name: path.stat().st_mode & 0o777 for path in (folder / "monitoring").iterdir()}
    assert modes == {"mine": 0o600, "ca.pem": 0o644, "monitoring.token": 0o644}


def test_two_at_once(tmp_path: Path) -> None:
    """One makes all; the other makes nothing, and says why."""
    words = [sys.executable, "-m", "loadmanager", "tokens", "bootstrap", str(tmp_path / "new"), "b"]
    runs = [
        subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    ended = [(run.communicate(timeout=120), run.returncode) for run in runs]
    assert sum("made " in out for (out, _), _ in ended) == 1
    for (out, err), status in ended:
        refused = "another `tokens bootstrap`" in err or "another run has made all" in err
        assert (status == 1) is refused
        assert refused or "made " in out or "nothing was changed" in out
    assert _run(tmp_path / "new", "--renew")[0] == 0


def test_a_folder_in_which_another_run_is(folder: Path) -> None:
    """Is left alone."""
    before = _files(folder)
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        status, _, err = _run(folder, "--renew")
    finally:
        os.close(descriptor)
    assert (status, "another `tokens bootstrap` is making its files" in err) == (1, True), err
    assert _files(folder) == before


def test_what_an_earlier_run_left_is_no_way_out(folder: Path, tmp_path: Path) -> None:
    """A file that was not finished, or a link in its place."""
    (tmp_path / "elsewhere").write_text("x")
    (folder / "broker/broker.key.new").symlink_to(tmp_path / "elsewhere")
    (folder / "broker/broker.pem.new").write_text("half")
    assert _run(folder, "--renew")[0] == 0
    assert (tmp_path / "elsewhere").read_text() == "x"
    assert (tmp_path / "elsewhere").stat().st_mode & 0o777 != 0o600
    assert not list(folder.rglob("*.new"))


@pytest.mark.parametrize(
    "name",
    ["authority/ca.pem", "authority/shop.token", "broker/broker.pem", "broker/secure.conf"],
)
def test_what_is_no_file_of_this_kind(name: str, folder: Path) -> None:
    """A pipe is not waited for, and a file without end is not read."""
    (folder / name).unlink()
    os.mkfifo(folder / name)
    status, _, err = _run(folder, "--renew")
    assert (status, "not a regular file" in err) == (1, True), err
    (folder / name).unlink()
    with (folder / name).open("wb") as file:
        file.truncate(1 << 40)
    status, _, err = _run(folder, "--renew")
    assert (status, "has more than 1000000 bytes" in err) == (1, True), err


@pytest.mark.parametrize("at", ["/run/a\nauthenticationEnabled=false", "/run/\t", "a\\nb"])
def test_places_that_would_be_other_settings(at: str, tmp_path: Path) -> None:
    """A line of secure.conf is one setting."""
    for words in ([tmp_path / "new", "b", "--at", at], [f"{tmp_path}/{at}", "b"]):
        status, _, err = _run(*words)
        assert (status, "no control characters" in err) == (2, True), err
    assert not list(tmp_path.iterdir())


def test_a_place_that_others_may_exchange(folder: Path) -> None:
    """Is warned of; one like /tmp, where they may not, is fine."""
    folder.parent.chmod(0o777)
    status, _, err = _run(folder, "--renew")
    assert (status, f"warning: the mode of {folder.parent} is 0777" in err) == (0, True), err
    folder.parent.chmod(0o1777)
    status, _, err = _run(folder, "--renew")
    assert (status, "the mode of" in err) == (0, False), err


def test_days_do_not_go_with_a_certificate(folder: Path) -> None:
    """Names are given anew after broker.pem was removed, not the days; without any certificate
    nobody guesses them.
    """
    (folder / "broker/broker.pem").unlink()
    status, out, err = _run(folder, "b-9", "--renew")
    assert (status, "end in 30 days" in out) == (0, True), err
    for name in ("broker/broker.pem", "zookeeper/zookeeper.pem"):
        (folder / name).unlink()
    words = [folder, "b-9", "--zookeeper", "zk-9", "--renew"]
    status, _, err = _run(*words)
    assert (status, "give --days, too" in err) == (1, True), err
    assert "end in 7 days" in _run(*words, "--days", "7")[1]


def test_whoever_was_let_to_read_a_file_still_may(folder: Path) -> None:
    """ZooKeeper, say, whose servers run as another user."""
    (folder / "zookeeper/zookeeper.pem").chmod(0o644)
    (folder / "broker/broker.key").chmod(0o640)
    before = _files(folder)
    assert _run(folder, "--renew")[0] == 0
    for name, mode in (("zookeeper/zookeeper.pem", 0o644), ("broker/broker.key", 0o640)):
        assert (folder / name).read_bytes() != before[name]
        assert (folder / name).stat().st_mode & 0o777 == mode
