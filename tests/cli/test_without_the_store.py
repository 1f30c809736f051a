"""What commands still tell while the metadata store does not answer."""

from __future__ import annotations

import pytest
from broker.admin.serving import serving
from cli.test_admin_command import Shell


async def test_settings_and_limits_are_told_as_they_are_in_force(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """And that it is not known what is stored."""
    key = "loadBalancerLoadSheddingStrategy"
    async with serving(brokers=2) as served:
        shell = Shell(served, capsys)
        assert (await shell.run("settings", "set", key, "AvgShedder"))[0] == 0
        assert await shell.json("settings", "list") == {key: "AvgShedder"}
        for broker in served.brokers:
            broker.store.suspend()
        status, out, _ = await shell.run("settings", "list")
        assert (status, "what is set for all brokers cannot be read" in out) == (0, True)
        assert any(line.split()[:2] == [key, "AvgShedder"] for line in out.splitlines())
        status, out, _ = await shell.run("limits", "list")
        assert (status, "which limits end by themselves is not known" in out) == (0, True)
