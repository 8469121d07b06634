# Tasks for developers. Requires cargo, cc, cmake and Python 3.11 or later; tasks that involve Spark also
# require Java 17 and Maven; the check of the page's scripts requires npm. Everything else is installed on demand.

# The build folder: $CARGO_TARGET_DIR if set; else ~/.cache/pellucid/target if it exists, so that a
# fresh clone does not compile DataFusion again; else target/.
kept := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/pellucid/target
ifeq ($(strip $(CARGO_TARGET_DIR)),)
CARGO_TARGET_DIR := $(if $(wildcard $(kept)/.),$(kept),$(CURDIR)/target)
endif
export CARGO_TARGET_DIR
export PATH := $(PATH):$(HOME)/.cargo/bin
export PYTHONDONTWRITEBYTECODE := 1

# Always build the whole workspace (see the profile in Cargo.toml). `demo` builds the command without its
# features, which add crates (TPC-DS, HDFS, Swift) but change no other crate.
build := cargo build --release --locked --workspace
all := --features pellucid-cli/all

.PHONY: help demo deny plugin wheel dist actionlint workflows requirements test test-full test-storage test-spark lint page-types bench bench-iterate bench-storage bench-spark bench-adaptive bench-onetwo backtest

help:
	@echo 'make demo            build, generate data, run three queries and explain them'
	@echo 'make plugin          build the Spark plugin'
	@echo 'make wheel           build the Python package with the command: dist/*.whl'
	@echo 'make dist            build the archive of the command and all that belongs to a release: dist/'
	@echo 'make test            run every check except the long matrices'
	@echo 'make test-full       run those too'
	@echo 'make test-storage    test every storage service, including MinIO (built once, some minutes)'
	@echo 'make test-spark      test the Spark plugin on every supported Spark (45 minutes)'
	@echo 'make lint            run the checks that need no build'
	@echo
	@echo 'Benchmarks; those marked with * need root:'
	@echo 'make bench           against peers: bench/RESULTS.md (shorter: BENCH="--runs 1")'
	@echo 'make bench-iterate   iterative jobs: bench/ITERATE.md (shorter: ITERATE="--rows 2000000")'
	@echo 'make bench-storage   * storage compositions: bench/STORAGE.md (STORAGE="--time-limit 600")'
	@echo 'make bench-spark     * what-ifs from event logs: bench/SPARK.md (SPARK="--time-limit 600")'
	@echo 'make bench-adaptive  * the Spark plugin: bench/ADAPTIVE.md (ADAPTIVE="--time-limit 600")'
	@echo 'make bench-onetwo    * a second disk: bench/ONETWO.md (ONETWO="--time-limit 600")'
	@echo 'make backtest        * predictions: bench/BACKTEST.md (BACKTEST="--time-limit 600")'

demo:
	$(build) --bins
	$(CARGO_TARGET_DIR)/release/pellucid demo

test:
	@tests/run

test-full:
	@PELLUCID_FULL=1 tests/run

test-storage: .venv/tests.installed
	$(build) $(all) --bins --examples
	PELLUCID_FULL=1 .venv/bin/python -m pytest -q -rs tests/storage/test_storage.py

# Maven would reuse classes compiled for another Spark, so each version has its own folder.
define core_on
	rm -rf spark-plugin/target/core-$(1) && mkdir -p spark-plugin/target/core-$(1)/spark-plugin
	ln -s ../../../crates spark-plugin/target/core-$(1)/crates
	ln -s ../../../src spark-plugin/target/core-$(1)/spark-plugin/src
	cp spark-plugin/pom.xml spark-plugin/target/core-$(1)/spark-plugin
	cd spark-plugin/target/core-$(1)/spark-plugin && mvn -q -B --strict-checksums test -Dspark.version=$(1) -Dscala.binary=2.13 -Dscala.version=$(2)
endef

on_spark := spark_plugin spark_scheduling spark_waits sql_on_spark spark_answers iterate_on_spark

# Compiles and tests the core against Scala 2.13 and Spark 4.0 as well, and runs on the Spark of PySpark 3.5, 4.0 and 4.3.
test-spark: .venv/tests.installed plugin
	$(build) $(all) --bins
	$(call core_on,3.5.6,2.13.8)
	$(call core_on,4.0.1,2.13.16)
	PELLUCID_FULL=1 .venv/bin/python -m pytest -q -rs --durations=0 $(on_spark:%=tests/spark/test_%.py)

plugin: $(CARGO_TARGET_DIR)/release/pellucid-spark.jar

# `pellucid` uses the jar that is beside it.
$(CARGO_TARGET_DIR)/release/pellucid-spark.jar: spark-plugin/target/pellucid-spark.jar
	mkdir -p $(@D) && cp $< $@

# Maven downloads the dependencies, with their checksums verified, and runs the core's tests.
spark-plugin/target/pellucid-spark.jar: spark-plugin/pom.xml $(shell find spark-plugin/src -type f)
	cd spark-plugin && mvn -q -B --strict-checksums package
	touch $@

# Releases. Only the links differ from the usual build, so both take minutes after `make test`.
version := $(shell sed -n 's/^version = "\(.*\)"/\1/p;T;q' Cargo.toml)
release := pellucid-$(version)-$(shell uname -m)-linux
portable := -C linker=$(CURDIR)/.cargo/zig-cc -C strip=symbols

