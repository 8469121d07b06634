"""The page of `pellucid report` in a real browser; screenshots are kept in tests/artefacts."""

import json
import os
import re
import subprocess
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import duckdb
import pytest

from harness import binary, browser, traces
from harness.browser import unpacked
from harness.event_logs import applications, real_logs, small
from harness.sql import oracle

QUERY = "SELECT k % 7 AS bucket, count(*), sum(v) FROM secret_table GROUP BY 1 ORDER BY 1"
# Limits for the page of a trace with a million monotasks.
MAX_BYTES, FIRST_PICTURE_MS = 30e6, 3000


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """The trace of a query over eight files on a paced disk, so that both disk and cores have work."""
    folder = tmp_path_factory.mktemp("report")
    (folder / "confidential").mkdir()
    for part in range(8):
        duckdb.sql(f"""COPY (SELECT i AS k, hash(i * 8 + {part}) % 1000000 AS v FROM range(300000) t(i))
                       TO '{folder}/confidential/part-{part}.parquet'""")
    table = f"secret_table={folder}/confidential/*.parquet"
    options = ["--io", "direct", "--disk-rate", f"{folder}=60MB/s"]
    binary.run("sql", QUERY, "--table", table, *options, "--trace", folder / "query.trace").check()
    return folder / "query.trace"


@pytest.fixture(scope="module")
def chromium():
    with browser.started() as started:
        yield started


def report(trace, name: str, *options: str):
    page = trace.with_name(name)
    binary.run("report", trace, "-o", page, *options).check()
    return page


def test_page_renders_in_light_dark_and_narrow(recorded, chromium):
    path = report(recorded, "query.html")
    for name, width, scheme in [("light", 1280, "light"), ("dark", 1280, "dark"), ("narrow", 400, "light")]:
        page = browser.Page(chromium, path, width, scheme)
        page.check()
        page.picture(f"report-{name}")
        assert page.colors("lanes") > 10, "the timeline is empty"
        headline = page.page.inner_text("h1")
        assert "his job" in headline and ("limited by" in headline or "not limited by one resource: " in headline), headline
        assert "no=" not in page.page.inner_text("p.help"), "an upper bound must not be advice"
        ground = page.page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (ground == "rgb(17, 20, 24)") == (scheme == "dark"), ground
        page.close()


def test_page_matches_the_analysis(recorded, chromium):
    page = browser.Page(chromium, report(recorded, "query.html"))
    analysis = binary.run("analyze", recorded, "--json").check().json()
    assert page.page.inner_text("#job pre") == QUERY
    rows = page.page.locator("#stages-body tbody tr")
    assert rows.count() == len(analysis["stages"])
    drawn = " ".join(rows.all_inner_texts())
    assert all(stage["name"] in drawn for stage in analysis["stages"])
    answer = binary.run("whatif", recorded, "--json").check().json()
    shown = page.page.locator("#what-if-body tbody tr").all_inner_texts()
    assert len(shown) == len(answer["singles"])
    assert page.page.locator("#what-if-body .interval .range").count() == len(shown)
    missing = page.page.inner_text("#missing-body")
    assert ("etwork" in missing) == (analysis["jobs"][0]["ideal_ms"]["network"] is None)
    page.close()


def test_page_supports_keyboard_pointer_and_themes(recorded, chromium):
    page = browser.Page(chromium, report(recorded, "query.html"))
    it, view = page.page, lambda: page.page.inner_text("#view")
    whole = view()
    it.focus("#lanes")
    it.keyboard.press("ArrowDown")
    it.keyboard.press("ArrowRight")
    assert it.inner_text("#spoken"), "the cursor announces nothing"
    it.keyboard.press("+")
    it.wait_for_function("(before) => document.getElementById('view').textContent !== before", arg=whole)
    it.keyboard.press("0")
    it.wait_for_function("(before) => document.getElementById('view').textContent === before", arg=whole)
    box = it.locator("#lanes").bounding_box()
    it.mouse.move(box["x"] + box["width"] / 3, box["y"] + 60)
    it.wait_for_selector("#tip:not([hidden])")
    # The second stage: the first may be as long as the job.
    it.locator("#stages-body tbody button").nth(1).click()
    it.wait_for_function("(before) => document.getElementById('view').textContent !== before", arg=whole)
    it.locator("#stages-body thead button").first.click()
    assert it.locator("#stages-body th[aria-sort]").count() == 1
    page.check_tables()
    it.locator("input[value=dark]").check(force=True)
    assert it.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(17, 20, 24)"
    page.check()
    page.close()


