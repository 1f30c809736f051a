# Debian's Prometheus, where the official image cannot be pulled; started as that is.
FROM python:3.13-slim
RUN apt-get update \
    && apt-get install --yes --no-install-recommends prometheus \
    && rm -rf /var/lib/apt/lists/* \
    && mkdir /prometheus \
    && chown nobody:nogroup /prometheus \
    && rm -rf /var/lib/prometheus/metrics2 \
    && ln -s /prometheus /var/lib/prometheus/metrics2
WORKDIR /prometheus
USER nobody
ENTRYPOINT ["/usr/bin/prometheus"]
