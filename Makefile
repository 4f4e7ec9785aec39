# Every target sets up .venv by itself; only Python >= 3.11 with pip and venv must be there. `make help` lists them.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help demo lab test check bench gpu docs dev-setup tools labextension vscode clean format

VENV := .venv
BIN := $(VENV)/bin
# The first interpreter that is new enough. Choose another with: make PYTHON=/path/to/python ...
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python3.14 python; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { command -v $$p; break; }; done)
# Thousands of processes of the tests read the same modules: each is compiled once, whatever the shell says.
unexport PYTHONDONTWRITEBYTECODE
WORKERS ?= $(shell getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)
PYTEST_ARGS ?=

say = @printf '\033[1;36m>\033[0m %s\n'
pip = $(BIN)/python -m pip install --quiet --disable-pip-version-check

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(VENV)/.core ## compile and run the tour on this machine's best target, write demo/
	$(say) "Running the demo on this machine's best target"
	@$(BIN)/tessera demo

lab: $(VENV)/.labextension ## open JupyterLab on examples/00_tour.ipynb
	$(say) "Opening JupyterLab on examples/00_tour.ipynb (Ctrl-C twice to stop)"
	@$(BIN)/tessera lab

test: $(VENV)/.dev $(VENV)/.labextension ## run every test that this machine can run
	@scripts/ensure-test-tools
	$(say) "Running the tests on $(WORKERS) workers"
	@$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal --timeout 300 --durations 20 $(PYTEST_ARGS)

check: $(VENV)/.dev ## lint, formatting, types, import contracts
	$(say) "Lint (ruff check)"
	@$(BIN)/ruff check
	$(say) "Formatting (ruff format; mend with: make format)"
	@$(BIN)/ruff format --check
	$(say) "Types (pyright, strict on tessera/compiler, tessera/language and tessera/editor)"
	@$(BIN)/pyright
	$(say) "Import contracts (lint-imports)"
	@$(BIN)/lint-imports --no-logo

format: $(VENV)/.dev ## apply ruff's formatting and safe fixes
	@$(BIN)/ruff check --fix --quiet; $(BIN)/ruff format

bench: $(VENV)/.dev ## measure the figures in benchmarks/
	$(say) "Running the benchmarks"
	@$(BIN)/python -m benchmarks

# The machine of a GPU brings its own Python: GPU_PYTHON is the first on the path, and nothing is installed.
GPU_PYTHON ?= python3
STAGE ?=
gpu: ## bring up this machine's GPU: STAGE=smoke|tests|sanitizer|table, OUT=folder, ARGS="--retry" (docs/cuda.md)
	$(say) "Results are written as they come; the whole ends within ten minutes"
	@$(GPU_PYTHON) -m benchmarks.ladder $(STAGE) $(if $(OUT),--out "$(OUT)") $(ARGS)

docs: $(VENV)/.dev ## build the documentation into site/
	$(say) "Building the documentation into site/"
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict # --quiet would hide broken links from --strict
	$(say) "Open site/index.html"

dev-setup: $(VENV)/.dev $(VENV)/.labextension ## everything for development into .venv
	@scripts/ensure-test-tools
	$(say) "Ready: source $(BIN)/activate"

tools: ## what development needs beside Python's packages: a browser, editors, Node's packages
	@scripts/ensure-test-tools
	@scripts/ensure-node-modules

labextension: $(VENV)/.labextension ## build what shows hints in %%tessera cells (needs Node)

vscode: $(VENV)/.vscode ## build the VS Code extension, vscode/dist/tessera.vsix (needs Node)
	@scripts/build-vscode $(BIN)/python
	$(say) "Install it with: code --install-extension vscode/dist/tessera.vsix"

clean: ## remove what make made, .venv too
	@rm -rf $(VENV) jupyter_ext/tessera_jupyter/labextensions jupyter_ext/labextension/node_modules
	@rm -rf vscode/dist vscode/node_modules site demo build dist .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	$(say) "Removed .venv and every build output"

$(BIN)/python:
ifeq ($(strip $(PYTHON)),)
	$(error No Python >= 3.11 found. Install one, or say where it is: make PYTHON=/path/to/python ...)
endif
	$(say) "Creating $(VENV) with $(PYTHON)"
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); echo "python -m venv failed; on Debian and Ubuntu: apt install python3-venv"; exit 1; }

# Stamps: pip runs only when pyproject.toml has changed since.
$(VENV)/.core: pyproject.toml | $(BIN)/python
	$(say) "Installing Tessera with its core dependencies (under a minute)"
	@$(pip) -e '.[plot]' && touch $@

$(VENV)/.lab: $(VENV)/.core
	$(say) "Installing JupyterLab, the language server and NVRTC"
	@$(pip) -e '.[jupyter,nvrtc]' && touch $@

$(VENV)/.dev: pyproject.toml | $(BIN)/python
	$(say) "Installing everything for development (about 2 GB, a minute or more)"
	@$(pip) --no-compile -e '.[dev]' && touch $@ $(VENV)/.core $(VENV)/.lab $(VENV)/.vscode # most modules are never imported

$(VENV)/.vscode: $(VENV)/.core
	@$(pip) -e '.[vscode]' && touch $@

LABEXTENSION := jupyter_ext/labextension
$(VENV)/.labextension: $(wildcard $(addprefix $(LABEXTENSION)/,*.json src/*.ts style/* schema/*)) | $(VENV)/.lab
	$(say) "Building the JupyterLab extension"
	@scripts/build-labextension && touch $@
