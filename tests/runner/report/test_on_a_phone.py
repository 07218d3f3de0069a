"""Tests the pages of `rung report` in a real Chromium, on a screen as narrow as a phone's and on a wide one."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from rung.runner.report.job_report import job_page
from rung.runner.report.since_report import since_page, since_report
from tests.support.browser import chromium, complaints
from tests.support.web_home import WebHome

# The texts of the curves as they are on the screen, in pixels.
TEXT_SIZES = """() => [...document.querySelectorAll("svg text")].map(each => {
    const svg = each.ownerSVGElement;
    return parseFloat(getComputedStyle(each).fontSize) * svg.getBoundingClientRect().width / svg.viewBox.baseVal.width;
})"""
# The texts of the curves that are cut off at the side.
CUT_OFF = """() => [...document.querySelectorAll("svg text")].filter(each => {
    const text = each.getBoundingClientRect(), svg = each.ownerSVGElement.getBoundingClientRect();
    return text.left < svg.left || text.right > svg.right;
}).map(each => each.textContent)"""
# What is wider than the screen, and not in a box of its own that scrolls.
TOO_WIDE = """() => [...document.querySelectorAll("body *")].filter(each =>
    !each.closest(".wide, svg, pre") && each.getBoundingClientRect().right > innerWidth
).map(each => each.outerHTML.slice(0, 200))"""
LEAST = 10.0


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


@pytest.fixture
def reports(home: Path, tmp_path: Path) -> list[Path]:
    """Write the reports of a job that recovered, of one all of whose text is hostile, and of the night."""
    with closing(WebHome(home)) as made:
        jobs, now = (made.recovered(), made.hostile()), time.time()
        lines = [f"step {step} loss 0.6 lr {1e-4 + step * 1e-8:.7f}\n" for step in range(400, 800)]
        made.paths.attempt(jobs[0].id, 2).log.write_text("".join(lines), encoding="utf-8")
        long_name = made.add("a-very-long-name-" * 5, reason="waits " + "for-a-host" * 30)
        texts = [job_page(made.store, job, made.paths, now) for job in (*jobs, long_name)]
        texts.append(since_page(since_report(made.store, made.paths, now - 9000, now)))
    files = [tmp_path / f"report-{number}.html" for number in range(len(texts))]
    for file, text in zip(files, texts, strict=True):
        file.write_text(text, encoding="utf-8")
    return files


@pytest.mark.parametrize("width", [360, 1360])
def test_a_report_fits_the_screen_and_the_text_of_its_curves_can_be_read(
    browser: Browser, reports: list[Path], width: int
) -> None:
    with browser.new_context(viewport={"width": width, "height": 740}) as context:
        page = context.new_page()
        said, sizes = complaints(page), []
        for file in reports:
            page.goto(file.as_uri())
            assert page.evaluate("document.documentElement.scrollWidth") <= width, file.name
            assert page.evaluate(TOO_WIDE) == [], file.name
            assert page.evaluate(CUT_OFF) == [], file.name
            sizes += page.evaluate(TEXT_SIZES)
        assert min(sizes) >= LEAST, "the curves of a report"
        assert said == [], "it needs nothing that it may not load"
