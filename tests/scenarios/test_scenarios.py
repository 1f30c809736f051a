"""Golden scenarios: each text file says what the cluster looks like and what `decide --explain`
answers.

`pytest tests/scenarios --rewrite` replaces the explanations by the present ones.

Above the line of dashes: a title, then

- `set` (a setting), `seed`, `cycles`;
- `broker NAME cpu=% MiB=…`: one number a bundle. Also `rate=…` (messages/s of each), `ns=…` (their
  namespace), `direct=%` and `heap=%` (memory), `version=…`, `class=…` (of the load manager). With
  `load=%` it is a report of the extensible manager, with `topics=…`;
- `at CYCLE broker …`: another report in that cycle; `at CYCLE gone NAME…`: brokers that left;
- `also`: JSON merged into every line.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from loadmanager.broker import settings
from loadmanager.engine.strategies.plan_document import PlanShown
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.engine.strategies.splitting.settings import SplitSettings
from loadmanager.lab.deciding import Deciding
from loadmanager.lab.explaining import explain
from loadmanager.lab.lines import decode_line

MIB = 1024 * 1024
DASHES = "-" * 80
HERE = Path(__file__).parent
FILES = sorted(HERE.glob("*.txt"))


class Scenario:
    """A scenario file, read."""

    def __init__(self, text: str) -> None:
        self.head, _, self.golden = text.partition(f"{DASHES}\n")
        self.overrides: list[str] = []
        self.seed = 0
        self.cycles = 1
        self.line: dict[str, Any] = {"brokers": {}}
        self.changes: dict[int, list[list[str]]] = {}
        for row in self.head.splitlines()[1:]:
            word, _, rest = row.partition(" ")
            rest = rest.strip()
            if word == "set":
                self.overrides.append(rest)
            elif word == "seed":
                self.seed = int(rest)
            elif word == "cycles":
                self.cycles = int(rest)
            elif word == "broker":
                self._broker(self.line, *rest.split())
            elif word == "at":
                number, *change = rest.split()
                self.changes.setdefault(int(number), []).append(change)
            elif word == "also":
                self.line.update(json.loads(rest))
            elif word:
                raise ValueError(f"unknown word {word!r}")

    @staticmethod
    def _broker(line: dict[str, Any], name: str, *options: str) -> None:
        given = dict(option.split("=") for option in options)
        loads = [float(text) * MIB for text in given.get("MiB", "").split(",") if text]
        rates = [float(text) for text in given.get("rate", "").split(",") if text] or [
            load / 1000 for load in loads
        ]
        step = 0x100000000 // max(len(loads), 1)
        namespace = given.get("ns", f"t/{name}")
        names = [
            f"{namespace}/0x{i * step:08x}_0x{min((i + 1) * step, 0xFFFFFFFF):08x}"
            for i in range(len(loads))
        ]
        stats = {
            bundle: {"msgThroughputIn": load, "msgRateIn": rate, "topics": 4}
            for bundle, load, rate in zip(names, loads, rates, strict=True)
        }
        totals = {"msgThroughputIn": sum(loads), "msgRateIn": sum(rates)}
        if "load" in given:
            line["brokers"][name] = {
                **totals,
                "topics": int(given.get("topics", 0)),
                "weightedMaxEMA": float(given["load"]) / 100,
                "msgThroughputEMA": sum(loads),
                "updatedAt": 0,
            }
            tops = sorted(names, key=lambda bundle: stats[bundle]["msgThroughputIn"])
            line.setdefault("topBundles", {})[name] = {
                "topBundlesLoadData": [
                    {"bundleName": bundle, "stats": stats[bundle]} for bundle in tops
                ]
            }
        else:
            line["brokers"][name] = {
                **totals,
                "cpu": {"usage": float(given["cpu"]), "limit": 100},
                "directMemory": {"usage": float(given.get("direct", 0)), "limit": 100},
                "memory": {"usage": float(given.get("heap", 0)), "limit": 100},
                "brokerVersionString": given.get("version"),
                "loadManagerClassName": given.get("class"),
                "bundles": names,
                "lastStats": stats,
            }

    def _line(self, number: int) -> dict[str, Any]:
        line = {"now": 60_000 * number, **self.line, "brokers": dict(self.line["brokers"])}
        for word, *rest in self.changes.get(number + 1, []):
            if word == "broker":
                self._broker(line, *rest)
            elif word == "gone":
                for name in rest:
                    del line["brokers"][name]
            else:
                raise ValueError(f"unknown word {word!r}")
        return line

    def explained(self) -> str:
        """The explanation of every cycle, a minute apart, as `decide --explain` prints it."""
        loaded = settings.KEYS.load(None, settings.KEYS.parse_overrides(self.overrides))
        deciding = Deciding(random.Random(self.seed))
        text = ""
        for number in range(self.cycles):
            line = decode_line(json.dumps(self._line(number)).encode())
            strategies = loaded.leaf(StrategySettings)
            plan = deciding.decide(line, strategies, loaded.leaf(SplitSettings))
            text += explain(number + 1, line, PlanShown.of(plan), strategies.weights)
        return text


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_scenario(path: Path, request: pytest.FixtureRequest) -> None:
    """The explanation is the golden one, character for character."""
    scenario = Scenario(path.read_text())
    explained = scenario.explained()
    if request.config.getoption("--rewrite"):
        path.write_text(f"{scenario.head}{DASHES}\n{explained}")
    else:
        assert explained == scenario.golden


def test_there_are_scenarios() -> None:
    """Nothing is compared when the files are gone."""
    assert len(FILES) >= 10
