# What there is to do with a checkout. Needs cargo, cc, cmake and Python 3.11 or later, nothing installed.

# Where builds go: as the environment says; else a folder kept outside the checkout, where
# there is one (so that a fresh clone need not compile DataFusion again); else target/.
kept := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/pellucid/target
ifeq ($(strip $(CARGO_TARGET_DIR)),)
CARGO_TARGET_DIR := $(if $(wildcard $(kept)/.),$(kept),$(CURDIR)/target)
endif
export CARGO_TARGET_DIR
export PATH := $(PATH):$(HOME)/.cargo/bin
export PYTHONDONTWRITEBYTECODE := 1

# Always the whole workspace: see the comment on the profile in Cargo.toml.
build := cargo build --release --locked --workspace

.PHONY: help demo test test-full lint bench

help:
	@echo 'make demo       builds, makes data, runs three queries and says what limited them'
	@echo 'make test       every check but the long matrices'
	@echo 'make test-full  those too'
	@echo 'make lint       the checks that need no build'
	@echo 'make bench      side by side with peers; writes bench/RESULTS.md (shorter: BENCH="--runs 1")'

demo:
	$(build) --bins
	$(CARGO_TARGET_DIR)/release/pellucid demo

test:
	@tests/run

test-full:
	@PELLUCID_FULL=1 tests/run

lint:
	@tests/run format clippy environment workspace deny

bench: .venv/bench.installed
	$(build) --bins --examples
	.venv/bin/python -m bench.run $(BENCH)

# Debian keeps what makes virtual environments in a package of its own.
.venv/bin/python:
	python3 -m venv .venv || { rm -rf .venv && apt-get update -q && apt-get install -qy python3-venv && python3 -m venv .venv; }

.venv/%.installed: %/requirements.txt | .venv/bin/python
	.venv/bin/python -m pip install --quiet --disable-pip-version-check --requirement $<
	touch $@
