"""How much of the SQL that analysts type does Pellucid answer as DuckDB does?

Runs the cases of `tests/sql/typed` in both, each in a fresh folder with the files of the cases, and prints a table for
the tuned and one for the reserved cases. A finished case is a line in `results/typed.jsonl`. Only tuned cases keep the
reason of their verdict: nothing may be tuned to the reserved ones.
"""

import argparse
import hashlib
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path

from bench.common import results
from bench.common.pages import narrow_header
from harness import binary
from harness.sql import typed, typed_files, typed_judge

SUITE = "typed"
PROCESSES = 2
TIMEOUT_S = 60
# Characters of a reason that are kept.
REASON = 400
TABLES = [part for name in typed_files.TABLES for part in ("--table", f"{name}={name}.parquet")]
DELIBERATE = "deliberate"


def key(case: typed.Case) -> dict:
    """Returns what identifies a case in the results: its id and its text."""
    return {"id": case.id, "text": hashlib.sha256(repr(case).encode()).hexdigest()[:8]}


def run(case: typed.Case, files: Path) -> tuple[typed.Outcome, binary.Ran | None, typed_judge.Verdict]:
    """Runs a case in both engines and judges it."""
    with tempfile.TemporaryDirectory() as scratch:
        duck, own = (Path(shutil.copytree(files, Path(scratch) / name)) for name in ("duckdb", "pellucid"))
        os.chdir(duck)
        expected = typed.run(case)
        os.chdir(own)
        try:
            ran = binary.run("sql", "--json", *TABLES, case.text, timeout=TIMEOUT_S, cwd=own)
        except subprocess.TimeoutExpired:
            ran = None
        read = typed.read_outcome(case) if ran and ran.code == 0 and case.read else None
        os.chdir(files)
        verdict = typed_judge.judge(case, expected, ran, read)
        # The folder differs from run to run; some messages name it without its first slash.
        note = verdict.note.replace(f"{own}/", "").replace(f"{own}/"[1:], "")
        return expected, ran, replace(verdict, note=note)


def measure(cases: list[typed.Case], shown: set[str]) -> Iterable[tuple[typed.Case, typed_judge.Verdict]]:
    """Runs cases in parallel, yields the verdict of each, and shows those of some ids."""
    with tempfile.TemporaryDirectory() as folder:
        files = Path(folder)
        typed_files.make(files)
        # A fork would copy DuckDB's threads.
        with ProcessPoolExecutor(PROCESSES, multiprocessing.get_context("spawn")) as pool:
            for case, (expected, ran, verdict) in zip(cases, pool.map(run, cases, [files] * len(cases))):
                if case.id in shown:
                    show(case, expected, ran, verdict)
                yield case, verdict


def show(case: typed.Case, expected: typed.Outcome, ran: binary.Ran | None, verdict: typed_judge.Verdict) -> None:
    """Prints a case with both outcomes."""
    print(f"== {case.id}: {verdict.kind}\n{case.text}\n-- DuckDB")
    if expected.answer:
        print(*zip(expected.answer.columns, expected.answer.types), *expected.answer.rows[:20], sep="\n")
    else:
        print(expected.error)
    print("-- Pellucid")
    if ran:
        print((ran.out.strip() + "\n" + ran.err.strip()).strip()[:5000])
    print(f"-- {verdict.note}\n", flush=True)


def table(cases: list[typed.Case], kinds: dict[str, str]) -> list[str]:
    """Returns a table of verdicts by group."""
    columns = [*typed_judge.VERDICTS, DELIBERATE]
    groups = [*dict.fromkeys(case.group for case in cases), "all"]
    out = narrow_header("group", "cases", *columns)
    for group in groups:
        found = [kinds[case.id] for case in cases if group in (case.group, "all")]
        counts = Counter(found)
        out.append("| " + " | ".join([group, str(len(found)), *(str(counts[kind] or "") for kind in columns)]) + " |")
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--group", action="append", help="only this group")
    parser.add_argument("--only", action="append", metavar="ID", help="only this case, without recording it")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--tuned", action="store_true", help="only cases that may be tuned to")
    which.add_argument("--reserved", action="store_true", help="only reserved cases")
    parser.add_argument("--verbose", action="store_true", help="show both outcomes of the tuned cases that are run, or of the --reserved ones")
    parser.add_argument("--again", action="store_true", help="run the cases that this build has finished as well")
    chosen = parser.parse_args()
    by = results.fingerprint([binary.binary()])
    cases = [
        case
        for case in typed.load()
        if (not chosen.group or case.group in chosen.group)
        and (not chosen.only or case.id in chosen.only)
        and case.reserved not in ([True] if chosen.tuned else [False] if chosen.reserved else [])
    ]
    finished = {} if chosen.again or chosen.only else {str(line["case"]): line["verdict"] for line in results.made(SUITE, by)}
    kinds = {case.id: finished[str(key(case))] for case in cases if str(key(case)) in finished}
    shown = {case.id for case in cases if chosen.verbose and case.reserved is chosen.reserved}
    for case, verdict in measure([case for case in cases if case.id not in kinds], shown):
        kinds[case.id] = verdict.kind
        if not chosen.only:
            reason = {} if case.reserved else {"reason": verdict.note[:REASON]}
            results.append(SUITE, key(case), {"verdict": verdict.kind, "reserved": case.reserved} | reason, by)
    for id in tomllib.loads(typed.DELIBERATE.read_text()):
        kinds[id] = DELIBERATE if kinds.get(id) == "different" else kinds.get(id, "")
    for title, part in (("tuned", False), ("reserved", True)):
        of_part = [case for case in cases if case.reserved is part]
        if of_part:
            print(f"\n{title}\n", *table(of_part, kinds), sep="\n")


if __name__ == "__main__":
    sys.exit(main())
