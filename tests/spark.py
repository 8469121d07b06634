"""Pythons that have PySpark, for checks that need a real Spark.

Each is a virtual environment that is made once and kept outside of the checkout, in
`PELLUCID_PYSPARK` or the user's cache: PySpark alone is half a gigabyte.
"""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# sqlglot is what `pellucid sql --on spark` translates with; MLlib, which the storage bench runs, needs numpy.
PACKAGES = {
    "4": ["pyspark==4.3.0", "sqlglot==30.30.0", "numpy==2.4.6"],
    "4.0": ["pyspark==4.0.5", "sqlglot==30.30.0"],
    "3.5": ["pyspark==3.5.9", "sqlglot==30.30.0"],
}


def missing() -> str | None:
    """Why no Spark runs here; None where one does."""
    if shutil.which("java") or os.environ.get("JAVA_HOME"):
        return None
    return "no Java (Spark 4 needs 17 or later)"


def python(version: str = "4") -> Path:
    """The path of a Python with that version of PySpark, installed on first use."""
    kept = os.environ.get("PELLUCID_PYSPARK")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = (Path(kept) if kept else cache / "pellucid" / "pyspark") / version
    program, installed = folder / "bin" / "python", folder / "installed"
    wanted = "\n".join(PACKAGES[version])
    if not installed.exists() or installed.read_text() != wanted:
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        command = [str(program), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *PACKAGES[version]]
        subprocess.run(command, check=True)
        installed.write_text(wanted)
    return program


def home(version: str = "4") -> Path:
    """The folder of that version's PySpark: Spark's own."""
    (found,) = python(version).parent.parent.glob("lib/python*/site-packages/pyspark")
    return found


def examples(command: str) -> list[list[str]]:
    """The README's examples of `pellucid COMMAND` on Spark, as arguments without `pellucid`."""
    lines = (ROOT / "README.md").read_text().splitlines()
    split = [shlex.split(line, comments=True) for line in lines if line.startswith(f"pellucid {command} ") and "--on spark" in line]
    return [words[1:] for words in split]
