"""Fixtures: the Python package with the extension module of the release build, which `make test` builds too."""

import os
import shutil
import subprocess
import sys
import textwrap

import pytest

from harness import binary
from harness.binary import ROOT


@pytest.fixture(scope="session")
def package(tmp_path_factory):
    """A folder with the package and the extension module of the build."""
    built = binary.binary().parent / "lib_native.so"
    assert built.exists(), f"{built} does not exist; run cargo build --release --workspace --lib"
    folder = tmp_path_factory.mktemp("package")
    shutil.copytree(ROOT / "python" / "pellucid", folder / "pellucid")
    shutil.copy(built, folder / "pellucid" / "_native.abi3.so")
    return folder


@pytest.fixture(scope="session")
def pellucid(package):
    sys.path.insert(0, str(package))
    import pellucid

    return pellucid


@pytest.fixture(scope="session")
def script(package):
    """A function that starts a Python process, which runs a script with the package."""

    def start(text: str, **options) -> subprocess.Popen:
        environment = os.environ | {"PYTHONPATH": str(package), "NUMBA_NUM_THREADS": "1"}
        settings = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        return subprocess.Popen([sys.executable, "-c", textwrap.dedent(text)], env=environment, **(settings | options))

    return start
