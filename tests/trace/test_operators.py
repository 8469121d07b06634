"""Core time by operator: it adds up, its rows are those of the query, and what-ifs and outputs use it."""

import json
import re
from pathlib import Path

import pytest

from harness import binary, traces
from harness.sql import oracle
from harness.terminal import SCREEN_COLUMNS, on_screen

JOIN = (
    "SELECT o_orderpriority, count(*) AS n, sum(l_extendedprice * (1 - l_discount)) AS revenue "
    "FROM orders JOIN lineitem ON l_orderkey = o_orderkey WHERE l_shipdate > DATE '1995-03-15' GROUP BY 1 ORDER BY 1"
)


@pytest.fixture(scope="module")
def trace(tpch, tmp_path_factory):
    path = tmp_path_factory.mktemp("operators") / "join.trace"
    binary.sql(JOIN, tpch, "--trace", path).check()
    return path


@pytest.fixture(scope="module")
def core(trace):
    """The core time of the one job."""
    [job] = json.loads(binary.run("analyze", trace, "--json").check().out)["jobs"]
    return job["core"]


def test_operators_sum_to_the_core_time_that_the_kernel_counts(trace, core):
    assert traces.violations(traces.read(trace)) == []
    kernel_ms = sum(m["cpu_ns"] for m in traces.read(trace).monotasks("cpu")) / 1e6
    assert sum(o["core_ms"] for o in core["operators"]) == pytest.approx(core["total_ms"])
    assert core["total_ms"] == pytest.approx(kernel_ms)
    times = [o["core_ms"] for o in core["operators"]]
    assert times == sorted(times, reverse=True)


def test_rows_are_those_of_the_query(core, tpch):
    def counted(query):
        [[number]] = binary.result(binary.sql(query, tpch).check()).rows
        return int(number)

    of = {o["name"]: o for o in core["operators"]}
    probe = next(o for name, o in of.items() if re.fullmatch("HashJoin .* probe", name))
    build = next(o for name, o in of.items() if re.fullmatch("HashJoin .* build", name))
    matches = counted("SELECT count(*) FROM orders JOIN lineitem ON l_orderkey = o_orderkey WHERE l_shipdate > DATE '1995-03-15'")
    assert probe["rows_out"] == matches
    assert build["rows_out"] is None and build["rows_in"] == counted("SELECT count(*) FROM orders")
    assert of["Aggregate FinalPartitioned"]["rows_out"] == 5
    # A scan of several ranges of a file has an ellipsis.
    scan = next(o for name, o in of.items() if name.startswith("Scan lineitem.parquet"))
    assert scan["rows_in"] is None and scan["part"] == "decode" and scan["core_ms"] > 0
    numbers = [o["operator"] for o in core["operators"] if o["operator"] is not None]
    assert len(numbers) == len(set(numbers))


def scan_of(core, file):
    return next(o for o in core["operators"] if o["name"].startswith(f"Scan {file}.parquet"))


def test_columns_of_a_scan_are_part_of_its_time_and_all_of_its_bytes(trace, core):
    read = {
        "lineitem": {"l_orderkey", "l_extendedprice", "l_discount", "l_shipdate"},
        "orders": {"o_orderkey", "o_orderpriority"},
    }
    for file, names in read.items():
        scan = scan_of(core, file)
        assert {c["name"] for c in scan["columns"]} == names
        times = [c["core_ms"] for c in scan["columns"]]
        assert times == sorted(times, reverse=True) and min(times) > 0
        # Opening the file and the like is in no column.
        assert scan["core_ms"] / 2 < sum(times) <= scan["core_ms"] * 1.000001
    columns = [c for o in core["operators"] for c in o["columns"] or []]
    assert sum(c["bytes"] for c in columns) == sum(m["bytes"] for m in traces.read(trace).monotasks("cpu"))
    assert all(o["columns"] is None for o in core["operators"] if o["part"] != "decode")


