# Needs make and a Python >= 3.11; every target makes the virtual environment by itself.
#   make serve PORT=9000 ARGS="--speedup-ratio 10"      make test ARGS="tests/unit -x"

PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	command -v $$p >/dev/null && $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
PORT ?= 8000
ARGS ?=
VENV ?= .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip --disable-pip-version-check
RUNTIME := $(VENV)/.runtime
DEV := $(VENV)/.dev
PINS := pyproject.toml constraints.txt

# Each stamp holds the checkout's path: a copied or moved environment, or one whose Python is gone, is made anew.
usable = $(shell "$(PY)" -c '' 2>/dev/null && cat "$(1)" 2>/dev/null)
ifneq ($(call usable,$(RUNTIME)),$(CURDIR))
$(shell rm -f "$(RUNTIME)")
endif
ifneq ($(call usable,$(DEV)),$(CURDIR))
$(shell rm -f "$(DEV)")
endif

.DEFAULT_GOAL := help
.PHONY: help serve test check format bench openapi docs clean

help: ## Show the targets
	@sed -n 's/^\([a-z]*\):.*## /\1 /p' Makefile | while read -r name text; do printf '  make %-8s %s\n' "$$name" "$$text"; done

serve: $(RUNTIME) ## Serve on PORT (8000), with the flags in ARGS
	@exec $(PY) -m app.cli serve --port $(PORT) $(ARGS)

test: $(DEV) ## Run the tests; ARGS goes to pytest
	@exec $(PY) -m pytest $(ARGS)

check: $(DEV) ## Format, lint, types, OpenAPI drift and tests, as CI runs them
	$(PY) -m ruff format --check .
	$(PY) -m ruff check .
	$(PY) -m mypy
	$(PY) -m app.openapi.doc --check
	$(PY) -m pytest $(ARGS)

format: $(DEV) ## Put the source into its form
	$(PY) -m ruff format .
	$(PY) -m ruff check --fix .

bench: $(DEV) ## Run the benchmarks; ARGS picks and tunes them
	@exec $(PY) -m benchmarks $(ARGS)

openapi: $(DEV) ## Write openapi/openapi.json
	$(PY) -m app.openapi.doc --write

docs: $(RUNTIME) ## Write docs/configuration.md
	$(PY) -m app.settings.doc --write

clean: ## Remove the environment and all caches
	rm -rf "$(VENV)" build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(RUNTIME): $(PINS)
	$(call fresh_venv)
	@echo 'Installing what the server needs ...'
	@$(PIP) install --quiet --constraint constraints.txt --editable .
	@printf '%s' "$(CURDIR)" > $@

$(DEV): $(PINS)
	$(call fresh_venv)
	@echo 'Installing what the tests need ...'
	@$(PIP) install --quiet --constraint constraints.txt --editable '.[dev]'
	@printf '%s' "$(CURDIR)" > $(RUNTIME)
	@printf '%s' "$(CURDIR)" > $@

# An environment without any stamp may be half made or another checkout's, unless its Python runs.
define fresh_venv
	@test -n "$(PYTHON)" || { echo 'make: no Python >= 3.11 found; install one or name it: make PYTHON=/path/to/python3' >&2; exit 1; }
	@"$(PY)" -m pip --version >/dev/null 2>&1 || { echo 'Making the virtual environment in $(VENV) ...' && rm -rf "$(VENV)" && "$(PYTHON)" -m venv "$(VENV)"; }
endef
