# Two commands: `make run` and `make test`. The rest is for those who build redrive.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# One more than two cores have: tests wait for engines and disks.
JOBS ?= 3

.DEFAULT_GOAL := help
.PHONY: help run test test-fast check format chaos bench engines clean wheel check-extras

help: ## What can be made
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

$(READY): pyproject.toml dev/constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("redrive needs Python 3.11 or newer; say: make PYTHON=python3.12") if sys.version_info < (3, 11) else None'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing redrive and its tools into $(VENV)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint dev/constraints.txt --editable '.[all]' $$($(PYTHON) dev/requirements.py)
	@touch $@

run: $(READY) ## A live demonstration on redrive.db, which then stays up
	@exec $(BIN)/redrive demo --stay

# Who is done takes over what others have before them. Compiled files are kept: a run starts hundreds of interpreters.
test: $(READY) ## Every test
	@PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n $(JOBS) --dist worksteal

test-fast: $(READY) ## The embedded tests without kills and engines: under a minute
	@$(BIN)/python -m pytest -n $(JOBS) -m 'not engine' tests/unit tests/contract tests/journey

check: $(READY) ## Style, types, layers
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/lint-imports --no-cache

format: $(READY) ## Put the code into shape
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

chaos: $(READY) ## Thousands of kills and generated command sequences
	@REDRIVE_CHAOS=1 $(BIN)/python -m pytest -n $(JOBS) --timeout 3600 tests/chaos tests/contract tests/unit/test_engines.py

bench: $(READY) ## The table of ratios, also as JSON and SVG
	@$(BIN)/python -m bench

engines: $(READY) ## Redis and PostgreSQL until Ctrl-C, with their URLs; others: make engines ENGINES="kafka mongodb"
	@exec $(BIN)/python -m dev.engines up $(ENGINES)

check-extras: $(READY) ## Each extra by itself, from the wheel, in an empty environment
	@$(BIN)/python -m dev.extras

wheel: $(READY) ## Build the wheel
	@$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist .

clean: ## Remove what was built
	rm -rf $(VENV) dist build .mypy_cache .ruff_cache .pytest_cache
