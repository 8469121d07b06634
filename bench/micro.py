"""What one operation of the innermost crates costs: recording an event, a decision, a byte on disk.

criterion times the first two (`crates/trace/benches`, `crates/scheduler/benches`) and gives
each median with its interval; the size test of `crates/trace` counts the third. A line is
one figure. What identifies it is the content of the program that measured, not of `pellucid`:
these programs hold neither engine nor DataFusion. How much time they need is theirs to
choose; `--runs` does not apply.
"""

import json
import os
import re
import shlex
import subprocess
import tempfile
from pathlib import Path

from bench import results
from tests.binary import ROOT

SUITE = "micro"
# By the target's name. Always the whole workspace: see the profile in Cargo.toml.
COMMANDS = {
    "record": "cargo bench --locked --workspace --bench record",
    "decide": "cargo bench --locked --workspace --bench decide",
    "size": "cargo test --release --locked --workspace --test size -- --nocapture",
}
SIZE = re.compile(r"(\d+) events, ([\d.]+) bytes each")


class MeasureError(Exception):
    """A program that measures was not built, failed, or said nothing that can be read."""


def run(say) -> None:
    """All figures whose program has none yet."""
    for target, command in COMMANDS.items():
        by = results.fingerprint([built(target, command)])
        if any(line["case"]["target"] == target for line in results.made(SUITE, by)):
            continue
        # A folder of its own: no estimate of an earlier run can be taken for this one's.
        with results.quiet() as others, tempfile.TemporaryDirectory() as home:
            said = _cargo(shlex.split(command), CRITERION_HOME=home)
            figures = sizes(said) if target == "size" else estimates(Path(home))
        if not figures:
            raise MeasureError(f"{command}: no figure in what it left:\n{said}")
        for name, figure in figures.items():
            case = {"target": target, "name": name}
            found = figure | {"command": command, "others_cores": others()}
            results.append(SUITE, case, found, by=by)
            say(case | {"median": f"{figure['median']:.1f} {figure['unit']}"}, {})


def built(target: str, command: str) -> Path:
    """The program that the command will run, compiled where it is not yet."""
    build = shlex.split(command.partition(" -- ")[0])
    for line in _cargo([*build, "--no-run", "--message-format=json"]).splitlines():
        message = json.loads(line)
        if message["reason"] == "compiler-artifact" and message["target"]["name"] == target and message["executable"]:
            return Path(message["executable"])
    raise MeasureError(f"{command}: cargo names no program")


def estimates(home: Path) -> dict[str, dict]:
    """criterion's own medians and intervals, by the benchmark's full name."""
    found = {}
    for path in sorted(home.glob("**/new/estimates.json")):
        name = json.loads(path.with_name("benchmark.json").read_text())["full_id"]
        median = json.loads(path.read_text())["median"]
        interval = median["confidence_interval"]
        found[name] = {
            "unit": "ns",
            "median": median["point_estimate"],
            "interval": [interval["lower_bound"], interval["upper_bound"]],
            "confidence": interval["confidence_level"],
        }
    return found


def sizes(said: str) -> dict[str, dict]:
    """Bytes an event of each trace that the size test wrote: counted, so without an interval."""
    return {
        f"trace of {events} events": {"unit": "bytes", "median": float(each), "interval": None, "confidence": None}
        for events, each in SIZE.findall(said)
    }


def _cargo(command: list[str], **environment: str) -> str:
    """Runs it at the checkout's root; what it said on standard output."""
    ran = subprocess.run(command, cwd=ROOT, env=os.environ | environment, capture_output=True, text=True)
    if ran.returncode != 0:
        raise MeasureError(f"exit {ran.returncode}: {shlex.join(command)}\n{ran.stdout}{ran.stderr}")
    return ran.stdout
