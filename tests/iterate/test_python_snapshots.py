"""Snapshots of programs of the Python package: resumed, of another program, damaged."""

import os
import subprocess
import sys
import textwrap
import time

import numpy as np

from harness import binary


def test_run_resumes_from_a_snapshot_and_writes_a_trace(pellucid, tmp_path):
    """A second run resumes from the snapshot that the first waited for; the trace names the kernels."""
    calls, saved = [], tmp_path / "saved"

    def build():
        program = pellucid.Program("saved")
        one = program.zeros("one", 1)

        def add(one):
            deadline = time.monotonic() + 60
            while one[0] == 20 and not list(saved.glob("*/manifest.json")) and time.monotonic() < deadline:
                time.sleep(0.001)
            calls.append(one[0])
            one += 1

        with program.loop(40):
            program.transform(add, writes=[one])
        return program, one

    program, one = build()
    trace = tmp_path / "job.trace"
    assert program.run(snapshot=saved, snapshot_every=7, trace=trace)[one].tolist() == [40]
    program, one = build()
    assert program.run(snapshot=saved, snapshot_every=7)[one].tolist() == [40]
    assert 40 < len(calls) <= 40 + 40 - 7, len(calls)
    assert "add" in binary.run("analyze", trace).check().out


def test_snapshot_of_another_program_is_not_used(pellucid, tmp_path):
    """Programs with other initial values, shape, type or number of iterations have separate snapshots."""

    def run(first, iterations, snapshots):
        program = pellucid.Program("alike")
        one, times = program.arrays("one", [first]), []

        def add(one):
            times.append(1)
            deadline = time.monotonic() + 60
            while len(times) == 15 and len(list(tmp_path.glob("*/manifest.json"))) < snapshots and time.monotonic() < deadline:
                time.sleep(0.001)
            one += 1

        with program.loop(iterations):
            program.transform(add, writes=[one])
        result = program.run(snapshot=tmp_path, snapshot_every=7)
        assert len(list(tmp_path.glob("*/manifest.json"))) == snapshots
        return result[one].tolist(), result.resumed_at

    assert run(np.zeros(1), 40, 1) == ([40], None)
    assert run(np.zeros(1), 20, 2) == ([20], None)
    assert run(np.ones(1), 40, 3) == ([41], None)
    assert run(np.zeros(2), 40, 4) == ([40, 40], None)
    assert run(np.zeros(1, np.float32), 40, 5) == ([40], None)
    again, resumed_at = run(np.zeros(1), 40, 5)
    assert again == [40] and resumed_at >= 7


DAMAGED_SNAPSHOTS = """
    import glob, json, os, random, sys, time, zlib
    import numpy as np
    import pellucid

    place, seeds = sys.argv[1], range(int(sys.argv[2]), int(sys.argv[3]))

    def run():
        program = pellucid.Program("damaged")
        matrix = program.arrays("matrix", [np.ones((3, 4)), np.ones((2, 4))])
        count = program.zeros("count", 1, dtype=np.int32)

        def step(count):
            # No snapshot comes if this worker has not added to its part of the matrix yet.
            until = time.monotonic() + 1
            while count[0] == 6 and not glob.glob(place + "/*/manifest.json") and time.monotonic() < until:
                time.sleep(0.001)
            count += 1

        def add(matrix):
            matrix += 1

        with program.loop(9):
            program.transform(step, writes=[count])
            program.transform(add, writes=[matrix])
        result = program.run(snapshot=place, snapshot_every=2)
        return [(array.shape, array.dtype) for array in [*result[matrix], result[count]]]

    for _ in range(30):
        expected = run()
        if glob.glob(place + "/*/manifest.json"):
            break
    [manifest] = glob.glob(place + "/*/manifest.json")
    intact = open(manifest).readlines()
    parts = {path: open(path, "rb").read() for path in glob.glob(place + "/*/partitions/*")}
    assert parts and intact

    def seal(name, content):
        dataset, partition, epoch = map(int, name.split("-"))
        lines = [json.loads(line) for line in intact]
        for line in lines:
            # The bundles with the dataset are in the order of its partitions.
            found = [part for bundle in line["snapshot"]["saved"] for part in bundle if part["dataset"] == dataset]
            if found[partition]["epoch"] == epoch:
                found[partition] |= {"bytes": len(content), "checksum": zlib.crc32(content)}
            sealed = json.dumps([line["format"], line["snapshot"]], separators=(",", ":"))
            line["checksum"] = zlib.crc32(sealed.encode())
        with open(manifest, "w") as file:
            file.writelines(json.dumps(line) + "\\n" for line in lines)

    for seed in seeds:
        print("seed", seed, flush=True)
        rng = random.Random(seed)
        os.makedirs(os.path.dirname(next(iter(parts))), exist_ok=True)
        for path, content in parts.items():
            open(path, "wb").write(content)
        path = rng.choice(sorted(parts))
        content = bytearray(parts[path])
        for _ in range(rng.randint(1, 3)):
            at = rng.randrange(min(len(content), 24))
            width, number = rng.choice((1, 1, 8)), rng.choice((0, 1, 2, 5, 255, 1 << 61, (1 << 64) - 1))
            content[at : at + width] = number.to_bytes(8, "little")[:width]
        if rng.random() < 0.2:
            del content[rng.randrange(len(content)) :]
        open(path, "wb").write(content)
        seal(os.path.basename(path), bytes(content))
        assert run() == expected, seed
"""


def test_damaged_snapshot_gives_arrays_of_the_right_type_and_shape(package, tmp_path):
    """A part with a right checksum may hold anything; the seed that was printed last repeats a failure."""
    seeds = 2000 if os.environ.get("PELLUCID_FULL") else 40
    environment = os.environ | {"PYTHONPATH": str(package)}
    command = [sys.executable, "-c", textwrap.dedent(DAMAGED_SNAPSHOTS), str(tmp_path), "0", str(seeds)]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    assert ran.returncode == 0, ran.stdout[-100:] + ran.stderr[-2000:]
    assert "cannot be decoded: invalid array of" in ran.stderr, ran.stderr[-500:]
