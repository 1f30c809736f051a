"""Proves to others who this broker is."""

from __future__ import annotations

from loadmanager.kit.errors import ConfigError, OperationalError
from loadmanager.kit.security.identity import TOKEN_BYTES_MAX
from loadmanager.kit.security.reading import read_file
from loadmanager.kit.security.settings import BrokerClientSettings

PLUGIN = "org.apache.pulsar.client.impl.auth.AuthenticationToken"


def token_of(parameters: str) -> str:
    """The token that Pulsar's parameters name: `token:…` or `file:///path`.

    Raises `ConfigError`.
    """
    kind, _, rest = parameters.partition(":")
    if kind == "token":
        return rest
    if kind == "file":
        path = rest.removeprefix("//")
        try:
            return read_file(path, TOKEN_BYTES_MAX).decode().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"the token in {path} cannot be read: {error}") from None
    raise ConfigError("brokerClientAuthenticationParameters: token:… or file:///path is expected")


class BrokerCredentials:
    """The headers of requests to other brokers. A file is read again for each request."""

    def __init__(self, settings: BrokerClientSettings) -> None:
        self._settings = settings

    def headers(self) -> dict[str, str]:
        """Raises `OperationalError` when the token cannot be read now."""
        if not self._settings.plugin:
            return {}
        try:
            return {"Authorization": f"Bearer {token_of(self._settings.parameters)}"}
        except ConfigError as error:
            raise OperationalError(str(error)) from None
