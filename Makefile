# make demo and make test set everything up by themselves; the rest is listed by make help
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/ready

# a file stays with one worker: its tests share what they have fitted
SIDE_BY_SIDE := -n auto --dist loadfile

.PHONY: help demo test test-slow check full wheel-test studies notebooks pictures benchmarks clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' Makefile | sed 's/:.*## /\t/'

# torch first and by its exact version: a range would pull several GB of accelerator packages
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Python 3.11 or newer is needed: make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch==2.13.0
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt setuptools
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --no-build-isolation -e ".[dev]"
	touch $(READY)

demo: $(READY) ## fit, check, simulate and write demo/report.html
	$(BIN)/pulse-pyro demo --out demo

# a worker is one of several: more than one thread of linear algebra each would only get in the way
test test-slow: export OMP_NUM_THREADS = 1
test test-slow: export OPENBLAS_NUM_THREADS = 1
test test-slow: export MKL_NUM_THREADS = 1

test: $(READY) ## run the core tests
	$(BIN)/python -m pytest $(SIDE_BY_SIDE) -m core

test-slow: $(READY) ## run the other tests: pages in a browser, notebooks, the paper, long computations
	$(BIN)/python -m pytest $(SIDE_BY_SIDE) -m "not core"

check: $(READY) ## lint and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

full: $(READY) ## tests that take longer, with the benchmarks
	PULSE_FULL=1 $(MAKE) test test-slow
	$(MAKE) studies benchmarks

wheel-test: ## build the wheel and use it in an environment and a folder of its own
	PYTHON=$(PYTHON) .ci/wheel-test

studies: $(READY) ## coverage of bands and bounds, 500 replications each (about half an hour)
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest tests/studies -s -o addopts="-q"

notebooks: $(READY) ## run the notebooks at full size, in place, then take the pictures out of them
	$(BIN)/jupyter-execute --inplace notebooks/*.ipynb
	$(MAKE) pictures

pictures: $(READY) ## take the pictures of README and guide out of the notebooks
	$(BIN)/python -m tests.pictures

benchmarks: $(READY) ## speed, as ratios measured in one run
	$(BIN)/python -m pytest tests/benchmarks -s -o addopts="-q"

clean: ## remove what make made
	rm -rf .venv demo .pytest_cache .mypy_cache .ruff_cache .hypothesis
