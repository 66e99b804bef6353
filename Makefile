# Every target creates the environment by itself when there is none.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.ready

.PHONY: demo test lint types benchmark clean

demo: $(STAMP)
	$(BIN)/creinn demo

test: lint types
	$(BIN)/python -m pytest -n 2

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/mypy

benchmark: $(STAMP)
	$(BIN)/python benchmarks/entropy.py
	$(BIN)/python -m benchmarks.speed

clean:
	rm -rf .venv

# The torch pin is in constraints.txt; tools/check_torch.py fails if a CUDA build or torchvision got in all the same.
# uv does not read pip's find-links: hand it over (empty is fine).
$(STAMP): pyproject.toml requirements-dev.txt constraints.txt tools/check_torch.py
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check uv
	UV_FIND_LINKS="$${PIP_FIND_LINKS:-$$($(PYTHON) -m pip config get global.find-links 2>/dev/null || true)}" \
	  $(BIN)/uv pip install --quiet --python $(BIN)/python --requirement requirements-dev.txt
	$(BIN)/python tools/check_torch.py
	touch $(STAMP)
