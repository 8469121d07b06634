"""Makes `bench/ITERATE.md` from the lines of `bench/results/iterate.jsonl`; nothing is measured."""

import statistics

from bench import results
from tests.binary import ROOT

PAGE = ROOT / "bench" / "ITERATE.md"
TITLES = {
    "regression": "Logistic regression, a pass of gradient descent",
    "kmeans": "k-means, 10 centers, a pass",
    "pagerank": "PageRank, a pass",
}
# Bytes of a row of 20 features (and its label), by application and precision.
ROW_BYTES = {"regression": 168, "kmeans": 160}
# Bytes of an edge by which the issue states the streaming limit.
EDGE_BYTES = 8
# What no registry has, from earlier measurements on another machine; so there is no ratio.
ELSEWHERE = {
    "regression": "C compiled without vector instructions 0.221 s at a limit of 0.087 s",
    "kmeans": "C compiled without vector instructions 0.296 s at a limit of 0.085 s",
    "pagerank": "GAPBS 461 million edges a second at a limit of 6,270",
}


def newest() -> dict[tuple, dict]:
    """The newest line of each case."""
    return {tuple(line["case"].values()): line for line in results.load("iterate")}


def limit_s(line: dict) -> float | None:
    """The shortest time in which this machine's memory can be read, as measured in the same run."""
    case, rate = line["case"], line.get("memory_bytes_per_s")
    if not rate:
        return None
    if case["application"] == "pagerank":
        return EDGE_BYTES * 16 * 2 ** case["scale"] / rate
    half = 2 if case["peer"].endswith("f32") else 1
    return ROW_BYTES[case["application"]] / half * case["rows"] / rate


def section(application: str, lines: list[dict]) -> list[str]:
    """One application's table."""
    own = {line["case"]["peer"]: line for line in lines if "Pellucid" in line["case"]["peer"]}
    base = own.get("Pellucid f64")
    size = ", ".join(f"{value:,} {key}" for key, value in lines[0]["case"].items() if key in ("rows", "scale"))
    page = [f"## {TITLES[application]} ({size})", ""]
    page += ["| | s a pass | Pellucid f64 is faster by | × the memory's limit | check | others' cores |", "|---|---|---|---|---|---|"]
    for line in lines:
        peer = line["case"]["peer"]
        if "error" in line:
            page.append(f"| {peer} | {line['error']} | | | | |")
            continue
        took = statistics.median(line["iteration_s"])
        ratio = f"{took / statistics.median(base['iteration_s']):.1f}" if base and "Pellucid" not in peer else ""
        limit = limit_s(line)
        share = f"{took / limit:.2f}" if limit else ""
        page.append(f"| {peer} | {took:.4f} | {ratio} | {share} | {line['check']:.9g} | {line['others_cores']} |")
    rates = [line["memory_bytes_per_s"] for line in own.values() if line.get("memory_bytes_per_s")]
    if rates:
        page += ["", f"The memory was read at {max(rates) / 1e9:.1f} GB/s in the same runs."]
    if application == "pagerank" and base:
        took, limit = statistics.median(base["iteration_s"]), limit_s(base)
        rate = 16 * 2 ** base["case"]["scale"] / took / 1e6
        page.append(f"{rate:,.0f} million edges a second: {limit / took:.2f} of the streaming limit at 8 bytes an edge.")
    page += ["", f"Not side by side, from another machine: {ELSEWHERE[application]}.", ""]
    return page


def main() -> None:
    """Writes the page."""
    lines = newest()
    page = ["# Iterative jobs beside others", "", "Made by `python -m bench.iterate.table`; how it is measured: `bench/iterate/run.py`.", ""]
    page += [f"Machine: {machine}." for machine in sorted({line["machine"] for line in lines.values()})] + [""]
    for application in TITLES:
        found = [line for line in lines.values() if line["case"]["application"] == application]
        sizes = sorted({tuple(list(line["case"].items())[2:]) for line in found})
        for size in sizes:
            page += section(application, [line for line in found if tuple(list(line["case"].items())[2:]) == size])
    PAGE.write_text("\n".join(page))


if __name__ == "__main__":
    main()