# maturin packs the files of python/pellucid, where the command looks for the jar, and python/LICENSE.
wheel: .venv/dist.installed plugin
	cp $(CARGO_TARGET_DIR)/release/pellucid-spark.jar python/pellucid
	cp LICENSE python
	rm -f dist/pellucid-*.whl
	.venv/bin/maturin build --manifest-path python/Cargo.toml --locked --compatibility manylinux_2_28 --auditwheel check --out dist -- $(portable)

# The wheel holds the bill of materials: maturin writes it.
dist: wheel
	cargo rustc --release --locked --package pellucid-cli --features all --bin pellucid -- $(portable)
	rm -rf dist/$(release) dist/pellucid-*.tar.gz && mkdir -p dist/$(release)/completions
	cp $(CARGO_TARGET_DIR)/release/pellucid $(CARGO_TARGET_DIR)/release/pellucid-spark.jar README.md CHANGELOG.md LICENSE dist/$(release)
	cd dist/$(release) && ./pellucid man --quiet -o man
	cd dist/$(release)/completions && for file in bash:pellucid.bash fish:pellucid.fish powershell:_pellucid.ps1 zsh:_pellucid; do \
		../pellucid completions $${file%:*} > $${file#*:} || exit 1; \
	done
	tar -C dist --sort=name --owner=0 --group=0 --numeric-owner --mtime=@$$(git log -1 --format=%ct) -cf - $(release) \
		| gzip -9n > dist/$(release).tar.gz
	.venv/bin/python -c 'import sys, zipfile; wheel = zipfile.ZipFile(sys.argv[1]); \
		[bill] = [name for name in wheel.namelist() if name.endswith(".cyclonedx.json")]; \
		print(wheel.read(bill).decode().replace("file://$(CURDIR)/", "file:///"))' dist/pellucid-*.whl > dist/$(release).cyclonedx.json
	rm -rf dist/$(release)
	cd dist && sha256sum pellucid-* > SHA256SUMS

# Built once for all checkouts, in about two minutes.
deny_version := 0.20.2
cargo_deny := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/pellucid/cargo-deny-$(deny_version)
$(cargo_deny)/bin/cargo-deny:
	env -u CARGO_TARGET_DIR cargo install --quiet --locked --no-default-features --version $(deny_version) --root $(cargo_deny) cargo-deny

actionlint_version := 1.7.12
actionlint := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/pellucid/actionlint-$(actionlint_version)
$(actionlint)/actionlint:
	GOBIN=$(actionlint) go install github.com/rhysd/actionlint/cmd/actionlint@v$(actionlint_version)

actionlint: $(actionlint)/actionlint

workflows: actionlint
	$(actionlint)/actionlint

deny: $(cargo_deny)/bin/cargo-deny .venv/tests.installed
	.venv/bin/python tests/deny.py $<

lint:
	@tests/run format clippy environment lint page workflows workspace deny spark

bench: .venv/bench.installed
	$(build) $(all) --bins --examples
	.venv/bin/python -m bench.run $(BENCH)

# Needs root: creates disks, network namespaces and cgroups, and removes them again.
backtest: .venv/bench.installed
	$(build) $(all) --bins
	.venv/bin/python -B -m bench.backtest.run $(BACKTEST)

# Needs Java 17 or later for Spark.
bench-iterate: .venv/bench-iterate.installed
	$(build) $(all) --bins --examples
	cargo bench --locked --workspace $(all) --bench floors --no-run
	.venv/bin/python -m bench.iterate.run $(ITERATE)

# Needs root: creates a throttled disk and a shaped link. Downloads Spark and its S3 client once.
bench-storage: .venv/bench.installed
	$(build) $(all) --bins
	.venv/bin/python -B -m bench.storage.run $(STORAGE)
	.venv/bin/python -B -m bench.storage.predicted

# Needs root: creates a throttled disk and a cgroup. Needs Java 17 or later; downloads Spark once.
bench-spark: .venv/bench.installed
	$(build) $(all) --bins
	.venv/bin/python -B -m bench.spark.run $(SPARK)

# Needs root: creates a disk, and removes it again. Needs Java 17 and Maven.
bench-adaptive: .venv/tests.installed plugin
	.venv/bin/python -B -m bench.adaptive.run $(ADAPTIVE)

# Needs root, Java 17 and Maven as well.
bench-onetwo: .venv/bench.installed plugin
	$(build) $(all) --bins
	.venv/bin/python -B -m bench.onetwo.run $(ONETWO)

# Debian packages the venv module separately.
.venv/bin/python:
	python3 -m venv .venv || { rm -rf .venv && apt-get update -q && apt-get install -qy python3-venv && python3 -m venv .venv; }

.venv/%.installed: requirements/%.txt | .venv/bin/python
	.venv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement $<
	touch $@

# The type checker of the page's scripts; package-lock.json holds its hash.
requirements/page/node_modules/installed: requirements/page/package-lock.json
	cd requirements/page && npm ci --silent --no-audit --no-fund --ignore-scripts
	touch $@

page-types: requirements/page/node_modules/installed
	requirements/page/node_modules/.bin/tsc --project crates/report/src/html

# Renews the locked versions and hashes of Python packages after a change to requirements/*.in.
requirements: | .venv/bin/python
	.venv/bin/python -m pip install --quiet --disable-pip-version-check uv==0.13.9
	cd requirements && for list in *.in; do \
		../.venv/bin/uv pip compile --quiet --universal --generate-hashes --python-version 3.11 --no-header --no-annotate \
			$$([ $$list = rapids.in ] && echo --no-deps) --output-file $${list%.in}.txt $$list || exit 1; \
	done
