"""Runs cargo-deny: licences, sources, versions and known vulnerabilities of the dependencies.

cargo-deny reads advisories from a Git repository. Here they come from `advisories.toml`, so that the check needs no
network beyond the package registry and gives the same answer for the same commit.
"""

import json
import os
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# cargo-deny accepts no local repository; Git replaces this name, which cannot exist, by a folder.
URL = "https://advisories.invalid/database"
CONFIGURATION = """
[advisories]
db-path = '{folder}/clones'
db-urls = ["{URL}"]
# A version may be withdrawn at any time; that must not fail the checks of an unchanged commit.
yanked = "warn"
ignore = [{ignored}]
"""


def document(advisory: dict) -> str:
    """Returns an advisory in the format of the RustSec database: TOML and a title."""
    given = {key: advisory[key] for key in ("id", "package", "date", "informational", "url") if key in advisory}
    lines = ["```toml", "[advisory]", *(f'{key} = "{value}"' for key, value in given.items())]
    affected = {key: advisory[key] for key in ("arch", "os") if key in advisory}
    if affected:
        lines += ["[affected]", *(f"{key} = {json.dumps(value)}" for key, value in affected.items())]
    lines += ["[versions]", *(f"{key} = {json.dumps(advisory.get(key, []))}" for key in ("patched", "unaffected"))]
    return "\n".join([*lines, "```", "", f"# Advisory {advisory['id']}", "", "See the RustSec database.", ""])


def write(database: Path, advisories: list[dict]) -> None:
    """Writes advisories as a Git repository into a new folder."""
    for advisory in advisories:
        file = database / "crates" / advisory["package"] / f"{advisory['id']}.md"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(document(advisory))
    git = ["git", "-C", database, "-c", "user.name=Pellucid", "-c", "user.email=none"]
    subprocess.run(["git", "init", "--quiet", "--initial-branch", "main", database], check=True)
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "--quiet", "--message", "Advisories"], check=True)


def check(program: str, advisories: list[dict], ignored: list[dict], **options) -> int:
    """Runs every check of cargo-deny on the workspace and returns its exit code."""
    with tempfile.TemporaryDirectory() as folder:
        write(database := Path(folder) / "advisories", advisories)
        texts = ", ".join(f'{{ id = "{one["id"]}", reason = "{one["reason"]}" }}' for one in ignored)
        configuration = Path(folder) / "deny.toml"
        own = (ROOT / "deny.toml").read_text()
        configuration.write_text(own + CONFIGURATION.format(folder=folder, URL=URL, ignored=texts))
        command = [program, "--locked", "--manifest-path", ROOT / "Cargo.toml", "--config", configuration, "check"]
        replaced = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": f"url.{database}.insteadOf", "GIT_CONFIG_VALUE_0": URL}
        return subprocess.run(command, env=os.environ | replaced, **options).returncode


def main(program: str) -> int:
    copy = tomllib.loads((ROOT / "tests" / "advisories.toml").read_text())
    advisories, ignored = copy["advisory"], copy.get("ignored", [])
    print(f"{len(advisories)} advisories up to {copy['until']}", flush=True)
    # An advisory on a crate that is in use must fail the check, or its success would mean nothing.
    planted = {"id": "RUSTSEC-2000-0001", "package": "serde", "date": "2000-01-01", "patched": []}
    if check(program, [*advisories, planted], ignored, capture_output=True) == 0:
        print("cannot trust cargo-deny: it passes a planted advisory on serde")
        return 1
    return check(program, advisories, ignored)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
