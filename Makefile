# `make run` and `make test` work on a machine that has only python3 (3.11 or newer; on Debian with
# python3-venv), make and the package registries.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
MADE := $(VENV)/.made
# What is installed: for a run, for the analysis, for everything else as well.
RUN := $(VENV)/.run
ANALYSIS := $(VENV)/.analysis
ALL := $(VENV)/.installed
# Where Python has a pip already, that one installs, also a pip for the venv: to have that made with
# the venv takes seconds more.
HAS_PIP = $(shell $(PYTHON) -m pip --version > /dev/null 2>&1 && echo yes)
ANY_PIP = $(shell test -x $(BIN)/pip && echo $(BIN)/pip \
	|| echo $(PYTHON) -m pip --python $(BIN)/python)
PIP = $(ANY_PIP) install --quiet --disable-pip-version-check --constraint constraints.txt
# Two more than there are cores: half of the time of the tests is waiting for processes.
WORKERS = $(shell $(PYTHON) -c 'import os; print((os.cpu_count() or 1) + 2)')

# Tests start hundreds of processes: where this is set, each would compile our modules again.
export PYTHONDONTWRITEBYTECODE :=

# What `make matrix` looks for; each as pythonX.Y or among pyenv's versions.
PYTHONS := 3.11 3.12 3.13 3.14

.PHONY: help install install-run install-analysis run demo analyze page fast test test-clients \
	test-pulsar test-deploy test-alerts test-oracle test-oracle-vectors lint coverage mutants matrix \
	matrix-bounds dist sbom hashes docs bench proto broker-conf manifests clean
.DEFAULT_GOAL := help

help:
	@echo "make run          a metadata store and three brokers in the foreground; Ctrl-C stops all"
	@echo "make analyze      the report on what they did today, in data/analysis"
	@echo "make fast         lint, and the tests of what decides, of names, docs and settings: after"
	@echo "                  every edit"
	@echo "make test         lint and all tests: before every commit"
	@echo "make test-clients the Java and Go clients and pulsar-admin on our brokers and on a real"
	@echo "                  Pulsar 4.0 (needs Java 17, Maven and Go; else skipped with the reason)"
	@echo "make test-pulsar  loadmanager fleet beside a real Pulsar 4.0 of three brokers, with both of"
	@echo "                  its load managers (needs Java 17 and Maven; else skipped with the"
	@echo "                  reason); BROKERS: the version of its brokers"
	@echo "make test-deploy  the images and docker-compose.yml: from the host, killed, restarted,"
	@echo "                  upgraded, secured; a broker's systemd unit; the alerts (needs Docker;"
	@echo "                  makes images with debootstrap where none can be pulled)"
	@echo "make test-alerts  each alert fired and resolved on a live cluster, by its cause (needs"
	@echo "                  Prometheus; some causes need root or libfaketime): 20 minutes"
	@echo "make test-oracle  our decisions beside Pulsar's own classes (needs Java 17 and Maven);"
	@echo "                  SEED, CASES of each family, PULSAR: the version"
	@echo "make lint         ruff, mypy, import contracts"
	@echo "make coverage     how much of the product the tests in this process reach"
	@echo "make mutants      how many edits of engine/strategies its tests notice (a sample)"
	@echo "make matrix       core tests and a running cluster on each Python of $(PYTHONS) found here,"
	@echo "                  and with the lowest and the newest versions of dependencies"
	@echo "make broker-conf  write config/broker.conf from the settings in the code"
	@echo "make manifests    write what deploy/kubernetes/monitoring repeats of deploy/alerts.yml and"
	@echo "                  the dashboard"
	@echo "make demo         a cluster under a skewed load that balances itself, and its page;"
	@echo "                  Ctrl-C ends it"
	@echo "make hashes       write deploy/requirements*.txt: what images install, with hashes, of"
	@echo "                  constraints.txt"
	@echo "make page         build the page at /ui from ui/ into the package (needs Node and npm)"
	@echo "make docs         reference pages from the code, then docs/ as HTML in docs/_build"
	@echo "make dist         sdist, wheel, requirements.txt with hashes, constraints.txt and sbom.json"
	@echo "                  in dist/"
	@echo "make sbom         what a broker installs, as CycloneDX in dist/sbom.json; with"
	@echo "                  EXTRAS=[otel,analysis] what the nightly job installs"
	@echo "make bench        measure the cluster and the protocol"
	@echo "The others install into $(VENV) what they need, and say how much that is:"
	@echo "make install-run, make install-analysis, make install (everything)"

install: $(ALL)
install-run: $(RUN)
install-analysis: $(ANALYSIS)

$(MADE):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "loadmanager needs Python 3.11 or newer; say which with: make PYTHON=python3.12"; \
		exit 1; }
	$(PYTHON) -m venv $(if $(HAS_PIP),--without-pip) $(VENV)
	@touch $@

# setuptools warns of folders with the name of the package, at each editable installation.
$(RUN) $(ANALYSIS) $(ALL): export PYTHONWARNINGS := ignore

# The sizes are those of the versions in constraints.txt. What is imported is compiled then: that is
# less than there is.
$(RUN): $(MADE) pyproject.toml constraints.txt
	@test -e $@ || echo "Installing what a run needs: 40 MB of packages, 5 to 20 MB of the" \
		"registry's pages, 0.2 GB in $(VENV)."
	$(PIP) --no-compile pip --editable '.[demo]'
	@touch $@

$(ANALYSIS): $(MADE) pyproject.toml constraints.txt
	@test -e $@ || echo "Installing what the analysis needs: about 80 MB more to download, 0.4 GB in" \
		"$(VENV) together. Spark, for days of a GiB and more: pip install '.[analysis]'."
	$(PIP) --no-compile pip --editable '.[demo,report]'
	@touch $(RUN) $@

