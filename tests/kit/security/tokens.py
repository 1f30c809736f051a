"""Tokens for tests, and the settings that count them."""

from __future__ import annotations

import base64
import time

from loadmanager.kit.security.settings import PROVIDER, TokenSettings
from loadmanager.kit.security.tokens import TokenVerifier, create_token

SECRET = b"0123456789abcdef0123456789abcdef"
KEY = "data:;base64," + base64.b64encode(SECRET).decode()
ADMIN = "admin"
VALUES = {
    "authenticationEnabled": "true",
    "authenticationProviders": PROVIDER,
    "tokenSecretKey": KEY,
    "authorizationEnabled": "true",
    "superUserRoles": ADMIN,
    "proxyRoles": "proxy",
}


def verifier() -> TokenVerifier:
    """A verifier with `SECRET`."""
    return TokenVerifier(TokenSettings(secret_key=KEY))


def token(role: str, *, lives_s: float | None = None) -> str:
    """A role's token; with `lives_s`, until so long from now."""
    expires_s = None if lives_s is None else time.time() + lives_s
    return create_token(role, SECRET, algorithm="HS256", expires_s=expires_s)
