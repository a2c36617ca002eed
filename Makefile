# make demo: a private synthetic table from real data, in minutes.   make test: everything that CI checks.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt

# without its bytecode on disk every process would compile torch and scipy anew: 9 seconds instead of 4
unexport PYTHONDONTWRITEBYTECODE

.PHONY: install demo test test-quick lint types browser postgres bench-simulator bench-federation bench-secure bench-tables bench-wide soak mutants package docs tables bundle bundle-test ten-minutes image image-test clean
install: $(STAMP)

# most of what is installed is never imported: compiling it beforehand takes a minute, python does it when it is needed.
# torch goes first and by itself: resolvers that choose it along with the rest fetch gigabytes of CUDA
$(STAMP): pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) torch
	$(PIP) -e ".[report,demo,federation,secure,inspect,databases,docs,test]"
	@touch $@

demo: install
	$(BIN)/python -m fedsynth.cli.demo

# what needs one core goes two by two, and the tests, which need both, afterwards; a third worker, because tests over real
# processes wait for one another most of the time
test: install
	@$(MAKE) --no-print-directory --jobs 2 --output-sync=target types package lint browser postgres
	$(BIN)/python -m pytest -m "not slow" --numprocesses 3 --dist loadfile

# a minute, for every day: one room's arithmetic and rules, without training, processes and commands
QUICK := $(addprefix tests/,data federation models privacy simulator training transport test_docs.py test_rng.py test_structure.py)
test-quick: lint
	$(BIN)/python -m pytest -m "not slow and not recipe" --numprocesses 2 --dist loadfile $(QUICK)

# pages are tested in a real browser; without one those tests are skipped with a message
browser:
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || \
	 { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -qq && apt-get install -y -qq chromium >/dev/null; } || \
	 echo "no chromium: the page tests will be skipped"

# rows are read out of a real server too, which the tests start themselves; after the browser, since apt has one lock
postgres: | browser
	@ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || command -v initdb >/dev/null || \
	 { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -qq && apt-get install -y -qq --no-install-recommends postgresql >/dev/null; } || \
	 echo "no PostgreSQL: its tests will be skipped"

lint: install
	$(BIN)/ruff format --check src tests benchmarks examples experiments tools
	$(BIN)/ruff check src tests benchmarks examples experiments tools

# a wheel and an sdist as they would be published, and the demo from the wheel in a venv that has nothing of this checkout,
# and of other packages just those that the wheel declares, linked from here
package: install
	@rm -rf build/dist build/bare build/elsewhere && mkdir -p build
	@$(BIN)/python -c "import build, twine" 2>/dev/null || $(PIP) build twine "setuptools>=77"
	$(BIN)/python -m build --no-isolation --outdir build/dist . >build/package.log 2>&1 || { cat build/package.log; exit 1; }
	$(BIN)/twine check --strict build/dist/*
	$(BIN)/python -m venv --without-pip build/bare
	$(BIN)/python tools/bare_venv.py build/bare build/dist/*.whl report demo
	mkdir build/elsewhere && cd build/elsewhere && ../bare/bin/python -m fedsynth.cli.demo >demo.log 2>&1 || { cat demo.log; exit 1; }
	@rm -rf build/bare

# a folder that installs a site, a server or a coordinator with no index at all, on this system and Python
bundle: install
	@rm -rf build/bundle build/lib && mkdir -p build/bundle
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check -c constraints.txt -w build/bundle/wheels ".[federation,secure,databases,report]"
	$(BIN)/python tools/bundle.py build/bundle

# an ordinary user, the bundle and the operations page, in a network that has the federation's port alone
bundle-test ten-minutes: build/bundle/requirements.txt
	$(BIN)/python tools/ten_minutes.py

build/bundle/requirements.txt:
	$(MAKE) bundle

# BASE: an image with Python 3.11, named by digest (IMAGE@sha256:...), or rootfs: a Debian root by mmdebstrap, without a registry
IMAGE ?= localhost/fedsynth:latest
image: build/bundle/requirements.txt
	$(BIN)/python tools/image.py "$(or $(BASE),$(error BASE is not given: BASE=IMAGE@sha256:... or BASE=rootfs))" $(IMAGE)

# a server, three sites and a coordinator out of that image; PODMAN_FLAGS="--runtime runc" where crun does not know the cgroups
image-test:
	PODMAN_FLAGS="$(PODMAN_FLAGS)" $(BIN)/python tools/image_federation.py $(IMAGE)

# the documentation as a site in build/site; warnings are errors, and no page loads anything from elsewhere
docs: install
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@! grep -rlE '(src="|<link [^>]*href="|url\(["'"'"']?)https?:' build/site --include=*.html --include=*.css

types: install
	$(BIN)/mypy

bench-simulator: install
	$(BIN)/python benchmarks/simulator.py

bench-secure: install
	$(BIN)/python benchmarks/secure.py

bench-federation: install
	$(BIN)/python benchmarks/federation.py

# private tables against other tools, each in an environment of its own (3 GB of disk); hours on two cores, goes on where it stopped
bench-tables: install build/peers/.installed
	$(BIN)/python benchmarks/tables.py

build/peers/.installed:
	@mkdir -p build/peers
	for tool in mbi dpmm smartnoise; do $(PYTHON) -m venv build/peers/$$tool || exit 1; done
	build/peers/mbi/bin/python -m pip install --quiet --disable-pip-version-check mbi==2.0.0 pandas
	for tool in dpmm smartnoise; do build/peers/$$tool/bin/python -m pip install --quiet --disable-pip-version-check torch==2.13.0 || exit 1; done
	build/peers/dpmm/bin/python -m pip install --quiet --disable-pip-version-check dpmm==0.1.9
	build/peers/smartnoise/bin/python -m pip install --quiet --disable-pip-version-check smartnoise-synth==1.0.8
	@touch $@

bench-wide: install
	$(BIN)/python benchmarks/wide_tables.py

# hours: 1,000 masked rounds in one job, 300 kills of all parties and other slow tests; the summary is committed
soak: install
	FEDSYNTH_SOAK=$(CURDIR)/benchmarks/results/soak.json $(BIN)/python -m pytest -m slow

# hours on a small machine; goes on where it stopped. FILES="privacy/clip.py" runs one file, MUTANTS=--survivors only what survived
mutants: install
	$(PIP) -e ".[mutants]"
	$(BIN)/python tools/mutants.py $(MUTANTS) $(FILES)
	$(BIN)/python tools/mutation_summary.py

tables: install
	$(BIN)/python experiments/tables.py && $(BIN)/python experiments/overview.py

clean:
	rm -rf $(VENV) build .mypy_cache .ruff_cache
