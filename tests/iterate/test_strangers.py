"""Connections to an iterative job that must not succeed: strangers, and workers with other options than the
controller's.
"""

import json
import os

import numpy as np
import pytest

from bench import strangers
from harness import binary
from harness.binary import FAILED, USAGE

SECRET = "a secret between the processes"


@pytest.fixture
def points(tmp_path):
    """Returns a file of labelled points."""
    path = tmp_path / "points.csv"
    rows = np.random.default_rng(7).normal(size=(5000, 4)).tolist()
    lines = [",".join(map(repr, [*row, int(row[0] + row[1] > 0.3)])) for row in rows]
    path.write_text("\n".join(["a,b,c,d,label", *lines]) + "\n")
    return path


@pytest.mark.parametrize("controller_encrypts", [True, False])
def test_worker_and_controller_that_differ_in_encryption_are_both_told(points, controller_encrypts):
    command = ["iterate", "kmeans", points, "--k", 3, "--processes", 1, "--listen", "127.0.0.1:0"]
    secret = os.environ | {"PELLUCID_ITERATE_SECRET": SECRET}
    option = {encrypts: ["--encrypt"] * encrypts for encrypts in (True, False)}
    controller = binary.start(*command, *option[controller_encrypts], env=secret)
    try:
        binary.wait_until(lambda: strangers.ports(controller.pid), controller)
        [port] = strangers.ports(controller.pid)
        joins = secret | {"PELLUCID_ITERATE_CONTROLLER": f"127.0.0.1:{port}", "PELLUCID_ITERATE_RANK": "0"}
        worker = binary.run(*command, *option[not controller_encrypts], env=joins)
        binary.run(*command, *option[controller_encrypts], env=joins).check()
        out, refusal = controller.communicate(timeout=60)
    finally:
        controller.kill()
    assert controller.returncode == 0 and "inertia" in out, refusal
    assert worker.code == FAILED
    without, with_it = (worker.err, refusal) if controller_encrypts else (refusal, worker.err)
    assert "it encrypts connections, but this end does not; pass --encrypt" in without
    assert "it does not encrypt connections, but this end does; pass --encrypt" in with_it


def test_encryption_of_one_process_is_refused(points):
    ran = binary.run("iterate", "kmeans", points, "--k", 3, "--encrypt")
    assert ran.code == USAGE and "add --processes N or remove --encrypt" in ran.err


@pytest.mark.parametrize("encryption", [(), ("--encrypt",)])
def test_job_beside_300_strangers_gives_the_same_answer(points, encryption):
    """Strangers are at the controller's port before its workers join, and at the workers' during the job."""
    command = ["iterate", "logistic-regression", points, "--label", "label", "--solver", "gd", "--json"]
    command += ["--tolerance", 1e-300, "--iterations", 80_000, "--partitions", 4, "--workers", 1]
    alone = json.loads(binary.run(*command).check().out)
    command += ["--processes", 2, "--listen", "127.0.0.1:0", *encryption]
    secret = os.environ | {"PELLUCID_ITERATE_SECRET": SECRET}
    started = [binary.start(*command, env=secret)]
    try:
        controller = started[0]
        binary.wait_until(lambda: strangers.ports(controller.pid), controller)
        port = strangers.ports(controller.pid)
        with strangers.beside(port) as opened:
            binary.wait_until(lambda: opened.value >= strangers.CONNECTIONS, controller)
            joins = secret | {"PELLUCID_ITERATE_CONTROLLER": f"127.0.0.1:{port[0]}"}
            workers = [binary.start(*command, env=joins | {"PELLUCID_ITERATE_RANK": rank}) for rank in "01"]
            started += workers
            for worker in workers:
                binary.wait_until(lambda: strangers.ports(worker.pid), worker)
            both = [port for worker in workers for port in strangers.ports(worker.pid)]
            with strangers.beside(both) as at_workers:
                binary.wait_until(lambda: at_workers.value >= strangers.CONNECTIONS, controller)
                out, err = controller.communicate(timeout=120)
        for worker in workers:
            _, failure = worker.communicate(timeout=60)
            assert worker.returncode == 0, failure
    finally:
        for process in started:
            process.kill()
            process.communicate()
    assert controller.returncode == 0, err
    found = json.loads(out)
    assert (found["result"], found["iterations"]) == (alone["result"], alone["iterations"])
