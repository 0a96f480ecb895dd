# One command each; every one does its own set-up on a machine that never saw the project.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
MAKEFLAGS += --no-print-directory
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

JOBS ?= $(shell nproc)
VENV := .venv
VENV2 := .venv-pandas2
PY := $(VENV)/bin/python
export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)

BENCH_AGAINST ?= HEAD
# Failed Python tests of `make test` that are run once more and listed as flaky if they pass then.
RETRIES ?= 0
# Of `make test`: its last stage (TSan) is skipped, and listed, if those before it took longer than this many seconds.
LAST_BEGINS_WITHIN ?= inf

.PHONY: help setup build cpp-tests test test-fast test-full test-exhaustive test-pandas2 lint format demo demo-failover demo-k8s control-plane bench bench-quick soak fuzz wheel wheel-test sdist-test lock clean

help:  ## this list
	@grep -hE '^[a-z0-9-]+:.*?## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+):.*## /\1\t/' | expand -t 14

setup: $(VENV)/.developed  ## system packages checked, virtual environment made, the package installed from its sources

# The order-only prerequisite says what the machine lacks before anything is downloaded.
.PHONY: system-check
system-check:
	@bash tools/system_check.sh

$(VENV)/.synced: requirements.lock | system-check
	@bash tools/sync_venv.sh $(VENV) requirements.lock
	@touch $@

$(VENV)/.developed: $(VENV)/.synced pyproject.toml
	@bash tools/develop_install.sh $(VENV)
	@touch $@

$(VENV2)/.developed: requirements-pandas2.lock pyproject.toml | system-check
	@bash tools/sync_venv.sh $(VENV2) requirements-pandas2.lock
	@bash tools/develop_install.sh $(VENV2)
	@touch $@

build: setup  ## the daemon and the extension, built and put beside the Python sources
	@bash tools/build.sh dev product $(JOBS)

cpp-tests: setup  ## the daemon, the extension and the C++ tests
	@bash tools/build.sh dev all $(JOBS)

test-fast: cpp-tests  ## C++ units, Python units that are not slow; under two minutes
	@$(PY) tools/run_tests.py fast

test: cpp-tests $(VENV2)/.developed  ## every test: units plain and under sanitizers, Python, orchestrators, documentation
	@$(PY) tools/run_tests.py full --jobs $(JOBS) --retries $(RETRIES) --last-begins-within $(LAST_BEGINS_WITHIN)

test-exhaustive: cpp-tests  ## what takes minutes and seldom finds anything: a wheel built and installed, whole benchmark runs
	@$(PY) tools/run_tests.py exhaustive

test-full: test test-exhaustive  ## `make test`, `make test-exhaustive`, every fault on every orchestrator, the chart by Helm
	@ENTREPOT_FAULT_MATRIX=full $(PY) -m pytest tests/failover --timeout 900
	@ENTREPOT_BUILD_HELM=1 $(PY) -m pytest tests/operator/packaging/test_helm.py --timeout 1300

test-pandas2: build $(VENV2)/.developed  ## the codec tests on pandas 2
	@$(PY) tools/run_tests.py pandas2

lint: setup  ## style, types, layers
	@$(PY) tools/lint.py

format: setup  ## rewrites the sources in the project's style
	@$(PY) tools/lint.py --fix

demo: build  ## the flights example on three orchestrators, with Entrepot and with each one's own transport
	@$(PY) -m examples.flights

demo-failover: build  ## the flights job with task, daemon and store killed in its middle, on three orchestrators
	@$(PY) -m examples.failover

demo-k8s: build  ## a pipeline in pods that follow their data, on a real control plane, and a picture of where they went
	@$(PY) -m examples.kubernetes

control-plane: build  ## a real Kubernetes control plane on loopback, with fake nodes, until it is interrupted
	@$(PY) tests/kubecp/control_plane.py

bench: build  ## figures beside other stores and the machine's limits, about 35 minutes; BENCH_ARGS='--plan short': 8
	@$(PY) -m benchmarks full $(BENCH_ARGS)

bench-quick: build  ## this checkout's speed beside another commit's: BENCH_AGAINST=REV (default: HEAD); judges nothing
	@$(PY) -m benchmarks quick --against $(BENCH_AGAINST) $(BENCH_ARGS)

soak: build  ## random clients with kills and stops, against a model; ENTREPOT_SOAK_SECONDS (default 600) for each of two stores
	@ENTREPOT_SOAK_SECONDS=$${ENTREPOT_SOAK_SECONDS:-600} $(PY) -m pytest tests/soak -s

fuzz: setup  ## libFuzzer on what comes from outside (needs clang); ENTREPOT_FUZZ_SECONDS (60) for each target
	@bash tools/fuzz.sh

wheel:  ## an sdist, and manylinux wheels for x86_64 and aarch64 of every Python here, in dist/; WHEEL_ARGS
	@python=$$(bash tools/find_python.sh); "$${python:-python3}" tools/wheel.py $(WHEEL_ARGS)

wheel-test:  ## the wheels in dist/ that this machine can run, each in an empty environment without a compiler
	@python=$$(bash tools/find_python.sh); "$${python:-python3}" tools/wheel_check.py

sdist-test:  ## the sdist in dist/, built by pip with this machine's compiler in an empty environment
	@python=$$(bash tools/find_python.sh); "$${python:-python3}" tools/wheel_check.py dist/*.tar.gz

lock: setup  ## resolves the lock files anew
	@bash tools/lock.sh

clean:  ## removes what was built; keeps the virtual environments
	@rm -rf build dist core/python/entrepot/_core*.so core/python/entrepot/bin
	@find . -name __pycache__ -not -path './.venv*' -prune -exec rm -rf {} +
