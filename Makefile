# The main commands. `make` alone lists the targets.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
# Pass a job file or job id to the command as one quoted word, whatever characters it holds.
override JOB := $(value JOB)
override LOGS := $(value LOGS)
override CASES := $(value CASES)
override FAULT := $(value FAULT)
override SCRIPT := $(value SCRIPT)
override JOBS := $(value JOBS)
override RESULTS := $(value RESULTS)
export JOB LOGS BY CASES FAULT SCRIPT JOBS RESULTS RUNG_HOME
export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)
WANT_JOB = if [ -z "$${JOB:-}" ]; then echo "rung: say which one: make $@ JOB=..." >&2; exit 2; fi

# Settings of the test fleet and the training image. Programs get these values only through the environment.
NUMBER ?= 1
HOSTS ?= 3
GPUS ?= 1
DOCKER ?= docker
PASSED := NUMBER HOSTS GPUS GPU BASE WITH WHEELS TAG DOCKER BUILD_FLAGS LIMIT ADMIN HOST VARS TAGS CHECK GPU_RESET FAULTS SEED LASTING KEEP ENGINE
# Bash counts in a variable SECONDS of its own.
override SECONDS := $(value SECONDS)
LASTING := $(SECONDS)
$(foreach name,$(PASSED),$(eval override $(name) := $$(value $(name))))
export $(PASSED)
TESTS_NEED := sshd=openssh-server systemd-analyze=systemd busybox=busybox-static chromium=chromium
SYSTEM := $(TESTS_NEED) dockerd=docker.io iptables=iptables debootstrap=debootstrap mkfs.ext4=e2fsprogs ip=iproute2
SYSTEM += slurmctld=slurmctld slurmd=slurmd sbatch=slurm-client munged=munge
SYSTEM += podman=podman crun=crun newuidmap=uidmap catatonit=catatonit
SYSTEM += $(if $(wildcard /sys/kernel/security/apparmor),apparmor_parser=apparmor)

.PHONY: help setup demo drill doctor test test-long test-sample test-again check lint corpus bench chaos bench-gpu gauntlet field-reports field-reports-fleet test-gpu submit queue hosts logs history cancel retry controller web pictures lock audit clean system fleet demo-fleet fleet-down provision provision-check reset controller-install image

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-20s %s\n", $$1, $$2}' Makefile

setup: $(VENV)/ready ## Install everything into .venv (targets that need it run this)

$(VENV)/ready: requirements.lock pyproject.toml
	@echo "Setting up $(VENV) (torch is the large part; only the first time takes long)"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "rung: Python 3.11 or newer is needed (PYTHON=...)" >&2; exit 2; }
	@[ -x $(VENV)/bin/pip ] || $(PYTHON) -m venv $(VENV) || { \
		echo "Installing Python's venv module"; apt-get update -qq && apt-get install -y -qq python3-venv > /dev/null && $(PYTHON) -m venv $(VENV); }
	@$(VENV)/bin/pip install --quiet --disable-pip-version-check --no-input -r requirements.lock
	@$(VENV)/bin/pip install --quiet --disable-pip-version-check --no-input --no-deps --no-build-isolation -e .
	@touch $@

demo: setup ## Watch real FP16 trainings fail and recover: three faults in one run, then an lr that trials find (no GPU needed)
	@rung demo

# Build the parts of the fleet while the first tests run. Run the fleet tests afterwards, because both at once are too much for two cores.
# Many tests mostly wait, so there are more workers than cores. Each worker of the fleet has hosts of its own: there a
# third worker on two cores made the whole slower.
PARALLEL := -n $(shell expr $$(nproc) \* 2) --dist worksteal
FLEET_PARALLEL := -n 2 --dist loadfile
FLEET_TESTS := tests/fleet tests/security/fleet tests/slurm
NO_FLEET := $(addprefix --ignore=,$(FLEET_TESTS))

# Each part keeps a report of what failed, for `make test-again`.
FIRST := python -m tests.again first

# The trackers are in folders of their own, so that they are in no lock file, and no framework finds them in other tests.
TRACKERS := build/trackers
$(TRACKERS)/%/ready: tests/trackers/%.txt requirements.lock | setup
	@echo "Installing the trackers in tests/trackers/$*.txt"; rm -rf $(@D)
	@$(VENV)/bin/pip install --quiet --disable-pip-version-check --no-input --no-deps --target $(@D) -r $<
	@touch $@

