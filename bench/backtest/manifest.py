"""The manifest that `pellucid backtest` takes, from the measured cases. Pure, but for writing it.

The format is specified in `docs/backtest.md`. Only cases that count are in it: what is void may
have no run at all. Paths are relative to the manifest's folder, where all traces of baselines are, and
of each target the one of median time; of its other repeats only the time is kept.
"""

import json
from pathlib import Path

FORMAT = "pellucid.manifest/1"
NAME = "manifest.json"


def newest(lines: list[dict]) -> list[dict]:
    """Of each case the last line that counts, else the last; in the order in which cases first came."""
    found: dict[str, dict] = {}
    for line in lines:
        name = line["case"]["name"]
        if name not in found or not line["void"] or found[name]["void"]:
            found[name] = line
    return list(found.values())


def case(line: dict) -> dict:
    """One case as the manifest has it."""
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
    """The whole manifest."""
    chosen = [line for line in newest(lines) if not line["void"]]
    machines = sorted({line["machine"] for line in chosen})
    return {"format": FORMAT, "machine": "; ".join(machines), "cases": [case(line) for line in chosen]}


def write(lines: list[dict], folder: Path) -> Path:
    """Writes the manifest beside the traces."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / NAME
    path.write_text(json.dumps(document(lines), indent=1) + "\n")
    return path
