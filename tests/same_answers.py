"""Compares the answers of two builds, byte for byte: for changes that must not change any.

    python -m tests.same_answers OLD NEW [--jobs 2]

Runs `analyze`, `report`, `whatif`, `export` and `storage doctor` of two binaries on every committed trace and event
log. Prints the commands whose output, messages or exit codes differ. Exit code 1 if any does.
"""

import argparse
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from harness.binary import ROOT

# One change of each kind. A trace that does not know a key answers with an error, which is compared too.
CHANGES = (
    ["cores=x2"],
    ["disk.rate=x2", "cores=4"],
    ["disks=2"],
    ["machines=3"],
    ["network.rate=x2"],
    ["store.rate=x0.5"],
    ["workers=2"],
    ["partitions=8"],
    ["executors=3", "executor.cores=2"],
    ["input=memory-decoded"],
    ["input.scale=2"],
    ["no=stragglers", "no=gc"],
    ["no=skew"],
)
SWEEP = "cores=1..8"
CODE = re.compile(rb"<script>.*?</script>|<style>.*?</style>", re.DOTALL)


def inputs() -> list[Path]:
    """Returns the committed traces and event logs, whole and damaged ones."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    paths = [Path(name) for name in listed.split("\0") if name]
    kept = {path for path in paths if path.suffix == ".trace" or "fixtures" in path.parts and "trace" in path.parts}
    logs = {path for path in paths if "event_logs" in path.parts or path.match("bench/results/spark/*")}
    # A rolling log is a folder.
    return sorted(kept | {path.parent if path.parent.name.startswith("eventlog_v2") else path for path in logs})


def commands(path: Path) -> list[list[str]]:
    """Returns the arguments to compare on one input; OUT stands for an output file."""
    name = str(path)
    sets = [[word for change in changes for word in ("--set", change)] for changes in CHANGES]
    return [
        ["analyze", name],
        ["analyze", name, "--json"],
        ["report", name, "-o", "OUT.html"],
        ["export", name, "--to", "perfetto", "-o", "OUT.json"],
        ["export", name, "--to", "otlp", "-o", "OUT.json"],
        ["storage", "doctor", name, "--json"],
        ["whatif", name],
        ["whatif", name, "--json"],
        ["whatif", name, "--sweep", SWEEP, "--json"],
        *(["whatif", name, *words, "--json"] for words in sets),
    ]


def answer(program: Path, arguments: list[str]) -> tuple[int, bytes, bytes, bytes]:
    """Returns exit code, both streams and the written file of a run."""
    with tempfile.TemporaryDirectory() as folder:
        words = [word.replace("OUT", f"{folder}/out") for word in arguments]
        ran = subprocess.run([program, *words], cwd=ROOT, capture_output=True, timeout=300)
        # Of a page the data count, not the code that draws them.
        written = CODE.sub(b"", b"".join(path.read_bytes() for path in sorted(Path(folder).iterdir())))
        streams = [stream.replace(folder.encode(), b"FOLDER") for stream in (ran.stdout, ran.stderr)]
        return ran.returncode, *streams, written


def differs(old: Path, new: Path, arguments: list[str]) -> bool:
    return answer(old, arguments) != answer(new, arguments)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--jobs", type=int, default=2)
    chosen = parser.parse_args()
    old, new = chosen.old.resolve(), chosen.new.resolve()
    found = inputs()
    runs = [arguments for path in found for arguments in commands(path)]
    with ThreadPoolExecutor(chosen.jobs) as pool:
        wrong = [run for run, other in zip(runs, pool.map(lambda run: differs(old, new, run), runs), strict=True) if other]
    for arguments in wrong:
        print("differs: pellucid", *arguments)
    print(f"{len(runs)} commands on {len(found)} inputs, {len(wrong)} differ")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
