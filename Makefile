# Everything a fresh machine needs: `make demo` shows the lab at work, `make test` checks it.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
BENCH  ?= .venv-bench
CLIENTS ?= .venv-clients
WORKERS ?= 2

.PHONY: help setup demo test test-full check bench bench-clients lock clean

help:  ## Show this list
	@grep -hE '^[a-z-]+: .*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

setup:  ## Build .venv with the engine that fits this machine (ENGINE=cpu|cuda|metal overrides)
	@$(PYTHON) requirements/install.py --venv $(VENV)

demo: setup  ## Serve the embedded default model and show what the prefix cache reuses
	@$(BIN)/ctxlab demo

check: setup  ## Lint, types and the arrows between rooms
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: check  ## What CI runs: checks and every quick test, one served model included
	$(BIN)/python -m pytest -m "not full" -n $(WORKERS) --no-loadscope-reorder

test-full: check  ## Every bar, with real models and kills (up to 80 minutes on two cores)
	CTXLAB_FULL=1 $(BIN)/python -m pytest --timeout 3600 -n $(WORKERS) --no-loadscope-reorder

bench: setup $(BENCH)/.ready  ## The client's clock, 200 turns rendered, redaction, packing beside other libraries
	$(BIN)/python -m benchmarks.client_calibration
	$(BIN)/python -m benchmarks.incremental_rendering
	$(BIN)/python -m benchmarks.redaction
	$(BENCH)/bin/python -m benchmarks.packing

bench-clients: setup $(CLIENTS)/.ready  ## How far ours, vLLM's bench and guidellm are from what a stub really sent
	$(BIN)/python -m benchmarks.client_comparison --guidellm $(CLIENTS)/bin/python --out runs/clients

# Its own packages come first; what it lacks (torch) it reads from the lab's environment, which it never changes.
$(CLIENTS)/.ready: requirements/bench-clients.txt | setup
	$(BIN)/python -m venv --clear $(CLIENTS)
	$(CLIENTS)/bin/python -m pip --disable-pip-version-check install -q --no-deps --require-hashes -r $<
	$(BIN)/python -c "import sysconfig; print(sysconfig.get_path('purelib'))" > $$($(CLIENTS)/bin/python -c "import sysconfig; print(sysconfig.get_path('purelib'))")/lab.pth
	touch $@

# The libraries that we compare with, and of our own needs pydantic alone: both sides of a comparison run in one
# process, and nothing that they ask for reaches .venv.
$(BENCH)/.ready: requirements/bench.txt | setup
	$(BIN)/python -m venv --clear $(BENCH)
	$(BENCH)/bin/python -m pip --disable-pip-version-check install -q --no-deps --require-hashes -r $<
	touch $@

lock: ## Resolve the CPU environment anew and rewrite its lock file
	$(PYTHON) requirements/install.py --lock

clean: ## Remove the environments and the caches of the tools
	rm -rf $(VENV) $(BENCH) $(CLIENTS) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache *.egg-info
