"""The kinds of errors. Any other exception is a bug.

`OperationalError`: an outside system fails for now; back off and retry. `ConfigError`: refuse to
start. `BadInputError`: tell the caller what is allowed. `CorruptDataError`: leave out the stored
thing that the text names, and nothing else. `NotAuthenticatedError`, `ForbiddenError`: a caller is
unknown, or may not do this.
"""

from __future__ import annotations

from collections.abc import Iterator

SHORT_MAX = 40


class LoadManagerError(Exception):
    """Root of every error that this project raises on purpose."""


class OperationalError(LoadManagerError):
    """The outside world cannot answer now; the same call may succeed later."""


class ConfigError(LoadManagerError):
    """A setting is unusable; the text names key, value and what is allowed."""


class CorruptDataError(LoadManagerError):
    """Stored data cannot be used. The text names where it is stored and what is wrong with it.

    A retry does not help, and no caller caused it: the reader leaves the data out.
    """


class BadInputError(LoadManagerError):
    """A caller sent something that cannot be accepted; the text says what is allowed."""


class NotFoundError(BadInputError):
    """The thing that the caller names does not exist."""


class ConflictError(BadInputError):
    """The request contradicts the present state: exists already, not empty, changed meanwhile."""


class StaleError(ConflictError):
    """The request names a part of something that was divided anew meanwhile; HTTP answers 412."""


class NotAuthenticatedError(LoadManagerError):
    """A caller does not prove who it is. The text has nothing of its credentials."""


class ForbiddenError(LoadManagerError):
    """A caller may not do what it asks for; the text says what that is."""


def said(error: object) -> str:
    """The text of an error, or its type: some errors have no text."""
    return str(error) or type(error).__name__


def leaves(errors: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    """The errors of a group, and of the groups in it."""
    for error in errors.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from leaves(error)
        else:
            yield error


def short(value: object) -> str:
    """The beginning of what it is, for an error: whatever a caller has passed."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - foreign code; or an integer with too many digits
        text = f"a {type(value).__name__}"
    return text if len(text) <= SHORT_MAX else f"{text[: SHORT_MAX - 1]}…"
