"""What an event log says of a job that waits for its input, without the plugin and with it.

Outside check: the kernel's own count of how long the executor's threads were delayed by block I/O (delay
accounting, `tests/threads.py`), on a disk whose rate is known.
"""

import json
import os
import threading
import time
from pathlib import Path

import duckdb
import pytest

from lab import cache, disks, kernel
from tests import binary, spark, threads

JAR = binary.ROOT / "spark-plugin" / "target" / "pellucid-spark.jar"
SWITCH = threads.DELAYACCT
# A scan of some seconds, so that start-up and rounding are small beside it.
RATE, SIZE = "20MB/s", 60 << 20

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(spark.missing() is not None, reason=f"no Spark: {spark.missing()}"),
    pytest.mark.skipif(kernel.missing() is not None, reason=f"no throttled disk: {kernel.missing()}"),
    pytest.mark.skipif(not SWITCH.exists(), reason="the kernel has no delay accounting"),
    pytest.mark.skipif(not JAR.exists(), reason=f"the plugin is not built: {JAR} (make spark-plugin/target/pellucid-spark.jar)"),
]


@pytest.fixture(autouse=True)
def accounting(tmp_path, monkeypatch):
    """Delay accounting, as it was found afterwards; a lab of its own."""
    monkeypatch.setenv("PELLUCID_LAB", str(tmp_path / "lab"))
    before = SWITCH.read_text()
    SWITCH.write_text("1")
    yield
    SWITCH.write_text(before)


class Delays(threading.Thread):
    """Looks again and again at the threads of our executors that run tasks."""

    def __init__(self):
        super().__init__(daemon=True)
        self.ended = threading.Event()
        self.last: dict[int, int] = {}
        self.ticks = 0

    def run(self):
        begun, per_s = time.monotonic(), os.sysconf("SC_CLK_TCK")
        while not self.ended.wait(0.1):
            for pid in threads.below(os.getpid()):
                try:
                    if b"CoarseGrainedExecutorBackend" not in Path(f"/proc/{pid}/cmdline").read_bytes():
                        continue
                except OSError:
                    continue
                seen: dict[int, threads.Thread] = {}
                threads.look(pid, seen)
                for tid, thread in seen.items():
                    if thread.name.startswith("Executor task"):
                        # A new thread may start with what another had counted, and the first wait of one may
                        # count from the machine's start: nobody waited for longer than we look.
                        more = thread.blocked_ticks - self.last.get(tid, thread.blocked_ticks)
                        if more <= (time.monotonic() - begun) * per_s:
                            self.ticks += more
                        self.last[tid] = thread.blocked_ticks

    def ms(self) -> float:
        """Of all of them together."""
        self.ended.set()
        self.join()
        return self.ticks * 1000 / os.sysconf("SC_CLK_TCK")


def scan(file: Path, trace: Path, jar: str) -> tuple[dict, float]:
    """One cold scan on an executor: what the log says of its stages, and the kernel's delay."""
    cache.evict([file])
    delays = Delays()
    delays.start()
    command = ["sql", "SELECT sum(length(payload)) AS n FROM t", "--table", f"t={file}", "--trace", trace, "--json"]
    plain = {key: value for key, value in os.environ.items() if key not in ("SPARK_HOME", "SPARK_CONF_DIR")}
    ran = binary.run(
        *command,
        "--on",
        "spark=local-cluster[1,2,1024]",
        "--conf",
        "spark.pellucid.mode=measure",
        env={**plain, "PYSPARK_PYTHON": str(spark.python()), "PELLUCID_SPARK_JAR": jar},
    ).check()
    assert json.loads(ran.out)["row_count"] == 1
    delayed = delays.ms()
    analysis = json.loads(binary.run("analyze", trace, "--json").check().out)
    return max(analysis["stages"], key=lambda stage: stage["task_time_ms"] or 0), delayed


def test_a_wait_that_was_bounded_is_measured(tmp_path):
    with disks.throttled(RATE, size="512MiB") as disk:
        file = disk.path / "t.parquet"
        duckdb.sql(
            f"""COPY (SELECT i AS id, md5(i::VARCHAR) || md5((i + 1)::VARCHAR) AS payload FROM range({SIZE // 64}) r(i))
            TO '{file}' (COMPRESSION uncompressed, ROW_GROUP_SIZE 60000)"""
        )
        stock, _ = scan(file, tmp_path / "stock.log", "/nowhere.jar")
        measured, delayed_ms = scan(file, tmp_path / "plugin.log", str(JAR))
    assert stock["blocked_at_most_ms"]["disk"] > 1000, "all that is known is a bound"
    waited_ms = measured["blocked_ms"]["disk"]
    assert waited_ms == pytest.approx(delayed_ms, rel=0.1), (waited_ms, delayed_ms)
    assert waited_ms <= stock["blocked_at_most_ms"]["disk"] * 1.3
