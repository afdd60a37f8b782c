# The commands of this project. `make` alone lists them.
.DEFAULT_GOAL := help
.PHONY: help setup setup-alfworld setup-vllm reproduce smoke report slurm-check gpu-check test release verify pins bench lint clean
SHELL := /bin/bash
BIN := .venv/bin

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 20

setup:  ## .venv from the locks, and a Chromium
	@./setup.sh

setup-alfworld:  ## ALFWorld's text engine in .venv, for world.kind: alfworld
	@./setup.sh --alfworld

setup-vllm:  ## .venv-vllm: a policy's job beside vLLM
	@./setup.sh --vllm

reproduce: setup  ## the whole study at scale tiny
	@tools/study.sh tiny

smoke: setup  ## the same rules on tiny numbers, in minutes
	@tools/study.sh smoke

report: SCALE ?= tiny
report: setup  ## one HTML file with all results of a finished run (SCALE=tiny)
	@[ -d results/$(SCALE)/evaluate ] || { echo "no study of scale $(SCALE) was made here; type: make reproduce (tiny) or make smoke" >&2; exit 1; }
	@$(BIN)/snakemake --config scale=$(SCALE) --report results/$(SCALE)/report.html --report-stylesheet workflow/report/style.css
	@$(BIN)/headroom lineage --scale $(SCALE)
	@echo "open results/$(SCALE)/report.html, and results/$(SCALE)/audit/lineage.html for where each number comes from"

slurm-check: setup  ## what this cluster lacks for `snakemake --profile slurm` (SCALE=paper; default: config.yaml's)
	@$(BIN)/headroom slurm-check --scale "$(SCALE)"

gpu-check: setup  ## one GPU on a random model of 4B size: every kind of work, its time, memory and parity (ARGS="--lora")
	@$(BIN)/python -m headroom.cluster.gpu_check $(ARGS)

test:  ## set-up and all tests, the smoke study included
	@./setup.sh --dev
	@$(BIN)/python -m pytest

release:  ## what a finished study made, packed from its records: dist/headroom-SCALE.tar.gz (SCALE=tiny LEVEL=evals)
	@$(BIN)/headroom release --scale $(or $(SCALE),tiny) --with $(or $(LEVEL),evals)

verify:  ## read everything that was recorded again
	@$(BIN)/headroom verify

lint:  ## ruff, mypy, snakefmt, snakemake --lint, locks and schemas
	@./setup.sh --dev
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/snakefmt --check Snakefile workflow
	@$(BIN)/snakemake --lint
	@for tool in lock licences pins container; do $(BIN)/python tools/$$tool.py --check || exit 1; done
	@$(BIN)/headroom schema --check

pins: setup  ## the exact conda builds of envs/*.yaml, where conda and conda-forge can be reached
	@$(BIN)/python tools/pins.py && $(BIN)/python tools/container.py

bench:  ## the benchmarks; their numbers go to benchmarks/*.json
	@./setup.sh --dev
	@for script in benchmarks/*.py; do echo "== $$script"; $(BIN)/python "$$script" || exit 1; done

clean:  ## remove results and caches; figures/ and .venv stay
	rm -rf results .snakemake .pytest_cache .mypy_cache .ruff_cache .hypothesis figures/smoke
