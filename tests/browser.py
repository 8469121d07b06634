"""A headless Chromium for checks of pages: the system's own, installed from the distribution where it can be."""

import os
import shutil
import subprocess
from contextlib import contextmanager
from pathlib import Path

import pytest

# Pictures and measurements that a run leaves behind, for CI to keep.
ARTEFACTS = Path(os.environ.get("PELLUCID_ARTEFACTS") or Path(__file__).parent / "artefacts").resolve()
TIMEOUT_MS = 60_000
NAMES = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"]


def chromium() -> str:
    """Path of the browser; skips with the reason where there is none."""
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
def started():
    """A browser."""
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed (tests/requirements.txt)")
    with api.sync_playwright() as playwright:
        # Without the sandbox, since root may not have one; the pages are our own.
        browser = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox", "--disable-gpu"])
        try:
            yield browser
        finally:
            browser.close()


# Clicks each heading that sorts, twice; returns what did not happen as it should.
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
    """A page that was opened from a file, and everything that it should not have done."""

    def __init__(self, browser, path: Path | None = None, width: int = 1280, scheme: str = "light"):
        self.context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        self.page = self.context.new_page()
        # What never comes fails by its name; a machine under load only takes longer.
        self.page.set_default_timeout(TIMEOUT_MS)
        self.errors: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: message.type == "error" and self.errors.append(message.text))
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.width = width
        if path:
            self.open(path)

    def open(self, path: Path) -> None:
        """Opens a page in place of the one before it, which is three times as fast as a context of its own."""
        self.errors.clear()
        self.requests.clear()
        self.url = path.resolve().as_uri()
        self.page.goto(self.url)
        self.page.wait_for_selector("html[data-ready=yes], #failure:not([hidden])", state="attached")

    def check(self) -> None:
        """It drew itself to the end, fits its width, reported no error and asked nothing of anyone."""
        assert self.page.locator("#failure").is_hidden(), self.page.inner_text("#failure")
        wide = self.page.evaluate("document.documentElement.scrollWidth")
        assert wide <= self.width, f"the page is {wide} pixels wide on a screen of {self.width}"
        assert not self.errors, self.errors
        asked = [url for url in self.requests if url != self.url]
        assert not asked, asked

    def check_tables(self) -> None:
        """Each table sorts by each of its columns that offers it, both ways."""
        wrong = self.page.evaluate(SORT)
        assert not wrong, wrong
        assert not self.errors, self.errors

    def first_picture_ms(self) -> float:
        """From the start of loading until the timeline was drawn, and until anything was painted."""
        script = """() => Math.max(...["first-picture", "first-contentful-paint"].map(
            (name) => performance.getEntriesByName(name)[0]?.startTime ?? Infinity))"""
        return self.page.evaluate(script)

    def colors(self, canvas: str) -> int:
        """How many different colours a canvas shows."""
        script = """(id) => {
            const canvas = document.getElementById(id);
            const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
            const seen = new Set();
            for (let i = 0; i < data.length; i += 4) seen.add((data[i] << 16) | (data[i + 1] << 8) | data[i + 2]);
            return seen.size;
        }"""
        return self.page.evaluate(script, canvas)

    def picture(self, name: str) -> Path:
        """Keeps a picture of the whole page."""
        ARTEFACTS.mkdir(parents=True, exist_ok=True)
        path = ARTEFACTS / f"{name}.png"
        self.page.screenshot(path=path, full_page=True)
        return path

    def close(self) -> None:
        self.context.close()