@pytest.mark.parametrize("query, columns", [
    ("SELECT * FROM t", {"i", "s", "l", "o"}),
    ("SELECT k, count(*) FROM t GROUP BY k", None),
    ("SELECT i + k AS j, 'x' FROM t WHERE k = 2 LIMIT 30000", {"i"}),
    ("SELECT l, s FROM t WHERE i BETWEEN 40000 AND 40010", {"i", "l", "s"}),
    ("SELECT max(s.a) FROM t WHERE i % 7 = 0", None),
    ("SELECT i, filename FROM t WHERE o IS NOT NULL", {"i", "o"}),
    ("SELECT i, o FROM t ORDER BY i DESC, o LIMIT 4", None),
])  # fmt: skip
def test_rows_are_the_same_whether_columns_are_told_apart(query, columns, tmp_path):
    """Nested columns, those of paths, one that is NULL in a file, pages that are left out, and orders of row groups."""
    table = f"FROM read_parquet('{tmp_path}/t/*/*.parquet', filename => true, hive_partitioning => true)"
    query = query.replace("*", "* EXCLUDE (filename)", 1) if query.startswith("SELECT *") else query
    query = query.replace("FROM t", table)
    with oracle.connect() as duck:
        for k, other in ((1, "i::VARCHAR"), (2, "NULL::VARCHAR")):
            (tmp_path / f"t/k={k}").mkdir(parents=True)
            rows = f"SELECT i, {{'a': i, 'b': i || 'b'}} AS s, [i, i + 1] AS l, {other} AS o FROM range(50000) t(i)"
            duck.execute(f"COPY ({rows}) TO '{tmp_path}/t/k={k}/a.parquet' (ROW_GROUP_SIZE 20000)")
        expected = [list(row) for row in duck.execute(query).fetchall()]
    path = tmp_path / "t.trace"
    rows = binary.result(binary.sql(query, None, "--trace", path).check()).rows
    assert len(rows) == len(expected)
    if "LIMIT 30000" not in query:
        assert sorted(rows, key=str) == sorted(expected, key=str)
    read = traces.read(path)
    assert traces.violations(read) == []
    [scan] = [o for o in read.of["operator"] if o["name"].startswith("Scan")]
    assert {c["name"] for c in scan.get("columns", [])} == (columns or set())


@pytest.mark.parametrize("query, name", [
    ("SELECT count(*) FROM customer, nation WHERE c_custkey < n_nationkey", "NestedLoopJoin"),
    ("WITH RECURSIVE t AS (SELECT 1 AS a UNION ALL SELECT a + 1 FROM t WHERE a < 50) SELECT sum(a) FROM t", "RecursiveQuery"),
    ("SELECT l_orderkey, sum(l_tax) OVER (PARTITION BY l_orderkey) FROM lineitem ORDER BY 2 LIMIT 3", "WindowAgg"),
    ("SELECT count(*) FROM (SELECT o_comment AS c FROM orders UNION ALL SELECT l_comment FROM lineitem) WHERE c > 'x'", "Union"),
    ("SELECT * FROM orders WHERE o_totalprice > (SELECT avg(o_totalprice) * 4 FROM orders)", "Filter"),
])  # fmt: skip
def test_every_kind_of_plan_has_operators(query, name, tpch, tmp_path):
    path = tmp_path / "any.trace"
    binary.sql(query, tpch, "--trace", path).check()
    read = traces.read(path)
    assert traces.violations(read) == []
    assert any(name in operator["name"] for operator in read.of["operator"]), [o["name"] for o in read.of["operator"]]
    assert {operator["stage"] for operator in read.of["operator"]} == set(range(len(read.of["stage"])))


def test_analyze_and_explain_list_operators_within_a_terminal(trace, tpch):
    out = on_screen("analyze", trace)
    assert re.search(r"Scan lineitem.parquet … +\d+ .* \d+ %", out), out
    assert max(len(line) for line in out.splitlines()) <= SCREEN_COLUMNS, out
    rows = "\n".join(line for _, line in binary.result(binary.sql("EXPLAIN ANALYZE " + JOIN, tpch).check()).rows)
    assert re.search(r"[\d.]+ +\d+ +\d+[ !] +[\d.]+ +Aggregate Partial: ", rows), rows


