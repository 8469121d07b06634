"""Python environments with PySpark, for tests that need a real Spark.

Each is a virtual environment that is created once and kept outside the checkout, in `PELLUCID_PYSPARK` or the user's
cache: PySpark alone takes half a gigabyte.
"""

import importlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import zlib
from decimal import Decimal
from functools import cache
from pathlib import Path
from types import ModuleType

from harness.binary import ROOT

LOCKS = ROOT / "requirements"

# Compiling hundreds of small statements would take longer than running them.
SMALL = {"spark.sql.shuffle.partitions": "2", "spark.sql.codegen.wholeStage": "false", "spark.sql.adaptive.enabled": "false"}

# The applications end before optimized code or a parallel collector pays.
FAST_START = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"


def versions() -> dict[str, str]:
    """Returns the locked version of PySpark for each of the versions 3.5, 4.0 and 4."""
    locked = {path.stem.removeprefix("spark-"): path.read_text() for path in sorted(LOCKS.glob("spark-*.txt"))}
    return {name: re.findall(r"^pyspark==(\S+)", text, re.MULTILINE)[0] for name, text in locked.items()}


def missing() -> str | None:
    """Returns why Spark cannot run here; None if it can."""
    if shutil.which("java") or os.environ.get("JAVA_HOME"):
        return None
    return "no Java (Spark 4 needs 17 or later)"


def python(version: str = "4") -> Path:
    """Returns the path of a Python with this version of PySpark, installed on first use."""
    configured = os.environ.get("PELLUCID_PYSPARK")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = (Path(configured) if configured else cache / "pellucid" / "pyspark") / version
    program, installed = folder / "bin" / "python", folder / "installed"
    locked = LOCKS / f"spark-{version}.txt"
    packages = locked.read_text()
    if not installed.exists() or installed.read_text() != packages:
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        command = [str(program), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--require-hashes", "-r", str(locked)]
        subprocess.run(command, check=True)
        installed.write_text(packages)
    return program


def release(version: str = "4") -> str:
    """Returns the release of PySpark that stands for a version."""
    lines = (ROOT / "requirements" / f"spark-{version}.in").read_text().splitlines()
    return next(line.removeprefix("pyspark==") for line in lines if line.startswith("pyspark=="))


def home(version: str = "4") -> Path:
    """Returns the folder of this PySpark: SPARK_HOME."""
    (found,) = python(version).parent.parent.glob("lib/python*/site-packages/pyspark")
    return found


@cache
def archive(version: str = "4") -> Path:
    """Returns an archive of Spark's classes for this Java, made on first use: a JVM that maps it starts in half the time."""
    java = Path(os.environ["JAVA_HOME"]) / "bin" / "java" if "JAVA_HOME" in os.environ else "java"
    release = subprocess.run([java, "-version"], capture_output=True, check=True).stderr
    path = python(version).parents[1] / f"classes-{zlib.crc32(release):08x}.jsa"
    if path.exists():
        return path
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        made = Path(folder) / path.name
        more = {"JAVA_TOOL_OPTIONS": FAST_START, "SPARK_SUBMIT_OPTS": f"-XX:ArchiveClassesAtExit={made}"}
        # As the main process, the JVM has written the archive when the command returns.
        command = [home(version) / "bin" / "spark-submit", Path(__file__).with_name("classes.py"), Path(folder)]
        subprocess.run(command, env=_plain(version) | more, cwd=folder, capture_output=True, check=True)
        made.rename(path)
    return path


def _plain(version: str) -> dict[str, str]:
    inherited = {key: value for key, value in os.environ.items() if key not in ("SPARK_HOME", "SPARK_CONF_DIR")}
    return inherited | {"PYSPARK_PYTHON": str(python(version))}


def environment(version: str = "4", **more: str) -> dict[str, str]:
    """Returns the environment of a user with this version of PySpark, whose JVMs start fast."""
    # The JVM ignores an archive of other classes or options; without a log, it says nothing on standard output.
    return _plain(version) | {"JAVA_TOOL_OPTIONS": f"{FAST_START} -XX:SharedArchiveFile={archive(version)} -Xlog:disable"} | more


def examples(command: str) -> list[list[str]]:
    """Returns the README's examples of `pellucid COMMAND` on Spark, as arguments without `pellucid`."""
    lines = (ROOT / "README.md").read_text().splitlines()
    split = [shlex.split(line, comments=True) for line in lines if line.startswith(f"pellucid {command} ") and "--on spark" in line]
    return [words[1:] for words in split]


def program(name: str = "session") -> ModuleType:
    """Imports a module of the program that `pellucid sql --on spark` runs, for tests without Spark."""
    folder = str(ROOT / "crates" / "cli" / "src" / "spark")
    if folder not in sys.path:
        sys.path.append(folder)
    return importlib.import_module(name)


def functions() -> list[str]:
    """Returns the names of the functions that a statement may call on Spark."""
    return sorted(program("functions").FUNCTIONS)


class Session:
    """A Spark session that runs statements as `pellucid sql --on spark` does, and continues after failures."""

    def __init__(self, folder: Path, tables: dict[str, Path] | None = None, version: str = "4"):
        """Starts the session; Spark writes to `folder`."""
        (folder / "log").mkdir(parents=True)
        request = {
            "master": "local[2]", "conf": list(SMALL.items()), "jar": None, "folder": str(folder),
            "log_folder": str(folder / "log"), "tables": [(name, str(path)) for name, path in (tables or {}).items()],
        }  # fmt: skip
        command = [str(python(version)), "-B", str(Path(__file__).with_name("statements.py"))]
        self.stderr = open(folder / "stderr", "w+")  # noqa: SIM115 (closed with the session)
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.stderr, text=True, env=environment(version)
        )
        assert self.process.stdin and self.process.stdout
        self.input, self.output = self.process.stdin, self.process.stdout
        self._send(request)

    def _send(self, message: object) -> None:
        self.input.write(json.dumps(message) + "\n")
        self.input.flush()

    def run(self, statement: str) -> dict:
        """Runs a statement and returns `rows`, `columns`, `types` and `translated`, or `refused`, or `failed`."""
        self._send(statement)
        line = self.output.readline()
        if not line:
            self.stderr.seek(0)
            raise AssertionError(f"Spark's Python ended: {self.stderr.read()[-2000:]}")
        return json.loads(line, parse_float=Decimal)

    def close(self) -> None:
        """Stops the session."""
        self.input.close()
        self.process.wait(timeout=120)
        self.output.close()
        self.stderr.close()
