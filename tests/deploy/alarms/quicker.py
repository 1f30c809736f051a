"""The rules of deploy/alerts.yml, quicker: for a Prometheus that asks every second."""

from __future__ import annotations

import contextlib
import copy
import json
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from ports import free_ports

from bench.grafana import Prometheus

DEPLOY = Path(__file__).parents[3] / "deploy"
GROUPS: list[dict[str, Any]] = yaml.safe_load((DEPLOY / "alerts.yml").read_text())["groups"]
RULES: dict[str, dict[str, Any]] = {
    rule["alert"]: rule for group in GROUPS for rule in group["rules"]
}
FACTOR = 60
"""A minute of a rule is a second."""
WINDOW_MIN_S, FOR_MIN_S, AGE_MIN_S = 10, 1, 10
"""A window must have some scrapes of a busy machine; an age must be more than one of a broker that
is well.
"""
SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def quicker(rule: dict[str, Any], factor: float = FACTOR) -> dict[str, Any]:
    """A rule with `for`, its windows and the ages that it compares with divided by a factor, but
    not below the least that can be measured.
    """
    made = copy.deepcopy(rule)
    if "for" in made:
        made["for"] = _divided(made["for"], factor, FOR_MIN_S)
    made["expr"] = re.sub(
        r"(?<=\[)\d+[smhd](?=])|(?<=offset )\d+[smhd]",
        lambda match: _divided(match[0], factor, WINDOW_MIN_S),
        made["expr"],
    )
    made["expr"] = re.sub(
        r"(?<=_age_seconds > )\d+",
        lambda match: f"{max(AGE_MIN_S, int(match[0]) / factor):g}",
        made["expr"],
    )
    return made


def _divided(duration: str, factor: float, least_s: float) -> str:
    seconds = int(duration[:-1]) * SECONDS[duration[-1]] / factor
    return f"{max(least_s, round(seconds))}s"


def groups(factor: float = FACTOR) -> list[dict[str, Any]]:
    """All groups of rules, quicker."""
    return [
        {**group, "rules": [quicker(rule, factor) for rule in group["rules"]]} for group in GROUPS
    ]


class Alerts(Prometheus):
    """What fires."""

    def firing(self, state: str = "firing") -> set[str]:
        """The names of the alerts that fire, or wait for the end of their `for`."""
        answer = self.ask("query", query=f'ALERTS{{alertstate="{state}"}}')
        return {each["metric"]["alertname"] for each in answer["result"]}

    def fired(self, lasting_s: float, severity: str) -> set[str]:
        """The names of the alerts that fired at some time of the last seconds."""
        alerts = f'ALERTS{{alertstate="firing",severity="{severity}"}}[{max(1, round(lasting_s))}s]'
        answer = self.ask("query", query=f"count_over_time({alerts})")
        return {each["metric"]["alertname"] for each in answer["result"]}


def scrape(folder: Path, job: str, targets: list[str]) -> None:
    """Have the Prometheus of that folder scrape these targets for a job, from now on."""
    new = folder / f"{job}.new"
    new.write_text(json.dumps([{"targets": targets}]))
    new.rename(folder / f"{job}.targets.json")


@contextlib.contextmanager
def watching(
    folder: Path, rules: list[dict[str, Any]], jobs: dict[str, list[str]]
) -> Iterator[Alerts]:
    """A Prometheus with these groups of rules over the targets of each job."""
    folder.mkdir()
    file, port = folder / "prometheus.yml", free_ports(1)
    # JSON is YAML.
    (folder / "rules.yml").write_text(json.dumps({"groups": rules}))
    scraped = [
        {"job_name": job, "file_sd_configs": [{"files": [str(folder / f"{job}.targets.json")]}]}
        for job in jobs
    ]
    for job, targets in jobs.items():
        scrape(folder, job, targets)
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(folder / "rules.yml")],
        "scrape_configs": scraped,
    }
    file.write_text(json.dumps(config))
    words = [f"--config.file={file}", f"--web.listen-address=127.0.0.1:{port}"]
    words.append(f"--storage.tsdb.path={folder / 'data'}")
    with (
        (folder / "prometheus.log").open("wb") as log,
        subprocess.Popen(["prometheus", *words], stdout=log, stderr=log) as process,
    ):
        try:
            yield Alerts(f"http://127.0.0.1:{port}")
        finally:
            process.send_signal(signal.SIGTERM)
