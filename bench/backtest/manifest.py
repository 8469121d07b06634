"""The manifest for `pellucid backtest`, from the measured cases. Only `write` writes files.

`docs/backtest.md` specifies the format. Void cases are left out, since they may have no run at all. Paths are
relative to the manifest's folder, which has all traces of baselines and each target's trace of median time; of a
target's other repeats only the times are kept.
"""

import json
from pathlib import Path

FORMAT = "pellucid.manifest/1"
NAME = "manifest.json"


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
    """Returns the whole manifest."""
    chosen = [line for line in newest(lines) if not line["void"]]
    machines = sorted({line["machine"] for line in chosen})
    return {"format": FORMAT, "machine": "; ".join(machines), "cases": [case(line) for line in chosen]}


def write(lines: list[dict], folder: Path) -> Path:
    """Writes the manifest next to the traces."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / NAME
    path.write_text(json.dumps(document(lines), indent=1) + "\n")
    return path
