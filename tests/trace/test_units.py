"""The page's JavaScript formats quantities as the terminal does: one table of cases tests both."""

import pytest

from harness import browser
from harness.binary import ROOT

CASES = ROOT / "crates/model/tests/units.tsv"
WORDS = ROOT / "crates/report/src/html/words.js"
FUNCTIONS = {"time": "timeText", "size": "sizeText", "percent": "percentText", "used": "useText", "grouped": "countText"}


@pytest.fixture(scope="module")
def page():
    with browser.started() as started:
        page = browser.Page(started).page
        page.add_script_tag(path=WORDS)
        yield page


def test_page_formats_quantities_as_the_terminal_does(page):
    rows = [line.split("\t") for line in CASES.read_text().splitlines() if not line.startswith("#")]
    assert {function for function, _, _ in rows} == set(FUNCTIONS)
    calls = [f"{FUNCTIONS[function]}({argument})" for function, argument, _ in rows]
    texts = page.evaluate("(calls) => calls.map((call) => eval(call))", calls)
    wrong = [f"{call} is {text}, expected {row[2]}" for call, text, row in zip(calls, texts, rows) if text != row[2]]
    assert not wrong, "\n".join(wrong)


def test_page_shows_differences_and_missing_values(page):
    assert page.evaluate("[timeText(-12.5), timeText(null), sizeText(undefined), percentText(-0.5)]") == ["−12 ms", "–", "–", "-50 %"]
