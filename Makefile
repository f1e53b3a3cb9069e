# make demo | make test: on a fresh machine with Python 3.11 or later, and make. A C++ compiler
# makes the installed package faster; without one everything still passes.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
WORKERS ?= auto
PYTEST_ARGS ?=
# One thread of BLAS for each worker: more would wait for one another.
BLAS := OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1

# The package is installed in editable form: only what these files say needs a new installation.
SOURCES := pyproject.toml CMakeLists.txt $(wildcard src/_native/*)

.PHONY: help demo test test-all test-processors test-sanitizers lint spell links bench docs clean
.DEFAULT_GOAL := help

help: ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 18

demo: $(VENV)/installed-all ## install and run the demo
	$(BIN)/bochner demo

test: $(VENV)/installed-test lint ## install, lint, and run the tests: each law, learner and map once
	$(BLAS) $(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup -m "not slow" $(PYTEST_ARGS)

test-all: $(VENV)/installed-test lint test-processors ## all cases, processors, and sanitizers where there is GCC
	$(BLAS) $(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup $(PYTEST_ARGS)
	if command -v g++ > /dev/null; then $(MAKE) test-sanitizers; fi

test-processors: $(VENV)/installed-test ## the numerical tests as on other processors
	$(BIN)/python tests/processors.py

test-sanitizers: out/sanitizers/built ## the compiled loops under GCC's sanitizers
	$(BLAS) $(BIN)/python tests/sanitizers/run.py

lint: $(VENV)/installed-test ## style, format and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

spell: $(VENV)/installed-test ## spelling of pages, docstrings and messages
	$(BIN)/codespell README.md CONTRIBUTING.md CHANGELOG.md SECURITY.md docs src/bochner benchmarks tests

links: $(VENV)/installed-docs ## links of the pages to other sites, which must answer
	$(BLAS) $(BIN)/python -m sphinx -b linkcheck -D plot_gallery=0 docs docs/_build/links

bench: $(VENV)/installed-test ## time, memory and error of each case, with other libraries in the same run
	$(BIN)/python -m benchmarks

docs: $(VENV)/installed-docs ## the pages, into docs/_build/html; a warning is an error
	rm -rf docs/api/generated
	$(BLAS) $(BIN)/python -m sphinx -b html -W --keep-going docs docs/_build/html

clean: ## remove what the other targets made
	rm -rf $(VENV) build dist out docs/_build docs/api/generated docs/auto_examples .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/installed-all: $(BIN)/python $(SOURCES)
	$(BIN)/python -m pip install --quiet --editable '.[all]'
	touch $@

# The extra `test` holds the extra `all`, so the demo needs nothing more afterwards.
$(VENV)/installed-test: $(BIN)/python $(SOURCES)
	$(BIN)/python -m pip install --quiet --editable '.[test]'
	touch $(VENV)/installed-all $@

$(VENV)/installed-docs: $(BIN)/python $(SOURCES)
	$(BIN)/python -m pip install --quiet --editable '.[docs]'
	touch $@

# Beside the installed package, which stays as it is. RelWithDebInfo keeps names and lines.
out/sanitizers/built: $(VENV)/installed-test $(SOURCES)
	$(BIN)/python -m pip install --quiet --no-deps --upgrade --target out/sanitizers \
	  --config-settings=cmake.define.BOCHNER_SANITIZE=ON \
	  --config-settings=cmake.build-type=RelWithDebInfo .
	touch $@
