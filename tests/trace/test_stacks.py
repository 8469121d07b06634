"""Sampled stacks: their number, their operators, and the outputs that show them."""

import json
import re
import resource

import pytest

from harness import binary, browser, traces

QUERY = "SELECT count(DISTINCT l_orderkey), max(md5(l_comment)) FROM lineitem"
RATE_HZ = 99


@pytest.fixture(scope="module")
def trace(tpch, tmp_path_factory):
    path = tmp_path_factory.mktemp("stacks") / "sampled.trace"
    ran = binary.sql(QUERY, tpch, "--stacks", "--trace", path).check()
    assert "no stacks" not in ran.err, ran.err
    return path


@pytest.fixture(scope="module")
def chromium():
    with browser.started() as started:
        yield started


def samples(read):
    return sum(stack["count"] for stack in read.of["stack"])


def test_samples_are_those_of_the_core_time_and_in_operators_of_the_query(trace):
    read = traces.read(trace)
    assert traces.violations(read) == []
    assert binary.run("analyze", trace, "--check").check()
    core_s = sum(m["cpu_ns"] for m in read.monotasks("cpu")) / 1e9
    assert core_s > 0.3, "too short to be sampled"
    assert core_s * RATE_HZ / 2 < samples(read) < core_s * RATE_HZ * 2
    numbers = {(o["stage"], o["operator"]) for o in read.of["operator"]}
    within = sum(s["count"] for s in read.of["stack"] if (s["stage"], s.get("operator")) in numbers)
    assert within > 0.9 * samples(read)
    # The operators with most core time have most samples.
    core_ns = {(o["stage"], o["operator"]): o["cpu_ns"] for o in read.of["operator"]}
    costly = max(core_ns, key=lambda of: core_ns[of])
    of_costly = sum(s["count"] for s in read.of["stack"] if (s["stage"], s.get("operator")) == costly)
    assert of_costly / samples(read) == pytest.approx(core_ns[costly] / sum(core_ns.values()), abs=0.15)


def test_stacks_reach_from_the_thread_to_the_function(trace):
    read = traces.read(trace)
    whole = [s for s in read.of["stack"] if not s["frames"].startswith(("[truncated]", "[lost]"))]
    assert sum(s["count"] for s in whole) > 0.9 * samples(read)
    for stack in whole:
        frames = stack["frames"].split(";")
        assert frames[0].startswith("pellucid_runtime::drive::worker::"), stack
        assert all(frames), stack
        assert not any(re.search("::h[0-9a-f]{16}$", frame) for frame in frames), stack
    functions = {frame for stack in whole for frame in stack["frames"].split(";")}
    assert any("datafusion" in name for name in functions) and any("pellucid_engine::execute" in name for name in functions)


def test_folded_lines_sum_to_the_samples(trace, tmp_path):
    path = tmp_path / "out.folded"
    binary.run("export", trace, "--to", "folded", "-o", path).check()
    read = traces.read(trace)
    names = {operator["name"].replace(";", ",") for operator in read.of["operator"]} | {"no operator"}
    total = 0
    for line in path.read_text().splitlines():
        frames, _, count = line.rpartition(" ")
        stage, operator, *functions = frames.split(";")
        assert re.fullmatch(r"stage \d+", stage) and operator in names and functions, line
        total += int(count)
    assert total == samples(read)


def test_page_draws_the_functions(trace, tmp_path, chromium):
    path = tmp_path / "page.html"
    binary.run("report", trace, "-o", path).check()
    for width, scheme in ((1280, "light"), (1280, "dark"), (400, "light")):
        page = browser.Page(chromium, path, width, scheme)
        page.check()
        page.picture(f"report-stacks-{width}-{scheme}")
        it = page.page
        boxes = it.locator("#flame-picture .node").count()
        assert boxes > 10 and f"of {samples(traces.read(trace)):,} samples" in it.inner_text("#flame-chosen")
        it.focus("#flame-picture [tabindex='0']")
        for key in ("ArrowDown", "ArrowDown", "ArrowDown", "Enter"):
            it.keyboard.press(key)
        assert it.inner_text("#flame-chosen").startswith("pellucid_runtime::"), it.inner_text("#flame-chosen")
        it.keyboard.press("Escape")
        assert it.inner_text("#flame-chosen").startswith("all, ") and it.locator("#flame-picture .node").count() == boxes
        it.locator("#flame-table summary").click()
        assert it.locator("#flame-table-body tbody tr").count() > 10
        page.check_tables()
        page.check()
        page.close()


def test_trace_without_stacks_has_no_section_and_no_folded_lines(tpch, tmp_path, chromium):
    path = tmp_path / "plain.trace"
    binary.sql("SELECT count(*) FROM orders", tpch, "--trace", path).check()
    assert not traces.read(path).of["stack"]
    ran = binary.run("export", path, "--to", "folded", "-o", tmp_path / "x")
    assert ran.code == 1 and "it has none; record them with `pellucid sql --stacks" in ran.err, ran.err
    assert not (tmp_path / "x").exists()
    binary.run("report", path, "-o", tmp_path / "page.html").check()
    page = browser.Page(chromium, tmp_path / "page.html")
    page.check()
    assert page.page.locator("#flame").is_hidden()
    page.close()


def test_redacted_stacks_keep_functions_and_hide_operators(trace, tmp_path):
    path = tmp_path / "redacted.folded"
    binary.run("export", trace, "--to", "folded", "--redact", "-o", path).check()
    text = path.read_text()
    assert "lineitem" not in text and "pellucid_runtime::drive::worker::" in text


def test_stacks_need_a_trace(tpch):
    ran = binary.sql("SELECT 1", tpch, "--stacks")
    assert ran.code == 2 and "--trace" in ran.err, ran.err


def test_refused_timers_are_told_and_the_query_goes_on(tpch, tmp_path):
    """A limit of no pending signals refuses every timer, also for root."""
    path = tmp_path / "refused.trace"
    limit = lambda: resource.setrlimit(resource.RLIMIT_SIGPENDING, (0, 0))
    ran = binary.sql("SELECT count(*) AS n FROM orders", tpch, "--stacks", "--trace", path, preexec_fn=limit).check()
    assert re.search("^no stacks: the kernel refuses a timer", ran.err, re.M), ran.err
    assert json.loads(binary.run("analyze", path, "--json").check().out)["jobs"] and not traces.read(path).of["stack"]