def repository_files(*patterns: str) -> list[Path]:
    """Returns the repository's files that match the patterns."""
    return [path for pattern in patterns for path in sorted(binary.ROOT.glob(pattern))]


def recorded_by_backtests() -> list[Path]:
    """Returns one trace of each query: the others are of the same query on other hardware."""
    return list({path.name.split("_")[0]: path for path in repository_files("bench/results/backtest/*.trace")}.values())


# Inputs by origin. Real logs may have no job, or may be unreadable.
SOURCES = {
    "own logs": lambda: [row["path"] for row in small()] + repository_files("crates/sparklog/tests/fixtures/*"),
    "logs of benchmarks": lambda: repository_files("bench/results/*/*.zstd"),
    "traces of tests": lambda: repository_files("crates/*/tests/traces/*.trace", "crates/*/tests/fixtures/*.trace"),
    "traces of benchmarks": lambda: repository_files("bench/results/storage/*.trace") + recorded_by_backtests(),
    "real logs": applications,
}


@pytest.mark.parametrize("source", [pytest.param(name, marks=real_logs if name == "real logs" else ()) for name in SOURCES])
def test_page_of_every_log_and_trace_renders(source, tmp_path, chromium):
    inputs = SOURCES[source]()
    assert inputs, "no inputs found"

    def made(number: int) -> Path | None:
        page = tmp_path / f"{number}.html"
        ran = binary.run("report", inputs[number], "-o", page)
        assert not binary.PANIC.search(ran.err), ran.err
        if ran.code and source == "real logs":
            assert inputs[number].name in ran.err, ran.err
            return None
        ran.check()
        return page

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        pages = {str(path): page for path, page in zip(inputs, pool.map(made, range(len(inputs))), strict=True) if page}
    assert len(pages) > len(inputs) / 2, "too few inputs have a page"
    draw(chromium, pages)


def test_page_of_each_kind_of_trace_renders(tmp_path, chromium):
    """Renders the pages of the traces that the crate's tests build."""
    maker = binary.binary().parent / "examples" / "page"
    if not maker.exists():
        pytest.skip(f"{maker} is not built (cargo build --release --workspace --examples)")
    subprocess.run([maker, tmp_path], check=True)
    pages = {page.stem: page for page in tmp_path.iterdir()}
    assert len(pages) >= 10
    draw(chromium, pages)


# Pairs of rectangles of a class that overlap, on a plan.
OVERLAPS = """(name) => {
    const all = [...document.querySelectorAll(`#plan-picture .${name}`)].map((of) => of.getBBox());
    return all.flatMap((a, ix) => all.slice(0, ix).filter((b) => a.x < b.x + b.width && b.x < a.x + a.width
        && a.y < b.y + b.height && b.y < a.y + a.height)).length;
}"""


