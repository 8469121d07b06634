"""The manifests for `pellucid backtest`, from the measured cases. Only `write` writes files.

Queries that spill have a manifest of their own, so that their errors do not widen the intervals of others.

`docs/backtest.md` specifies the format. Void cases are left out, since they may have no run at all. Paths are
relative to the manifest's folder, which has all traces of baselines and each target's trace of median time; of a
target's other repeats only the times are kept.
"""

import json
from pathlib import Path

from bench.backtest.cases import SPILL

FORMAT = "pellucid.manifest/1"
NAME, SPILLING = "manifest.json", "spilling.json"


def spills(line: dict) -> bool:
    """Returns whether a case is of a query that does not fit into memory."""
    return line["why"].startswith(SPILL)


def newest(lines: list[dict]) -> list[dict]:
    """Returns each case's last valid line, or its last line, in order of first appearance."""
    found: dict[str, dict] = {}
    for line in lines:
        name = line["case"]["name"]
        if name not in found or not line["void"] or found[name]["void"]:
            found[name] = line
    return list(found.values())


def case(line: dict) -> dict:
    """Converts a case to the manifest's format."""
    others = list(line["target_ms"])
    del others[line["target_middle"]]
    return {
        "name": line["case"]["name"],
        "query": line["query"],
        "set": line["set"],
        "baseline": line["baseline_traces"],
        "measured": [line["target_trace"]],
        "measured_ms": others,
        "emulation": line["emulation"],
        "note": line["why"],
    }


def document(lines: list[dict]) -> dict:
    """Returns the manifest of these cases."""
    chosen = [line for line in newest(lines) if not line["void"]]
    machines = sorted({line["machine"] for line in chosen})
    return {"format": FORMAT, "machine": "; ".join(machines), "cases": [case(line) for line in chosen]}


def write(lines: list[dict], folder: Path) -> Path:
    """Writes the manifests next to the traces, and returns the path of the first."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, of_spilling in ((NAME, False), (SPILLING, True)):
        if chosen := [line for line in lines if spills(line) == of_spilling]:
            (folder / name).write_text(json.dumps(document(chosen), indent=1) + "\n")
    return folder / NAME
