"""Jobs predicted from a probe of another storage, from `bench.storage.predicted`."""

import json
import statistics
import tempfile
from pathlib import Path

from bench.common import results
from bench.common.pages import joined, narrow_header, row
from bench.storage.measured import PREDICTED, PREDICTED_WORKLOADS, basis, interval, lines
from bench.storage.workloads import LARGE, RECORD, RECORDS
from harness import binary


def predicted() -> list[str]:
    """Returns the section on jobs that `pellucid whatif --set storage=PROBE` predicts from a trace on the local disk."""
    found = lines(PREDICTED)
    reports = {line["case"]["probe"]: line["report"] for line in found if "report" in line}
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        probe = Path(folder) / "probe.json"
        for workload in PREDICTED_WORKLOADS:
            for name, report in reports.items():
                asked = {"workload": workload, "composition": name}
                some = [line for line in found if asked.items() <= line["case"].items()]
                if not some or not basis(workload).exists():
                    continue
                probe.write_text(json.dumps(report))
                ran = binary.run("whatif", basis(workload), "--set", f"storage={probe}", "--json")
                told = ran.check().json()["prediction"]
                seconds = [line["job_s"] for line in some]
                measured, (least, most) = statistics.median(seconds), interval(seconds)
                low, middle, high = (float(told[key]) / 1e3 for key in ("low_ms", "duration_ms", "high_ms"))
                inside = "inside" if low <= measured <= high else "outside"
                cells = [f"{measured:.2f} ({least:.2f} to {most:.2f})", f"{middle:.2f} ({low:.2f} to {high:.2f})"]
                cells += [f"{round(100 * (middle / measured - 1)):+d} %", inside]
                ended = [statistics.median(line["publish_s"] for line in some), completion_s(report)]
                rows.append(row(workload, name, *cells, *(f"{s:.2f}" if workload == "DFSIO" else "–" for s in ended)))
    if not rows:
        return []
    noisy = sum(line["others_cores"] > results.NOISE_CORES for line in found)
    said = [
        "Can a job's time on another store be predicted without running it there? `pellucid whatif --set storage=PROBE` predicts each job from one",
        "trace on the local disk and a probe of the other store",
        f"(`python -m bench.storage.predicted`): a word count of {LARGE['word count'] * 101} MB, and {RECORD * RECORDS * LARGE['DFSIO'] / 1e6:.0f} MB of output (DFSIO), five rounds.",
        "",
        "- Times are the jobs' own, from their traces. The page cache is emptied before each run and each probe, and the probe reads the job's",
        "  own input, no byte twice.",
        "- *completion* is the time to complete the upload, in the runs and by the probe.",
        "- All stores share one disk, so a word count that waits for it takes equally long on each. Its rows show that the probe measures the",
        "  disk; a probe that reads back what it has just written does not (124 MB/s, the link's rate, instead of 100).",
        "- Output is predicted less exactly. A job's output finds an idle disk, which takes the first 25 MB or so, 7 % of the output, at once. The",
        "  probe's upload follows its other writes and does not gain from that.",
        f"- For {noisy} of {len(found)} lines other processes used more than {results.NOISE_CORES} cores.",
    ]
    heads = ("measured s (90 % interval)", "predicted s (90 % interval)", "error", "interval", "completion, s", "completion by probe, s")
    return ["## Predicted from a probe", "", *said, "", *narrow_header("workload", "composition", *heads), *rows, ""]


def worst_errors(rows: list[str]) -> str:
    """Returns the largest error of each workload in the table of predictions, and the cases outside their interval."""
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in rows]
    errors = {workload: [abs(int(row[4].split()[0])) for row in cells if row[0] == workload] for workload in PREDICTED_WORKLOADS}
    outside = [f"{row[1]}'s {row[0]}" for row in cells if len(row) > 5 and row[5] == "outside"]
    worst = " and ".join(f"{max(found)} % ({workload})" for workload, found in errors.items() if found)
    return worst + (f"; outside its 90 % interval: {joined(outside)}" if outside else "")


def completion_s(report: dict) -> float:
    """Returns the time to complete the upload of DFSIO's output, from a probe, in seconds."""
    upload = report["upload"]
    least_ms = min(upload["complete_small_ms"], upload["complete_ms"])
    of_bytes = (upload["complete_ms"] - least_ms) * RECORD * RECORDS * LARGE["DFSIO"] / upload["bytes"]
    return (least_ms + of_bytes) / 1e3
