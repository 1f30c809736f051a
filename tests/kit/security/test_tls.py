"""TLS contexts: what is refused, what is negotiated, and certificates that change."""

from __future__ import annotations

import asyncio
import datetime as dt
import os
import ssl
import threading
from pathlib import Path
from typing import Any

import pytest
from kit.security.certificates import Authority
from structlog.testing import capture_logs

from loadmanager.kit.errors import ConfigError
from loadmanager.kit.security import tls
from loadmanager.kit.security.client import token_of
from loadmanager.kit.security.settings import BrokerClientTlsSettings, TlsSettings
from loadmanager.kit.security.tls import Contexts, client_context, openssl_name, server_context
from loadmanager.kit.security.tokens import read_key


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    """Vouches for all that is trusted."""
    return Authority(tmp_path)


def connect(server: ssl.SSLContext, client: ssl.SSLContext, host: str = "localhost") -> Any:
    """A handshake in memory; the server's and the client's side of the connection."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = server.wrap_bio(to_server, to_client, server_side=True)
    theirs = client.wrap_bio(to_client, to_server, server_hostname=host)
    done: set[Any] = set()
    for _ in range(10):
        for side in (theirs, ours):
            try:
                side.do_handshake()
                done.add(side)
            except ssl.SSLWantReadError:
                pass
    assert done == {ours, theirs}
    return ours, theirs


def common_name(certificate: object) -> str:
    """The common name of the subject in a peer's certificate, as `ssl` gives it; empty if none."""
    subject = certificate.get("subject", ()) if isinstance(certificate, dict) else ()
    return next(
        (str(value) for part in subject for name, value in part if name == "commonName"), ""
    )


def test_a_handshake(authority: Authority) -> None:
    """The client is told who the server is, for the name by which it asked."""
    server, client = authority.server(authority.issue("broker")), authority.client()
    _, theirs = connect(server.value, client.value)
    assert theirs.version() == "TLSv1.3"
    assert common_name(theirs.getpeercert()) == "broker"
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        connect(server.value, client.value, "elsewhere.example.com")


def test_strangers(authority: Authority, tmp_path: Path) -> None:
    """Whom another authority vouches for is not trusted, nor a certificate that has ended."""
    stranger = Authority(tmp_path / "other", "stranger")
    with pytest.raises(ssl.SSLCertVerificationError):
        connect(stranger.server(stranger.issue("x")).value, authority.client().value)
    ended = authority.issue("ended", lives=dt.timedelta(days=-1))
    with pytest.raises(ssl.SSLCertVerificationError, match="expired"):
        connect(authority.server(ended).value, authority.client().value)


def test_clients_with_certificates(authority: Authority, tmp_path: Path) -> None:
    """Who must have a certificate is refused without one, and with a stranger's."""
    server = authority.server(authority.issue("broker"), clients=True)
    ours, _ = connect(server.value, authority.client(authority.issue("app")).value)
    assert common_name(ours.getpeercert()) == "app"
    with pytest.raises(ssl.SSLError):
        connect(server.value, authority.client().value)
    stranger = Authority(tmp_path / "other", "stranger").issue("app")
    with pytest.raises(ssl.SSLError):
        connect(server.value, authority.client(stranger).value)


def test_protocols_and_ciphers(authority: Authority) -> None:
    """What a key excludes is not negotiated; the keys of webServicePortTls come first there."""
    pair = authority.issue("broker")
    files = {"certificate": str(pair.certificate), "key": str(pair.key)}
    suite = "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"
    settings = TlsSettings(
        **files, protocols=("TLSv1.2",), ciphers=(suite,), web_protocols=("TLSv1.3",)
    )
    _, theirs = connect(server_context(settings, web=False).value, authority.client().value)
    assert (theirs.version(), theirs.cipher()[0]) == ("TLSv1.2", "ECDHE-ECDSA-AES256-GCM-SHA384")
    web = server_context(settings, web=True).value
    assert connect(web, authority.client().value)[1].version() == "TLSv1.3"
    old = BrokerClientTlsSettings(trust=str(authority.trust), protocols=("TLSv1.2",))
    with pytest.raises(ssl.SSLError):
        connect(web, client_context(old, TlsSettings()).value)


