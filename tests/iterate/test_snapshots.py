"""Snapshots of `pellucid iterate`: damage costs iterations, never the job or its answer.

`tests/command/test_power_failure.py` covers power failures.
"""

import json
import shutil

import numpy as np
import pytest

from harness import binary
from harness.binary import FAILED
from harness.damage import flip
from harness.iterate import refused, write

SEED = 7
EVERY = 100


@pytest.fixture
def job(tmp_path):
    """A command that runs for seconds, and its result without snapshots."""
    random = np.random.default_rng(SEED)
    data = write(tmp_path / "a.parquet", random.normal(size=(20_000, 10)), random.integers(0, 2, 20_000))
    slowly = ("--solver", "gd", "--step", 1e-4, "--tolerance", 0, "--iterations", 20_000, "--partitions", 4)
    command = ("logistic-regression", data, "--label", "y", *slowly, "--json")
    return command, binary.run("iterate", *command).check().json()["result"]


def at(place):
    return ("--snapshot", place, "--snapshot-every", EVERY)


def interrupted(command, place, snapshots=2):
    """Runs the job until some snapshots are there, and kills it."""
    process = binary.start("iterate", *command, *at(place))
    lines = lambda: [line for path in place.glob("*/manifest.json") for line in path.read_text().splitlines()]
    binary.wait_until(lambda: len(lines()) >= snapshots, process)
    binary.kill(process)


def resumed(job, place) -> str:
    """Runs the job on what is left, compares its answer, and returns what it told."""
    command, expected = job
    ran = binary.run("iterate", *command, *at(place)).check()
    assert ran.json()["result"] == expected
    assert not binary.PANIC.search(ran.err), ran.err
    return ran.err


def test_a_flipped_bit_falls_back_with_a_warning_and_the_same_answer(tmp_path, job):
    place = tmp_path / "kept"
    interrupted(job[0], place)
    folder = next(place.iterdir())
    lines = (folder / "manifest.json").read_text().splitlines()
    newest, previous = (json.loads(line)["snapshot"] for line in lines)
    copy = tmp_path / "copy"
    for chosen, instead in [
        (f"*-{newest['position']['epoch']:020}", f"resuming from the snapshot of iteration {previous['iteration']}"),
        ("*", "starting from the beginning"),
    ]:
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(place, copy)
        for part in (copy / folder.name / "partitions").glob(chosen):
            if size := part.stat().st_size:
                flip(part, size // 2)
        told = resumed(job, copy)
        assert f"{copy}/{folder.name}" in told and "is damaged: its checksum differs" in told, told
        assert instead in told, told


def test_a_damaged_manifest_starts_from_the_beginning_with_a_warning(tmp_path, job):
    place = tmp_path / "kept"
    interrupted(job[0], place)
    manifest = next(place.glob("*/manifest.json"))
    manifest.write_bytes(bytes(manifest.stat().st_size))
    told = resumed(job, place)
    assert str(manifest.parent) in told and "manifest is damaged" in told, told
    assert "starting from the beginning" in told, told


def test_a_manifest_of_another_format_is_refused_with_folder_and_version(tmp_path, job):
    place = tmp_path / "kept"
    interrupted(job[0], place)
    manifest = next(place.glob("*/manifest.json"))
    snapshot = json.loads(manifest.read_text().splitlines()[0])["snapshot"]
    old = {"position": snapshot["position"], "iteration": snapshot["iteration"], "saved": []}
    manifest.write_text(json.dumps(old))
    message = refused(FAILED, *job[0], *at(place))
    assert str(manifest.parent) in message and "format 1" in message, message


def test_a_second_job_in_the_same_folder_is_refused_while_the_first_lives(tmp_path, job):
    place = tmp_path / "kept"
    process = binary.start("iterate", *job[0], *at(place))
    binary.wait_until(lambda: list(place.glob("*/manifest.json")), process)
    message = refused(FAILED, *job[0], *at(place))
    assert str(next(place.iterdir())) in message and "another process is running this job" in message, message
    binary.kill(process)
    assert "resumed from the snapshot of iteration" in resumed(job, place)


def test_files_of_a_killed_job_are_removed(tmp_path, job):
    place = tmp_path / "kept"
    interrupted(job[0], place)
    parts = next(place.glob("*/partitions"))
    left = parts / f"1-0-{10**9:020}"
    left.write_bytes(b"left")
    resumed(job, place)
    assert not left.exists()
