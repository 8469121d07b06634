"""Tests of the pure parts of the suites about operators: places in a plan, counts, judgements, the draw."""

from collections import Counter, defaultdict

from bench import profile, slowed
from bench.common import drawn, results
from bench.engine import recording
from harness.sql import oracle
from harness.traces import Trace

STREAM = "<datafusion_physical_plan::{} as futures_core::stream::Stream>::poll_next::h0808af25e29c6881"
FILTER, HASH_JOIN, PROJECTION, ADAPTER, OBSERVED = (
    STREAM.format(name)
    for name in (
        "filter::FilterExecStream",
        "joins::hash_join::stream::HashJoinStream",
        "projection::ProjectionStream",
        "stream::RecordBatchStreamAdapter<S>",
        "stream::ObservedStream",
    )
)
COOPERATIVE = STREAM.format("coop::CooperativeStream<T>")
FILES = "<datafusion_datasource::file_stream::FileStream as futures_core::stream::Stream>::poll_next"
TIMED = "<pellucid_engine::execute::timing::TimedStream as futures_core::stream::Stream>::poll_next"
EXCHANGE = "<pellucid_engine::execute::exchange::ExchangeStream as futures_core::stream::Stream>::poll_next"
BUILD = "<futures_util::future::future::Map<Fut,F> as core::future::future::Future>::poll"
MERGE = "datafusion_physical_plan::sorts::merge::SortPreservingMergeStream<C>::maybe_poll_stream"
SORT = "datafusion_physical_plan::sorts::sort::ExternalSorter::in_mem_sort_stream"
FUSE = "<futures_util::stream::stream::fuse::Fuse<S> as futures_core::stream::Stream>::poll_next"
PLAN = "<datafusion_physical_plan::sorts::sort::SortExec as datafusion_physical_plan::execution_plan::ExecutionPlan>::execute"
COMPUTE = "pellucid_engine::execute::Compute::run"


def trace(*operators: dict, tasks: int = 1) -> Trace:
    """Returns a trace of one stage with these operators and a number of compute monotasks."""
    of: dict[str, list[dict]] = defaultdict(list)
    of["resource"] = [{"kind": "cpu"}]
    of["multitask"] = [{"stage": 0}] * tasks
    of["monotask"] = [{"multitask": task, "resource": 0} for task in range(tasks)]
    of["operator"] = [{"stage": 0, **operator} for operator in operators]
    return Trace(of=of)


def test_place_has_the_operators_of_the_stack():
    assert profile.place([COMPUTE, TIMED, PROJECTION, TIMED, FILTER, TIMED, COOPERATIVE, FILES, "memcpy"]) == ("Projection", "Scan")
    assert profile.place([COMPUTE, FILTER, FILTER, FILTER, COOPERATIVE, FILES, ADAPTER]) == ("Scan",)
    assert profile.place([COMPUTE, FILTER, FILTER, "memcpy"]) == ("Filter",)
    assert profile.place([COMPUTE, PROJECTION, PLAN]) == ("Projection", "Sort")
    assert profile.place([COMPUTE, EXCHANGE]) == ("Exchange",)


def test_build_side_of_a_join_is_its_own_operator():
    assert profile.place([COMPUTE, HASH_JOIN, BUILD, FILTER]) == ("HashJoin", "HashJoin build", "Filter")
    assert profile.place([COMPUTE, HASH_JOIN, FILTER, BUILD]) == ("HashJoin", "Filter")


def test_streams_around_streams_of_an_operator_are_not_unions():
    assert profile.place([COMPUTE, OBSERVED, TIMED, FILTER]) == ("Union", "Filter")
    assert profile.place([COMPUTE, OBSERVED, ADAPTER, TIMED, FILTER]) == ("Sort", "Filter")
    # The stream of an aggregate without groups, and one within a scan.
    assert profile.place([COMPUTE, FUSE, TIMED, FILES, FUSE]) == ("Aggregate", "Scan")


def test_adapters_are_told_by_the_functions_that_they_call():
    merges, sorts, unknown = (ADAPTER.replace("h0808", number) for number in ("h1", "h2", "h3"))
    stacks = [(COMPUTE, OBSERVED, merges, MERGE), (COMPUTE, OBSERVED, merges, FILTER), (COMPUTE, sorts, SORT), (COMPUTE, sorts, OBSERVED, merges)]
    stacks.append((COMPUTE, unknown, FILTER))
    names = profile.with_adapters({name: name for stack in stacks for name in stack}, Counter(stacks))
    assert [profile.place([names[symbol] for symbol in stack]) for stack in stacks] == [
        ("SortPreservingMerge",),
        ("SortPreservingMerge", "Filter"),
        ("Sort",),
        ("Sort",),
        ("Sort", "Filter"),
    ]


