# From a clone to a trained model (make demo), and from an edit to what it broke (make quick, make test).

PYTHON ?= $(shell python3.11 -c '' 2>/dev/null && echo python3.11 || echo python3)
SOURCES := tfdeploy tests examples
QUICK := .venv/bin/pytest -n 4 --dist worksteal -m "not slow" tests
# It asks for "tensorflow", which would lay itself over tensorflow-cpu.
TF_KERAS := 'tf_keras>=2.21,<2.22'

.PHONY: help demo test quick check bench recipes clean
.DELETE_ON_ERROR:

help:
	@echo "make demo    train the example on this machine, several tasks at once, and look at the result (minutes the first time)"
	@echo "make test    all tests, on four real hosts in containers (brings them up, and down again unless they were up)"
	@echo "make quick   the tests that need no containers"
	@echo "make check   ruff and mypy"
	@echo "make bench   tfdeploy beside Ansible, pyinfra, Fabric and a shell loop, on up to 48 hosts in containers (an hour or two)"
	@echo "make recipes the algorithms of examples/ side by side, into docs/recipes.md (some minutes)"
	@echo "make clean   remove the containers, .venv and everything else that was made"
	@echo
	@echo "PYTHON=...   the interpreter to make .venv with (3.11 or newer; now: $(PYTHON))"

demo: .venv/.ready-to-run
	PATH="$(CURDIR)/.venv/bin:$$PATH" examples/digits/demo.sh

test: .venv/.ready-to-develop
	tests/hosts/install-missing rsync ssh docker
	$(QUICK)
	tests/hosts/with .venv/bin/pytest -m slow tests

quick: .venv/.ready-to-develop
	$(QUICK)

check: .venv/.ready-to-develop
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy --strict tfdeploy

bench: .venv/.ready-to-develop
	tests/hosts/install-missing rsync ssh docker
	tests/bench/run
	tests/bench/render

recipes: .venv/.ready-to-run
	PATH="$(CURDIR)/.venv/bin:$$PATH" python examples/side_by_side.py

clean:
	tests/hosts/down
	tests/bench/fleet down
	rm -rf .venv build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	rm -rf tests/hosts/.keys tests/hosts/.build tests/bench/.fleet tests/bench/.peers
	find $(SOURCES) -name __pycache__ -prune -exec rm -rf {} +

# Each stamp says: .venv holds what this pyproject.toml asks for.
.venv/.ready-to-run: pyproject.toml | .venv/bin/python
	.venv/bin/python -m pip install --quiet -e '.[tensorflow,example]'
	.venv/bin/python -m pip install --quiet --no-deps $(TF_KERAS)
	@touch $@

.venv/.ready-to-develop: pyproject.toml | .venv/bin/python
	.venv/bin/python -m pip install --quiet -e '.[tensorflow,example,dev]'
	.venv/bin/python -m pip install --quiet --no-deps $(TF_KERAS)
	@touch $@ .venv/.ready-to-run

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "tfdeploy needs Python 3.11 or newer, and $(PYTHON) isn't: name one with make PYTHON=..."; exit 1; }
	PYTHON="$(PYTHON)" tests/hosts/install-missing venv
	$(PYTHON) -m venv .venv