def test_planned_rows_are_those_of_the_planner(tpch, tmp_path):
    path = tmp_path / "planned.trace"
    binary.sql("SELECT o_orderpriority, count(*) FROM orders GROUP BY 1", tpch, "--trace", path).check()
    [job] = json.loads(binary.run("analyze", path, "--json").check().out)["jobs"]
    of = {o["name"].removesuffix(" …"): o for o in job["core"]["operators"]}
    # The footers have the number of rows; the output of a stage returns none.
    assert of["Scan orders.parquet"]["planned_rows"] == of["Scan orders.parquet"]["rows_out"] > 0
    assert of["Partition"]["planned_rows"] is None


def test_explain_analyze_marks_misestimates(tpch):
    def explained(query):
        return "\n".join(line for _, line in binary.result(binary.sql("EXPLAIN ANALYZE " + query, tpch).check()).rows)

    # The planner expects a fifth of the rows of a condition about which the statistics say nothing.
    wrong = explained("SELECT count(*) FROM lineitem WHERE l_orderkey % 1000 = 7")
    assert re.search(r"\d+ +\d+! ", wrong) and "\n! misestimate: " in wrong, wrong
    right = explained("SELECT l_orderkey + 1 FROM lineitem ORDER BY 1 LIMIT 3")
    assert "planned rows" in right


def test_whatif_changes_an_operator(trace, core):
    number = next(o["operator"] for o in core["operators"] if o["operator"] is not None)

    def predicted(*settings):
        options = [part for setting in settings for part in ("--set", setting)]
        return binary.run("whatif", trace, "--json", *options).check().json()

    half, double = (predicted(f"operator.{number}.time={value}") for value in ("x0.5", "x2"))
    measured = half["baseline"]["measured_ms"]
    assert half["prediction"]["duration_ms"] < measured < double["prediction"]["duration_ms"]
    assert any(f"operator {number} (" in assumption for assumption in half["assumptions"])
    assert predicted("decode.time=x0.1")["prediction"]["duration_ms"] < measured
    ran = binary.run("whatif", trace, "--set", "operator.999.time=x0.5")
    assert ran.code == 2 and "this trace has operators up to" in ran.err, ran.err


def test_best_changes_to_the_query_are_listed(trace):
    document = binary.run("whatif", trace, "--json").check().json()
    measured = float(document["baseline"]["measured_ms"])
    of_query = {next(iter(s["set"])): s for s in document["singles"] if re.match(r"operator\.|decode\.|exchange\.", next(iter(s["set"])))}
    assert 1 <= len(of_query) <= 3, document["singles"]
    assert all(single["duration_ms"] <= 0.97 * measured and single["assumptions"] for single in of_query.values())
    screens = on_screen("whatif", trace), on_screen("analyze", trace)
    for key in of_query:
        assert all(key in text for text in screens), (key, screens)
    assert "What would help" in screens[1]
    assert max(len(line) for text in screens for line in text.splitlines()) <= SCREEN_COLUMNS, screens


def measured(query, tpch, path):
    """Runs a query five times. Returns the median time, and the trace of that run."""
    runs = []
    for _ in range(5):
        to = path / f"{len(list(path.iterdir()))}.trace"
        binary.sql(query, tpch, "--trace", to).check()
        [job] = json.loads(binary.run("analyze", to, "--json").check().out)["jobs"]
        runs.append((float(job["duration_ms"]), to, job))
    return sorted(runs, key=lambda run: run[0])[2]


