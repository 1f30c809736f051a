"""Alerts that fire when they should and not otherwise: each has a cause, and is fired
and resolved on a live cluster (`make test-deploy`, `make test-alerts`).
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from deploy.alarms.causes import CAUSES
from deploy.alarms.quicker import RULES, groups, quicker
from deploy.alarms.running import Result

from bench import alerts


def test_each_alert_has_a_cause() -> None:
    """One."""
    assert sorted(name for cause in CAUSES for name in cause.alerts) == sorted(RULES)


def test_quicker_rules() -> None:
    """`for`, windows and ages are divided, and nothing else."""
    rule = {
        "alert": "A",
        "expr": 'increase(a_total{x="5m"}[30m]) > 5 and b_age_seconds > 1200 and c > 120',
        "for": "2h",
    }
    assert quicker(rule, 60) == {
        "alert": "A",
        "expr": 'increase(a_total{x="5m"}[30s]) > 5 and b_age_seconds > 20 and c > 120',
        "for": "120s",
    }
    assert quicker({"alert": "A", "expr": "rate(a[1m]) > 0", "for": "30s"}, 60) == {
        "alert": "A",
        "expr": "rate(a[10s]) > 0",
        "for": "1s",
    }


def test_what_cannot_be_shown_is_said_and_fails(capsys: pytest.CaptureFixture[str]) -> None:
    """Unless it is allowed, with the reason; what did not fire fails in any case."""
    first, second = CAUSES[:2]
    times = dict.fromkeys(first.alerts, 1.0)
    good, unable = Result(first, times, times), Result(second, unable="needs root")
    why = dict.fromkeys(second.alerts, "no root in this job")
    assert alerts.report([good], {})
    assert not alerts.report([good, unable], {})
    assert f"  not shown: {second.alerts[0]} (needs root)" in capsys.readouterr().out
    assert alerts.report([good, unable], why)
    told = capsys.readouterr().out
    assert f"{len(first.alerts)} alerts fired and resolved, {len(second.alerts)} were not" in told
    assert "(needs root; allowed: no root in this job)" in told
    assert not alerts.report([Result(second)], why)
    for wrong in ("Nothing=because", f"{second.alerts[0]}=", second.alerts[0]):
        with pytest.raises(SystemExit, match="2"):
            alerts.main(["--allow", wrong])


@pytest.mark.skipif(shutil.which("promtool") is None, reason="Prometheus is not installed")
def test_quicker_rules_are_rules(tmp_path: Path) -> None:
    """Prometheus takes all of them."""
    file = tmp_path / "rules.yml"
    file.write_text(json.dumps({"groups": groups()}))
    done = subprocess.run(
        ["promtool", "check", "rules", file], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"SUCCESS: {len(RULES)} rules found" in done.stdout


@pytest.mark.deploy
@pytest.mark.timeout(3600)
@pytest.mark.skipif(shutil.which("prometheus") is None, reason="Prometheus is not installed")
def test_alerts_on_a_live_cluster(capsys: pytest.CaptureFixture[str]) -> None:
    """Each fires after its cause and resolves without it; none pages on a cluster that is well,
    nor through a rolling restart.
    """
    status = alerts.main([])
    with capsys.disabled():
        print("\n" + capsys.readouterr().out)
    assert status == 0
