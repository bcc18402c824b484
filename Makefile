# Everything that quell needs besides Rust, Python 3.11 or newer and a C compiler is put into this checkout:
# uv (through pip, where the machine has none) into .cache/, Python packages into .venv/, Rust's output into target/.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules
.DEFAULT_GOAL := help

PYTHON ?= python3
UV := $(shell command -v uv || echo .cache/uv-bin/bin/uv)
BIN := .venv/bin
export UV_CACHE_DIR ?= $(CURDIR)/.cache/uv
export PATH := $(CURDIR)/.cache/uv-bin/bin:$(PATH)
export PYO3_PYTHON := $(CURDIR)/$(BIN)/python
# (Cargo would look for the job server of `make -j` in the last two.)
unexport VIRTUAL_ENV CONDA_PREFIX MAKEFLAGS MFLAGS

# The lines of these files decide whether the extension module is built again.
RUST_SOURCES := Cargo.toml Cargo.lock rust-toolchain.toml pyproject.toml \
  $(shell find crates -name Cargo.toml -o -type f \( -path '*/src/*' -o -path '*/models/*' -o -path 'crates/quell-live/bpf/*' \))

# The profile of what is published: link-time optimisation (dist in Cargo.toml), which takes minutes. PROFILE=release has none.
PROFILE ?= dist
STATIC_PROFILE := $(PROFILE:dist=static)

# What tests of quell live need on Linux: the program, and the static one for virtual machines.
LINUX := $(filter Linux,$(shell uname))
LIVE := $(if $(LINUX),$(BIN)/quell-live)
STATIC := $(if $(LINUX),dist/quell-live)
CARGO_DENY := .cache/cargo/bin/cargo-deny

.PHONY: help build wheel deb pgo extras quell-live bpf demo test test-all test-parts msrv deny docs outputs fuzz miri mutants coverage attack \
  bench bench-peers bench-live fidelity version address \
  clean

