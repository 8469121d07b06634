"""Disk waits of a job in its event log, without the plugin and with it, against the kernel's counters.

The reference is the kernel's block I/O delay of the executor's threads (delay accounting, `harness/threads.py`), on a disk
of known rate. It covers only the stage that reads, after the same query has run on a few rows: loading classes is block
I/O too and would count otherwise.
"""

import io
import json
import os
import threading
import time
from pathlib import Path

import duckdb
import pytest
import zstandard

from harness import binary, spark, threads
from lab import cache, disks, kernel, memory

JAR = binary.ROOT / "spark-plugin" / "target" / "pellucid-spark.jar"
TASKS = "Executor task"
# A scan of some seconds, so that start-up and rounding hardly matter.
RATE, SIZE = "20MB/s", 60 << 20

pytestmark = [
    pytest.mark.full,
    pytest.mark.alone,
    pytest.mark.skipif(spark.missing() is not None, reason=f"no Spark: {spark.missing()}"),
    pytest.mark.skipif(kernel.missing() is not None, reason=f"no throttled disk: {kernel.missing()}"),
    pytest.mark.skipif(not threads.DELAYACCT.exists(), reason="the kernel has no delay accounting"),
    pytest.mark.skipif(not JAR.exists(), reason=f"the plugin is not built: {JAR} (make plugin)"),
]


@pytest.fixture(autouse=True)
def accounting(tmp_path, monkeypatch):
    """Accurate delay accounting; no executable pages paged out, which would be read again; a separate lab folder."""
    monkeypatch.setenv("PELLUCID_LAB", str(tmp_path / "lab"))
    with threads.delay_accounting(), threads.real_time(TASKS), memory.not_paged_out():
        yield


class Delays(threading.Thread):
    """A sampler of the block I/O delays of the executors' task threads."""

    def __init__(self):
        super().__init__(daemon=True)
        self.ended = threading.Event()
        self.last: dict[int, int] = {}
        # Pairs of a time and the total ticks until then.
        self.samples = [(time.time(), 0)]

    def run(self):
        started, per_s = time.time(), os.sysconf("SC_CLK_TCK")
        while not self.ended.wait(0.05):
            at, ticks = time.time(), self.samples[-1][1]
            for tid, count in self.counts().items():
                # A new thread may start with the counts of another one, and its first wait may count from boot:
                # no thread can have waited for longer than the sampler runs.
                more = count - self.last.get(tid, count)
                ticks += more if more <= (at - started) * per_s else 0
                self.last[tid] = count
            self.samples.append((at, ticks))

    @staticmethod
    def counts() -> dict[int, int]:
        """Returns ticks by thread."""
        found = {}
        for pid in threads.below(os.getpid()):
            try:
                if b"CoarseGrainedExecutorBackend" not in Path(f"/proc/{pid}/cmdline").read_bytes():
                    continue
            except OSError:
                continue
            seen: dict[int, threads.Thread] = {}
            threads.sample(pid, seen)
            found |= {tid: thread.blocked_ticks for tid, thread in seen.items() if thread.name.startswith(TASKS)}
        return found

    def ms(self, started: float, ended: float) -> float:
        """Returns the total delay of all threads between two times, outside of which they have nothing to wait for."""
        self.ended.set()
        self.join()
        before = max(ticks for at, ticks in self.samples if at <= started)
        after = min((ticks for at, ticks in self.samples if at >= ended), default=self.samples[-1][1])
        return (after - before) * 1000 / os.sysconf("SC_CLK_TCK")


def stage_in_log(trace: Path, stage: int) -> tuple[float, float, float]:
    """Returns a stage's start and end in seconds of the epoch, and its block I/O delay in ms, from the log.

    The plugin reads the delay from the kernel at both ends of each task.
    """
    with open(trace, "rb") as file:
        plain = io.TextIOWrapper(zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True))
        events = [json.loads(line) for line in plain if "SparkListenerTaskEnd" in line or "SparkListenerStageCompleted" in line]
    (info,) = (e["Stage Info"] for e in events if e.get("Stage Info", {}).get("Stage ID") == stage)
    accumulables = [a for e in events if e.get("Stage ID") == stage for a in e["Task Info"]["Accumulables"]]
    delay_ns = sum(int(a["Update"]) for a in accumulables if a.get("Name") == "pellucid.block_delay_ns")
    return info["Submission Time"] / 1e3, info["Completion Time"] / 1e3, delay_ns / 1e6


