"""What no message, trace or page may hold: the credentials of the services."""

from pathlib import Path

from bench.event_logs import lines_of
from tests import binary, services


def no_secret(*texts: str | bytes) -> None:
    for text in texts:
        text = text if isinstance(text, str) else text.decode(errors="replace")
        assert services.SECRET not in text and services.KEY not in text, "a credential was shown"
        assert not binary.PANIC.search(text), text


def inside(kept: Path) -> str:
    """What a trace or a log holds, which is compressed."""
    return b"".join(lines_of(kept)).decode()


def told_of(trace: Path) -> list[str]:
    """All that a trace says, in itself and in what is made of it."""
    page, exported = trace.with_suffix(".html"), trace.with_suffix(".perfetto")
    binary.run("report", trace, "-o", page).check()
    binary.run("export", trace, "--to", "perfetto", "-o", exported).check()
    printed = [binary.run("analyze", *options, trace).check() for options in ((), ("--json",))]
    held = inside(trace)
    assert "://" in held, "no store is named"
    return [held, page.read_text(), exported.read_text(errors="replace"), *(ran.out + ran.err for ran in printed)]
