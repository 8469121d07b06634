"""The structure of the sources: imports between files, circles among them, and sizes of folders.

Run `python -m harness.structure` to print the circles and the flat folders. Imports are read from the text, without
compiling: `use` declarations and paths in Rust, import statements in Python and Java. A re-export (`pub use`) hands a
name on and is not an import; a name taken through it counts as taken from the module that defines it. A Rust module may
use the items of a module that contains it. Unit tests at the end of a Rust file do not count. Circles are looked for among Rust files and Python files, and among packages in Java.
"""

import ast
import re
import subprocess
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

from harness.binary import ROOT

# A folder holds at most this many source files, and a circle of imports at most this many files.
FOLDER_FILES, CIRCLE_FILES = 15, 2
SOURCES = (".rs", ".py", ".java", ".js", ".scala")
# Data, not sources.
DATA = {"fixtures", "snapshots", "results", "traces", "event_logs"}
Graph = Mapping[str, set[str]]
# A module's path within its crate.
Module = tuple[str, ...]


@cache
def sources() -> tuple[str, ...]:
    """Returns the tracked source files that exist."""
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return tuple(name for name in names.split("\0") if name.endswith(SOURCES) and (ROOT / name).exists())


def flat_folders(files: Iterable[str]) -> dict[str, int]:
    """Returns the folders with more than `FOLDER_FILES` source files directly in them, and how many."""
    counts = Counter(str(Path(name).parent) for name in files if not DATA & set(Path(name).parts))
    return {folder: count for folder, count in sorted(counts.items()) if count > FOLDER_FILES}


def circles(graph: Graph) -> list[list[str]]:
    """Returns the sets of more than `CIRCLE_FILES` nodes that reach each other, by Tarjan's algorithm."""
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        order[node] = lowest[node] = len(order)
        stack.append(node)
        for after in sorted(graph.get(node, ())):
            if after not in order:
                visit(after)
            if after in stack:
                lowest[node] = min(lowest[node], lowest[after])
        if lowest[node] == order[node]:
            at = stack.index(node)
            if len(stack) - at > CIRCLE_FILES:
                found.append(sorted(stack[at:]))
            del stack[at:]

    for node in sorted(graph):
        if node not in order:
            visit(node)
    return sorted(found)


def all_circles() -> list[list[str]]:
    """Returns the circles among the tracked Rust files, Python files and Java packages."""
    files = sources()
    return circles(rust_imports(files)) + circles(python_imports(files)) + circles(java_imports(files))


# Python


def python_imports(files: Iterable[str]) -> Graph:
    """Returns the imports between Python files."""
    modules = dict(python_modules(files))
    graph: dict[str, set[str]] = defaultdict(set)
    for name, file in modules.items():
        beside = f"{name.rpartition('.')[0]}."
        for imported in python_names((ROOT / file).read_text()):
            # A program that runs by itself imports the modules beside it without their package.
            target = next((modules[n] for n in (imported, beside + imported) if n in modules), None)
            if target not in (None, file):
                graph[file].add(str(target))
    return graph


