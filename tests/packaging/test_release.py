"""The command of the Python package in an environment of its own, and the files of a release (`make dist`).

The package is tested twice: with the extension module of the build, and installed from the wheel if there is one. Its command
is that of the binary, so the tests of the binary run on the installed script.
"""

import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from harness import binary
from harness.binary import ROOT

DIST = ROOT / "dist"
MAX_BYTES = 60 * 10**6
# The oldest glibc on which a release starts: 2.28.
GLIBC_MINOR = 28


def released(pattern: str) -> Path:
    """Returns a file of the release; without one, the test is skipped."""
    found = sorted(DIST.glob(pattern))
    if not found:
        pytest.skip(f"no dist/{pattern}; run make dist")
    assert len(found) == 1, f"several files in dist/: {found}; run make dist"
    return found[0]


@dataclass
class Installed:
    """The package in an environment that has nothing else: the command needs no other package."""

    # The programs of the environment.
    programs: Path
    # The binary that was built with it.
    binary: Path

    def run(self, *args: str | Path, **options) -> binary.Ran:
        """Runs the script `pellucid`."""
        return binary.run(*args, program=self.programs / "pellucid", **options)


@pytest.fixture(scope="module", params=["build", "wheel"])
def installed(request, tmp_path_factory) -> Installed:
    """The package of the build, and of the wheel."""
    folder = tmp_path_factory.mktemp("environment")
    programs = folder / "bin"
    if request.param == "wheel":
        wheel, archive = released("pellucid-*.whl"), released("pellucid-*.tar.gz")
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        install = [programs / "python", "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", wheel]
        subprocess.run(install, check=True)
        return Installed(programs, unpacked(archive, folder / "archive") / "pellucid")
    built = binary.binary().with_name("lib_native.so")
    assert built.exists(), f"{built} does not exist; run cargo build --release --workspace --lib"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    [site] = folder.glob("lib/python*/site-packages")
    shutil.copytree(ROOT / "python" / "pellucid", site / "pellucid", ignore=shutil.ignore_patterns("*.jar"))
    shutil.copy(built, site / "pellucid" / "_native.abi3.so")
    # The script that pip makes of `project.scripts`.
    project = tomllib.loads((ROOT / "python" / "pyproject.toml").read_text())["project"]
    module, _, function = project["scripts"]["pellucid"].partition(":")
    (programs / "pellucid").write_text(f"#!{programs}/python\nimport sys\nfrom {module} import {function}\nsys.exit({function}())\n")
    (programs / "pellucid").chmod(0o755)
    return Installed(programs, binary.binary())


def unpacked(archive: Path, into: Path) -> Path:
    """Unpacks the archive and returns its folder."""
    with tarfile.open(archive) as files:
        files.extractall(into, filter="data")
    [folder] = into.iterdir()
    return folder


def check_glibc(code: bytes) -> None:
    """Fails if the code needs a newer glibc than a release supports."""
    needed = {int(minor) for minor in re.findall(rb"\0GLIBC_2\.(\d+)", code)}
    assert needed and max(needed) <= GLIBC_MINOR, f"needs glibc 2.{max(needed)}"


def test_wheel_holds_the_code_once_and_starts_on_old_systems():
    wheel = released("pellucid-*.whl")
    assert wheel.stat().st_size < MAX_BYTES
    assert re.search(r"-cp311-abi3-manylinux_2_28_\w+\.whl$", wheel.name), wheel
    with zipfile.ZipFile(wheel) as files:
        names = files.namelist()
        large = [name for name in names if files.getinfo(name).file_size > 10**7]
        assert large == ["pellucid/_native.abi3.so"], large
        assert "pellucid/pellucid-spark.jar" in names and not [name for name in names if "__pycache__" in name]
        assert any(name.endswith("/LICENSE") for name in names), names
        check_glibc(files.read(large[0]))


def test_command_of_the_package_passes_the_tests_of_the_binary(installed):
    """Streams, closed pipes, interrupts and exit codes."""
    environment = os.environ | {"PELLUCID_BIN": str(installed.programs / "pellucid")}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/command/test_output.py"]
    ran = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=binary.TIMEOUT_S)
    assert ran.returncode == 0, ran.stdout[-4000:]


ALIKE = ["--version", "--help", "sql --help", "sql 'SELECT 42' --format csv -q", "sql 'SELEC 1'", "sqll", "analyze none", "completions fish"]


@pytest.mark.parametrize("line", ALIKE)
def test_package_and_binary_answer_alike(installed, line):
    args = shlex.split(line)
    expected = binary.run(*args, program=installed.binary)
    module = binary.run("-m", "pellucid", *args, program=installed.programs / "python")
    for ran in (installed.run(*args), module):
        assert (ran.code, ran.out, ran.err) == (expected.code, expected.out, expected.err)


