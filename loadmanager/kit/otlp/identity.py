"""Who sends: the resource of OpenTelemetry."""

from __future__ import annotations

from collections.abc import Mapping

from opentelemetry.sdk.resources import OTELResourceDetector, Resource


def resource_of(attributes: Mapping[str, str]) -> Resource:
    """These attributes; those of `OTEL_RESOURCE_ATTRIBUTES` and `OTEL_SERVICE_NAME` win."""
    return Resource.create(dict(attributes)).merge(OTELResourceDetector().detect())
