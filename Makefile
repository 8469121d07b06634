# What there is to do with a checkout. Needs cargo, cc, cmake and Python 3.11 or later; Java 17
# and Maven for what is Spark's. Nothing else is to be there.

# Where builds go: as the environment says; else a folder kept outside the checkout, where
# there is one (so that a fresh clone need not compile DataFusion again); else target/.
kept := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/pellucid/target
ifeq ($(strip $(CARGO_TARGET_DIR)),)
CARGO_TARGET_DIR := $(if $(wildcard $(kept)/.),$(kept),$(CURDIR)/target)
endif
export CARGO_TARGET_DIR
export PATH := $(PATH):$(HOME)/.cargo/bin
export PYTHONDONTWRITEBYTECODE := 1

# Always the whole workspace: see the comment on the profile in Cargo.toml. `demo` builds without the features
# of the command, which add crates (TPC-DS, HDFS, Swift) but change no other.
build := cargo build --release --locked --workspace
all := --features pellucid-cli/all

.PHONY: help demo test test-full test-storage test-spark lint bench bench-iterate bench-storage bench-spark bench-adaptive bench-onetwo backtest

help:
	@echo 'make demo       builds, makes data, runs three queries and says what limited them'
	@echo 'make test       every check but the long matrices'
	@echo 'make test-full  those too'
	@echo 'make test-storage  every storage service, MinIO too (built once, some minutes)'
	@echo 'make test-spark  the Spark plugin on every version of Spark that it serves, three quarters of an hour'
	@echo 'make lint       the checks that need no build'
	@echo 'make bench      side by side with peers; writes bench/RESULTS.md (shorter: BENCH="--runs 1")'
	@echo 'make bench-iterate  iterative jobs beside others; writes bench/ITERATE.md (shorter: ITERATE="--rows 2000000")'
	@echo 'make bench-storage  the paper'"'"'s workloads over storage compositions, as root; writes bench/STORAGE.md (STORAGE="--time-limit 600")'
	@echo 'make bench-spark  what-ifs and causes from Spark event logs made here, as root; writes bench/SPARK.md (SPARK="--time-limit 600")'
	@echo 'make bench-adaptive  stock Spark beside the plugin on emulated spinning disks, as root; writes bench/ADAPTIVE.md (ADAPTIVE="--time-limit 600")'
	@echo 'make bench-onetwo  what predicts a second disk on stock Spark, as root; writes bench/ONETWO.md (ONETWO="--time-limit 600")'
	@echo 'make backtest   predictions against emulated hardware, as root; writes bench/BACKTEST.md (BACKTEST="--time-limit 600")'

demo:
	$(build) --bins
	$(CARGO_TARGET_DIR)/release/pellucid demo

test:
	@tests/run

test-full:
	@PELLUCID_FULL=1 tests/run

test-storage: .venv/tests.installed
	$(build) $(all) --bins --examples
	PELLUCID_FULL=1 .venv/bin/python -m pytest -q -rs tests/test_storage.py

# Maven does not see that classes are of another Spark, so each has a folder of its own.
define core_on
	rm -rf spark-plugin/target/core-$(1) && mkdir -p spark-plugin/target/core-$(1)/spark-plugin
	ln -s ../../../crates spark-plugin/target/core-$(1)/crates
	ln -s ../../../src spark-plugin/target/core-$(1)/spark-plugin/src
	cp spark-plugin/pom.xml spark-plugin/target/core-$(1)/spark-plugin
	cd spark-plugin/target/core-$(1)/spark-plugin && mvn -q -B test -Dspark.version=$(1) -Dscala.binary=2.13 -Dscala.version=$(2)
endef

# Compiled and core-tested against Scala 2.13 and Spark 4.0 too; run on 3.5, 4.0 and 4.3 as PySpark brings them. Three quarters of an hour.
test-spark: .venv/tests.installed spark-plugin/target/pellucid-spark.jar
	$(build) $(all) --bins
	$(call core_on,3.5.6,2.13.8)
	$(call core_on,4.0.1,2.13.16)
	PELLUCID_FULL=1 .venv/bin/python -m pytest -q -rs --durations=0 tests/test_spark_plugin.py tests/test_spark_scheduling.py tests/test_spark_waits.py tests/test_sql_on_spark.py tests/test_spark_answers.py tests/test_iterate_on_spark.py

# Maven fetches what it compiles against, and runs the core's tests on the way.
spark-plugin/target/pellucid-spark.jar: spark-plugin/pom.xml $(shell find spark-plugin/src -name '*.java')
	cd spark-plugin && mvn -q -B package
	touch $@

lint:
	@tests/run format clippy environment workspace deny

bench: .venv/bench.installed
	$(build) $(all) --bins --examples
	.venv/bin/python -m bench.run $(BENCH)

# As root: it makes disks, namespaces and groups of cores, and takes them down again.
backtest: .venv/bench.installed
	$(build) $(all) --bins
	.venv/bin/python -B -m bench.backtest.run $(BACKTEST)

# Spark needs Java 17 or later.
bench-iterate: .venv/bench-iterate.installed
	$(build) $(all) --bins --examples
	cargo bench --locked --workspace $(all) --bench floors --no-run
	.venv/bin/python -m bench.iterate.run $(ITERATE)

# As root: a throttled disk and a shaped link. Spark and what it needs for S3 are fetched once.
bench-storage: .venv/bench.installed
	$(build) $(all) --bins
	.venv/bin/python -B -m bench.storage.run $(STORAGE)
	.venv/bin/python -B -m bench.storage.predicted

# As root: a throttled disk and a group of cores. Spark needs Java 17 or later, and is fetched once.
bench-spark: .venv/bench.installed
	$(build) $(all) --bins
	.venv/bin/python -B -m bench.spark.run $(SPARK)

# As root: it makes a disk, and takes it down again. Needs Java 17 and Maven.
bench-adaptive: .venv/tests.installed spark-plugin/target/pellucid-spark.jar
	.venv/bin/python -B -m bench.adaptive.run $(ADAPTIVE)

# As root, likewise.
bench-onetwo: .venv/bench.installed spark-plugin/target/pellucid-spark.jar
	$(build) $(all) --bins
	.venv/bin/python -B -m bench.onetwo.run $(ONETWO)

.venv/bench-iterate.installed: bench/iterate/requirements.txt tests/requirements.txt | .venv/bin/python
	.venv/bin/python -m pip install --quiet --disable-pip-version-check --requirement $<
	touch $@

# Debian keeps what makes virtual environments in a package of its own.
.venv/bin/python:
	python3 -m venv .venv || { rm -rf .venv && apt-get update -q && apt-get install -qy python3-venv && python3 -m venv .venv; }

.venv/%.installed: %/requirements.txt | .venv/bin/python
	.venv/bin/python -m pip install --quiet --disable-pip-version-check --requirement $<
	touch $@
