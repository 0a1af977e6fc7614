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
SLOW := tests/hosts/with $(SETS) .venv/bin/pytest -n $(SETS) --dist loadgroup --no-loadscope-reorder -m slow
# tf_keras requires the package "tensorflow", which would overwrite tensorflow-cpu: installed without its requirements.
TF_KERAS := 'tf_keras>=2.21,<2.22'

# If it is set, each command that a test runs compiles all its modules again: a third of its CPU time.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test quick local faults e2e hosts costs transcripts soak check docs schemas bench recipes figures replication docs-pictures clean
.DELETE_ON_ERROR:

help:
	@echo "make demo    train the example on this machine with several tasks, and print the test accuracy (minutes the first time)"
	@echo "make test    run all tests, with hosts in containers (starts the containers, and removes them unless they were running)"
	@echo "make test ONE=tests/unit/planning/test_plan.py::test_name    run one test, one file or one folder"
	@echo "make quick   run the unit tests, which start no process (a minute)"
	@echo "make local   run make quick, then the fast tests that start processes on this machine: sshd, rsync, tfdeploy"
	@echo "make faults  run only the fault tests; make e2e: only the trainings on hosts in containers"
	@echo "make hosts   start the containers and keep them running, so that the next tests start at once"
	@echo "make costs   run the slow tests and store the duration of each in tests/support/costs.json"
	@echo "make transcripts    run the console sessions of tests/transcripts, and store what they print now, for the docs, too"
	@echo "make soak    repeat the fault tests and fuzz for HOURS=1, and write docs/soak.md"
	@echo "make check   check format, lint, types and documentation (ruff, mypy, mkdocs)"
	@echo "make docs    build the documentation into build/site"
	@echo "make schemas write docs/schemas/, the tables of docs/json.md, and every key into docs/hosts-toml.md"
	@echo "make bench   compare tfdeploy with Ansible, pyinfra, Fabric and a shell loop on up to 48 hosts (an hour or two)"
	@echo "make recipes run the algorithms of examples/ for real, and write docs/recipes.md (an hour)"
	@echo "make figures simulate them with up to 16 workers, and write docs/recipes.md (ten minutes of CPU time)"
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
	$(SLOW) tests
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

recipes: .venv/.ready-to-run
	cd examples && PATH="$(CURDIR)/.venv/bin:$$PATH" python -m figures real
	cd examples && PATH="$(CURDIR)/.venv/bin:$$PATH" python -m figures draw

figures: .venv/.ready-to-run
	cd examples && PATH="$(CURDIR)/.venv/bin:$$PATH" python -m figures simulate
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

# Each stamp means that .venv has what this pyproject.toml requires.
INSTALL := @.venv/bin/python tests/support/pip_install.py
.venv/.ready-to-run: pyproject.toml | .venv/bin/python
	$(INSTALL) 'tfdeploy, TensorFlow and what they need, about 2 GB in .venv (some minutes)' -e '.[all,tensorflow]'
	$(INSTALL) 'tf_keras, which is Keras 2, into .venv' --no-deps $(TF_KERAS)
	@touch $@

.venv/.ready-to-develop: pyproject.toml | .venv/bin/python
	$(INSTALL) 'tfdeploy, TensorFlow and the tools for tests, about 2 GB in .venv (some minutes)' -e '.[tensorflow,dev,docs]'
	$(INSTALL) 'tf_keras, which is Keras 2, into .venv' --no-deps $(TF_KERAS)
	@touch $@ .venv/.ready-to-run

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "tfdeploy needs Python 3.11 or newer, and $(PYTHON) is older or missing: choose one with make PYTHON=..."; exit 1; }
	@PYTHON="$(PYTHON)" tests/hosts/install-missing venv
	@echo "Creating .venv with $(PYTHON)"
	@$(PYTHON) -m venv .venv
