# Everything runs inside the checkout: .venv (packages), .work (caches, temporary files), .demo (the demo's Airflow).
# Recipes call `python -m …`, because scripts in .venv/bin break when the path is long or holds a space.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

PY := .venv/bin/python
KEEP ?= 0
ARGS ?=

# `make test`, `make demo` and the rest leave no trace in the home directory.
export UV_CACHE_DIR := $(CURDIR)/.work/cache/uv
export PIP_CACHE_DIR := $(CURDIR)/.work/cache/pip
export XDG_CACHE_HOME := $(CURDIR)/.work/cache
export TMPDIR := $(CURDIR)/.work/tmp
export AIRFLOW_HOME := $(CURDIR)/.work/airflow
export PYTHONPATH :=
# Airflow starts a process for everything; without bytecode each of them compiles for seconds what it imports.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help env demo-stop setup test test-unit test-integration test-airflow test-kills test-crash lint format demo bench results-twin constraints wheel clean

help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' Makefile | awk -F ':.*## ' '{printf "  make %-18s %s\n", $$1, $$2}'

setup: ## Create .venv with everything needed (at once when up to date)
	@mkdir -p .work/cache .work/tmp
	@scripts/setup.sh

test: test-unit test-integration test-kills ## Set up and run the tests (the short suite)

test-unit: setup ## Unit, contract and DAG tests
	$(PY) -m pytest -n auto -m "not slow" $(wildcard tests/unit tests/contract tests/dags) $(ARGS)

test-integration: setup ## Tests against a real Airflow (the short ones)
	$(PY) -m pytest -m "not slow" tests/integration $(ARGS)

test-airflow: setup ## Tests against a real Airflow, the slow ones included
	$(PY) -m pytest tests/integration $(ARGS)

test-kills: setup ## Kill processes that work on a ledger (the short version)
	$(PY) -m pytest -m "not slow" tests/crash $(ARGS)

test-crash: setup ## Kill processes at every named point and check that nothing is lost
	$(PY) -m pytest tests/crash $(ARGS)

lint: setup ## ruff, mypy, import-linter
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy provider scripts
	$(PY) -c "from importlinter.cli import lint_imports_command; lint_imports_command()"

format: setup ## Apply ruff's fixes and format
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

demo: setup ## Run the content pipeline on a real Airflow (KEEP=1 leaves it running)
	@exec $(PY) scripts/demo.py $(if $(filter-out 0,$(KEEP)),--keep) $(ARGS)

demo-stop: setup ## Stop what `make demo KEEP=1` left running
	@$(PY) scripts/demo.py --stop

bench: setup ## Stage gap against a plain TriggerDagRunOperator chain
	$(PY) benchmarks/stage_gap.py $(ARGS)

results-twin: setup ## Write the digital twin's table into docs/results.md, its inputs into docs/results-twin.md
	$(PY) -m airflow_relay.simulation --results docs $(ARGS)

env: ## Write .env for docker-compose.yaml, with fresh secrets
	@python3 scripts/write_env.py

constraints: setup ## Resolve constraints.txt anew
	scripts/update_constraints.sh

wheel: setup ## Build the wheel into dist/
	$(PY) -m uv build --wheel --out-dir dist

clean: ## Remove everything that make created
	rm -rf .venv .work .demo dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
