"""The workspace is built as designed: who depends on whom, who names what, and a true map.

Needs no binary and no network (`make lint`). The table is DESIGN's, as data: a new arrow
between two parts is a decision, and is made here and there first.
"""

import json
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MAP = ROOT / "ARCHITECTURE.md"
ALL = {"trace", "scheduler", "model", "runtime", "storage", "backends", "engine", "iterate", "sparklog", "report"}
MAY_USE = {
    "trace": set(),
    "scheduler": set(),
    "model": {"trace", "scheduler"},
    "runtime": {"trace", "scheduler"},
    "storage": {"trace", "scheduler"},
    "backends": {"storage", "trace"},
    "engine": {"runtime", "storage", "trace"},
    "iterate": {"trace", "storage"},
    "sparklog": {"trace"},
    "report": {"trace", "model"},
    "cli": ALL,
    "python": {"backends", "iterate", "trace"},
}
# Crates that decide and judge, and must not be able to wait, look at a clock, or be random.
PURE = ("scheduler", "model")
IMPURE = re.compile(r"\bstd::(fs|io|net|process|env)\b|\bthread::(sleep|park|current)\b|\b(Instant|SystemTime)\b|\b(println|eprintln)!|\bHash(Map|Set)\b")
# Text in backticks that can be nothing but a path.
PATH = re.compile(r"`([A-Za-z0-9_.\-]+(?:/[A-Za-z0-9_.\-]*)+|[A-Za-z0-9_\-]+\.(?:rs|py|md|toml|txt|tsv|jsonl))`")


def packages() -> dict[str, dict]:
    """The workspace's packages by the name of their folder."""
    command = ["cargo", "metadata", "--no-deps", "--locked", "--offline", "--format-version", "1"]
    found = json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout)
    return {Path(package["manifest_path"]).parent.name: package for package in found["packages"]}


def code_of(file: Path) -> str:
    """A Rust file without comments and without its unit tests, which stand at its end."""
    lines = file.read_text().split("\n#[cfg(test)]\n")[0].splitlines()
    return "\n".join(line.split("//")[0] for line in lines)


def paths_named(text: str) -> list[tuple[str, str]]:
    """Each path in backticks with the folder that its heading names (empty: none)."""
    named, folder = [], ""
    for line in text.splitlines():
        found = PATH.findall(line)
        if line.startswith("#"):
            folder = next((path for path in found if (ROOT / path).is_dir()), "")
        named += [(path, folder) for path in found]
    return named


def resolved(path: str, folder: str) -> Path | None:
    """The file that a path of the map means: from the root, or from its heading's folder."""
    return next((at for at in (ROOT / path, ROOT / folder / path) if at.exists()), None)


def test_crates_use_only_what_the_design_lets_them_use():
    found = packages()
    assert set(found) == set(MAY_USE), "a part was added or removed: DESIGN's table comes first"
    for name, package in found.items():
        uses = {d["name"].removeprefix("pellucid-") for d in package["dependencies"] if d["name"].startswith("pellucid-")}
        assert uses <= MAY_USE[name], f"{name} uses {sorted(uses - MAY_USE[name])}"


def features(*options: str) -> dict[str, str]:
    """The features with which each package other than the command is compiled, by name and version."""
    command = ["cargo", "tree", "--workspace", "--locked", "--offline", "--prefix", "none", "--format", "{p}\t{f}", *options]
    lines = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines()
    found = dict(line.removesuffix(" (*)").split("\t") for line in lines if line)
    return {package: names for package, names in found.items() if not package.startswith("pellucid-cli ")}


def test_demo_and_test_builds_share_every_dependency():
    # Cargo compiles a package again for another set of features; DataFusion would take a quarter of an hour.
    demo = features("--edges", "normal,build")
    for edges in ("normal,build", "normal,build,dev"):
        whole = features("--edges", edges, "--features", "pellucid-cli/all")
        assert {name: whole.get(name) for name in demo} == demo


def test_only_the_engine_names_datafusion():
    for name, package in packages().items():
        names = [d["name"] for d in package["dependencies"] if d["name"].startswith("datafusion")]
        assert not names or name == "engine", f"crates/{name} names {names}"


def test_what_decides_and_judges_cannot_wait_look_at_a_clock_or_be_random():
    for name in PURE:
        for file in sorted((ROOT / "crates" / name / "src").rglob("*.rs")):
            found = IMPURE.search(code_of(file))
            assert found is None, f"{file.relative_to(ROOT)} uses {found.group()}"


def test_every_path_that_the_map_names_exists():
    named = paths_named(MAP.read_text())
    assert len(named) > 50, "the map names hardly anything: is its notation still understood?"
    gone = [path for path, folder in named if resolved(path, folder) is None]
    assert not gone, f"ARCHITECTURE.md names what is not there: {gone}"


def test_the_map_names_every_source_file():
    named = {resolved(path, folder) for path, folder in paths_named(MAP.read_text())}
    for file in sorted([*ROOT.glob("crates/*/src/**/*.rs"), *ROOT.glob("python/src/*.rs")]):
        # A folder that the map describes as a whole covers the files in it.
        covered = file in named or file.parent in named and file.parent.name != "src"
        assert covered, f"ARCHITECTURE.md does not say what {file.relative_to(ROOT)} is for"


def test_links_in_the_documents_lead_somewhere():
    for page in [*ROOT.glob("*.md"), *ROOT.glob("*/*.md")]:
        if page.relative_to(ROOT).parts[0] in ("target", "data"):
            continue
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.relative_to(ROOT)} links to {target}"