def python_modules(files: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yields the module's name of each Python file."""
    for file in files:
        if file.endswith(".py"):
            yield file.removesuffix(".py").removesuffix("/__init__").removeprefix("python/").replace("/", "."), file


def python_names(text: str) -> Iterator[str]:
    """Yields the modules that a file may import; `from a import b` names both `a.b` and `a`."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
            yield node.module


# Java


def java_imports(files: Iterable[str]) -> Graph:
    """Returns the imports between Java packages; tests are in the packages that they test, and do not count."""
    graph: dict[str, set[str]] = defaultdict(set)
    for file in files:
        if file.endswith(".java") and "/main/" in file:
            text = (ROOT / file).read_text()
            package = re.search(r"^package ([\w.]+);", text, re.MULTILINE)
            assert package, f"{file} names no package"
            for imported in re.findall(r"^import (?:static )?((?:[a-z]\w*\.)+)[A-Z]", text, re.MULTILINE):
                if imported.rstrip(".") != package[1]:
                    graph[package[1]].add(imported.rstrip("."))
    return graph


# Rust


def rust_imports(files: Iterable[str]) -> Graph:
    """Returns the imports between the Rust files of each crate."""
    crates: dict[str, dict[Module, str]] = defaultdict(dict)
    for file in files:
        crate, source, inside = file.partition("/src/")
        if source and file.endswith(".rs") and not inside.startswith("bin/"):
            path = Path(inside).with_suffix("").parts
            crates[crate][path[:-1] if path[-1] in ("lib", "main", "mod") else path] = file
    graph: dict[str, set[str]] = {}
    for modules in crates.values():
        crate_modules = Crate(modules)
        graph |= {file: crate_modules.imports(module) for module, file in modules.items()}
    return graph


class Crate:
    """The modules of a crate, and the names that each imports or defines."""

    def __init__(self, modules: dict[Module, str]):
        self.modules = modules
        self.text = {module: rust_code((ROOT / file).read_text()) for module, file in modules.items()}
        self.aliases: dict[Module, dict[str, Module]] = {module: {} for module in modules}
        self.globs: dict[Module, list[Module]] = {module: [] for module in modules}
        self.used: dict[Module, list[Module]] = {module: [] for module in modules}
        for module, text in self.text.items():
            for public, tree in re.findall(r"^\s*(pub(?:\([^)]*\))?\s+)?use\s+([\w:{}*,\s]+);", text, re.MULTILINE):
                for path, name in use_paths(re.sub(r"\s+", " ", tree)):
                    if (found := self.absolute(module, path)) is None:
                        continue
                    if name == "*":
                        self.globs[module].append(found)
                    else:
                        self.aliases[module][name] = found
                    if not public:
                        self.used[module].append(found)

    def absolute(self, module: Module, path: Module) -> Module | None:
        """Returns a path from the crate's root; None if it leads out of the crate."""
        first, rest = path[0], path[1:]
        if first == "crate":
            return rest
        if first == "self":
            return module + rest
        if first == "super":
            while rest and rest[0] == "super":
                module, rest = module[:-1], rest[1:]
            return module[:-1] + rest
        return module + path if (*module, first) in self.modules else None

    def imports(self, module: Module) -> set[str]:
        """Returns the files that a module imports from."""
        text = re.sub(r"^[^\n]*\buse\s+[\w:{}*,\s]+;", "", self.text[module], flags=re.MULTILINE)
        children = [child[-1] for child in self.modules if child and child[:-1] == module]
        starts = "|".join(["crate", "self", "super", *map(re.escape, children)])
        paths = [tuple(found.split("::")) for found in re.findall(rf"(?<![\w:])((?:{starts})(?:::\w+)+)", text)]
        used = self.used[module] + [path for path in (self.absolute(module, path) for path in paths) if path is not None]
        targets = set(map(self.defining, used))
        return {self.modules[target] for target in targets if module[: len(target)] != target}

    def defining(self, path: Module, depth: int = 8) -> Module:
        """Returns the module that defines an item, followed through the modules that only hand it on."""
        size = max(n for n in range(len(path) + 1) if path[:n] in self.modules)
        module, rest = path[:size], path[size:]
        if not rest or not depth:
            return module
        if (alias := self.aliases[module].get(rest[0])) is not None and alias != path:
            return self.defining(alias + rest[1:], depth - 1)
        if not self.defines(module, rest[0]):
            for glob in self.globs[module]:
                if self.defines(self.defining(glob, depth - 1), rest[0]):
                    return self.defining(glob, depth - 1)
        return module

    def defines(self, module: Module, name: str) -> bool:
        """Returns whether a module's file defines a name."""
        return re.search(rf"\b(?:fn|struct|enum|trait|type|const|static|union|mod|macro_rules!)\s+{re.escape(name)}\b", self.text[module]) is not None


def rust_code(text: str) -> str:
    """Returns code without comments and without the unit tests at its end."""
    return re.sub(r"//[^\n]*", "", text.split("\n#[cfg(test)]\nmod ")[0])


def use_paths(tree: str, before: Module = ()) -> Iterator[tuple[Module, str]]:
    """Yields each path of a `use` tree and the name that it gets; `*` for all names of a module."""
    tree = tree.strip()
    head, brace, inner = tree.partition("{")
    if brace:
        path = (*before, *(part.strip() for part in head.split("::") if part.strip()))
        depth, start = 0, 0
        inner = inner[: inner.rindex("}")]
        for at, letter in enumerate([*inner, ","]):
            depth += (letter == "{") - (letter == "}")
            if letter == "," and not depth:
                if inner[start:at].strip():
                    yield from use_paths(inner[start:at], path)
                start = at + 1
        return
    whole, _, name = tree.partition(" as ")
    path = (*before, *(part.strip() for part in whole.split("::") if part.strip()))
    if path[-1] in ("self", "*"):
        yield path[:-1], name.strip() or ("*" if path[-1] == "*" else path[-2])
    else:
        yield path, name.strip() or path[-1]


def main() -> None:
    """Prints the circles and the flat folders."""
    for circle in all_circles():
        print(f"circle of {len(circle)}: {', '.join(circle)}")
    for folder, count in flat_folders(sources()).items():
        print(f"{folder}: {count} files")


if __name__ == "__main__":
    main()
