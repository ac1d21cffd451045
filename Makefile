# Everything runs from .venv, which is made on first use from Python and the package index alone.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

TORCH := torch==2.13.0
JAX := jax==0.10.2

# What experiment 20 measures beside cairn, apart from Debian's git-lfs, restic, borgbackup and strace.
BENCH := .venv-bench
PEERS := $(TORCH) $(JAX) orbax-checkpoint==0.12.8 dvc==3.67.1 matplotlib==3.11.2

.PHONY: demo test test-torch test-jax test-all lint types check fuzz experiments bench clean

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $(READY)

demo: $(READY)
	$(BIN)/python experiments/demo.py

# One thread of the linear algebra library for each worker: more of them only wait for each other.
test: $(READY)
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist loadscope

# What needs torch: tests/torch is left out where torch is not installed.
test-torch: $(VENV)/.torch
	$(BIN)/python -m pytest tests/torch

# What needs jax: tests/jax is left out where jax is not installed.
test-jax: $(VENV)/.jax
	$(BIN)/python -m pytest tests/jax

test-all: test test-torch test-jax

$(VENV)/.torch: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(TORCH)
	touch $(VENV)/.torch

$(VENV)/.jax: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt $(JAX)
	touch $(VENV)/.jax

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy

check: test lint types

# Coverage-guided fuzzing of what reads other people's files; minutes by FUZZ_SECONDS.
FUZZ_SECONDS ?= 600
fuzz: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check 'atheris>=3.0'
	PYTHONPATH=. $(BIN)/python tests/fuzz/fuzz_formats.py -max_total_time=$(FUZZ_SECONDS) -max_len=8192

experiments: $(READY)
	$(BIN)/python experiments/18-checkpoint-roundtrip/run.py
	$(BIN)/python experiments/19-real-files/measure.py

$(BENCH)/.ready: pyproject.toml constraints.txt Makefile
	$(PYTHON) -m venv $(BENCH)
	$(BENCH)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e . $(PEERS)
	touch $@

# Under 20 minutes; BENCH_OPTIONS='--scale 0.01' for a first look.
bench: $(BENCH)/.ready
	$(BENCH)/bin/python -W ignore experiments/20-commit-speed/bench.py $(BENCH_OPTIONS)

clean:
	rm -rf $(VENV) $(BENCH) store/demo .mypy_cache .ruff_cache .hypothesis
