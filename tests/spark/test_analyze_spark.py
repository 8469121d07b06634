"""`pellucid analyze` on Spark event logs, through the real binary.

Real logs are those of `$PELLUCID_EVENTLOGS`, or of `../shared/eventlogs` next to the checkout; without them, their tests
are skipped with the reason. `truth.tsv` names the designed bottleneck of some of them.
"""

import json
import re
from pathlib import Path

import pytest

from harness import binary
from harness.event_logs import LOGS, application_of, applications, real_logs, table
from harness.terminal import SCREEN_COLUMNS, SCREEN_LINES, on_screen

# A printed number: digits with commas between thousands, and an optional fraction.
NUMBER = re.compile(r"(?<![\w.])\d+(?:,\d{3})*(?:\.\d+)?")


def analysis(log: Path, *options: str) -> dict:
    """Returns the document that `analyze --json` prints for one log."""
    return json.loads(binary.run("analyze", log, "--json", *options).check().out)


@pytest.fixture(scope="module")
def documents() -> dict[Path, dict]:
    """The documents of all real logs that can be analyzed."""
    out = {}
    for log in applications():
        ran = binary.run("analyze", log, "--json")
        assert not binary.PANIC.search(ran.err), f"{log}\n{ran.err}"
        if ran.code == 0:
            out[log] = json.loads(ran.out)
        else:
            assert str(log.name) in ran.err and len(ran.err) < 2000, ran.err
    assert len(out) > 30, "too few logs could be analyzed"
    return out


@real_logs
def test_counts_match_the_index(documents):
    expected: dict[Path, list[int]] = {}
    for row in table("index.tsv"):
        if row["flavour"] != "marker file":
            counts = expected.setdefault(application_of(row), [0, 0, 0, 0])
            expected[application_of(row)] = [n + int(row[key]) for n, key in zip(counts, ("tasks", "stages", "jobs", "sql"), strict=True)]
    keys = ("tasks", "stages", "jobs", "sql_executions")
    found = {log: [document["source"][key] for key in keys] for log, document in documents.items()}
    assert found == {log: counts for log, counts in expected.items() if log in found}
    assert not any(any(counts) for log, counts in expected.items() if log not in found), "a log with events could not be analyzed"


@real_logs
@pytest.mark.parametrize("row", table("truth.tsv"), ids=lambda row: row["log"])
def test_first_cause_is_the_one_designed_into_the_log(row):
    causes = analysis(LOGS / row["log"])["causes"]
    names = [cause["cause"] for cause in causes]
    match row["first cause"]:
        case "none":
            assert set(names) <= {"cpu"}, causes
        case "disk input":
            first = next(cause for cause in causes if cause["cause"] not in ("cpu", "unexplained"))
            assert first["cause"] == "disk input" and first["at_most"] and first["stage"] == 0, causes
        case cause:
            assert names[0] == cause, causes


@real_logs
def test_simulation_of_unchanged_job_matches_its_measured_time(documents):
    errors = {log: d["replay"]["error"] for log, d in documents.items() if d["source"]["tasks"] > 100 and d["replay"]["error"] is not None}
    assert len(errors) >= 10, "too few logs of over 100 tasks"
    within = sum(error <= 0.05 for error in errors.values())
    assert within >= 0.9 * len(errors), errors
    for log, document in documents.items():
        error = document["replay"]["error"]
        weak = any(note.startswith("bounds are weak") for note in document["notes"])
        assert weak == (error is not None and error > 0.05), log


@real_logs
def test_parts_sum_to_application_time_and_bounds_are_ordered(documents):
    for log, d in documents.items():
        wall = [ms for ms in d["wall_clock_ms"].values() if ms is not None]
        assert sum(wall) == pytest.approx(d["application_ms"] or 0.0, abs=1.0), log
        for bound in filter(None, d["bounds"].values()):
            assert bound["low_ms"] <= bound["high_ms"] + 1e-6 and bound["improvement"] <= 1, (log, bound)
        for stage in d["stages"]:
            measured = [ms for ms in stage["blocked_ms"].values() if ms is not None]
            assert sum(measured) <= (stage["task_time_ms"] or 0.0) * 1.001 + 1, (log, stage)
        assert [c["ms"] for c in d["causes"] if c["cause"] != "failure"] == sorted(
            (c["ms"] for c in d["causes"] if c["cause"] != "failure"), reverse=True
        ), log


