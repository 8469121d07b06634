"""The examples of the pages, with the Python package of the build and, with PELLUCID_FULL=1, with the wheel installed as users do it."""

import re
import subprocess
import venv

import pytest

from harness.binary import ROOT


def examples() -> list[tuple[str, str, str]]:
    """Returns the examples of the pages: page, code, and the output that the page shows."""
    found = []
    for page in (ROOT / "README.md", ROOT / "python" / "README.md"):
        text = page.read_text()
        for example in re.finditer(r"```python\n(.*?)```", text, re.DOTALL):
            if "import pellucid" in example[1]:
                printed = re.search(r"[Pp]rints `([^`]*)`", text[example.end() :])
                found.append((str(page.relative_to(ROOT)), example[1], printed[1]))
    return found


def test_examples_print_the_documented_output(script):
    assert examples(), "no page has an example"
    for page, code, printed in examples():
        out, err = script(code).communicate(timeout=300)
        assert out.strip() == printed, f"{page}: {out}{err}"
        assert sum(bool(line.strip()) for line in code.splitlines()) <= 20, f"{page}: more than twenty lines"


@pytest.mark.full
def test_wheel_installs_and_runs_the_examples(tmp_path):
    """Runs `pip install WHEEL numba` in a fresh environment, then the examples."""
    wheel = next((ROOT / "dist").glob("pellucid-*.whl"), None)
    if wheel is None:
        pytest.skip("no dist/pellucid-*.whl; run make wheel")
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "-q", wheel, "numba"], check=True, timeout=600)
    for _, code, printed in examples():
        ran = subprocess.run([python, "-c", code], capture_output=True, text=True, timeout=300)
        assert ran.stdout.strip() == printed, ran.stderr
