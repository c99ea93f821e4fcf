# Everything that is done in this clone, locally and in CI alike.

PYTHON ?= python3
VENV ?= .venv
JOBS ?= 3
BIN := $(VENV)/bin
PIP := $(BIN)/pip --quiet --no-input --disable-pip-version-check
READY := $(VENV)/.installed
FTS := $(VENV)/.fts
SERVER_LOCK := dc_inject/sandbox/requirements

# The sandbox's Rucio server has an environment of its own, kept in the clone too.
export DC_INJECT_SANDBOX_ENV := $(CURDIR)/.venv-sandbox
# So has XRootD, when the system has none.
export DC_INJECT_SANDBOX_XROOTD := $(CURDIR)/.venv-xrootd
unexport PYTHONPATH PYTHONHOME

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo test format-check lint types imports pytest format chaos bench fuzz venv lock clean

help: ## List what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

demo: $(FTS) ## Bring up a grid with a real Rucio, inject into it, account for every byte (5 min)
	@$(BIN)/dc-inject demo

test: format-check lint types imports pytest ## Run every check; CI runs exactly this (12 min)

format-check: $(READY) ## Check that the code is formatted
	$(BIN)/ruff format --check .

lint: $(READY) ## Check the code's habits
	$(BIN)/ruff check .

types: $(READY) ## Check the types
	$(BIN)/mypy

imports: $(READY) ## Check who imports whom
	$(BIN)/lint-imports

pytest: $(FTS) ## Run the tests, those against the sandbox included
	$(BIN)/pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder

format: $(READY) ## Format the code, and mend what can be mended without a person
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format .

chaos: $(FTS) ## Break everything around it and count what it lost; SEED=1 SIZE=default (15 min), small or full
	@SEED=$(SEED) SIZE=$(SIZE) $(BIN)/python -m tests.chaos.campaign

bench: $(FTS) ## Measure planning, rules a second and start-up; prints, judges nothing
	@for one in tests/bench/bench_*.py; do $(BIN)/python -m tests.bench.$$(basename $$one .py) || exit 1; echo; done

fuzz: $(FTS) ## Feed menus, files and answers of services with 100,000 wrong things; SEED= and TIMES= (10 min)
	@DC_INJECT_FUZZ=$(or $(TIMES),26) DC_INJECT_FUZZ_SEED=$(or $(SEED),1) $(BIN)/python -m tests.fuzz

venv: $(FTS) ## Make the tool's environment from its lock; PYTHON=python3.12 chooses the interpreter

$(READY): requirements-dev.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or newer is needed; $(PYTHON) is not. Name one: make PYTHON=python3.12 ..." >&2; exit 1; }
	@echo "making the tool's environment in $(VENV) from its lock (about half a minute)"
	@rm -rf $(VENV)
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) install --require-hashes -r requirements-dev.txt
	@$(PIP) install --no-deps --no-build-isolation -e .
	@touch $@

# M2Crypto, a part of the FTS client, has to be compiled. Its swig comes from the lock, and works only without build isolation.
# In CI, as root on Debian, a compiler that is missing is installed.
$(FTS): $(READY) requirements-fts.txt
	@$(COMPILES) || ! $(MAY_INSTALL) || ( $(INSTALL) ) >/dev/null || true
	@if $(COMPILES); then \
	  PATH="$(abspath $(BIN)):$$PATH" $(PIP) install --require-hashes --no-build-isolation -r requirements-fts.txt && touch $@; \
	else \
	  echo "The FTS client is left out: there is no C compiler, or no headers of OpenSSL and Python." \
	    "On Debian: apt install gcc libssl-dev python3-dev" >&2; \
	  [ "$(CI)" != true ]; \
	fi

COMPILES = include=$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("include"))') && \
  echo | gcc -E -I "$$include" -include openssl/ssl.h -include Python.h - >/dev/null 2>&1

MAY_INSTALL = ( [ "$(CI)" = true ] && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null )
INSTALL = apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends \
  gcc libc6-dev libssl-dev python3-dev

lock: ## Write the five locks anew, with the newest versions that fit
	@rm -rf .venv-lock
	@$(PYTHON) -m venv .venv-lock
	@.venv-lock/bin/pip install --quiet --disable-pip-version-check uv
	$(call locked,requirements.txt,pyproject.toml)
	$(call locked,requirements-dev.txt,pyproject.toml --group dev)
	$(call locked,requirements-fts.txt,pyproject.toml --extra fts --constraint requirements-dev.txt)
	$(call locked,$(SERVER_LOCK).txt,$(SERVER_LOCK).in)
	$(call locked,$(SERVER_LOCK)-postgres.txt,$(SERVER_LOCK)-postgres.in --no-deps)
	@rm -rf .venv-lock

define locked
.venv-lock/bin/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes \
	  --custom-compile-command 'make lock' --output-file $(1) $(2)
endef

clean: ## Remove what was made here: environments, caches, builds
	rm -rf .venv .venv-* build dist *.egg-info .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
	find dc_inject tests -name __pycache__ -type d -prune -exec rm -rf {} +
