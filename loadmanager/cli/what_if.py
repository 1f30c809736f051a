"""`loadmanager what-if`: recorded days with other brokers or other traffic."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click
import msgspec

from loadmanager.broker import settings
from loadmanager.cli.changes import change_options
from loadmanager.cli.options import URL, Command, config, tell_left_out
from loadmanager.cli.recorded import RecordedDay, reader, recorded, tried_settings
from loadmanager.cli.terminal import Shown, show, table
from loadmanager.cli.what_if_page import PageSection, written
from loadmanager.engine.load.price import PriceSettings
from loadmanager.kit.errors import BadInputError
from loadmanager.kit.settings import Settings
from loadmanager.lab.calibration import TRIED, Calibration, believed, calibration
from loadmanager.lab.closed_loop import run
from loadmanager.lab.days import DayOfLoad
from loadmanager.lab.fitted import EXPLAINED_LEAST, explained_text
from loadmanager.lab.measures import WARM_UP_MINUTES
from loadmanager.lab.what_if import (
    HIGHEST_PERCENTILE,
    POINTS_OFF_MAX,
    SPREAD_POINTS,
    WhatIf,
    WhatIfOutcome,
    fewest,
    nobody_knows,
    outcome,
)

EXAMPLES = """examples:
  loadmanager what-if data/history --date 2026-11-20 --without 10.0.0.5:8080
  loadmanager what-if data/history --times 1.5 --add 2
  loadmanager what-if data/history --tenant acme=2 --fewest --price 0.4
  loadmanager what-if data/history --tenant acme --times 2
  loadmanager what-if data/history --without-zone eu-1a --page october.html
  loadmanager what-if data/history --add 1 --try BalancedShedder+BalancedPlacement --json

Of several days, a month say, it also says what they come to together. The recorded settings decide,
those of --config and --set where the history has none, or those of --try. Without --price,
loadManagerBrokerHourPrice is the price.
`loadmanager admin what-if` asks the same of the last hour of a running cluster.
"""
LEGEND = f"""The first row is the replay of what was there, the second that of the change, which
comes after {WARM_UP_MINUTES} minutes; with the fewest brokers it was so from the beginning.
mean: usage of all brokers; most: that of the most used one, which was more in 5 % of the minutes
hot min: minutes of brokers above 85 %; undone: work that brokers could not do, in minutes of one
  broker; spread: standard deviation of usage, in points