def test_first_commands_of_the_readme_run_from_the_package(installed, tmp_path):
    installed.run("generate", "tpch", "--scale", "0.01", "data", cwd=tmp_path).check()
    query = "SELECT l_shipmode, count(*) AS late FROM 'data/lineitem.parquet' WHERE l_receiptdate > l_commitdate GROUP BY 1 ORDER BY 2 DESC LIMIT 3"
    slowed = ("--io", "direct", "--disk-rate", ".=1MB/s", "--trace", "late.trace")
    ran = installed.run("sql", query, *slowed, cwd=tmp_path).check()
    assert re.search(r"^3 rows in .* · limited by disk ", ran.err, re.MULTILINE), ran.err
    assert "disk" in installed.run("analyze", "late.trace", cwd=tmp_path).check().out
    assert "predicted" in installed.run("whatif", "late.trace", "--set", "disk.rate=x2", cwd=tmp_path).check().out


def test_worker_processes_start_in_a_folder_named_like_the_package(installed, tmp_path):
    (tmp_path / "pellucid").mkdir()
    (tmp_path / "pellucid" / "__main__.py").write_text("raise SystemExit('the wrong package')\n")
    (tmp_path / "points.csv").write_text("x,y\n" + "".join(f"{n % 7},{n % 5}\n" for n in range(1000)))
    given = ["iterate", "kmeans", "points.csv", "--k", "2", "--json"]
    ran = installed.run(*given, "--processes", "2", cwd=tmp_path).check()
    assert ran.json()["result"] == binary.run(*given, program=installed.binary, cwd=tmp_path).check().json()["result"]


def test_jar_is_sought_beside_the_extension_module(installed, tmp_path):
    [package] = installed.programs.parent.resolve().glob("lib/python*/site-packages/pellucid")
    environment = {name: value for name, value in os.environ.items() if name != "PELLUCID_SPARK_JAR"}
    ran = installed.run("spark", "jar", env=environment)
    expected = str(package / "pellucid-spark.jar")
    assert ran.out.strip() == expected if (package / "pellucid-spark.jar").exists() else expected in ran.err, ran


def test_archive_is_complete_and_starts_on_old_systems(tmp_path):
    archive = released("pellucid-*.tar.gz")
    assert archive.stat().st_size < MAX_BYTES
    folder = unpacked(archive, tmp_path / "archive")
    for name in ("LICENSE", "README.md", "CHANGELOG.md", "pellucid-spark.jar", "man/pellucid.1", "man/pellucid-sql.1"):
        assert (folder / name).stat().st_size > 0, name
    scripts = {path.name for path in (folder / "completions").iterdir()}
    assert scripts == {"pellucid.bash", "pellucid.fish", "_pellucid.ps1", "_pellucid"}
    check_glibc((folder / "pellucid").read_bytes())
    assert binary.run("--version", program=folder / "pellucid").check().out == binary.run("--version").check().out


KEYS = Path("/usr/share/keyrings/debian-archive-keyring.gpg")


def c_library(suite: str, folder: Path) -> list[str | Path]:
    """Returns a command that runs a program with the C library of a Debian release, which apt downloads."""
    if not KEYS.exists():
        pytest.skip("needs Debian's apt and keys")
    targets = ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Origin: Debian", "Label: Debian", "Component: main"]
    mirror = subprocess.run(targets, check=True, capture_output=True, text=True).stdout.split()[0]
    (folder / "lists" / "partial").mkdir(parents=True)
    (folder / "sources").write_text(f"deb [signed-by={KEYS}] {mirror} {suite} main\n")
    settings = {"Dir::Etc::sourcelist": folder / "sources", "Dir::Etc::sourceparts": "-", "Dir::State::lists": folder / "lists"}
    apt = ["apt-get", "-qq", *(part for name, value in settings.items() for part in ("-o", f"{name}={value}"))]
    for command in ([*apt, "update"], [*apt, "download", f"libc6/{suite}"]):
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
    [package] = folder.glob("libc6_*.deb")
    subprocess.run(["dpkg-deb", "-x", package, folder / "root"], check=True)
    [library] = folder.glob("root/**/libc.so.6")
    return [next(library.parent.glob("ld-linux-*.so.*")), "--inhibit-cache", "--library-path", library.parent]


@pytest.mark.full
@pytest.mark.parametrize("suite", ["bullseye", "trixie"])
def test_binary_answers_with_the_glibc_of_debian_11_and_13(suite, tmp_path):
    program = unpacked(released("pellucid-*.tar.gz"), tmp_path / "archive") / "pellucid"
    loader = c_library(suite, tmp_path / "apt")
    ran = subprocess.run([*loader, program, "sql", "SELECT 42", "--format", "csv"], capture_output=True, text=True)
    assert (ran.returncode, ran.stdout.splitlines()[-1]) == (0, "42"), ran.stderr


def test_checksums_and_bill_of_materials_match_the_files():
    sums = dict(reversed(line.split("  ")) for line in released("SHA256SUMS").read_text().splitlines())
    assert {Path(name).suffix for name in sums} == {".whl", ".gz", ".json"}
    for name, expected in sums.items():
        assert hashlib.sha256((DIST / name).read_bytes()).hexdigest() == expected, name
    text = released("pellucid-*.cyclonedx.json").read_text()
    bill = json.loads(text)
    components = {part["name"]: part for part in bill["components"]}
    assert bill["bomFormat"] == "CycloneDX" and components["datafusion"]["licenses"], list(components)
    assert str(ROOT) not in text