def test_place_of_work_outside_of_the_plan():
    assert profile.place([COMPUTE, "pellucid_engine::execute::sink::Sink::push"]) == ("Output",)
    assert profile.place([COMPUTE, "pellucid_engine::scan::Scan::read_cached"]) == ("Input",)
    assert profile.place([COMPUTE, "core::ptr::drop_in_place<datafusion_physical_plan::filter::FilterExecStream>"]) is None


def test_places_of_a_trace_are_those_of_its_stacks():
    found = profile.places(
        trace(
            {"operator": 0, "name": "Scan a.parquet"},
            {"operator": 1, "name": "KeyFilter", "inputs": [0]},
            {"operator": 2, "name": "HashJoin Inner build", "inputs": [1]},
            {"operator": 3, "name": "Exchange"},
            {"operator": 4, "name": "HashJoin Inner probe", "inputs": [2, 3]},
            {"operator": 5, "name": "Aggregate Partial", "inputs": [4]},
            {"operator": 6, "name": "Partition", "inputs": [5]},
            {"operator": 7, "name": "Scan b.parquet"},
            {"operator": 8, "name": "KeyFilter", "inputs": [7]},
            {"operator": 9, "name": "Filter", "inputs": [8]},
            {"operator": 10, "name": "SortExec(TopK)", "inputs": [9]},
            {"operator": 11, "name": "Output", "inputs": [10]},
        )
    )
    join = ("Aggregate", "HashJoin")
    assert found == {
        0: (*join, "HashJoin build", "Scan"),
        1: (*join, "HashJoin build", "Filter"),
        2: (*join, "HashJoin build"),
        3: (*join, "Exchange"),
        4: join,
        5: ("Aggregate",),
        6: ("Output",),
        7: ("Sort", "Scan"),
        8: ("Sort", "Filter"),
        9: ("Sort", "Filter"),
        10: ("Sort",),
        11: ("Output",),
    }


def test_calls_are_batches_and_two_for_each_monotask():
    operators = {"operator": 0, "batches": 10}, {"operator": 1, "inputs": [0], "batches": 3}, {"operator": 2, "inputs": [1]}
    # The output is called for each of the three batches that it takes.
    assert recording.calls(trace(*operators, tasks=4)) == (10 + 8) + (3 + 8) + (3 + 8)


def test_judgement_by_hand():
    line = {"slowed_ms": [90, 100, 200], "prediction": {"duration_ms": 110, "low_ms": 99, "high_ms": 121}}
    error, half, inside = slowed.judged(line)
    assert (round(error, 9), round(half, 9), inside) == (0.1, 0.1, True)
    assert slowed.judged(line | {"slowed_ms": [98]})[2] is False


def test_missing_queries_leave_the_goals_undecided():
    line = {"slowed_ms": [100], "prediction": {"duration_ms": 100, "low_ms": 99, "high_ms": 101}}
    assert [goal.verdict for goal in slowed.goals([line] * 10)] == ["met"] * 3
    assert [goal.verdict for goal in slowed.goals([line])] == ["not decided: 1 of 10 queries"] * 3
    assert [goal.verdict for goal in slowed.goals([])] == ["not measured"] * 3


def test_draw_takes_turns_and_repeats_itself():
    order = list(drawn.queries(1))
    assert order == list(drawn.queries(1)) and order != list(drawn.queries(2))
    assert len(set(order)) == len(order) == 2 * min(oracle.BENCHMARKS.values())
    assert [name for name, _ in order[:4]] == ["tpch", "tpcds"] * 2


def test_drawn_queries_are_measured_once_and_unfit_ones_replaced(tmp_path, monkeypatch):
    monkeypatch.setattr(results, "FOLDER", tmp_path)
    ran = []

    def found(query):
        ran.append(query)
        return {"unfit": "too short"} if len(ran) == 1 else {"ms": 1}

    for _ in range(2):
        lines = drawn.measure("x", 2, {"scale": 5}, 1, "b1", 1, found)
        assert [(line["case"]["queries"], line["case"]["query"]) for line in lines] == ran[1:]
    assert ran == list(drawn.queries(1))[:3]
