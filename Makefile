# `make demo` trains a model from a fresh clone; `make quick` and `make test` check a change.

PYTHON ?= $(shell python3.11 -c '' 2>/dev/null && echo python3.11 || echo python3)
SOURCES := tfdeploy tests examples
# Each test is in exactly one of these: without processes, with processes, slow.
QUICK := .venv/bin/pytest -n 2 --dist worksteal -m "not slow" tests/unit
LOCAL := .venv/bin/pytest -n 4 --dist worksteal -m "not slow" --ignore tests/unit tests
# What the tests need on this machine, as words of tests/hosts/install-missing.
LOCAL_NEEDS := rsync ssh fish zsh tcsh ipv6
NEEDS := $(LOCAL_NEEDS) kerberos softhsm oathtool docker chromium torch iproute2 gcc
# The number of slow tests that run at the same time, each with its own set of hosts. They mostly wait.
SETS := 4
# `make test` leaves out slow tests whose subject has not changed since they passed: tests/support/affected.py.
WHICH := --affected
SLOW := tests/hosts/with $(SETS) .venv/bin/pytest -n $(SETS) --dist loadgroup --no-loadscope-reorder -m slow

# If it is set, each command that a test runs compiles all its modules again: a third of its CPU time.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test quick local faults e2e hosts costs transcripts soak check lock audit nightly docs schemas bench recipes replication docs-pictures clean
.DELETE_ON_ERROR:

help:
	@echo "make demo    train the example on this machine with several tasks, and print the test accuracy (minutes the first time)"
	@echo "make test    run the tests, with hosts in containers (starts the containers, and removes them unless they were running)"
	@echo "             slow tests are left out, and named, if what they test has not changed since all passed"
	@echo "make test ONE=tests/unit/planning/test_plan.py::test_name    run one test, one file or one folder"
	@echo "make quick   run the unit tests, which start no process (a minute)"
	@echo "make local   run make quick, then the fast tests that start processes on this machine: sshd, rsync, tfdeploy"
	@echo "make faults  run only the fault tests; make e2e: only the trainings on hosts in containers"
	@echo "make hosts   start the containers and keep them running, so that the next tests start at once"
	@echo "make costs   run the slow tests and store the duration of each in tests/support/costs.json"
	@echo "make transcripts    run the console sessions of tests/transcripts, and store what they print now, for the docs, too"
	@echo "make soak    repeat the fault tests and fuzz for HOURS=1, and write tests/soak.md"
	@echo "make check   check format, lint, types and documentation (ruff, mypy, mkdocs)"
	@echo "make audit   look up known weaknesses of all packages in the lock (needs a network)"
	@echo "make nightly run make check, every test and make audit; if all tests pass, tests/support/proved.json says with what"
	@echo "make lock    lock the newest versions of all dependencies, with their hashes, in requirements/"
	@echo "make docs    build the documentation into build/site"
	@echo "make schemas write docs/schemas/, the lists of docs/json.md, and every key into docs/hosts-toml.md"
	@echo "make bench   compare tfdeploy with Ansible, pyinfra, Fabric and a shell loop on up to 48 hosts (an hour or two)"
	@echo "make recipes run the algorithms of examples/, and write docs/recipes.md (an hour)"
	@echo "make replication    measure serial, in-graph and between-graph training in batches per second (some minutes)"
	@echo "make docs-pictures  make the pictures of the documentation from a real training (some minutes)"
	@echo "make clean   remove the containers, .venv and all generated files"
	@echo
	@echo "PYTHON=...   the interpreter that creates .venv (3.11 or newer; now: $(PYTHON))"

demo: .venv/.ready-to-run
	@PATH="$(CURDIR)/.venv/bin:$$PATH" examples/digits/demo.sh

ifdef ONE
test: .venv/.ready-to-develop
	tests/hosts/install-missing $(NEEDS)
	tests/hosts/with 1 .venv/bin/pytest $(ONE)
else
test: .venv/.ready-to-develop
	tests/hosts/install-missing $(NEEDS)
	$(QUICK)
	$(LOCAL)
	$(SLOW) $(WHICH) tests
endif

faults e2e: .venv/.ready-to-develop
	tests/hosts/install-missing rsync ssh docker
	$(SLOW) tests/$@

hosts: .venv/.ready-to-develop
	tests/hosts/up $(SETS)

# Measure the duration of each slow test for tests/support/order.py: after tests were added, or if one test runs alone at the end.
costs: .venv/.ready-to-develop
	tests/hosts/install-missing $(NEEDS)
	$(SLOW) --write-costs tests

