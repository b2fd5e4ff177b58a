# The front door. `make demo` and `make test` do all set-up themselves, on Debian 12 or 13, as root or with sudo.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := build

TIME ?= 600
SETUP_STAMP := .venv/.setup-stamp

.PHONY: build native wheel debug sanitize setup test demo lint format fuzz clean help

## build: build/equiforge, build/libequiforge.so and the wheel in dist (the default)
build: native wheel

## native: only build/equiforge and build/libequiforge.so, the release build
native: build/build.ninja
	@ninja -C build

## wheel: only the wheel, when something that goes into it has changed
wheel: build/wheel/stamp

## debug: an unoptimised build with assertions, in build-debug
debug: build-debug/build.ninja
	@ninja -C build-debug

## sanitize: a build under ASan and UBSan, in build-sanitize
sanitize: build-sanitize/build.ninja
	@ninja -C build-sanitize

## setup: the apt packages and the Python environment that everything else needs
setup: $(SETUP_STAMP)

## test: set-up, unit and property tests (release, then sanitizers), command-line tests, lint
test: setup
	@tools/test.sh

## demo: set-up, build, a PyTorch attention block optimised for this machine's CPU
demo: setup
	@$(MAKE) --no-print-directory native
	@PYTHONPATH=python .venv/bin/python examples/attention_block.py

## lint: clang-format, clang-tidy and ruff; changes nothing
lint: setup
	@tools/lint.sh

## format: formats all C and Python sources in place
format: setup
	@tools/lint.sh --fix

## fuzz: fuzzes the parsers; TIME=600 seconds each unless told
fuzz: setup
	@TIME=$(TIME) tests/fuzz/run.sh

## clean: removes the build folders; set-up stays
clean:
	rm -rf build build-debug build-sanitize build-fuzz dist

## help: this list
help:
	@sed -n 's/^## /  make /p' Makefile

WHEEL_SOURCES := meson.build meson_options.txt pyproject.toml README.md tools/wheel.sh tools/embed.py bench/workloads.py \
    $(shell find include src python -type f -not -name '*.pyc')
build/wheel/stamp: $(WHEEL_SOURCES)
	@tools/wheel.sh
	@touch $@

$(SETUP_STAMP): tools/setup.sh tools/requirements-dev.txt
	@tools/setup.sh

# Configures once; after that ninja itself notices a changed meson.build.
build/build.ninja build-debug/build.ninja build-sanitize/build.ninja: %/build.ninja:
	@command -v meson >/dev/null || { echo "meson is not installed; run 'make setup' first" >&2; exit 1; }
	@rm -rf $*
	@case $* in \
	    build) meson setup $* --buildtype=release ;; \
	    build-debug) meson setup $* --buildtype=debug ;; \
	    build-sanitize) CC=gcc meson setup $* --buildtype=debugoptimized -Db_sanitize=address,undefined ;; \
	esac