settle min: until the spread is usual again"""
RATIOS = (
    "x 0.50: in this figure, the replay of what was there is far from what happened; so only the "
    "ratio to that replay is told, here half of it"
)
NOT_SAID = "whether these brokers are enough, the replay does not say: "
MODEL_OFF = NOT_SAID + "too little is known of what traffic costs these brokers"
REPLAY_OFF = (
    f"{NOT_SAID}by the settings in force alone, the time would have gone otherwise than it did "
    "(did somebody move bundles, pause balancing or change settings?)"
)
HEADERS = ("", "brokers", "mean %", "most %", "hot min", "undone", "spread", "moves", "settle min")
HOURS_OF_A_DAY = 24
Row = tuple[str | float | int | None, ...]


@click.command(cls=Command, epilog=EXAMPLES)
@click.argument("history", type=URL)
@click.option("--date", "dates", multiple=True, metavar="YYYY-MM-DD", help="this day; default: all")
@click.option("--cluster", help="which cluster, when the history has several")
@config()
@change_options
@click.option("--try", "tried", metavar="STRATEGY", help="with other settings, as in replay")
@click.option("--json", "as_json", is_flag=True, help="all figures, for programs")
@click.option("--page", type=click.Path(path_type=Path), metavar="FILE", help="write an HTML page")
def command(
    config: Path | None,
    overrides: dict[str, str],
    *,
    history: str,
    dates: Sequence[str],
    cluster: str | None,
    tried: str | None,
    as_json: bool,
    page: Path | None,
    fewest: bool,
    price: float | None,
    **change: Any,
) -> int:
    """Say what recorded days would have been with other brokers or other traffic.

    The day is replayed as it was and with the change: usage, overload, moves; and whether the
    brokers would have been enough.
    """
    base = settings.KEYS.load(config, overrides)
    price = price_in(base) if price is None else price
    tell_left_out()
    others = tried_settings(base, tried, history) if tried is not None else None
    for date in dates:
        reader().start_ms_of(date)
    wanted = wanted_change(with_fewest=fewest, **change)
    answers = {}
    for date, day in recorded(history, cluster, dates, base).items():
        used = day if others is None else RecordedDay(day.recording, others, TRIED)
        answers[date] = WhatIfAnswer(used, wanted, with_fewest=fewest)
    documents = {date: answer.document(price) for date, answer in answers.items()}
    together = _together(documents, price) if len(answers) > 1 else {}
    all_rows = [row for answer in answers.values() for row in answer.rows()]
    if page is not None:
        sections = [
            PageSection(date, (date, *HEADERS[1:]), answer.rows(), list(answer.sentences(price)))
            for date, answer in answers.items()
        ]
        title = f"What if: {text_of(wanted)}"
        notes = "\n".join(legend(all_rows))
        written(page, title, _together_text(together), sections, notes=notes)
    if as_json:
        print(msgspec.json.encode(documents | ({"all": together} if together else {})).decode())
    else:
        for date, answer in answers.items():
            show(*answer.shown(date, price))
        show(_together_text(together), legend(all_rows))
        if page is not None:
            print(f"written: {page}")
    return 0


def legend(rows: Iterable[Row]) -> list[str]:
    """What the columns of these rows are."""
    ratios = any(
        isinstance(cell, str) and cell.startswith("x ") for row in rows for cell in row[1:]
    )
    return [*LEGEND.splitlines(), *([RATIOS] if ratios else [])]


def _together(
    documents: Mapping[str, Mapping[str, Any]], price: float | None
) -> dict[str, dict[str, Any]]:
    """What several days come to, for programs."""
    sums: dict[str, dict[str, Any]] = {}
    for name in ("asItWas", "changed", "fewest"):
        days = [document[name] for document in documents.values() if document[name] is not None]
        if not days:
            continue
        sums[name] = {
            "days": len(days),
            "enough": sum(bool(day["enough"]) for day in days),
            "not_said": sum(day["enough"] is None for day in days),
            "brokers": max(day["brokers"] for day in days),
            "highest": max(day["highest"] for day in days),
            "hot_minutes": sum(day["measures"]["hot_minutes"] for day in days),
            "undone": sum(day["undone"] for day in days),
            "moves": sum(day["measures"]["moves"] for day in days),
        }
        if price is not None:
            sums[name]["cost"] = sum(day["cost_a_day"] for day in days)
    return sums


def _together_text(together: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The same for people; nothing for one day."""
    names = {"asItWas": "as it was", "changed": "with the change", "fewest": "with the fewest"}
    lines = []
    for name, sums in together.items():
        unsaid = f" (not said of {sums['not_said']})" if sums["not_said"] else ""
        cost = f", {sums['cost']:.2f} in all" if "cost" in sums else ""
        lines.append(
            f"{sums['days']} days {names[name]}: enough on {sums['enough']}{unsaid}, at most "
            f"{_brokers(sums['brokers'])}, the most used one at {sums['highest']:.0f} %, "
            f"{sums['hot_minutes']} minutes above 85 %, {sums['undone']:.1f} undone, "
            f"{sums['moves']} moves{cost}"
        )
    return lines


def price_in(configured: Settings) -> float | None:
    """What a broker costs an hour by these settings; None: they do not say."""
    return configured.leaf(PriceSettings).broker_hour or None


