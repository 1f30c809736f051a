"""A broker that clients reach over TLS, and that asks them who they are."""

from __future__ import annotations

from pathlib import Path

from clusters.processes import NAMESPACE, Fleet
from kit.security.certificates import Authority
from kit.security.tokens import ADMIN, VALUES, token
from ports import free_ports

TOPIC = f"persistent://{NAMESPACE}/orders"


class Secured(Fleet):
    """One broker; the role `writer` may produce to `NAMESPACE`, `reader` may consume."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, brokers=1, bundles=1, session_s=30.0)
        self.headers = {"Authorization": f"Bearer {token(ADMIN)}"}
        self.authority = Authority(folder / "tls")
        self.tls_port = free_ports(2)

    @property
    def url(self) -> str:
        """The URL of the binary protocol over TLS."""
        return f"pulsar+ssl://127.0.0.1:{self.tls_port}"

    @property
    def web_url(self) -> str:
        """The URL of the HTTP API over TLS."""
        return f"https://127.0.0.1:{self.tls_port + 1}"

    def settings(self, index: int) -> dict[str, str]:
        pair = self.authority.issue("broker")
        plugin = "org.apache.pulsar.client.impl.auth.AuthenticationToken"
        return {
            **super().settings(index),
            **VALUES,
            "brokerServicePort": "",
            "brokerServicePortTls": str(self.tls_port),
            "webServicePortTls": str(self.tls_port + 1),
            "tlsCertificateFilePath": str(pair.certificate),
            "tlsKeyFilePath": str(pair.key),
            "brokerClientAuthenticationPlugin": plugin,
            "brokerClientAuthenticationParameters": f"token:{token(ADMIN)}",
        }

    def __enter__(self) -> Secured:
        super().__enter__()
        for role, action in (("writer", "produce"), ("reader", "consume")):
            self.permit(role, [action])
        return self

    def permit(self, role: str, actions: list[str]) -> None:
        """Give a role permissions of `NAMESPACE`."""
        path = f"/admin/v2/namespaces/{NAMESPACE}/permissions/{role}"
        status, body = self.request(0, "POST", path, actions)
        assert status == 204, body
