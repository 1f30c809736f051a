"""What a service must be, looked at before its first hook is called."""

from __future__ import annotations

import inspect

from loadmanager.kit.errors import BadInputError

NEEDED = ("open", "close")
AWAITED = (*NEEDED, "prepare", "follow")
CALLED = ("cost", "load")


def check_service(service: object) -> None:
    """Raise `BadInputError` if a hook is missing, or is not called as it must be: a misspelled
    `close` would show at the first move, when there is something to lose.
    """
    if isinstance(service, type):
        raise BadInputError(f"a service is an object, not the class {service.__name__}: call it")
    kind = type(service).__name__
    for name in (*AWAITED, *CALLED):
        hook = getattr(service, name, None)
        if hook is None and name not in NEEDED:
            continue
        if not callable(hook):
            raise BadInputError(f"the service {kind} has no {name}: open and close are needed")
        if _is_async(hook) != (name in AWAITED):
            form = f"async def {name}" if name in AWAITED else f"def {name}, without async"
            raise BadInputError(f"{name} of the service {kind} must be `{form}`")


def _is_async(hook: object) -> bool:
    """Objects and mocks that are called say it of their `__call__`."""
    return inspect.iscoroutinefunction(hook) or inspect.iscoroutinefunction(
        getattr(type(hook), "__call__", None)  # noqa: B004
    )
