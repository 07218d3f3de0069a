# The front door. `make` alone lists the targets.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
# A job file or job id reaches the command as one quoted word, whatever characters it holds.
override JOB := $(value JOB)
export JOB RUNG_HOME
export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)
WANT_JOB = if [ -z "$${JOB:-}" ]; then echo "rung: say which one: make $@ JOB=..." >&2; exit 2; fi

.PHONY: help setup demo test check lint submit queue hosts logs history cancel retry controller lock clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' Makefile

setup: $(VENV)/ready ## Install everything into .venv (done by the targets that need it)

$(VENV)/ready: requirements.lock pyproject.toml
	@echo "Setting up $(VENV) (torch is the large part; only the first time takes long)"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "rung: Python 3.11 or newer is needed (PYTHON=...)" >&2; exit 2; }
	@[ -x $(VENV)/bin/pip ] || $(PYTHON) -m venv $(VENV) || { \
		echo "Installing Python's venv module"; apt-get update -qq && apt-get install -y -qq python3-venv > /dev/null && $(PYTHON) -m venv $(VENV); }
	@$(VENV)/bin/pip install --quiet --disable-pip-version-check --no-input -r requirements.lock
	@$(VENV)/bin/pip install --quiet --disable-pip-version-check --no-input --no-deps --no-build-isolation -e .
	@touch $@

demo: setup ## Watch a real FP16 training fail three times and recover (no GPU needed)
	@rung launch -f jobs/catalog/three-faults/job.yaml
	@echo
	@rung history --diff three-faults
	@echo
	@echo "Look next:"
	@echo "  make queue                        all jobs"
	@echo "  make logs JOB=three-faults        the log of its last attempt"
	@echo "  jobs/catalog/three-faults         the training script and its job file"
	@echo "  make submit JOB=your-job.yaml     a job of your own (docs/job-file.md)"

test: setup ## Run all tests
	@pytest -n auto

check: lint test ## Lint, types and tests: what CI runs

lint: setup ## Ruff and mypy
	@ruff check . && ruff format --check . && mypy

submit: setup ## Submit a job file: make submit JOB=jobs/catalog/.../job.yaml
	@$(WANT_JOB)
	@rung launch -- "$$JOB"

queue: setup ## List the jobs
	@rung queue

hosts: setup ## List the hosts with their GPUs, and who is out of reach
	@rung hosts

logs: setup ## Show a job's log: make logs JOB=id
	@$(WANT_JOB)
	@rung logs -- "$$JOB"

history: setup ## Show a job's recovery history: make history JOB=id
	@$(WANT_JOB)
	@rung history --diff -- "$$JOB"

cancel: setup ## End a job: make cancel JOB=id
	@$(WANT_JOB)
	@rung cancel -- "$$JOB"

retry: setup ## Take up a failed job again: make retry JOB=id
	@$(WANT_JOB)
	@rung retry -- "$$JOB"

controller: setup ## Run the controller in the foreground
	@rung controller

lock: ## Write requirements.lock from what is installed in .venv
	@{ echo "# Exact versions of everything in .venv, written by \`make lock\`."; \
	   $(VENV)/bin/pip list --format=freeze --exclude rung --exclude pip | sed 's/+cpu$$//'; } > requirements.lock.new
	@mv requirements.lock.new requirements.lock

clean: ## Remove what was built here; jobs and their history under RUNG_HOME stay
	@rm -rf $(VENV) build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
