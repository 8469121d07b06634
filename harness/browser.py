"""Headless Chromium for tests of report pages; installed from the distribution if missing and allowed."""

import base64
import gzip
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from harness.binary import ROOT

# Screenshots and measurements of a run, for CI to keep.
ARTEFACTS = Path(os.environ.get("PELLUCID_ARTEFACTS") or ROOT / "tests" / "artefacts").resolve()
TIMEOUT_MS = 60_000
NAMES = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"]


def chromium() -> str:
    """Returns the path of the browser; skips the test with the reason if there is none."""
    for name in [os.environ.get("PELLUCID_CHROMIUM", ""), *NAMES]:
        if name and (found := shutil.which(name)):
            return found
    if os.geteuid() == 0 and shutil.which("apt-get"):
        command = "apt-get update -q && apt-get install -qy --no-install-recommends chromium fonts-dejavu-core"
        installed = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=600)
        if found := shutil.which("chromium"):
            return found
        pytest.skip(f"no Chromium, and none could be installed: {installed.stderr.strip()[-200:]}")
    pytest.skip("no Chromium here (apt-get install chromium, or name one in PELLUCID_CHROMIUM)")


@contextmanager
def started() -> Iterator[Any]:
    """Starts a browser."""
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed (requirements/tests.txt)")
    with api.sync_playwright() as playwright:
        # Root may be unable to use the sandbox; the pages are trusted.
        browser = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox", "--disable-gpu"])
        try:
            yield browser
        finally:
            browser.close()


# Clicks each sortable heading twice and returns the failures.
SORT = """() => {
    const wrong = [];
    for (const table of document.querySelectorAll("table")) {
        const rows = table.tBodies[0].rows.length;
        for (const head of table.querySelectorAll("th[data-column]:has(button)")) {
            const name = `${table.caption.textContent}: ${head.dataset.column}`;
            const found = [0, 1].map(() => { head.querySelector("button").click(); return head.getAttribute("aria-sort"); });
            if (String(found.sort()) !== "ascending,descending") wrong.push(`${name} was sorted ${found}`);
            if (table.tBodies[0].rows.length !== rows) wrong.push(`${name} lost rows`);
        }
    }
    return wrong;
}"""


class Page:
    """A page opened from a file, with the errors and requests that it caused."""

    def __init__(self, browser: Any, path: Path | None = None, width: int = 1280, scheme: str = "light"):
        self.context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        self.page = self.context.new_page()
        # Generous: a loaded machine is slow, and a selector that never appears fails by name anyway.
        self.page.set_default_timeout(TIMEOUT_MS)
        self.errors: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.errors.extend([message.text] if message.type == "error" else []))
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.width = width
        if path:
            self.open(path)

    def open(self, path: Path) -> None:
        """Opens another page in the same context, which is three times as fast as a new context."""
        self.errors.clear()
        self.requests.clear()
        self.url = path.resolve().as_uri()
        self.page.goto(self.url)
        self.page.wait_for_selector("html[data-ready=yes], #failure:not([hidden])", state="attached")

    def check(self) -> None:
        """Asserts that the page rendered completely, fits its width, and made no error and no request."""
        assert self.page.locator("#failure").is_hidden(), self.page.inner_text("#failure")
        wide = self.page.evaluate("document.documentElement.scrollWidth")
        assert wide <= self.width, f"the page is {wide} pixels wide on a screen of {self.width}"
        assert not self.errors, self.errors
        unexpected = [url for url in self.requests if url != self.url]
        assert not unexpected, unexpected

    def check_tables(self) -> None:
        """Asserts that each table sorts both ways by every column that offers it."""
        wrong = self.page.evaluate(SORT)
        assert not wrong, wrong
        assert not self.errors, self.errors

    def first_picture_ms(self) -> float:
        """Returns the time from the start of loading until both the timeline and the first content were painted."""
        script = """() => Math.max(...["first-picture", "first-contentful-paint"].map(
            (name) => performance.getEntriesByName(name)[0]?.startTime ?? Infinity))"""
        return self.page.evaluate(script)

    def colors(self, canvas: str) -> int:
        """Returns the number of distinct colours on a canvas."""
        script = """(id) => {
            const canvas = document.getElementById(id);
            const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
            const seen = new Set();
            for (let i = 0; i < data.length; i += 4) seen.add((data[i] << 16) | (data[i + 1] << 8) | data[i + 2]);
            return seen.size;
        }"""
        return self.page.evaluate(script, canvas)

    def picture(self, name: str) -> Path:
        """Saves a screenshot of the whole page."""
        ARTEFACTS.mkdir(parents=True, exist_ok=True)
        path = ARTEFACTS / f"{name}.png"
        self.page.screenshot(path=path, full_page=True)
        return path

    def close(self) -> None:
        self.context.close()


def unpacked(page: Path) -> str:
    """Returns everything in a page: its text, and every chunk decompressed."""
    text = page.read_text()
    chunks = re.findall(r'<script type="text/plain" id="chunk-\d+">([^<]*)</script>', text)
    assert chunks
    whole = [gzip.decompress(base64.b64decode(chunk)).decode("utf-8", "replace") for chunk in chunks]
    return re.sub(r'(<script type="text/plain" id="chunk-\d+">)[^<]*', r"\1", text) + "".join(whole)
