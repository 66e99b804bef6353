# Every target creates the environment by itself when there is none.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.ready
DOCS := .venv/.docs
# uv does not read pip's find-links: hand them over (empty is fine).
FIND_LINKS = $${PIP_FIND_LINKS:-$$($(PYTHON) -m pip config get global.find-links 2>/dev/null || true)}
INSTALL = UV_FIND_LINKS="$(FIND_LINKS)" $(BIN)/uv pip install --quiet

.PHONY: demo test quick portability browser lint types benchmark docs linkcheck dist matrix clean

demo: $(STAMP)
	$(BIN)/creinn demo

test: lint types
	$(BIN)/python -m pytest -n 2

# The mathematics alone, in under a minute on two cores. A file that has moved is left out, not missed.
quick: $(STAMP)
	$(BIN)/python -m pytest -n 2 tests/credal tests/evaluation $(wildcard tests/test_interval.py tests/nn/test_product.py tests/nn/test_layers.py)

# Other instructions, another order of sums, other numbers of threads: the tests that compute, under each of these.
SETTINGS := ATEN_CPU_CAPABILITY=default ATEN_CPU_CAPABILITY=avx2 MKL_ENABLE_INSTRUCTIONS=SSE4_2 MKL_CBWR=COMPATIBLE \
  ONEDNN_MAX_CPU_ISA=SSE41 OMP_NUM_THREADS=1 OMP_NUM_THREADS=4
TESTS ?=

portability: $(STAMP)
	@failed=; for setting in $(SETTINGS); do \
	  echo "$$setting"; env $$setting $(BIN)/python -m pytest -n 2 -m numeric $(TESTS) || failed="$$failed $$setting"; \
	done; \
	if [ -n "$$failed" ]; then echo "FAILED under:$$failed"; exit 1; fi; echo "passed under all: $(SETTINGS)"

# Chromium and its driver, for the tests of pages; they are skipped where it is not. Only root can install it.
browser:
	@if command -v chromedriver >/dev/null && { command -v chromium || command -v chromium-browser || command -v google-chrome; } >/dev/null; then \
	  echo "Chromium and chromedriver are there."; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  apt-get update --quiet && DEBIAN_FRONTEND=noninteractive apt-get install --quiet --yes --no-install-recommends chromium chromium-driver fonts-dejavu-core; \
	else \
	  echo "Install Chromium and chromedriver; on Debian: sudo apt-get install chromium chromium-driver" >&2; exit 1; \
	fi

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/python tools/house.py --check

types: $(STAMP)
	$(BIN)/mypy

benchmark: $(STAMP)
	$(BIN)/python -m benchmarks.entropy
	$(BIN)/python -m benchmarks.native
	$(BIN)/python -m benchmarks.predict

# The site, with every example run; opens from disk. Warnings are errors, and so are links that lead nowhere.
docs: $(DOCS)
	OMP_NUM_THREADS=1 $(BIN)/sphinx-build --quiet --fail-on-warning --keep-going -d build/doctrees docs build/docs
	$(BIN)/python tools/check_site.py build/docs

# Links to other sites, which need a network.
linkcheck: $(DOCS)
	$(BIN)/sphinx-build --quiet --fail-on-warning -D plot_gallery=0 -b linkcheck docs build/linkcheck

# Wheel and source, and the wheel tried in an empty environment outside of this folder: nothing may come from here.
dist: $(STAMP)
	rm -rf dist build/try
	$(BIN)/uv build --quiet --out-dir dist
	$(PYTHON) -m venv build/try
	$(INSTALL) --python build/try/bin/python --constraint constraints.txt "$$(ls dist/*.whl)[report]"
	cd build/try && bin/creinn demo --out demo

# Python 3.10 to 3.13, the newest dependencies and the lowest that are declared; gigabytes, and an hour.
matrix: $(STAMP)
	UV_FIND_LINKS="$(FIND_LINKS)" $(BIN)/python tools/matrix.py

clean:
	rm -rf .venv build dist docs/gallery docs/results

# The torch pin is in constraints.txt; tools/check_torch.py fails if a CUDA build or torchvision got in all the same.
$(STAMP): pyproject.toml setup.py $(wildcard src/creinn/native/*.cpp src/creinn/native/*.inc) requirements-dev.txt constraints.txt tools/check_torch.py
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check uv
	$(INSTALL) --compile-bytecode --python $(BIN)/python --requirement requirements-dev.txt
	$(BIN)/python tools/check_torch.py
	touch $(STAMP)

$(DOCS): $(STAMP)
	$(INSTALL) --compile-bytecode --python $(BIN)/python --constraint constraints.txt --editable .[docs]
	touch $(DOCS)
