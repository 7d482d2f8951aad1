# make demo | test | bench | lint | reproduce-orapo | reproduce-gated. Each sets up .venv first; an environment that is complete is left as it is.
SHELL := bash
VENV := .venv
PY := $(VENV)/bin/python
UV := $(shell command -v uv || echo .uv/bin/uv)
EXTRAS := cpu,data,eval,radgraph,dev
# pyc files are written at install: each of the ten processes of a run imports torch, verl and vLLM anew.
INSTALL := $(UV) pip install --python $(PY) --compile-bytecode --override overrides-cpu.txt -e '.[$(EXTRAS)]'
# What OraPO's DPO is compared with. In a folder of its own: verl 0.9.1 cannot start where this TRL can be imported.
TRL := trl==1.16.0

.PHONY: demo test bench lint reproduce-orapo reproduce-gated setup clean
demo: setup
	bash recipes/demo_cpu.sh

test: setup
	$(PY) -m pytest

bench: setup
	$(PY) -m benchmarks $(if $(BASELINE),--baseline $(BASELINE))

# GRPO against OraPO over three seeds on simulated films: docs/reproduce_orapo.{json,png,md}. About an hour.
reproduce-orapo: setup
	DOCS=docs bash recipes/orapo_cpu.sh

# The three stages of the gated reward, its parts and its tau on simulated films: docs/reproduce_gated.{json,png,md}.
reproduce-gated: setup
	DOCS=docs bash recipes/gated_cpu.sh

lint: setup
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

setup: $(VENV)/.complete

$(VENV)/.complete: pyproject.toml overrides-cpu.txt | $(UV)
	$(UV) venv --quiet --allow-existing --python '>=3.11,<3.13' $(VENV)
	$(INSTALL)
	$(UV) pip install --quiet --python $(PY) --no-deps --target $(VENV)/trl $(TRL)
	touch $@

.uv/bin/uv:
	python3 -m venv .uv
	.uv/bin/pip install --quiet uv

clean:
	rm -rf $(VENV) .uv build *.egg-info
