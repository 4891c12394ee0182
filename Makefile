# What a contributor and CI call. `make help` says what there is.
SHELL := /bin/bash
CARGO ?= cargo

.PHONY: help build mpi demo quick test test-mpi test-real check lint fmt bench bench-smoke soak-stackfs soak-proxy fuzz packages release results-check

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## the binary, optimised: target/release/crumb
	$(CARGO) build --release -p crumb

# A feature of the one crate that needs an MPI and libclang, which bindgen loads. Asked of the workspace and not of the crate
# alone: then all that both have in common is built once.
MPI := --workspace --features crumb-mpi/mpi
# Not libclang-cpp.so, another library, which Debian installs with other packages.
LIBCLANG := $(foreach directory,/usr/lib/llvm*/lib /usr/lib/*-linux-gnu /usr/lib* /usr/local/lib,\
	$(directory)/libclang.so* $(directory)/libclang-[0-9]*.so*)
# What is missing for it; nothing where it can be built. Asked for when it is needed: `packages` may install it.
mpi_lacks = $(if $(shell command -v $${MPICC:-mpicc} 2>/dev/null),, no MPI (mpicc);)$(if \
	$(LIBCLANG_PATH)$(shell command -v llvm-config)$(shell ls $(LIBCLANG) 2>/dev/null),, no libclang;)

mpi: ## the generator for many machines, optimised: target/release/crumb-mpi (needs an MPI and libclang)
	$(CARGO) build --release -p crumb-mpi --features mpi

# Without an MPI: a failure where CRUMB_TESTS_MUST_RUN=1, as in CI; elsewhere a line in the list of skipped tests.
mpi_or_skip = @lacks="$(mpi_lacks)"; if [ -z "$$lacks" ]; then $(2); \
	elif [ "$$CRUMB_TESTS_MUST_RUN" = 1 ]; then \
	echo "cannot run $(1) of crumb-mpi:$${lacks%;} (make packages, or apt-get install mpich libmpich-dev libclang-dev)" >&2; exit 1; \
	else echo "skipped: crumb-mpi: $(1):$${lacks%;}" | tee -a "$${CRUMB_TESTS_SKIPPED:-/dev/null}" >&2; fi

test-mpi: ## its tests: ranks on loopback and in network namespaces, killed, stopped, cut off
	$(call mpi_or_skip,the tests,$(CARGO) test --no-fail-fast $(MPI) --bin crumb-mpi --test mpi --test mpi_golden_records)

release: ## what is published, in target/packages: .deb, static tarball, Containerfile, checksums; needs musl-tools
	scripts/release.sh

demo: build ## the main job with no server needed: two quick sweeps on loopback and a report, in under 90 seconds
	scripts/demo.sh

packages: ## install what the tests need (Debian, root); otherwise say what is missing
	scripts/test-packages.sh

# One test by itself: whether the processors stay awake for a mount shows only while nothing else keeps them so.
AWAKE := processors_stay_awake_while_requests_come_and_sleep_again_after
test: packages bench-smoke ## every test, with real servers where they are installed; ends with what was skipped and a sum
	@scripts/run-tests.sh '$(CARGO) test --workspace --test waking $(AWAKE)' \
		'beside: make --no-print-directory test-mpi' \
		'scripts/awake.sh $(CARGO) test --workspace --no-fail-fast -- --skip $(AWAKE)'

quick: ## unit tests and tables of rules: no servers, no root, no network; under 2 minutes once it is built
	@scripts/run-tests.sh '$(CARGO) test --workspace --no-fail-fast --lib --bins --test rules --test house'

test-real: ## the tests on real articles and traces, which are not in the repository: they are read from ../shared/data
	@scripts/run-tests.sh '$(CARGO) test --no-fail-fast -p netnews -p crumb -- --ignored'

lint: ## formatting, and clippy with warnings as errors; installs nothing
	$(CARGO) fmt --all -- --check
	$(CARGO) clippy $(if $(mpi_lacks),--workspace,$(MPI)) --all-targets -- -D warnings
	$(CARGO) clippy -p crumb --no-default-features --features bench -- -D warnings
	$(call mpi_or_skip,clippy,true)

results-check: ## measured figures in README, guide and design notes that no page below results/ supports; needs python3
	scripts/results-check.py

check: lint test ## what CI runs

fmt: ## format all code
	$(CARGO) fmt --all

bench: ## the figures: object sets, bare loops beside generator and spool; libnfs, Debian's postmark, INN, other FUSE layers, files and SQLite beside ours
	$(CARGO) bench -p fstress
	scripts/bench-capacity.sh
	scripts/bench-postmark.sh
	scripts/bench-netnews.sh
	scripts/awake.sh scripts/bench-stackfs.sh 3 --parts small,stream
	scripts/awake.sh scripts/measure-pack.sh -- --objects 20000

# All at once: one package after another would build what they share anew for each choice of features.
bench-smoke: ## the benchmarks with tiny inputs, so that they cannot rot
	$(CARGO) test --workspace --bench object_sets --bench bare_loop --bench unbatch --bench layers --bench hit_ratio \
		--bench rates --bench full --bench hit --bench sockets --bench capacity --bench names

soak-stackfs: ## the stackable file system for longer (root): a million operations, 300,000 articles
	CRUMB_FSX_OPERATIONS=1000000 $(CARGO) test --no-fail-fast -p stackfs --test posix
	CRUMB_DIFFERENTIAL_OPERATIONS=1000000 $(CARGO) test --no-fail-fast -p stackfs --test it differential
	scripts/soak-netnews-mount.sh

soak-proxy: ## everything at once at the proxy for two minutes, nothing left behind; 40,000 slow misses, no reply lost
	CRUMB_SLOW_MISSES=40000 $(CARGO) test -p webcache --test server slow_misses
	scripts/soak-proxy.sh

fuzz: ## a minute of each fuzz target: what comes by wire, what is read from packed files, pages, configurations (needs cargo-fuzz)
	cd crates/nfs && RUSTC_BOOTSTRAP=1 $(CARGO) fuzz run wire -- -max_total_time=60
	cd crates/packstore && RUSTC_BOOTSTRAP=1 $(CARGO) fuzz run index -- -max_total_time=60
	cd crates/packstore && RUSTC_BOOTSTRAP=1 $(CARGO) fuzz run control -- -max_total_time=60
	cd crates/webcache && for target in connection exchange url datagram stored page config; do \
		mkdir -p fuzz/corpus/$$target && RUSTC_BOOTSTRAP=1 $(CARGO) fuzz run $$target fuzz/corpus/$$target fuzz/seeds/$$target \
			-- -max_total_time=60 || exit 1; done
