# Everything runs from a virtual environment in .venv that `make` sets up by itself.
.DEFAULT_GOAL := help
SHELL := /bin/bash
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)

# Tests wait and compute by turns: with this many at once two cores are always busy.
WORKERS ?= 4

# Of how many runs the benchmarks take medians.
RUNS ?= 5

# How long the soak goes on, and what decides over all that is random in it.
SECONDS ?= 1800
SEED ?= 1

.PHONY: help setup demo test check lint format types coverage bench soak large lock clean

help: ## Show what can be made
	@awk -F':.*## ' '/^[a-z]+:.*## / {printf "  %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(STAMP): pyproject.toml requirements.lock
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed; set PYTHON=/path/to/python3.11" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { echo "The venv module is missing: on Debian, apt-get install python3-venv" >&2; exit 1; }
	@echo "Installing into $(VENV): half a minute or more"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	PYTHONWARNINGS=ignore $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -e .
	@touch $@

setup: $(STAMP) ## Make the virtual environment with everything locked in requirements.lock

demo: $(STAMP) ## Start a server and two clients, run a pipeline on real reads, check the result, stop everything
	$(BIN)/awe demo

test: $(STAMP) ## Run the whole test suite, WORKERS=4 tests at once
	$(BIN)/python -m pytest -q -n $(WORKERS)

check: lint types $(STAMP) ## Format, lint, types, and the quick tests: what every commit has to pass
	$(BIN)/python -m pytest -q -n $(WORKERS) tests/unit tests/contract tests/api tests/architecture

lint: $(STAMP) ## Check format and lint
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(STAMP) ## Check types
	$(BIN)/mypy

format: $(STAMP) ## Format and fix what can be fixed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

coverage: $(STAMP) ## Line coverage of the rooms that must not have holes: at least 95 % of each
	$(BIN)/python -m pytest -q tests/unit tests/contract tests/property --ignore=tests/unit/client --ignore=tests/unit/cli \
		--cov=awe_server.scheduler --cov=awe_server.store --cov=awe_server.data --cov-report=
	$(BIN)/coverage report --show-missing --skip-covered --include='awe_server/scheduler/*' --fail-under=95
	$(BIN)/coverage report --show-missing --skip-covered --include='awe_server/store/*' --fail-under=95
	$(BIN)/coverage report --show-missing --skip-covered --include=awe_server/data/records.py --fail-under=95

bench: $(STAMP) ## Measure every figure, RUNS=5 times each, beside its peers; write docs/benchmarks.md: hours, on a quiet machine
	$(BIN)/python -m tests.bench --runs $(RUNS)

soak: $(STAMP) ## Kill, stall and confuse a server under load for SECONDS=1800, and see that nothing is lost, doubled or growing
	timeout --kill-after=30 $$(($(SECONDS) + 900)) $(BIN)/python -m tests.soak --seconds $(SECONDS) --clients 50 --seed $(SEED)

large: $(STAMP) ## Cut and merge a file of 4 GiB and show how long it takes and how much memory: 15 GiB of disk
	AWE_TEST_LARGE_BYTES=4294967296 $(BIN)/python -m pytest -q -s -rs tests/e2e/test_large_files.py

lock: $(STAMP) ## Renew the lock files from pyproject.toml
	$(BIN)/pip-compile --quiet --strip-extras --allow-unsafe --generate-hashes --no-emit-index-url --no-emit-find-links --no-header --extra dev -o requirements.lock pyproject.toml
	$(BIN)/pip-compile --quiet --strip-extras --allow-unsafe --generate-hashes --no-emit-index-url --no-emit-find-links --no-header -c requirements.lock -o requirements-runtime.lock pyproject.toml

clean: ## Remove everything that make made
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .hypothesis .coverage .demo