# ONE names a session: make transcripts ONE=first_command
transcripts: .venv/.ready-to-develop
	tests/hosts/install-missing rsync ssh iproute2 torch
	.venv/bin/pytest -n 2 -m slow --record tests/integration/test_transcripts.py$(if $(ONE),::test_a_session_prints_what_is_stored[$(ONE)])
	.venv/bin/python docs/generate.py

quick: .venv/.ready-to-develop
	$(QUICK)

local: quick
	tests/hosts/install-missing $(LOCAL_NEEDS)
	$(LOCAL)

HOURS := 1
soak: .venv/.ready-to-develop
	tests/hosts/install-missing rsync ssh docker
	tests/hosts/with $(SETS) .venv/bin/python tests/soak.py $(HOURS) $(SETS)

check: .venv/.ready-to-develop
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy --strict tfdeploy
	.venv/bin/mkdocs build --strict --quiet

docs: .venv/.ready-to-develop
	.venv/bin/mkdocs build --strict

schemas: .venv/.ready-to-develop
	.venv/bin/python docs/generate.py

bench: .venv/.ready-to-develop
	tests/hosts/install-missing rsync ssh docker
	tests/bench/run
	tests/bench/render

# For every Python from 3.11 on, Linux and macOS. Each lock has what the one before has, in the same versions.
LOCK := .venv/bin/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-annotate --custom-compile-command 'make lock'
OF_BOTH := --overrides requirements/overrides.txt --extra tensorflow pyproject.toml requirements/also.in
lock: .venv/.ready-to-develop
	$(LOCK) --extra all $(OF_BOTH) -o requirements/run.txt
	$(LOCK) --extra dev --extra docs -c requirements/run.txt $(OF_BOTH) -o requirements/develop.txt

audit: .venv/bin/python
	@.venv/bin/python tests/support/audit.py requirements/develop.txt

# Every test; if all pass, tests/support/proved.json has what they passed with. Commit it.
nightly: WHICH := --prove
# As many examples as take a few minutes more.
nightly: export TFDEPLOY_FUZZ_SEQUENCES := 150
nightly: export TFDEPLOY_FUZZ_INPUTS := 1000
nightly: export TFDEPLOY_FUZZ_KILLED_CALLS := 10
nightly: check test audit

recipes: .venv/.ready-to-run
	cd examples && PATH="$(CURDIR)/.venv/bin:$$PATH" python -m figures real
	cd examples && PATH="$(CURDIR)/.venv/bin:$$PATH" python -m figures draw

replication: .venv/.ready-to-run
	PATH="$(CURDIR)/.venv/bin:$$PATH" python examples/replication.py

docs-pictures: .venv/.ready-to-develop
	tests/hosts/install-missing rsync ssh chromium iproute2
	PYTHONPATH=docs:tests .venv/bin/python -m make_pictures

clean:
	tests/hosts/down
	tests/bench/fleet down
	tests/hosts/remove .venv build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	tests/hosts/remove tests/hosts/.keys tests/hosts/.build tests/bench/.fleet tests/bench/.peers tests/.failed
	find $(SOURCES) -xdev -name __pycache__ -prune -exec tests/hosts/remove {} +

# Each stamp means that .venv has what this lock names. pip takes a file only with the hash that the lock has.
INSTALL := @.venv/bin/python tests/support/pip_install.py
LOCKED := --no-deps --require-hashes -r
ITSELF := --no-deps --no-build-isolation --no-index -e .
.venv/.ready-to-run: pyproject.toml requirements/run.txt | .venv/bin/python
	$(INSTALL) 'TensorFlow and what tfdeploy needs, about 2 GB in .venv (some minutes)' $(LOCKED) requirements/run.txt
	$(INSTALL) 'tfdeploy itself, into .venv' $(ITSELF)
	@touch $@

.venv/.ready-to-develop: pyproject.toml requirements/develop.txt | .venv/bin/python
	$(INSTALL) 'TensorFlow, what tfdeploy needs and the tools for tests, about 2 GB in .venv (some minutes)' $(LOCKED) requirements/develop.txt
	$(INSTALL) 'tfdeploy itself, into .venv' $(ITSELF)
	@touch $@ .venv/.ready-to-run

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "tfdeploy needs Python 3.11 or newer, and $(PYTHON) is older or missing: choose one with make PYTHON=..."; exit 1; }
	@PYTHON="$(PYTHON)" tests/hosts/install-missing venv
	@echo "Creating .venv with $(PYTHON)"
	@$(PYTHON) -m venv .venv
