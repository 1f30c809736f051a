"""TLS contexts from the files that settings name, made again when the files change.

A connection keeps the context with which it began. A change that cannot be used is logged, and the
context before it stays in force.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import re
import ssl
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from loadmanager.kit.errors import ConfigError
from loadmanager.kit.logger import get_logger
from loadmanager.kit.security.reading import in_thread, read_file
from loadmanager.kit.security.settings import BrokerClientTlsSettings, TlsSettings
from loadmanager.kit.telemetry import Sample, counter, gauge

CERTIFICATE_BYTES_MAX = 1024 * 1024
SLOW_S = 10.0
"""Files that are not read in this time are on a disk or a machine that does not answer."""
AUTHENTICATED = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""The suites of TLS 1.2 without `tlsCiphers`: forward secrecy, and no CBC. TLS 1.3 has its own."""
VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_JAVA_NAME = re.compile(r"TLS_(?:(?P<exchange>\w+?)_WITH_)(?P<rest>\w+)")
_SHA_OF_TLS_1_3 = "TLS_AES", "TLS_CHACHA20"
"""How the suites of TLS 1.3 begin, which OpenSSL does not choose among by name here."""
ENDS = gauge(
    "loadmanager_tls_certificate_ends_seconds",
    "When a certificate ends, in seconds since the epoch",
    "certificate",
)
REFUSED = counter(
    "loadmanager_tls_refused_changes",
    "Changed files of certificates that could not be used",
    "certificate",
)
FAILED = counter(
    "loadmanager_tls_handshake_failures",
    "TLS handshakes that clients did not finish",
    "certificate",
)

log = get_logger("tls")


class Context:
    """One TLS context; `value` is the one in force. The constructor raises `ConfigError`."""

    def __init__(
        self, what: str, build: Callable[[], ssl.SSLContext], files: Sequence[str], *, serves: bool
    ) -> None:
        """`files`: where a change is looked for; the first is the certificate, or empty. `serves`:
        whether clients come to it.
        """
        self.serves = serves
        self.what = what
        self._build = build
        self._files = [Path(file) for file in files if file]
        self._certificate = files[0]
        self._marks = self._look()
        self.value = build()
        self.ends_s = _end_of(self._certificate)
        self.refused = 0
        """Changes that could not be used, since start."""
        self.failed = 0
        """Handshakes that failed, since start."""

    def handshake_failed(self) -> None:
        """See `kit.listener.Tls`."""
        self.failed += 1

    def refresh(self) -> None:
        """Make the context again if a file has changed. Reads files."""
        marks = self._look()
        if marks == self._marks:
            return
        self._marks = marks
        try:
            self.value = self._build()
            self.ends_s = _end_of(self._certificate)
        except ConfigError as error:
            self.refused += 1
            log.error(
                "a changed certificate cannot be used; the one before stays in force",
                of=self.what,
                error=str(error),
            )
            return
        log.info("a changed certificate is in force", of=self.what, ends=_shown(self.ends_s))

    def _look(self) -> list[tuple[int, int, int] | None]:
        return [_mark_of(file) for file in self._files]


class Contexts:
    """All contexts of a process, refreshed together."""

    def __init__(self, *contexts: Context | None, slow_s: float = SLOW_S) -> None:
        self._slow_s = slow_s
        self._all = [context for context in contexts if context is not None]
        self._looking: asyncio.Future[None] | None = None
        self._slow_logged = False

    async def refresh(self) -> None:
        """Look at all files, in a thread: a folder that does not answer must not stop the loop.

        Files that are not read in time are told once, and waited for the next time.
        """
        if self._looking is None:
            self._looking = in_thread(self._refresh)
        done, _ = await asyncio.wait({self._looking}, timeout=self._slow_s)
        if not done:
            if not self._slow_logged:
                log.error(
                    "the files of certificates cannot be read in time; those in force stay so",
                    of=[context.what for context in self._all],
                    waited_s=self._slow_s,
                )
            self._slow_logged = True
            return
        self._looking, self._slow_logged = None, False
        done.pop().result()

    def _refresh(self) -> None:
        for context in self._all:
            context.refresh()

    def samples(self) -> Iterator[Sample]:
        """The end of each certificate's validity, and the number of changes that could
        not be used.
        """
        for context in self._all:
            if context.ends_s is not None:
                yield ENDS.sample(context.ends_s, context.what)
            yield REFUSED.sample(context.refused, context.what)
            if context.serves:
                yield FAILED.sample(context.failed, context.what)


