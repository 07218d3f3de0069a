"""Tests the page in a real Chromium, with a real server, controller and jobs: what a person does and sees."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from playwright.sync_api import Browser, Page, expect

from tests.support.background import STEADY, Watched
from tests.support.browser import chromium, complaints

# It needs no torch, which takes most of the time of so short a training to load: only Rung does, to verify the
# checkpoints. Its loss is NaN from step 41 on, unless it runs in FP32.
TRAINING = """
import json, struct, sys
precision, folder, *resume = sys.argv[1:]
first = int(resume[0].rpartition("_")[2].partition(".")[0]) if resume else 0
for step in range(first + 1, 61):
    loss = "nan" if precision != "fp32" and step > 40 else f"{2 / (1 + step * 0.05):.4f}"
    print(f"step {step} loss {loss}", flush=True)
    if step % 20 == 0:
        header = json.dumps({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
        with open(f"{folder}/step_{step}.safetensors", "wb") as file:
            file.write(struct.pack("<Q", len(header)) + header + struct.pack("<f", float(loss)))
"""
RUN = ["python", "train.py", "{precision}", "{checkpoint_dir}", "{checkpoint}"]
# A busy machine may need many times what it takes.
PATIENCE_MS = 240_000


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


@pytest.fixture
def link(spawn: Callable[..., subprocess.Popen[bytes]], watched: Watched) -> str:
    """Start `rung web` and return the link that it prints."""
    server = spawn("web", "--port", "0")
    assert server.stdout is not None
    return server.stdout.readline().decode().split()[-1]


@pytest.fixture
def page(browser: Browser, link: str) -> Iterator[Page]:
    """Open the link; at the end the browser must have complained about nothing."""
    with browser.new_context() as context:
        context.set_default_timeout(PATIENCE_MS)
        expect.set_options(timeout=PATIENCE_MS)
        opened = context.new_page()
        said = complaints(opened)
        opened.on("dialog", lambda dialog: dialog.accept())
        opened.goto(link)
        yield opened
        # The one line that says why an action was refused is shown on the page.
        assert [each for each in said if "409 (Conflict)" not in each] == []


def mark(page: Page) -> None:
    page.evaluate("window.notReloaded = true")


def is_marked(page: Page) -> bool:
    return bool(page.evaluate("window.notReloaded === true"))


def tab_to(page: Page, selector: str) -> None:
    """Press the tabulator until an element has the focus, and shows it."""
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate("selector => document.activeElement.matches(selector)", selector):
            assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
            return
    raise AssertionError(f"the tabulator does not lead to {selector}")


def test_a_recovery_is_seen_live_and_leads_to_the_line_of_its_fault(
    page: Page, link: str, watched: Watched, rung: Callable[..., object], tmp_path: Path
) -> None:
    assert "token" in link and "token" not in page.url
    expect(page.locator("#live")).to_have_text("live")
    expect(page.locator("#jobs")).to_contain_text("No jobs yet")
    mark(page)
    (tmp_path / "train.py").write_text(TRAINING)
    fields = {"checkpoint": {"pattern": "step_*.safetensors"}, "recovery": {"ladder": ["fp32"], "trials": "off"}}
    job = {"name": "overflow", "run": RUN, **fields}
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job))
    rung("launch", tmp_path / "job.yaml")
    expect(page.locator("#row-overflow-1")).to_be_visible()
    assert is_marked(page), "the list has changed without a reload"

    # By the keyboard alone: from the list to the job, and at the end to the line of its fault.
    tab_to(page, "#row-overflow-1 a")
    page.keyboard.press("Enter")
    page.wait_for_url("**/jobs/overflow-1")
    mark(page)
    expect(page.locator("#story")).to_contain_text("nan_loss at step 41")
    expect(page.locator("#attempt-2 .title")).to_contain_text("fp32")
    expect(page.locator("#head .state")).to_have_text("SUCCEEDED")
    expect(page.locator("#attempt-2 .diff")).to_contain_text("precision amp_fp16 → fp32")
    expect(page.locator("#checkpoints")).to_contain_text("healthy")
    expect(page.locator("#news")).to_have_text("overflow-1 SUCCEEDED")
    assert is_marked(page), "the whole recovery was shown without a reload"

    expect(page.locator("#attempt-1 .to-fault")).to_be_hidden()
    tab_to(page, "#attempt-1 summary")
    page.keyboard.press("Enter")
    expect(page.locator("#attempt-1 .to-fault")).to_be_visible()
    tab_to(page, "#attempt-1 .to-fault")
    page.keyboard.press("Enter")
    line = page.locator(".line.fault")
    expect(line).to_be_in_viewport()
    expect(line).to_contain_text("step 41 loss nan")
    assert page.url.endswith(f"#{line.get_attribute('id')}")


def test_a_job_is_cancelled_and_retried_with_a_lower_lr(
    page: Page, watched: Watched, rung: Callable[..., object]
) -> None:
    run = ["sh", "-c", f'echo "lr is $1"; {STEADY}', "train", "{lr}"]
    rung("launch", watched.job_file("steady", run=run, knobs={"lr": 0.01}))
    page.goto(page.url + "jobs/steady-1")
    expect(page.locator("#head .state")).to_have_text("RUNNING")
    expect(page.locator("#doing")).to_contain_text("loss 0.5")
    mark(page)
    page.locator("#cancel").click()
    expect(page.locator("#said")).to_have_text("steady-1 is RUNNING; cancelling")
    expect(page.locator("#head .state")).to_have_text("CANCELLED")

    page.locator("#retry summary").click()
    page.locator("#knob-lr").fill("a lot")
    page.locator("#retry-now").click()
    expect(page.locator("#said")).to_contain_text("rung: --set lr: ")
    assert watched.job("steady-1").state == "CANCELLED"
    page.locator("#knob-lr").fill("0.001")
    page.locator("#retry-now").click()
    expect(page.locator("#said")).to_contain_text("steady-1 is QUEUED again")
    expect(page.locator("#head .state")).to_have_text("RUNNING")
    expect(page.locator("#attempt-2 .diff")).to_contain_text("lr 0.01 → 0.001")
    expect(page.locator("#log")).to_contain_text("lr is 0.001")
    assert is_marked(page)
    watched.go.touch()
    expect(page.locator("#head .state")).to_have_text("SUCCEEDED")


def test_the_page_fits_a_phone_and_reads_without_scripts(
    browser: Browser, link: str, rung: Callable[..., object]
) -> None:
    with browser.new_context(java_script_enabled=False, viewport={"width": 360, "height": 700}) as context:
        opened = context.new_page()
        said = complaints(opened)
        for path in ("", "hosts", "ledger"):
            opened.goto(link.replace("/?", f"/{path}?"))
            expect(opened.locator("main h2").first).to_be_visible()
            box = opened.locator("main").bounding_box()
            assert box is not None and box["width"] <= 360
        assert said == []