# The largest plans of TPC-H, and one with skew.
@pytest.mark.parametrize("number", [2, 8, 18, 21])
def test_plan_shows_every_operator_once_and_its_details(number, tpch, tmp_path, chromium):
    trace = tmp_path / "query.trace"
    binary.sql(oracle.text_for_pellucid("tpch", number), tpch, "--trace", trace).check()
    operators, path = traces.read(trace).of["operator"], report(trace, "plan.html")
    for width, scheme in [(1280, "light"), (1280, "dark"), (700, "light"), (700, "dark")]:
        page = browser.Page(chromium, path, width, scheme)
        page.check()
        page.picture(f"report-plan-{number}-{width}-{scheme}")
        page.check_tables()
        it = page.page
        assert it.locator("#plan-picture .node").count() == len(operators)
        assert it.locator("#plan-picture .frame").count() == len({operator["stage"] for operator in operators})
        assert it.locator("#plan-picture .edge").count() == sum(len(o.get("inputs", [])) + ("from" in o) for o in operators)
        assert it.evaluate(OVERLAPS, "box") == it.evaluate(OVERLAPS, "frame") == 0
        page.close()

    page = browser.Page(chromium, path)
    it, costly = page.page, max(operators, key=lambda operator: operator["cpu_ns"])
    assert it.inner_text("#plan-place").startswith(f"operator {costly['operator']} of stage {costly['stage']}")
    it.locator("#plan-picture .node").nth(0).click()
    first = operators[0]
    assert it.inner_text("#plan-name") == first["name"] and it.inner_text("#plan-detail") == first["detail"]
    assert f"rows out\n{first['rows']:,}" in it.inner_text("#plan-facts")
    assert f"planned rows\n{first['planned_rows']:,}" in it.inner_text("#plan-facts")
    both = [sorted((o["rows"], o["planned_rows"])) for o in operators if "rows" in o and "planned_rows" in o]
    misestimates = [less for less, more in both if more >= 10_000 and more // 4 >= less]
    [job] = binary.run("analyze", trace, "--json").check().json()["jobs"]
    reads = [of["exchange_read"] for of in job["core"]["operators"] if of["exchange_read"]]
    uneven = [read for read in reads if read["skew"] >= 2 and read["largest_bytes"] >= 1e6]
    assert it.locator("#plan-picture .rows.skew").count() == len(misestimates) + len(uneven)
    assert it.locator("#plan-picture [tabindex='0']").count() == it.locator("#plan-picture [aria-pressed=true]").count() == 1
    # The consumer of the first operator, by the keyboard alone.
    it.focus("#plan-picture [tabindex='0']")
    it.keyboard.press("ArrowDown")
    it.keyboard.press("Enter")
    second = next(operator for operator in operators if first["operator"] in operator.get("inputs", []))
    assert it.inner_text("#plan-place").startswith(f"operator {second['operator']} of stage")
    it.keyboard.press("ArrowUp")
    it.keyboard.press(" ")
    assert it.inner_text("#plan-name") == first["name"]
    it.click("[data-zoom=fit]")
    beyond = it.locator("#plan-view").evaluate("(of) => [of.scrollWidth - of.clientWidth, of.scrollHeight - of.clientHeight]")
    assert beyond == [0, 0], "the whole plan does not fit"
    at, expressions = next((at, o["expressions"]) for at, o in enumerate(operators) if "expressions" in o)
    it.locator("#plan-picture .node").nth(at).click()
    assert it.locator("#plan-expressions tbody tr").count() == len(expressions)
    assert it.locator("#plan-expressions tbody th").first.inner_text() == expressions[0]["text"]
    assert it.locator("#plan-expressions tbody td").first.inner_text().startswith("≈ ")
    it.click("#plan-table summary")
    rows = it.locator("#plan-table tbody tr")
    assert rows.count() == min(len(operators), 60)
    assert str(costly["operator"]) == rows.first.locator("th").inner_text()
    page.check()
    page.close()


def test_plan_marks_an_exchange_that_is_read_unevenly(tmp_path, chromium):
    # All rows but seven have the same key, so one multitask reads nearly all of the exchange.
    duckdb.sql(f"""COPY (SELECT CASE WHEN i % 30000 = 0 THEN i ELSE 7 END AS k, i AS v FROM range(200000) t(i))
                   TO '{tmp_path}/t.parquet'""")
    trace = tmp_path / "skewed.trace"
    query = "SELECT max(r) FROM (SELECT rank() OVER (PARTITION BY k ORDER BY v) AS r FROM t)"
    binary.run("sql", query, "--table", f"t={tmp_path}/t.parquet", "--partitions", "8", "--trace", trace).check()
    [job] = binary.run("analyze", trace, "--json").check().json()["jobs"]
    exchanges = [of for of in job["core"]["operators"] if of["name"] == "Exchange"]
    assert len(exchanges) == 2 and all(of["exchange_read"] is None for of in job["core"]["operators"] if of not in exchanges)
    # The last stage reads few rows in one multitask.
    last, uneven = sorted((of["exchange_read"] for of in exchanges), key=lambda read: read["bytes"])
    assert (last["tasks"], last["skew"]) == (1, 1) and last["bytes"] < 1000
    assert uneven["skew"] == pytest.approx(uneven["tasks"], rel=0.001) and uneven["tasks"] > 2

    path = report(trace, "skewed.html")
    for scheme in ["light", "dark"]:
        page = browser.Page(chromium, path, 1280, scheme)
        page.check()
        page.picture(f"report-plan-skew-{scheme}")
        it = page.page
        assert it.locator("#plan-picture .rows.skew").all_text_contents() == [f"skew {uneven['skew']:.1f} ×"]
        page.close()
    page = browser.Page(chromium, path)
    it = page.page
    read = f"largest read 3.2 MB of 3.2 MB, {uneven['skew']:.1f} × mean of {uneven['tasks']} multitasks"
    node = it.locator("#plan-picture .node", has_text="Exchange").first
    assert node.get_attribute("aria-label").endswith(read)
    node.click()
    assert read.replace("read ", "read\n", 1) in it.inner_text("#plan-facts")
    page.check_tables()
    row = it.locator("#plan-table tbody tr", has_text="stage 0")
    # Reading it may also take uneven core time, which a column before that of bytes marks.
    *core_times, bytes_read = row.locator("td.limits").all_text_contents()
    assert bytes_read == f"{uneven['skew']:.1f}" and len(core_times) <= 1
    page.check()
    page.close()


def test_plan_of_a_spark_query_shows_its_metrics_and_what_they_cannot_tell(tmp_path, chromium):
    log, path = binary.ROOT / "tests/event_logs/spark-4.3.0/own-skew-adaptive.zstd", tmp_path / "spark.html"
    binary.run("report", log, "-o", path).check()
    for scheme in ["light", "dark"]:
        page = browser.Page(chromium, path, 1280, scheme)
        page.check()
        page.picture(f"report-plan-spark-{scheme}")
        page.check_tables()
        it = page.page
        # Range, Project and Exchange; Project, SortAggregate and Exchange; SortAggregate.
        counts = {name: it.locator(f"#plan-picture .{name}").count() for name in ["node", "frame", "code", "edge"]}
        assert counts == {"node": 7, "frame": 3, "code": 2, "edge": 6}
        assert it.evaluate(OVERLAPS, "box") == it.evaluate(OVERLAPS, "frame") == it.evaluate(OVERLAPS, "code") == 0
        limits = it.inner_text("#plan-limits")
        assert "do not add up" in limits and "have no time of their own" in limits, limits
        assert it.locator("#plan-legend [data-of=job]").first.is_hidden()
        page.close()

    page = browser.Page(chromium, path)
    it = page.page
    it.locator("#plan-picture .node", has_text="Range").click()
    assert it.inner_text("#plan-place") == "operator 2 of stage 0, compiled into WholeStageCodegen (1), which took 0.71 s"
    assert "number of output rows\n60,000" in it.inner_text("#plan-facts")
    it.keyboard.press("ArrowDown")
    it.keyboard.press("ArrowDown")
    it.keyboard.press("Enter")
    assert it.inner_text("#plan-name") == "Exchange" and it.inner_text("#plan-place") == "operator 4 of stage 0"
    assert "shuffle records written\n60,000" in it.inner_text("#plan-facts")
    assert "largest read\n199 kB of 412 kB, 7.7 × mean of 16 tasks" in it.inner_text("#plan-facts")
    it.click("#plan-table summary")
    rows = it.locator("#plan-table tbody tr")
    assert rows.count() == 9 and "WholeStageCodegen (2)" in rows.first.inner_text()
    page.check()
    page.close()


def test_redacted_plan_of_a_spark_query_keeps_operators_and_metrics(tmp_path, chromium):
    log, path = binary.ROOT / "tests/event_logs/spark-4.3.0/own-skew-adaptive.zstd", tmp_path / "redacted.html"
    binary.run("report", log, "--redact", "-o", path).check()
    page = browser.Page(chromium, path)
    it = page.page
    it.locator("#plan-picture .node", has_text="SortAggregate").first.click()
    assert "time in aggregation build" in it.inner_text("#plan-facts") and it.locator("#plan-detail").is_hidden()
    assert "WholeStageCodegen (2)" in it.locator("#plan-table").text_content() and "sha2" not in it.content()
    page.check()
    page.close()


def test_page_of_an_older_trace_has_no_plan(tmp_path, chromium):
    trace = recorded_by_backtests()[0]
    binary.run("report", trace, "-o", tmp_path / "old.html").check()
    page = browser.Page(chromium, tmp_path / "old.html")
    page.check()
    assert page.page.locator("#plan").is_hidden() and "Operators as a table" not in page.page.inner_text("main")
    page.close()


def test_page_of_several_jobs_lists_them_with_units(tmp_path, chromium):
    log = next(row["path"] for row in small() if row["cause"] == "failure")
    path = tmp_path / "failure.html"
    binary.run("report", log, "-o", path).check()
    analysis = binary.run("analyze", log, "--json").check().json()
    page = browser.Page(chromium, path)
    page.check()
    assert page.page.locator("#jobs-body tbody tr").count() == len(analysis["jobs"]) > 1
    assert page.page.get_attribute("#jobs-body th[data-column=took]", "aria-sort") == "descending"
    assert "of task time went" in page.page.inner_text("#blocked-body h3")
    assert "of wall-clock time" in page.page.inner_text("#causes-about")
    screen = binary.run("analyze", log).check().out
    assert re.search(r"^Wall clock [\d.]+ s: ", screen, re.M) and re.search(r"^Where [\d.]+ s of task time went$", screen, re.M), screen
    page.close()


def test_unknown_sort_column_fails_the_test_but_not_the_page(tmp_path, chromium):
    path = tmp_path / "wrong.html"
    binary.run("report", small()[0]["path"], "-o", path).check()
    path.write_text(path.read_text().replace('rows, "ideal")', 'rows, "no such column")'))
    page = browser.Page(chromium, path)
    assert page.page.locator("html[data-ready=yes]").count() == 1
    with pytest.raises(AssertionError, match="cannot sort by no such column"):
        page.check()
    page.close()


def draw(chromium, pages: dict[str, Path]) -> None:
    """Opens pages wide and light, then narrow and dark: each must render completely, and its tables must sort."""
    screens = [browser.Page(chromium), browser.Page(chromium, width=400, scheme="dark")]
    wrong = {}
    for name, path in pages.items():
        for screen in screens:
            try:
                screen.open(path)
                screen.check()
                screen.check_tables()
            except AssertionError as failure:
                wrong[name, screen.width] = str(failure)
    for screen in screens:
        screen.close()
    assert not wrong, "\n".join(f"{name} at {width} pixels: {why}" for (name, width), why in wrong.items())


def test_page_of_a_million_monotasks_is_small_and_fast(tmp_path, chromium):
    maker = binary.binary().parent / "examples" / "million"
    if not maker.exists():
        pytest.skip(f"{maker} is not built (cargo build --release --workspace --examples)")
    trace = tmp_path / "million.trace"
    subprocess.run([maker, trace], check=True)
    path = report(trace, "million.html")
    assert path.stat().st_size < MAX_BYTES
    page = browser.Page(chromium, path)
    page.check()
    first_ms = page.first_picture_ms()
    page.picture("report-million")
    # Zooms in until single monotasks show.
    view = page.page.inner_text("#view")
    page.page.focus("#lanes")
    for _ in range(11):
        page.page.keyboard.press("+")
    page.page.wait_for_function("(before) => document.getElementById('view').textContent !== before", arg=view)
    page.page.wait_for_timeout(500)
    page.page.keyboard.press("ArrowRight")
    spoken = page.page.inner_text("#spoken")
    page.picture("report-million-zoomed")
    assert "stage" in spoken or "idle" in spoken or "mean over" in spoken
    page.check()
    page.close()
    page = browser.Page(chromium, path, scheme="dark")
    page.check()
    page.picture("report-million-dark")
    page.close()
    measured = {"monotasks": 1_000_000, "page_bytes": path.stat().st_size, "first_picture_ms": round(first_ms)}
    print(json.dumps(measured))
    (browser.ARTEFACTS / "report-million.json").write_text(json.dumps(measured) + "\n")
    if first_ms > FIRST_PICTURE_MS:
        # Not a failure: the machine may be busy.
        warnings.warn(f"the first picture took {first_ms:.0f} ms", stacklevel=1)


def test_redacted_page_contains_no_original_names(recorded, chromium):
    path = report(recorded, "redacted.html", "--redact")
    draw(chromium, {"redacted": path})
    plain, redacted = unpacked(report(recorded, "plain.html")), unpacked(path)
    host = next(line for line in traces.lines(recorded) if line["t"] == "machine")["name"]
    # A short name may occur by chance: columns of numbers are binary.
    host = host if len(host) > 5 else json.dumps(host)
    # Names of columns are in the details of operators.
    details = [operator["detail"] for operator in traces.read(recorded).of["operator"] if "bucket" in operator.get("detail", "")]
    for secret in ["secret_table", "part-0.parquet", "confidential", "bucket", json.dumps(details[0])[1:-1], str(recorded.parent), host]:
        assert secret in plain or secret in ["confidential"], f"{secret} is missing from the plain page"
        assert secret not in redacted, secret
    again = unpacked(report(recorded, "again.html", "--redact"))
    first, second = (set(re.findall(r"sql-[0-9a-f]{16}", page)) for page in (redacted, again))
    assert first and second and not first & second, "the salt is not random"


def test_redacted_outputs_show_no_part_of_a_file_name_when_it_holds_commas(tmp_path):
    path, trace = tmp_path / "Acme, Globex merger, x.parquet", tmp_path / "query.trace"
    duckdb.sql(f"COPY (SELECT i AS turnover FROM range(100000) t(i)) TO '{path}'")
    binary.run("sql", f"SELECT sum(turnover) FROM '{path}'", "--trace", trace).check()

    def outputs(name: str, *options: str) -> dict[str, str]:
        found = {"html": unpacked(report(trace, f"{name}.html", *options))}
        for to in ("perfetto", "otlp", "parquet"):
            exported = tmp_path / f"{name}.{to}"
            binary.run("export", trace, "--to", to, "-o", exported, *options).check()
            if to == "parquet":
                rows = [duckdb.sql(f"FROM '{file}'").fetchall() for file in sorted(exported.glob("*.parquet"))]
                found[to] = repr(rows)
            else:
                found[to] = exported.read_bytes().decode("utf-8", "replace")
        for shown, also in (("text", []), ("json", ["--json"])):
            ran = binary.run("analyze", trace, *also, *options).check()
            found[shown] = ran.out + ran.err
        return found

    plain, redacted = outputs("plain"), outputs("redacted", "--redact")
    assert len(plain) == len(redacted) == 6
    for name in plain:
        assert "Globex" in plain[name], f"{name} shows no names at all"
        for secret in ("Acme", "Globex", "merger", "x.parquet", "turnover", str(tmp_path)):
            assert secret not in redacted[name], f"{name} holds {secret}"


def test_missing_data_has_an_empty_state(tmp_path, chromium):
    trace = tmp_path / "one.trace"
    binary.run("sql", "SELECT 1", "--trace", trace).check()
    page = browser.Page(chromium, report(trace, "one.html"))
    page.check()
    page.picture("report-empty")
    text = page.page.inner_text("main")
    assert "Nothing is predicted" in text or page.page.locator("#what-if-body tbody tr").count() > 0
    page.close()


def test_page_of_a_truncated_trace_says_so(recorded, tmp_path, chromium):
    cut = tmp_path / "cut.trace"
    cut.write_bytes(recorded.read_bytes()[: recorded.stat().st_size // 2])
    page = browser.Page(chromium, report(cut, "cut.html"))
    page.check()
    assert "Cut after block" in page.page.inner_text("#warnings")
    assert "Nothing is predicted" in page.page.inner_text("#what-if-body")
    page.close()


def test_failed_report_leaves_no_files(recorded, tmp_path):
    ran = binary.run("report", recorded, "-o", tmp_path / "no" / "such" / "page.html")
    assert ran.code == 1 and "page.html" in ran.err and not binary.PANIC.search(ran.err)
    ran = binary.run("report", tmp_path / "none.trace", "-o", tmp_path / "page.html")
    assert ran.code == 1 and "none.trace" in ran.err and list(tmp_path.iterdir()) == []