test: setup $(TRACKERS)/tensorboard/ready ## Run all tests; RUNG_TEST_FLEET=off leaves out the fleet tests, which need root
ifeq ($(RUNG_TEST_FLEET),off)
	@python -m tests.again plan tests
	@$(MAKE) --no-print-directory system SYSTEM="$(TESTS_NEED)"
	@$(FIRST) tests $(PARALLEL) $(NO_FLEET)
else
	@python -m tests.again plan tests fleet
	@$(MAKE) --no-print-directory system
	@nice python -m tests.fleet prepare & preparing=$$!; \
	$(FIRST) tests $(PARALLEL) $(NO_FLEET) || failed=$$?; \
	wait $$preparing || echo "rung: the fleet's parts could not be made beforehand; its tests try again" >&2; \
	$(FIRST) fleet $(FLEET_PARALLEL) $(FLEET_TESTS) || failed=$$?; \
	exit $${failed:-0}
endif

# The long tests, or the sample of them: first those that need no hosts, then the others.
define LONG_TESTS
	@python -m tests.again plan $(1) $(if $(filter off,$(RUNG_TEST_FLEET)),,$(1)-fleet)
	@$(MAKE) --no-print-directory system $(if $(filter off,$(RUNG_TEST_FLEET)),SYSTEM="$(TESTS_NEED)")
	@$(FIRST) $(1) $(PARALLEL) $(NO_FLEET) -m $(1) || failed=$$?; \
	$(if $(filter off,$(RUNG_TEST_FLEET)),,$(FIRST) $(1)-fleet $(FLEET_PARALLEL) $(FLEET_TESTS) -m $(1) || failed=$$?;) \
	exit $${failed:-0}
endef

test-long: setup $(TRACKERS)/tensorboard/ready $(TRACKERS)/all/ready ## Run the slow tests and repeated cases that `make test` leaves out
	$(call LONG_TESTS,long)

test-sample: setup $(TRACKERS)/tensorboard/ready ## Run a few of the long tests, one of each kind
	$(call LONG_TESTS,sample)

test-again: setup ## Run the tests that have just failed once more, one at a time, and name those that then pass
	@python -m tests.again

check: plan lint test ## Run lint, type checks and tests; CI runs this and `make test-sample`

# Where lint stops everything, no earlier report may be taken for one of these tests.
.PHONY: plan
plan: setup
	@python -m tests.again plan tests

lint: setup ## Run ruff, mypy and ansible-lint
	@(cd ansible && ansible-lint --offline -q) & playbooks=$$!; ruff check .; ruff format --check .; mypy; \
	for script in jobs/catalog/*-*/train.py; do mypy --no-error-summary "$$script" || exit 1; done; \
	wait $$playbooks

drill: setup ## Test this set-up with a toy job that has a real fault: make drill FAULT=nan
	@if [ -z "$${FAULT:-}" ]; then echo "rung: say which one: make drill FAULT=nan|overflow|unscale|collapse|oom|kill" >&2; exit 2; fi
	@rung drill -- "$$FAULT"

doctor: setup ## Find what fails in FP16 in a training script or a folder of them: make doctor SCRIPT=train.py
	@if [ -z "$${SCRIPT:-}" ]; then echo "rung: say which one: make doctor SCRIPT=train.py" >&2; exit 2; fi
	@rung doctor -- "$$SCRIPT"

corpus: setup ## Measure how well Rung detects faults in logs: make corpus [LOGS=folder or file.jsonl] [BY=framework]
	@python -m tests.corpus $${LOGS:+"$$LOGS"} $${BY:+--by "$$BY"}

bench: setup system ## Measure the speed of the detector, of opening curves, of commands and of the page, lead and false alarms of the early warning, following 200 containers
	@command -v rg > /dev/null || { echo "Installing ripgrep, to compare with"; apt-get install -y -qq ripgrep > /dev/null; }
	@python -m tests.bench

chaos: setup $(if $(filter docker slurm,$(ENGINE)),system) ## Inject random faults while random jobs run, and check the invariants: make chaos [ENGINE=docker|slurm] [FAULTS=200] [SEED=n] [SECONDS=s] [KEEP=folder]
	@words=($${ENGINE:+--engine "$$ENGINE"} $${FAULTS:+--faults "$$FAULTS"} $${SEED:+--seed "$$SEED"} $${LASTING:+--seconds "$$LASTING"} $${KEEP:+--keep "$$KEEP"}); \
	[ "$${ENGINE:-}" != docker ] || words+=(--hosts "$$HOSTS"); \
	python -m tests.chaos "$${words[@]}"