def test_whatif_predicts_a_more_selective_filter(tpch, tmp_path):
    query = "SELECT l_orderkey, sum(l_extendedprice) AS s FROM lineitem WHERE l_quantity <= {} GROUP BY 1 ORDER BY s DESC LIMIT 5"
    (before, trace, job), (after, _, other) = (measured(query.format(most), tpch, tmp_path) for most in (40, 10))
    first, then = ([o for o in j["core"]["operators"] if o["name"] == "Filter"] for j in (job, other))
    [changed], [wanted] = first, then
    factor = wanted["rows_out"] / changed["rows_out"]
    assert 0.2 < factor < 0.3
    setting = f"rows.{changed['operator']}=x{factor:.6f}"
    answer = binary.run("whatif", trace, "--set", setting, "--json").check().json()
    prediction = answer["prediction"]
    print(f"{setting}: {before:.0f} ms, predicted {prediction['duration_ms']:.0f} ms ({prediction['low_ms']:.0f} to "
          f"{prediction['high_ms']:.0f} ms), measured {after:.0f} ms")  # fmt: skip
    assert prediction["duration_ms"] < before
    assert prediction["low_ms"] <= prediction["duration_ms"] <= prediction["high_ms"]
    # The filter's own time is not saved, and all operators above it follow.
    most = binary.run("whatif", trace, "--set", f"rows.{changed['operator']}=x0.001", "--json").check().json()
    half = binary.run("whatif", trace, "--set", f"rows.{changed['operator']}=x0.5", "--json").check().json()
    assert most["prediction"]["duration_ms"] < prediction["duration_ms"] < half["prediction"]["duration_ms"]
    assert answer["assumptions"][0].startswith(f"operator {changed['operator']} (Filter of stage ")


def test_whatif_leaves_out_an_exchange(trace):
    records = traces.read(trace).of["operator"]
    readers = [o for o in records if "from" in o]
    measured = json.loads(binary.run("whatif", trace, "--json").check().out)["baseline"]["measured_ms"]
    for reader in readers:
        answer = binary.run("whatif", trace, "--set", f"exchange.{reader['operator']}=none", "--json").check().json()
        assert answer["prediction"]["duration_ms"] <= measured * 1.01, answer
        assert f"operator {reader['operator']} (Exchange of stage {reader['stage']})" in answer["assumptions"][0]
        assert answer["set"] == {f"exchange.{reader['operator']}": "none"}
    other = next(o["operator"] for o in records if o["name"].startswith("Scan"))
    refused = binary.run("whatif", trace, "--set", f"exchange.{other}=none")
    listed = f"{readers[0]['operator']} (stage {readers[0]['from']} to {readers[0]['stage']})"
    assert refused.code == 2 and "is not an exchange" in refused.err and listed in refused.err, refused.err
    refused = binary.run("whatif", trace, "--set", f"exchange.{other}=x2")
    assert refused.code == 2 and "takes none" in refused.err, refused.err
    build = next(o["operator"] for o in records if o["name"].endswith(" build"))
    refused = binary.run("whatif", trace, "--set", f"rows.{build}=x0.5")
    assert refused.code == 2 and "emits no rows" in refused.err, refused.err


@pytest.mark.parametrize("setting", ["rows.1=x0.5", "exchange.1=none", "operator.1.time=x0.5", "decode.time=x0.5"])
def test_changes_to_operators_are_refused_without_them(setting):
    log = Path(__file__).parents[1] / "event_logs/spark-4.3.0/own-failure.lzf"
    refused = binary.run("whatif", log, "--set", setting)
    assert refused.code == 2 and "does not have the core time of operators" in refused.err, refused.err


def test_whatif_reads_fewer_columns(trace):
    def predicted(setting):
        return binary.run("whatif", trace, "--json", "--set", setting).check().json()["prediction"]["duration_ms"]

    all_columns = predicted("columns.lineitem=l_orderkey,l_extendedprice,l_discount,l_shipdate")
    assert predicted("columns.lineitem=l_orderkey") < all_columns
    assert predicted("columns.lineitem.parquet=L_ORDERKEY") == predicted("columns.lineitem=l_orderkey")
    for setting, why in (
        ("columns.lineitem=l_orderkey,l_comment", "it reads l_discount, l_extendedprice, l_orderkey, l_shipdate"),
        ("columns.region=r_name", "it has scans of lineitem.parquet, orders.parquet"),
        ("columns.lineitem=", "columns.lineitem takes the columns"),
    ):
        ran = binary.run("whatif", trace, "--set", setting)
        assert ran.code == 2 and why in ran.err, ran.err


