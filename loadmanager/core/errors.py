"""The four kinds of trouble.

`OperationalError`: the world misbehaves for now; back off and retry. `ConfigError`: refuse to
start. `BadInputError`: the caller is wrong and is told what is allowed. `CorruptDataError`:
something stored is wrong; that thing is left out, by name, and nothing else. Anything else is a
bug.
"""


class LoadManagerError(Exception):
    """Root of every error that this project raises on purpose."""


class OperationalError(LoadManagerError):
    """The outside world cannot answer now; the same call may succeed later."""


class ConfigError(LoadManagerError):
    """A setting is unusable; the text names key, value and what is allowed."""


class CorruptDataError(LoadManagerError):
    """Stored data cannot be used. The text names where it is stored and what is wrong with it.

    Trying again does not help, and no caller is to blame: whoever reads it leaves it out.
    """


class BadInputError(LoadManagerError):
    """A caller sent something that cannot be accepted; the text says what is allowed."""


class NotFoundError(BadInputError):
    """What the caller names does not exist."""


class ConflictError(BadInputError):
    """The request contradicts the present state (exists already, not empty, changed meanwhile)."""