gauntlet: setup ## Compare Rung with restarts, FP32 from the start and a blind ladder on real failing trainings: make gauntlet [CASES="name name"]
	@python -m tests.gauntlet --results .bench/gauntlet.jsonl --resume $${CASES:-}

bench-gpu: ## Measure the cost of zero-edit per step on a GPU; needs a Python that has torch with CUDA (PYTHON=...)
	@$(PYTHON) -m tests.bench gpu

# Run each job of the field reports, and for comparison in FP32. Print a row per job and keep it in .bench/field or RESULTS. Arguments are passed unchanged.
FIELD = set -f; words=($${JOBS:+--jobs $$JOBS}); [ -z "$${RESULTS:-}" ] || words+=(--results "$$RESULTS")

field-reports: setup ## Run the jobs of the field reports, which fail and recover, on this machine: make field-reports [JOBS="name name"]
	@$(FIELD); python -m tests.field "$${words[@]}"

field-reports-fleet: setup system ## Run them in containers over SSH on the test fleet: make field-reports-fleet [JOBS="name name"]
	@$(FIELD); python -m tests.field --where fleet "$${words[@]}"

test-gpu: ## Run them on this machine's NVIDIA GPU, in a container over SSH; needs root, dockerd, sshd, torch with CUDA: make test-gpu [JOBS=...]
	@$(FIELD); $(PYTHON) -m tests.field --where gpu --size gpu "$${words[@]}"

submit: setup ## Submit a job file: make submit JOB=jobs/catalog/.../job.yaml
	@$(WANT_JOB)
	@rung launch -- "$$JOB"

validate: setup ## Compare a job's FP16 with FP32: make validate JOB=jobs/catalog/.../job.yaml
	@$(WANT_JOB)
	@rung validate -- "$$JOB"

queue: setup ## List the jobs
	@rung queue

hosts: setup ## List the hosts with their GPUs, and which are unreachable
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

retry: setup ## Restart a failed or cancelled job: make retry JOB=id
	@$(WANT_JOB)
	@rung retry -- "$$JOB"

controller: setup ## Run the controller in the foreground
	@rung controller

web: setup ## Show the jobs as a page in the browser, on this machine only
	@rung web

pictures: setup ## Make README's pictures anew from a real run, and take pictures of the page and of reports into .pictures, wide and narrow, light and dark
	@$(MAKE) --no-print-directory system SYSTEM="chromium=chromium"
	@python -m tests.pictures.recovery
	@python -m tests.pictures.pages

lock: ## Write requirements.lock from the packages in .venv
	@{ echo "# Exact versions of everything in .venv, written by \`make lock\`."; \
	   $(VENV)/bin/pip list --format=freeze --exclude rung --exclude pip | sed 's/+cpu$$//'; } > requirements.lock.new
	@mv requirements.lock.new requirements.lock

# In an environment of its own, so that it is in no lock file.
AUDIT := build/audit
audit: setup ## Ask whether a package in requirements.lock has a known vulnerability, where the database can be reached
	@[ -x $(AUDIT)/bin/pip-audit ] || { $(PYTHON) -m venv $(AUDIT) && \
		$(AUDIT)/bin/pip install --quiet --disable-pip-version-check --no-input pip-audit==2.10.1; } || echo "audit: pip-audit cannot be installed here" >&2
	@python -m tests.audit $(AUDIT)/bin/pip-audit

system: ## Install the programs that a fleet needs (Debian, as root); keeps programs that are already there
	@export PATH="$$PATH:/usr/sbin:/sbin"; lacking=; \
	for pair in $(SYSTEM); do command -v "$${pair%%=*}" > /dev/null || lacking="$$lacking $${pair#*=}"; done; \
	[ -n "$$lacking" ] || exit 0; \
	if [ "$$(id -u)" != 0 ] || ! command -v apt-get > /dev/null; then \
		echo "rung: the tests and the fleet need$$lacking; on Debian, as root: make system" >&2; exit 2; fi; \
	echo "Installing$$lacking"; \
	apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$lacking > /dev/null

fleet: setup system ## Start real hosts on this machine to try things on: make fleet [NUMBER=1] [HOSTS=3] [GPUS=1]
	@python -m tests.fleet up --number "$$NUMBER" --hosts "$$HOSTS" --gpus "$$GPUS"

