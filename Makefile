# Every command of the project; `make help` lists them. `make -C <folder> demo` works from anywhere.
.DEFAULT_GOAL := help
.PHONY: help demo smoke study lab test scale oracle lint env browser lock clean-env

# The Python that makes the environment; an older or a newer one than the project takes is passed over.
PYTHON ?= python3
BIN := .venv/bin

help: ## this list
	@grep -E '^[a-z-]+:.*##' Makefile | sed -E 's/^([a-z-]+):[^#]*## ?/\1	/' | awk -F '\t' '{printf "  make %-10s %s\n", $$1, $$2}'

demo: browser ## environment, browser, then all six notebooks on params/demo.yaml
	@$(BIN)/wevo run --profile demo

smoke: browser ## the same chain at its smallest, on params/smoke.yaml
	@$(BIN)/wevo run --profile smoke

study: browser ## the longer run, on params/study.yaml
	@$(BIN)/wevo run --profile study

lab: browser ## JupyterLab on the notebooks
	@$(BIN)/jupyter lab $(if $(filter 0,$(shell id -u)),--allow-root) notebooks

test: browser lint ## environment, browser, lint and every test, the smoke chain among them
	@$(BIN)/python -m pytest -m "not oracle and not scale and not gpu and not vllm_cpu"

scale: browser ## what a GPU host would do, small and on this CPU: training over processes, in 4 bit, kills
	@$(BIN)/python -m pytest -m scale

oracle: browser ## every task of the local sites, solved by a script through the observation alone
	@$(BIN)/python -m pytest -m oracle

lint: env ## ruff, the order of imports, notebooks without outputs
	@$(BIN)/ruff check .
	@$(BIN)/lint-imports --no-logo
	@set -- notebooks/*.ipynb; if [ -e "$$1" ]; then $(BIN)/nbstripout --verify --keep-id "$$@"; fi

env: ## .venv with every package; the second time it installs nothing
	@$(PYTHON) tools/environment.py env

browser: env ## a Chromium, found or installed
	@$(PYTHON) tools/environment.py browser

lock: env ## requirements.lock: every package of .venv in its version, to make the same environment again
	@$(BIN)/python -m pip freeze --exclude-editable > requirements.lock
	@echo "requirements.lock: $$(wc -l < requirements.lock) packages; pip install --no-deps -r requirements.lock"

clean-env: ## remove .venv
	rm -rf .venv
