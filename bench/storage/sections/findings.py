"""Probes, and the findings of `pellucid storage doctor` on compositions, traces and logs."""

from bench.common.pages import narrow_header, row


def findings(reports: dict[str, dict], explained: dict[str, list[dict]], traced: dict) -> list[str]:
    """Returns what each composition's probe measured, and the doctor's findings."""
    out = [
        "## Findings",
        "",
        "### From each composition and its probe",
        "",
        "The table has what [`pellucid storage probe`](../docs/storage.md#probe) measured, and the list what `pellucid storage doctor COMPOSITION",
        "--probe PROBE` finds. This probe reads what it has just written. HDFS still has that in the data nodes' memory, which is behind the link",
        "for NC and on the engine's side of it for GC-VB.",
        "",
    ]
    heads = ("one stream, MB/s", "best, MB/s (at once)", "first byte, ms", "write, MB/s", "rename", "commit by rename", "commit by upload")
    out += narrow_header("composition", *heads)
    ms = lambda value: "not measured" if value is None else f"{value:.0f} ms"
    for name, report in reports.items():
        sequential = [r for r in report["read"] if r["pattern"] == "sequential"]
        best = max(sequential, key=lambda r: r["bytes_per_s"])
        one = sequential[0]
        rename = report["rename"] and ("copies" if report["rename"]["is_copy"] else "moves nothing")
        out.append(
            row(
                name,
                f"{one['bytes_per_s'] / 1e6:.0f}",
                f"{best['bytes_per_s'] / 1e6:.0f} ({best['concurrency']})",
                f"{one['first_byte_ms']['median']:.1f}",
                f"{(report['write_bytes_per_s'] or 0) / 1e6:.0f}",
                rename or "not measured",
                *(ms(report["commit"][key]) for key in ("rename_ms", "multipart_ms")),
            )
        )
    said = [f"- **{name}**: {f['title']}: {f['evidence']}." for name, some in explained.items() for f in some]
    out += ["", *said, ""]
    if traced["Pellucid"]:
        out += [
            "### From Pellucid's traces",
            "",
            "These are the traces of the median runs, with a probe that read stored data that was not in memory. TPC-DS has one trace per query, in",
            "order. What earlier queries read from a file system, including a volume's, is in the page cache by then.",
            *("", *in_kept_files(traced["Pellucid"])),
        ]
    if traced["Spark"]:
        out += [
            "### From Spark's event log",
            "",
            "These are the parts of the log that belong to the median runs.",
            "",
            *in_kept_files(traced["Spark"]),
        ]
    return out


def in_kept_files(traced: dict[tuple[str, str], list[dict]]) -> list[str]:
    """Returns a line for each finding in kept traces or logs, and the list of those without findings."""
    query = lambda f: f", query {f['query']}" if f["query"] else ""
    out = []
    for (workload, name), some in traced.items():
        out += [f"- **{name}**, {workload}{query(f)}: {f['title']}: {f['evidence']}{saving(f)}." for f in some]
    silent = [f"{name}, {workload}" for (workload, name), some in traced.items() if not some]
    return [*out, "", f"No findings: {'; '.join(silent)}.", ""] if silent else [*out, ""]


def saving(finding: dict) -> str:
    """Formats the predicted saving of a finding, if it has one."""
    if finding["saves_ms"] is None:
        return ""
    return f"; fixing it saves {finding['saves_ms']:.0f} ms ({finding['low_ms']:.0f} to {finding['high_ms']:.0f})"
