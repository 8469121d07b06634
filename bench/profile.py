"""Do the core times of operators agree with a profiler's samples?

    python -m bench.profile [--scale 5] [--seed 1] [--samples 5000]

perf samples the stacks of ten queries that the seed draws. A sample belongs to the innermost operator of its stack,
which is told by the functions of DataFusion and Pellucid that it calls, not by the clock reads of the trace. The
operators that it was called through give its place in the plan. Operators of the same kind in the same place are one
group: nothing in a stack tells them apart. Each query is a line of `bench/results/profile.jsonl`, so a stopped run
resumes. The table is printed from those lines.

Stacks are unwound by the binary's own tables (`--call-graph dwarf`). `--binary` takes another one, such as a build with
frame pointers for `--call-graph fp`.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from bench.common import drawn, results
from bench.common.goals import at_most, of_all
from bench.common.pages import narrow_header, row
from harness import binary, traces

SUITE = "profile"
QUERIES = 10
# Queries with less core time, in milliseconds, need many runs for enough samples.
LEAST_MS = 1000
# Samples a second of core time. A prime number, so that they do not follow a rhythm of the program.
RATE_HZ = 499
# The largest part of a stack that perf can copy.
STACK_BYTES = 65_528
# Goal: the largest difference between two shares of an operator.
GOAL = 0.03

# A place in a plan: kinds of operators, outermost first. Two more stand for work outside of the plan.
Place = tuple[str, ...]
OUTPUT, INPUT = "Output", "Input"
# Kinds of those operators whose stream or plan has another name.
KINDS = {
    "BatchSplit": "Scan",
    "CombinedRecordBatch": "Interleave",
    "Cooperative": "Scan",
    "DataSource": "Scan",
    "File": "Scan",
    "FilterExec": "Filter",
    # The whole stream of an aggregate without groups: the frame around it is lost by a tail call.
    "Fuse": "Aggregate",
    "GlobalLimit": "Limit",
    "KeyFilter": "Filter",
    "LocalLimit": "Limit",
    "Observed": "Union",
    "Partition": OUTPUT,
    "RecordBatchStreamAdapter": "Sort",
}
# Kinds that are not told from the operator above, by its kind: most are streams of its own. A key filter has one for each key.
WITHIN = {
    "Filter": ["Filter"],
    "Sort": ["Sort", "SortPreservingMerge", "Reservation", "StreamAttachedReservation"],
}
# An adapter is the stream of several kinds, whose name does not tell which. Its other functions do.
ADAPTER = re.compile(r"::RecordBatchStreamAdapter<S> as ")
ADAPTED = {
    "Aggregate": re.compile(r"datafusion_physical_plan::aggregates::"),
    "Sort": re.compile(r"datafusion_physical_plan::(sorts::sort|topk)::"),
    "SortPreservingMerge": re.compile(r"datafusion_physical_plan::sorts::(merge|stream|builder|cursor)::"),
}
# A function that runs an operator: its stream is asked for a batch, or its plan for a stream.
STREAM = re.compile(
    r"<(?:datafusion_|pellucid_engine::execute::exchange|futures_util::stream::stream::fuse)\S*::(\w+?)(?:Stream)?(?:<\w+>)? as futures_core::stream::Stream>::poll_next"
)
PLAN = re.compile(r"<datafusion_\S*::(\w+)Exec as datafusion_physical_plan::execution_plan::ExecutionPlan>::execute")
# The future of a join's build side, whose own name is lost by inlining.
BUILD = re.compile(r"futures_util::future::future::\S+ as core::future::future::Future>::poll")
# Functions of a compute monotask, and those that take its output, fill the filters of joins, and take its input.
MONOTASK = re.compile(r"pellucid_engine::execute::Compute")
SINK = re.compile(r"pellucid_engine::(execute::sink|execute::exchange|scan::dynamic_filter)::|::Accumulator>::")
SOURCE = re.compile(r"::read_(if_)?cached")


def kind(name: str) -> str:
    """Returns the kind of an operator, of which a trace has more than the stacks tell."""
    first = re.split(r"Exec\(| ", name)[0]
    if first.endswith("Aggregate"):
        return "Aggregate"
    return f"{first} build" if name.endswith(" build") else KINDS.get(first, first)


def joined(around: Place, this: str) -> Place:
    """Returns the place of an operator of kind `this` below another place."""
    # A key filter without keys is not in the stacks.
    if this == "Scan" and around[-1:] == ("Filter",):
        around = around[:-1]
    return around if around and this in WITHIN.get(around[-1], ()) else (*around, this)


def place(stack: list[str]) -> Place | None:
    """Returns the place of a sample's operator; `None` if it is in none of them. The outermost function is first."""
    found: Place = ()
    for at, function in enumerate(stack):
        if found[-1:] == ("Scan",):
            break
        if match := STREAM.search(function) or PLAN.search(function):
            this = kind(match[1])
            # A stream around another one of the same operator, unless it is that of a union.
            if this != "Union" or not STREAM.search("".join(stack[at + 1 : at + 2])):
                found = joined(found, this)
        elif found and found[-1].endswith("Join") and BUILD.search(function):
            found = (*found, f"{found[-1]} build")
    if found:
        return found
    return (OUTPUT,) if any(map(SINK.search, stack)) else (INPUT,) if any(map(SOURCE.search, stack)) else None


