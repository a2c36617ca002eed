# make demo: a private synthetic table from real data, in minutes.   make test: everything that CI checks.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

.PHONY: install demo test lint types browser bench-simulator bench-federation bench-secure soak mutants package tables clean
install: $(STAMP)

# torch goes first and by itself: resolvers that choose it along with the rest fetch gigabytes of CUDA
$(STAMP): pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[report,demo,federation,secure,inspect,test]"
	@touch $@

demo: install
	$(BIN)/python -m fedsynth.cli.demo

test: lint types browser package
	$(BIN)/python -m pytest -m "not slow" --numprocesses 2 --dist loadfile

# pages are tested in a real browser; without one those tests are skipped with a message
browser:
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || \
	 { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -qq && apt-get install -y -qq chromium >/dev/null; } || \
	 echo "no chromium: the page tests will be skipped"

lint: install
	$(BIN)/ruff format --check src tests benchmarks examples experiments tools
	$(BIN)/ruff check src tests benchmarks examples experiments tools

# a wheel and an sdist as they would be published, and the demo from the wheel in a venv that has nothing of this checkout
package: install
	@rm -rf build/dist build/bare build/elsewhere && mkdir -p build
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt build twine "setuptools>=77"
	$(BIN)/python -m build --no-isolation --outdir build/dist . >build/package.log 2>&1 || { cat build/package.log; exit 1; }
	$(BIN)/twine check --strict build/dist/*
	$(PYTHON) -m venv build/bare
	build/bare/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
	build/bare/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt "$$(ls build/dist/*.whl)[report,demo]"
	mkdir build/elsewhere && cd build/elsewhere && ../bare/bin/python -m fedsynth.cli.demo >demo.log 2>&1 || { cat demo.log; exit 1; }
	@rm -rf build/bare

types: install
	$(BIN)/mypy

bench-simulator: install
	$(BIN)/python benchmarks/simulator.py

bench-secure: install
	$(BIN)/python benchmarks/secure.py

bench-federation: install
	$(BIN)/python benchmarks/federation.py

soak: install
	$(BIN)/python -m pytest -m slow

# hours on a small machine; goes on where it stopped. FILES="privacy/clip.py" runs one file, MUTANTS=--survivors only what survived
mutants: install
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[mutants]"
	$(BIN)/python tools/mutants.py $(MUTANTS) $(FILES)
	$(BIN)/python tools/mutation_summary.py

tables: install
	$(BIN)/python experiments/tables.py && $(BIN)/python experiments/overview.py

clean:
	rm -rf $(VENV) build .mypy_cache .ruff_cache
