"""Checks of the workspace itself: dependencies, features, structure, documentation, and prose.

They need neither a binary nor a network (`make lint`). A new dependency between two crates is a design
decision: it changes the table here and the one in ARCHITECTURE.md.
"""

import json
import re
import subprocess
from pathlib import Path

from harness import structure
from harness.binary import ROOT

MAP = ROOT / "ARCHITECTURE.md"
# Every crate may test with them.
TESTS_ONLY = {"fuzz", "storage-testing"}
ALL = {
    "trace",
    "scheduler",
    "model",
    "runtime",
    "storage",
    "backends",
    "engine",
    "iterate",
    "iterate-apps",
    "sparklog",
    "report",
    "benchmarks",
    "layout",
}
MAY_USE = {
    "trace": set(),
    "scheduler": set(),
    "model": {"trace", "scheduler"},
    "runtime": {"trace", "scheduler"},
    "storage": {"trace", "scheduler"},
    "backends": {"storage", "trace"},
    "engine": {"runtime", "storage", "trace"},
    "layout": {"runtime"},
    "iterate": {"trace", "storage"},
    "iterate-apps": {"trace", "storage", "iterate"},
    "sparklog": {"trace"},
    "report": {"trace", "model"},
    "cli": ALL,
    "python": {"backends", "cli", "iterate", "iterate-apps", "trace"},
    "fuzz": set(),
    "storage-testing": {"storage", "trace"},
    "benchmarks": {"trace"},
}
# They differ between the builds of `make demo` and `make test`, and nothing else depends on them.
LEAVES = ("pellucid-cli ", "pellucid-benchmarks ")
# Crates without clocks, I/O, threads that wait, or randomness.
PURE = ("scheduler", "model")
IMPURE = re.compile(
    r"\bstd::(fs|io|net|process|env)\b|\bthread::(sleep|park|current)\b|\b(Instant|SystemTime)\b|\b(println|eprintln)!|\bHash(Map|Set)\b"
)
# A path in backticks.
PATH = re.compile(r"`([A-Za-z0-9_.\-]+(?:/[A-Za-z0-9_.\-]*)+|[A-Za-z0-9_\-]+\.(?:rs|py|md|toml|txt|tsv|jsonl))`")


def packages() -> dict[str, dict]:
    """Returns the workspace's packages by folder name."""
    command = ["cargo", "metadata", "--no-deps", "--locked", "--offline", "--format-version", "1"]
    found = json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout)
    return {Path(package["manifest_path"]).parent.name: package for package in found["packages"]}


def code_of(file: Path) -> str:
    """Returns a Rust file's code without comments and without the unit tests at its end."""
    lines = file.read_text().split("\n#[cfg(test)]\n")[0].splitlines()
    return "\n".join(line.split("//")[0] for line in lines)


def test_crates_depend_only_on_allowed_crates():
    found = packages()
    assert set(found) == set(MAY_USE), "add the new crate to MAY_USE and to the table in ARCHITECTURE.md"
    for name, package in found.items():
        uses = {
            d["name"].removeprefix("pellucid-")
            for d in package["dependencies"]
            if d["name"].startswith("pellucid-") and not (d["kind"] == "dev" and d["name"].removeprefix("pellucid-") in TESTS_ONLY)
        }
        assert uses <= MAY_USE[name], f"{name} uses {sorted(uses - MAY_USE[name])}"


def features(*options: str) -> set[str]:
    """Returns the packages except the command and its generators, each with its version and its compiled features."""
    command = ["cargo", "tree", "--locked", "--offline", "--prefix", "none", "--format", "{p}\t{f}", *options]
    lines = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines()
    return {line.removesuffix(" (*)") for line in lines if line and not line.startswith(LEAVES)}


def test_builds_of_demo_tests_and_releases_share_every_dependency():
    # Another set of features would compile a package again; DataFusion takes a quarter of an hour.
    builds = [
        ["--workspace"],
        ["--package", "pellucid-cli", "--features", "all"],
        ["--package", "pellucid-python", "--features", "pellucid-cli/all"],
    ]
    for edges in ("normal,build", "normal,build,dev"):
        whole = features("--workspace", "--features", "pellucid-cli/all", "--edges", edges)
        for build in builds:
            other = features(*build, "--edges", "normal,build") - whole
            assert not other, f"{build} compiles {sorted(other)} again"


def test_only_the_engine_names_datafusion():
    for name, package in packages().items():
        names = [d["name"] for d in package["dependencies"] if d["name"].startswith("datafusion")]
        assert not names or name == "engine", f"crates/{name} names {names}"


def test_pure_crates_have_no_clock_io_or_randomness():
    for name in PURE:
        for file in sorted((ROOT / "crates" / name / "src").rglob("*.rs")):
            found = IMPURE.search(code_of(file))
            assert found is None, f"{file.relative_to(ROOT)} uses {found.group()}"


def test_circles_of_imports_have_at_most_two_files():
    circles = structure.all_circles()
    assert not circles, "\n".join(map(", ".join, circles))


def test_source_folders_stay_small():
    found = structure.flat_folders(structure.sources())
    assert not found, f"more than {structure.FOLDER_FILES} source files in a folder: {found}"


def test_python_folders_import_only_those_below():
    below = {"lab": {"lab"}, "harness": {"lab", "harness"}, "bench": {"lab", "harness", "bench"}}
    for file, imported in structure.python_imports(structure.sources()).items():
        allowed = below.get(file.partition("/")[0])
        wrong = {name for name in imported if allowed and name.partition("/")[0] not in allowed}
        assert not wrong, f"{file} imports {sorted(wrong)}"
        # Fixtures are in conftest.py; helpers of several tests are in harness/.
        assert not any("/test_" in name for name in imported), f"{file} imports a test"


