"""What scheduling costs: `cargo bench --bench floors`, read from what criterion writes.

One line for all of it, since they are compared with each other.
"""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

from bench import results
from bench.iterate import runs
from tests import binary


def cases() -> Iterator[runs.Case]:
    """The one case."""
    crate = binary.ROOT / "crates" / "iterate"
    by = results.fingerprint(sorted([*(crate / "src").glob("*.rs"), crate / "benches" / "floors.rs"]))
    yield runs.Case({"experiment": "floors"}, by, measured)


def measured() -> dict:
    """Nanoseconds of each benchmark, by its name: the median, and the bounds of its interval."""
    command = ["cargo", "bench", "--locked", "--quiet", "--package", "pellucid-iterate", "--bench", "floors"]
    ran = subprocess.run(command, cwd=binary.ROOT, capture_output=True, text=True)
    if ran.returncode != 0:
        return {"error": (ran.stderr or ran.stdout).strip().splitlines()[-1]}
    home = Path(os.environ.get("CARGO_TARGET_DIR") or binary.ROOT / "target") / "criterion"
    found = {}
    for file in sorted(home.glob("**/new/benchmark.json")):
        about = json.loads(file.read_text())
        median = json.loads(file.with_name("estimates.json").read_text())["median"]
        elements = (about.get("throughput") or {}).get("Elements", 1)
        interval = median["confidence_interval"]
        bounds = [median["point_estimate"], interval["lower_bound"], interval["upper_bound"]]
        found[about["full_id"]] = [value / elements for value in bounds]
    return {"ns": found}
