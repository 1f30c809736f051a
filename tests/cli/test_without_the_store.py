"""What commands still tell while the metadata store does not answer."""

from __future__ import annotations

from pathlib import Path

import pytest
from broker.admin.serving import serving
from broker.admin.test_archive import in_folder
from cli.test_admin_command import Shell
from clusters.running import eventually


async def test_settings_and_limits_are_told_as_they_are_in_force(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And that it is not known what is stored."""
    key = "loadBalancerLoadSheddingStrategy"
    async with serving(brokers=2, values=in_folder(tmp_path)) as served:
        shell = Shell(served, capsys)
        assert (await shell.run("settings", "set", key, "AvgShedder"))[0] == 0
        assert await shell.json("settings", "list") == {key: "AvgShedder"}
        for broker in served.brokers:
            broker.store.suspend()
        status, out, _ = await shell.run("settings", "list")
        assert (status, "what is set for all brokers cannot be read" in out) == (0, True)
        assert any(line.split()[:2] == [key, "AvgShedder"] for line in out.splitlines())
        for words in (("status",), ("brokers", "leader")):
            _, out, _ = await shell.run(*words, "--at", "1s")
            assert "recorded when it ends; it may concern this moment" not in out
        for broker in served.brokers:
            broker.store.expire()
        await eventually(
            lambda: shell.run("brokers", "leader", "--at", "1s"),
            lambda answer: "is recorded when it ends; it may concern this moment" in answer[1],
        )
        status, out, _ = await shell.run("limits", "list")
        assert (status, "which limits end by themselves is not known" in out) == (0, True)
