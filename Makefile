# Everything that is done in this clone, locally and in CI alike.

PYTHON ?= python3
VENV ?= .venv
JOBS ?= 6
BIN := $(VENV)/bin
PIP := $(BIN)/pip --quiet --no-input --disable-pip-version-check
# Bytecode of what is never imported costs a third of an installation; what is imported gets its own then.
INSTALL_LOCK := install --no-compile --no-deps --require-hashes
# uv needs a tenth of pip's time, but does not read pip's configuration: where it finds no index, pip does the work.
UV := UV_SYSTEM_CERTS=1 UV_DEFAULT_INDEX="$$PIP_INDEX_URL" UV_FIND_LINKS="$$PIP_FIND_LINKS" $(BIN)/uv
READY := $(VENV)/.installed
FTS := $(VENV)/.fts
MAN := $(VENV)/share/man/man1/dc-inject.1
SERVER_LOCK := dc_inject/sandbox/requirements
LOWEST := .venv-lowest/.installed
DOCS := .venv-docs/.installed
CHART := .venv-chart/.installed
RELEASE := .venv-release/.installed
HELM := helm.sh/helm/v3/cmd/helm@v3.19.0

# The sandbox's Rucio server has an environment of its own, kept in the clone too.
export DC_INJECT_SANDBOX_ENV := $(CURDIR)/.venv-sandbox
# So has XRootD, when the system has none.
export DC_INJECT_SANDBOX_XROOTD := $(CURDIR)/.venv-xrootd
# And Prometheus, which the tests of the alerts need.
export DC_INJECT_TEST_PROMETHEUS := $(CURDIR)/.venv-prometheus
unexport PYTHONPATH PYTHONHOME

.DEFAULT_GOAL := help
.NOTPARALLEL:
# Without bytecode each start of a program compiles it anew, and the tests start hundreds.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test format-check lint types imports all-tests pytest browser format chaos shards trouble bench fuzz hostile twin bounds calibrate simgrid golden size unit coverage lowest releases docs screenshots release release-check released-ledger image production chart venv lock clean

help: ## List what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

demo: $(FTS) $(MAN) ## Bring up a grid with a real Rucio, inject into it, account for every byte (5 min)
	@$(BIN)/dc-inject demo

test: format-check lint all-tests ## Run every check; CI runs exactly this (10 min)

format-check: $(READY) ## Check that the code is formatted
	$(BIN)/ruff format --check .

lint: $(READY) ## Check the code's habits
	$(BIN)/ruff check .

types: $(READY) ## Check the types
	$(BIN)/mypy

imports: $(READY) ## Check who imports whom
	$(BIN)/lint-imports

# Types and imports are checked while tests wait for services. They print only what failed, so that the end of a log
# names the tests that failed.
all-tests: $(READY) ## Run the tests, and check types and imports at a time
	@log=$$(mktemp); trap 'rm -f $$log' EXIT; \
	( nice $(BIN)/mypy; types=$$?; nice $(BIN)/lint-imports; exit $$((types || $$?)) ) >$$log 2>&1 & checks=$$!; \
	$(MAKE) --no-print-directory $(FTS) browser || exit; \
	echo "$(PYTEST)"; $(PYTEST); tests=$$?; \
	wait $$checks; checks=$$?; [ $$checks = 0 ] || cat $$log; exit $$((tests || checks))

PYTEST = $(BIN)/pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder

pytest: $(FTS) browser ## Run the tests, those against the sandbox included
	$(PYTEST)

browser: ## Install Chromium, which tests of pages need, if it is missing: in CI, as root on Debian
	@command -v chromium chromium-browser google-chrome >/dev/null || ! $(MAY_INSTALL) || \
	  ( apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends \
	  chromium fonts-dejavu-core ) >/dev/null || true

unit: $(READY) ## Run the pure and the simulated tests, what you run all day; JOBS=2
	@$(BIN)/python -m tests.unit -q

coverage: $(READY) ## Show which branches of model, planning and ledger the unit tests and the engine's leave out
	@$(BIN)/python -m tests.unit -q --all --cov --cov-report=term --cov-report=html:htmlcov

format: $(READY) ## Format the code, and mend what can be mended without a person
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format .

chaos: $(FTS) ## Break everything around it and count what it lost; SEED=1 SIZE=default (15 min), small or full
	@SEED=$(SEED) SIZE=$(SIZE) $(BIN)/python -m tests.chaos.campaign

shards: $(FTS) ## Run four shards and one injector side by side on the sandbox, kill a shard, and compare (15 min)
	@$(BIN)/python -m tests.e2e.shards

trouble: $(FTS) ## Run five links through troubles of FTS with and without control; OPTIONS='--factor 0.25' is quicker (30 min)
	@$(BIN)/python -m tests.control.trouble $(OPTIONS)

