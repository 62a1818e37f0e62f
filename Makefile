# `make` alone lists what there is. One environment, .venv, serves all targets; it is brought up to date only when
# pyproject.toml or constraints.txt have changed.

PYTHON ?= python3
PY := .venv/bin/python
ARGS ?=
JOBS ?= 2
ON ?= hosts
FAULTS := $(addprefix tests/kernel/recovery/test_,heal.py stuck.py resize.py) tests/kernel/test_execute.py \
	$(addprefix tests/kernel/,waiting/test_look.py waiting/test_mesh_ledger.py dashboard/test_survey.py) \
	$(addprefix tests/magics/test_,deaths.py ends.py interrupt.py resize.py stacks.py stopped.py)
DEBUGGER := $(addprefix tests/magics/test_,attach.py break.py debug.py debug_actors.py debug_ends.py)

.PHONY: help demo test engines browsers chaos check format bench docs freeze clean
.DEFAULT_GOAL := help

help: ## this list
	@sed -n 's/^\([a-z]*\):.*## /make \1\t/p' $(MAKEFILE_LIST) | expand -t 14

demo: .venv/.has-demo ## run notebooks/quickstart.ipynb on 4 ranks; the result goes to build/
	@$(PY) notebooks/demo.py $(ARGS)

test: .venv/.has-test ## run the tests; ARGS="-k shape" goes to pytest
	@$(PY) -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder $(ARGS)

engines: .venv/.has-test ## the faults and debugger suites on two hosts; ON=monarch runs them on Monarch, where it is installed
	@$(PY) -m pytest --on $(ON) $(FAULTS) $(DEBUGGER) $(ARGS)

browsers: .venv/.has-test ## the tests in a browser, in all themes and front-ends; pictures go to build/screenshots/
	@MESHBOOK_BROWSERS=all $(PY) -m pytest tests/browser $(ARGS)

chaos: .venv/.has-test ## random faults on real ranks, 20 seeds of 1,000 operations; ARGS="--seed 7 --seeds 1"; of actors; of tensors; of notebooks
	@$(PY) -m tests.chaos --seeds 20 $(ARGS)
	@$(PY) -m tests.chaos.families --seeds 20 --quiet
	@$(PY) -m tests.chaos.tensors --seeds 20 --quiet
	@$(PY) -m tests.chaos.tensors --seeds 20 --steps 40 --presses --quiet
	@$(PY) -m tests.chaos.notebooks --seeds 20 --quiet
	@$(PY) -m tests.chaos.notebooks --seeds 20 --presses --quiet

check: .venv/.has-dev ## format, lint, types, import layers
	$(PY) -m ruff format --check .
	$(PY) -m ruff check .
	$(PY) -m pyright
	@.venv/bin/lint-imports --no-logo

format: .venv/.has-dev ## put the sources into shape
	$(PY) -m ruff format .
	$(PY) -m ruff check --fix .

bench: .venv/.has-test ## measure; the numbers are printed with the machine's load; ARGS="faults --against HEAD~20": two commits in turns
	@$(PY) benchmarks/run.py $(ARGS)

docs: .venv/.has-test ## write docs/messages.md and docs/house.md again
	@mkdir -p docs
	$(PY) -m tests.house.protocol > .venv/messages.md && cp .venv/messages.md docs/messages.md
	$(PY) -m tests.house.plan > .venv/house.md && cp .venv/house.md docs/house.md

freeze: .venv/.has-dev .venv/.has-demo ## pin what .venv holds in constraints.txt
	@{ sed -n '/^#/p' constraints.txt; $(PY) -m pip freeze --exclude-editable | sed 's/+cpu$$//'; } > .venv/pins
	@cp .venv/pins constraints.txt

clean: ## remove .venv and what was built
	rm -rf .venv build dist *.egg-info .pytest_cache .ruff_cache .import_linter_cache .hypothesis .coverage .coverage.*

.venv/.has-%: pyproject.toml constraints.txt | $(PY)
	@echo "installing meshbook[$*] into .venv (the first time, torch takes a while)"
	@$(PY) -m pip install -q --disable-pip-version-check -c constraints.txt -e ".[$*]"
	@touch $@

$(PY):
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("meshbook needs Python 3.11 or later, and $(PYTHON) is " + sys.version.split()[0] + "; name another one: make PYTHON=python3.12 $(MAKECMDGOALS)")'
	@$(PYTHON) -m venv .venv || { rm -rf .venv; echo "$(PYTHON) cannot make a virtual environment (on Debian: apt install python3-venv)" >&2; exit 1; }
