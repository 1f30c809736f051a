"""The check that a port is free."""

from __future__ import annotations

import socket

import pytest

from loadmanager.kit.errors import OperationalError
from loadmanager.kit.free_port import family_of, require_free_port


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_a_port_in_use_is_refused_and_a_free_one_is_not(host: str) -> None:
    """Of either family."""
    with socket.create_server((host, 0), family=family_of(host)) as server:
        port = server.getsockname()[1]
        with pytest.raises(OperationalError, match="in use; choose another"):
            require_free_port(host, port, "choose another")
    require_free_port(host, port, "choose another")


@pytest.mark.parametrize(
    ("host", "said"),
    [
        ("192.0.2.1", "192.0.2.1 is no address of this machine"),
        ("2001:db8::1", "2001:db8::1 is no address of this machine"),
        ("no.such.host.invalid", "no.such.host.invalid is no address, and no name"),
    ],
)
def test_a_wrong_address_is_not_said_to_be_a_port_in_use(host: str, said: str) -> None:
    """Another port would not help."""
    with pytest.raises(OperationalError) as refused:
        require_free_port(host, 0, "choose another")
    assert str(refused.value).startswith(said)
    assert "choose another" not in str(refused.value)
