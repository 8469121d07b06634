"""Checks that no message, trace or page contains the services' credentials."""

from pathlib import Path

from harness import binary
from harness.event_logs import lines_of
from harness.stores import services


def no_secret(*texts: str | bytes) -> None:
    for text in texts:
        text = text if isinstance(text, str) else text.decode(errors="replace")
        assert services.SECRET not in text and services.KEY not in text, "a credential is visible"
        assert not binary.PANIC.search(text), text


def decompressed(path: Path) -> str:
    """Returns the decompressed text of a trace or a log."""
    return b"".join(lines_of(path)).decode()


def outputs_of(trace: Path) -> list[str]:
    """Returns everything that a trace shows: its text, its reports and its exports."""
    page, exported = trace.with_suffix(".html"), trace.with_suffix(".perfetto")
    binary.run("report", trace, "-o", page).check()
    binary.run("export", trace, "--to", "perfetto", "-o", exported).check()
    printed = [binary.run("analyze", *options, trace).check() for options in ((), ("--json",))]
    text = decompressed(trace)
    assert "://" in text, "the trace names no store"
    return [text, page.read_text(), exported.read_text(errors="replace"), *(ran.out + ran.err for ran in printed)]
