"""The three kinds of trouble.

`OperationalError`: the world misbehaves for now; back off and retry. `ConfigError`: refuse to start. `BadInputError`: the caller is at fault and is
told what is allowed. Anything else is a bug and ends the daemon.
"""


class LoadManagerError(Exception):
    """Root of every error that this project raises on purpose."""


class OperationalError(LoadManagerError):
    """The outside world cannot answer now; the same call may succeed later."""


class ConfigError(LoadManagerError):
    """A setting is unusable; the text names key, value and what is allowed."""


class BadInputError(LoadManagerError):
    """A caller sent something that cannot be accepted; the text says what is allowed."""


class NotFoundError(BadInputError):
    """What the caller names does not exist."""


class ConflictError(BadInputError):
    """The request contradicts the present state (exists already, not empty, changed meanwhile)."""
