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
