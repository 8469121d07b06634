"""The word count under conditions that differ in one thing each, from `bench.storage.examined`."""

import statistics

from bench.common.pages import joined, narrow_header, row
from bench.storage.agreement import order_of_times
from bench.storage.causes import CONDITIONS
from bench.storage.measured import interval


def examined(once_more: list[dict]) -> list[str]:
    """Returns the section on the word count under conditions that differ in one thing each."""
    if not once_more:
        return []
    said = [
        "Why can volumes be slower than a service behind the same link? Pellucid's word count on both, under conditions that differ in one thing",
        "(`python -m bench.storage.examined`). *as it is* is the unchanged run. The disk's rate is the median sample's.",
        "",
        "- *eight reads at once*: faster if reads wait for each answer.",
        "- *lines counted only*: faster if the engine's computing on the same two cores is the limit.",
        "- *a core each*: the engine on one core, all processes of the data and storage layers on the other. Faster if it costs time that the",
        "  processes on a byte's way (loop device, FUSE, librbd, daemon threads) wake each other on another core.",
    ]
    out = [
        "## Possible causes, tested",
        "",
        *said,
        "",
        *narrow_header("composition", "condition", "median s (90 % interval)", "disk, MB/s", "data layer, core seconds", "runs"),
    ]
    by: dict[tuple[str, str], list[dict]] = {}
    for line in once_more:
        by.setdefault((line["case"]["composition"], line["case"]["condition"]), []).append(line)
    base = {name: interval([line["s"] for line in some]) for (name, condition), some in by.items() if condition == CONDITIONS[0]}
    faster, slower = [], []
    for (name, condition), some in sorted(by.items(), key=lambda item: (item[0][0], CONDITIONS.index(item[0][1]))):
        low, high = interval([line["s"] for line in some])
        order = order_of_times((low, high), base[name]) if name in base else 0
        (faster if order < 0 else slower if order > 0 else []).append(f"{name} with *{condition}*")
        middle = statistics.median(line["s"] for line in some)
        rate = statistics.median(line["use"]["disk_mb_s"][2] for line in some)
        core_s = statistics.median(line["use"]["data_core_s"] for line in some)
        out.append(row(name, condition, f"{middle:.2f} ({low:.2f} to {high:.2f})", f"{rate:.0f}", f"{core_s:.2f}", len(some)))
    changed = [f"{word} than *{CONDITIONS[0]}*: {joined(names)}." for word, names in (("Faster", faster), ("Slower", slower)) if names]
    return [*out, "", f"{' '.join(changed)} All other intervals overlap that of *{CONDITIONS[0]}*.".strip(), ""]
