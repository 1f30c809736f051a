"""What is said of brokers whose process is young, and of those that are well without a leader."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from broker.admin.serving import serving
from broker.admin.test_archive import in_folder
from cli.test_admin_command import Shell
from clusters.running import eventually

from loadmanager.cli.admin.client import AdminClient
from loadmanager.cli.admin.starting import YOUNG_MS, Owning, is_young

NOW = 1_000_000
WAITS = "and owns nothing yet; what it owned before is placed once a broker leads"


@pytest.mark.parametrize(
    ("started", "bundles", "text"),
    [
        (1, 3, "it is well; it serves 3 bundles"),
        (1, 0, "it is well; it owns no bundle"),
        (NOW - 3_000, 1, "it was started 3.0 s ago; it serves 1 bundle"),
        (NOW - 3_000, 0, f"it was started 3.0 s ago, {WAITS}"),
        (None, None, "it is well; it serves the bundles that it owns"),
    ],
)
def test_a_broker_that_is_well_while_nobody_leads(
    started: int | None, bundles: int | None, text: str
) -> None:
    """How many bundles it serves, if it says so; a young process says what waits."""
    owning = Owning(
        {} if started is None else {"b1": started}, {} if bundles is None else {"b1": bundles}
    )
    assert owning.text("b1", NOW) == text
    assert [is_young(it, NOW) for it in (0, NOW - YOUNG_MS, NOW)] == [False, False, True]


async def test_brokers_say_what_they_own_and_since_when_they_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each itself."""
    async with serving(2, values=in_folder(tmp_path)) as served:
        shell = Shell(served, capsys)
        topic = "persistent://acme/orders/t"
        await eventually(
            lambda: shell.run("topics", "lookup", topic), lambda answer: answer[0] == 0
        )
        names = [served.broker_id(0), served.broker_id(1)]
        admin = AdminClient(served.url(), timeout_s=60)
        owning = await asyncio.to_thread(Owning.of, admin, names)
        assert sorted(owning.started) == sorted(owning.bundles) == sorted(names)
        assert sum(owning.bundles.values()) >= 1
