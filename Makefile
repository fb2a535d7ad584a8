PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
STUDY ?= cpu-chat-$(shell date -u +%Y%m%d-%H%M%S)

.DEFAULT_GOAL := help
.PHONY: chaos bench-overhead help install engine search test test-unit check format docs dashboards dashboards-png bench-engine bench-analyze bench-load bench-search clean

help: ## List the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

$(VENV)/installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/pip install --quiet --editable . --group dev
	touch $@

install: $(VENV)/installed ## Install the harness and its tools into .venv

engine: install ## Install the real SGLang on CPU with a tiny model, in an environment of its own
	$(BIN)/hicache-tune engine install-cpu

search: engine ## Search the settings of the real SGLang on CPU: 8 settings, confirmed, under 15 minutes on 2 cores
	$(BIN)/hicache-tune search --engine cpu --scenario cpu-chat --trials 8 --budget 13m \
		--confirm-top 1 --confirm-rounds 1 --study $(STUDY)

test: engine ## Run all tests: those without an engine side by side, those on the real engine one by one
	$(BIN)/pytest -m 'not live' --numprocesses 2
	$(BIN)/pytest -m live

test-unit: install ## Run the tests that need no engine
	$(BIN)/pytest -m 'not live and not gpu' --numprocesses 2

check: install ## Lint, types, direction of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: install ## Format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: install ## Make the generated pages in docs/ again
	$(BIN)/python -c 'from scripts.docs import write; write()'

dashboards: install ## Make the JSON of the dashboards again
	$(BIN)/python -m dashboards.build

dashboards-png: engine ## Draw the data of every panel into docs/, from a search on the CPU engine
	$(BIN)/python -m scripts.dashboard_pictures

chaos: engine ## Kill processes of a search at random moments, 50 times for each engine
	$(BIN)/pytest tests/chaos --rounds 50

bench-overhead: engine ## Time a trial beyond launch and load
	$(BIN)/python -m tests.bench.overhead

bench-engine: engine ## Time cold, device-hit and host-hit prompts on the CPU engine
	$(BIN)/python -m tests.bench.cpu_engine

bench-analyze: install ## Time the analysis of traces of Mooncake's size and of ten million blocks, on one core
	$(BIN)/python -m tests.bench.analysis

build/bench/installed: tests/bench/load/requirements.txt
	rm -rf build/bench/venv
	$(PYTHON) -m venv build/bench/venv
	build/bench/venv/bin/pip install --quiet -r $<
	touch $@

bench-load: engine ## Compare our load client with others in tokens/s at equal TTFT error; FLAGS=--write-docs keeps it
	$(MAKE) build/bench/installed || echo 'guidellm and aiohttp cannot be installed: their rows are left out' >&2
	$(BIN)/python -m tests.bench.load $(FLAGS)

bench-search: install ## Search recorded grids: how near the best each sampler ends, how often a verdict is false
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.bench.search $(FLAGS)

clean: ## Remove the environment and caches; results and the CPU engine stay
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