def test_structure_finds_planted_circles(tmp_path, monkeypatch):
    files = {
        "a/src/lib.rs": "mod one;\nmod two;\nmod three;\npub use two::Two;\nuse one::One;",
        "a/src/one.rs": "use crate::{Two, three::{self, Three}}; // use crate::none::X;\nstruct One;",
        "a/src/two.rs": "struct Two; fn f() { crate::three::g() }",
        "a/src/three.rs": "use super::one::One as Other;\n#[cfg(test)]\nmod tests { use crate::two::Two; }",
        "b/__init__.py": "",
        "b/one.py": "from b import two",
        "b/two.py": "def f():\n    import b.three",
        "b/three.py": "from b.one import x",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(structure, "ROOT", tmp_path)
    rust = structure.rust_imports(files)
    assert rust["a/src/one.rs"] == {"a/src/two.rs", "a/src/three.rs"} and rust["a/src/three.rs"] == {"a/src/one.rs"}
    assert structure.circles(rust) == [["a/src/one.rs", "a/src/three.rs", "a/src/two.rs"]]
    assert structure.circles(structure.python_imports(files)) == [["b/one.py", "b/three.py", "b/two.py"]]
    assert structure.circles({"a": {"b"}, "b": {"a"}}) == []
    assert structure.flat_folders([f"a/src/{n}.rs" for n in range(16)] + ["a/fixtures/1.rs"]) == {"a/src": 16}


def tracked(*suffixes: str) -> list[Path]:
    """Returns the repository's files with one of the suffixes."""
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    files = [ROOT / name for name in names.split("\0") if name.endswith(suffixes)]
    return [file for file in files if file.exists()]


def test_architecture_names_existing_paths():
    named = PATH.findall(MAP.read_text())
    assert len(named) > 20, "ARCHITECTURE.md names hardly any path: does PATH still match its notation?"
    missing = [path for path in named if not (ROOT / path).exists()]
    assert not missing, f"ARCHITECTURE.md names missing paths: {missing}"


def test_architecture_lists_allowed_dependencies():
    for name, uses in MAY_USE.items():
        [row] = re.findall(rf"^\| `(?:crates/)?{name}` \|.*\| (.*) \|$", MAP.read_text(), re.MULTILINE)
        listed = set(MAY_USE) & set(re.findall(r"[\w-]+", row))
        assert uses == ALL or listed == uses, f"ARCHITECTURE.md lists {sorted(listed)} for {name}, not {sorted(uses)}"


def test_source_files_open_with_their_purpose():
    for file in tracked(".rs", ".py"):
        source = file.relative_to(ROOT).parts
        if file.suffix == ".py" or "src" in source:
            opening = "//!" if file.suffix == ".rs" else '"""'
            text = file.read_text()
            assert not text or text.startswith(opening), f"{Path(*source)} does not open with {opening} and its purpose"


def test_links_in_documents_resolve():
    for page in tracked(".md"):
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.relative_to(ROOT)} links to the missing {target}"


def test_readme_and_architecture_stay_short():
    for page in (ROOT / "README.md", MAP):
        lines = len(page.read_text().splitlines())
        assert lines <= 150, f"{page.name} has {lines} lines; 150 is the limit"


# Files with prose: comments, documentation, messages.
PROSE = (".rs", ".py", ".java", ".scala", ".js", ".css", ".html", ".md", ".toml", "Makefile", "tests/run")
# A line of a comment, docstring or document that opens with a relative clause, where it asks no question.
OPENER = re.compile(r"""^\s*(?:///?|//!|\#+|/\*+|\*|\"\"\"|[-|])?\s*(?:What|Who|Whom|Whose|That|Which|Whether) (?!.*\?)""")
# Phrases of a literal translation, and names made of a relative clause.
PHRASE = re.compile(
    r"(?<!there )\b(?:is|are|was|were) no (?!longer|more|less|fewer|greater|larger|smaller|later|earlier|worse|better)"
    r"|\bin vain\b|(?<![\"`])\bnobody\b|\blet through\b(?! =)|\bsaid to be\b|\bwithout a word\b|\ba word of\b|\bwhat there is\b|\bone's own\b"
    r"|\b(?:fn|def|void) (?:test_)?(?:what|who|nobody|that)_",
    re.IGNORECASE,
)
# Lines that may read like this, each with its reason.
ALLOWED: dict[str, str] = {}


def test_prose_reads_like_english():
    """A floor for the prose: no openings and phrases of a literal translation."""
    assert len(ALLOWED) <= 10, "rewrite the line instead of allowing it"
    found = []
    for file in tracked(*PROSE):
        if file == Path(__file__):
            continue
        name, fenced = file.relative_to(ROOT), False
        for number, line in enumerate(file.read_text().splitlines(), 1):
            # The text of a fence is output or code.
            fenced ^= file.suffix == ".md" and line.lstrip().startswith("```")
            prose = OPENER.search(line) if comment(file, line) and not fenced else None
            if (prose or PHRASE.search(line)) and line.strip() not in ALLOWED:
                found.append(f"{name}:{number}: {line.strip()}")
    assert not found, f"{len(found)} lines read like a translation:\n" + "\n".join(found)


def comment(file: Path, line: str) -> bool:
    """Returns whether a line that opens with a capital is prose: all text in Markdown, comments elsewhere."""
    return file.suffix == ".md" or line.lstrip().startswith(("//", "#", "*", "/*", '"""'))
