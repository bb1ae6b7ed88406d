# Needs Python 3.11 or later and make; everything else goes into $(VENV), once.
PYTHON ?= python3
VENV ?= .venv-make
TEST_EXTRAS ?= examples,fast,test
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --editable

.PHONY: help demo test smoke lint docs bench bench-gpu clean
.NOTPARALLEL:
.DELETE_ON_ERROR:

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' Makefile | sed -E 's/:.*## /	/'

demo: $(VENV)/.examples  ## train word2vec, print neighbours, draw word2vec.png
	$(BIN)/python -m examples.word2vec train --min-count 25 --dim 64 --epochs 12 --plot word2vec.png

test: $(VENV)/.test  ## every test, on two processes; the laws on both adapters
	$(BIN)/python -m pytest -n 2
	TINYGRAD_SPARSE_BACKEND=numpy $(BIN)/python -m pytest -n 2 tests/test_laws.py tests/test_engine.py

smoke: $(VENV)/.test  ## docs, floors and docstrings: under a minute
	$(BIN)/python -m pytest -n 2 tests/test_readme.py tests/test_floors.py tinygrad_sparse

lint: $(VENV)/.lint  ## format, style and types
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy tinygrad_sparse

docs: $(VENV)/.test  ## the pages that are made from the code
	$(BIN)/python docs/make_operators.py

bench: $(VENV)/.examples  ## the benchmarks, as tables of ratios and a chart in docs/benchmarks
	$(BIN)/python -m benchmarks --out docs/benchmarks

bench-gpu: $(VENV)/.test  ## the kernels on a GPU: tests, ceilings, and a table of fractions of them
	$(BIN)/python -m benchmarks.gpu

clean:  ## remove the environment that make made, and the caches
	rm -rf .venv-make dist build .hypothesis .mypy_cache .pytest_cache .ruff_cache

# Never cleared: a VENV that is given may be somebody's, and one that was left half made is completed.
# Stamps: a set of extras is installed again only when pyproject.toml changes.
$(VENV)/.venv:
	$(PYTHON) -m venv $(VENV)
	touch $@

$(VENV)/.examples: pyproject.toml | $(VENV)/.venv
	$(INSTALL) '.[examples,fast]'
	touch $@

$(VENV)/.test: pyproject.toml | $(VENV)/.venv
	$(INSTALL) '.[$(TEST_EXTRAS)]'
	touch $@

$(VENV)/.lint: pyproject.toml | $(VENV)/.venv
	$(INSTALL) '.[lint]'
	touch $@
