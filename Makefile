# Every target makes .venv by itself and installs again only when the dependencies changed. "make run" installs what a run
# needs; all other targets install what the tests need, too. Python compiles what it imports: compiling everything
# beforehand would take longer than all the rest. It keeps what it compiled, also where the environment says that it
# should not, as in many containers: or else every process would compile torch and all the rest anew, for seconds.
unexport PYTHONDONTWRITEBYTECODE
PYTHON ?= python3
BIN := .venv/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt
# Real FEMNIST and CIFAR-10 for the tests that use them; without it they are skipped, and say so.
ifneq ($(wildcard ../shared/data),)
export FEDCLADE_DATA ?= $(abspath ../shared/data)
endif

# Whatever computes: these tests are repeated as if on other processors.
NUMERICAL := tests/clustering tests/edge tests/fleet tests/metrics tests/scheduling tests/theory \
  tests/test_models.py tests/test_server.py tests/study/test_statistics.py

.PHONY: run test test-slow chaos fuzz test-processors test-avx2 test-no-avx coverage docs lint results bench bench-scale dist test-pythons clean

run: .venv/runs
	$(BIN)/fedclade run quickstart

test: .venv/installed
	$(BIN)/python -m pytest -n 2 --dist worksteal

# Three at a time, since many of them wait for others.
test-slow: .venv/installed
	$(BIN)/python -m pytest -n 3 --dist worksteal -m slow

# No test may hang on how a processor rounds: once as if it had AVX2 but no AVX-512, once as if it had neither.
# "make -j2" runs the two beside each other.
test-processors: test-avx2 test-no-avx

test-avx2: export ATEN_CPU_CAPABILITY = avx2
test-avx2: export ONEDNN_MAX_CPU_ISA = AVX2
test-avx2: export MKL_ENABLE_INSTRUCTIONS = AVX2
test-avx2: export OPENBLAS_CORETYPE = Haswell
test-avx2: export NPY_DISABLE_CPU_FEATURES = X86_V4 AVX512_ICL AVX512_SPR

test-no-avx: export ATEN_CPU_CAPABILITY = default
test-no-avx: export ONEDNN_MAX_CPU_ISA = SSE41
test-no-avx: export MKL_ENABLE_INSTRUCTIONS = SSE4_2
test-no-avx: export OPENBLAS_CORETYPE = Nehalem
test-no-avx: export NPY_DISABLE_CPU_FEATURES = X86_V3 X86_V4 AVX512_ICL AVX512_SPR

test-avx2 test-no-avx: .venv/installed
	$(BIN)/python -m pytest $(NUMERICAL)

coverage: .venv/installed
	$(BIN)/python -m pytest -n 2 --dist worksteal --cov --cov-report=term

lint: .venv/installed
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# The site, into docs/_build/html; a warning is an error.
docs: .venv/installed
	$(BIN)/python -m sphinx -W --keep-going -q -j 2 -b html docs docs/_build/html
	@echo docs/_build/html/index.html

# Every fault that the tests try a share of; goes on where the last time ended. See docs/explanation/reliability.md.
chaos: .venv/installed
	PYTHONPATH=tests $(BIN)/python -m chaos

# The readers under Atheris, a minute each.
fuzz: .venv/installed
	$(INSTALL) -e '.[fuzz]'
	PYTHONPATH=tests $(BIN)/python -m chaos.fuzz all

# Which comparisons of docs/results are stale; these are run anew, and go on where they were stopped. It may take days.
results: .venv/installed
	$(BIN)/python -m benchmarks.results

bench: .venv/installed
	$(BIN)/python -m benchmarks

bench-scale: .venv/installed
	$(BIN)/python -m benchmarks.scale

# Wheel and source archive, into dist/.
dist: .venv/installed
	$(BIN)/python -m hatchling build

# The fast tests with each later Python that this machine has, each in an environment of its own.
# pyenv's are found, too, though their commands alone do not work until PYENV_VERSION names one.
interpreter = $(or $(shell python$(1) -c 'import sys; print(sys.executable)' 2>/dev/null),$(lastword $(wildcard $(HOME)/.pyenv/versions/$(1).*/bin/python)))
test-pythons: $(addprefix .venv-,$(foreach version,3.12 3.13,$(if $(call interpreter,$(version)),$(version))))

.venv-%: pyproject.toml constraints.txt
	$(call interpreter,$*) -m venv $@
	$@/bin/python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt -e '.[dev]'
	$@/bin/python -m pytest -n 2 --dist worksteal
	touch $@

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis .coverage* docs/_build dist .venv-*

.venv/runs: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(INSTALL) -e .
	touch $@

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(INSTALL) -e '.[dev]'
	touch $@ .venv/runs
