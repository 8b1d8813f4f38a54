# One command each: `make demo` shows the main job, `make test` proves it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/ready

.PHONY: test lint types pytest demo clean

test: lint types pytest

$(READY): pyproject.toml tests/constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint tests/constraints.txt torch
	$(BIN)/pip install --quiet --constraint tests/constraints.txt --editable '.[dev,runtime]'
	touch $@

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/black --check --quiet .

types: $(READY)
	$(BIN)/mypy ddpify
	$(BIN)/mypy runtime

pytest: $(READY)
	$(BIN)/python -m pytest $(PYTEST_ARGS)

demo: $(READY)
	@$(BIN)/python fixtures/demo.py

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache
