"""Pages made from results: tables, the lines that every page has, and the file."""

import json
import sys
from collections.abc import Iterable
from pathlib import Path

from bench.common import results
from harness import binary

FOLDER = results.ROOT / "bench"


def row(*cells: object) -> str:
    """Formats a row of a table."""
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


def header(*cells: object) -> list[str]:
    """Formats the first two rows of a table."""
    return [row(*cells), row(*["---"] * len(cells))]


def narrow_header(*cells: object) -> list[str]:
    """Like `header`, with the second row as pages of wide tables have it."""
    return [row(*cells), "|" + "---|" * len(cells)]


def joined(names: list[str]) -> str:
    """Joins names with commas and "and"."""
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def newest(lines: Iterable[dict]) -> list[dict]:
    """Returns the last line of each case, in order of first appearance."""
    return list({repr(line["case"]): line for line in lines}.values())


def machines(lines: Iterable[dict]) -> list[str]:
    """Returns an item for each machine that measured."""
    return [f"- Machine: {machine}" for machine in sorted({line["machine"] for line in lines})]


def noisy(lines: list[dict]) -> str:
    """Returns an item that counts the runs during which other processes computed."""
    count = sum(line["others_cores"] > results.NOISE_CORES for line in lines)
    return f"- In {count} of {len(lines)} runs other processes used more than {results.NOISE_CORES} cores."


def backtested(manifest: Path, document: dict) -> dict:
    """Writes a manifest of cases, and returns what `pellucid backtest` says about it."""
    manifest.write_text(json.dumps(document, indent=1) + "\n")
    return json.loads(binary.run("backtest", "--json", manifest).check().out)


def write(name: str, text: str) -> int:
    """Writes the page `bench/NAME` and reports its path. Returns the exit code of a command that does only this."""
    (FOLDER / name).write_text(text)
    print(f"wrote bench/{name}", file=sys.stderr)
    return 0
