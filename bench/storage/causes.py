"""Findings of `pellucid storage doctor` on compositions, traces and logs, and the ones that explain measured times."""

import json
import tempfile
import tomllib
from pathlib import Path

from bench.storage.measured import TRACES
from bench.storage.workloads import TPCDS
from harness import binary

COMPOSITIONS = Path(__file__).with_name("compositions")
# The suite of `bench.storage.examined`, and its conditions.
EXAMINED = "storage-examined"
CONDITIONS = ("as it is", "eight reads at once", "lines counted only", "a core each")
# Words in the titles of findings, by the direction of I/O that they slow down.
RENAMED = "committed by rename"
ALWAYS = ("near its link's rate", "throttles requests")
BEARS_ON = {
    "read": (
        *ALWAYS,
        "more is read than the job asks for",
        "read slower than a probe reads it",
        "one stream per read",
        "reads leave the link idle",
        "waits for listings",
        "small requests",
        "one request at a time",
    ),
    "write": (*ALWAYS, RENAMED, "both layers replicate", "writes leave the link idle", "written slower than", "waits for its uploads"),
}
# With one trace of each, a cost counts as larger from this ratio on.
CLEARLY = 1.2
# The title of the finding that explains why a composition was fast.
IN_MEMORY = "input was in memory"


def reasons(slower: list[dict], faster: list[dict], way: str, engine: str) -> str:
    """Returns the findings that slow down reads or writes more than in the faster composition, or that made that one fast.

    A finding of both compositions counts if it costs clearly more in the slower one. Pellucid commits without renames.
    """
    bears = [words for words in BEARS_ON[way] if engine != "Pellucid" or words != RENAMED]
    there_ms, here_ms = costs(faster), costs(slower)
    why = [f for f in slower if any(words in f["title"] for words in bears) and here_ms[f["title"]] > CLEARLY * there_ms.get(f["title"], -1.0)]
    there = [f | {"title": f"for the faster, {f['title']}"} for f in faster if way == "read" and IN_MEMORY in f["title"]]
    return "; ".join(titled([*why, *there]))


def costs(some: list[dict]) -> dict[str, float]:
    """Returns the total saving of each finding in ms, or 0 where none is predicted."""
    saved: dict[str, float] = {}
    for finding in some:
        saved[finding["title"]] = saved.get(finding["title"], 0.0) + (finding.get("saves_ms") or 0.0)
    return saved


def titled(some: list[dict]) -> list[str]:
    """Returns the distinct titles, with the queries of the findings where a workload has several."""
    queries: dict[str, list[int]] = {}
    for finding in some:
        # A finding in a log names the store's scheme; one of a composition does not.
        title = finding["title"].replace("output to s3a:// is", "output is")
        queries.setdefault(title, []).extend([finding["query"]] if finding.get("query") else [])
    return [title + (f" (in query {', '.join(map(str, found))} of {len(TPCDS)})" if found else "") for title, found in queries.items()]


def traced_findings(kept: dict[tuple[str, str], list[str]], reports: dict[str, dict]) -> dict[tuple[str, str], list[dict]]:
    """Returns the doctor's findings in kept traces and logs, with probes that read stored data."""
    by = {}
    for (workload, name), files in kept.items():
        each = [(n if len(files) > 1 else None, diagnosed(TRACES / file, reports.get(name))) for n, file in enumerate(files, 1)]
        by[workload, name] = [finding | {"query": n} for n, some in each for finding in some]
    return by


def compositions(reports: dict[str, dict]) -> dict[str, list[dict]]:
    """Returns the doctor's findings on each composition with its probe."""
    named = {tomllib.loads(file.read_text())["name"]: file for file in COMPOSITIONS.glob("*.toml")}
    explained = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "probe.json"
        for name, report in reports.items():
            path.write_text(json.dumps(report))
            document = json.loads(binary.run("storage", "doctor", named[name], "--probe", path, "--json").check().out)
            explained[name] = document["findings"]
    return explained


def diagnosed(log: Path, report: dict | None) -> list[dict]:
    """Returns the doctor's findings in a kept log or trace, or none if the file does not exist."""
    if not log.exists():
        return []
    with tempfile.TemporaryDirectory() as folder:
        options = []
        if report:
            options = ["--probe", Path(folder) / "probe.json"]
            options[1].write_text(json.dumps(report))
        return json.loads(binary.run("storage", "doctor", log, *options, "--json").check().out)["findings"]
