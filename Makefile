# make demo   installs, runs the full pipeline on the simulated world, prints the path of the report
# make test   installs with the test tools (requirements-dev.lock), runs every check and test
# make stack-test   the stack of docker-compose.yml as processes, with PostgreSQL and a browser
# make test-portable   the numeric tests on three kernels, in three random orders, with one process and with four
# make soak   tests marked campaign (failing disks and stores, every update, a hundredth of the paper), then 150 kills of
#             stages by countdown and 30 of whole runs; continues where it was interrupted
# make rehearse   a store of the paper's size through every stage after the features: docs/scale.md
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
ROOT ?= runs/demo
PACKAGES := schemas trajpilot_core tasks flows deployments
# Bytecode is kept whatever the environment says: the tests start hundreds of Python processes.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test types suite test-portable soak stack-test check format lock clean demo-clean benchmarks rehearse

$(VENV)/installed: requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(0 if v >= (3, 11, 1) else f"Python >= 3.11.1 is needed, found {v.major}.{v.minor}.{v.micro}; set PYTHON=/path/to/python3.11")'
	@$(PYTHON) -c 'import shutil, sys; free = shutil.disk_usage(".").free / 2**30; sys.exit(0 if free > 6 else f"6 GiB of free disk are needed here, found {free:.1f}")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --upgrade "pip>=24"
	$(BIN)/pip install --quiet --disable-pip-version-check -r requirements.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

# Additional packages for tests, linters and the type checker; the demo does not need them.
$(VENV)/installed-dev: $(VENV)/installed requirements-dev.lock
	$(BIN)/pip install --quiet --disable-pip-version-check -r requirements-dev.lock
	@touch $@

demo: $(VENV)/installed
	$(BIN)/trajpilot demo --root $(ROOT)

# Three processes for two cores: tests spend a third of their time waiting for a server or a clock. Each uses about 1.5 GiB.
TEST_PROCESSES ?= 3
test: $(VENV)/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	@$(MAKE) --no-print-directory --jobs=2 types suite

# A cold check of types is one process, so the tests run beside it.
types:
	$(BIN)/mypy
suite:
	$(BIN)/pytest -n $(TEST_PROCESSES) --dist loadfile --no-loadscope-reorder -m "not stack and not campaign"

# Numeric tests on the kernels of an old processor, of one with AVX2, and of this machine, each in another random order.
# The first and the last run differ only in kernel and order. Options: `make test-portable ORDERS="4 5 6" NUMERIC=tests/core/models`.
NUMERIC ?= $(addprefix tests/core/,models training methods metrics evaluation encoders retrieval poses data simworld)
ORDERS ?= 1 2 3
OLD := ATEN_CPU_CAPABILITY=default ONEDNN_MAX_CPU_ISA=SSE41 MKL_CBWR=COMPATIBLE OPENBLAS_CORETYPE=Nehalem
AVX2 := ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 MKL_CBWR=AVX2 OPENBLAS_CORETYPE=Haswell
PORTABLE := $(BIN)/pytest -m "not slow and not gpu and not stack and not campaign" $(NUMERIC) --shuffle
test-portable: $(VENV)/installed-dev
	$(OLD) $(PORTABLE) $(word 1,$(ORDERS)) -n 4 --dist loadfile --no-loadscope-reorder
	$(AVX2) $(PORTABLE) $(word 2,$(ORDERS)) -p no:xdist
	$(PORTABLE) $(word 3,$(ORDERS)) -n 4 --dist loadfile --no-loadscope-reorder

# Kills stages at their n-th write, fsync, rename or checkpoint, and whole runs at random moments; the log has the cost of each.
soak: $(VENV)/installed-dev
	$(BIN)/pytest -m campaign -p no:xdist
	$(BIN)/python tests/crashes/soak.py --kills 150 --flows 30 --seed 0 --work runs/soak --log runs/soak/log.jsonl

# The processes of docker-compose.yml with their environment and a separate PostgreSQL: docs/operations.md.
# Needs PostgreSQL and Chromium, and for its second part Slurm (Debian: apt-get install postgresql chromium slurmctld
# slurmd slurm-client munge); tests without their requirements are skipped with a reason. Worker, server and PostgreSQL
# are killed in turn.
KILLS ?= 3
stack-test: $(VENV)/installed-dev
	KILLS=$(KILLS) $(BIN)/pytest -m stack -p no:xdist -x tests/orchestration/test_fan_out.py \
		tests/orchestration/test_stack.py tests/orchestration/test_slurm.py

check: $(VENV)/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest -n 2 --dist loadfile -m "not slow and not gpu and not stack and not campaign"

format: $(VENV)/installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Resolves pyproject.toml again: first with the test tools into requirements-dev.lock, then without them, to the same
# versions, into requirements.lock. Both environments are created from scratch.
RESOLVE := rm -rf $(VENV)-lock && $(PYTHON) -m venv $(VENV)-lock \
	&& $(VENV)-lock/bin/pip install --quiet --upgrade "pip>=24" "setuptools>=77" \
	&& $(VENV)-lock/bin/pip install --quiet
FREEZE := $(VENV)-lock/bin/pip freeze --all --exclude trajpilot --exclude pip \
	| sed -e 's/^\(torch==[0-9.]*\).*/\1/' -e "s/^decord==.*/&; platform_machine == 'x86_64'/"
lock:
	$(RESOLVE) "torch==2.13.0"
	$(VENV)-lock/bin/pip install --quiet ".[s3]"
	$(VENV)-lock/bin/pip install --quiet ".[s3,dev]"
	-$(VENV)-lock/bin/pip check  # reports decord because its wheel has an old platform tag
	( echo "# Made by 'make lock' from pyproject.toml with the extras s3 and dev; any build of torch 2.13.0 will do."; \
	  $(FREEZE) ) > requirements-dev.lock
	$(RESOLVE) --constraint requirements-dev.lock ".[s3]"
	( echo "# Made by 'make lock' from pyproject.toml with the extra s3; any build of torch 2.13.0 will do."; \
	  $(FREEZE) ) > requirements.lock
	rm -rf $(VENV)-lock build

benchmarks: $(VENV)/installed
	$(BIN)/python benchmarks/trajectories.py --folder runs/benchmarks
	$(BIN)/python benchmarks/video.py --folder runs/benchmarks

# Needs 24 GiB of memory and 40 GB of disk; SHARE=0.05 is a twentieth of the paper's size.
# WHOLE=--whole runs the settings of the recipe uncut.
SHARE ?= 1
RECIPE ?= atomic
rehearse: $(VENV)/installed
	$(BIN)/python benchmarks/rehearse.py --recipe $(RECIPE) $(WHOLE) --share $(SHARE) --json runs/rehearsal.json --folder runs/rehearsal

# Never touches artifacts.
clean:
	rm -rf $(VENV) $(VENV)-lock build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find $(PACKAGES) tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

demo-clean:
	rm -rf $(ROOT)
