# `make run` and `make test` work on a machine that has only python3 (3.11 or newer), make and the package registries.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# One more than there are cores: many tests wait for processes that they started.
WORKERS = $(shell $(PYTHON) -c 'import os; print((os.cpu_count() or 1) + 1)')

.PHONY: help install run test lint bench proto broker-conf clean
.DEFAULT_GOAL := help

help:
	@echo "make run      ZooKeeper and three brokers in the foreground; Ctrl-C stops all"
	@echo "make test     everything: lint, types, import contracts, all tests"
	@echo "make lint     the fast gate: ruff, mypy, import contracts"
	@echo "make bench    measure the cluster and the protocol"
	@echo "make install  prepare $(VENV), which the others do by themselves"

install: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "loadmanager needs Python 3.11 or newer; say which with: make PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[standalone,analysis,dev]'
	@touch $@

run: install
	@$(BIN)/loadmanager standalone --brokers 3

lint: install
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

test: lint
	$(BIN)/pytest --numprocesses $(WORKERS) --dist worksteal

bench: install
	$(BIN)/python -m bench cluster
	$(BIN)/python -m bench protocol

proto: install
	$(BIN)/pip install --quiet --disable-pip-version-check grpcio-tools mypy-protobuf
	cd loadmanager/core/wire && PATH="$(CURDIR)/$(BIN):$$PATH" $(CURDIR)/$(BIN)/python -m grpc_tools.protoc -I. --python_out=. --mypy_out=. pulsar.proto

broker-conf: install
	$(BIN)/loadmanager config template > config/broker.conf

clean:
	rm -rf $(VENV) data history build dist *.egg-info
