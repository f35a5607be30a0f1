# Every command uses .venv inside the checkout; no environment needs to be active.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
# Tests with live members wait more than they compute, so there is one worker more than cores.
JOBS ?= $(shell $(PYTHON) -c "import os; print(os.cpu_count() + 1)")
SEEDS ?= 0..1000

.DEFAULT_GOAL := help
.PHONY: help setup demo test lint types pytest sim bench docs lock audit clean

help: ## list the targets
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /\1\t/' | expand -t 10

setup: $(READY) ## build .venv with everything development needs

$(READY): pyproject.toml requirements-dev.lock tools/make_venv.sh
	@tools/make_venv.sh "$(PYTHON)" .venv
	@touch $@

demo: setup ## five live members through load, a crash, a pause and a partition; a report
	@$(BIN)/ringcast demo

test: lint types pytest ## lint, types and the whole test suite

lint: setup ## ruff: rules and format
	@$(BIN)/ruff check src tests tools bench examples
	@$(BIN)/ruff format --check src tests tools bench examples

types: setup ## mypy, strict
	@$(BIN)/mypy

pytest: setup
	@tools/get_browser.sh
	@$(BIN)/python -m pytest -q -n $(JOBS)

sim: setup ## swarm seeds over all cores (SEEDS=0..1000)
	@$(BIN)/ringcast sim --seeds $(SEEDS) --faults swarm --coverage

bench: setup ## the simulator's speed, SimPy's beside it
	@$(BIN)/python bench/run.py

docs: setup ## write the generated pages and tables anew
	@$(BIN)/python tools/pages.py

lock: ## write requirements-dev.lock and sbom.json anew from pyproject.toml
	@tools/make_lock.sh "$(PYTHON)" requirements-dev.lock
	@$(PYTHON) tools/sbom.py

audit: ## known vulnerabilities of what is pinned; needs the network, so it is no part of the tests
	@pipx run pip-audit --require-hashes --disable-pip -r requirements-dev.lock

clean: ## remove .venv, caches and outputs
	@rm -rf .venv out ringcast-demo dist build .mypy_cache .pytest_cache .ruff_cache .hypothesis
	@find src tests tools -name __pycache__ -type d -prune -exec rm -rf {} +
