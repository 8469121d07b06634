"""Measures single operations of the innermost crates: recording an event, a decision, bytes on disk.

criterion times the first two (`crates/trace/benches`, `crates/scheduler/benches`) and reports medians with
intervals; the size test of `crates/trace` counts the third. Each figure is a line. It is identified by the
content of the measuring program instead of `pellucid`, since these programs contain neither the engine nor
DataFusion. They choose their own number of runs, so `--runs` does not apply.
"""

import json
import os
import re
import shlex
import subprocess
import tempfile
from pathlib import Path

from bench.common import results
from harness.binary import ROOT

SUITE = "micro"
# Commands by name of their target. They select the whole workspace: see the profile in Cargo.toml.
COMMANDS = {
    "record": "cargo bench --locked --workspace --bench record",
    "decide": "cargo bench --locked --workspace --bench decide",
    "size": "cargo test --release --locked --workspace --test size -- --nocapture",
}
SIZE = re.compile(r"(\d+) events, ([\d.]+) bytes each")


class MeasureError(Exception):
    """A measuring program that was not built, failed, or printed no figure."""


def run(say) -> None:
    """Measures all figures that the current programs lack."""
    for target, command in COMMANDS.items():
        by = results.fingerprint([built(target, command)])
        if any(line["case"]["target"] == target for line in results.made(SUITE, by)):
            continue
        # A new folder excludes estimates of earlier runs.
        with results.quiet() as others, tempfile.TemporaryDirectory() as home:
            said = _cargo(shlex.split(command), CRITERION_HOME=home)
            figures = sizes(said) if target == "size" else estimates(Path(home))
        if not figures:
            raise MeasureError(f"{command}: no figure in its output:\n{said}")
        for name, figure in figures.items():
            case = {"target": target, "name": name}
            found = figure | {"command": command, "others_cores": others()}
            results.append(SUITE, case, found, by=by)
            say(case | {"median": f"{figure['median']:.1f} {figure['unit']}"}, {})


def built(target: str, command: str) -> Path:
    """Builds the program of a command, and returns its path."""
    build = shlex.split(command.partition(" -- ")[0])
    for line in _cargo([*build, "--no-run", "--message-format=json"]).splitlines():
        message = json.loads(line)
        if message["reason"] == "compiler-artifact" and message["target"]["name"] == target and message["executable"]:
            return Path(message["executable"])
    raise MeasureError(f"{command}: cargo reports no executable")


def estimates(home: Path) -> dict[str, dict]:
    """Reads criterion's medians and intervals, by full name of the benchmark."""
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
    """Reads the bytes per event of each trace of the size test; counts have no interval."""
    return {
        f"trace of {events} events": {"unit": "bytes", "median": float(each), "interval": None, "confidence": None}
        for events, each in SIZE.findall(said)
    }


def _cargo(command: list[str], **environment: str) -> str:
    """Runs cargo in the checkout's root, and returns its standard output."""
    ran = subprocess.run(command, cwd=ROOT, env=os.environ | environment, capture_output=True, text=True)
    if ran.returncode != 0:
        raise MeasureError(f"exit {ran.returncode}: {shlex.join(command)}\n{ran.stdout}{ran.stderr}")
    return ran.stdout