def wanted_change(*, with_fewest: bool, **change: Any) -> WhatIf:
    """The change that the options name. Raises `BadInputError` for none."""
    tenants: Mapping[str, float | None] = change.get("tenants", {})
    if None in tenants.values():  # --times is of these
        times = change["times"]
        if times == 1.0:
            alone = next(name for name, own in tenants.items() if own is None)
            raise BadInputError(f"{alone}: TENANT=TIMES is expected, such as acme=2, or --times")
        of_each = {name: times if own is None else own for name, own in tenants.items()}
        change = {**change, "tenants": of_each, "times": 1.0}
    wanted = WhatIf(**change)
    if wanted == WhatIf() and not with_fewest:
        raise BadInputError(
            "nothing is different: give --without, --without-zone, --add, --times, "
            "--tenant or --fewest"
        )
    return wanted


class WhatIfAnswer:
    """What a change of a recorded day comes to; `present`: of one load that counts for a day, in
    which nothing happened that a replay could be compared with. `reported`: the mean usage of the
    brokers by their last reports, in percent, if the day shall be like the present. `gone`:
    brokers that are not there any more, and do not count with the change.
    """

    def __init__(
        self,
        day: RecordedDay,
        change: WhatIf,
        *,
        with_fewest: bool,
        present: bool = False,
        reported: float | None = None,
        gone: Collection[str] = (),
    ) -> None:
        self._present, self._reported = present, reported
        self._change, recording, in_force = change, day.recording, day.in_force
        if recording.fit.costs.mean <= 0:
            raise BadInputError(
                "this day does not tell what traffic costs a broker: usage does not follow it, so "
                "nobody knows whether brokers would be enough"
            )

        def play(lived: DayOfLoad) -> WhatIfOutcome:
            return outcome(run(lived, in_force))

        more = sorted({*gone} & recording.day.cores.keys() - {*change.without})
        counted = replace(change, without=(*change.without, *more))
        changed = counted.of(recording.day)
        self.was = play(recording.day)
        self.changed = play(changed)
        self._calibration = calibration(recording, self.was.measures, day.used)
        self._lived = outcome(recording.modelled)
        self._fit = recording.fit
        self._with_fewest = with_fewest and not self._far_off
        self.fewest = fewest(recording.day, counted, play) if self._with_fewest else None

    @property
    def _far_off(self) -> bool:
        if self._present:
            return self._model_off or bool(self._reports_off)
        unknown = nobody_knows(self._calibration, self._lived, self.was)
        return self._model_off or self._fit.says_little or unknown

    @property
    def _model_off(self) -> bool:
        return 100 * self._calibration.error > POINTS_OFF_MAX

    @property
    def _reports_off(self) -> str:
        """That brokers use something else now; empty if they use the same, or nobody knows."""
        reported, was = self._reported, self.was.mean
        error = max(100 * self._calibration.error, SPREAD_POINTS)
        if reported is None or abs(reported - was) <= error:
            return ""
        return (
            f"the brokers use {reported:.1f} % on the mean by their last reports, and {was:.1f} % "
            "in the replay as it was, which is not like the present; ask again in some minutes"
        )

    def _certainty(self) -> str:
        """How far the replay is to be believed."""
        if not self._present:
            return self._calibration.text()
        text = (
            "one load stands for all this time, and the model is made of it: how far off it is "
            "with another load is not known"
        )
        if not self._model_off:
            return text
        return f"{text}; with this one it is {100 * self._calibration.error:.1f} points off"

    def shown(self, title: str, price: float | None) -> Iterator[Shown]:
        """For people."""
        if self.has_figures:
            yield table((title, *HEADERS[1:]), self.rows())
        else:
            yield [f"{title}: no figures of a replay, for they would say nothing"]
        yield list(self.sentences(price))

    @property
    def has_figures(self) -> bool:
        """False for one load that the model does not explain, or that is not the present one."""
        return not (self._present and self._far_off)

    def rows(self) -> list[Row]:
        """The figures in the order of `HEADERS`: as it was, with the change, with the fewest."""
        rows = [("as it was", self.was), (text_of(self._change), self.changed)]
        if self.fewest is not None:
            rows.append((f"the same with {_brokers(self.fewest[0])}", self.fewest[1]))
        compared = {} if self._present else {"": self._calibration}
        return [_row(name, each, compared) for name, each in rows]

    def sentences(self, price: float | None) -> Iterator[str]:
        if self._far_off:
            yield self._why_not()
            if not self._present:
                yield (
                    f"the most used broker was at {self._lived.highest:.0f} % by the model, and at "
                    f"{self.was.highest:.0f} % in the replay"
                )
            yield self._certainty()
            return
        yield _verdict(self.changed)
        if self._with_fewest:
            yield self._fewest_text()
        if price is not None:
            yield from self._prices(price)
        yield self._certainty()
        if self._reports_off:
            yield self._reports_off

    def _why_not(self) -> str:
        """Why nobody knows whether the brokers are enough."""
        if self._model_off:
            return MODEL_OFF
        if self._present:
            return f"{NOT_SAID}{self._reports_off}"
        if self._fit.says_little:
            part = explained_text(self._fit.explained)
            return f"{NOT_SAID}{part}, and {EXPLAINED_LEAST:.0%} is the least; ask a busier day"
        return REPLAY_OFF

    def _fewest_text(self) -> str:
        if self.fewest is None:
            return "no number of brokers that was tried is enough: single bundles are too busy"
        count = self.fewest[0]
        return f"{_brokers(count)} {_are(count)} the fewest that {_are(count)} enough"

    def _prices(self, price: float) -> Iterator[str]:
        counts = {"as it was": self.was.brokers, "with the change": self.changed.brokers}
        if self.fewest is not None:
            counts["the fewest"] = self.fewest[0]
        for name, count in counts.items():
            cost = "costs" if count == 1 else "cost"
            yield f"{name}: {_brokers(count)} {cost} {count * price * HOURS_OF_A_DAY:.2f} a day"

    def document(self, price: float | None) -> Mapping[str, Any]:
        """For programs."""
        return {
            "asItWas": self._of(self.was, price),
            "changed": self._of(self.changed, price),
            "fewest": None if self.fewest is None else self._of(self.fewest[1], price),
            "modelError": None if self._present else self._calibration.error,
            "explained": self._fit.explained,
            "off": None if self._present else self._calibration.off,
            "refused": [] if self._present else self._calibration.refused,
            "reportedMean": self._reported,
            "farOff": self._far_off,
        }

    def _of(self, each: WhatIfOutcome, price: float | None) -> dict[str, Any]:
        enough = None if self._far_off else each.enough
        document: dict[str, Any] = {**asdict(each), "enough": enough}
        if price is not None:
            document["cost_a_day"] = each.brokers * price * HOURS_OF_A_DAY
        return document


