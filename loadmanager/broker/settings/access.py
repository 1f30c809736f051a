"""Settings of authentication and authorization that a broker cannot start with."""

from __future__ import annotations

from collections.abc import Iterator

from loadmanager.broker.topics.access import AUTHORIZATION, AccessSettings
from loadmanager.kit.errors import ConfigError, NotAuthenticatedError
from loadmanager.kit.security.client import PLUGIN, token_of
from loadmanager.kit.security.identity import Verifier
from loadmanager.kit.security.settings import PROVIDER, BrokerClientSettings, TokenSettings

_CLIENT = ("brokerClientAuthenticationPlugin", "brokerClientAuthenticationParameters")

KeysAndText = tuple[tuple[str, ...], str]
"""The keys, and what is wrong."""


def access_problems(
    access: AccessSettings, tokens: TokenSettings, client: BrokerClientSettings
) -> Iterator[KeysAndText]:
    """Find what is wrong; reads the keys that the settings name."""
    if access.authorization and access.provider != AUTHORIZATION:
        yield ("authorizationProvider",), f"authorizationProvider: {AUTHORIZATION} is allowed"
    if not access.authentication:
        if access.authorization:
            text = "authorizationEnabled needs authenticationEnabled"
            yield ("authorizationEnabled", "authenticationEnabled"), text
        return
    if access.providers != (PROVIDER,):
        text = f"authenticationEnabled needs authenticationProviders={PROVIDER}, and no other"
        yield ("authenticationProviders",), text
    from loadmanager.kit.security.tokens import TokenVerifier  # with much that is imported

    try:
        verifier = TokenVerifier(tokens)
    except ConfigError as error:
        yield ("tokenSecretKey", "tokenPublicKey"), str(error)
        return
    yield from _client_problems(access, verifier, client)


def _client_problems(
    access: AccessSettings, verifier: Verifier, client: BrokerClientSettings
) -> Iterator[KeysAndText]:
    """Brokers ask each other, and must be allowed to."""
    if client.plugin != PLUGIN:
        yield _CLIENT, f"authenticationEnabled needs {_CLIENT[0]}={PLUGIN}: brokers ask each other"
        return
    try:
        role = verifier.verify(token_of(client.parameters)).role
    except (ConfigError, NotAuthenticatedError) as error:
        yield _CLIENT, f"{_CLIENT[1]}: {error}"
        return
    if access.authorization and role not in access.superusers:
        yield (*_CLIENT, "superUserRoles"), f"this broker's role {role} is not in superUserRoles"
