"""What is sent to an OpenTelemetry collector: said by broker.conf, or by the variables that
OpenTelemetry defines (opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec

from loadmanager.kit.conf import conf
from loadmanager.kit.errors import ConfigError

PROTOCOL = "http/protobuf"
TRACES, METRICS = "traces", "metrics"
SIGNALS = (TRACES, METRICS)
HOW = "OpenTelemetry is not installed; pip install 'loadmanager[otel]' does that"


@dataclass(frozen=True, slots=True, kw_only=True)
class OtlpSettings:
    """OpenTelemetry."""

    endpoint: str = conf(
        "loadManagerOtlpEndpoint",
        "",
        "Send traces and metrics to the OpenTelemetry collector at this URL, such as "
        "http://127.0.0.1:4318, by OTLP over HTTP. It needs the extra otel. Empty: as the "
        "environment says (OTEL_EXPORTER_OTLP_ENDPOINT)",
    )

    def contradictions(self) -> Iterable[tuple[tuple[str, ...], str]]:
        """An endpoint that is no URL."""
        if self.endpoint and not self.endpoint.startswith(("http://", "https://")):
            yield (
                ("loadManagerOtlpEndpoint",),
                f"loadManagerOtlpEndpoint = {self.endpoint[:100]!r}: it begins with http:// or https://",
            )


def require_installed(settings: OtlpSettings) -> None:
    """Raise `ConfigError` if broker.conf wants what is not installed."""
    if settings.endpoint:
        try:
            installed = find_spec("opentelemetry.exporter.otlp.proto.http") is not None
        except ModuleNotFoundError:
            installed = False
        if not installed:
            raise ConfigError(f"loadManagerOtlpEndpoint is set: {HOW}")


@dataclass(frozen=True, slots=True)
class Destinations:
    """Signal → the URL that it is sent to; and what cannot be done."""

    urls: Mapping[str, str]
    problems: tuple[str, ...] = ()


def wanted(settings: OtlpSettings, environ: Mapping[str, str]) -> Destinations:
    """What is to be sent where; nothing, unless somebody asked for it."""
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return Destinations({})
    base = settings.endpoint or environ.get("OTEL_EXPORTER_OTLP_ENDPOINT", "").strip()
    urls, problems = dict[str, str](), list[str]()
    for signal in SIGNALS:
        name = signal.upper()
        own = "" if settings.endpoint else environ.get(f"OTEL_EXPORTER_OTLP_{name}_ENDPOINT", "")
        url = own.strip() or (f"{base.rstrip('/')}/v1/{signal}" if base else "")
        if not url or environ.get(f"OTEL_{name}_EXPORTER", "otlp").strip() != "otlp":
            continue
        protocol = environ.get(f"OTEL_EXPORTER_OTLP_{name}_PROTOCOL") or environ.get(
            "OTEL_EXPORTER_OTLP_PROTOCOL"
        )
        if protocol and protocol.strip() != PROTOCOL:
            problems.append(f"{signal} are sent by {PROTOCOL} only, not by {protocol.strip()[:40]}")
        elif not url.startswith(("http://", "https://")):
            problems.append(f"{signal}: {url[:100]!r} does not begin with http:// or https://")
        else:
            urls[signal] = url
    return Destinations(urls, tuple(problems))
