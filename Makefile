# One command each: `make demo` shows the main job, `make test` proves it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SUDO := $(if $(filter 0,$(shell id -u)),,sudo)
READY := $(VENV)/ready

.PHONY: test lint types browser pytest golden gpu demo docs pictures dist vscode clean

test: lint types pytest

$(READY): pyproject.toml tests/constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint tests/constraints.txt torch
	$(BIN)/pip install --quiet --constraint tests/constraints.txt --editable '.[dev,docs,mcp,runtime,server,verify]'
	touch $@

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/black --check --quiet .

types: $(READY)
	$(BIN)/mypy ddpify
	$(BIN)/mypy runtime

# The report of `ddpify verify --html` is opened in a real browser.
browser:
	@for name in chromium chromium-browser google-chrome; do \
	  if command -v $$name >/dev/null; then exit 0; fi; \
	done; \
	$(SUDO) apt-get update -qq && \
	$(SUDO) apt-get install -y -qq --no-install-recommends chromium >/dev/null

pytest: $(READY) browser
	$(BIN)/python -m pytest -n 2 --dist loadgroup $(PYTEST_ARGS)

# What a CPU cannot show; without a GPU it says so, and that is all. docs/gpu.md has the results.
gpu: $(READY)
	$(BIN)/python -m pytest -s -m gpu tests/gpu

# The diffs of the fixtures, after a change that is meant: read them before you commit them.
golden: $(READY)
	GOLDEN=write $(BIN)/python -m pytest -q tests/golden

demo: $(READY)
	@$(BIN)/python fixtures/demo.py

# The site, into build/site; the tests build it, too. With a server: `.venv/bin/python -m mkdocs serve`.
docs: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict
	@echo "build/site/index.html"

# The report that the tutorial shows, of a run of now.
pictures: $(READY) browser
	$(BIN)/python docs/pictures/make.py

# Wheel and sdist, as the release workflow builds and checks them, in an environment of its own.
dist: $(READY)
	rm -rf build dist
	$(PYTHON) -m venv $(VENV)/dist
	$(VENV)/dist/bin/pip install --quiet build twine
	$(VENV)/dist/bin/python -m build --outdir dist .
	$(VENV)/dist/bin/twine check --strict dist/*

# The extension for VS Code, editors/vscode/ddpify.vsix; needs node and npm.
vscode:
	cp LICENSE editors/vscode/LICENSE
	cd editors/vscode && npm ci --no-audit --no-fund && npm run bundle && npm run package

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache
