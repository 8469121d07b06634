"""Measures what-if questions about a trace of a million monotasks, and the report's page.

The trace is generated (`crates/report/examples/million.rs`). Each question is a fresh process, timed from
start to exit. The page is timed from the start of loading until its timeline is drawn, in headless
Chromium, in light and dark mode in turns.
"""

import subprocess
import tempfile
from pathlib import Path

from bench.common import results
from bench.engine.sparklog import timed
from harness import browser
from harness.binary import binary

SUITE = "million"
RUNS = 5
MONOTASKS = 1_000_000
# Options of `pellucid whatif`, one question each.
QUESTIONS = ("--set disk.rate=x2", "--set cores=x2", "--set no=disk", "--sweep disk.rate=x0.5..x2", "")


class MissingError(Exception):
    """A question that failed."""


def run(say, max_runs: int | None = None) -> None:
    """Measures all cases that this build lacks."""
    maker = binary().parent / "examples" / "million"
    by = results.fingerprint([binary(), maker])
    runs = min(RUNS, max_runs or RUNS)
    cases = [{"ask": f"whatif {question}".strip()} for question in QUESTIONS] + [{"ask": "report"}]
    lacking = [case for case in cases if not results.done(SUITE, case, runs, by)]
    if not lacking:
        return
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "million.trace"
        subprocess.run([maker, trace, str(MONOTASKS)], check=True)
        for case in lacking:
            with results.quiet() as others:
                found = page(trace, runs) if case["ask"] == "report" else questions(case["ask"], trace, runs)
            line = {"runs": runs, "trace_bytes": trace.stat().st_size, **found, "others_cores": others()}
            results.append(SUITE, case, line, by)
            say(case, {key: {"ms": value} for key, value in found.items() if key.endswith("ms")})


def questions(ask: str, trace: Path, runs: int) -> dict:
    """Measures `runs` answers to one question."""
    verb, *options = ask.split()
    asked = [timed([binary(), verb, "--json", trace, *options]) for _ in range(runs)]
    if failed := [said for said in asked if isinstance(said, str)]:
        raise MissingError(f"{ask}: {failed[0]}")
    return {
        "wall_ms": [run["wall_s"] * 1e3 for run in asked],
        "core_ms": [run["core_s"] * 1e3 for run in asked],
        "peak_bytes": max(run["peak_bytes"] for run in asked),
    }


def page(trace: Path, runs: int) -> dict:
    """Measures the page's size and the time until it draws its timeline."""
    html = trace.with_suffix(".html")
    subprocess.run([binary(), "report", trace, "-o", html, "--quiet"], check=True)
    first: dict[str, list[float]] = {"light_ms": [], "dark_ms": []}
    with browser.started() as chromium:
        for _ in range(runs):
            for scheme in ("light", "dark"):
                opened = browser.Page(chromium, html, scheme=scheme)
                opened.check()
                first[f"{scheme}_ms"].append(round(opened.first_picture_ms(), 1))
                opened.close()
    return {"page_bytes": html.stat().st_size, **first}
