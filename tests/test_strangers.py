"""Connections of an iterative job that must not succeed: workers with other options than the controller's."""

import os

import numpy as np
import pytest

from tests import binary

SECRET = "a secret between the processes"
FAILED, USAGE = 1, 2


@pytest.fixture
def points(tmp_path):
    """Returns a file of points."""
    path = tmp_path / "points.csv"
    rows = np.random.default_rng(7).normal(size=(5000, 4))
    path.write_text("a,b,c,d\n" + "\n".join(",".join(map(repr, row)) for row in rows.tolist()) + "\n")
    return path


@pytest.mark.parametrize("controller_encrypts", [True, False])
def test_worker_and_controller_that_differ_in_encryption_are_both_told(points, controller_encrypts):
    command = ["iterate", "kmeans", points, "--k", 3, "--processes", 1, "--listen", "127.0.0.1:0"]
    secret = os.environ | {"PELLUCID_ITERATE_SECRET": SECRET}
    controller = binary.start(*command, *["--encrypt"] * controller_encrypts, env=secret)
    try:
        address = controller.stderr.readline().split()[-1]
        joins = secret | {"PELLUCID_ITERATE_CONTROLLER": address, "PELLUCID_ITERATE_RANK": "0"}
        worker = binary.run(*command, *["--encrypt"] * (not controller_encrypts), env=joins)
        refusal = controller.stderr.readline()
        # A worker with the same option joins.
        assert binary.run(*command, *["--encrypt"] * controller_encrypts, env=joins).code == 0
        out, err = controller.communicate(timeout=60)
    finally:
        controller.kill()
    assert controller.returncode == 0 and "inertia" in out + err, err
    assert worker.code == FAILED
    without, with_it = (worker.err, refusal) if controller_encrypts else (refusal, worker.err)
    assert "it encrypts connections, but this end does not; pass --encrypt" in without
    assert "it does not encrypt connections, but this end does; pass --encrypt" in with_it


def test_encryption_of_one_process_is_refused(points):
    ran = binary.run("iterate", "kmeans", points, "--k", 3, "--encrypt")
    assert ran.code == USAGE and "add --processes N or remove --encrypt" in ran.err
