.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.NOTPARALLEL:  # what is missing is said before anything is installed
MAKEFLAGS += --no-builtin-rules
# Where images set it, each of the six processes of a run would compile all our modules anew.
unexport PYTHONDONTWRITEBYTECODE

PYTHON ?= $(shell command -v python3.11 || echo python3)
VENV := .venv
BIN := $(VENV)/bin

# A sweep of the paper: make sweep MODEL=llama3-8b [BENCHMARK=kamel] [RUN=name] [CLUSTER=slurm] [ARGS='seed=1 …']
BENCHMARK ?= myriadlama
CLUSTER ?= local
KILLS ?= 500
NIGHTLY ?= demo
sweep_arguments = model=$(MODEL) benchmark=$(BENCHMARK) sweep=paper $(if $(RUN),run_name=$(RUN)) cluster=$(CLUSTER) $(ARGS)

# What loads the same weights, or the same Ray, is in one process; the rest, by module, fill the others. Fast tests wait
# for a Ray or a server now and then, and are shared by three; the others, by two, fill two cores by what they start.
PYTEST := $(BIN)/pytest --no-loadscope-reorder
FAST := not slow and not faults and not browser and not chaos
# A CPU without AVX-512, and one without AVX2: other kernels add in another order, and `auto` is float32.
AVX2 := ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 OPENBLAS_CORETYPE=Haswell
OLDER := ATEN_CPU_CAPABILITY=default ONEDNN_MAX_CPU_ISA=SSE41 OPENBLAS_CORETYPE=Prescott
# What computes with torch or NumPy, whose kernels they choose, and where `auto` is settled.
KERNELS := tests/operators/engines tests/operators/metrics tests/operators/estimates
NUMBERS := $(KERNELS) tests/pipeline/cluster tests/pipeline/machine tests/pipeline/test_encoder.py tests/pipeline/test_run.py

.PHONY: help setup demo test quick doctest test-rest test-narrow test-all check format docs sweep plan rehearse status verify nightly chaos \
	bench clean need-model

help:  ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup:  ## Make .venv from the lock files, or bring it up to date: [DEVICE=cpu|cuda] [PYTHON=python3.11]
	@$(PYTHON) requirements/install.py $(DEVICE)

demo: setup  ## Run the whole pipeline on the mini data sets: no GPU, account or download
	@$(BIN)/factsweep run sweep=demo
	@echo "the command is $(BIN)/factsweep; to have it on the path: source $(BIN)/activate"

test: setup  ## Run the checks, the examples in docstrings and the fast tests
	@$(MAKE) --no-print-directory --output-sync --jobs=2 check doctest
	@$(PYTEST) -n 3 -m "$(FAST)"

quick: setup  ## Run the checks, and the fast tests of what was changed: [SINCE=HEAD]
	@$(BIN)/mypy & types=$$!; \
	$(BIN)/ruff format --check . && $(BIN)/ruff check -q . && $(BIN)/lint-imports >/dev/null || { kill $$types; exit 1; }; \
	tests=$$($(BIN)/python tests/changed.py $(SINCE)); \
	if test -n "$$tests"; then $(PYTEST) -n 3 -q -m "$(FAST)" $$tests || test $$? = 5; fi && wait $$types

doctest: setup  ## Run the examples in docstrings
	@$(BIN)/pytest -q --doctest-modules factsweep/operators factsweep/pipeline

test-rest: setup  ## Run all other tests: sweeps, faults, a browser, laws on many examples
	@$(PYTEST) -n 2 -m "(slow or faults or browser or many) and not chaos" --hypothesis-profile=many --durations=25

test-narrow: setup  ## Run the fast tests of numbers and engines as on CPUs without AVX-512, and without AVX2
	@# On a CPU without AVX-512, `make test` has just run them so.
	@if grep -qm1 avx512f /proc/cpuinfo; then $(AVX2) $(PYTEST) -n 3 -q -m "$(FAST)" $(NUMBERS); fi
	@# vLLM needs AVX2: what torch compiles for it does not compile without.
	@$(OLDER) $(PYTEST) -n 3 -q -m "$(FAST)" --ignore-glob='*vllm*' $(KERNELS)

test-all: test test-narrow test-rest  ## Run everything that continuous integration runs

check: setup  ## Format, lint, types and layers; changes nothing
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

format: setup  ## Format the code and fix what ruff can fix
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

docs: setup  ## Build the documentation as a site, build/site/; links and code that lead nowhere fail it
	@cmp -s requirements/docs.txt $(VENV)/.docs || { \
		$(BIN)/python -m pip --disable-pip-version-check install -q --no-deps -r requirements/docs.txt \
		&& cp requirements/docs.txt $(VENV)/.docs; }
	@$(BIN)/python docs/site/build.py

sweep: need-model setup  ## Run a sweep of the paper: MODEL=llama3-8b [BENCHMARK=…] [RUN=…] [CLUSTER=…] [ARGS=…] [DRY_RUN=1]
	@$(BIN)/factsweep launch $(if $(DRY_RUN),--dry-run) $(sweep_arguments)

plan: need-model setup  ## Say what that sweep would compute, and what is complete already
	@$(BIN)/factsweep plan $(sweep_arguments)

rehearse: need-model setup  ## Run that sweep with made-up answers, without GPU, weights or network: one kill, one resume
	@$(BIN)/factsweep rehearse model=$(MODEL) benchmark=$(BENCHMARK) sweep=paper $(ARGS)

status: need-model setup  ## Say how far that sweep is
	@$(BIN)/factsweep status $(sweep_arguments)

verify: need-model setup  ## Read every shard of that sweep: whole, complete, nothing twice
	@$(BIN)/factsweep verify $(sweep_arguments)

nightly: setup  ## Run a nightly of conf/nightly/ and compare it with its baseline: [NIGHTLY=demo]
	@$(BIN)/factsweep nightly $(NIGHTLY)

chaos: setup  ## What CI has no time for: KILLS deaths, pauses and wrong clocks, 1,000 harmed files, each harm in each place
	@FACTSWEEP_KILLS=$(KILLS) $(BIN)/pytest tests/faults/test_kills.py
	@FACTSWEEP_MUTATIONS=1000 $(BIN)/pytest tests/pipeline/test_reads.py -k mutation
	@$(PYTEST) -n 2 -m chaos --ignore=tests/faults/test_kills.py

bench: setup  ## Measure speed and memory: every bench_*.py in benchmarks/
	@failed=; for script in $(sort $(wildcard benchmarks/bench_*.py)); do \
		echo "== $$script"; $(BIN)/python "$$script" || failed="$$failed $$script"; \
	done; test -z "$$failed" || { echo "failed:$$failed" >&2; exit 1; }

clean:  ## Remove caches and build products; keep .venv, artifacts/ and results/
	@rm -rf build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis .cache outputs
	@find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +

need-model:
	@test -n "$(MODEL)" || { echo "MODEL is missing; one of:"; ls conf/model | sed 's/\.yaml$$//; s/^/  /'; exit 2; } >&2
