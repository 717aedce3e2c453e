# Every target makes .venv by itself and installs again only when the dependencies changed.
PYTHON ?= python3
BIN := .venv/bin
# Real FEMNIST and CIFAR-10 for the tests that use them; without it they are skipped, and say so.
ifneq ($(wildcard ../shared/data),)
export FEDCLADE_DATA ?= $(abspath ../shared/data)
endif

.PHONY: run test test-slow coverage lint bench clean

run: .venv/installed
	$(BIN)/fedclade run quickstart

test: .venv/installed
	$(BIN)/python -m pytest -n 2 --dist worksteal

test-slow: .venv/installed
	$(BIN)/python -m pytest -n 2 --dist worksteal -m slow

coverage: .venv/installed
	$(BIN)/python -m pytest -n 2 --dist worksteal --cov --cov-report=term

lint: .venv/installed
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: .venv/installed
	$(BIN)/python -m benchmarks

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis .coverage*

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@
