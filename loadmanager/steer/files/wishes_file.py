"""Implements `leader.ports.wishes.WishBook` in a file, for a daemon that has no metadata store."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

import msgspec

from loadmanager.engine.load.wishes import Cordon, Pause, Pin, Wishes
from loadmanager.engine.plans.order import GoalOrder
from loadmanager.kit.clock import Clock
from loadmanager.kit.errors import ConflictError, NotFoundError, OperationalError
from loadmanager.kit.logger import get_logger
from loadmanager.kit.metadata.store import Check
from loadmanager.steer.files.note import replace_file

WISHES_MAX = 1_000
FILE_BYTES_MAX = 4 << 20

log = get_logger("wishes")


class _Wishes(msgspec.Struct):
    pins: dict[str, Pin] = {}
    cordons: dict[str, Cordon] = {}
    goals: dict[str, GoalOrder] = {}
    pause: Pause | None = None


class WishesFile:
    """The wishes for one cluster; each change is on the disk when it returns."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self._wishes = self._read()

    def _read(self) -> _Wishes:
        """Read the file. A file that cannot be understood is set aside and logged. Raises
        `OperationalError` for a file that cannot be read now.
        """
        try:
            with self._path.open("rb") as file:
                return msgspec.json.decode(file.read(FILE_BYTES_MAX), type=_Wishes)
        except FileNotFoundError:
            return _Wishes()
        except OSError as error:
            raise OperationalError(f"{self._path} cannot be read: {error.strerror}") from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            aside = self._path.with_suffix(".corrupt")
            with contextlib.suppress(OSError):
                self._path.replace(aside)
            log.error(
                "pins, cordons, goals and the pause are lost", aside=str(aside), error=str(error)
            )
            return _Wishes()

    @property
    def pins(self) -> dict[str, Pin]:
        return self._wishes.pins

    @property
    def cordons(self) -> dict[str, Cordon]:
        return self._wishes.cordons

    @property
    def goals(self) -> dict[str, GoalOrder]:
        return self._wishes.goals

    def now(self) -> Wishes:
        now_ms = self._clock.now_ms()
        pins = {bundle: pin for bundle, pin in self.pins.items() if pin.until_ms > now_ms}
        return Wishes(pins, self.cordons)

    def pause(self) -> Pause | None:
        pause = self._wishes.pause
        return pause if pause is not None and pause.until_ms > self._clock.now_ms() else None

    async def pin(self, bundle: str, pin: Pin | None, checks: Sequence[Check]) -> None:
        """See the port. Pins that are over are forgotten."""
        if pin is None and bundle not in self.pins:
            raise NotFoundError(f"{bundle} is not pinned")
        pins = {**self.now().pins, **({} if pin is None else {bundle: pin})}
        if pin is None:
            pins.pop(bundle, None)
        _check_number(len(pins), "bundles are pinned")
        self._write(msgspec.structs.replace(self._wishes, pins=pins))

    async def cordon(self, broker: str, cordon: Cordon | None, checks: Sequence[Check]) -> None:
        if cordon is None and broker not in self.cordons:
            raise NotFoundError(f"{broker} is not cordoned")
        cordons = {**self.cordons, **({} if cordon is None else {broker: cordon})}
        if cordon is None:
            del cordons[broker]
        _check_number(len(cordons), "brokers are cordoned")
        self._write(msgspec.structs.replace(self._wishes, cordons=cordons))

    async def set_goal(
        self, order_id: str, order: GoalOrder | None, checks: Sequence[Check]
    ) -> None:
        goals = {**self.goals, **({} if order is None else {order_id: order})}
        if order is None:
            goals.pop(order_id, None)
        self._write(msgspec.structs.replace(self._wishes, goals=goals))

    async def set_pause(self, pause: Pause | None, checks: Sequence[Check]) -> None:
        self._write(msgspec.structs.replace(self._wishes, pause=pause))

    def _write(self, wishes: _Wishes) -> None:
        value = msgspec.json.encode(wishes)
        if len(value) > FILE_BYTES_MAX:
            raise ConflictError(f"pins, cordons and goals take {len(value)} bytes; end some first")
        replace_file(self._path, value)
        self._wishes = wishes


def _check_number(number: int, what: str) -> None:
    if number > WISHES_MAX:
        raise ConflictError(f"{WISHES_MAX} {what}; end some first")