bench: $(FTS) ## Measure planning, rules a second and start-up; prints, judges nothing
	@for one in tests/bench/bench_*.py; do $(BIN)/python -m tests.bench.$$(basename $$one .py) || exit 1; echo; done

fuzz: $(FTS) ## Feed menus, files and answers of services with 100,000 wrong things; SEED= and TIMES= (10 min)
	@DC_INJECT_FUZZ=$(or $(TIMES),26) DC_INJECT_FUZZ_SEED=$(or $(SEED),1) $(BIN)/python -m tests.fuzz

hostile: $(FTS) ## Answer every command in every hostile way; MODE=, ROLE=, COMMAND= choose some (30 min)
	@MODE=$(MODE) ROLE=$(ROLE) COMMAND=$(COMMAND) $(BIN)/python -m tests.hostile

twin: $(READY) ## Run all scenarios in the twin, with SEEDS=5 seeds and two policies; SIZE=full has more (10 min)
	@JOBS=$(JOBS) $(BIN)/python -m tests.apps.twin.scenarios $(or $(SEEDS),5)

bounds: $(READY) ## Compute what a perfect injector could move in each scenario, and search the best constant rates; SCENARIOS= chooses (20 min)
	@JOBS=$(JOBS) $(BIN)/python -m tests.apps.twin.bounds $(SCENARIOS)

calibrate: $(FTS) ## Run a campaign on the sandbox, fit a grid to its ledger, and compare what it predicts, link by link (16 min)
	@$(BIN)/python -m tests.apps.twin.sandbox_check

simgrid: $(READY) ## Compare ten small grids of the twin with SimGrid, which has to be installed (1 min)
	@$(BIN)/python -m tests.apps.twin.simgrid_check

size: $(READY) ## Print code lines of each room beside those of the last tag; COMMIT= chooses another one
	@$(BIN)/python -m tests.size $(COMMIT)

golden: $(FTS) ## Write the golden files anew that tests compare with; see with git what changed
	@DC_INJECT_GOLDEN=write $(BIN)/pytest -q tests/golden $$(grep -rlw wording tests --include='test_*.py')
	@git status --short tests/golden/data

lowest: $(LOWEST) ## Run the tests with the lowest versions that pyproject.toml allows, without FTS's client (15 min)
	.venv-lowest/bin/pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder

# What talks to a real Rucio, with each release of client and server; the lowest client is one of release 38.
REAL := tests/e2e tests/backends/test_real.py tests/backends/suite
releases: $(FTS) $(LOWEST) ## Run the end-to-end tests with the oldest and the newest Rucio, clients and servers (30 min)
	DC_INJECT_SANDBOX_RUCIO=38 DC_INJECT_SANDBOX_ENV=$(CURDIR)/.venv-sandbox-38 $(BIN)/pytest -n $(JOBS) $(REAL)
	.venv-lowest/bin/pytest -n $(JOBS) $(REAL)
	DC_INJECT_SANDBOX_RUCIO=38 DC_INJECT_SANDBOX_ENV=$(CURDIR)/.venv-sandbox-38 .venv-lowest/bin/pytest -n $(JOBS) $(REAL)

docs: $(READY) $(DOCS) ## Write the generated pages anew, and build the site in site/; any broken link is an error
	@$(BIN)/python -m tests.docs
	@$(BIN)/python -m tests.docs.screens
	@NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build --strict --quiet
	@echo "site/index.html"

screenshots: $(READY) browser ## Take the pictures of pages in the docs anew (1 min)
	@$(BIN)/python -m tests.docs.screenshots

release: $(RELEASE) ## Make what is published of the last commit, in dist/: sdist, wheel, SBOM, checksums; twice, and compare (1 min)
	@$(dir $(RELEASE))bin/python -m tests.release.build

release-check: release ## Install what `make release` has made into an empty environment, and run it (6 min)
	@$(dir $(RELEASE))bin/python -m tests.release.check

released-ledger: $(READY) ## Keep a ledger of the version that is released next, which later versions have to go on with
	@$(BIN)/python -m tests.ledger.released

image: $(READY) ## Build the image and let it inject into a sandbox, as root with buildah and mmdebstrap (10 min)
	@$(BIN)/python -m tests.deploy.image

production: $(READY) ## Follow the pages on production in a fresh Debian, to an injector that a Prometheus scrapes, as root (10 min)
	@$(BIN)/python -m tests.deploy.production

chart: $(CHART) ## Render the Helm chart and validate what comes out; the first time Go builds helm (10 min)
	@PATH="$(abspath $(dir $(CHART)))/bin:$$PATH" $(dir $(CHART))bin/python -m tests.deploy.chart

venv: $(FTS) $(MAN) ## Make the tool's environment from its lock; PYTHON=python3.12 chooses the interpreter

