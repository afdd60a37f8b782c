"""The report of a finished study in a real browser: every figure shows, nothing fails, nothing is fetched."""

from __future__ import annotations

import csv
import json
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headroom.worlds.miniwob.browser import Browser
from headroom.worlds.miniwob.chromium import find_chromium

pytestmark = [pytest.mark.slow, pytest.mark.browser]

WATCH = """
window.faults = [];
window.fetched = [];
for (const name of ['error', 'assert']) {
  const before = console[name];
  console[name] = (...said) => {
    if (name === 'error' || !said[0]) window.faults.push('console: ' + said.map(String).join(' '));
    before.apply(console, said);
  };
}
window.addEventListener('error', (event) => window.faults.push('error: ' + (event.message || event.target.src)), true);
window.addEventListener('unhandledrejection', (event) => window.faults.push('rejected: ' + event.reason));
for (const [owner, name] of [[window, 'fetch'], [XMLHttpRequest.prototype, 'open'], [navigator, 'sendBeacon']]) {
  const before = owner[name];
  owner[name] = function (...said) { window.fetched.push(name + ' ' + said); return before.apply(this, said); };
}
"""
REQUESTS = (
    "window.fetched.concat(performance.getEntriesByType('resource').map((entry) => entry.name)"
    ".filter((name) => !/^(data|blob):/.test(name)))"
)


class Page:
    """The report, open in a browser."""

    def __init__(self, browser: Browser, file: Path) -> None:
        self.browser = browser
        target = browser.call("Target.createTarget", {"url": "about:blank"}, timeout=60)["targetId"]
        attach = {"targetId": target, "flatten": True}
        self.session = browser.call("Target.attachToTarget", attach, timeout=60)["sessionId"]
        self.call("Page.enable")
        size = {"width": 1280, "height": 800, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", size)
        self.call("Page.addScriptToEvaluateOnNewDocument", {"source": WATCH})
        self.call("Page.navigate", {"url": file.as_uri()})
        self.until("document.readyState === 'complete' && !!document.querySelector('#where-to-start')")

    def call(self, method: str, parameters: dict[str, Any] | None = None) -> dict[str, Any]:
        return self.browser.call(method, parameters, session=self.session, timeout=120)

    def value(self, expression: str) -> Any:
        answer = self.call("Runtime.evaluate", {"expression": expression, "returnByValue": True})
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def until(self, expression: str) -> None:
        for _ in range(600):
            if self.value(expression):
                return
            time.sleep(0.1)
        pytest.fail(f"never true: {expression}")


@pytest.fixture(scope="module")
def report(finished_smoke: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("report") / "report.html"
    style = ["--report-stylesheet", "workflow/report/style.css"]
    done = subprocess.run(
        [".venv/bin/snakemake", "--nolock", "--config", "scale=smoke", "--report", str(file), *style],
        cwd=finished_smoke, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    # docutils says there what it could not read in a caption.
    assert not re.findall(r"<string>:.*\((?:WARNING|ERROR|SEVERE)/.*", done.stderr)
    return file


@pytest.fixture
def page(report: Path) -> Iterator[Page]:
    browser = Browser(find_chromium(), begin_frame=False)
    try:
        yield Page(browser, report)
    finally:
        browser.close()


def figures(folder: Path) -> list[str]:
    with (folder / "workflow/data/figures.tsv").open(encoding="utf-8", newline="") as stream:
        return [row["figure"] for row in csv.DictReader(stream, delimiter="\t") if row["study"] == "gate"]


def test_the_first_screen_says_what_was_asked_what_came_out_how_sure_and_what_to_click(page: Page) -> None:
    for words in ("What was asked.", "What came out.", "How sure.", "What to click."):
        place = f"""[...document.querySelectorAll('#app strong')].filter((part) => part.textContent === '{words}')
            .map((part) => part.getBoundingClientRect())[0]"""
        box = page.value(f"(({{top, bottom}}) => ({{top, bottom}}))({place})")
        assert 0 <= box["top"] < box["bottom"] <= 800, words
    assert page.value("document.querySelectorAll('.system-message').length") == 0
    assert "not evidence" in page.value("document.body.innerText")


def test_every_figure_shows_with_its_caption_and_nothing_fails_or_is_fetched(page: Page, finished_smoke: Path) -> None:
    names = figures(finished_smoke)
    assert names
    for name in names:
        path = json.dumps(f"figures/smoke/{name}.png")
        view = (
            f"{{content: 'img', contentPath: results[{path}].data_uri, navbarMode: 'resultinfo', resultPath: {path}}}"
        )
        page.value(f"app.setView({view})")
        shows = f"image && image.src === results[{path}].data_uri && image.complete && image.naturalWidth > 400"
        page.until(f"(image => {shows})(document.querySelector('#app .p-3 > img'))")
        caption = (finished_smoke / "figures/smoke/captions" / f"{name}.txt").read_text(encoding="utf-8")
        shown = page.value("document.querySelector('#app').innerText")
        assert "".join(caption.split())[:60] in "".join(shown.split()), name
        assert page.value("document.querySelectorAll('.system-message').length") == 0, name
    assert page.value("window.faults") == []
    assert page.value(REQUESTS) == []


def test_the_watch_would_see_a_fault_and_a_request(page: Page) -> None:
    page.value("console.error('made up'); fetch('https://example.org/made-up').catch(() => 0); 0")
    page.value("document.body.append(Object.assign(new Image(), {src: 'file:///made-up.png'})); 0")
    page.until("window.faults.length === 2 && window.fetched.length === 1")


def test_what_to_click_opens_what_it_says(page: Page) -> None:
    count = page.value("document.querySelectorAll('#where-to-start a').length")
    assert count == 4
    for number in range(count):
        page.value("app.setView({navbarMode: 'menu', content: 'rulegraph'})")
        page.until("!!document.querySelector('#where-to-start')")
        page.value(f"document.querySelectorAll('#where-to-start a')[{number}].click()")
        page.until("!document.querySelector('#where-to-start')")
        shown = "iframe" if number == 0 else ".p-3 > img"
        page.until(f"!!document.querySelector('#app {shown}')")
    assert page.value("window.faults") == []


def test_the_page_of_claims_stands_alone(page: Page, finished_smoke: Path) -> None:
    page.call("Page.navigate", {"url": (finished_smoke / "figures/smoke/claims.html").as_uri()})
    page.until("document.readyState === 'complete' && !!document.querySelector('table')")
    with (finished_smoke / "figures/smoke/data/claims.csv").open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert page.value("document.querySelectorAll('tbody tr[id]').length") == len(rows)
    assert page.value(REQUESTS) == []
    assert page.value("window.faults") == []