def text_of(change: WhatIf) -> str:
    """A change in words."""
    words = [f"without {name}" for name in (*change.without, *change.zones)]
    words += [f"{change.added} more"] if change.added else []
    words += [f"{tenant} × {times:g}" for tenant, times in sorted(change.tenants.items())]
    words += [f"traffic × {change.times:g}"] if change.times != 1 else []
    return ", ".join(words) or "no change"


def _brokers(count: int) -> str:
    return f"{count} broker{'' if count == 1 else 's'}"


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def _row(name: str, each: WhatIfOutcome, compared: Mapping[str, Calibration]) -> Row:
    measures = each.measures
    names = ("hot_minutes", "spread", "moves")
    shown = believed({name: getattr(measures, name) for name in names}, compared)
    return (
        *(name, each.brokers, each.mean, each.highest, shown["hot_minutes"], each.undone),
        *(shown["spread"], shown["moves"], measures.settle_minutes),
    )


def _verdict(changed: WhatIfOutcome) -> str:
    enough = f"none is above 85 % in {HIGHEST_PERCENTILE:g} % of the minutes"
    if changed.enough:
        return f"{_brokers(changed.brokers)} {_are(changed.brokers)} enough: {enough}"
    undone = changed.undone
    left = f", work of {undone:.1f} broker-minutes not done" if undone >= 0.05 else ""
    return (
        f"{_brokers(changed.brokers)} {_are(changed.brokers)} NOT enough: "
        f"{changed.measures.hot_minutes} broker-minutes above 85 %{left}; brokers are enough if "
        f"{enough}"
    )