def test_suites_without_a_key(authority: Authority) -> None:
    """TLS 1.2 has forward secrecy and authenticated encryption; a client of others is refused."""
    pair = authority.issue("broker")
    settings = TlsSettings(certificate=str(pair.certificate), key=str(pair.key))
    for suite, served in (
        ("ECDHE-ECDSA-AES128-GCM-SHA256", True),
        ("ECDHE-ECDSA-CHACHA20-POLY1305", True),
        ("ECDHE-ECDSA-AES128-SHA256", False),
        ("ECDHE-ECDSA-AES256-SHA", False),
    ):
        client = authority.client().value
        client.maximum_version = ssl.TLSVersion.TLSv1_2
        client.set_ciphers(suite)
        context = server_context(settings, web=False).value
        if served:
            assert connect(context, client)[1].cipher()[0] == suite
        else:
            with pytest.raises(ssl.SSLError):
                connect(context, client)


@pytest.mark.parametrize(
    ("java", "name"),
    [
        ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
        ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-RSA-CHACHA20-POLY1305"),
        ("TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA384", "ECDHE-ECDSA-AES256-SHA384"),
        ("TLS_RSA_WITH_AES_256_GCM_SHA384", "AES256-GCM-SHA384"),
        ("ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
    ],
)
def test_names_of_ciphers(java: str, name: str) -> None:
    """Java's names are OpenSSL's."""
    assert openssl_name(java) == name
    assert name in {cipher["name"] for cipher in _all_ciphers()}


def _all_ciphers() -> list[Any]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_ciphers("ALL:COMPLEMENTOFALL:@SECLEVEL=0")
    return context.get_ciphers()


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"certificate": ""}, "TLS needs tlsCertificateFilePath and tlsKeyFilePath"),
    ({"key": ""}, "TLS needs tlsCertificateFilePath and tlsKeyFilePath"),
    ({"certificate": "/nowhere.pem"}, "/nowhere.pem cannot be read"),
    ({"key": "/nowhere.key"}, "/nowhere.key cannot be read"),
    ({"key": "{other}"}, "the key is not that of the certificate"),
    ({"certificate": "{garbage}"}, "cannot be used: no PEM"),
    ({"trust": "{garbage}"}, "has no certificates"),
    ({"trust": "/nowhere.pem"}, "/nowhere.pem cannot be read"),
    ({"require_client": True}, "needs tlsTrustCertsFilePath"),
    ({"protocols": ("TLSv1.1",)}, "tlsProtocols: 'TLSv1.1': TLSv1.2 and TLSv1.3 are allowed"),
    ({"ciphers": ("NOTHING",)}, "OpenSSL has none of NOTHING"),
    (
        {"ciphers": ("ECDHE-RSA-AES128-GCM-SHA256", "TLS_NO_WITH_SUCH_CIPHER")},
        "OpenSSL has no NO-SUCH-CIPHER",
    ),
]


@pytest.mark.parametrize(("given", "said"), WRONG)
def test_what_is_refused(authority: Authority, tmp_path: Path, given: Any, said: str) -> None:
    """With a sentence that names the key or the file."""
    pair, other = authority.issue("broker"), authority.issue("other")
    garbage = tmp_path / "garbage.pem"
    garbage.write_text("-----BEGIN CERTIFICATE-----\nnone\n-----END CERTIFICATE-----\n")
    names = {"{other}": str(other.key), "{garbage}": str(garbage)}
    given = {
        key: names.get(value, value) if isinstance(value, str) else value
        for key, value in given.items()
    }
    files = {"certificate": str(pair.certificate), "key": str(pair.key)}
    with pytest.raises(ConfigError) as refused:
        server_context(TlsSettings(**{**files, **given}), web=False)
    assert said in str(refused.value)


def test_an_encrypted_key_is_refused(authority: Authority, tmp_path: Path) -> None:
    """Nobody is asked for its password."""
    from cryptography.hazmat.primitives import serialization

    pair = authority.issue("broker")
    key: Any = serialization.load_pem_private_key(pair.key.read_bytes(), password=None)
    pair.key.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )
    with pytest.raises(ConfigError, match="is encrypted"):
        authority.server(pair)