help: ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):[^#]*## */  make \1\t/' | expand -t 20

build: .venv/quell.built ## a working quell at .venv/bin/quell

wheel: .venv/build.installed ## a wheel for this machine and a source distribution, in dist/
	rm -f dist/*.whl dist/*.tar.gz
	VIRTUAL_ENV=$(CURDIR)/.venv $(BIN)/maturin build --profile $(PROFILE) --locked --out dist
	VIRTUAL_ENV=$(CURDIR)/.venv $(BIN)/maturin sdist --out dist

pgo: .venv/build.installed ## build as above with a profile of its own hot paths; takes minutes and needs llvm-profdata
	PYTHON=$(BIN)/python tools/pgo env VIRTUAL_ENV=$(CURDIR)/.venv $(BIN)/maturin develop --profile $(PROFILE) --locked --uv
	@: > .venv/quell.built

comma := ,
extras: .venv/build.installed ## pyproject.toml's optional dependencies (torch, Ray, ...), or some: EXTRAS="train ray"
	$(UV) pip install --quiet --python $(BIN)/python -r pyproject.toml --constraint requirements/dev.txt --excludes requirements/exclude.txt \
	  $(if $(EXTRAS),$(addprefix --extra ,$(subst $(comma), ,$(EXTRAS))),--all-extras)

quell-live: dist/quell-live ## quell live without Python, one static file: dist/quell-live (Linux)

# Each object depends on its source and this compiler alone, byte for byte. What is removed serves linkers and debuggers alone.
BPF := crates/quell-qdisc/bpf
bpf: ## the disciplines in BPF that `quell attach` loads, from their source in C (needs clang-22 and llvm-22): crates/quell-live/bpf
	for source in $(BPF)/*.bpf.c; do \
	  object=$(or $(OUT),$(CURDIR)/crates/quell-live/bpf)/$$(basename $${source%.c}.o); \
	  (cd $(BPF) && clang-22 -g -O2 -Wall -Werror -target bpf -mcpu=v3 -ffile-prefix-map=$(CURDIR)/$(BPF)=. -c $$(basename $$source) -o $$object); \
	  llvm-strip-22 -g --remove-section=.rel.BTF.ext --remove-section=.llvm_addrsig $$object; \
	  tools/slim_btf.py $$object; \
	done

deb: dist/quell-live ## a Debian package of quell-live for this architecture, in dist/
	packaging/debian/build dist/quell-live dist

demo: .venv/quell.built ## compare every queue on the home scenario; writes quell-report.html
	$(BIN)/quell compare --html quell-report.html
	@printf '%s\n' '' 'Open quell-report.html in a browser. Next, after `. .venv/bin/activate`:' \
	  '  quell tune --rate 50mbit/10mbit                      lines to paste for your router' \
	  '  quell shell --rate 15mbit --delay 20ms -- COMMAND    an application behind a bad link' \
	  '  python examples/own_queue.py                         a queue of your own beside the others'

test: .venv/quell.built .venv/test.installed $(LIVE) ## before a commit: formatting, lints, types, Rust and Python tests, the report in a browser
	tests/checks

test-all: .venv/quell.built .venv/dev.installed $(LIVE) $(STATIC) $(CARGO_DENY) ## the same and all else: packages, trainings, Ray, virtual machines, the site
	tests/checks --all

test-parts: .venv/quell.built .venv/dev.installed $(LIVE) $(STATIC) $(if $(filter deny,$(PARTS)),$(CARGO_DENY)) ## some parts of test-all: PARTS="wheel guest"; tests/checks --list names them
	tests/checks $(PARTS)

MSRV = $(shell sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
msrv: .venv/build.installed ## that quell compiles with the oldest Rust that Cargo.toml names
	rustup toolchain install --profile minimal $(MSRV)
	cargo +$(MSRV) check --workspace --locked --target-dir target/msrv

$(CARGO_DENY):
	cargo install --quiet --locked --root .cache/cargo cargo-deny

deny: $(CARGO_DENY) ## licences, sources and known defects of dependencies (installs cargo-deny into .cache/)
	PATH=$(CURDIR)/.cache/cargo/bin:$$PATH cargo deny --locked check $(DENY)

docs: .venv/quell.built .venv/dev.installed ## the site, with the documentation of the Rust crates, in target/site: open target/site/index.html
	$(BIN)/python tools/site.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

outputs: .venv/quell.built .venv/dev.installed ## the command output shown in README and docs, updated: PAGES="README.md docs/lab/wifi.md"
	$(BIN)/python tools/outputs.py $(PAGES)

fuzz: ## each fuzz target, or some, for a time: T=600 TARGETS="words header"
	tools/fuzz $(or $(T),60) $(TARGETS)

MIRI = cargo +nightly miri test --locked --target-dir target/miri
miri: ## unsafe code outside quell-live and threads that share state, under Miri (installs nightly Rust)
	rustup toolchain install --profile minimal --component miri --component rust-src nightly
	RUSTFLAGS="-Ctarget-feature=+avx2,+fma" MIRIFLAGS="-Zmiri-disable-isolation" \
	  $(MIRI) --package quell-qdisc --test it policy -- a_file_of_torch integer_sums
	MIRIFLAGS="-Zmiri-many-seeds=0..16 -Zmiri-disable-isolation" $(MIRI) --package quell-lab --lib -- team_tests::

mutants: ## mutation tests of quell-qdisc: a random sample in one build, N=200 SEED=1 (installs cargo-mutants into .cache/)
	@[ -x .cache/cargo/bin/cargo-mutants ] || cargo install --quiet --locked --root .cache/cargo cargo-mutants
	PATH=$(CURDIR)/.cache/cargo/bin:$$PATH $(PYTHON) tools/mutants.py --sample $(or $(N),200) --seed $(or $(SEED),1)

coverage: ## the lines that Rust tests run, CRATES=quell-qdisc (needs llvm-tools of rustup, or llvm-22 of Debian)
	$(PYTHON) tools/coverage.py $(CRATES)

ATTACK = $(BIN)/python tests/by-file --processes 1
ATTACKS = $(wildcard tests/attack/*/test_*.py)
attack: .venv/quell.built .venv/dev.installed $(LIVE) ## attacks on quell, in network namespaces, as root; tables at the end; LONG=1: longer and more often
	export FORCE=1; failed=0; \
	nice $(ATTACK) --name attack $(ATTACKS) -- -m "not real_time" $(if $(LONG),--long) & \
	$(ATTACK) --name attack-real-time $(ATTACKS) -- -m real_time $(if $(LONG),--long) || failed=1; \
	wait $$! || failed=1; exit $$failed

