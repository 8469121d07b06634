"""What an event log says of a job that waits for its input, without the plugin and with it.

Outside check: the kernel's own count of how long the executor's threads were delayed by block I/O (delay
accounting, `tests/threads.py`), on a disk whose rate is known. Only while the stage runs that reads, and after the same
query has run on a few rows: else loading classes, which is block I/O too, would count.
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

from lab import cache, disks, kernel, memory
from tests import binary, spark, threads

JAR = binary.ROOT / "spark-plugin" / "target" / "pellucid-spark.jar"
TASKS = "Executor task"
# A scan of some seconds, so that start-up and rounding are small beside it.
RATE, SIZE = "20MB/s", 60 << 20

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(spark.missing() is not None, reason=f"no Spark: {spark.missing()}"),
    pytest.mark.skipif(kernel.missing() is not None, reason=f"no throttled disk: {kernel.missing()}"),
    pytest.mark.skipif(not threads.DELAYACCT.exists(), reason="the kernel has no delay accounting"),
    pytest.mark.skipif(not JAR.exists(), reason=f"the plugin is not built: {JAR} (make spark-plugin/target/pellucid-spark.jar)"),
]


@pytest.fixture(autouse=True)
def accounting(tmp_path, monkeypatch):
    """Delay accounting that can be believed; no program's text paged out, which would be read again; a lab of its own."""
    monkeypatch.setenv("PELLUCID_LAB", str(tmp_path / "lab"))
    with threads.delay_accounting(), threads.real_time(TASKS), memory.not_paged_out():
        yield


class Delays(threading.Thread):
    """Looks again and again at the threads of our executors that run tasks."""

    def __init__(self):
        super().__init__(daemon=True)
        self.ended = threading.Event()
        self.last: dict[int, int] = {}
        # When, and ticks of all of them until then.
        self.looks = [(time.time(), 0)]

    def run(self):
        begun, per_s = time.time(), os.sysconf("SC_CLK_TCK")
        while not self.ended.wait(0.05):
            at, ticks = time.time(), self.looks[-1][1]
            for tid, count in self.counts().items():
                # A new thread may start with what another had counted, and its first wait may count from the
                # machine's start: nobody waited for longer than we look.
                more = count - self.last.get(tid, count)
                ticks += more if more <= (at - begun) * per_s else 0
                self.last[tid] = count
            self.looks.append((at, ticks))

    @staticmethod
    def counts() -> dict[int, int]:
        """Ticks by thread."""
        found = {}
        for pid in threads.below(os.getpid()):
            try:
                if b"CoarseGrainedExecutorBackend" not in Path(f"/proc/{pid}/cmdline").read_bytes():
                    continue
            except OSError:
                continue
            seen: dict[int, threads.Thread] = {}
            threads.look(pid, seen)
            found |= {tid: thread.blocked_ticks for tid, thread in seen.items() if thread.name.startswith(TASKS)}
        return found

    def ms(self, begun: float, ended: float) -> float:
        """Of all of them together between two moments, before and after which they had nothing to wait for."""
        self.ended.set()
        self.join()
        before = max(ticks for at, ticks in self.looks if at <= begun)
        after = min((ticks for at, ticks in self.looks if at >= ended), default=self.looks[-1][1])
        return (after - before) * 1000 / os.sysconf("SC_CLK_TCK")


def said(trace: Path, stage: int) -> tuple[float, float, float]:
    """Of a stage, by the log itself: when it began and ended, in seconds of the epoch, and the block I/O delay that
    the plugin read from the kernel at both ends of each task, in ms."""
    with open(trace, "rb") as file:
        plain = io.TextIOWrapper(zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True))
        events = [json.loads(line) for line in plain if "SparkListenerTaskEnd" in line or "SparkListenerStageCompleted" in line]
    (info,) = (e["Stage Info"] for e in events if e.get("Stage Info", {}).get("Stage ID") == stage)
    told = [a for e in events if e.get("Stage ID") == stage for a in e["Task Info"]["Accumulables"]]
    delay_ns = sum(int(a["Update"]) for a in told if a.get("Name") == "pellucid.block_delay_ns")
    return info["Submission Time"] / 1e3, info["Completion Time"] / 1e3, delay_ns / 1e6


def scan(file: Path, few: Path, trace: Path, jar: str, version: str) -> tuple[dict, float, float]:
    """One cold scan on an executor: what the log says of its stage, the kernel's delay meanwhile, and what the plugin read of it."""
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
    # The first scan warms the executor up.
    *_, stage = (stage for stage in analysis["stages"] if "Scan parquet" in stage["name"])
    begun, ended, told_ms = said(trace, stage["source_id"])
    return stage, delays.ms(begun, ended), told_ms


def write(file: Path, rows: str) -> None:
    """Rows of 64 bytes that nothing makes smaller."""
    payload = "SELECT i AS id, md5(i::VARCHAR) || md5((i + 1)::VARCHAR) AS payload"
    duckdb.sql(f"COPY ({payload} FROM range({rows}) r(i)) TO '{file}' (COMPRESSION uncompressed, ROW_GROUP_SIZE 60000)")


@pytest.mark.parametrize("version", ["4", "4.0", "3.5"])
def test_a_wait_that_was_bounded_is_measured(tmp_path, version):
    few = tmp_path / "few"
    few.mkdir()
    for number in range(8):
        write(few / f"{number}.parquet", f"{number * 100}, {number * 100 + 100}")
    with disks.throttled(RATE, size="512MiB") as disk:
        file = disk.path / "t.parquet"
        write(file, str(SIZE // 64))
        stock, *_ = scan(file, few, tmp_path / "stock.log", "/nowhere.jar", version)
        measured, delayed_ms, told_ms = scan(file, few, tmp_path / "plugin.log", str(JAR), version)
    assert stock["blocked_at_most_ms"]["disk"] > 1000, "all that is known is a bound"
    # Stock Spark measures it of shuffle files alone, and here they are of a few bytes.
    assert (stock["blocked_ms"]["disk"] or 0) < 0.01 * stock["blocked_at_most_ms"]["disk"], stock["blocked_ms"]
    assert "disk input: at most" in binary.run("analyze", tmp_path / "stock.log").check().out
    waited_ms = measured["blocked_ms"]["disk"]
    print(f"by the log {waited_ms:.0f} ms, by the kernel {delayed_ms:.0f} ms, by the plugin's reading of it {told_ms:.0f} ms")
    assert waited_ms == pytest.approx(delayed_ms, rel=0.1), (waited_ms, delayed_ms)
    assert told_ms == pytest.approx(delayed_ms, rel=0.05), (told_ms, delayed_ms)
    # Of another run on the same disk, whose rate was calibrated to 5 %.
    print(f"stock's bound {stock['blocked_at_most_ms']['disk']:.0f} ms")
    assert waited_ms <= stock["blocked_at_most_ms"]["disk"] * 1.1