$(ALL): $(MADE) pyproject.toml constraints.txt
	@test -e $@ || echo "Installing what development needs: 1.4 GB in $(VENV)." \
		"'make install-run' has enough for a run."
	$(PIP) pip --editable '.[java,demo,analysis,otel,dev,docs]'
	@touch $(RUN) $(ANALYSIS) $@

run: install-run
	@$(BIN)/loadmanager standalone --brokers 3

analyze: install-analysis
	@$(BIN)/loadmanager analyze --date "$$(date -u +%F)"

demo: install-run
	@$(BIN)/loadmanager demo

fast: lint
	$(BIN)/pytest --quiet --numprocesses 2 -m "not slow and not zookeeper" tests/engine tests/limits \
		tests/architecture tests/docs --deselect \
		tests/architecture/test_architecture.py::test_import_contracts

lint: install
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

test: lint
	$(BIN)/pytest --numprocesses $(WORKERS) --durations 20

# Differences are listed in tests/clients/differences.py; any other one fails.
test-clients: install
	$(BIN)/pytest -m clients tests/clients

# Two clusters, one after the other. BROKERS is the version of the brokers.
BROKERS ?= 4.0.4
test-pulsar: install
	$(BIN)/pytest -m pulsar tests/steer --pulsar $(BROKERS)

# It needs Docker with Compose, and the ports of docker-compose.yml.
test-deploy: install
	$(BIN)/pytest -m deploy tests/deploy

test-alerts: install
	$(BIN)/python -m bench alerts

SEED ?= 1
CASES ?= 100
PULSAR ?= 4.2.4
ORACLE = PYTHONPATH=tests:. $(BIN)/python -m oracle.compare

test-oracle: install
	$(ORACLE) --seed $(SEED) --cases $(CASES) --pulsar $(PULSAR)

# Pulsar's answers to the cases of tests/oracle/minimal.py, which `make test` compares with ours.
test-oracle-vectors: install
	$(ORACLE) --vectors --pulsar 4.0.8
	$(ORACLE) --vectors --pulsar 4.2.4

# Apart from `make test`, because counting lines makes the tests take about twice as long.
coverage: install
	$(BIN)/pytest --quiet --numprocesses $(WORKERS) --cov --cov-report=term:skip-covered \
		tests/engine tests/limits tests/scenarios tests/properties tests/leader tests/member \
		tests/broker tests/kit

mutants: install
	$(BIN)/python -m bench mutants --sample 400

matrix: $(addprefix matrix-,$(PYTHONS)) matrix-bounds

# The bounds of pyproject.toml, at both ends.
matrix-bounds:
	@deploy/matrix.sh 3.11 lowest
	@deploy/matrix.sh 3.13 newest

matrix-%:
	@deploy/matrix.sh $*

# The sdist holds what README.md links to; the wheel is built from the sdist, as users build it.
dist: install
	$(BIN)/pip install --quiet --disable-pip-version-check build twine
	rm -rf dist
	$(BIN)/python -m build
	$(BIN)/twine check --strict dist/*
	$(BIN)/python deploy/requirements.py dist
	$(MAKE) sbom

# As deploy/Dockerfile installs, by the Python that runs this.
EXTRAS ?= [broker,otel]
sbom: install
	$(PYTHON) -m venv --clear .sbom
	.sbom/bin/pip install --quiet --disable-pip-version-check --constraint constraints.txt \
		'.$(EXTRAS)'
	$(PIP) 'cyclonedx-bom>=7,<8'
	mkdir -p dist
	$(BIN)/cyclonedx-py environment .sbom/bin/python --pyproject pyproject.toml \
		--mc-type application --output-reproducible --output-file dist/sbom.json
	$(BIN)/python deploy/sbom_version.py dist/sbom.json

page:
	cd ui && npm ci --ignore-scripts && npm run --silent build

docs: install
	$(BIN)/python docs/generate.py
	$(BIN)/sphinx-build -q -n -W --keep-going -d docs/_build/doctrees docs docs/_build/html
	@echo "docs/_build/html/index.html"

bench: install
	$(BIN)/python -m bench cluster
	$(BIN)/python -m bench protocol

# An old protoc (25, on Python 3.11 or 3.12): later ones write code that wants a runtime as new as
# they are.
proto: install
	$(PYTHON) -m venv --clear .proto
	.proto/bin/pip install --quiet --disable-pip-version-check 'grpcio-tools==1.62.3' 'setuptools<80'
	$(BIN)/pip install --quiet --disable-pip-version-check mypy-protobuf
	cd loadmanager/broker/wire && PATH="$(CURDIR)/$(BIN):$$PATH" \
		$(CURDIR)/.proto/bin/python -m grpc_tools.protoc -I. --python_out=. --mypy_out=. pulsar.proto

# The PrometheusRule and the dashboard of deploy/kubernetes/monitoring.
manifests:
	$(PYTHON) deploy/generate.py

# What deploy/Dockerfile installs, with the hashes of all files of each version. pip makes none.
LOCK = $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-header --no-annotate --constraint constraints.txt
hashes: install
	$(BIN)/pip install --quiet --disable-pip-version-check 'uv>=0.7,<1'
	$(LOCK) --extra broker --extra otel pyproject.toml --output-file deploy/requirements.txt
	$(LOCK) --extra broker --extra otel --extra analysis pyproject.toml \
		--output-file deploy/requirements-analysis.txt
	echo setuptools | $(LOCK) - --output-file deploy/requirements-build.txt

broker-conf: install
	$(BIN)/loadmanager config template > config/broker.conf

clean:
	rm -rf $(VENV) .matrix .proto .sbom data history build dist docs/_build mutants *.egg-info
