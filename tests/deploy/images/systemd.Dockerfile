# A machine with systemd and the installed package, for the units, which are the context.
ARG IMAGE=loadmanager:latest
FROM ${IMAGE} AS installed
FROM python:3.13-slim
RUN apt-get update \
    && apt-get install --yes --no-install-recommends systemd \
    && rm -rf /var/lib/apt/lists/*
COPY --from=installed /opt/loadmanager /opt/loadmanager
# docs/howto/run.md has the environment in /opt/loadmanager/venv.
RUN ln -s . /opt/loadmanager/venv
COPY loadmanager.sysusers /usr/lib/sysusers.d/loadmanager.conf
COPY loadmanager.tmpfiles /usr/lib/tmpfiles.d/loadmanager.conf
COPY loadmanager-broker.service /etc/systemd/system/
STOPSIGNAL SIGRTMIN+3
# The last two let systemd run where the host has cgroups of version 1.
CMD ["/lib/systemd/systemd", "systemd.unified_cgroup_hierarchy=0", "SYSTEMD_CGROUP_ENABLE_LEGACY_FORCE=1"]