def test_columns_are_listed_and_exported(trace, core, tpch, tmp_path):
    dearest = scan_of(core, "lineitem")["columns"][0]["name"]
    assert re.search(rf"^ +{dearest} [\d.]+ m?s, ", on_screen("analyze", trace), re.MULTILINE)
    rows = "\n".join(line for _, line in binary.result(binary.sql("EXPLAIN ANALYZE " + JOIN, tpch).check()).rows)
    assert re.search(r"decodes (\w+ [\d.]+ ms of [\d.]+ MB(, )?){4}", rows), rows
    binary.run("export", trace, "--to", "parquet", "-o", tmp_path / "tables").check()
    with oracle.connect() as duck:
        exported = duck.execute(f"SELECT operator_name, name FROM '{tmp_path}/tables/columns.parquet'").fetchall()
    assert len(exported) == 6 and ("Scan orders.parquet …", "o_orderpriority") in exported


TEXTS = 60_000
EXPENSIVE = "regexp_replace(s, '[0-9]+', 'z', 'g')"
BY_EXPRESSION = {
    "Filter": f"SELECT count(*) FROM t WHERE x + 1 > 10 AND {EXPENSIVE} <> 'none'",
    "Scan": f"SELECT x + 1 AS y, {EXPENSIVE} AS r FROM t",
    "Scan t.csv": f"SELECT x + 1 AS y, {EXPENSIVE} AS r FROM c",
    "Projection": f"SELECT x + 1 AS y, {EXPENSIVE} AS r FROM t WHERE x % 4 < 3",
    "HashJoin": f"SELECT count(*) FROM t a JOIN t b ON a.x = b.x AND a.x + b.x > 10 AND {EXPENSIVE.replace('s,', 'a.s || b.s,')} <> 'none'",
}


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    """A folder with a file of numbers and texts, in two formats."""
    path = tmp_path_factory.mktemp("expressions")
    with oracle.connect() as duck:
        rows = f"SELECT i AS x, CASE WHEN i % 11 <> 0 THEN 'part ' || i || ' of ' || i * 7 END AS s FROM range({TEXTS}) t(i)"
        duck.execute(f"COPY ({rows}) TO '{path}/t.parquet' (ROW_GROUP_SIZE 20000)")
        duck.execute(f"COPY (FROM '{path}/t.parquet') TO '{path}/t.csv'")
    return path


def of_texts(query, texts, *options):
    return binary.run("sql", query, "--table", f"t={texts}/t.parquet", "--table", f"c={texts}/t.csv", *options).check()


@pytest.mark.parametrize("name", list(BY_EXPRESSION))
def test_expensive_expression_has_most_of_its_operators_time(name, texts, tmp_path):
    query, path = BY_EXPRESSION[name], tmp_path / "expressions.trace"
    got = binary.result(of_texts(query, texts, "--json", "--trace", path)).rows
    with oracle.connect() as duck:
        duck.execute(f"CREATE VIEW t AS FROM '{texts}/t.parquet'; CREATE VIEW c AS FROM t")
        expected = [list(row) for row in duck.execute(query).fetchall()]
    assert sorted(got, key=str) == sorted(expected, key=str)
    assert traces.violations(traces.read(path)) == []
    [job] = json.loads(binary.run("analyze", path, "--json").check().out)["jobs"]
    [of] = [o for o in job["core"]["operators"] if o["name"].startswith(name) and any("regexp_replace" in e["text"] for e in o["expressions"])]
    times = [e["core_ms"] for e in of["expressions"]]
    assert times == sorted(times, reverse=True)
    assert "regexp_replace" in of["expressions"][0]["text"], of
    assert of["core_ms"] / 2 < times[0] <= sum(times) <= of["core_ms"] * 1.000001, of
    assert not any("regexp_replace" in e["text"] for e in of["expressions"][1:]), of


