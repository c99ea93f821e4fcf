# Everything that is done in this clone, locally and in CI alike.

PYTHON ?= python3
VENV ?= .venv
JOBS ?= 2
BIN := $(VENV)/bin
READY := $(VENV)/.installed
SERVER_LOCK := dc_inject/sandbox/requirements

# The sandbox's Rucio server has an environment of its own, kept in the clone too.
export DC_INJECT_SANDBOX_ENV := $(CURDIR)/.venv-sandbox
unexport PYTHONPATH PYTHONHOME

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo test format-check lint types imports pytest format bench venv lock clean

help: ## List what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

demo: $(READY) ## Bring up a grid with a real Rucio, inject into it, account for every byte (5 min)
	@$(BIN)/dc-inject demo

test: format-check lint types imports pytest ## Run every check; CI runs exactly this (10 min)

format-check: $(READY) ## Check that the code is formatted
	$(BIN)/ruff format --check .

lint: $(READY) ## Check the code's habits
	$(BIN)/ruff check .

types: $(READY) ## Check the types
	$(BIN)/mypy

imports: $(READY) ## Check who imports whom
	$(BIN)/lint-imports

pytest: $(READY) ## Run the tests, those against the sandbox included
	$(BIN)/pytest -n $(JOBS) --dist loadfile

format: $(READY) ## Format the code, and mend what can be mended without a person
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format .

bench: $(READY) ## Measure planning, rules a second and start-up; prints, judges nothing
	@for one in tests/bench/bench_*.py; do $(BIN)/python -m tests.bench.$$(basename $$one .py) || exit 1; echo; done

venv: $(READY) ## Make the tool's environment from its lock; PYTHON=python3.12 chooses the interpreter

$(READY): requirements-dev.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or newer is needed; $(PYTHON) is not. Name one: make PYTHON=python3.12 ..." >&2; exit 1; }
	@echo "making the tool's environment in $(VENV) from its lock (about half a minute)"
	@rm -rf $(VENV)
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install --quiet --no-input --disable-pip-version-check --require-hashes -r requirements-dev.txt
	@$(BIN)/pip install --quiet --no-input --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

lock: ## Write the three locks anew, with the newest versions that fit
	@rm -rf .venv-lock
	@$(PYTHON) -m venv .venv-lock
	@.venv-lock/bin/pip install --quiet --disable-pip-version-check uv
	$(call locked,requirements.txt,pyproject.toml)
	$(call locked,requirements-dev.txt,pyproject.toml --group dev)
	$(call locked,$(SERVER_LOCK).txt,$(SERVER_LOCK).in)
	@rm -rf .venv-lock

define locked
.venv-lock/bin/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes \
	  --custom-compile-command 'make lock' --output-file $(1) $(2)
endef

clean: ## Remove what was made here: environments, caches, builds
	rm -rf .venv .venv-* build dist *.egg-info .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
	find dc_inject tests -name __pycache__ -type d -prune -exec rm -rf {} +
