"""Measures the cost of scheduling with `cargo bench --bench floors`, from criterion's files.

All figures are one line, since they are compared with each other. `make bench-iterate` builds the benchmark before
measuring; here Cargo only reports its path.
"""

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench.common import results
from bench.iterate import runs
from harness import binary

# The whole workspace, since another selection of crates would be compiled again.
BUILD = ["cargo", "bench", "--locked", "--quiet", "--workspace", "--bench", "floors", "--no-run"]


def cases() -> Iterator[runs.Case]:
    """Yields the only case."""
    crate = binary.ROOT / "crates" / "iterate"
    by = results.fingerprint(sorted([*(crate / "src").glob("*.rs"), crate / "benches" / "floors.rs"]))
    yield runs.Case({"experiment": "floors"}, by, measured)


def program() -> Path:
    """Returns the benchmark's executable."""
    ran = subprocess.run([*BUILD, "--message-format", "json"], cwd=binary.ROOT, capture_output=True, text=True)
    for line in ran.stdout.splitlines():
        message = json.loads(line)
        if message.get("executable") and message["target"]["name"] == "floors":
            return Path(message["executable"])
    raise RuntimeError(f"{' '.join(BUILD)}: {(ran.stderr.strip().splitlines() or ['nothing was built'])[-1]}")


def measured() -> dict:
    """Returns the nanoseconds of each benchmark, by name: the median, and the bounds of its interval."""
    found = {}
    with tempfile.TemporaryDirectory() as place:
        given = os.environ | {"CRITERION_HOME": place}
        ran = subprocess.run([program(), "--bench"], cwd=binary.ROOT, env=given, capture_output=True, text=True)
        if ran.returncode != 0:
            output = (ran.stderr or ran.stdout).strip().splitlines()
            # A panic's message precedes the hints about backtraces.
            at = next((number for number, line in enumerate(output) if "panicked at" in line), len(output) - 1)
            raise RuntimeError(" ".join(output[at : at + 2]))
        for file in sorted(Path(place).glob("**/new/benchmark.json")):
            about = json.loads(file.read_text())
            median = json.loads(file.with_name("estimates.json").read_text())["median"]
            elements = (about.get("throughput") or {}).get("Elements", 1)
            interval = median["confidence_interval"]
            bounds = [median["point_estimate"], interval["lower_bound"], interval["upper_bound"]]
            found[about["full_id"]] = [value / elements for value in bounds]
    return {"ns": found}