def test_expressions_are_listed_exported_and_redacted(texts, tmp_path):
    query, path = BY_EXPRESSION["Filter"], tmp_path / "expressions.trace"
    of_texts(query, texts, "--trace", path)
    screen = on_screen("analyze", path)
    assert re.search(r"^ +.*regexp_replace\(.* ≈", screen, re.MULTILINE) and "≈ estimated from some of the batches" in screen, screen
    assert max(len(line) for line in screen.splitlines()) <= SCREEN_COLUMNS, screen
    rows = "\n".join(line for _, line in binary.result(of_texts("EXPLAIN ANALYZE " + query, texts, "--json")).rows)
    assert re.search(r"evaluates .*regexp_replace\(.* ≈ [\d.]+ ms", rows), rows
    binary.run("export", path, "--to", "parquet", "-o", tmp_path / "tables").check()
    with oracle.connect() as duck:
        exported = duck.execute(f"SELECT operator_name, text, rows FROM '{tmp_path}/tables/expressions.parquet' ORDER BY cpu_ns DESC").fetchall()
    assert exported[0][0] == "Filter" and "regexp_replace" in exported[0][1] and exported[0][2] == TEXTS, exported
    redacted = binary.run("analyze", path, "--json", "--redact").check().out.replace(" ", "")
    assert "regexp_replace" not in redacted and '"text":"expression-' in redacted


def test_operators_without_expressions_list_none(core):
    assert all(o["expressions"] == [] for o in core["operators"] if o["name"].startswith(("Exchange", "Output", "rest")))


def test_redaction_keeps_operators_and_no_text_of_the_query(trace, tmp_path):
    path = tmp_path / "redacted.json"
    redacted = binary.run("analyze", trace, "--json", "--redact").check()
    path.write_text(redacted.out)
    names = [o["name"] for o in redacted.json()["jobs"][0]["core"]["operators"]]
    assert any(name.endswith(" probe") for name in names)
    assert not any(secret in redacted.out for secret in ("lineitem", "orders", "l_discount", "l_orderkey"))
    assert '"name":"column-' in redacted.out.replace(" ", "")


def test_peak_of_memory_says_what_held_it(trace, tpch, tmp_path):
    assert traces.violations(traces.read(trace)) == []
    [job] = json.loads(binary.run("analyze", trace, "--json").check().out)["jobs"]
    peak = job["peak"]
    assert peak["stage"] in job["stages"]
    assert 0 < sum(held["bytes"] for held in peak["held_by"]) <= peak["bytes"] < job["memory_high_water_bytes"]
    assert {held["what"] for held in peak["held_by"]} <= {"build side", "groups", "sort", "exchange", "buffers"}
    # Of a query that needs it at once, the groups and the sort of one stage.
    of_groups = tmp_path / "groups.trace"
    grouped = "SELECT l_partkey, l_suppkey, l_extendedprice, l_quantity, sum(l_tax) AS s FROM lineitem GROUP BY ALL"
    binary.sql(f"SELECT max(s) FROM ({grouped})", tpch, "--trace", of_groups).check()
    [job] = json.loads(binary.run("analyze", of_groups, "--json").check().out)["jobs"]
    assert job["peak"]["held_by"][0]["what"] in ("groups", "exchange")
    assert f"At most {job['peak']['bytes'] / 1e6:.0f}" in binary.run("analyze", of_groups).check().out


def test_query_that_runs_out_of_memory_says_what_held_it(tpch, tmp_path):
    path = tmp_path / "failed.trace"
    # Its result must fit.
    query = "SELECT l_orderkey, sum(l_tax) AS s FROM lineitem GROUP BY ALL"
    failed = binary.sql(query, tpch, "--memory", "1MB", "--trace", path)
    assert failed.code == 1 and "not enough memory" in failed.err
    [job] = json.loads(binary.run("analyze", path, "--json").check().out)["jobs"]
    assert job["outcome"] == "failed" and job["peak"]["bytes"] > 0
