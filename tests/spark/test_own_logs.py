"""Event logs that `lab/spark_logs.py` made and the repository keeps, so that no test is skipped.

`tests/event_logs` has small logs of two versions of Spark in every compression, with event counts taken from their text
before compression. `bench/results/spark` has logs from a quiet machine: jobs with one known bottleneck, and the same job run
in two ways.
"""

import json
import re
from random import Random

import pytest

from bench.common import results
from bench.engine import event_logs
from bench.spark import cases, table
from harness import binary
from harness.event_logs import COUNTED, small
from harness.terminal import SCREEN_COLUMNS, SCREEN_LINES, on_screen

# Number of damaged logs to try; the seed is in the log's name.
DAMAGED = 200
# Tolerated growth of a pair's error since the page was made, as a share.
SLACK = 0.02


def analysis(log) -> dict:
    """Returns the document that `analyze --json` prints for one log."""
    return binary.run("analyze", "--json", log).check().json()


def test_kept_logs_cover_both_versions_and_every_compression():
    rows = small()
    assert {row["path"].parent.name[:9] for row in rows} == {"spark-3.5", "spark-4.3"}
    files = [part.name for row in rows for part in ([row["path"]] if row["path"].is_file() else row["path"].iterdir())]
    assert {name.rpartition(".")[2] for name in files} >= {"zstd", "lz4", "lzf", "snappy"}
    assert any(row["path"].is_dir() for row in rows), "no log is rolling"


@pytest.mark.parametrize("row", small(), ids=lambda row: f"{row['path'].parent.name}/{row['log']}")
def test_counts_match_the_text_of_the_log(row):
    source = analysis(row["path"])["source"]
    assert [source[key] for key in COUNTED] == [int(row[key]) for key in COUNTED]
    assert source["complete"] and source["kind"] == "spark-event-log"
    assert row["path"].parent.name == f"spark-{source['engine_version']}"


@pytest.mark.parametrize("log", [row["path"] for row in small()] + sorted(table.LOGS.glob("causes-*")), ids=lambda log: log.name)
def test_headline_is_short_and_advice_is_actionable(log, tmp_path):
    binary.run("report", log, "-o", tmp_path / "page.html").check()
    page = (tmp_path / "page.html").read_text()
    limit, advice = re.search(r"<h1>(.*?)</h1>", page)[1], re.search(r'<p class="help">(.*?)</p>', page)[1]
    assert 0 < len(limit) <= 160 and "no=" not in advice, (limit, advice)
    screen = binary.run("analyze", log, "--color", "never").check().out
    assert len(screen.splitlines()[1 : screen.splitlines().index("")]) <= 2, screen
    document = analysis(log)
    if document["causes"] and document["causes"][0]["cause"] == "failure":
        assert "failed" in limit and "executor" not in advice and "=x2" not in advice, (limit, advice)
    causes = [cause["cause"] for cause in document["causes"] if cause["cause"] != "failure"]
    answer = binary.run("whatif", log, "--json").check().json()
    before = answer["bottleneck_before"]
    assert before is None or not causes or before["kind"] in causes[0], (before, causes)
    if len(document["jobs"]) == 1:
        assert document["jobs"][0]["bottleneck"] == before
    else:
        assert re.search(r"\bjobs?\b", limit), limit


@pytest.mark.parametrize("row", small(), ids=lambda row: f"{row['path'].parent.name}/{row['log']}")
def test_small_log_fits_the_screen_and_names_its_cause(row):
    out = on_screen("analyze", row["path"])
    lines = out.splitlines()
    assert row["cause"] in lines[0], out
    assert len(lines) <= SCREEN_LINES and all(len(line) <= SCREEN_COLUMNS for line in lines), out


def damaged(text: bytes, random: Random) -> bytes:
    """Returns a log with changed numbers, and with lines removed, duplicated, truncated or moved."""
    lines = text.splitlines(keepends=True)
    for _ in range(random.randrange(1, 12)):
        at = random.randrange(len(lines))
        match random.randrange(8):
            case 0:
                del lines[at]
            case 1:
                lines.insert(random.randrange(len(lines)), lines[at])
            case 2:
                lines[at] = lines[at][: random.randrange(len(lines[at]))] + b"\n"
            case 3:
                lines.insert(random.randrange(len(lines)), lines.pop(at))
            case _:
                found = list(re.finditer(rb"(?<=[:\[,])\d+", lines[at]))
                if found:
                    number = random.choice(found)
                    other = random.choice([0, 1, 7, 2**31, 2**53, 2**63, 2**64 - 1, int(number.group()) * 1000])
                    lines[at] = lines[at][: number.start()] + str(other).encode() + lines[at][number.end() :]
        if not lines:
            return text
    return b"".join(lines)


def test_damaged_log_is_analyzed_or_refused(tmp_path):
    """Tests the analysis of damaged logs; `crates/sparklog/tests/fuzz_logs.rs` tests the reader more thoroughly."""
    paths = [row["path"] for row in small()]
    whole = [b"".join(event_logs.lines_of(path)) for path in paths if path.is_file() and path.suffix in ("", ".zstd")]
    assert len(whole) == 3
    for seed in range(DAMAGED):
        random = Random(seed)
        (tmp_path / f"seed-{seed}").write_bytes(damaged(random.choice(whole), random))
    ran = binary.run("analyze", "--json", *sorted(tmp_path.iterdir()))
    assert not binary.PANIC.search(ran.err), ran.err
    document = ran.check().json()
    assert len(document["analyses"]) + len(document["not_read"]) == DAMAGED
    assert len(document["analyses"]) > DAMAGED / 2
    for analysis in document["analyses"]:
        ms = [cause["ms"] for cause in analysis["causes"]]
        assert all(0 <= of < float("inf") for of in ms), analysis["source"]["path"]


def quiet(suite: str) -> list[dict]:
    """Returns the valid lines of a suite."""
    return [line for (of, *_), line in sorted(table.newest(results.load(table.SUITE)).items()) if of == suite]


@pytest.mark.parametrize("line", quiet("causes"), ids=lambda line: line["log"])
def test_known_cause_of_a_slow_job_is_named_first(line):
    job = next(job for job in cases.CAUSES if cases.cause_of(job).name == line["case"]["way"])
    named, is_right = table.first_cause(analysis(table.LOGS / line["log"]), cases.CAUSES[job])
    assert is_right, f"{cases.CAUSES[job]} is not first in {named}"


@pytest.mark.parametrize("line", [line for line in quiet("causes") if line["case"]["way"].startswith("skew")], ids=lambda line: line["log"])
def test_stage_that_makes_the_skewed_key_is_named(line):
    (cause,) = [cause for cause in analysis(table.LOGS / line["log"])["causes"] if cause["cause"] == "skew"]
    assert "by the key of stage" in cause["evidence"], "under adaptive execution another job ran that stage"


def test_recorded_pairs_are_predicted_as_well_as_before():
    if not table.PREDICTIONS.exists():
        pytest.skip("no recorded pairs: `make bench-spark` on a machine where the lab works")
    document = json.loads(binary.run("backtest", "--json", table.MANIFEST).check().out)
    noted = {case["name"]: case["error"] for case in json.loads(table.PREDICTIONS.read_text())["cases"]}
    found = {case["name"]: case["error"] for case in document["cases"]}
    assert set(noted) == set(found), "the page describes other logs; run python -m bench.spark.table"
    worse = {name: (noted[name], error) for name, error in found.items() if error > noted[name] + SLACK}
    assert not worse, worse
