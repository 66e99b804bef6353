# Every target creates the environment if it does not exist.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.ready
DOCS := .venv/.docs
# uv does not read the find-links of pip, so they are passed on; the value can be empty.
FIND_LINKS = $${PIP_FIND_LINKS:-$$($(PYTHON) -m pip config get global.find-links 2>/dev/null || true)}
INSTALL = UV_FIND_LINKS="$(FIND_LINKS)" $(BIN)/uv pip install --quiet

.PHONY: demo test quick portability browser lint types benchmark docs linkcheck dist matrix clean

demo: $(STAMP)
	$(BIN)/creinn demo

test: lint types
	$(BIN)/python -m pytest -n 2 --dist loadscope

# Tests of the mathematics only, less than a minute on two cores.
quick: $(STAMP)
	$(BIN)/python -m pytest -n 2 tests/credal tests/evaluation tests/test_interval.py tests/nn/test__product.py tests/nn/test_layers.py

# Numeric tests under other instruction sets, orders of summation and numbers of threads.
SETTINGS := ATEN_CPU_CAPABILITY=default ATEN_CPU_CAPABILITY=avx2 MKL_ENABLE_INSTRUCTIONS=SSE4_2 MKL_CBWR=COMPATIBLE \
  ONEDNN_MAX_CPU_ISA=SSE41 OMP_NUM_THREADS=1 OMP_NUM_THREADS=4
TESTS ?=

portability: $(STAMP)
	@failed=; for setting in $(SETTINGS); do \
	  echo "$$setting"; env $$setting $(BIN)/python -m pytest -n 2 -m numeric $(TESTS) || failed="$$failed $$setting"; \
	done; \
	if [ -n "$$failed" ]; then echo "FAILED under:$$failed"; exit 1; fi; echo "passed under all: $(SETTINGS)"

# Install Chromium and its driver as root. Tests of HTML pages are skipped without them.
browser:
	@if command -v chromedriver >/dev/null && { command -v chromium || command -v chromium-browser || command -v google-chrome; } >/dev/null; then \
	  echo "Chromium and chromedriver are installed."; \
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

# Build the site and run all examples. Warnings and broken links are errors.
docs: $(DOCS)
	OMP_NUM_THREADS=1 $(BIN)/sphinx-build --quiet --fail-on-warning --keep-going -d build/doctrees docs build/docs
	$(BIN)/python tools/check_site.py build/docs

# Check links to other sites, which needs a network.
linkcheck: $(DOCS)
	$(BIN)/sphinx-build --quiet --fail-on-warning -D plot_gallery=0 -b linkcheck docs build/linkcheck

# Build the wheel and the source package, and run the demo of the wheel in a new environment.
dist: $(STAMP)
	rm -rf dist build/try
	$(BIN)/uv build --quiet --out-dir dist
	$(PYTHON) -m venv build/try
	$(INSTALL) --python build/try/bin/python --constraint constraints.txt "$$(ls dist/*.whl)[report]"
	cd build/try && bin/creinn demo --out demo

# Test Python 3.10 to 3.13 with the newest and the lowest dependencies; needs about an hour.
matrix: $(STAMP)
	UV_FIND_LINKS="$(FIND_LINKS)" $(BIN)/python tools/matrix.py

clean:
	rm -rf .venv build dist docs/gallery docs/results

# constraints.txt pins torch. tools/check_torch.py fails for a CUDA build or torchvision.
$(STAMP): pyproject.toml setup.py $(wildcard src/creinn/native/*.cpp src/creinn/native/*.inc) requirements-dev.txt constraints.txt tools/check_torch.py
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check uv
	$(INSTALL) --compile-bytecode --python $(BIN)/python --requirement requirements-dev.txt
	$(BIN)/python tools/check_torch.py
	touch $(STAMP)

$(DOCS): $(STAMP)
	$(INSTALL) --compile-bytecode --python $(BIN)/python --constraint constraints.txt --editable .[docs]
	touch $(DOCS)