def scan(file: Path, few: Path, trace: Path, jar: str, version: str) -> tuple[dict, float, float]:
    """Runs one cold scan on an executor; returns the analysed stage, the kernel's delay, and the plugin's reading of it."""
    cache.evict([file])
    delays = Delays()
    delays.start()
    text = "; ".join(f"SELECT sum(length(payload)) AS n FROM {table}" for table in ("few", "t"))
    plain = {key: value for key, value in os.environ.items() if key not in ("SPARK_HOME", "SPARK_CONF_DIR")}
    ran = binary.run(
        "sql",
        text,
        *("--table", f"t={file}", "--table", f"few={few}/*.parquet", "--trace", trace, "--json"),
        *("--on", "spark=local-cluster[1,2,1024]", "--conf", "spark.pellucid.mode=measure"),
        env={**plain, "PYSPARK_PYTHON": str(spark.python(version)), "PELLUCID_SPARK_JAR": jar},
    ).check()
    assert [result["row_count"] for result in json.loads(ran.out)["results"]] == [1, 1]
    analysis = json.loads(binary.run("analyze", trace, "--json").check().out)
    # The first scan warms up the executor.
    *_, stage = (stage for stage in analysis["stages"] if "Scan parquet" in stage["name"])
    started, ended, plugin_ms = stage_in_log(trace, stage["source_id"])
    return stage, delays.ms(started, ended), plugin_ms


def write(file: Path, rows: str) -> None:
    """Writes incompressible rows of 64 bytes."""
    payload = "SELECT i AS id, md5(i::VARCHAR) || md5((i + 1)::VARCHAR) AS payload"
    duckdb.sql(f"COPY ({payload} FROM range({rows}) r(i)) TO '{file}' (COMPRESSION uncompressed, ROW_GROUP_SIZE 60000)")


@pytest.mark.parametrize("version", ["4", "4.0", "3.5"])
def test_plugin_measures_waits_that_stock_logs_only_bound(tmp_path, version):
    few = tmp_path / "few"
    few.mkdir()
    for number in range(8):
        write(few / f"{number}.parquet", f"{number * 100}, {number * 100 + 100}")
    with disks.throttled(RATE, size="512MiB") as disk:
        file = disk.path / "t.parquet"
        write(file, str(SIZE // 64))
        stock, *_ = scan(file, few, tmp_path / "stock.log", "/nowhere.jar", version)
        measured, delayed_ms, plugin_ms = scan(file, few, tmp_path / "plugin.log", str(JAR), version)
    assert stock["blocked_at_most_ms"]["disk"] > 1000, "a stock log must give an upper bound"
    # Stock Spark measures waits for shuffle files only, which are a few bytes here.
    assert (stock["blocked_ms"]["disk"] or 0) < 0.01 * stock["blocked_at_most_ms"]["disk"], stock["blocked_ms"]
    assert "disk input: at most" in binary.run("analyze", tmp_path / "stock.log").check().out
    waited_ms = measured["blocked_ms"]["disk"]
    print(f"by the log {waited_ms:.0f} ms, by the kernel {delayed_ms:.0f} ms, by the plugin's reading of it {plugin_ms:.0f} ms")
    assert waited_ms == pytest.approx(delayed_ms, rel=0.1), (waited_ms, delayed_ms)
    assert plugin_ms == pytest.approx(delayed_ms, rel=0.05), (plugin_ms, delayed_ms)
    # The bound is from another run on the same disk, whose rate was calibrated to 5 %.
    print(f"stock's bound {stock['blocked_at_most_ms']['disk']:.0f} ms")
    assert waited_ms <= stock["blocked_at_most_ms"]["disk"] * 1.1
