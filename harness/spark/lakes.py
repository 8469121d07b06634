"""Iceberg and Delta tables that Spark wrote, for tests of their readers.

Their jars exist for few versions of Spark: these fit 4.0. Maven fetches them once, into the folder of installed services.
"""

import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness import spark
from harness.stores import services

SPARK = "4.0"
JARS = (
    "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.11.0",
    "io.delta:delta-spark_2.13:4.0.1",
    "io.delta:delta-storage:4.0.1",
)


@dataclass
class Written:
    """The tables of `lake_jobs.py`."""

    folder: Path
    # Versions of each table, the oldest first.
    versions: dict[str, list[int]]

    def place(self, table: str) -> Path:
        """Returns the folder of a table."""
        return self.folder / table if table.startswith("delta_") else self.folder / "n" / table

    def rows(self, table: str, version: int) -> str:
        """Returns the Parquet files with the rows that Spark read from a version."""
        return f"{self.folder}/rows/{table}/{version}/*.parquet"


def jars() -> list[Path]:
    """Returns the jars; raises `services.Missing` if they cannot be fetched."""

    def make(place: Path) -> None:
        for artifact in JARS:
            services.run(
                "mvn", "-q", "-B", "--strict-checksums", "dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={place}", cwd=place
            )

    name = "lakes-" + "-".join(artifact.rsplit(":", 1)[1] for artifact in JARS[:2])
    return sorted(services.install(services.home() / name, make).glob("*.jar"))


def write(folder: Path, tables: Sequence[str]) -> Written:
    """Writes some of the tables of `lake_jobs.py`."""
    command = [spark.python(SPARK), Path(__file__).with_name("lake_jobs.py"), folder, ",".join(map(str, jars())), *tables]
    done = subprocess.run([str(word) for word in command], env=spark.environment(SPARK), cwd=folder, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-8000:]
    return Written(folder, json.loads(done.stdout.splitlines()[-1]))