$(LOWEST): requirements-lowest.txt
	@echo "making an environment with the lowest versions in $(@D)"
	@rm -rf $(@D)
	@$(PYTHON) -m venv $(@D)
	@$(@D)/bin/pip --quiet --no-input --disable-pip-version-check $(INSTALL_LOCK) -r requirements-lowest.txt
	@$(@D)/bin/pip --quiet --disable-pip-version-check install --no-deps --no-build-isolation -e .
	@touch $@

$(DOCS) $(RELEASE): .venv-%/.installed: requirements-%.txt
	@echo "making an environment for $* in $(@D)"
	@rm -rf $(@D)
	@$(PYTHON) -m venv $(@D)
	@$(@D)/bin/pip --quiet --no-input --disable-pip-version-check $(INSTALL_LOCK) -r $<
	@touch $@

$(CHART): requirements-chart.txt
	@echo "making an environment for the chart in $(@D)"
	@rm -rf $(@D)
	@$(PYTHON) -m venv $(@D)
	@$(@D)/bin/pip --quiet --no-input --disable-pip-version-check $(INSTALL_LOCK) -r requirements-chart.txt
	@command -v helm >/dev/null || GOBIN=$(abspath $(@D))/bin go install $(HELM)
	@touch $@

# A lock is complete, so nothing is resolved anew (--no-deps): pip 23 looks for the newest `coverage[toml]`, whatever is
# pinned, and refuses it for its hash.
$(READY): requirements-dev.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or newer is needed; $(PYTHON) is not. Name one: make PYTHON=python3.12 ..." >&2; exit 1; }
	@echo "making the tool's environment in $(VENV) from its lock (some ten seconds)"
	@rm -rf $(VENV)
	@$(PYTHON) -m venv $(VENV)
	@awk '/^uv==/ {on = 1} on {print} on && !/\\$$/ {exit}' requirements-dev.txt > $(VENV)/uv.txt
	@$(PIP) $(INSTALL_LOCK) -r $(VENV)/uv.txt
	@$(UV) pip install --quiet --python $(BIN)/python --no-deps --require-hashes -r requirements-dev.txt || \
	  $(PIP) $(INSTALL_LOCK) -r requirements-dev.txt
	@$(PIP) install --no-compile --no-deps --no-build-isolation -e .
	@touch $@

# A wheel brings the man pages along, but an editable install does not.
$(MAN): | $(READY)
	@mkdir -p $(@D)
	@ln -sf $(CURDIR)/docs/man/*.1 $(@D)

# M2Crypto, a part of the FTS client, has to be compiled; to optimise it takes fifteen seconds more, and gains nothing here.
# Its swig comes from the lock, and works only without build isolation.
# In CI, as root on Debian, a compiler that is missing is installed.
$(FTS): $(READY) requirements-fts.txt
	@$(COMPILES) || ! $(MAY_INSTALL) || ( $(INSTALL) ) >/dev/null || true
	@if $(COMPILES); then \
	  CFLAGS="$$CFLAGS -O0" PATH="$(abspath $(BIN)):$$PATH" $(PIP) $(INSTALL_LOCK) --no-build-isolation -r requirements-fts.txt && touch $@; \
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

lock: $(READY) ## Write the eleven locks anew, with the newest versions that fit
	$(call locked,requirements.txt,pyproject.toml)
	$(call locked,requirements-dev.txt,pyproject.toml --group dev)
	$(call locked,requirements-docs.txt,--group pyproject.toml:docs)
	@$(UV) pip compile --quiet --resolution lowest-direct --universal --python-version 3.11 --no-header \
	  --no-annotate --output-file $(VENV)/lowest.txt pyproject.toml
	$(call locked,requirements-lowest.txt,pyproject.toml --group test --constraint $(VENV)/lowest.txt)
	$(call locked,requirements-fts.txt,pyproject.toml --extra fts --constraint requirements-dev.txt)
	$(call locked,requirements-chart.txt,--group pyproject.toml:chart)
	$(call locked,requirements-release.txt,--group pyproject.toml:release --constraint requirements-dev.txt)
	$(call locked,requirements-image.txt,pyproject.toml --extra fts --extra xrootd --constraint requirements-fts.txt)
	$(call locked,$(SERVER_LOCK).txt,$(SERVER_LOCK).in)
	$(call locked,$(SERVER_LOCK)-38.txt,$(SERVER_LOCK)-38.in)
	$(call locked,$(SERVER_LOCK)-postgres.txt,$(SERVER_LOCK)-postgres.in --no-deps)

define locked
$(UV) pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes \
	  --custom-compile-command 'make lock' --output-file $(1) $(2)
endef

clean: ## Remove what was made here: environments, caches, builds
	rm -rf .venv .venv-* build dist site htmlcov .coverage *.egg-info .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
	find dc_inject tests -name __pycache__ -type d -prune -exec rm -rf {} +