demo-fleet: setup system ## Run the demo over SSH in containers, on such a fleet: make demo-fleet [NUMBER=1]
	@python -m tests.fleet demo --number "$$NUMBER" --hosts "$$HOSTS" --gpus "$$GPUS"

fleet-down: setup ## Remove that fleet: make fleet-down [NUMBER=1]
	@python -m tests.fleet down --number "$$NUMBER"

# Ansible logs in as ADMIN, by default root, because Rung's own account may not change a host. CHECK=1 only shows what would change.
PLAY = ANSIBLE_CONFIG=ansible/ansible.cfg ansible-playbook --inventory "$${RUNG_HOSTS:-ansible/inventory/hosts.yml}" \
	$${ADMIN:+--extra-vars "provision_user=$$ADMIN"} $${VARS:+--extra-vars "@$$VARS"} $${LIMIT:+--limit "$$LIMIT"} $${TAGS:+--tags "$$TAGS"} $${CHECK:+--check --diff}

provision: setup ## Turn bare machines into hosts, and keep them correct: make provision [LIMIT=host] [ADMIN=root] [CHECK=1]
	@$(PLAY) ansible/site.yml

provision-check: setup ## Report what is wrong with the hosts; changes nothing: make provision-check [LIMIT=host]
	@$(PLAY) ansible/check.yml

reset: setup ## End all jobs' containers on a host and recover it after a hang: make reset HOST=host [GPU_RESET=1]
	@if [ -z "$${HOST:-}" ]; then echo "rung: say which one: make reset HOST=..." >&2; exit 2; fi
	@$(PLAY) --limit "$$HOST" $${GPU_RESET:+--extra-vars reset_gpu=true} ansible/reset_host.yml

controller-install: setup ## Install the controller on this machine, or on LIMIT=host, as a hardened systemd service
	@$(PLAY) ansible/controller.yml

# Build twice, the second time from the cache: the label with torch's kernels can be read only after torch is installed.
image: ## Build the training image: make image GPU=p100|titanrtx|a100|cpu BASE=name@sha256:... [WITH="peft lightning"] (docs/images.md)
	@case "$${GPU:-}" in p100 | titanrtx | a100 | cpu) ;; *) \
		echo "rung: say for which GPU: make image GPU=p100|titanrtx|a100|cpu BASE=..." >&2; exit 2 ;; esac
	@case "$${BASE:-}" in *@sha256:*) ;; *) \
		echo "rung: name the base by its digest: make image GPU=$$GPU BASE=name@sha256:... (docs/images.md)" >&2; exit 2 ;; esac
	@set -f; for name in $${WITH:-}; do \
		grep --quiet --ignore-case --line-regexp --fixed-strings -- "$$name" <(sed 's/==.*//' requirements.lock) || { \
			echo "rung: WITH takes names of packages in requirements.lock, and $$(printf %q "$$name") is none" >&2; exit 2; }; done
	@context=$$(mktemp -d); trap 'rm -rf "$$context"' EXIT; mkdir "$$context/wheels"; cp requirements.lock "$$context"; \
	[ -z "$${WHEELS:-}" ] || cp -- "$$WHEELS"/*.whl "$$context/wheels"; \
	tag=$${TAG:-rung-train:$$GPU}; \
	build() { DOCKER_BUILDKIT=1 "$$DOCKER" build --file Dockerfile --tag "$$tag" --build-arg GPU --build-arg BASE --build-arg WITH --build-arg PIP_INDEX_URL \
		--build-arg PIP_EXTRA_INDEX_URL --build-arg PIP_NO_INDEX $${BUILD_FLAGS:-} "$$@" "$$context"; }; \
	ask() { "$$DOCKER" run --rm --network none --entrypoint cat "$$tag" "/opt/train/$$1"; }; \
	build; torch=$$(ask torch); archs=$$(ask archs); \
	build --quiet --label "rung.gpu=$$GPU" --label "rung.torch=$$torch" --label "rung.cuda.archs=$$archs" > /dev/null; \
	echo "$$tag: torch $$torch, kernels for $${archs:-no GPU}"; \
	echo "Push it, and name it in job files by the digest that the push prints."

clean: ## Remove what was built here; jobs and their history under RUNG_HOME stay
	@rm -rf $(VENV) .bench .pictures build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
