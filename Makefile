# One command per task; each does its own setup, even in a fresh clone.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
MAKEFLAGS += --no-print-directory
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

JOBS ?= $(shell nproc)
VENV := .venv
VENV2 := .venv-pandas2
# The environments of tests/environments, one for each lock file there. PyTorch's is large: a machine may go without.
LOCKS := $(filter-out %/torch.lock,$(wildcard tests/environments/*.lock))
ENVIRONMENTS := $(patsubst tests/environments/%.lock,.venv-%/.developed,$(LOCKS))
PY := $(VENV)/bin/python
export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)
# Container images often set it. Without .pyc files, each of the many processes that the tests start compiles all of
# Airflow or Dagster again: importing Airflow's scheduler takes 4.4 s of CPU time then, and 1.9 s otherwise.
unexport PYTHONDONTWRITEBYTECODE

BENCH_AGAINST ?= HEAD
# `make test` skips its last stage (TSan), and says so, if the earlier ones took longer than this many seconds.
LAST_BEGINS_WITHIN ?= inf
# `make test-exhaustive` skips Python tests, and lists them, that have not begun after so many seconds.
BEGIN_WITHIN ?= inf

.PHONY: help setup build environments cpp-tests test test-fast test-full test-exhaustive test-pandas2 lint format demo demo-failover demo-cluster demo-workflows demo-k8s control-plane bench bench-quick soak fuzz docs wheel wheel-test sdist-test jvm jvm-test jvm-engines lock clean

help:  ## list the targets
	@grep -hE '^[a-z0-9-]+:.*?## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+):.*## /\1\t/' | expand -t 17

setup: $(VENV)/.developed  ## check system packages, create the virtual environment, install the package from its sources

# An order-only prerequisite, so that missing packages are reported before anything is downloaded.
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

.venv-docs/.synced: requirements-docs.lock | system-check
	@bash tools/sync_venv.sh .venv-docs requirements-docs.lock
	@touch $@

$(ENVIRONMENTS): .venv-%/.developed: tests/environments/%.lock pyproject.toml | system-check
	@bash tools/sync_environment.sh $*

.venv-torch/.developed: tests/environments/torch.lock pyproject.toml | system-check
	@timeout 600 bash tools/sync_environment.sh torch || echo "setup: no PyTorch on this machine: its tests are skipped" >&2

# Plasma's own client, for tests/plasma; it has wheels for Python 3.11 and older only, and its tests are skipped elsewhere.
.venv-plasma-client/.synced: tests/plasma/stock_client.lock | system-check
	@bash tools/sync_venv.sh .venv-plasma-client tests/plasma/stock_client.lock && touch $@ || echo "setup: no Plasma client for this Python"

environments: $(ENVIRONMENTS) .venv-torch/.developed  ## create the environments with other versions of NumPy, Arrow, pandas and Polars, with JAX and with PyTorch (6 GB)
# PySpark with its own Hadoop and Derby, for tests and benchmarks of pipes; 320 MB to download.
.venv-spark/.synced: tests/pipes/jvm/spark.lock | system-check
	@bash tools/sync_venv.sh .venv-spark tests/pipes/jvm/spark.lock
	@touch $@

build: setup  ## build the daemon and the extension, beside the Python sources
	@bash tools/build.sh dev product $(JOBS)

cpp-tests: setup  ## build the daemon, the extension and the C++ tests
	@bash tools/build.sh dev all $(JOBS)

test-fast: cpp-tests  ## C++ unit tests without sanitizers, and Python tests that are not slow; under two minutes
	@$(PY) tools/run_tests.py fast

.PHONY: test-environments
test-environments: $(VENV2)/.developed .venv-kedro-dagster/.developed .venv-plasma-client/.synced .venv-docs/.synced

test: build test-environments  ## C++ under sanitizers; Python, orchestrators, Kubernetes, documentation; 25 minutes
	@$(PY) tools/run_tests.py full --jobs $(JOBS) --last-begins-within $(LAST_BEGINS_WITHIN)

test-exhaustive: cpp-tests $(ENVIRONMENTS) .venv-plasma-client/.synced  ## tests that take minutes or downloads: all C++ tests without sanitizers, a million objects, a wheel installed, eleven other environments, whole benchmark runs
	@$(PY) tools/run_tests.py exhaustive --begin-within $(BEGIN_WITHIN)

test-full: environments test test-exhaustive  ## `make test`, `make test-exhaustive`, every fault on every orchestrator, every process held at every step, the chart with Helm
	@ENTREPOT_FAULT_MATRIX=full $(PY) -m pytest tests/failover tests/examples/test_failover.py --timeout 900
	@ENTREPOT_FAULT_MATRIX=full $(PY) -m pytest -n 6 tests/core/test_stopped_steps.py --timeout 300
	@ENTREPOT_BUILD_HELM=1 $(PY) -m pytest tests/operator/packaging/test_helm.py --timeout 1300

test-pandas2: build $(VENV2)/.developed  ## run the codec tests on pandas 2
	@$(PY) tools/run_tests.py pandas2

lint: setup  ## check style, types, layers
	@$(PY) tools/lint.py

format: setup  ## reformat the sources
	@$(PY) tools/lint.py --fix

demo: build  ## run the flights example on three orchestrators, with Entrepot and with each one's own transport
	@$(PY) -m examples.flights

demo-failover: build  ## run the flights job on three orchestrators, with task, daemon and store killed halfway
	@$(PY) -m examples.failover

demo-cluster: build  ## run the flights job on two hosts under Celery, with Entrepot and with files, and kill one of the hosts
	@$(PY) -m examples.cluster

demo-workflows: build  ## run three workflows on four hosts, with Entrepot, an S3 server (built once, with Go) and files in memory
	@ENTREPOT_BUILD_VERSITYGW=1 $(PY) -m examples.workflows

demo-k8s: build  ## run a pipeline in pods scheduled near their data, on a real control plane, and plot where they ran
	@$(PY) -m examples.kubernetes

control-plane: build  ## run a real Kubernetes control plane on loopback, with fake nodes, until interrupted
	@$(PY) tests/kubecp/control_plane.py

bench: build  ## compare with other stores and the machine's limits, about 35 minutes; BENCH_ARGS='--plan short': 8
	@$(PY) -m benchmarks full $(BENCH_ARGS)

bench-quick: build  ## compare with another commit, BENCH_AGAINST=REV (default: HEAD); report only
	@$(PY) -m benchmarks quick --against $(BENCH_AGAINST) $(BENCH_ARGS)

soak: build  ## random clients, kills and stops, checked against models, ENTREPOT_SOAK_SECONDS (600) for each store and a cluster; growth, ENTREPOT_GROWTH_SECONDS (an hour)
	@ENTREPOT_GROWTH_SECONDS=$${ENTREPOT_GROWTH_SECONDS:-$${ENTREPOT_SOAK_SECONDS:-3600}} ENTREPOT_SOAK_SECONDS=$${ENTREPOT_SOAK_SECONDS:-600} $(PY) -m pytest tests/soak tests/cluster/gateway/test_random_faults.py -s

fuzz: setup  ## fuzz untrusted input with libFuzzer (needs clang) and Atheris; ENTREPOT_FUZZ_SECONDS (60) per target
	@bash tools/fuzz.sh

wheel:  ## build an sdist and wheels for x86_64 and aarch64, glibc and musl, in dist/; WHEEL_ARGS
	@python=$$(bash tools/find_python.sh); "$${python:-python3}" tools/wheel.py $(WHEEL_ARGS)

wheel-test:  ## try the wheels in dist/ that run on this machine, each in an empty environment without a compiler
	@python=$$(bash tools/find_python.sh); "$${python:-python3}" tools/wheel_check.py

sdist-test:  ## build the sdist in dist/ with pip and this machine's compiler, in an empty environment
	@python=$$(bash tools/find_python.sh); "$${python:-python3}" tools/wheel_check.py dist/*.tar.gz

docs: .venv-docs/.synced  ## build the documentation as a site, in build/site; broken links are errors
	@bash tools/build_docs.sh

jvm:  ## build the agent that gives JVM programs pipes, and Hadoop's file system; needs Java 16 or later and Maven
	@mvn --quiet --batch-mode --file jvm/pom.xml package
	@mkdir -p io_managers/entrepot_pipes/jars
	@cp --remove-destination jvm/agent/target/entrepot-pipes-agent.jar jvm/agent/target/entrepot-pipes-hadoop.jar io_managers/entrepot_pipes/jars/

jvm-test:  ## unit tests of the agent, with JUnit; needs Java 17 and Maven
	@mvn --quiet --batch-mode --file jvm/pom.xml -DskipTests=false package

jvm-engines: jvm .venv-spark/.synced  ## the agent, and PySpark with Derby (320 MB) for tests and benchmarks of pipes

lock: setup  ## resolve the lock files again
	@bash tools/lock.sh

clean:  ## remove build outputs; keep the virtual environments
	@rm -rf build dist jvm/*/target io_managers/entrepot_pipes/jars core/python/entrepot/_core*.so core/python/entrepot/bin
	@find . -name __pycache__ -not -path './.venv*' -prune -exec rm -rf {} +