bench: .venv/quell.built .venv/dev.installed ## what a packet, a queue operation and a step of an environment cost
	benches/run

bench-peers: .venv/quell.built ## the same dumbbell through ns-2 and ns-3, the same Wi-Fi cells through ns-3
	benches/peers

bench-live: .venv/quell.built ## real packets through quell shell and quell live beside forwarders that do nothing; as root
	benches/real

fidelity: .venv/quell.built ## theory, Linux's reference figures and published ones; writes docs/lab/fidelity.md
	benches/fidelity

version: ## writes a version into every place that has one: make version V=0.2.0
	@$(PYTHON) tools/version.py $(V)

address: ## writes the repository's address (and a contact) into metadata and README's links, for packages: make address URL=https://... CONTACT="Name <name@host>"
	@$(PYTHON) tools/address.py $(URL) $${CONTACT:+"$$CONTACT"}

clean: ## removes what was built here
	rm -rf .venv .cache target dist python/quell/*.so

.cache/uv-bin/bin/uv: requirements/uv.txt
	@$(PYTHON) -m pip --version >/dev/null || { echo "pip is missing; on Debian: apt-get install python3-pip" >&2; exit 1; }
	$(PYTHON) -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --upgrade --target .cache/uv-bin \
	  --require-hashes -r $<
	@touch $@

.venv/bin/python: | $(UV)
	$(UV) venv --quiet --allow-existing --python $(PYTHON) .venv

# One list installs into the other's place: the short one must not undo the long one.
# Bytecode is compiled here, since some systems forbid Python to store it, which doubles the start of each command.
.venv/build.installed: requirements/build.txt | $(BIN)/python
	$(UV) pip install --quiet --compile-bytecode --python $(BIN)/python --require-hashes -r $<
	@touch $@

.venv/test.installed: requirements/test.txt .venv/build.installed
	$(UV) pip install --quiet --compile-bytecode --python $(BIN)/python --require-hashes -r $<
	@touch $@

.venv/dev.installed: requirements/dev.txt .venv/test.installed
	$(UV) pip install --quiet --python $(BIN)/python --excludes requirements/exclude.txt --require-hashes -r $<
	@touch $@

# tests/by-file reads what is written into it.
.venv/quell.built: .venv/build.installed $(RUST_SOURCES)
	VIRTUAL_ENV=$(CURDIR)/.venv $(BIN)/maturin develop --release --features inputs --locked --uv
	$(BIN)/python -m compileall -q python/quell
	@echo release, inputs > $@

# With both packages named, Cargo resolves the same features as for the extension module and reuses its libraries.
$(BIN)/quell-live: .venv/quell.built
	cargo build --release --features quell-py/inputs --locked --quiet --package quell-py --package quell-live --bin quell-live
	ln -f target/release/quell-live $@ 2>/dev/null || cp target/release/quell-live $@

# With musl's C library, which rustup installs, or with glibc's where it cannot: both are linked in.
# The linker that comes with the toolchain keeps identical functions once, and relocations in a compact form.
dist/quell-live: $(RUST_SOURCES)
	host=$$(rustc -vV | sed -n 's/^host: //p'); target=$${host/-gnu/-musl}; rustlib=$$(rustc --print sysroot)/lib/rustlib; \
	[ -d "$$rustlib/$$target" ] || timeout 60 rustup --quiet target add "$$target" 2>/dev/null || target=$$host; lld=$$rustlib/$$host/bin/gcc-ld; \
	[ ! -d "$$lld" ] || small="-C link-arg=-B$$lld -C link-arg=-fuse-ld=lld -C link-arg=-Wl,--icf=all,-z,pack-relative-relocs"; \
	RUSTFLAGS="-C target-feature=+crt-static -C strip=symbols $${small:-}" cargo build --profile $(STATIC_PROFILE) --locked --quiet --package quell-live \
	  --bin quell-live --target $$target --target-dir target/static; \
	mkdir -p dist; cp target/static/$$target/$(STATIC_PROFILE)/quell-live $@