@real_logs
def test_advice_can_be_pasted_and_has_figures(documents):
    given = 0
    for log, d in documents.items():
        assert len(d["advice"]) <= 5
        version = tuple(map(int, re.findall(r"\d+", d["source"]["engine_version"] or "0.0")[:2]))
        for advice in d["advice"]:
            given += 1
            assert advice["low_ms"] <= advice["saves_ms"] <= advice["high_ms"] and advice["saves_ms"] > 0, (log, advice)
            assert advice["evidence"], (log, advice)
            assert re.match(r"--conf spark\.[\w.]+=\S+ \(now .+\)|(data|code|cluster): ", advice["change"]), (log, advice)
            if "adaptive.skewJoin" in advice["change"]:
                assert version >= (3, 0), (log, advice)
    assert given > 5


def values(document, keys=()) -> tuple[list[tuple[str, float]], str]:
    """Returns every number of a document with its dotted key, and all its text."""
    numbers, texts = [], []
    match document:
        case dict():
            parts = [values(value, (*keys, key)) for key, value in document.items()]
        case list():
            parts = [values(value, keys) for value in document]
            numbers.append((".".join(map(str, keys)) + ".len", float(len(document))))
        case bool() | None:
            parts = []
        case int() | float():
            return [(".".join(map(str, keys)), float(document))], ""
        case str():
            return [], document + "\n"
    for more, text in parts:
        numbers += more
        texts.append(text)
    return numbers, "".join(texts)


def shown(value: float, key: str) -> set[str]:
    """Returns the ways in which a screen may print a value."""
    out = {f"{value:,.0f}", f"{value:.1f}"}
    if "_ms" in key or key.endswith(".ms"):
        s = value / 1e3
        out |= {f"{s:.0f}", f"{s:.1f}", f"{s:.2f}", f"{value:.1f}", f"{value * 1e3:.0f}"}
        seconds, minutes = round(s), round(s / 60)
        out |= {str(seconds // 60), str(seconds % 60), f"{minutes // 60:,}", str(minutes % 60)}
    else:
        p = max(value, 0.0) * 100
        out |= {f"{p:.0f}", f"{p:.1f}", f"{p:.2f}"}
    return out


@real_logs
def test_screen_fits_and_shows_only_numbers_of_the_document(documents):
    too_long = {}
    for log, document in documents.items():
        out = on_screen("analyze", log)
        lines = out.splitlines()
        assert all(len(line) <= SCREEN_COLUMNS for line in lines), log
        if len(lines) > SCREEN_LINES:
            too_long[log] = len(lines)
        numbers, text = values(document)
        # The screen shows a stage's share of task time; the document has both times.
        whole = document["task_time_ms"] or 1.0
        numbers += [("share", (stage["task_time_ms"] or 0.0) / whole) for stage in document["stages"]]
        known = set().union(*(shown(value, key) for key, value in numbers)) | set(NUMBER.findall(text)) | {"0.01"}
        for number in NUMBER.findall(re.sub(r"\n\s+", " ", out)):
            assert number in known, f"{log}: {number} is not in the document\n{out}"
    assert not too_long, too_long


@real_logs
def test_several_logs_are_listed_worst_first():
    logs = [LOGS / row["log"] for row in table("truth.tsv")]
    out = binary.run("analyze", *logs).check().out
    assert len(out.splitlines()) <= SCREEN_LINES and "Gain over" in out, out
    first = out.splitlines()[1]
    assert "failure" in first, out
    document = json.loads(binary.run("analyze", *logs, "--json").check().out)
    assert len(document["analyses"]) == len(logs)
    assert document["spread"]["no_gc"]["jobs"] > 10


@real_logs
def test_whatif_predicts_from_event_logs():
    log = LOGS / "gen/skew-a"
    document = json.loads(binary.run("whatif", log, "--set", "no=skew", "--json").check().out)
    prediction = document["prediction"]
    assert prediction["low_ms"] <= prediction["duration_ms"] <= prediction["high_ms"]
    assert prediction["duration_ms"] < document["baseline"]["measured_ms"]
    refused = binary.run("whatif", log, "--set", "machines=4")
    assert refused.code == 2 and "executors" in refused.err