def places(trace: traces.Trace) -> dict[int, Place]:
    """Returns the places of a trace's operators."""
    above = {taken: o["operator"] for o in trace.of["operator"] for taken in o.get("inputs", [])}
    kinds = {o["operator"]: kind(o["name"]) for o in trace.of["operator"]}

    def of(number: int) -> Place:
        parent = above.get(number)
        around = () if parent is None or kinds[parent] == OUTPUT else of(parent)
        return joined(around, kinds[number])

    return {number: of(number) for number in kinds}


def stacks(recorded: Path) -> Iterator[list[str]]:
    """Yields the stacks of a recording's samples on compute threads, outermost function first."""
    command = ["perf", "script", "-i", recorded, "--no-inline", "--no-demangle", "--max-stack", "1000", "-F", "comm,ip,sym"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as script:
        thread, frames = "", []
        for line in script.stdout or ():
            if not line.strip():
                if thread.startswith("core-"):
                    yield frames[::-1]
                thread, frames = "", []
            elif not thread:
                thread = line.strip()
            else:
                frames.append(line.split()[-1])


def demangled(symbols: set[str]) -> dict[str, str]:
    """Returns the names of symbols."""
    ordered = sorted(symbols)
    names = subprocess.run(["c++filt"], input="\n".join(ordered), stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()
    return dict(zip(ordered, names, strict=True))


def with_adapters(names: dict[str, str], counts: Counter) -> dict[str, str]:
    """Returns the names of symbols, in which each adapter has the name of the kind whose functions it calls most often."""
    called: dict[str, Counter] = defaultdict(Counter)
    for stack, count in counts.items():
        for symbol, callee in pairwise(stack):
            if ADAPTER.search(names[symbol]):
                for this, functions in ADAPTED.items():
                    called[symbol][this] += count * bool(functions.search(names[callee]))
    most = {symbol: max(kinds, key=lambda this: kinds[this]) for symbol, kinds in called.items() if kinds.total()}
    return names | {symbol: f"<datafusion_physical_plan::{this}Stream as futures_core::stream::Stream>::poll_next" for symbol, this in most.items()}


def sampled(query: drawn.Query, scale: float, call_graph: str) -> tuple[traces.Trace, Counter]:
    """Runs a query under perf. Returns its trace, and the samples of its monotasks by place."""
    with tempfile.TemporaryDirectory() as folder:
        recorded = Path(folder) / "perf.data"
        perf = ["perf", "record", "-q", "-e", "cpu-clock", "-F", RATE_HZ, "--call-graph", call_graph, "-o", recorded, "--"]
        command = [*perf, binary.binary(), *drawn.arguments(query, scale, Path(folder))]
        ran = subprocess.run([str(word) for word in command], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        if ran.returncode:
            sys.exit(f"bench.profile: cannot sample {query[0]} {query[1]}: {ran.stderr.strip()}; without root, set kernel.perf_event_paranoid to 1")
        counts = Counter(tuple(stack) for stack in stacks(recorded))
        trace = traces.read(Path(folder) / "query.trace")
    names = with_adapters(demangled({symbol for stack in counts for symbol in stack}), counts)
    samples: Counter = Counter()
    for stack, count in counts.items():
        functions = [names[symbol] for symbol in stack]
        if any(map(MONOTASK.search, functions)):
            samples[place(functions)] += count
    return trace, samples


def measure(query: drawn.Query, scale: float, least: int, call_graph: str) -> dict:
    """Runs a query until it has enough samples, and returns both shares of each place."""
    core_ms = drawn.core_ms(drawn.run(query, scale))
    if core_ms < LEAST_MS:
        return {"unfit": f"{core_ms:.0f} ms of core time"}
    samples: Counter = Counter()
    core_ns, of_place, names = 0.0, Counter(), defaultdict(set)
    while samples.total() < least:
        trace, more = sampled(query, scale, call_graph)
        samples += more
        core_ns += drawn.core_ms(trace) * 1e6
        where = places(trace)
        for operator in trace.of["operator"]:
            of_place[where[operator["operator"]]] += operator["cpu_ns"]
            names[where[operator["operator"]]].add(operator["operator"])
    groups = [
        {"place": list(at), "operators": sorted(names[at]), "trace": of_place[at] / core_ns, "samples": samples[at] / samples.total()}
        for at in of_place
    ]
    elsewhere = sum(count for at, count in samples.items() if at is not None and at not in of_place)
    return {
        "samples": samples.total(),
        "core_ms": core_ns / 1e6,
        "operators": len(where),
        # The rest: in no operator, by each of the two; and of the samples, in a place that the plan does not have.
        "rest": {"trace": 1 - of_place.total() / core_ns, "samples": samples[None] / samples.total()},
        "elsewhere": elsewhere / samples.total(),
        "groups": sorted(groups, key=lambda group: -group["trace"]),
    }


def table(lines: list[dict]) -> list[str]:
    """Returns a Markdown table with a row for each query, and the goal."""
    rows = narrow_header(
        "query", "core time, s", "samples", "operators", "groups", "largest difference", "of", "trace", "samples", "rest", "elsewhere"
    )
    worst = 0.0
    for line in lines:
        difference = lambda group: abs(group["trace"] - group["samples"])
        most = max(line["groups"], key=difference)
        worst = max(worst, difference(most))
        case = f"{line['case']['queries']} {line['case']['query']}"
        rest = f"{line['rest']['trace']:.1%}, {line['rest']['samples']:.1%}"
        counts = line["samples"], line["operators"], len(line["groups"])
        shares = f"{difference(most):.2%}", " > ".join(most["place"]), f"{most['trace']:.1%}", f"{most['samples']:.1%}"
        rows.append(row(case, f"{line['core_ms'] / 1000:.1f}", *counts, *shares, rest, f"{line['elsewhere']:.1%}"))
    goal = at_most("Largest difference", worst * 100 if lines else None, GOAL * 100, lacks=of_all(len(lines), QUERIES, "queries"), unit=" points")
    return [*rows, "", str(goal)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--samples", type=int, default=5000, help="samples of a query, from as many runs as it takes")
    parser.add_argument("--call-graph", default=f"dwarf,{STACK_BYTES}", help="as of perf record")
    parser.add_argument("--binary", help="the command to profile, if it is not the usual build")
    chosen = parser.parse_args()
    for tool, package in (("perf", "linux-perf"), ("c++filt", "binutils")):
        if not shutil.which(tool):
            sys.exit(f"bench.profile: cannot find {tool}; install it (Debian: {package})")
    if chosen.binary:
        os.environ["PELLUCID_BIN"] = chosen.binary
    by = results.fingerprint([binary.binary()])
    case = {"scale": chosen.scale, "call_graph": chosen.call_graph}
    found = lambda query: measure(query, chosen.scale, chosen.samples, chosen.call_graph)
    print("\n".join(table(drawn.measure(SUITE, QUERIES, case, chosen.seed, by, 1, found))))


if __name__ == "__main__":
    main()
