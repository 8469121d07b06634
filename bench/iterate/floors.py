"""What scheduling costs: `cargo bench --bench floors`, read from what criterion writes.

One line for all of it, since they are compared with each other. `make bench-iterate` builds it before anything is
measured; here Cargo is only asked where it is.
"""

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench import results
from bench.iterate import runs
from tests import binary

# The whole workspace, as everywhere: another selection compiles anew.
BUILD = ["cargo", "bench", "--locked", "--quiet", "--workspace", "--bench", "floors", "--no-run"]


def cases() -> Iterator[runs.Case]:
    """The one case."""
    crate = binary.ROOT / "crates" / "iterate"
    by = results.fingerprint(sorted([*(crate / "src").glob("*.rs"), crate / "benches" / "floors.rs"]))
    yield runs.Case({"experiment": "floors"}, by, measured)


def program() -> Path:
    """The benchmark's executable."""
    ran = subprocess.run([*BUILD, "--message-format", "json"], cwd=binary.ROOT, capture_output=True, text=True)
    for line in ran.stdout.splitlines():
        told = json.loads(line)
        if told.get("executable") and told["target"]["name"] == "floors":
            return Path(told["executable"])
    raise RuntimeError(f"{' '.join(BUILD)}: {(ran.stderr.strip().splitlines() or ['nothing was built'])[-1]}")


def measured() -> dict:
    """Nanoseconds of each benchmark, by its name: the median, and the bounds of its interval."""
    found = {}
    with tempfile.TemporaryDirectory() as place:
        given = os.environ | {"CRITERION_HOME": place}
        ran = subprocess.run([program(), "--bench"], cwd=binary.ROOT, env=given, capture_output=True, text=True)
        if ran.returncode != 0:
            told = (ran.stderr or ran.stdout).strip().splitlines()
            # A panic is told first, and how to see more of it last.
            at = next((number for number, line in enumerate(told) if "panicked at" in line), len(told) - 1)
            raise RuntimeError(" ".join(told[at : at + 2]))
        for file in sorted(Path(place).glob("**/new/benchmark.json")):
            about = json.loads(file.read_text())
            median = json.loads(file.with_name("estimates.json").read_text())["median"]
            elements = (about.get("throughput") or {}).get("Elements", 1)
            interval = median["confidence_interval"]
            bounds = [median["point_estimate"], interval["lower_bound"], interval["upper_bound"]]
            found[about["full_id"]] = [value / elements for value in bounds]
    return {"ns": found}