def server_context(settings: TlsSettings, *, web: bool) -> Context:
    """The context of a port: that of webServicePortTls, or of brokerServicePortTls."""
    protocols = (web and settings.web_protocols) or settings.protocols
    ciphers = (web and settings.web_ciphers) or settings.ciphers

    def build() -> ssl.SSLContext:
        if not settings.certificate or not settings.key:
            raise ConfigError("TLS needs tlsCertificateFilePath and tlsKeyFilePath")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.options |= ssl.OP_NO_RENEGOTIATION
        _restrict(context, protocols, ciphers)
        _load_chain(context, settings.certificate, settings.key)
        if settings.trust:
            _load_trust(context, settings.trust)
            context.verify_mode = ssl.CERT_OPTIONAL
        if settings.require_client:
            if not settings.trust:
                raise ConfigError(
                    "tlsRequireTrustedClientCertOnConnect needs tlsTrustCertsFilePath"
                )
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    what = "webServicePortTls" if web else "brokerServicePortTls"
    files = (settings.certificate, settings.key, settings.trust)
    return Context(what, build, files, serves=True)


def client_context(settings: BrokerClientTlsSettings, server: TlsSettings) -> Context:
    """The context with which this broker asks others."""
    trust = settings.trust or server.trust

    def build() -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = settings.verify_host
        _restrict(context, settings.protocols, settings.ciphers)
        if trust:
            _load_trust(context, trust)
        else:
            context.load_default_certs()
        if bool(settings.certificate) != bool(settings.key):
            raise ConfigError(
                "brokerClientCertificateFilePath and brokerClientKeyFilePath need each other"
            )
        if settings.certificate:
            _load_chain(context, settings.certificate, settings.key)
        return context

    files = (settings.certificate, settings.key, trust)
    return Context("brokerClient", build, files, serves=False)


def _restrict(context: ssl.SSLContext, protocols: Sequence[str], ciphers: Sequence[str]) -> None:
    versions = sorted(_version(name) for name in protocols or VERSIONS)
    context.minimum_version, context.maximum_version = versions[0], versions[-1]
    chosen = [openssl_name(name) for name in ciphers if not name.startswith(_SHA_OF_TLS_1_3)]
    if not chosen:
        context.set_ciphers(AUTHENTICATED)
        return
    try:
        context.set_ciphers(":".join(chosen))
    except ssl.SSLError:
        raise ConfigError(f"tlsCiphers: OpenSSL has none of {', '.join(chosen)}") from None
    served = {cipher["name"] for cipher in context.get_ciphers()}
    missing = [name for name in chosen if name not in served]
    if missing:
        raise ConfigError(f"tlsCiphers: OpenSSL has no {', '.join(missing)}")


def _version(name: str) -> ssl.TLSVersion:
    if name not in VERSIONS:
        raise ConfigError(f"tlsProtocols: {name!r}: {' and '.join(VERSIONS)} are allowed")
    return VERSIONS[name]


def openssl_name(name: str) -> str:
    """OpenSSL's name of a cipher suite of TLS 1.2 that Java names, or the name as it is."""
    java = _JAVA_NAME.fullmatch(name)
    if java is None:
        return name
    rest = re.sub(r"AES_(\d+)", r"AES\1", java["rest"]).replace("_CBC_", "_")
    rest = rest.replace("CHACHA20_POLY1305_SHA256", "CHACHA20_POLY1305")
    words = rest if java["exchange"] == "RSA" else f"{java['exchange']}_{rest}"
    return words.replace("_", "-")


def _load_chain(context: ssl.SSLContext, certificate: str, key: str) -> None:
    _check_files(certificate, key)

    def encrypted() -> str:
        raise ConfigError(f"the private key in {key} is encrypted, which is not supported")

    try:
        context.load_cert_chain(certificate, key, password=encrypted)
    except ssl.SSLError as error:
        reason = "the key is not that of the certificate" if "MISMATCH" in str(error) else "no PEM"
        raise ConfigError(
            f"certificate {certificate} and key {key} cannot be used: {reason}"
        ) from None
    except OSError as error:
        raise ConfigError(f"{certificate} and {key} cannot be read: {error.strerror}") from None


def _check_files(*files: str) -> None:
    """Raise `ConfigError` for a file that OpenSSL could not read, or would wait for."""
    for file in files:
        try:
            read_file(file, 1)
        except OSError as error:
            raise ConfigError(f"{file} cannot be read: {error.strerror}") from None


def _load_trust(context: ssl.SSLContext, file: str) -> None:
    _check_files(file)
    try:
        context.load_verify_locations(cafile=file)
    except ssl.SSLError:
        raise ConfigError(f"{file} has no certificates (PEM)") from None
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}") from None


def _mark_of(file: Path) -> tuple[int, int, int] | None:
    """The time of change, size and inode of a file; None if they cannot be read."""
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def _end_of(certificate: str) -> float | None:
    """The end of a certificate's validity, in seconds since the epoch; None without one."""
    from cryptography import x509  # takes long, and most brokers are without TLS

    try:
        first = (
            x509.load_pem_x509_certificate(read_file(certificate, CERTIFICATE_BYTES_MAX))
            if certificate
            else None
        )
    except (OSError, ValueError):
        return None
    return None if first is None else first.not_valid_after_utc.timestamp()


def _shown(ends_s: float | None) -> str | None:
    return None if ends_s is None else dt.datetime.fromtimestamp(ends_s, dt.UTC).isoformat()