async def test_a_changed_certificate_is_in_force(authority: Authority) -> None:
    """For the next connection; one that cannot be used changes nothing, and is told once."""
    pair = authority.issue("broker", lives=dt.timedelta(days=10))
    server, client = authority.server(pair), authority.client()
    contexts = Contexts(server, None)
    before = server.value
    await contexts.refresh()
    assert server.value is before  # nothing has changed
    ends_s = server.ends_s
    authority.issue("broker", lives=dt.timedelta(days=20))
    await contexts.refresh()
    assert server.value is not before
    assert (server.ends_s or 0) - (ends_s or 0) > 9 * 86_400
    connect(server.value, client.value)

    after = server.value
    pair.certificate.write_text("half a certificate")
    with capture_logs() as logs:
        await contexts.refresh()
        await contexts.refresh()
    assert [entry["log_level"] for entry in logs] == ["error"]
    assert server.value is after
    connect(server.value, client.value)
    pair.key.unlink()
    await contexts.refresh()
    authority.issue("broker")
    await contexts.refresh()
    assert server.value is not after
    connect(server.value, client.value)
    values = {sample.name: sample.value for sample in contexts.samples()}
    assert values["loadmanager_tls_refused_changes"] == 2
    assert values["loadmanager_tls_certificate_ends_seconds"] == server.ends_s


async def test_a_folder_that_is_swapped(authority: Authority, tmp_path: Path) -> None:
    """As Kubernetes renews secrets: a link to a folder that points elsewhere."""
    for name in ("old", "new"):
        pair = Authority.issue(authority, name)
        (tmp_path / f"folder-{name}").mkdir()
        for file in (pair.certificate, pair.key):
            file.rename(tmp_path / f"folder-{name}" / f"tls{file.suffix}")
    link = tmp_path / "now"
    link.symlink_to(tmp_path / "folder-old")
    settings = TlsSettings(certificate=str(link / "tls.pem"), key=str(link / "tls.key"))
    context = server_context(settings, web=True)
    (tmp_path / "next").symlink_to(tmp_path / "folder-new")
    (tmp_path / "next").replace(link)
    await Contexts(context).refresh()
    _, theirs = connect(context.value, authority.client().value)
    assert common_name(theirs.getpeercert()) == "new"


async def test_files_that_would_block(authority: Authority, tmp_path: Path) -> None:
    """A pipe instead of a file is refused and told; what is in force stays, and is looked at on."""
    pair = authority.issue("broker")
    server, client = authority.server(pair), authority.client()
    contexts, before = Contexts(server), server.value
    pair.key.unlink()
    os.mkfifo(pair.key)
    with capture_logs() as logs:
        await contexts.refresh()
    assert ["not a regular file" in entry["error"] for entry in logs] == [True]
    assert server.value is before
    pair.key.unlink()
    authority.issue("broker")
    await contexts.refresh()
    assert server.value is not before
    connect(server.value, client.value)
    with pytest.raises(ConfigError, match="not a regular file"):
        token_of(f"file://{_pipe(tmp_path / 'token')}")
    with pytest.raises(ConfigError, match="not a regular file"):
        read_key(f"file://{_pipe(tmp_path / 'key')}", "tokenSecretKey")


def _pipe(path: Path) -> Path:
    os.mkfifo(path)
    return path


async def test_files_that_do_not_answer(authority: Authority) -> None:
    """The look that hangs is told once, and goes on when the files answer again."""
    go_on, looks = threading.Event(), []

    def build() -> ssl.SSLContext:
        looks.append(1)
        if len(looks) > 1:
            go_on.wait(60)
        return ssl.create_default_context()

    pair = authority.issue("broker")
    context = tls.Context("hanging", build, (str(pair.certificate),), serves=True)
    before, contexts = context.value, Contexts(context, slow_s=0.01)
    authority.issue("broker")
    with capture_logs() as logs:
        await contexts.refresh()
        await contexts.refresh()
    assert ["in time" in entry["event"] for entry in logs] == [True]
    while len(looks) < 2:  # a busy machine begins the thread late
        await asyncio.sleep(0.001)
    assert (context.value is before, len(looks)) == (True, 2)
    go_on.set()
    while context.value is before:
        await contexts.refresh()
    assert len(looks) == 2
