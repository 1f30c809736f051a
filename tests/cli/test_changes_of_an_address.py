"""`loadmanager admin audit --role` and `undo --role` without authentication: by address."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from broker.admin.serving import serving
from broker.admin.test_archive import archive_of, in_folder
from cli.test_admin_command import Shell

from loadmanager.kit.audit import ChangeShown

KEY = "loadBalancerSheddingEnabled"
HERE = ("--since", "1970-01-01", "--role", "127.0.0.1")
ELSEWHERE = ("--since", "1970-01-01", "--role", "192.0.2.1")


@pytest.mark.parametrize("archives", [True, False])
async def test_who_is_told_can_be_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], *, archives: bool
) -> None:
    """By archives and by memories of brokers; another address has changed nothing."""
    async with serving(values=in_folder(tmp_path) if archives else {}) as served:
        shell = Shell(served, capsys)
        assert (await shell.run("settings", "set", KEY, "false"))[0] == 0
        if archives:
            await archive_of(served, 0).settle(60.0)
        (change,) = [
            it
            for it in (await shell.json("audit", *HERE))["changes"]
            if it["words"] == f"set {KEY} to false (was not set)"
        ]
        assert (change["role"], change["address"]) == ("", "127.0.0.1")
        assert (await shell.run("audit", *ELSEWHERE))[1].startswith("no change is known")
        _, out, _ = await shell.run("undo", *HERE, "--json")
        assert change["id"] in [step["id"] for step in json.loads(out)["steps"]]
        status, _, err = await shell.run("undo", *ELSEWHERE)
        assert (status, "no change of an operator since then is known" in err) == (1, True)


def test_an_address_is_no_role_of_those_who_have_one() -> None:
    """What a role changed from an address is that role's alone."""
    change = ChangeShown(
        ts=1, broker="b", role="jane", proxied=None, address="a", over="http", what="", path=None,
        before=None, after=None, note=None,
    )  # fmt: skip
    assert (change.is_by("jane"), change.is_by("a"), change.is_by("")) == (True, False, False)
    change.role = ""
    assert (change.is_by("a"), change.is_by("")) == (True, False)
