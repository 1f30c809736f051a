"""`loadmanager tokens`, as an operator calls it."""

from __future__ import annotations

from pathlib import Path

import jwt
import pytest
from cli.piped import here


def _run(*words: str, text: str = "") -> tuple[int, str, str]:
    """Exit status, standard output, standard error."""
    done = here("tokens", *words, lines=[text] if text else [])
    return done.returncode, done.stdout, done.stderr


def _made(folder: Path, *words: str) -> str:
    """A token for a role, with a new secret key in a file."""
    key = folder / "secret.key"
    if not key.exists():
        assert _run("create-key", str(key))[0] == 0
        assert key.stat().st_mode & 0o077 == 0
    status, out, err = _run("create", "--secret-key", f"file://{key}", *words)
    assert status == 0, err
    return out.strip()


def test_a_token_is_what_a_broker_takes(tmp_path: Path) -> None:
    """Role and end are told; the token may come on standard input, unseen by other users."""
    token = _made(tmp_path, "--subject", "admin", "--expires", "30d")
    check = ("validate", "--secret-key", f"file://{tmp_path}/secret.key")
    status, out, _ = _run(*check, token)
    assert (status, out.startswith("role admin, expires 20")) == (0, True)
    assert _run(*check, "-", text=f"{token}\n")[:2] == (0, out)
    assert _run(*check, "-", text="")[0] == 1
    other = token.rpartition(".")[0] + "." + "A" * 43
    status, _, err = _run(*check, other)
    assert (status, "Signature verification failed" in err) == (1, True), err


def test_a_pair_of_keys(tmp_path: Path) -> None:
    """The private key signs, the public one checks."""
    private, public = tmp_path / "private.key", tmp_path / "public.key"
    made = _run("create-key", str(private), str(public), "--algorithm", "ES256")
    assert made[0] == 0, made
    key = ("--private-key", f"file://{private}", "--algorithm", "ES256")
    signed = _run("create", "--subject", "app", *key)
    check = ("validate", "--public-key", f"file://{public}", "--algorithm", "ES256")
    made_id = jwt.decode(signed[1].strip(), options={"verify_signature": False})["jti"]
    shown = f"role app, expires never, id {made_id}\n"
    assert _run(*check, signed[1].strip())[:2] == (0, shown)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--expires", "0s"), "a number and s, m, h"),
        (("--expires", "soon"), "a number and s, m, h"),
        (("--private-key", "file:///nowhere"), "one of --secret-key and --private-key"),
    ],
)
def test_what_cannot_be_made(tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    """Said in a sentence, with status 2."""
    _made(tmp_path, "--subject", "x")
    key = f"file://{tmp_path}/secret.key"
    status, _, err = _run("create", "--subject", "a", "--secret-key", key, *words)
    assert (status, said in err) == (2, True), err


def test_no_key_is_overwritten(tmp_path: Path) -> None:
    """A lost key would end every token."""
    _made(tmp_path, "--subject", "x")
    before = (tmp_path / "secret.key").read_bytes()
    status, _, err = _run("create-key", str(tmp_path / "secret.key"))
    assert (status, "exists" in err) == (1, True)
    assert (tmp_path / "secret.key").read_bytes() == before
