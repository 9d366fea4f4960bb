.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export OMP_NUM_THREADS ?= 1
export DO_NOT_TRACK ?= 1
export TOKENIZERS_PARALLELISM ?= false

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: $(VENV)/.installed ## Make the virtual environment with everything in it

$(VENV)/.installed: pyproject.toml constraints.txt
	@echo "Installing into $(VENV) (a few minutes the first time) ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install --quiet --constraint constraints.txt torch
	@$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[local,dev]'
	@touch $@

demo: install ## Watch a model learn to search: no key, no GPU, about 5 minutes
	$(BIN)/python flows/train_search_r1.py --profile local --run-name demo

test: install ## Run the tests
	$(BIN)/python -m pytest -n auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder
	$(BIN)/python -m pytest -m "browser and not slow"

test-learning: install ## Train with three seeds and check that the policy learns (slow)
	$(BIN)/python -m pytest -m learning -s

test-faults: install ## Kill and break a training at every point and start it again (slow)
	$(BIN)/python -m pytest tests/faults -m "faults or not faults" -n auto --maxprocesses 4 --dist load

bench: install ## Measure: data preparation, search, warehouse
	$(BIN)/python -m benchmarks.search
	$(BIN)/python -m benchmarks.prepare
	$(BIN)/python -m benchmarks.warehouse

lint: install ## Check style and types (ruff, pyright)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

format: install ## Put the code into the house style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

server: install ## Start the Prefect server; its UI is at http://127.0.0.1:4200
	$(BIN)/prefect server start

clean: ## Remove prepared data and runs
	rm -rf data runs

.PHONY: help install demo test test-learning test-faults bench lint format server clean
