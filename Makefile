# `make` lists what there is; studies/Makefile has benchmarks, studies, and drills. Each target sets up what it needs, in .venv and target/, and only when its inputs changed.
# Needed on the machine: Python 3.11 or newer and Rust (cargo, see kernel/Cargo.toml). Java 17 or newer is for Spark alone, a
# PostgreSQL server's programs are for tests and drills of that ledger: what needs one that is missing is skipped and says so.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test test-core test-thorough lint lint-python lint-kernel docs wheel local-wheel develop clean require-python require-cargo require-java

ifndef PYTHON
PYTHON := $(shell command -v python3 || echo python3)
endif
VENV := .venv
WORKERS := 3
BIN := $(VENV)/bin
DONE := $(VENV)/.done
EXTRAS := all
DEV := $(DONE)/dev-$(EXTRAS)
JAVA := command -v java >/dev/null || [[ -x "$${JAVA_HOME:-none}/bin/java" ]]
POSTGRES := compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null || command -v initdb >/dev/null
KERNEL := Cargo.toml Cargo.lock $(shell find kernel -type f)
export PATH := $(CURDIR)/$(BIN):$(PATH)
export VIRTUAL_ENV := $(CURDIR)/$(VENV)
unexport CONDA_PREFIX
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export DAGSTER_DISABLE_TELEMETRY := yes

help: ## List the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+):.*## (.*)/  make \1\t\2/' | expand -t 24

demo: $(DONE)/kernel ## Release a generated table in three forms, then show a planted bug being stopped
	@$(BIN)/dptext demo

test: $(DONE)/kernel $(DEV) ## Run the tests (Rust, then Python), but for those marked thorough
	@{ $(JAVA); } || echo "no Java on this machine: Spark's tests are skipped (on Debian: apt-get install openjdk-17-jre-headless)"
	@{ $(POSTGRES); } || echo "no PostgreSQL on this machine: tests of that ledger are skipped (on Debian: apt-get install postgresql)"
	@cargo test --quiet --locked --package dptext-kernel --no-default-features --features plugin
	@$(BIN)/python -m pytest --numprocesses $(WORKERS) --dist loadfile -m "not thorough" --durations 40 --durations-min 5

test-core: $(DONE)/kernel $(DEV) ## Run the core's quick tests alone, without the other two packages, torch, and Spark
	@$(BIN)/python -m pytest tests --core --numprocesses $(WORKERS) --dist loadfile -m "not thorough and not slow"

test-thorough: $(DONE)/kernel $(DEV) ## Run every test at its longest, then as other machines would (hours)
	@cargo test --quiet --locked --package dptext-kernel --no-default-features --features plugin
	@HYPOTHESIS_PROFILE=thorough $(BIN)/python -m pytest --numprocesses $(WORKERS) --dist loadfile -m "not alone" --timeout 7200
	@HYPOTHESIS_PROFILE=thorough $(BIN)/python -m pytest -m alone
	@.ci/lanes --all

lint: lint-python lint-kernel ## Check style, types, import directions and the kernel's lints

lint-python: $(DONE)/kernel $(DEV)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/lint-imports
	@$(BIN)/mypy
	@$(BIN)/mypy studies/*.py studies/benchmarks/*.py

lint-kernel: | require-cargo
	@cargo fmt --check
	@cargo clippy --quiet --locked --all-targets -- -D warnings

docs: $(DONE)/kernel $(DEV) ## Write the generated parts of docs/, and build the documentation into site/
	@PYTHONPATH=studies $(BIN)/python -m generators
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --site-dir site 2>&1 | grep -v "^INFO" || [[ $${PIPESTATUS[0]} == 0 ]]
	@echo "documentation: site/index.html"

local-wheel: $(DONE)/kernel ## Build the core's wheel for machines like this one into dist/ (seconds after `make develop`)
	@rm -f dist/dptext_etl-*.whl dist/SHA256SUMS
	@$(BIN)/maturin build --quiet --release --locked --out dist
	@cd dist && sha256sum *.whl | tee SHA256SUMS

wheel: $(DONE)/venv | require-cargo ## Build wheels, sdist, and SHA256SUMS into dist/, install each in an empty environment and try it
	@.ci/wheel

develop: $(DONE)/kernel $(DEV) ## Set up .venv for development (EXTRAS=core: without torch and Spark)
	@echo "ready: . $(BIN)/activate"

clean: ## Remove what was built, .venv included
	rm -rf $(VENV) .venv-* target dist site demo-output .dagster_home .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dptext_etl/*.so

require-python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	|| { echo "dptext_etl needs Python 3.11 or newer: install it, or name one that is there with 'make PYTHON=/path/to/python3.11 …'" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null \
	|| { echo "dptext_etl needs Python's venv module to set up: install it (on Debian: apt-get install python3-venv)" >&2; exit 1; }

require-cargo:
	@wanted=$$(sed -n 's/^rust-version = "\(.*\)"/\1/p' kernel/Cargo.toml); there=$$(cargo --version 2>/dev/null || true); \
	printf 'cargo %s\n%s\n' "$$wanted" "$${there:-none}" | sort --version-sort --check=quiet && [[ -n "$$there" ]] \
	|| { echo "dptext_etl needs Rust (cargo) $$wanted or newer to build its kernel: install it from rustup.rs" >&2; exit 1; }

require-java:
	@{ $(JAVA); } || { echo "Spark needs Java 17 or newer: install it (on Debian: apt-get install openjdk-17-jre-headless)" >&2; exit 1; }

$(DONE)/venv: | require-python
	@echo "setting up $(VENV)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --upgrade pip uv
	@mkdir -p $(DONE) && touch $@

$(DONE)/run: pyproject.toml constraints.txt | $(DONE)/venv
	@echo "installing what runs need"
	@.ci/install dagster gx
	@touch $@

$(DONE)/dev-all: pyproject.toml models/pyproject.toml eval/pyproject.toml constraints.txt .ci/install | $(DONE)/run
	@echo "installing what development needs (with torch: several gigabytes; EXTRAS=core leaves torch and Spark out)"
	@.ci/install dagster gx spark allocation models eval dev
	@touch $@

$(DONE)/dev-core: pyproject.toml constraints.txt .ci/install | $(DONE)/run
	@echo "installing what development of the core needs"
	@.ci/install dagster gx allocation dev
	@touch $@

$(DONE)/kernel: $(KERNEL) pyproject.toml $(DONE)/run | require-cargo
	@echo "building the kernel (the first time takes a minute or two)"
	@$(BIN)/maturin develop --quiet --release --locked --uv
	@touch $@
